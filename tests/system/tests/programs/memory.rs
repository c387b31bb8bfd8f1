//! A box proxy's memory.

use crate::harness::{ACCELERATOR, NVME, Pool};

const MIB: u64 = 1 << 20;

#[test]
fn a_full_box_stays_under_its_bound_and_does_not_grow() {
    let pool = Pool::new();
    let drives = (1..=8).map(|slot| pool.drive(slot, &format!("drive-{slot}.img")));
    let slots: Vec<String> =
        drives.chain((9..=16).map(|slot| format!("{slot}=accelerator"))).collect();
    let boxed = pool.boxed("box-a", &slots);
    let _host = pool.host_with_ports("host-1", 16);
    pool.wait_ready(2);
    let start = boxed.resident();
    assert!(start < 64 * MIB, "{start} bytes resident after the start");

    pool.manager_json(&["allocate", "--host", "host-1", "--count", "16"]);
    let drives = pool.find("host-1", NVME, 8);
    let accelerators = pool.find("host-1", ACCELERATOR, 8);
    let traffic = || {
        for drive in &drives {
            pool.round_trip("host-1", drive, 1 << 20);
        }
        for accelerator in &accelerators {
            pool.host_json("host-1", &["bandwidth", accelerator, "--bytes", "4194304"]);
        }
        boxed.resident()
    };
    traffic();
    let warm = traffic();
    assert!(warm < 64 * MIB, "{warm} bytes resident after traffic");
    let mut later = warm;
    for _ in 0..3 {
        later = traffic();
    }
    assert!(later <= warm + MIB, "grew from {warm} to {later} bytes");
    println!("resident: {start} after the start, {warm} after traffic, {later} after more");
}

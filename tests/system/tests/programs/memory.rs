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
    let _host = pool.host("host-1");
    pool.wait_ready(2);
    let start = boxed.resident();
    assert!(start < 64 * MIB, "{start} bytes resident after the start");

    for slot in ["box-a/1", "box-a/2", "box-a/9", "box-a/10"] {
        pool.allocate("host-1", slot);
    }
    let drives = pool.find("host-1", NVME, 2);
    let accelerators = pool.find("host-1", ACCELERATOR, 2);
    let traffic = || {
        for drive in &drives {
            pool.round_trip("host-1", drive, 2 << 20);
        }
        for accelerator in &accelerators {
            pool.host_json("host-1", &["bandwidth", accelerator, "--bytes", "1048576"]);
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

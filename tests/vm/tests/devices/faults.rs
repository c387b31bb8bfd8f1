//! A network that loses, doubles and reorders, and paths that die for a while: the data stays right,
//! and the kernel hears of no error, because there is none.

use crate::bench::{Bench, LONG, NVME, Wanted, ends_with_errors, has_failed, works_until_it_fails};
use anyhow::{Result, ensure};
use processes::relay::{Done, Faults};
use std::time::Duration;
use vm::{Kernel, TALK_BOUND, Verify};

/// As bad as the issue wants it, one after the other and all at once.
const WEATHER: [Faults; 4] = [
    Faults { loss: 0.01, duplicate: 0.0, reorder: 0.0, damage: 0.0, cut: false },
    Faults { loss: 0.0, duplicate: 0.02, reorder: 0.0, damage: 0.0, cut: false },
    Faults { loss: 0.0, duplicate: 0.0, reorder: 0.02, damage: 0.0, cut: false },
    Faults { loss: 0.01, duplicate: 0.01, reorder: 0.01, damage: 0.0, cut: false },
];

fn done(bench: &Bench) -> Done {
    let all = bench.relays.iter().flatten().map(|relay| relay.done());
    all.fold(Done::default(), |sum, one| Done {
        came: sum.came + one.came,
        tagged: sum.tagged + one.tagged,
        lost: sum.lost + one.lost,
        doubled: sum.doubled + one.doubled,
        late: sum.late + one.late,
        damaged: sum.damaged + one.damaged,
        sent: sum.sent + one.sent,
    })
}

fn data_stays_right(kernel: Kernel, seconds: u64) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M"];
    let wanted = Wanted { slots: &slots, relayed: 2, ..Wanted::default() };
    let Some(mut bench) = Bench::start(kernel, &wanted)? else { return Ok(()) };
    bench.lend(0, "box-a/1", NVME)?;
    bench.guest().until("test -b /dev/nvme0n1", TALK_BOUND)?;
    let mark = bench.guest().mark()?;
    let turns = WEATHER.len() as u64 + 2;
    let job = Verify::lasting("/dev/nvme0n1", 32, 16, turns * seconds);
    let io = bench.guest().spawn(job.command())?;
    let turn = Duration::from_secs(seconds);
    for faults in WEATHER {
        bench.relays.iter().flatten().for_each(|relay| relay.set(faults));
        std::thread::sleep(turn);
    }
    // Each path dies for a while, at both ends; the other one carries everything.
    for path in 0..2 {
        for relays in &bench.relays {
            for (number, relay) in relays.iter().enumerate() {
                relay.set(Faults { cut: number == path, ..Faults::default() });
            }
        }
        let before = done(&bench).lost;
        std::thread::sleep(turn);
        ensure!(done(&bench).lost > before, "nothing was sent by path {path} when it was dead");
    }
    bench.relays.iter().flatten().for_each(|relay| relay.set(Faults::default()));
    let (written, read) = job.check(&bench.guest().finish(io, LONG)?)?;
    let did = done(&bench);
    println!("{written} blocks written, {read} read; {did:?}");
    ensure!(did.lost > 0 && did.doubled > 0 && did.late > 0, "the weather was fair: {did:?}");
    let said = bench.guest().dmesg_since(mark)?;
    let errors: Vec<_> = said
        .iter()
        .filter(|message| message.is_warning() || message.text.contains("AER"))
        .map(|message| message.text.as_str())
        .collect();
    ensure!(errors.is_empty(), "the kernel heard of it: {errors:#?}");
    Ok(())
}

/// Without another path the link is down, for good: what was bound over it ends with errors, not in
/// silence. When the path is back the drive can be lent again, and has what was written.
fn its_only_path_dies(kernel: Kernel) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M"];
    let wanted = Wanted { slots: &slots, relayed: 1, ..Wanted::default() };
    let Some(mut bench) = Bench::start(kernel, &wanted)? else { return Ok(()) };
    let address = bench.lend(0, "box-a/1", NVME)?;
    let guest = bench.guest();
    guest.until("test -b /dev/nvme0n1", TALK_BOUND)?;
    guest.ok("seq 200000 > /tmp/sent && \
         dd if=/tmp/sent of=/dev/nvme0n1 bs=64k oflag=direct conv=sync 2>/dev/null")?;
    let io = works_until_it_fails(guest, "/dev/nvme0n1")?;
    let mark = guest.mark()?;
    let set = |bench: &Bench, cut| {
        let faults = Faults { cut, ..Faults::default() };
        bench.relays.iter().flatten().for_each(|relay| relay.set(faults));
    };
    set(&bench, true);
    has_failed(bench.guest(), io)?;
    bench.guest().until_said(mark, &["pciehp: Slot(1): Link Down"], TALK_BOUND)?;
    bench.guest().until(&format!("test ! -e /sys/bus/pci/devices/{address}"), TALK_BOUND)?;
    ends_with_errors(&bench.guest().dmesg_since(mark)?)?;
    set(&bench, false);
    bench.fabric.wait_ready()?;
    bench.fabric.release("box-a/1")?;
    bench.lend(0, "box-a/1", NVME)?;
    let guest = bench.guest();
    guest.until("test -b /dev/nvme0n1", TALK_BOUND)?;
    guest.ok("head -c $(stat -c %s /tmp/sent) /dev/nvme0n1 | cmp - /tmp/sent")?;
    let job = Verify::mixed("/dev/nvme0n1", 8, 8);
    job.check(&guest.sh(job.command(), LONG)?).map(drop)
}

#[test]
#[ignore = "long: errors and removal are those of a box that dies"]
fn a_drive_whose_only_path_dies_goes_with_errors_and_comes_back() {
    its_only_path_dies(Kernel::V6_12).unwrap();
}

#[test]
#[ignore = "long: another kernel"]
fn a_drive_whose_only_path_dies_under_6_1_comes_back() {
    its_only_path_dies(Kernel::V6_1).unwrap();
}

#[test]
fn data_stays_right_in_bad_weather() {
    data_stays_right(Kernel::V6_12, 3).unwrap();
}

#[test]
#[ignore = "long: minutes of it"]
fn data_stays_right_in_bad_weather_for_minutes() {
    data_stays_right(Kernel::V6_1, 30).unwrap();
}

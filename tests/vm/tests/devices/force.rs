//! A device that is taken by force in the middle of its work and lent again at once: to another guest,
//! and to the same one, which has not yet noticed that it is gone.

use crate::bench::{
    Bench, LONG, NVME, VERIFIED, Wanted, has_failed, was_never_late, works_until_it_fails,
};
use anyhow::{Context, Result};
use vm::{Guest, Kernel, TALK_BOUND, Verify};

/// Takes the drive from whom it works for and lends it to a host, without waiting for any guest.
fn changes_hands(bench: &mut Bench, to: &str) -> Result<()> {
    bench.fabric.manager(&["release", "box-a/1", "--force"])?;
    bench.fabric.allocate(to, "box-a/1").map(drop)
}

/// The drive holds what is written where others were at work, and nothing that they would write; its
/// name.
fn works_alone(guest: &mut Guest) -> Result<String> {
    // While somebody has one open that went, the next has another number.
    let find = "ls /sys/block | grep -m 1 '^nvme.*n1$'";
    guest.until(&format!("n=$({find}) && dd if=/dev/$n of=/dev/null bs=4k count=1"), TALK_BOUND)?;
    let drive = format!("/dev/{}", guest.ok(find)?.trim());
    for depth in [1, 16] {
        let job = Verify::mixed(&drive, VERIFIED, depth);
        job.check(&guest.sh(job.command(), LONG)?).context("somebody else wrote there")?;
    }
    Ok(drive)
}

fn is_taken_by_force(kernel: Kernel) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M"];
    let wanted = Wanted { slots: &slots, guests: 2, ..Wanted::default() };
    let Some(mut bench) = Bench::start(kernel, &wanted)? else { return Ok(()) };
    bench.lend(0, "box-a/1", NVME)?;
    let mut drive = works_alone(bench.guest())?;
    for (from, to) in [(0, 1), (1, 1), (1, 0)] {
        let io = works_until_it_fails(&mut bench.guests[from], &drive)?;
        let mark = bench.guests[from].mark()?;
        changes_hands(&mut bench, &format!("host-{}", to + 1))?;
        has_failed(&mut bench.guests[from], io)?;
        was_never_late(&bench.guests[from].dmesg_since(mark)?)?;
        drive = works_alone(&mut bench.guests[to])
            .with_context(|| format!("from {from} to {to}\n{}", bench.fabric.last_words()))?;
    }
    bench.fabric.check()
}

#[test]
fn a_drive_is_taken_by_force_and_lent_again_at_once() {
    is_taken_by_force(Kernel::V6_12).unwrap();
}

#[test]
#[ignore = "long: another kernel"]
fn a_drive_is_taken_by_force_and_lent_again_at_once_under_6_1() {
    is_taken_by_force(Kernel::V6_1).unwrap();
}

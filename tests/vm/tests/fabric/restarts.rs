//! Guests that begin anew with a device that is lent to them, in order and not.

use crate::scene::{PLUG_BOUND, Plan, SMALL, Scene, play};
use anyhow::Result;
use vm::{BOOT_BOUND, Kernel, Verify};

#[test]
fn a_guest_that_begins_anew_has_its_drive_again() {
    play(&SMALL, begins_anew);
}

#[test]
#[ignore = "long: another kernel"]
fn a_guest_of_6_1_that_begins_anew_has_its_drive_again() {
    play(&Plan { kernels: &[Kernel::V6_1], ..SMALL }, begins_anew);
}

/// The drive works, and what was written on it before is there.
fn holds(scene: &mut Scene, before: &str) -> Result<()> {
    let guest = &mut scene.guests[0];
    guest.until("test -b /dev/nvme0n1", PLUG_BOUND)?;
    guest.ok("mount /dev/nvme0n1 /mnt")?;
    guest.ok(&format!("[ \"$(cat /mnt/boot)\" = {before} ]"))?;
    guest.ok("dd if=/dev/urandom of=/mnt/more bs=64k count=8 2>/dev/null; sync; rm /mnt/more")?;
    Ok(())
}

fn begins_anew(scene: &mut Scene) -> Result<()> {
    scene.fabric.allocate("host-1", "box-a/1")?;
    let guest = &mut scene.guests[0];
    guest.until("test -b /dev/nvme0n1", PLUG_BOUND)?;
    guest.ok("mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt")?;
    guest.ok("echo first > /mnt/boot; sync")?;

    // By itself, its file systems as they are.
    guest.reboot(BOOT_BOUND)?;
    holds(scene, "first")?;
    scene.guests[0].ok("echo second > /mnt/boot; sync")?;

    // By the machine's button, in the middle of writing.
    let guest = &mut scene.guests[0];
    drop(guest.spawn("while :; do dd if=/dev/zero of=/mnt/more bs=64k count=32; sync; done")?);
    guest.until("test -s /mnt/more", PLUG_BOUND)?;
    guest.reset(BOOT_BOUND)?;
    holds(scene, "second")?;
    scene.guests[0].ok("echo third > /mnt/boot; sync")?;

    // By a power cut: another machine connects to the same adapter.
    scene.power_cut(0)?;
    holds(scene, "third")?;
    scene.guests[0].ok("umount /mnt")?;
    scene.fabric.check()
}

#[test]
fn what_a_killed_guest_had_is_free_after_its_grace() {
    is_killed_with(Kernel::V6_12);
}

#[test]
#[ignore = "long: another kernel"]
fn what_a_killed_guest_of_6_1_had_is_free_after_its_grace() {
    is_killed_with(Kernel::V6_1);
}

fn is_killed_with(kernel: Kernel) {
    let kernels = [kernel, kernel];
    let plan = Plan { kernels: &kernels, manager: &["--host-grace-s", "3"], ..SMALL };
    play(&plan, is_killed);
}

fn is_killed(scene: &mut Scene) -> Result<()> {
    scene.fabric.allocate("host-1", "box-a/1")?;
    let mut first = scene.guests.remove(0);
    first.until("test -b /dev/nvme0n1", PLUG_BOUND)?;
    first.ok("mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt")?;
    first.ok("echo mine > /mnt/file; sync")?;
    drop(first.spawn("while :; do dd if=/dev/zero of=/mnt/more bs=64k count=32; sync; done")?);
    first.until("test -s /mnt/more", PLUG_BOUND)?;
    first.kill();
    processes::wait_for("the drive to be free", PLUG_BOUND, || {
        Ok((scene.fabric.slot("box-a/1")?["status"] == "free").then_some(()))
    })?;
    // Nothing of the first guest's reaches it any more: what the next one writes stays.
    scene.fabric.allocate("host-2", "box-a/1")?;
    let second = &mut scene.guests[0];
    second.until("test -b /dev/nvme0n1", PLUG_BOUND)?;
    second.ok("mount /dev/nvme0n1 /mnt && [ $(cat /mnt/file) = mine ] && umount /mnt")?;
    crate::lending::verify(second, &Verify::mixed("/dev/nvme0n1", 48, 16))?;
    scene.fabric.check()
}

//! A drive that is lent to one guest, taken back in order, and lent to another.

use crate::scene::{PLUG_BOUND, Plan, SMALL, Scene, WORK_BOUND, play, warnings};
use anyhow::{Context, Result, ensure};
use vm::{Fabric, Guest, Kernel, Verify};

/// What Linux always says of a drive, at a level above information.
const KNOWN: &[&str] = &[];

/// The drive's files and their SHA-256.
pub(crate) const SUMS: &str = "cd /mnt && find . -type f | sort | xargs sha256sum; cd /";

#[test]
fn what_one_guest_wrote_the_next_one_reads() {
    let plan = Plan { kernels: &[Kernel::V6_1, Kernel::V6_12], boxes: TWO_DRIVES, ..SMALL };
    play(&plan, moves_between_guests);
}

#[test]
#[ignore = "long: another kernel"]
fn what_one_guest_wrote_the_newest_linux_reads() {
    let plan = Plan { kernels: &[Kernel::V6_12, Kernel::Backports], boxes: TWO_DRIVES, ..SMALL };
    play(&plan, moves_between_guests);
}

/// A box with one more than is lent.
const TWO_DRIVES: &[(&str, &[&str])] = &[("box-a", &["nvme", "nvme"])];

fn moves_between_guests(scene: &mut Scene) -> Result<()> {
    let Scene { guests, fabric, .. } = scene;
    let marks = guests.iter_mut().map(Guest::mark).collect::<Result<Vec<_>>>()?;
    let lent = fabric.allocate("host-1", "box-a/1")?;
    let first = &mut guests[0];
    first.until("test -b /dev/nvme0n1", PLUG_BOUND)?;
    first.ok("mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt")?;
    let files = "dd if=/dev/urandom of=/mnt/large bs=64k count=64 2>/dev/null; \
                 for i in $(seq 20); do mkdir /mnt/$i; seq $i 1000 > /mnt/$i/small; done; sync";
    first.sh(files, WORK_BOUND)?;
    let written = first.ok(SUMS)?;
    ensure!(written.lines().count() == 21, "{written}");
    verify(first, &Verify::mixed("/mnt/fio", 16, 8))?;
    first.ok("rm /mnt/fio && umount /mnt")?;
    fabric.release(&lent)?;
    first.until("! test -e /dev/nvme0 && ! lspci -D | grep -q Non-Volatile", PLUG_BOUND)?;

    fabric.allocate("host-2", "box-a/1")?;
    let second = &mut guests[1];
    second.until("test -b /dev/nvme0n1", PLUG_BOUND)?;
    second.ok("e2fsck -f -n /dev/nvme0n1 && mount -o ro /dev/nvme0n1 /mnt")?;
    let read = second.ok(SUMS)?;
    ensure!(read == written, "written:\n{written}\nread:\n{read}");
    second.ok("umount /mnt")?;
    is_replaced(fabric, second)?;
    for (guest, mark) in guests.iter_mut().zip(marks) {
        let odd = warnings(guest.dmesg_since(mark)?, KNOWN);
        ensure!(odd.is_empty(), "a kernel warns: {odd:#?}");
    }
    Ok(())
}

/// The drive goes and another one comes in its place, on the same host.
fn is_replaced(fabric: &Fabric, guest: &mut Guest) -> Result<()> {
    let binding = fabric.slot("box-a/1")?["binding"].clone();
    let binding = binding.as_str().context("a lent slot has a binding")?;
    let serial = guest.ok("cat /sys/class/nvme/nvme*/serial")?;
    fabric.manager(&["replace", binding, "--reason", "it is worn"])?;
    let other =
        format!("test -b /dev/nvme*n1 && ! grep -q {} /sys/class/nvme/nvme*/serial", serial.trim());
    guest.until(&other, PLUG_BOUND)?;
    ensure!(guest.ok("ls -d /sys/class/nvme/nvme* | wc -l")?.trim() == "1", "one drive is lent");
    // What was replaced is not lent again by itself.
    ensure!(
        fabric.slot("box-a/1")?["status"] == "held" && fabric.slot("box-a/2")?["status"] == "used"
    );
    let drive = guest.ok("ls /dev/nvme*n1")?;
    verify(guest, &Verify::mixed(drive.trim(), 8, 8))
}

/// Runs a job to its end, and says what it did.
pub(crate) fn verify(guest: &mut Guest, job: &Verify) -> Result<()> {
    let (written, read) = job.check(&guest.sh(job.command(), WORK_BOUND)?)?;
    println!("{written} blocks written, {read} read");
    Ok(())
}

#[test]
#[ignore = "long: minutes of I/O"]
fn every_block_is_what_was_written_at_any_depth() {
    play(&SMALL, works_at_any_depth);
}

#[test]
#[ignore = "long: minutes of I/O, of another kernel"]
fn every_block_is_what_was_written_at_any_depth_by_6_1() {
    play(&Plan { kernels: &[Kernel::V6_1], ..SMALL }, works_at_any_depth);
}

fn works_at_any_depth(scene: &mut Scene) -> Result<()> {
    scene.fabric.allocate("host-1", "box-a/1")?;
    let guest = &mut scene.guests[0];
    guest.until("test -b /dev/nvme0n1", PLUG_BOUND)?;
    for depth in [1, 2, 4, 8, 16, 32] {
        verify(guest, &Verify::mixed("/dev/nvme0n1", 96, depth))?;
        verify(guest, &Verify::lasting("/dev/nvme0n1", 96, depth, 20))?;
    }
    Ok(())
}

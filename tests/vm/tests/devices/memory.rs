//! The other ways to a guest: memory that the host proxy cannot map, where every DMA is a message to
//! QEMU, and interrupts by the adapter's own vectors.

use crate::bench::{Bench, LONG, NVME, Wanted, was_never_late};
use anyhow::{Result, ensure};
use vm::{Kernel, TALK_BOUND, Verify};

/// A drive is bound, holds a file system and, with requests in numbers, what was written.
fn a_drive_works(kernel: Kernel, shared: bool, host: &[&str]) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M"];
    let wanted = Wanted { slots: &slots, host, unshared: !shared, ..Wanted::default() };
    let Some(mut bench) = Bench::start(kernel, &wanted)? else { return Ok(()) };
    let mark = bench.guest().mark()?;
    bench.lend(0, "box-a/1", NVME)?;
    let guest = bench.guest();
    guest.until("test -b /dev/nvme0n1", TALK_BOUND)?;
    guest.ok(
        "mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt && seq 200000 > /mnt/file && \
         umount /mnt && echo 3 > /proc/sys/vm/drop_caches && mount /dev/nvme0n1 /mnt && \
         seq 200000 | cmp - /mnt/file && umount /mnt",
    )?;
    let job = Verify::mixed("/dev/nvme0n1", 8, 16);
    job.check(&guest.sh(job.command(), LONG)?)?;
    was_never_late(&guest.dmesg_since(mark)?)?;
    // It was the way that is meant.
    let adapter = if host == REMAPPED { "8086:a77f" } else { "8086:28c0" };
    guest.ok(&format!("lspci -n -d {adapter} | grep -q ."))?;
    // The adapter's own vectors count only where interrupts come by them.
    let own = "awk '$NF ~ /^vmd/ { for (n = 2; n < NF; n++) sum += $n } END { print sum + 0 }' \
               /proc/interrupts";
    let by_vector: u64 = guest.ok(own)?.trim().parse()?;
    ensure!((by_vector > 0) == (host == REMAPPED), "{by_vector} interrupts of the adapter");
    let counters = bench.fabric.manager(&["counters", "host-1"])?;
    let by_message = counters["counters"]["vm: DMA reads by message"].as_u64();
    ensure!(by_message.is_some_and(|count| (count > 0) != shared), "{counters}");
    Ok(())
}

const REMAPPED: [&str; 2] = ["--vm-interrupts", "remapped"];

#[test]
fn memory_without_a_descriptor_is_reached_by_messages() {
    a_drive_works(Kernel::V6_12, false, &[]).unwrap();
}

#[test]
fn a_drives_interrupts_come_by_the_adapters_vectors() {
    a_drive_works(Kernel::V6_12, true, &REMAPPED).unwrap();
}

#[test]
#[ignore = "long: both at once, under another kernel"]
fn a_drives_interrupts_come_by_the_adapters_vectors_beside_messages() {
    a_drive_works(Kernel::V6_1, false, &REMAPPED).unwrap();
}

//! A guest that does what it likes with configuration space and BARs: the host proxy stands, and
//! the other host's guest notices nothing.

use crate::bench::{ACCELERATOR, Bench, LONG, NVME, ROOM, Wanted};
use anyhow::{Result, ensure};
use vm::{Kernel, TALK_BOUND};

fn misbehaves(seconds: u32, seed: u32) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M", "2=accelerator"];
    let wanted = Wanted { slots: &slots, append: ROOM, guests: 2, ..Wanted::default() };
    let Some(mut bench) = Bench::start(Kernel::V6_12, &wanted)? else { return Ok(()) };
    bench.lend(0, "box-a/1", NVME)?;
    let device = bench.lend(1, "box-a/2", ACCELERATOR)?;
    bench.guests[0].until("test -b /dev/nvme0n1", TALK_BOUND)?;
    let fio = "fio --name=v --filename=/dev/nvme0n1 --rw=randrw --bs=4k --size=16M --iodepth=8 \
               --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --loops=1000 \
               --time_based --runtime=";
    let io = bench.guests[0].spawn(&format!("{fio}{}", seconds + 10))?;
    // Its port, the switch and the root port as well, and whatever the kernel thinks of it.
    let port = "10000:02:00.0 10000:01:00.0 10000:00:00.0";
    let hammer = format!(
        "dmesg -n 1; dxpu-guest hammer {device} {port} --seconds {seconds} --seed {seed}; true"
    );
    let output = bench.guests[1].sh(&hammer, LONG)?;
    println!("{}", output.text);
    ensure!(output.text.contains(" accesses"), "{}", output.text);
    let output = bench.guests[0].finish(io, LONG)?;
    ensure!(output.status == 0 && output.text.contains("err= 0"), "{}", output.text);
    bench.fabric.check()?;
    // What is left of the guest can be started anew, and has its device again.
    bench.guests[1].reset(LONG)?;
    let test = "dxpu-guest accelerator $(basename $(dirname $(grep -l 0xd0ac \
                /sys/bus/pci/devices/*/device))) --mib 1";
    let output = bench.guests[1].sh(test, LONG)?;
    ensure!(output.status == 0, "{}", output.text);
    Ok(())
}

#[test]
fn the_other_guest_goes_on() {
    misbehaves(5, 1).unwrap();
}

#[test]
#[ignore = "long: minutes of it"]
fn the_other_guest_goes_on_for_minutes() {
    misbehaves(180, 2).unwrap();
}

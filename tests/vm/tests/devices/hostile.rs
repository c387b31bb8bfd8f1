//! A guest that does what it likes with configuration space and BARs: the host proxy stands, and
//! the other host's guest notices nothing.

use crate::bench::{ACCELERATOR, Bench, LONG, NVME, ROOM, Wanted};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vm::{Kernel, TALK_BOUND, Verify, items};

/// So often what is needed for requests to get below is put right.
const MEND: &str = "--mend-every 32";

/// Memory and configuration requests of the second guest that went below its root port, and TLPs
/// that went to the box.
fn requests(bench: &Bench) -> Result<[u64; 3]> {
    let all = bench.fabric.manager(&["counters", "host-2"])?;
    let names = ["vm: memory requests", "vm: configuration requests", "link.tlps_sent"];
    let mut counts = [0; 3];
    for (count, name) in counts.iter_mut().zip(names) {
        *count = all["counters"][name].as_u64().with_context(|| format!("{name}: {all}"))?;
    }
    Ok(counts)
}

/// Has the second guest hammer a device, its port, the switch and the root port; what it says.
fn hammer(bench: &mut Bench, arguments: &str, mend: &str) -> Result<Value> {
    let ports = "10000:02:00.0 10000:01:00.0 10000:00:00.0";
    let hammer = format!("dxpu-guest hammer {arguments} {ports} {mend} --json");
    let output = bench.guests[1].sh(&hammer, LONG)?;
    ensure!(output.status == 0, "{}", output.text);
    Ok(serde_json::from_str(output.text.trim())?)
}

fn misbehaves(seconds: u32, seed: u32) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M", "2=accelerator"];
    let wanted = Wanted { slots: &slots, append: ROOM, guests: 2, ..Wanted::default() };
    let Some(mut bench) = Bench::start(Kernel::V6_12, &wanted)? else { return Ok(()) };
    bench.lend(0, "box-a/1", NVME)?;
    let device = bench.lend(1, "box-a/2", ACCELERATOR)?;
    bench.guests[0].until("test -b /dev/nvme0n1", TALK_BOUND)?;
    let job = Verify::lasting("/dev/nvme0n1", 16, 8, 2 * u64::from(seconds) + 10);
    let io = bench.guests[0].spawn(job.command())?;
    // Whatever the kernel thinks of it; it is not to take the device away from the one who hammers.
    bench.guests[1].ok("dmesg -n 1; cd /sys/bus/pci_express/drivers/pciehp; \
         for port in 10000:02:00.0:*; do echo $port > unbind; done")?;
    let before = requests(&bench)?;
    let did = hammer(&mut bench, &format!("{device} --seconds {seconds} --seed {seed}"), MEND)?;
    let after = requests(&bench)?;
    let [memory, configuration, sent] = std::array::from_fn(|n| after[n] - before[n]);
    println!("{did}: {memory} memory and {configuration} configuration requests, {sent} TLPs sent");
    let count = |what: &str| did[what].as_u64().context("it counts");
    let accesses = count("memory")?;
    ensure!(memory > accesses / 2, "{memory} memory requests below of {did}");
    let asked = count("configuration")? + count("mending")?;
    ensure!(configuration > asked / 2, "{configuration} configuration requests below of {did}");
    ensure!(sent > accesses / 2, "{sent} TLPs to the box of {did}");
    let slot = bench.fabric.slot("box-a/2")?;
    ensure!(slot["status"] == "used", "{slot}");
    // And until nothing gets anywhere any more.
    hammer(&mut bench, &format!("{device} --seconds {} --seed {seed}", seconds / 2 + 1), "")?;
    let output = bench.guests[0].finish(io, LONG)?;
    job.check(&output).with_context(|| bench.fabric.last_words())?;
    bench.fabric.check()?;
    // What is left of the guest can be started anew, and has its device, or gets it again: the guest
    // may have said by its slot that it lets go.
    bench.guests[1].reset(LONG)?;
    if bench.fabric.slot("box-a/2")?["status"] != "free" {
        bench.fabric.release("box-a/2")?;
    }
    // Its guest had the device say so many errors that the manager may hold it back.
    let held = bench.fabric.manager(&["holds"])?;
    if items(&held)?.iter().any(|hold| hold["place"] == "box-a/2") {
        bench.fabric.manager(&["maintain", "box-a/2", "--off"])?;
    }
    bench.lend(1, "box-a/2", ACCELERATOR)?;
    let test = "dxpu-guest accelerator $(lspci -D -d 1b36:d0ac | cut -d' ' -f1) --mib 1";
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

//! A guest that does what it likes with configuration space and BARs: the host proxy stands, and
//! the other host's guest notices nothing.

use crate::bench::{ACCELERATOR, Bench, LONG, NVME, ROOM, Wanted};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vm::{Kernel, TALK_BOUND, Verify, items};

/// So often what is needed for requests to get below is put right.
const MEND: &str = "--mend-every 32";

/// Memory and configuration requests of the second guest that went below its root port, TLPs that
/// went to the box, and accesses to what is not there.
fn requests(bench: &Bench) -> Result<[u64; 4]> {
    let names = [
        "vm: memory requests",
        "vm: configuration requests",
        "link.tlps_sent",
        "vm: accesses to nobody",
    ];
    bench.fabric.counters("host-2", names)
}

/// A port, the switch and the root port above a device.
const PORTS: &str = "10000:02:00.0 10000:01:00.0 10000:00:00.0";

/// Has the second guest hammer functions; what it says.
fn hammer(bench: &mut Bench, arguments: &str) -> Result<Value> {
    let hammer = format!("dxpu-guest hammer {arguments} --json");
    let output = bench.guests[1].sh(&hammer, LONG)?;
    ensure!(output.status == 0, "{}", output.text);
    Ok(serde_json::from_str(output.text.trim())?)
}

/// Has it hammer the adapter itself, and what is behind its BARs, when its driver has let go.
fn hammer_adapter(bench: &mut Bench, arguments: &str) -> Result<()> {
    let guest = &mut bench.guests[1];
    let adapter = guest.ok("lspci -D -d 8086:28c0 | cut -d' ' -f1")?;
    let adapter = adapter.trim();
    let unbind = format!("echo {adapter} > /sys/bus/pci/drivers/vmd/unbind");
    let output = guest.sh(&unbind, LONG)?;
    ensure!(output.status == 0, "{}", output.text);
    let before = requests(bench)?;
    let did = hammer(bench, &format!("{adapter} {arguments} {MEND}"))?;
    let after = requests(bench)?;
    let [.., nobody]: [u64; 4] = std::array::from_fn(|n| after[n] - before[n]);
    println!("{did} at the adapter: {nobody} accesses to nobody");
    // Its windows are large, and hardly anything is in them.
    let accesses = did["memory"].as_u64().context("it counts")?;
    ensure!(nobody > accesses / 4, "{nobody} accesses to nobody of {did} at the adapter");
    // And until it decodes nothing any more.
    hammer(bench, &format!("{adapter} {arguments}"))?;
    Ok(())
}

fn misbehaves(kernel: Kernel, seconds: u32, seed: u32) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M", "2=accelerator"];
    let wanted = Wanted { slots: &slots, append: ROOM, guests: 2, ..Wanted::default() };
    let Some(mut bench) = Bench::start(kernel, &wanted)? else { return Ok(()) };
    bench.lend(0, "box-a/1", NVME)?;
    let device = bench.lend(1, "box-a/2", ACCELERATOR)?;
    bench.guests[0].until("test -b /dev/nvme0n1", TALK_BOUND)?;
    // Longer than all that the other one does.
    let job = Verify::lasting("/dev/nvme0n1", 16, 8, 3 * u64::from(seconds) + 15);
    let io = bench.guests[0].spawn(job.command())?;
    // Whatever the kernel thinks of it; it is not to take the device away from the one who hammers.
    bench.guests[1].ok("dmesg -n 1; cd /sys/bus/pci_express/drivers/pciehp; \
         for port in 10000:02:00.0:*; do echo $port > unbind; done")?;
    let before = requests(&bench)?;
    let arguments = format!("{device} {PORTS} --seed {seed}");
    let did = hammer(&mut bench, &format!("{arguments} --seconds {seconds} {MEND}"))?;
    let after = requests(&bench)?;
    let [memory, configuration, sent, _] = std::array::from_fn(|n| after[n] - before[n]);
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
    let half = seconds / 2 + 1;
    hammer(&mut bench, &format!("{arguments} --seconds {half}"))?;
    hammer_adapter(&mut bench, &format!("--seconds {half} --seed {seed}"))?;
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
    misbehaves(Kernel::V6_12, 5, 1).unwrap();
}

#[test]
#[ignore = "long: minutes of it, under another kernel"]
fn the_other_guest_goes_on_for_minutes() {
    misbehaves(Kernel::V6_1, 180, 2).unwrap();
}

//! What the guest finds when its driver for the adapter is loaded.

use crate::scene::{Plan, SMALL, Scene, play, warnings};
use anyhow::{Context, Result, ensure};
use vm::{Kernel, TALK_BOUND};

/// Ports of a host proxy, as they are by default.
const PORTS: usize = 8;

/// What the kernel warns of with any VMD, and why: nothing so far.
const KNOWN: &[&str] = &[];

#[test]
fn linux_6_1_finds_the_switch() {
    play(&Plan { kernels: &[Kernel::V6_1], adapter: false, ..SMALL }, finds_the_switch);
}

#[test]
#[ignore = "long: another kernel; those of the other tests find it, too"]
fn linux_6_12_finds_the_switch() {
    play(&Plan { kernels: &[Kernel::V6_12], adapter: false, ..SMALL }, finds_the_switch);
}

#[test]
#[ignore = "long: another kernel"]
fn the_newest_linux_finds_the_switch() {
    play(&Plan { kernels: &[Kernel::Backports], adapter: false, ..SMALL }, finds_the_switch);
}

#[test]
#[ignore = "long: as many ports as there can be"]
fn linux_finds_thirty_two_ports() {
    let plan = Plan { flags: &["--ports", "32"], adapter: false, ..SMALL };
    play(&plan, |scene| finds_ports(scene, 32));
}

fn finds_the_switch(scene: &mut Scene) -> Result<()> {
    finds_ports(scene, PORTS)
}

fn finds_ports(scene: &mut Scene, count: usize) -> Result<()> {
    let guest = &mut scene.guests[0];
    let mark = guest.mark()?;
    guest.ok("modprobe vmd")?;
    // pciehp binds to each port after the ports are there.
    let slots = format!("[ $(ls /sys/bus/pci/slots | wc -l) -ge {count} ]");
    guest.until(&slots, TALK_BOUND)?;
    let said = guest.dmesg_since(mark)?;
    let odd = warnings(said.clone(), KNOWN);
    ensure!(odd.is_empty(), "the kernel warns: {odd:#?}\nof all that it says: {said:#?}");

    let text = guest.ok("lspci -D -vv")?;
    let functions: Vec<&str> =
        text.split("\n\n").filter(|part| part.starts_with("10000:")).collect();
    let with = |what: &str| functions.iter().filter(|f| f.contains(what)).count();
    ensure!(functions.len() == 2 + count, "{} functions:\n{text}", functions.len());
    ensure!(with("Express (v2) Root Port") == 1, "{text}");
    ensure!(with("Express (v2) Upstream Port") == 1, "{text}");
    let ports = functions.iter().filter(|f| f.contains("Express (v2) Downstream Port (Slot+)"));
    let ports: Vec<&&str> = ports.collect();
    ensure!(ports.len() == count, "{text}");
    let mut numbers = Vec::new();
    for port in ports {
        for expected in [
            "AttnBtn+",
            "PwrCtrl-",
            "HotPlug+",
            "Surprise+",
            "Advanced Error Reporting",
            "Access Control Services",
            "ACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+",
            "Kernel driver in use: pcieport",
            "LLActRep+",
            "PresDet-",
            "MSI: Enable+",
        ] {
            ensure!(port.contains(expected), "`{expected}` is not in\n{port}");
        }
        // No link where nothing is plugged.
        ensure!(port.contains("DLActive-"), "{port}");
        let slot = port.split("Slot #").nth(1).and_then(|rest| rest.split(',').next());
        numbers.push(slot.context("a slot has a number")?.to_owned());
    }
    numbers.sort();
    numbers.dedup();
    ensure!(numbers.len() == count, "slots with one number: {text}");
    Ok(())
}

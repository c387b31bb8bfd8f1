//! Devices that go: because the manager asked, because the guest let go by itself, and because the
//! box died in the middle of something.

use crate::bench::{
    Bench, LONG, NVME, VERIFIED, Wanted, ends_with_errors, has_failed, works_until_it_fails,
};
use anyhow::{Context, Result, ensure};
use vm::{Guest, Kernel, TALK_BOUND, Verify, items};

const DRIVE: &str = "1=nvme,image=drive.img,size=64M";
const BLOCK: &str = "/dev/nvme0n1";

/// What the guest's own pciehp says when a device is plugged into its slot.
const PLUGGED: &[&str] = &["pciehp: Slot(1): Card present", "pciehp: Slot(1): Link Up"];
/// And when it is taken out without a word.
const PULLED: &[&str] = &["pciehp: Slot(1): Link Down"];

/// And when the slot's attention button is pressed while it is on.
fn pressed(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::V6_1 => "pciehp: Slot(1): Powering off due to button press",
        _ => "pciehp: Slot(1): Button press: will power off in 5 sec",
    }
}

/// The guest let go of what was just taken back: nothing was taken from it by force.
fn was_let_go(bench: &Bench) -> Result<()> {
    let operations = bench.fabric.manager(&["operations"])?;
    let last = items(&operations)?.first().context("no operation")?;
    let steps = last["steps"].as_array().context("an operation has steps")?;
    let unbind = steps.iter().find(|step| step["name"] == "unbind-port");
    let detail = unbind.context("no step at the port")?["detail"].as_str().unwrap_or_default();
    ensure!(detail.contains("let it go"), "{last}");
    Ok(())
}

fn is_gone(guest: &mut Guest, address: &str) -> Result<()> {
    guest.until(&format!("test ! -e {BLOCK} -a ! -e /sys/bus/pci/devices/{address}"), TALK_BOUND)
}

/// Writes a file system's worth of numbers and reads them back.
fn holds_data(guest: &mut Guest, seed: u32) -> Result<()> {
    guest.until(&format!("test -b {BLOCK}"), TALK_BOUND)?;
    let command = format!(
        "seq {seed} $(({seed} + 200000)) > /tmp/sent && \
         dd if=/tmp/sent of={BLOCK} bs=64k oflag=direct conv=sync 2>/dev/null && \
         head -c $(stat -c %s /tmp/sent) {BLOCK} | cmp - /tmp/sent"
    );
    guest.ok(&command).map(drop)
}

fn goes_in_order(kernel: Kernel) -> Result<()> {
    let Some(mut bench) = Bench::start(kernel, &Wanted { slots: &[DRIVE], ..Wanted::default() })?
    else {
        return Ok(());
    };

    // By the manager: the attention button, and the guest lets go.
    let mark = bench.guest().mark()?;
    let address = bench.lend(0, "box-a/1", NVME)?;
    bench.guest().until_said(mark, PLUGGED, TALK_BOUND)?;
    holds_data(bench.guest(), 1)?;
    let mark = bench.guest().mark()?;
    bench.fabric.release("box-a/1")?;
    was_let_go(&bench)?;
    is_gone(bench.guest(), &address)?;
    bench.guest().until_said(mark, &[pressed(kernel)], TALK_BOUND)?;
    let said = bench.guest().dmesg_since(mark)?;
    let surprised = said.iter().any(|message| message.text.contains("Link Down"));
    ensure!(!surprised, "the guest was surprised: {said:#?}");

    // By the guest, from its slot: it is there again when it is wanted, and needs no asking.
    let address = bench.lend(0, "box-a/1", NVME)?;
    holds_data(bench.guest(), 2)?;
    let power = "/sys/bus/pci/slots/1/power";
    for _ in 0..2 {
        bench.guest().ok(&format!("echo 0 > {power}"))?;
        is_gone(bench.guest(), &address)?;
        bench.guest().ok(&format!("echo 1 > {power}"))?;
        holds_data(bench.guest(), 3)?;
    }
    bench.guest().ok(&format!("echo 0 > {power}"))?;
    is_gone(bench.guest(), &address)?;
    bench.fabric.release("box-a/1")?;
    was_let_go(&bench)?;

    // By the guest, the function alone: found again by a rescan, and taken back by the manager.
    let address = bench.lend(0, "box-a/1", NVME)?;
    let remove = format!("echo 1 > /sys/bus/pci/devices/{address}/remove");
    bench.guest().ok(&remove)?;
    is_gone(bench.guest(), &address)?;
    bench.guest().ok("echo 1 > /sys/bus/pci/rescan")?;
    holds_data(bench.guest(), 4)?;
    bench.guest().ok(&remove)?;
    bench.fabric.release("box-a/1")?;
    was_let_go(&bench)?;
    is_gone(bench.guest(), &address)
}

/// The box dies while the guest reads and writes; what the guest had is lent to another one.
fn goes_by_surprise(kernel: Kernel) -> Result<()> {
    let wanted = Wanted { slots: &[DRIVE], guests: 2, ..Wanted::default() };
    let Some(mut bench) = Bench::start(kernel, &wanted)? else { return Ok(()) };
    for round in 0..2 {
        let address = bench.lend(0, "box-a/1", NVME)?;
        holds_data(bench.guest(), 10 + round)?;
        let io = works_until_it_fails(bench.guest(), BLOCK)?;
        let mark = bench.guest().mark()?;
        bench.fabric.kill_box("box-a")?;
        has_failed(bench.guest(), io)?;
        is_gone(bench.guest(), &address)?;
        bench.guest().until_said(mark, PULLED, TALK_BOUND)?;
        ends_with_errors(&bench.guest().dmesg_since(mark)?)?;

        // The box comes back; its device is the next one's, at once.
        bench.fabric.add_box("box-a", &[DRIVE.to_owned()])?;
        bench.fabric.wait_ready()?;
        bench.fabric.manager(&["release", "box-a/1"])?;
        let next = bench.lend(1, "box-a/1", NVME)?;
        let guest = &mut bench.guests[1];
        guest.until(&format!("test -b {BLOCK}"), TALK_BOUND)?;
        let check = format!(
            "seq {0} $(({0} + 200000)) > /tmp/sent && \
             head -c $(stat -c %s /tmp/sent) {BLOCK} | cmp - /tmp/sent",
            10 + round
        );
        guest.ok(&check).context("what the first guest wrote is not there")?;
        // Also where the first guest was writing.
        let job = Verify::mixed(BLOCK, VERIFIED, 16);
        job.check(&guest.sh(job.command(), LONG)?).context("somebody else wrote there")?;
        bench.fabric.release("box-a/1")?;
        is_gone(&mut bench.guests[1], &next)?;
    }
    Ok(())
}

#[test]
fn a_device_goes_in_order() {
    goes_in_order(Kernel::V6_12).unwrap();
}

#[test]
#[ignore = "long: another kernel"]
fn a_device_goes_in_order_of_6_1() {
    goes_in_order(Kernel::V6_1).unwrap();
}

#[test]
fn a_box_dies_in_the_middle_of_it() {
    goes_by_surprise(Kernel::V6_12).unwrap();
}

#[test]
#[ignore = "long: another kernel"]
fn a_box_dies_in_the_middle_of_it_under_6_1() {
    goes_by_surprise(Kernel::V6_1).unwrap();
}

//! Errors of a device reach the kernel's AER with their source, and what it does about them works:
//! recovery by secondary bus reset, function-level reset, a retrained link, a rescan of the bus,
//! drivers that let go and bind again.

use crate::bench::{Bench, NVME, Wanted};
use anyhow::{Context, Result, ensure};
use vm::{Fabric, Guest, Kernel, TALK_BOUND};

/// Where a register of AER is in a function's configuration space, for setpci.
const SEVERITY: &str = "ECAP_AER+0xc.l";
const CORRECTABLE_MASK: &str = "ECAP_AER+0x14.l";
const UNSUPPORTED_REQUEST: u32 = 1 << 20;
const ADVISORY: u32 = 1 << 13;

struct Drive<'a> {
    guest: &'a mut Guest,
    fabric: &'a Fabric,
    address: String,
    /// Behind BAR 0, and still in the port's window: nobody's.
    behind: u64,
}

impl<'a> Drive<'a> {
    fn find(fabric: &'a Fabric, guest: &'a mut Guest, address: &str) -> Result<Self> {
        let resource = guest.ok(&format!("head -1 /sys/bus/pci/devices/{address}/resource"))?;
        let start = resource.split_whitespace().next().unwrap_or_default();
        let bar = u64::from_str_radix(start.trim_start_matches("0x"), 16)?;
        Ok(Self { guest, fabric, address: address.to_owned(), behind: bar + 0x8000 })
    }

    /// How often the device itself was reset: its function, and by its link.
    fn resets(&self) -> Result<[u64; 2]> {
        let names = ["device.function_resets", "device.conventional_resets"];
        self.fabric.counters("box-a", names)
    }

    fn register(&mut self, name: &str) -> Result<u32> {
        let text = self.guest.ok(&format!("setpci -s {} {name}", self.address))?;
        Ok(u32::from_str_radix(text.trim(), 16)?)
    }

    fn set_register(&mut self, name: &str, value: u32) -> Result<()> {
        self.guest.ok(&format!("setpci -s {} {name}={value:08x}", self.address)).map(drop)
    }

    /// Does something, then waits until the kernel has said every one of `wanted` about it.
    fn provokes(&mut self, doing: &str, wanted: &[&str]) -> Result<()> {
        let mark = self.guest.mark()?;
        self.guest.ok(doing)?;
        let said = self.guest.until_said(mark, wanted, TALK_BOUND);
        said.with_context(|| format!("after `{doing}`"))
    }

    /// The drive is there and right: what was written is read.
    fn works(&mut self) -> Result<()> {
        let guest = &mut *self.guest;
        guest.until("test -b /dev/nvme0n1", TALK_BOUND)?;
        let check = "dd if=/dev/urandom of=/tmp/block bs=64k count=4 2>/dev/null; \
                     dd if=/tmp/block of=/dev/nvme0n1 bs=64k oflag=direct 2>/dev/null && \
                     dd if=/dev/nvme0n1 of=/tmp/back bs=64k count=4 iflag=direct 2>/dev/null && \
                     cmp /tmp/block /tmp/back";
        guest.until(check, TALK_BOUND)
    }
}

fn errors_are_told_and_recovered_from(kernel: Kernel) -> Result<()> {
    let slots = ["1=nvme,image=drive.img,size=64M"];
    let Some(mut bench) = Bench::start(kernel, &Wanted { slots: &slots, ..Wanted::default() })?
    else {
        return Ok(());
    };
    let address = bench.lend(0, "box-a/1", NVME)?;
    let mut drive = Drive::find(&bench.fabric, &mut bench.guests[0], &address)?;
    drive.works()?;
    let from = format!("from {address}");
    let (write, read) =
        (format!("devmem {:#x} 32 1", drive.behind), format!("devmem {:#x} 32", drive.behind));

    // A write to nobody is an Unsupported Request of the device: not fatal by default.
    let recovered = "device recovery successful";
    drive.provokes(&write, &["(Non-Fatal)", &from, "UnsupReq", recovered])?;
    drive.works()?;

    // Fatal, if software says so: the port above resets its link.
    let severity = drive.register(SEVERITY)?;
    drive.set_register(SEVERITY, severity | UNSUPPORTED_REQUEST)?;
    let reset = "link has been reset";
    let [_, before] = drive.resets()?;
    drive.provokes(&write, &["(Fatal)", &from, reset, recovered])?;
    drive.works()?;
    let [_, after] = drive.resets()?;
    ensure!(after > before, "the device was not reset: {before} {after}");

    // Correctable: a read, whose requester is told otherwise.
    let mask = drive.register(CORRECTABLE_MASK)?;
    drive.set_register(CORRECTABLE_MASK, mask & !ADVISORY)?;
    drive.provokes(&read, &["Correct", &from, "NonFatalErr"])?;
    drive.works()?;
    resets_and_rescans(&mut drive)
}

fn resets_and_rescans(drive: &mut Drive<'_>) -> Result<()> {
    let device = format!("/sys/bus/pci/devices/{}", drive.address);
    for (which, method) in ["flr", "bus"].into_iter().enumerate() {
        let before = drive.resets()?;
        drive.guest.ok(&format!("echo {method} > {device}/reset_method"))?;
        drive.guest.ok(&format!("echo 1 > {device}/reset"))?;
        drive.works()?;
        let after = drive.resets()?;
        ensure!(after[which] > before[which], "{method}: {before:?} {after:?}");
    }
    // The port's link, retrained: Link Control bit 5. Link Status says that it was, until software
    // has taken note (bit 14, PCIe 5.0 section 7.5.3.8).
    let port = drive.guest.ok(&format!("basename $(dirname $(readlink -f {device}))"))?;
    let port = port.trim().to_owned();
    let retrained = format!("test $((0x$(setpci -s {port} CAP_EXP+0x12.w) & 0x4000)) != 0");
    drive.guest.ok(&format!("setpci -s {port} CAP_EXP+0x12.w=4000 && ! {retrained}"))?;
    drive.guest.ok(&format!("setpci -s {port} CAP_EXP+0x10.w=20:20 && {retrained}"))?;
    let training = format!("$((0x$(setpci -s {port} CAP_EXP+0x12.w) & 0x800))");
    drive.guest.until(&format!("test {training} = 0"), TALK_BOUND)?;
    drive.works()?;
    // The driver lets go and binds again.
    let driver = "/sys/bus/pci/drivers/nvme";
    drive.guest.ok(&format!("echo {} > {driver}/unbind", drive.address))?;
    drive.guest.until("test ! -e /dev/nvme0", TALK_BOUND)?;
    drive.guest.ok(&format!("echo {} > {driver}/bind", drive.address))?;
    drive.works()?;
    // The function is removed and found again.
    drive.guest.ok(&format!("echo 1 > {device}/remove"))?;
    drive.guest.until(&format!("test ! -e {device}"), TALK_BOUND)?;
    drive.guest.ok("echo 1 > /sys/bus/pci/rescan")?;
    drive.works()
}

#[test]
fn errors_are_told_and_recovered_from_by_6_12() {
    errors_are_told_and_recovered_from(Kernel::V6_12).unwrap();
}

#[test]
#[ignore = "long: another kernel"]
fn errors_are_told_and_recovered_from_by_6_1() {
    errors_are_told_and_recovered_from(Kernel::V6_1).unwrap();
}

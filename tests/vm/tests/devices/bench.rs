//! A fabric with one guest or two, ready to lend.

use anyhow::{Context, Result, ensure};
use processes::relay::Relay;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use vm::{
    BOOT_BOUND, Fabric, Guest, Kernel, Message, Options, Running, Stage, TALK_BOUND, guest_tools,
};

/// A manager, a box and a guest for each host.
pub(crate) struct Bench {
    pub(crate) guests: Vec<Guest>,
    pub(crate) fabric: Fabric,
    /// The relays: those in front of the box, then those of each host, path by path.
    pub(crate) relays: Vec<Vec<Relay>>,
    _folder: TempDir,
    _stage: Stage,
}

/// What a bench has.
#[derive(Default)]
pub(crate) struct Wanted<'a> {
    /// Slots of the box, as its flag has them.
    pub(crate) slots: &'a [&'a str],
    /// More flags of each host proxy.
    pub(crate) host: &'a [&'a str],
    /// More of each guest's kernel command line.
    pub(crate) append: &'a str,
    /// Guests' memory that nobody can map.
    pub(crate) unshared: bool,
    /// Guests; none means one.
    pub(crate) guests: usize,
    /// Paths between the box and each host, each through a relay at both ends; none means one that
    /// goes straight.
    pub(crate) relayed: usize,
}

/// Room for devices' memory at each port.
pub(crate) const ROOM: &str = "pci=hpmmiosize=8M,hpmmioprefsize=64M";

impl Bench {
    /// Starts all of it; nothing where there can be no machines, which is told.
    pub(crate) fn start(kernel: Kernel, wanted: &Wanted<'_>) -> Result<Option<Self>> {
        let Some(stage) = Stage::take(&[kernel])? else { return Ok(None) };
        let programs = programs()?;
        let tools = guest_tools(&programs)?;
        let folder = tempfile::tempdir()?;
        let mut fabric = Fabric::start(&programs, folder.path())?;
        let slots: Vec<String> = wanted.slots.iter().map(|slot| (*slot).to_owned()).collect();
        let mut relays = vec![relay(&mut fabric, wanted.relayed, 1)?];
        fabric.add_box("box-a", &slots)?;
        let mut guests = Vec::new();
        for number in 1..=wanted.guests.max(1) {
            let host = format!("host-{number}");
            relays.push(relay(&mut fabric, wanted.relayed, 100 * number as u64)?);
            let socket = fabric.add_host(&host, wanted.host)?;
            let mut options = Options::new(&host, kernel).with_vfio_user(&socket);
            options.memory_shared = !wanted.unshared;
            options.append = wanted.append.to_owned();
            options.files = vec![("usr/bin/dxpu-guest".to_owned(), tools.clone())];
            guests.push(Guest::start(&stage.cache, &options, folder.path())?);
        }
        fabric.wait_ready()?;
        for guest in &mut guests {
            guest.boot(BOOT_BOUND)?;
        }
        Ok(Some(Self { guests, fabric, relays, _folder: folder, _stage: stage }))
    }

    /// The first guest.
    pub(crate) fn guest(&mut self) -> &mut Guest {
        &mut self.guests[0]
    }

    /// Lends a slot to a host whose guest is up, and waits until that has found the device: its
    /// address there, such as 10000:03:00.0.
    pub(crate) fn lend(&mut self, host: usize, slot: &str, device: &str) -> Result<String> {
        let find = format!("grep -l {device} /sys/bus/pci/devices/*/device");
        let guest = &mut self.guests[host];
        let before = guest.sh(&find, TALK_BOUND)?.text;
        self.fabric.allocate(&format!("host-{}", host + 1), slot)?;
        guest.until(&format!("test \"$({find})\" != '{}'", before.trim()), TALK_BOUND)?;
        let after = guest.ok(&find)?;
        let new = after.lines().find(|line| !before.lines().any(|old| old == *line));
        let path = Path::new(new.context("no new device")?);
        let address = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        Ok(address.context("a device has an address")?.to_owned())
    }
}

/// Relays in front of the next proxy, one for each path.
fn relay(fabric: &mut Fabric, paths: usize, seed: u64) -> Result<Vec<Relay>> {
    let relays = (0..paths as u64).map(|path| Relay::start(seed + path));
    let relays = relays.collect::<std::io::Result<Vec<_>>>()?;
    fabric.network.clear();
    for relay in &relays {
        fabric.network.extend(["--fabric".to_owned(), format!("udp:{}", relay.behind())]);
        fabric.network.extend(["--advertise".to_owned(), relay.public()?.to_string()]);
    }
    Ok(relays)
}

/// Vendor-specific device IDs of the models.
pub(crate) const NVME: &str = "0xd0ae";
pub(crate) const ACCELERATOR: &str = "0xd0ac";

/// The folder of the programs of this build.
fn programs() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent);
    Ok(folder.context("this test is in no target folder")?.to_path_buf())
}

/// What a kernel says of a drive that does not answer, or whose interrupts do not come.
const LATE: &[&str] = &["controller is down", " timeout, ", "completion polled", "Abort status"];

/// Whether all that a drive was asked for came to an end before its driver lost patience.
pub(crate) fn was_never_late(said: &[Message]) -> Result<()> {
    let late = |message: &&Message| LATE.iter().any(|text| message.text.contains(text));
    let late: Vec<_> = said.iter().filter(late).collect();
    ensure!(late.is_empty(), "the driver waited in vain: {late:#?}");
    Ok(())
}

/// As [`was_never_late`], of a drive that went without a word: the proxies answered what it did not,
/// and no error came but those of its going.
pub(crate) fn ends_with_errors(said: &[Message]) -> Result<()> {
    was_never_late(said)?;
    let aer: Vec<_> = said.iter().filter(|message| message.text.contains("AER")).collect();
    ensure!(aer.is_empty(), "{aer:#?}");
    Ok(())
}

/// MiB of a drive that are written and checked where somebody else may have been at work before: at
/// a request a time, emulated, more takes minutes.
pub(crate) const VERIFIED: u64 = 8;

/// Has a guest read and write the second half of [`VERIFIED`] until it fails, and waits until it is at
/// it.
pub(crate) fn works_until_it_fails(guest: &mut Guest, drive: &str) -> Result<Running> {
    let name = drive.trim_start_matches("/dev/");
    let written = format!("awk '/{name} /{{print $8}}' /proc/diskstats");
    let before: u64 = guest.ok(&written)?.trim().parse()?;
    let half = VERIFIED / 2;
    let job = guest.spawn(&format!(
        "fio --name=x --filename={drive} --allow_file_create=0 --rw=randrw --bs=4k \
         --offset={half}M --size={half}M --iodepth=16 --ioengine=libaio --direct=1 --time_based --runtime=600"
    ))?;
    guest.until(&format!("test $({written}) -gt {}", before + 500), TALK_BOUND)?;
    Ok(job)
}

/// Waits until it has.
pub(crate) fn has_failed(guest: &mut Guest, job: Running) -> Result<()> {
    let output = guest.finish(job, LONG)?;
    ensure!(output.status != 0, "fio saw no error: {}", output.text);
    Ok(())
}

/// A bound for what takes a while in a guest.
pub(crate) const LONG: Duration = Duration::from_secs(900);

//! The daemon itself: opens everything, then turns.

use crate::config::{Config, DeviceKind, SlotSpec};
use crate::seat::{Done, Seat};
use device_models::Device;
use device_models::accelerator::{self, Accelerator};
use device_models::nvme::image::{FileImage, Image};
use device_models::nvme::{self, BlockSize, Nvme};
use proxy_core::boxes::{BoxConfig, BoxRole};
use proxy_core::control::{Hello, Name, RoleKind, Term};
use proxy_core::link::LinkConfig;
use proxy_core::role::Role;
use proxy_daemon::clock::incarnation;
use proxy_daemon::config::Common;
use proxy_daemon::control::ControlHandle;
use proxy_daemon::fabric::Fabric;
use proxy_daemon::plane::Plane;
use proxy_daemon::stop::Stop;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tlp_codec::ids::SlotId;
use tracing::{info, warn};

/// A device and the slot that it is in.
pub struct Seated {
    /// The slot.
    pub slot: SlotId,
    /// The device.
    pub device: Box<dyn Device>,
    /// What the manager knows it as.
    pub model: Name,
}

/// Runs with the devices that the configuration names, until told to stop.
///
/// # Errors
///
/// A text for a person: what could not be opened or broke, and what to do.
pub fn run(config: &Config, stop: &Stop) -> Result<(), String> {
    let common = &config.common;
    serve(common, stop, || open_all(&common.name, &config.slots))
}

/// Opens the devices of a box of this name.
///
/// # Errors
///
/// A text that names the slot, what could not be opened, and what to do.
pub fn open_all(box_name: &str, slots: &BTreeMap<u8, SlotSpec>) -> Result<Vec<Seated>, String> {
    let seated = |(&number, spec): (&u8, &SlotSpec)| {
        let slot = SlotId::new(number).map_err(|e| e.to_string())?;
        let device = open(box_name, number, spec).map_err(|e| format!("slot {number}: {e}"))?;
        Ok(Seated { slot, device, model: name(spec.model()) })
    };
    slots.iter().map(seated).collect()
}

/// Runs with some devices, which are made when the fabric is open, until told to stop.
///
/// # Errors
///
/// A text for a person: what could not be opened or broke, and what to do.
pub fn serve(
    common: &Common,
    stop: &Stop,
    devices: impl FnOnce() -> Result<Vec<Seated>, String>,
) -> Result<(), String> {
    let fabric = Fabric::open(common)?;
    let mtu = fabric.mtu;
    let life = incarnation();
    let paths = fabric.ports.len();
    let link = LinkConfig { max_frame: mtu, paths, ..LinkConfig::default() };
    let devices = devices()?;
    let highest = devices.iter().map(|seated| seated.slot.get()).max().unwrap_or(1);
    let role = BoxRole::new(&BoxConfig {
        incarnation: life,
        slots: highest.into(),
        link,
        ..BoxConfig::default()
    });
    info!(%fabric, mtu, slots = highest, "box proxy {} is up", common.name);
    let hello = Hello {
        version: proxy_core::control::CONTROL_VERSION,
        name: name(&common.name),
        role: RoleKind::Box { slots: highest },
        incarnation: life,
        node: None,
        paths: fabric.paths(),
        mtu: mtu as u16,
        term: Term(0),
    };
    let control = ControlHandle::dial(common.manager.clone(), hello)
        .map_err(|e| format!("thread for the manager's connection: {e}"))?;
    let mut plane = Plane::new(role, fabric.ports, control, common.spin);
    let mut running = Vec::new();
    for Seated { slot, device, model } in devices {
        let now = plane.now();
        plane.role.device_inserted(now, slot, model);
        running.push(Seat::new(slot, device));
    }
    while !stop.requested() {
        turn(&mut plane, &mut running).map_err(|error| format!("fabric: {error}"))?;
    }
    info!("stopped");
    Ok(())
}

fn turn(plane: &mut Plane<BoxRole>, seats: &mut [Seat]) -> Result<(), proxy_net::NetError> {
    let mut busy = plane.receive()?;
    let clock = plane.clock();
    for seat in &mut *seats {
        let now = plane.latest();
        let done = seat.turn(&mut plane.role, &clock, now);
        busy |= done != Done::Nothing;
        if done == Done::Long {
            plane.now();
        }
        if seat.took_read() {
            plane.note_read();
        }
    }
    if plane.role.is_asked_for_counters() {
        plane.set_device_counters(device_counters(seats));
    }
    busy |= plane.transmit()?;
    let timer = seats.iter().filter_map(Seat::poll_timeout).min();
    plane.rest(busy, timer)
}

/// What all devices counted, by name.
fn device_counters(seats: &[Seat]) -> Vec<(&'static str, u64)> {
    let mut sums: Vec<(&'static str, u64)> = Vec::new();
    for (name, count) in seats.iter().flat_map(|seat| seat.device().counters()) {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name, count)),
        }
    }
    sums
}

fn name(text: &str) -> Name {
    Name::try_from(text).expect("the length was checked with the settings")
}

fn open(box_name: &str, slot: u8, spec: &SlotSpec) -> Result<Box<dyn Device>, String> {
    let serial = spec.serial.unwrap_or_else(|| serial_of(box_name, slot));
    match spec.device {
        DeviceKind::Accelerator => {
            let mut config = accelerator::Config { serial, ..accelerator::Config::default() };
            config.tags = spec.tags.unwrap_or(config.tags);
            config.read_request = spec.read.unwrap_or(config.read_request);
            config.memory_size = spec.memory.map_or(config.memory_size, |memory| memory.0);
            Ok(Box::new(Accelerator::device(config).map_err(|e| e.to_string())?))
        }
        DeviceKind::Nvme => {
            let path = spec.image.as_deref().expect("checked with the settings");
            let image = open_image(path, spec)?;
            let serial_number = format!("{serial:016X}");
            let config = nvme::Config { serial, serial_number, ..nvme::Config::default() };
            let block = match spec.lba {
                Some(4096) => BlockSize::B4096,
                _ => BlockSize::B512,
            };
            let device = Nvme::device(config, vec![(Box::new(image), block)]);
            Ok(Box::new(device.map_err(|e| e.to_string())?))
        }
    }
}

/// The serial number of a model that was given none: of its box and its slot, so that no two on a
/// fabric agree, and the same each time.
fn serial_of(box_name: &str, slot: u8) -> u64 {
    let name = tlp_codec::crc::tlp(box_name.as_bytes());
    0xd0ac << 48 | u64::from(name) << 8 | u64::from(slot)
}

fn open_image(path: &Path, spec: &SlotSpec) -> Result<FileImage, String> {
    let name = path.display();
    if !path.exists() {
        let size = spec.size.ok_or_else(|| {
            format!("image {name} is not there; give size=SIZE to have it made, or another file")
        })?;
        let not_made = |e: std::io::Error| format!("image {name} could not be made: {e}");
        // What tenants keep in it is for nobody else on this machine.
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(not_made)?;
        file.set_len(size.0).map_err(|e| {
            remove_new(path);
            format!("{}; size={} may be more than its file system takes", not_made(e), size.0)
        })?;
    }
    let image = FileImage::open(path, false).map_err(|e| e.to_string())?;
    spec.check_size(format_args!("image {name} has {} bytes", image.size()), image.size())?;
    Ok(image)
}

/// Removes an image that was just made, which would be in the next start's way.
fn remove_new(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        warn!(%error, "image {} was made and cannot be used: remove it", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Size;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_image_that_cannot_be_made_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let spec = |size| SlotSpec { size: Some(Size(size)), ..SlotSpec::new(DeviceKind::Nvme) };
        // More than a file's offset can say, whatever the file system.
        let error = open_image(&path, &spec(1 << 63)).map(|_| ()).unwrap_err();
        assert!(error.contains("disk.img") && error.contains("size="), "{error}");
        assert!(!path.exists());
        assert!(open_image(&path, &spec(1 << 20)).is_ok());
        let made = std::fs::metadata(&path).unwrap();
        assert_eq!((made.len(), made.permissions().mode() & 0o777), (1 << 20, 0o600));
        // One that was there stays, whatever is wrong with it.
        std::fs::write(&path, "").unwrap();
        assert!(open_image(&path, &spec(1 << 20)).is_err());
        assert!(path.exists());
    }

    #[test]
    fn an_image_that_is_there_has_whole_blocks() {
        let folder = tempfile::tempdir().unwrap();
        for (bytes, lba, told) in [
            (100, None, Some("has 100 bytes: at least 512, a logical block")),
            (1000, None, Some("has 1000 bytes: a multiple of the 512 bytes of a logical block")),
            (1024, None, None),
            (2048, Some(4096), Some("has 2048 bytes: at least 4096")),
            (6144, Some(4096), Some("of a logical block, such as 4096")),
            (8192, Some(4096), None),
        ] {
            let path = folder.path().join(format!("{bytes}.img"));
            std::fs::write(&path, vec![0; bytes]).unwrap();
            let spec = SlotSpec { lba, ..SlotSpec::new(DeviceKind::Nvme) };
            let error = open_image(&path, &spec).err();
            let said = |error: &str| error.contains(&format!("{bytes}.img"));
            assert!(error.as_deref().is_none_or(said), "{error:?}");
            assert_eq!(error.is_some(), told.is_some(), "{error:?}");
            assert!(told.is_none_or(|told| error.unwrap().contains(told)), "{told:?}");
        }
    }
}

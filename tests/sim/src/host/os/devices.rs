//! The devices behind the ports: which they are, what is set in them, and what they write.

use super::change::DEVICE_POWER;
use super::{COMMAND, Kind, Light, Os, Stage, Then};
use crate::host::driver::{DriveDriver, Driver, ModelDriver};
use crate::host::first;
use crate::host::memory::{Place, is_flooded};
use crate::oracle::{Verdict, Violation};
use device_models::endpoint::registers;
use device_models::nvme::regs as nvme;
use tlp_codec::tlp::Packet;

/// Of the model device.
pub(super) const DEVICE_BAR: u16 = 0x10;
const DEVICE_DEVICE_CONTROL: u16 = 0x48;
/// In the lowest bits of a base address register (PCIe 5.0 section 7.5.1.2.1).
const BAR_KIND: u32 = 0xf;
const BAR_WIDE: u32 = 0b0100;
const BAR_PREFETCHABLE: u32 = 0b1000;
/// Of its register Device Control.
pub(super) const FUNCTION_RESET: u32 = registers::DEVICE_CONTROL_FLR as u32;
/// Of a drive: its ID and class; the rest is where its function has it.
pub(super) const DRIVE_ID: u32 = (nvme::DEVICE_ID as u32) << 16 | nvme::VENDOR_ID as u32;
pub(super) const CLASS: u16 = registers::REVISION_CLASS;

/// Class code: NVM Express.
pub(super) const DRIVE_CLASS: u32 = nvme::CLASS_CODE;

impl Os {
    pub(super) fn configure(&mut self, port: usize) {
        if self.stage(port) != Stage::Enumerating {
            return;
        }
        self.ports[port].kind = Kind::Model;
        let at = self.layout.device_id(port);
        self.write(port, at, DEVICE_BAR, u32::MAX, 0xf, Then::Set);
        self.read(port, at, DEVICE_BAR, Then::Sized);
    }

    /// What a model device's register can hold is known: where it is to be, and all else. What is
    /// prefetchable and has 64 bits is put above 4 GB, but for devices that others ask.
    pub(super) fn place(&mut self, port: usize, sized: u32) {
        if self.stage(port) != Stage::Enumerating {
            return;
        }
        let kind = sized & BAR_KIND;
        let wide = kind & BAR_WIDE != 0;
        let high = wide && kind & BAR_PREFETCHABLE != 0 && self.moves;
        self.ports[port].high = high;
        let (at, place) = (self.layout.device_id(port), self.layout.registers(port, high));
        self.write(port, at, DEVICE_BAR, place as u32 | kind, 0xf, Then::Set);
        if wide {
            self.write(port, at, DEVICE_BAR + 4, (place >> 32) as u32, 0xf, Then::Set);
        }
        if self.power_states {
            // As an operating system does with what it finds.
            self.write(port, at, DEVICE_POWER, 0, 0b0011, Then::Set);
            self.read(port, at, DEVICE_POWER, Then::Power);
        }
        let payload = self.payload(port).trailing_zeros() - 7;
        // Reads of 4096 bytes.
        let control = payload << 5 | 5 << 12 | 1 << 4;
        self.write(port, at, DEVICE_DEVICE_CONTROL, control, 0b0011, Then::Set);
        self.write(port, at, COMMAND, 6, 0b0011, Then::Enabled);
    }

    /// Its BAR, payloads as large as its port's, reads of 4096 bytes, relaxed ordering, all its tags, MSI-X.
    pub(super) fn configure_drive(&mut self, port: usize) {
        if self.stage(port) != Stage::Enumerating {
            return;
        }
        self.ports[port].kind = Kind::Drive;
        let at = self.layout.device_id(port);
        let payload = self.payload(port).trailing_zeros() - 7;
        let control = registers::DEVICE_CONTROL_RELAXED
            | registers::DEVICE_CONTROL_EXTENDED_TAG
            | (payload as u16) << registers::DEVICE_CONTROL_MPS_SHIFT
            | 5 << registers::DEVICE_CONTROL_MRRS_SHIFT;
        let vectors = u32::from(registers::MSIX_ENABLE) << 16;
        let writes = [
            (registers::BAR0, self.layout.window(port) as u32, 0b1111),
            (registers::BAR0 + 4, (self.layout.window(port) >> 32) as u32, 0b1111),
            (registers::DEVICE_CONTROL, control.into(), 0b0011),
            (registers::MSIX, vectors, 0b1100),
        ];
        for (register, value, enables) in writes {
            self.write(port, at, register, value, enables, Then::Set);
        }
        self.write(port, at, COMMAND, 6, 0b0011, Then::Enabled);
    }

    /// Where the device behind a port has its Device Control.
    pub(super) fn device_control(&self, port: usize) -> u16 {
        match self.ports[port].kind {
            Kind::Model => DEVICE_DEVICE_CONTROL,
            Kind::Drive => registers::DEVICE_CONTROL,
        }
    }

    pub(super) fn ready(&mut self, port: usize) {
        if self.stage(port) == Stage::Enumerating {
            self.go(port, Stage::Ready);
            self.light(port, Light::On, Then::Nothing);
            self.readied += 1;
            self.ports[port].settled = true;
            self.lives += 1;
            let driver = match self.ports[port].kind {
                Kind::Model => {
                    let at = (port, self.ports[port].high);
                    let says = (self.dress, self.payload(port));
                    let memory = &mut self.memory;
                    let driver = ModelDriver::new(at, self.lives, self.layout, memory, says);
                    Driver::Model(Box::new(driver))
                }
                Kind::Drive => {
                    let drives = self.drives.clone();
                    let at = (port, self.layout);
                    let driver = DriveDriver::new(at, self.lives, drives, &mut self.memory);
                    Driver::Drive(Box::new(driver))
                }
            };
            self.ports[port].driver = Some(driver);
            self.join_change(port);
            if port == first(port) && self.ports[port].kind == Kind::Model {
                self.find_others(port);
            }
        }
    }

    /// A write from below. Whether it came from the device behind that port, `None`: from the
    /// switch itself.
    pub(crate) fn written(&mut self, packet: &Packet<&[u8]>, from: Option<usize>) -> Verdict {
        let (address, data) = (packet.address(), packet.payload());
        let place = self.memory.place(address);
        match (place, from) {
            (Place::Interrupt { device: None }, None) => {
                let port = data.first_chunk().map_or(0, |w| u32::from_le_bytes(*w)) as usize;
                if let Some(entry) = self.ports.get_mut(port) {
                    entry.again = true;
                }
                Ok(())
            }
            (Place::Interrupt { device: Some(device) }, Some(from)) if device == from => {
                let buffer = (address >> 2 & 0x3ff) as usize;
                let message = data.first_chunk().map_or(u32::MAX, |w| u32::from_le_bytes(*w));
                let Some(driver) = &mut self.ports[from].driver else { return Ok(()) };
                driver.interrupt(buffer, message, &mut self.memory)
            }
            (Place::Interrupt { .. }, _) => {
                Err(Violation::new(2, format!("an interrupt at {address:#x} of {from:?}'s device")))
            }
            (_, None) => Err(Violation::new(2, format!("the switch wrote to {address:#x}"))),
            (place, Some(from)) => {
                // A drive's queues are there, too.
                let floods = is_flooded(place) && self.ports[from].kind == Kind::Model;
                self.flooded += u64::from(floods);
                match self.memory.reach(from, address, data.len())? {
                    Some(bytes) => {
                        let enables = crate::dress::enables(packet);
                        let (first, last) = (usize::from(enables.first_offset()), data.len());
                        let count = usize::from(enables.byte_count(packet.length_dw()));
                        let range = first..(first + count).min(last);
                        bytes[range.clone()].copy_from_slice(&data[range]);
                        Ok(())
                    }
                    None => {
                        self.strays += 1;
                        Ok(())
                    }
                }
            }
        }
    }
}

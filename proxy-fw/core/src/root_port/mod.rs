//! The root port that the switch hangs below, where an adapter is a whole root complex: a virtual
//! machine's, say, whose operating system wants to see and drive one.
//!
//! It is a function with a type 1 header as the switch's ports are. What only a root port does is
//! here: it takes the error and power management messages that end at the root complex, keeps them
//! in its root registers and raises its interrupt (PCIe 5.0 sections 6.1.6, 6.2.4.1 and 6.2.6).
//! What is behind it, and how a request gets there, is the adapter's business.

use crate::config_space::ResetKind;
use crate::switch::bridge::Bridge;
use crate::switch::config::{error_reporting as aer, express, header, identity, layouts, msi};
use crate::switch::errors::Severity;
use crate::switch::{PortError, SwitchConfig, SwitchConfigError};
use tlp_codec::ids::Bdf;
use tlp_codec::tlp::MsgCode;

/// How a root port presents itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootPortConfig {
    /// Vendor ID.
    pub vendor_id: u16,
    /// Device ID.
    pub device_id: u16,
    /// Subsystem vendor and subsystem ID.
    pub subsystem: (u16, u16),
    /// Largest payload that is offered (Max_Payload_Size Supported), in bytes.
    pub max_payload: usize,
    /// Max_Payload_Size as firmware would have set it before the operating system looks, in bytes:
    /// Linux gives what it finds here to everything below. A power of two, 128 to `max_payload`.
    pub payload: usize,
    /// Device serial number, EUI-64.
    pub serial: u64,
}

/// What a write to the root port did, beyond its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The link went into reset, or was disabled: what is below is reset, too (a hot reset).
    LinkDown,
}

/// A power management event that waits for the one before to be handled (PCIe 5.0 section
/// 7.5.3.14). A third one is not kept: whoever sent it sends it again.
type Waiting = Option<Bdf>;

/// A root port.
pub struct RootPort {
    bridge: Bridge,
    id: Bdf,
    waiting: Waiting,
    interrupt: bool,
}

impl RootPort {
    /// A root port after power-on, with this ID.
    ///
    /// # Errors
    ///
    /// When the configuration is not possible.
    pub fn new(config: &RootPortConfig, id: Bdf) -> Result<Self, SwitchConfigError> {
        let settings = SwitchConfig {
            vendor_id: config.vendor_id,
            subsystem: config.subsystem,
            max_payload: config.max_payload,
            ..SwitchConfig::default()
        };
        settings.check()?;
        let preset = SwitchConfig { max_payload: config.payload, ..settings.clone() };
        preset.check()?;
        let mut bridge = Bridge::new(&layouts::ROOT_PORT, &settings, config.device_id);
        let payload = preset.payload_code().min(settings.payload_code());
        bridge.config.define(express::DEVICE_CONTROL, express::PAYLOAD_SIZE, payload << 5);
        bridge.config.define(identity::SERIAL_LOWER, u32::MAX, config.serial as u32);
        bridge.config.define(identity::SERIAL_UPPER, u32::MAX, (config.serial >> 32) as u32);
        bridge.reset(ResetKind::Fundamental);
        Ok(Self { bridge, id, waiting: None, interrupt: false })
    }

    /// Its ID.
    pub fn id(&self) -> Bdf {
        self.id
    }

    /// The doubleword at a multiple of 4.
    pub fn read(&self, register: u16) -> u32 {
        self.bridge.config.read(register)
    }

    /// Software writes the bytes that `enables` (bit n: byte n) names of a doubleword.
    pub fn write(&mut self, register: u16, value: u32, enables: u8) -> Option<Effect> {
        let was_up = self.is_link_up();
        let written = self.bridge.write(register, value, enables)?;
        if written.offset == express::ROOT_STATUS {
            self.next_power_event();
        }
        // An interrupt that was enabled while its cause was there already is due now.
        let enabled = written.set();
        let due = match written.offset {
            aer::ROOT_COMMAND => enabled & self.enables_of_received() != 0,
            express::ROOT_CONTROL => {
                enabled & express::PME_INTERRUPT != 0
                    && self.bridge.config.any(express::ROOT_STATUS, express::PME_STATUS)
            }
            _ => false,
        };
        self.interrupt |= due;
        self.show_link();
        (was_up && !self.is_link_up()).then_some(Effect::LinkDown)
    }

    /// Reset together with everything around it.
    pub fn reset(&mut self, kind: ResetKind) {
        self.bridge.reset(kind);
        self.waiting = None;
        self.interrupt = false;
        self.show_link();
    }

    /// Data Link Layer Link Active (PCIe 5.0 section 7.5.3.8).
    fn show_link(&mut self) {
        let state = if self.is_link_up() { express::LINK_ACTIVE } else { 0 };
        self.bridge.config.put(express::LINK_CONTROL, express::LINK_ACTIVE, state);
    }

    /// Whether the link below is up: neither in reset nor disabled.
    pub fn is_link_up(&self) -> bool {
        let config = &self.bridge.config;
        !config.any(header::BRIDGE_CONTROL, header::SECONDARY_BUS_RESET)
            && !config.any(express::LINK_CONTROL, express::LINK_DISABLE)
    }

    /// Secondary and subordinate bus number; both 0 before software set them.
    pub fn buses(&self) -> (u8, u8) {
        (self.bridge.decoded.secondary, self.bridge.decoded.subordinate)
    }

    /// Whether a memory address is behind the port.
    pub fn claims_memory(&self, address: u64) -> bool {
        self.bridge.decoded.claims_memory(address)
    }

    /// Whether memory requests from below may pass (Bus Master Enable).
    pub fn masters(&self) -> bool {
        self.bridge.decoded.masters
    }

    /// Max_Payload_Size as software set it, in bytes.
    pub fn max_payload(&self) -> usize {
        self.bridge.decoded.max_payload
    }

    /// Whether software wants to see that a device asks for a retry (CRS Software Visibility).
    pub fn retry_is_visible(&self) -> bool {
        self.bridge.config.any(express::ROOT_CONTROL, express::RETRY_VISIBLE)
    }

    /// The port itself found an error in what came from below, or gave up waiting. `advisory`:
    /// the requester is told otherwise.
    pub fn report(&mut self, error: PortError, advisory: bool, tlp: Option<&[u8]>) {
        self.bridge.report(error, advisory, tlp);
        for severity in Severity::ALL {
            if self.bridge.unsent.errors.contains(severity) {
                self.bridge.unsent.errors.remove(severity);
                self.error(severity, self.id);
            }
        }
    }

    /// A message came that ends here. Whether the port knows what to do with it.
    pub fn handle_message(&mut self, from: Bdf, code: MsgCode) -> bool {
        if let Some(severity) = Severity::of_message(code) {
            self.bridge.passes_error(severity);
            if self.bridge.config.any(header::BRIDGE_CONTROL, header::BRIDGE_SERR) {
                self.error(severity, from);
            }
            return true;
        }
        if code == MsgCode::PmPme {
            self.power_event(from);
            return true;
        }
        false
    }

    /// Address and data of the interrupt that is to be sent now, if one is.
    pub fn poll_interrupt(&mut self) -> Option<(u64, u32)> {
        let config = &mut self.bridge.config;
        let can = self.bridge.decoded.masters && config.any(msi::AT, msi::ENABLE);
        let masked = config.any(msi::MASK, msi::VECTOR);
        let pending = if self.interrupt && masked { msi::VECTOR } else { 0 };
        config.put(msi::PENDING, msi::VECTOR, pending);
        // What cannot be sent now is sent when it can: what it tells of is told once.
        if !self.interrupt || masked || !can {
            return None;
        }
        self.interrupt = false;
        Some(msi::message(&self.bridge.config))
    }

    /// An interrupt that was sent is lost: if what it tells of is still there, it is due again.
    pub fn repeat_interrupt(&mut self) {
        let config = &self.bridge.config;
        let power = config.any(express::ROOT_STATUS, express::PME_STATUS)
            && config.any(express::ROOT_CONTROL, express::PME_INTERRUPT);
        self.interrupt |= power || config.any(aer::ROOT_COMMAND, self.enables_of_received());
    }

    /// Root Error Status and source, and the interrupt (PCIe 5.0 sections 7.8.4.10 and 6.2.4.1.2).
    fn error(&mut self, severity: Severity, from: Bdf) {
        let source = u32::from(from.bits());
        let config = &mut self.bridge.config;
        let (received, multiple, at) = match severity {
            Severity::Correctable => (aer::CORRECTABLE_RECEIVED, aer::CORRECTABLE_MULTIPLE, 0),
            Severity::NonFatal | Severity::Fatal => {
                (aer::UNCORRECTABLE_RECEIVED, aer::UNCORRECTABLE_MULTIPLE, 16)
            }
        };
        let also = match severity {
            Severity::Correctable => 0,
            Severity::NonFatal => aer::NON_FATAL_RECEIVED,
            Severity::Fatal => aer::FATAL_RECEIVED,
        };
        let mut news = also & !config.get(aer::ROOT_STATUS);
        if config.set(aer::ROOT_STATUS, received) {
            config.put(aer::SOURCE, 0xffff << at, source << at);
            if severity == Severity::Fatal {
                config.set(aer::ROOT_STATUS, aer::FIRST_FATAL);
            }
            news |= received;
        } else {
            config.set(aer::ROOT_STATUS, multiple);
        }
        config.set(aer::ROOT_STATUS, also);
        let enable = match severity {
            Severity::Correctable => aer::ROOT_CORRECTABLE,
            Severity::NonFatal => aer::ROOT_NON_FATAL,
            Severity::Fatal => aer::ROOT_FATAL,
        };
        self.interrupt |= news != 0 && config.any(aer::ROOT_COMMAND, enable);
    }

    /// The bits of Root Error Command whose status is set.
    fn enables_of_received(&self) -> u32 {
        let status = self.bridge.config.get(aer::ROOT_STATUS);
        let mut enables = 0;
        for (received, enable) in [
            (aer::CORRECTABLE_RECEIVED, aer::ROOT_CORRECTABLE),
            (aer::NON_FATAL_RECEIVED, aer::ROOT_NON_FATAL),
            (aer::FATAL_RECEIVED, aer::ROOT_FATAL),
        ] {
            if status & received != 0 {
                enables |= enable;
            }
        }
        enables
    }

    fn power_event(&mut self, from: Bdf) {
        let config = &mut self.bridge.config;
        if config.any(express::ROOT_STATUS, express::PME_STATUS) {
            self.waiting.get_or_insert(from);
            config.set(express::ROOT_STATUS, express::PME_PENDING);
            return;
        }
        config.put(express::ROOT_STATUS, express::PME_REQUESTER, u32::from(from.bits()));
        config.set(express::ROOT_STATUS, express::PME_STATUS);
        self.interrupt |= config.any(express::ROOT_CONTROL, express::PME_INTERRUPT);
    }

    /// Software cleared PME Status: the one that waited takes its place.
    fn next_power_event(&mut self) {
        if self.bridge.config.any(express::ROOT_STATUS, express::PME_STATUS) {
            return;
        }
        self.bridge.config.put(express::ROOT_STATUS, express::PME_PENDING, 0);
        if let Some(from) = self.waiting.take() {
            self.power_event(from);
        }
    }
}

#[cfg(test)]
mod tests;

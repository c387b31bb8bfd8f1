//! How it starts: buses, windows and interrupts of the switch, then what is in its slots.

use super::change::PORT_POWER;
use super::hotplug::{self, AS_IS, Light, SLOT_ENABLES};
use super::{BRIDGE_CONTROL, COMMAND, GateWrite, Os, SLOT, Stage, Then};
use crate::host::layout::Layout;
use crate::host::{FUNCTIONS, memory};
use crate::oracle::access;
use crate::random::{Drawer, Random};
use proxy_core::limits::MAX_PAYLOAD_OFFERED;
use tlp_codec::ids::Bdf;

const BUSES: u16 = 0x18;
const MEMORY_WINDOW: u16 = 0x20;
const PREFETCHABLE_WINDOW: u16 = 0x24;
const PREFETCHABLE_BASE: u16 = 0x28;
const PREFETCHABLE_LIMIT: u16 = 0x2c;
const MSI: u16 = 0x50;
const DEVICE_CONTROL: u16 = 0x78;
/// ACS Control, in the upper half (PCIe 5.0 section 7.7.8.3).
const ACCESS_CONTROL: u16 = 0x154;

impl Os {
    /// It starts: everything that it knew is gone. The first port's script sets up the switch.
    pub(crate) fn boot(&mut self) {
        if self.moves {
            let (seed, host) = self.draws;
            self.layout = Layout::draw(seed, host, self.boots + 1, self.ports.len() / FUNCTIONS);
        }
        self.begin_boot(Light::Off as u32);
        self.end_boot();
    }

    /// It starts where another one ran, and leaves things where that one had put them: what the devices
    /// were told to do they still do, until the buses behind the ports are reset. The lights stay as
    /// they are, as Linux's pciehp leaves them when it finds slots: one that goes off would let go of
    /// the device.
    pub(crate) fn take_over(&mut self) {
        self.begin_boot(AS_IS);
        for behind in (0..self.ports.len()).step_by(FUNCTIONS) {
            let at = self.layout.port_id(behind);
            for (reset, then) in
                [(hotplug::BUS_RESET, Then::BusReset { behind }), (0, Then::Nothing)]
            {
                self.write(0, at, BRIDGE_CONTROL, self.bridge_control(reset), 0b1100, then);
            }
        }
        self.end_boot();
    }

    /// With this value for the power indicators of all slots.
    fn begin_boot(&mut self, light: u32) {
        self.boots += 1;
        self.booting = true;
        for port in 0..self.ports.len() {
            self.drop_driver(port);
            let entry = &mut self.ports[port];
            entry.stage = Stage::Empty;
            entry.script.clear();
            (entry.busy, entry.again, entry.resetting) = (false, false, false);
            entry.turn += 1;
            entry.changing = None;
        }
        let (layout, controls) = (self.layout, self.access_controls());
        let windows =
            |[first, last]: [u64; 2]| (first >> 16 & 0xfff0) as u32 | (last & 0xfff0_0000) as u32;
        let [primary, secondary, last] = layout.buses();
        let upstream = layout.upstream();
        // Payloads and reads of 4096 bytes, or smaller ones; relaxed ordering.
        let errors = u32::from(self.errors);
        // Correctable errors are reported by Device Control, others by Command.
        let control =
            |payload: usize| (payload.trailing_zeros() - 7) << 5 | 5 << 12 | 1 << 4 | errors;
        let command = 6 | errors << 8;
        let windows_of = |at: Bdf, [low, high]: [[u64; 2]; 2]| {
            [
                (at, MEMORY_WINDOW, windows(low), 0xf),
                (at, PREFETCHABLE_WINDOW, windows(high) | 0x1_0001, 0xf),
                (at, PREFETCHABLE_BASE, (high[0] >> 32) as u32, 0xf),
                (at, PREFETCHABLE_LIMIT, (high[1] >> 32) as u32, 0xf),
            ]
        };
        let mut writes = windows_of(upstream, layout.all_windows()).to_vec();
        writes.extend([
            (upstream, BUSES, last << 16 | secondary << 8 | primary, 0xf),
            (upstream, DEVICE_CONTROL, control(MAX_PAYLOAD_OFFERED), 0b0011),
            (upstream, COMMAND, command, 0b0011),
        ]);
        for port in (0..self.ports.len()).step_by(FUNCTIONS) {
            let (at, bus) = (layout.port_id(port), u32::from(layout.bus(port)));
            writes.extend(windows_of(at, layout.windows(port)));
            if self.power_states {
                writes.push((at, PORT_POWER, 0, 0b0011));
            }
            writes.extend([
                (at, BUSES, bus << 16 | bus << 8 | secondary, 0xf),
                (at, DEVICE_CONTROL, control(self.payload(port)), 0b0011),
                (at, COMMAND, command, 0b0011),
                (at, MSI + 4, memory::INTERRUPTS as u32, 0xf),
                (at, MSI + 8, 0, 0xf),
                (at, MSI + 12, port as u32, 0xf),
                (at, MSI, 1 << 16, 0b1100),
                (at, SLOT, SLOT_ENABLES | light << 8, 0b0011),
            ]);
            if let Some(bits) = controls.get(port / FUNCTIONS) {
                // Before anything from behind the port may pass.
                let first = writes.len() - 1;
                writes.insert(first, (at, ACCESS_CONTROL, u32::from(*bits) << 16, 0b1100));
            }
        }
        if self.errors {
            let ports = (0..self.ports.len()).step_by(FUNCTIONS).map(|port| layout.port_id(port));
            let bridges = [upstream].into_iter().chain(ports);
            writes.extend(bridges.map(|at| (at, BRIDGE_CONTROL, self.bridge_control(0), 0b1100)));
        }
        for (at, register, value, enables) in writes {
            let then = match register {
                ACCESS_CONTROL => {
                    let behind = usize::from(at.device().get()) * FUNCTIONS;
                    Then::AccessControl { behind, bits: (value >> 16) as u16 }
                }
                COMMAND | PORT_POWER if at != upstream => {
                    let behind = usize::from(at.device().get()) * FUNCTIONS;
                    let write = GateWrite::of(register, value);
                    Then::Gate { behind, write, ends: None }
                }
                _ => Then::Nothing,
            };
            self.write(0, at, register, value, enables, then);
        }
    }

    /// What this start sets of each port's access control: half of them nothing, the others what Linux
    /// does at every port, or some of that. Where devices do not ask each other nobody touches it.
    fn access_controls(&self) -> Vec<u16> {
        if self.moves {
            return Vec::new();
        }
        let (seed, host) = self.draws;
        let stream = (host as u64) << 32 | u64::from(self.boots);
        let mut random = Random::stream(seed, Drawer::Access, stream);
        let kind = random.below(4);
        let mut one = || match kind {
            0 | 1 => 0,
            2 => access::AS_LINUX,
            _ => random.next() as u16 & access::AS_LINUX,
        };
        (0..self.ports.len() / FUNCTIONS).map(|_| one()).collect()
    }

    /// When all is set up: what is there already?
    fn end_boot(&mut self) {
        let last = self.ports[0].script.back_mut().expect("it sets up the switch");
        last.then = Then::Booted;
        for port in (0..self.ports.len()).step_by(FUNCTIONS) {
            self.ports[port].again = true;
        }
    }
}

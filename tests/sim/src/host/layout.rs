//! Where an operating system has put things: bus numbers, and the registers of its devices. Each host
//! has it otherwise, and each start of one.

use super::{FUNCTIONS, first};
use crate::random::{Drawer, Random};
use tlp_codec::ids::Bdf;

/// Bytes of a port's window.
const WINDOW: u64 = 0x10_0000;
/// Bytes of a function's registers.
const REGISTERS: u64 = 0x1000;
/// From one place of all functions' registers in a window to the next one.
pub(crate) const PLACE: u64 = 0x1_0000;
/// Places in a window.
pub(crate) const PLACES: u64 = WINDOW / PLACE;
/// All windows of all hosts are here, or above 4 GB here.
const LOWEST: u64 = 0x8000_0000;
const HIGHEST: u64 = 0x40_0000_0000;
const WINDOWS: u64 = 0x400;

/// The buses and windows of one start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The bus of the upstream port; the ports are on the next one, and what is behind them follows.
    first: u16,
    base: u64,
    /// The same for what is prefetchable, above 4 GB.
    high: u64,
    ports: usize,
    /// The port whose bus and window come first.
    begins: usize,
}

impl Layout {
    /// Of a switch with so many ports, in that start of a host.
    pub(crate) fn draw(seed: u64, host: usize, boot: u32, ports: usize) -> Self {
        let stream = (host as u64) << 32 | u64::from(boot);
        let mut random = Random::stream(seed, Drawer::Layout, stream);
        let ports = ports.max(1);
        Self {
            first: 1 + random.below(253 - ports as u64) as u16,
            base: LOWEST + random.below(WINDOWS - ports as u64) * WINDOW,
            high: HIGHEST + (random.below(64) << 32) + random.below(WINDOWS) * WINDOW,
            ports,
            begins: random.below(ports as u64) as usize,
        }
    }

    /// Where a port is in the order of buses and windows.
    fn place(&self, port: usize) -> usize {
        (port / FUNCTIONS + self.ports - self.begins) % self.ports
    }

    /// Which port has a place.
    fn port(&self, place: usize) -> usize {
        (place + self.begins) % self.ports * FUNCTIONS
    }

    /// The upstream port's ID.
    pub(crate) fn upstream(&self) -> Bdf {
        Bdf::from_bits(self.first << 8)
    }

    /// Its primary, secondary and last bus.
    pub(crate) fn buses(&self) -> [u32; 3] {
        let first = u32::from(self.first);
        [first - 1, first + 1, first + 1 + self.ports as u32]
    }

    /// The windows in front of all ports: from the first one's to the last one's, and above 4 GB.
    pub(crate) fn all_windows(&self) -> [[u64; 2]; 2] {
        [self.base, self.high].map(|base| [base, base + (self.ports as u64 - 1) * WINDOW])
    }

    /// Those of a port.
    pub(crate) fn windows(&self, port: usize) -> [[u64; 2]; 2] {
        [false, true].map(|high| [self.registers(first(port), high); 2])
    }

    /// A downstream port's ID.
    pub(crate) fn port_id(&self, port: usize) -> Bdf {
        Bdf::from_bits((self.first + 1) << 8 | ((port / FUNCTIONS) as u16) << 3)
    }

    /// The bus behind a port.
    pub(crate) fn bus(&self, port: usize) -> u16 {
        self.first + 2 + self.place(port) as u16
    }

    /// The ID of the device behind a port.
    pub(crate) fn device_id(&self, port: usize) -> Bdf {
        Bdf::from_bits(self.bus(port) << 8 | (port % FUNCTIONS) as u16)
    }

    /// Whether an ID is one of a device, and not one of the switch.
    pub(crate) fn is_device(&self, id: Bdf) -> bool {
        u16::from(id.bus().get()) > self.first + 1
    }

    /// Where the registers of the device behind a port are, if they are below 4 GB.
    pub(crate) fn window(&self, port: usize) -> u64 {
        self.registers(port, false)
    }

    /// Where they are, below 4 GB or above.
    pub(crate) fn registers(&self, port: usize, high: bool) -> u64 {
        let base = if high { self.high } else { self.base };
        let function = (port % FUNCTIONS) as u64;
        base + self.place(port) as u64 * WINDOW + function * REGISTERS
    }

    /// The port whose device has registers at an address below 4 GB.
    pub(crate) fn port_at(&self, address: u64) -> Option<usize> {
        let place = (address.checked_sub(self.base)? / WINDOW) as usize;
        let function = function_at(address);
        (place < self.ports && function < FUNCTIONS).then(|| self.port(place) + function)
    }

    /// The port that the device of that ID is behind.
    pub(crate) fn port_of(&self, id: Bdf) -> Option<usize> {
        let place = usize::from(u16::from(id.bus().get()).checked_sub(self.first + 2)?);
        let function = usize::from(id.function().get());
        (place < self.ports).then(|| self.port(place) + function)
    }
}

/// The function that has registers at an address, wherever the windows are.
pub(crate) fn function_at(address: u64) -> usize {
    (address % PLACE / REGISTERS) as usize
}

/// Whether an address is one of registers below 4 GB, in any layout.
pub(crate) fn is_registers(address: u64) -> bool {
    (LOWEST..LOWEST + WINDOWS * WINDOW).contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_has_its_own_and_finds_its_ports_again() {
        let all: Vec<Layout> = (0..20).map(|boot| Layout::draw(1, 0, boot, 4)).collect();
        assert!(all.iter().any(|layout| layout.begins != all[0].begins));
        assert_ne!(all[0], all[1]);
        assert_ne!(all[0], Layout::draw(1, 1, 0, 4));
        for layout in all {
            for port in 0..4 * FUNCTIONS {
                assert_eq!(layout.port_at(layout.window(port) + 0x204), Some(port));
                assert_eq!(layout.port_of(layout.device_id(port)), Some(port));
                assert!(is_registers(layout.window(port)));
                for high in [false, true] {
                    let registers = layout.registers(port, high);
                    assert_eq!(function_at(registers), port % FUNCTIONS);
                    assert_eq!(registers >> 32 != 0, high);
                    let [base, limit] = layout.all_windows()[usize::from(high)];
                    assert!((base..limit + WINDOW).contains(&registers));
                }
            }
            assert_eq!(layout.port_of(super::super::HOST_ID), None);
            assert_eq!(layout.port_of(layout.port_id(0)), None);
            assert_eq!(layout.port_at(layout.all_windows()[0][1] + WINDOW), None);
            assert_eq!(layout.buses()[2], u32::from(layout.first) + 5);
        }
    }
}

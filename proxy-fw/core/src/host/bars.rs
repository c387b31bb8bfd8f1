//! What the operating system finds out of a device's base address registers and gives them (PCIe
//! 5.0, section 7.5.1.2.1).

use crate::canaries::{Canary, planted};
use tlp_codec::tlp::{Packet, TlpType};

/// Functions that a device has without alternative routing IDs.
const FUNCTIONS: usize = 8;

/// A base address register that a configuration request is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    function: u8,
    /// Which of its function's: 0 to 5.
    index: u8,
}

impl Bar {
    pub(super) fn of(packet: &Packet<&mut [u8]>) -> Option<Self> {
        const FIRST: u16 = 0x10;
        const LAST: u16 = 0x24;
        let register = packet.register();
        let is_one = matches!(packet.tlp_type(), TlpType::CfgRd0 | TlpType::CfgWr0)
            && !packet.is_poisoned()
            && (FIRST..=LAST).contains(&register)
            && packet.byte_enables().first == 0xf;
        is_one.then(|| Self {
            function: packet.destination().function().get(),
            index: ((register - FIRST) / 4) as u8,
        })
    }

    /// Its bit in [`Registers`].
    fn bit(self) -> u8 {
        1 << self.index
    }
}

/// Base address registers of a function.
const REGISTERS: usize = 6;

/// The registers of one function, a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Registers {
    /// What they hold.
    values: [u32; REGISTERS],
    /// All ones were written last: what is read then says whether it is there.
    sized: u8,
    /// Memory is behind it. Nobody has to give addresses in I/O space, which most hosts lack.
    memory: u8,
    /// The upper half of the one before.
    upper: u8,
    /// It has an address.
    placed: u8,
}

/// Bits of a register that say what kind it is. An upper half has none.
const KIND: u32 = 0xf;
const IO: u32 = 0b001;
const IO_KIND: u32 = 0b011;
const WIDTH: u32 = 0b110;
const WIDE: u32 = 0b100;

impl Registers {
    /// The address of the memory, or of the I/O space, behind a register, if it has one.
    fn base(&self, index: usize, io: bool) -> Option<u64> {
        let (bit, value) = (1 << index, self.values[index]);
        if self.upper & bit != 0 || (value & IO != 0) != io {
            return None;
        }
        let is_wide = !io && (self.upper & bit << 1 != 0 || value & WIDTH == WIDE);
        let high = self.values.get(index + 1).copied().filter(|_| is_wide).unwrap_or_default();
        let kind = if io { IO_KIND } else { KIND };
        let base = u64::from(high) << 32 | u64::from(value & !kind);
        (base != 0).then_some(base)
    }
}

/// The registers of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bars([Registers; FUNCTIONS]);

impl Bars {
    /// The operating system wrote one.
    pub(super) fn written(&mut self, bar: Bar, value: u32) {
        let own = &mut self.0[usize::from(bar.function) % FUNCTIONS];
        let bit = bar.bit();
        own.sized &= !bit;
        if value == u32::MAX {
            own.sized |= bit;
            return;
        }
        let place = &mut own.values[usize::from(bar.index) % REGISTERS];
        if *place & !KIND != 0 && planted(Canary::KeepPlaces) {
            return;
        }
        *place = value;
        let kind = if own.upper & bit != 0 { 0 } else { KIND };
        own.placed &= !bit;
        if value & !kind != 0 {
            own.placed |= bit;
        }
    }

    /// The device answered what is in one.
    pub(super) fn read(&mut self, bar: Bar, value: u32) {
        let own = &mut self.0[usize::from(bar.function) % FUNCTIONS];
        let bit = bar.bit();
        if own.sized & bit == 0 || own.upper & bit != 0 || value == 0 || value & IO != 0 {
            return;
        }
        own.memory |= bit;
        if value & WIDTH == WIDE {
            own.upper |= bit << 1;
        }
    }

    /// The function whose memory, or I/O space, has this address: no two overlap, so it is behind the
    /// register with the next lower one. `None` when each is above it.
    pub(super) fn function_at(&self, address: u64, io: bool) -> Option<u8> {
        let mut nearest = None;
        for (own, function) in self.0.iter().zip(0..) {
            let bases = (0..REGISTERS).filter_map(|index| own.base(index, io));
            for base in bases.filter(|base| *base <= address) {
                nearest = nearest.max(Some((base, function)));
            }
        }
        nearest.map(|(_, function)| function)
    }

    /// Whether everything that was found has an address, and something has.
    pub(super) fn are_placed(&self) -> bool {
        let mut any = 0;
        for own in &self.0 {
            // Of an address at a multiple of 4 GiB only the upper half is not zero.
            let placed = own.placed | (own.placed & own.upper) >> 1;
            if own.memory & !placed != 0 {
                return false;
            }
            any |= placed;
        }
        any != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(index: u8) -> Bar {
        Bar { function: 0, index }
    }

    /// As an operating system does it: all ones, what is left of them, what was there.
    fn size(bars: &mut Bars, index: u8, left: u32) {
        bars.written(bar(index), u32::MAX);
        bars.read(bar(index), left);
        bars.written(bar(index), 0);
    }

    #[test]
    fn a_device_is_placed_when_each_of_its_memories_is() {
        let mut bars = Bars::default();
        size(&mut bars, 0, 0xff00_0000);
        size(&mut bars, 1, 0x0000_000c);
        size(&mut bars, 2, 0xffff_fff0);
        size(&mut bars, 3, 0);
        assert!(!bars.are_placed());
        bars.written(bar(0), 0xe000_0000);
        assert!(!bars.are_placed(), "the second has no address");
        bars.written(bar(1), 0xd000_000c);
        assert!(bars.are_placed(), "its upper half is zero, and the others are not there");
        bars.written(bar(1), 0);
        assert!(!bars.are_placed(), "it was taken away");
    }

    #[test]
    fn either_half_of_an_address_may_be_zero() {
        let mut bars = Bars::default();
        size(&mut bars, 1, 0x0000_000c);
        size(&mut bars, 2, 0xffff_fff0);
        bars.written(bar(1), 0x0000_000c);
        assert!(!bars.are_placed());
        for upper in [0x1, 0x8, 0xf, 0x40] {
            bars.written(bar(2), upper);
            assert!(bars.are_placed(), "at {} GiB", upper * 4);
            bars.written(bar(1), 0x0000_000c);
            assert!(bars.are_placed(), "whichever half comes last");
            bars.written(bar(2), 0);
            assert!(!bars.are_placed());
        }
    }

    #[test]
    fn sizes_are_no_addresses_and_io_needs_none() {
        let mut bars = Bars::default();
        size(&mut bars, 0, 0xffff_f000);
        size(&mut bars, 1, 0xffff_ff81);
        bars.written(bar(0), 0xc);
        assert!(!bars.are_placed(), "only what kind it is");
        bars.written(bar(0), 0xe000_0000);
        bars.written(bar(0), u32::MAX);
        assert!(bars.are_placed(), "asked again, it keeps its address");
    }

    #[test]
    fn memory_is_of_the_function_with_the_next_lower_address() {
        let mut bars = Bars::default();
        let of = |function, index| Bar { function, index };
        // One of 32 bits in each, one of 64 in the second.
        for (register, left, address) in [
            (of(0, 0), 0xfff0_0000, 0xe000_0000),
            (of(1, 0), 0xfff0_0000, 0xe010_0000),
            (of(1, 4), 0xff00_000c, 0x8000_000c),
            (of(1, 5), 0xffff_ffff, 0x0000_0020),
        ] {
            bars.written(register, u32::MAX);
            bars.read(register, left);
            assert_eq!(bars.function_at(u64::MAX, false).is_some(), register.function > 0);
            bars.written(register, address);
        }
        for (address, function) in [
            (0xdfff_fffc, None),
            (0xe000_0000, Some(0)),
            (0xe00f_fffc, Some(0)),
            (0xe010_0000, Some(1)),
            (0x20_8000_0010, Some(1)),
        ] {
            assert_eq!(bars.function_at(address, false), function, "{address:#x}");
        }
        bars.written(of(1, 0), u32::MAX);
        assert_eq!(
            bars.function_at(0xe010_0000, false),
            Some(1),
            "asked for its size it keeps its address"
        );
        bars.written(of(1, 0), 0);
        assert_eq!(bars.function_at(0xe010_0000, false), Some(0), "it was taken away");
    }

    #[test]
    fn io_space_is_apart_from_memory() {
        let mut bars = Bars::default();
        let of = |function, index| Bar { function, index };
        bars.written(of(0, 0), 0xe000_0000);
        bars.written(of(1, 0), 0xe010_0000);
        // A range of 4 bytes of I/O space may begin at any multiple of them.
        bars.written(of(0, 1), 0x0000_e001);
        bars.written(of(1, 1), 0x0000_e00d);
        for (address, function) in
            [(0xe000, Some(0)), (0xe008, Some(0)), (0xe00c, Some(1)), (0xdffc, None)]
        {
            assert_eq!(bars.function_at(address, true), function, "{address:#x}");
        }
        assert_eq!(bars.function_at(0xe010, false), None, "below all memory");
        assert_eq!(bars.function_at(0xe010_0000, false), Some(1));
    }

    #[test]
    fn what_is_written_without_asking_for_sizes_is_an_address() {
        let mut bars = Bars::default();
        bars.read(bar(0), 0xffff_f000);
        bars.written(bar(3), 0xe000_0000);
        assert!(bars.are_placed());
    }
}

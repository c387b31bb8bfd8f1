//! What the operating system finds out of a device's base address registers and gives them (PCIe
//! 5.0, section 7.5.1.2.1).

use tlp_codec::tlp::{Packet, TlpType};

/// Functions that a device has without alternative routing IDs.
const FUNCTIONS: usize = 8;

/// A base address register that a configuration request is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    function: u8,
    /// Its bit in [`Registers`].
    bit: u8,
}

impl Bar {
    pub(super) fn of(packet: &Packet<&mut [u8]>) -> Option<Self> {
        const FIRST: u16 = 0x10;
        const LAST: u16 = 0x24;
        let register = packet.register();
        let is_one = matches!(packet.tlp_type(), TlpType::CfgRd0 | TlpType::CfgWr0)
            && (FIRST..=LAST).contains(&register)
            && packet.byte_enables().first == 0xf;
        is_one.then(|| Self {
            function: packet.destination().function().get(),
            bit: 1 << ((register - FIRST) / 4),
        })
    }
}

/// The registers of one function, a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Registers {
    /// All ones were written last: what is read then says whether it is there.
    sized: u8,
    /// Memory is behind it. Nobody has to give addresses in I/O space, which most hosts lack.
    memory: u8,
    /// The upper half of the one before.
    upper: u8,
    /// It has an address.
    placed: u8,
}

/// The registers of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bars([Registers; FUNCTIONS]);

impl Bars {
    /// The operating system wrote one.
    pub(super) fn written(&mut self, bar: Bar, value: u32) {
        /// Bits that say what kind of register it is. An upper half has none.
        const KIND: u32 = 0xf;
        let own = &mut self.0[usize::from(bar.function) % FUNCTIONS];
        let bit = bar.bit;
        own.sized &= !bit;
        if value == u32::MAX {
            own.sized |= bit;
            return;
        }
        let kind = if own.upper & bit != 0 { 0 } else { KIND };
        own.placed &= !bit;
        if value & !kind != 0 {
            own.placed |= bit;
        }
    }

    /// The device answered what is in one.
    pub(super) fn read(&mut self, bar: Bar, value: u32) {
        const IO: u32 = 0b001;
        const WIDTH: u32 = 0b110;
        const WIDE: u32 = 0b100;
        let own = &mut self.0[usize::from(bar.function) % FUNCTIONS];
        let bit = bar.bit;
        if own.sized & bit == 0 || own.upper & bit != 0 || value == 0 || value & IO != 0 {
            return;
        }
        own.memory |= bit;
        if value & WIDTH == WIDE {
            own.upper |= bit << 1;
        }
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
        Bar { function: 0, bit: 1 << index }
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
    fn what_is_written_without_asking_for_sizes_is_an_address() {
        let mut bars = Bars::default();
        bars.read(bar(0), 0xffff_f000);
        bars.written(bar(3), 0xe000_0000);
        assert!(bars.are_placed());
    }
}

//! What the tables say, seen through reads and writes.

use super::*;
use crate::config_space::lanes;
use proptest::prelude::*;
use std::vec::Vec;

fn spaces() -> [ConfigSpace; 2] {
    [ConfigSpace::new(&layouts::UPSTREAM), ConfigSpace::new(&layouts::DOWNSTREAM)]
}

/// IDs and places of a list of capabilities, as software walks it.
fn capabilities(space: &ConfigSpace) -> Vec<(u8, u16)> {
    let mut found = Vec::new();
    let mut at = space.read(0x34) as u16 & 0xfc;
    while at != 0 {
        let head = space.read(at);
        found.push((head as u8, at));
        at = (head >> 8) as u16 & 0xfc;
        assert!(found.len() < 48, "the list does not end");
    }
    found
}

fn extended_capabilities(space: &ConfigSpace) -> Vec<(u16, u16)> {
    let mut found = Vec::new();
    let mut at = 0x100;
    while at != 0 {
        let head = space.read(at);
        found.push((head as u16, at));
        at = (head >> 20) as u16;
        assert!(found.len() < 48, "the list does not end");
    }
    found
}

#[test]
fn the_lists_of_capabilities_are_whole() {
    let [upstream, downstream] = spaces();
    let first = [(0x01, 0x40), (0x05, 0x50), (0x10, 0x70), (0x0d, 0xb0)];
    assert_eq!(capabilities(&upstream), first);
    assert_eq!(capabilities(&downstream), first);
    assert_eq!(extended_capabilities(&upstream), [(0x01, 0x100), (0x03, 0x150), (0x19, 0x170)]);
    assert_eq!(extended_capabilities(&downstream), [(0x01, 0x100), (0x0d, 0x150), (0x19, 0x170)]);
}

#[test]
fn the_header_is_a_bridge() {
    for space in spaces() {
        assert_eq!(space.read(0x08) >> 8, 0x06_0400);
        assert_eq!(space.read(0x0c) >> 16 & 0xff, 1, "type 1, one function");
        assert_eq!(space.read(0x04) >> 16 & 0x10, 0x10, "there are capabilities");
        assert_eq!((space.read(0x10), space.read(0x14)), (0, 0), "no base address registers");
    }
}

#[test]
fn port_types_and_slot() {
    let [upstream, downstream] = spaces();
    assert_eq!(upstream.read(0x70) >> 20 & 0xf, 5);
    assert_eq!(downstream.read(0x70) >> 20 & 0xf, 6);
    assert_eq!(upstream.read(0x70) >> 24 & 1, 0, "no slot");
    assert_eq!(downstream.read(0x70) >> 24 & 1, 1, "a slot");
    let slot = downstream.read(0x84);
    assert_eq!(slot & 0x7f, 0b111_1001, "button, indicators, surprise, hot-plug; no power, no MRL");
    assert_eq!(slot >> 17 & 0b11, 0b10, "no interlock, no command completed");
    assert_eq!(upstream.read(0x84), 0);
}

#[test]
fn windows_are_closed_after_reset() {
    for space in spaces() {
        assert_eq!(header::memory_window(&space), None);
        assert_eq!(header::prefetchable_window(&space), None);
        assert_eq!(header::io_window(&space), None);
    }
}

#[test]
fn windows_decode_as_the_bridge_specification_says() {
    let mut space = ConfigSpace::new(&layouts::DOWNSTREAM);
    space.write(0x20, 0xe01f_e000, 0xf);
    assert_eq!(header::memory_window(&space), Some((0xe000_0000, 0xe01f_ffff)));
    space.write(0x24, 0x000f_fff1, 0xf);
    space.write(0x28, 0x0000_0007, 0xf);
    space.write(0x2c, 0x0000_0008, 0xf);
    assert_eq!(header::prefetchable_window(&space), Some((0x7_fff0_0000, 0x8_000f_ffff)));
    space.write(0x2c, 0x0000_0007, 0xf);
    assert_eq!(header::prefetchable_window(&space), None, "base above limit");
    space.write(0x1c, 0x0000_4020, 0x3);
    assert_eq!(header::io_window(&space), Some((0x2000, 0x4fff)));
    space.write(0x30, 0x0001_0001, 0xf);
    assert_eq!(header::io_window(&space), Some((0x1_2000, 0x1_4fff)));
    // One page, one megabyte: base and limit equal.
    space.write(0x20, 0xfff0_fff0, 0xf);
    assert_eq!(header::memory_window(&space), Some((0xfff0_0000, 0xffff_ffff)));
}

#[test]
fn byte_enables_choose_bytes() {
    let mut space = ConfigSpace::new(&layouts::DOWNSTREAM);
    space.write(0x18, 0xff03_0201, 0b0010);
    assert_eq!(space.read(0x18), 0x0000_0200);
    space.write(0x18, 0xff03_0201, 0b1101);
    assert_eq!(space.read(0x18), 0x0003_0201);
}

#[test]
fn status_bits_clear_by_writing_one_and_only_so() {
    let mut space = ConfigSpace::new(&layouts::DOWNSTREAM);
    space.set(slot::CONTROL, slot::BUTTON_PRESSED | slot::PRESENCE_CHANGED);
    // Software that writes Slot Control as 32 bits with zeros above clears nothing.
    space.write(slot::CONTROL, slot::INTERRUPT_ENABLE, 0xf);
    assert!(space.any(slot::CONTROL, slot::BUTTON_PRESSED));
    // A write to the other half does not either.
    space.write(slot::CONTROL, slot::BUTTON_PRESSED, 0x3);
    assert!(space.any(slot::CONTROL, slot::BUTTON_PRESSED));
    space.write(slot::CONTROL, slot::BUTTON_PRESSED, 0xc);
    assert!(!space.any(slot::CONTROL, slot::BUTTON_PRESSED));
    assert!(space.any(slot::CONTROL, slot::PRESENCE_CHANGED));
}

#[test]
fn a_hot_reset_keeps_sticky_bits_and_what_was_defined() {
    let mut space = ConfigSpace::new(&layouts::DOWNSTREAM);
    space.define(header::ID, u32::MAX, 0xabcd_1234);
    space.set(error_reporting::UNCORRECTABLE_STATUS, error_reporting::UNSUPPORTED);
    space.write(header::COMMAND, 0x7, 0x3);
    space.reset(ResetKind::Hot);
    assert_eq!(space.read(0), 0xabcd_1234);
    assert_eq!(space.read(0x104), error_reporting::UNSUPPORTED);
    assert_eq!(space.read(0x04) & 0x7, 0);
    space.reset(ResetKind::Fundamental);
    assert_eq!(space.read(0), 0xabcd_1234);
    assert_eq!(space.read(0x104), 0);
}

proptest! {
    /// Whatever software writes, a bit that the table does not give it stays; what is not
    /// implemented reads 0; nothing panics.
    #[test]
    fn read_only_bits_stay(
        upstream: bool,
        writes in proptest::collection::vec((0u16..1024, any::<u32>(), 0u8..16), 1..200),
    ) {
        let layout = if upstream { &layouts::UPSTREAM } else { &layouts::DOWNSTREAM };
        let mut space = ConfigSpace::new(layout);
        for (doubleword, value, enables) in writes {
            let offset = doubleword * 4;
            let before = space.read(offset);
            let written = space.write(offset, value, enables);
            let after = space.read(offset);
            match layout.register(offset) {
                None => {
                    prop_assert_eq!(written, None);
                    prop_assert_eq!(after, 0);
                }
                Some(row) => {
                    prop_assert_eq!((before ^ after) & !(row.writable | row.clearable), 0);
                    prop_assert_eq!((before ^ after) & !lanes(enables), 0);
                    prop_assert_eq!(after & !before & row.clearable, 0, "software set a status bit");
                }
            }
        }
    }
}

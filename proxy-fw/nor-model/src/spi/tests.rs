use std::time::Duration;

use super::*;
use crate::Part;

fn chip(part: Part) -> SpiNor {
    SpiNor::new(Nor::new(part, 1))
}

/// One selection: sends bytes, and reads so many.
fn send(chip: &mut SpiNor, bytes: &[u8], answer: usize) -> Vec<u8> {
    chip.select();
    for &byte in bytes {
        chip.exchange(byte);
    }
    let answer = (0..answer).map(|_| chip.exchange(0)).collect();
    chip.deselect();
    answer
}

fn status(chip: &mut SpiNor) -> u8 {
    send(chip, &[0x05], 1)[0]
}

/// With the latch set, and its time waited for.
fn write(chip: &mut SpiNor, bytes: &[u8]) {
    send(chip, &[0x06], 0);
    send(chip, bytes, 0);
    chip.nor.finish();
}

#[test]
fn it_says_what_it_is() {
    let mut chip = chip(Part::W25Q128);
    assert_eq!(send(&mut chip, &[0x9f], 4), [0xef, 0x40, 0x18, 0xff]);
    assert_eq!(send(&mut chip, &[0xab, 0, 0, 0], 1), [0x17]);
    assert_eq!(send(&mut chip, &[0x5a, 0, 0, 0, 0], 8), *b"SFDP\x06\x01\x00\xff");
    let table = send(&mut chip, &[0x5a, 0, 0, 0x30, 0], 64);
    let word = |n: usize| u32::from_le_bytes(table[4 * n - 4..4 * n].try_into().unwrap());
    assert_eq!(word(1) & 0xffff, 0x2005);
    assert_eq!(word(2), (16 << 23) - 1);
    assert_eq!((word(8), word(9)), (0x520f_200c, 0x0000_d810));
    assert_eq!(word(11) >> 4 & 15, 8);
}

#[test]
fn a_write_needs_the_latch_and_clears_it() {
    let mut chip = chip(Part::W25Q128);
    send(&mut chip, &[0x02, 0, 1, 0, 0x55], 0);
    assert_eq!(status(&mut chip), 0);
    assert_eq!(chip.nor.cells()[0x100], 0xff);
    send(&mut chip, &[0x06], 0);
    assert_eq!(status(&mut chip), WRITE_ENABLED);
    send(&mut chip, &[0x04], 0);
    assert_eq!(status(&mut chip), 0);
    send(&mut chip, &[0x06], 0);
    send(&mut chip, &[0x02, 0, 1, 0, 0x55, 0xaa], 0);
    assert_eq!(status(&mut chip), BUSY | WRITE_ENABLED);
    // While busy it hears nothing but questions for its status.
    assert_eq!(send(&mut chip, &[0x03, 0, 1, 0], 1), [0xff]);
    chip.nor.advance(Duration::from_micros(400));
    assert_eq!(status(&mut chip), 0);
    assert_eq!(send(&mut chip, &[0x03, 0, 1, 0], 3), [0x55, 0xaa, 0xff]);
    assert_eq!(send(&mut chip, &[0x0b, 0, 1, 0, 0], 2), [0x55, 0xaa]);
}

#[test]
fn pages_wrap_and_take_the_last_256() {
    let mut chip = chip(Part::W25Q128);
    write(&mut chip, &[0x02, 0, 0, 0xff, 1, 2]);
    assert_eq!(
        (chip.nor.cells()[0xff], chip.nor.cells()[0], chip.nor.cells()[0x100]),
        (1, 2, 0xff)
    );
    let mut long = vec![0x02, 0, 2, 0];
    long.extend((0..258).map(|n| n as u8 ^ (n >> 8) as u8));
    write(&mut chip, &long);
    assert_eq!(chip.nor.cells()[0x200..0x203], [1, 0, 2]);
    assert_eq!(chip.nor.cells()[0x300], 0xff);
}

#[test]
fn every_size_is_erased() {
    let mut chip = chip(Part::W25Q128);
    for (opcode, size) in [(0x20, 4 << 10), (0x52, 32 << 10), (0xd8, 64 << 10)] {
        chip.nor.preload(0x1_0000, &[0; 0x2_0000]);
        // Any address of the block.
        write(&mut chip, &[opcode, 1, 0, 7]);
        let erased = chip.nor.cells().iter().skip(0x1_0000).take_while(|&&byte| byte == 0xff);
        assert_eq!(erased.count(), size);
    }
    write(&mut chip, &[0xc7]);
    assert!(chip.nor.cells().iter().all(|&byte| byte == 0xff));
    // Too short, too long, not whole.
    chip.nor.preload(0, &[0; 16]);
    write(&mut chip, &[0x20, 0, 0]);
    write(&mut chip, &[0x20, 0, 0, 0, 0]);
    write(&mut chip, &[0x60, 0]);
    assert_eq!(chip.nor.cells()[..16], [0; 16]);
}

#[test]
fn four_byte_addresses() {
    let mut chip = chip(Part::W25Q256);
    chip.nor.preload(0x0100_0000, &[0x77]);
    chip.nor.preload(0, &[0x11]);
    assert_eq!(send(&mut chip, &[0x03, 0, 0, 0], 1), [0x11]);
    send(&mut chip, &[0xb7], 0);
    assert_eq!(send(&mut chip, &[0x03, 1, 0, 0, 0], 1), [0x77]);
    assert_eq!(send(&mut chip, &[0x0b, 1, 0, 0, 0, 0], 1), [0x77]);
    write(&mut chip, &[0x20, 1, 0, 0, 0]);
    assert_eq!(chip.nor.cells()[0x0100_0000], 0xff);
    send(&mut chip, &[0xe9], 0);
    assert_eq!(send(&mut chip, &[0x03, 0, 0, 0], 1), [0x11]);
    let table = send(&mut chip, &[0x5a, 0, 0, 0x30, 0], 64);
    assert_eq!((table[2] >> 1 & 3, table[63]), (1, 1));
    // A part of 16 MB does not know of it.
    let mut chip = self::chip(Part::W25Q128);
    chip.nor.preload(0, &[0x11]);
    send(&mut chip, &[0xb7], 0);
    assert_eq!(send(&mut chip, &[0x03, 0, 0, 0], 1), [0x11]);
}

#[test]
fn a_part_that_sleeps_hears_only_the_call() {
    let mut chip = chip(Part::W25Q128);
    send(&mut chip, &[0xb9], 0);
    assert_eq!(send(&mut chip, &[0x9f], 3), [0xff; 3]);
    write(&mut chip, &[0x02, 0, 0, 0, 0]);
    assert_eq!(chip.nor.cells()[0], 0xff);
    send(&mut chip, &[0xab], 0);
    assert_eq!(send(&mut chip, &[0x9f], 1), [0xef]);
}

#[test]
fn a_reset_tears_what_goes_on() {
    let mut chip = chip(Part::W25Q128);
    chip.nor.preload(0, &[0; 4096]);
    send(&mut chip, &[0x06], 0);
    send(&mut chip, &[0x20, 0, 0, 0], 0);
    chip.nor.advance(Duration::from_millis(30));
    // Alone, or with something in between, it is no reset.
    send(&mut chip, &[0x99], 0);
    send(&mut chip, &[0x66], 0);
    send(&mut chip, &[0x05], 1);
    send(&mut chip, &[0x99], 0);
    assert!(chip.nor.is_busy());
    send(&mut chip, &[0x66], 0);
    send(&mut chip, &[0x99], 0);
    assert_eq!(status(&mut chip), 0);
    assert_eq!(chip.nor.unstable().len(), 1);
}

#[test]
fn protected_parts_stay_as_they_are() {
    let mut chip = chip(Part::W25Q128);
    // The upper half.
    write(&mut chip, &[0x01, 0b110 << 2]);
    assert_eq!(status(&mut chip), 0b110 << 2);
    write(&mut chip, &[0x02, 0x80, 0, 0, 0]);
    write(&mut chip, &[0x02, 0x7f, 0xff, 0xff, 0]);
    assert_eq!((chip.nor.cells()[0x80_0000], chip.nor.cells()[0x7f_ffff]), (0xff, 0));
    write(&mut chip, &[0xc7]);
    assert_eq!(chip.nor.cells()[0x7f_ffff], 0);
    assert_eq!(status(&mut chip) & WRITE_ENABLED, 0, "what is refused clears the latch, too");
    chip.power_off();
    chip.power_on();
    assert_eq!(status(&mut chip), 0b110 << 2);
    write(&mut chip, &[0x01, 0]);
    write(&mut chip, &[0x02, 0x80, 0, 0, 0]);
    assert_eq!(chip.nor.cells()[0x80_0000], 0);
}

#[test]
fn without_power_or_selection_nothing_is_heard() {
    let mut chip = chip(Part::W25Q128);
    assert_eq!(chip.exchange(0x9f), 0xff);
    chip.deselect();
    chip.power_off();
    assert_eq!(send(&mut chip, &[0x9f], 3), [0xff; 3]);
    chip.power_on();
    assert_eq!(send(&mut chip, &[0x9f], 3), [0xef, 0x40, 0x18]);
}

proptest::proptest! {
    /// Whatever it is sent, it answers or not, and what it did shows in its cells only where the
    /// latch was set.
    #[test]
    fn any_bytes(commands: Vec<Vec<u8>>) {
        let part = Part { size: 64 << 10, erases: Part::small(1 << 10).erases, ..Part::W25Q128 };
        let mut chip = chip(part);
        chip.nor.preload(0, &[0xa5; 64 << 10]);
        let mut latched = false;
        for command in &commands {
            send(&mut chip, command, 4);
            latched |= command[..] == [0x06];
            chip.nor.advance(Duration::from_micros(100));
        }
        chip.nor.finish();
        proptest::prop_assert!(latched || chip.nor.cells().iter().all(|&byte| byte == 0xa5));
    }
}

use super::*;
use crate::Part;

const STATUS_READY: u32 = 0x0080_0080;

fn pair() -> CfiNor {
    CfiNor::new(Nor::new(Part::QEMU_VIRT, 1), 2)
}

#[test]
fn the_query_table_says_what_it_is() {
    let mut flash = pair();
    flash.write(0x55 * 4, 0x0098_0098);
    let mut at = |word: u32| flash.read(4 * word);
    assert_eq!([at(0x10), at(0x11), at(0x12)], [0x0051_0051, 0x0052_0052, 0x0059_0059]);
    assert_eq!(at(0x13) & 0xff, 1);
    // Each device has 16 MB in 128 blocks of 128 KB.
    assert_eq!(at(0x27) & 0xff, 24);
    assert_eq!([at(0x2c), at(0x2d), at(0x2e)].map(|word| word & 0xff), [1, 127, 0]);
    assert_eq!([at(0x2f), at(0x30)].map(|word| word & 0xff), [0, 2]);
    flash.write(0, 0x00ff_00ff);
    assert_eq!(flash.read(0), u32::MAX);
}

#[test]
fn it_has_an_id() {
    let mut flash = pair();
    flash.write(0, 0x90);
    assert_eq!([flash.read(0), flash.read(4), flash.read(8)], [0x0089_0089, 0x0018_0018, 0]);
    flash.lock(0);
    assert_eq!(flash.read(8), 0x0001_0001);
}

#[test]
fn words_are_programmed() {
    let mut flash = pair();
    flash.write(8, 0x0040_0040);
    flash.write(8, 0x1234_5678);
    assert_eq!(flash.read(8), STATUS_READY);
    flash.write(0, 0x00ff_00ff);
    assert_eq!(flash.read(8), 0x1234_5678);
    assert_eq!(flash.nor.cells()[8..12], [0x78, 0x56, 0x34, 0x12]);
}

#[test]
fn buffers_are_programmed_on_confirmation() {
    let mut flash = pair();
    flash.write(4088, 0x00e8_00e8);
    assert_eq!(flash.read(4088), STATUS_READY);
    flash.write(4088, 0x0003_0003);
    for n in 0..4 {
        flash.write(4088 + 4 * n, n);
    }
    assert_eq!(flash.nor.cells()[4088], 0xff);
    flash.write(4088, 0x00d0_00d0);
    flash.write(0, 0xff);
    assert_eq!((0..4).map(|n| flash.read(4088 + 4 * n)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    // Without confirmation nothing happens but an error.
    flash.write(0, 0xe8);
    flash.write(0, 0);
    flash.write(0, 0);
    flash.write(0, 0xff);
    assert_eq!(flash.read(0) & 0xff, (READY | ERASE_ERROR | PROGRAM_ERROR).into());
    assert_eq!(flash.nor.cells()[0], 0xff);
    // Neither does more than the buffer has.
    flash.write(0, 0x50);
    flash.write(0, 0xe8);
    flash.write(0, BUFFER_WORDS);
    assert_eq!(flash.read(0) & 0x30, 0x30);
}

#[test]
fn blocks_are_erased_on_confirmation() {
    let mut flash = pair();
    flash.nor.preload(0, &[0; 512 << 10]);
    flash.write(0x3_0000, 0x0020_0020);
    flash.write(0x3_0000, 0x00d0_00d0);
    assert_eq!(flash.read(0), STATUS_READY);
    assert!(flash.nor.cells()[..256 << 10].iter().all(|&byte| byte == 0xff));
    assert_eq!(flash.nor.cells()[256 << 10], 0);
    flash.write(256 << 10, 0x20);
    flash.write(256 << 10, 0x01);
    assert_eq!(flash.read(0) & 0x30, 0x30);
    assert_eq!(flash.nor.cells()[256 << 10], 0);
}

#[test]
fn locked_blocks_stay_as_they_are() {
    let mut flash = pair();
    flash.lock(0);
    flash.write(0, 0x40);
    flash.write(0, 0);
    assert_eq!(flash.read(0) as u8, READY | PROGRAM_ERROR | LOCKED);
    flash.write(0, 0x50);
    flash.write(0, 0x20);
    flash.write(0, 0xd0);
    assert_eq!(flash.read(0) as u8, READY | ERASE_ERROR | LOCKED);
    flash.write(0, 0x50);
    flash.write(0, 0x60);
    flash.write(0, 0xd0);
    flash.write(0, 0x40);
    flash.write(0, 0);
    flash.write(0, 0xff);
    assert_eq!(flash.read(0), 0);
}

#[test]
fn a_busy_part_says_so() {
    let mut flash = CfiNor::new(Nor::new(Part::W25Q128, 1), 1);
    flash.write(0, 0x40);
    flash.write(0, 0x1234);
    assert_eq!(flash.read(0), 0);
    flash.write(0, 0xff);
    flash.nor.finish();
    assert_eq!(flash.read(0), READY.into());
    flash.write(0, 0xff);
    assert_eq!(flash.read(0), 0x1234);
    assert_eq!(flash.read(2), 0xffff);
}

proptest::proptest! {
    /// Whatever is written, nothing panics, and the read command always leads back to the array
    /// after at most a buffer of data.
    #[test]
    fn any_accesses(writes: Vec<(u32, u32)>) {
        let mut flash = CfiNor::new(Nor::new(Part::small(8 << 10), 1), 2);
        for (at, value) in writes {
            flash.write(at, value);
            flash.read(at);
        }
        for _ in 0..BUFFER_WORDS + 4 {
            flash.write(0, 0xff);
        }
        let cells = flash.nor.cells()[..4].try_into().unwrap();
        proptest::prop_assert_eq!(flash.read(0), u32::from_le_bytes(cells));
    }
}

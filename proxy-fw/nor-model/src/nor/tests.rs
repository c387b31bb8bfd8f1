use super::*;

fn small() -> Nor {
    Nor::new(Part::small(8 << 10), 1)
}

fn read<const N: usize>(nor: &mut Nor, at: u32) -> [u8; N] {
    let mut bytes = [0; N];
    nor.read(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn programming_only_clears_bits() {
    let mut nor = small();
    nor.program(16, &[0xf0, 0x0f]).unwrap();
    assert_eq!((nor.reprogrammed(), nor.unraised()), (0, 0));
    nor.program(16, &[0x3c]).unwrap();
    assert_eq!(read(&mut nor, 15), [0xff, 0x30, 0x0f, 0xff]);
    assert_eq!((nor.reprogrammed(), nor.unraised()), (1, 2));
}

#[test]
fn programming_wraps_in_its_page() {
    let mut nor = small();
    nor.program(254, &[1, 2, 3]).unwrap();
    assert_eq!(read(&mut nor, 254), [1, 2, 0xff]);
    assert_eq!(read(&mut nor, 0), [3, 0xff]);
}

#[test]
fn an_erase_sets_one_block() {
    let mut nor = small();
    nor.preload(0, &[0; 3 << 10]);
    nor.erase(1 << 10, 1 << 10).unwrap();
    assert!(nor.cells()[1 << 10..2 << 10].iter().all(|&byte| byte == 0xff));
    assert!(nor.cells()[..1 << 10].iter().chain(&nor.cells()[2 << 10..3 << 10]).all(|&b| b == 0));
    assert_eq!(nor.wear()[..3], [0, 1, 0]);
    assert_eq!(nor.erase(512, 1 << 10), Err(Fault::NotABlock));
    assert_eq!(nor.erase(0, 2 << 10), Err(Fault::NotABlock));
    assert_eq!(nor.erase(8 << 10, 1 << 10), Err(Fault::OutOfBounds));
}

#[test]
fn work_is_done_when_its_time_has_passed() {
    let mut nor = Nor::new(Part::W25Q128, 1);
    nor.program(0, &[0]).unwrap();
    assert_eq!(nor.read(0, &mut [0]), Err(Fault::Busy));
    assert_eq!(nor.erase(0, 4096), Err(Fault::Busy));
    nor.advance(Duration::from_micros(399));
    assert!(nor.is_busy() && nor.cells()[0] == 0xff);
    nor.advance(Duration::from_micros(1));
    assert!(!nor.is_busy());
    assert_eq!(read(&mut nor, 0), [0]);
}

/// At every step, over many seeds: before the first nothing has happened, then some of the bits
/// are cleared and none of the others.
#[test]
fn a_cut_program_leaves_some_bits() {
    let (old, new) = (0b1111_0000, 0b1010_1010);
    let mut partly = 0;
    for seed in 0..50 {
        for step in 0..4 {
            let mut nor = Nor::new(Part::small(8 << 10), seed);
            nor.preload(0, &[old; 4]);
            nor.cut_after(step);
            assert_eq!(nor.program(0, &[new; 4]), Err(Fault::NoPower));
            assert_eq!(nor.read(0, &mut [0]), Err(Fault::NoPower));
            nor.power_on();
            let bytes: [u8; 4] = read(&mut nor, 0);
            assert!(bytes.iter().all(|byte| byte & !old == 0 && old & new & !byte == 0));
            assert!(step > 0 || bytes == [old; 4]);
            partly += u32::from(bytes != [old; 4] && bytes != [old & new; 4]);
        }
    }
    assert!(partly > 50, "{partly}");
}

#[test]
fn a_cut_erase_reads_unstable_until_the_next() {
    for step in 1..ERASE_STEPS {
        let mut nor = small();
        nor.preload(0, &[0xa5; 2 << 10]);
        nor.cut_after(step);
        assert_eq!(nor.erase(0, 1 << 10), Err(Fault::NoPower));
        nor.power_on();
        assert_eq!(nor.unstable(), BTreeSet::from([0]));
        let reads: BTreeSet<[u8; 1024]> = (0..4).map(|_| read(&mut nor, 0)).collect();
        assert!(reads.len() > 1, "step {step}");
        assert_eq!(read::<1024>(&mut nor, 1 << 10), [0xa5; 1024]);
        nor.erase(0, 1 << 10).unwrap();
        assert_eq!(read::<1024>(&mut nor, 0), [0xff; 1024]);
        assert!(nor.unstable().is_empty());
    }
    let mut nor = small();
    nor.preload(0, &[0xa5]);
    nor.cut_after(0);
    assert_eq!(nor.erase(0, 1 << 10), Err(Fault::NoPower));
    nor.power_on();
    assert_eq!(read(&mut nor, 0), [0xa5]);
}

/// The power goes when time has passed instead of after so many steps.
#[test]
fn power_goes_in_the_middle_of_an_erase() {
    let mut nor = Nor::new(Part::W25Q128, 3);
    nor.preload(0, &[0x5a; 4096]);
    nor.erase(0, 4096).unwrap();
    nor.advance(Duration::from_millis(20));
    nor.power_off();
    nor.power_on();
    assert!(!nor.is_busy());
    assert_eq!(nor.unstable(), BTreeSet::from([0]));
    assert!(nor.cells()[..4096] != [0x5a; 4096] && nor.cells()[..4096] != [0xff; 4096]);
}

#[test]
fn steps_are_counted_alike_with_and_without_a_cut() {
    let mut nor = small();
    nor.program(0, &[0; 10]).unwrap();
    nor.erase(0, 1 << 10).unwrap();
    assert_eq!(nor.steps(), 10 + ERASE_STEPS);
    nor.cut_after(10);
    nor.program(0, &[0; 10]).unwrap();
    assert_eq!(nor.program(10, &[0]), Err(Fault::NoPower));
}

#[test]
fn worn_blocks_keep_bits() {
    let part = Part { endurance: 3, ..Part::small(2 << 10) };
    let mut nor = Nor::new(part, 1);
    for cycle in 1..=5 {
        nor.erase(0, 1 << 10).unwrap();
        let zeros: u32 = nor.cells().iter().map(|byte| byte.count_zeros()).sum();
        assert!(if cycle <= 3 { zeros == 0 } else { (1..=cycle - 3).contains(&zeros) }, "{cycle}");
    }
    assert_eq!(nor.wear(), [5, 0]);
}

#[test]
fn bits_flip_where_it_says() {
    let mut nor = small();
    let flips = nor.flip_random(100..200, 3);
    for (at, bit) in flips.into_iter().rev() {
        assert!((100..200).contains(&at));
        nor.flip(at, bit);
    }
    assert!(nor.cells().iter().all(|&byte| byte == 0xff));
}

#[test]
fn the_same_seed_is_the_same_again() {
    let run = |seed| {
        let mut nor = Nor::new(Part::small(8 << 10), seed);
        nor.cut_after(3);
        assert!(nor.erase(0, 1 << 10).is_err());
        nor.power_on();
        read::<64>(&mut nor, 0)
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

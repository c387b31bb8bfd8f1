//! The codec asks the engine that a board gives for the CRCs of frames and TLPs. A program of its
//! own, since there is one engine in a program.

use soc::blocks::crc::use_engine;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tlp_codec::crc::{self, Algorithm, Engine, TlpCrc, tables};

/// What it was asked: which CRC, the CRC of what is before, and how many bytes.
static ASKED: Mutex<Vec<(Algorithm, u32, usize)>> = Mutex::new(Vec::new());
static FAILS: AtomicBool = AtomicBool::new(false);

/// An engine whose results are nobody else's.
struct Strange;

impl Engine for Strange {
    fn crc(&self, algorithm: Algorithm, before: u32, bytes: &[u8]) -> Option<u32> {
        ASKED.lock().unwrap().push((algorithm, before, bytes.len()));
        (!FAILS.load(Ordering::Relaxed)).then_some(before ^ 0x1234_5678)
    }
}

fn asked() -> Vec<(Algorithm, u32, usize)> {
    std::mem::take(&mut ASKED.lock().unwrap())
}

#[test]
fn frames_and_tlps_have_their_crcs_from_the_boards_engine() {
    let bytes: Vec<u8> = (0..100).collect();
    assert_eq!(crc::frame(&bytes), tables::frame(&bytes), "before there is one");
    static STRANGE: &dyn Engine = &Strange;
    if !use_engine(&STRANGE) {
        // The codec was built for a computer, together with what else the workspace has. The firmware
        // for litex has it as a card does: `tests/card` has that ask a model of the engine.
        println!("SKIPPED: the codec was built with std: `cargo test -p soc` builds it without");
        assert_eq!(crc::frame(&bytes), tables::frame(&bytes));
        assert_eq!(asked(), []);
        return;
    }
    assert!(!use_engine(&STRANGE), "there is one already");

    assert_eq!(crc::frame(&bytes), 0x1234_5678);
    assert_eq!(crc::tlp(&bytes), 0x1234_5678);
    assert_eq!(asked(), [(Algorithm::Frame, 0, 100), (Algorithm::Tlp, 0, 100)]);

    // A header is not worth it; what follows continues it.
    let (header, data) = bytes.split_at(12);
    let mut pieces = TlpCrc::new();
    pieces.update(header);
    pieces.update(data);
    let before = tables::tlp(header);
    assert_eq!(pieces.finish(), before ^ 0x1234_5678);
    assert_eq!(asked(), [(Algorithm::Tlp, before, 88)]);

    FAILS.store(true, Ordering::Relaxed);
    assert_eq!(crc::frame(&bytes), tables::frame(&bytes));
    assert_eq!(crc::tlp(&bytes), tables::tlp(&bytes));
    assert_eq!(asked().len(), 2);
}

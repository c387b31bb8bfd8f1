//! The controller driven over TLPs, as a driver would.

mod bench;
mod bus_master;
mod failures;
mod resets;
mod sanitize;

use super::image::{Ended, Full, Image, ImageOp, MemoryImage};
use super::status::Status;
use super::*;
use crate::device::{Device, ResetKind};
use crate::endpoint::registers::*;
use crate::endpoint::tests::tlp_bytes;
use crate::testing::*;
use bench::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[test]
fn it_looks_like_a_drive() {
    let mut d = Drive::off(Config::default(), memory(1 << 20));
    assert_eq!(d.root.config_read(REVISION_CLASS) >> 8, 0x01_0802);
    assert_eq!(d.root.read64(d.bar + regs::CAP), regs::CAP_VALUE);
    assert_eq!(d.root.read32(d.bar + regs::CAP + 4), (regs::CAP_VALUE >> 32) as u32);
    assert_eq!(d.root.read32(d.bar + regs::VS), 0x1_0400);
    assert_eq!(d.csts(), 0);
    d.enable();
    assert_eq!(d.csts(), regs::CSTS_RDY);
    let page = d.identify(0, 1).unwrap();
    assert_eq!(&page[4..24], b"DXPU0001            ");
    assert_eq!(page[77], MDTS);
    assert_eq!(u32_at(&page, 516), 1);
    assert_eq!(d.root.interrupts, [0x40]);
}

#[test]
fn namespaces_are_identified() {
    let images: Vec<(Box<dyn Image>, BlockSize)> = vec![
        (Box::new(MemoryImage::new(1 << 20)), BlockSize::B512),
        (Box::new(MemoryImage::new(4 << 20)), BlockSize::B4096),
    ];
    let mut d = Drive::on(Config::default(), images);
    let first = d.identify(1, 0).unwrap();
    assert_eq!((u64_at(&first, 0), first[26], first[130], first[134]), (2048, 0, 9, 12));
    let second = d.identify(2, 0).unwrap();
    assert_eq!((u64_at(&second, 0), second[26]), (1024, 1));
    assert_ne!(first[120..128], second[120..128]);
    assert_eq!((u64_at(&first, 48), u64_at(&second, 48)), (1 << 20, 4 << 20), "NVMCAP");
    assert_eq!(u64_at(&d.identify(0, 1).unwrap(), 280), 5 << 20, "TNVMCAP");
    assert_eq!(d.identify(3, 0), Err(Status::INVALID_NAMESPACE));
    assert_eq!(d.identify(0, 0), Err(Status::INVALID_NAMESPACE));
    assert_eq!(u64_at(&d.identify(0, 2).unwrap(), 0), 1 | 2 << 32);
    assert_eq!(u64_at(&d.identify(1, 2).unwrap(), 0), 2);
    assert_eq!(d.identify(0xffff_ffff, 2), Err(Status::INVALID_NAMESPACE));
    let descriptors = d.identify(2, 3).unwrap();
    assert_eq!((descriptors[0], descriptors[1]), (1, 8));
    assert_eq!(descriptors[4..12], second[120..128]);
    assert_eq!(d.identify(1, 0x77), Err(Status::INVALID_FIELD));
}

#[test]
fn blocks_come_back_as_they_were_written_through_every_form_of_prp() {
    let mut d = Drive::with_queues(memory(4 << 20), 1);
    // Offset in the first page, bytes: one entry, two, a list, a list that starts late in its
    // page and goes on in the next.
    for (i, (offset, len, list)) in [
        (0, 512, 0),
        (0x200, 4096, 0),
        (0xe00, 512, 0),
        (0, 8192, 0),
        (0xffc, 8192, 0x800),
        (0, 65536, 0),
        (4, 128 * 1024, 0xff0),
        (0x804, 128 * 1024, 0xf00),
    ]
    .into_iter()
    .enumerate()
    {
        let want = d.root.fill(DATA + offset, len, i as u8);
        let slba = 100 * i as u64;
        let blocks = len as u64 / 512;
        let write = d.io_sqe(WRITE, slba, blocks, offset, len, list);
        assert_eq!(d.io(1, write), Ok(0), "write {i}");
        d.root.memory[DATA..DATA + 0x40000].fill(0xee);
        let read = d.io_sqe(READ, slba, blocks, offset, len, list);
        assert_eq!(d.io(1, read), Ok(0), "read {i}");
        assert_eq!(d.root.memory[DATA + offset..][..len], want, "data {i}");
        assert_eq!(d.root.memory[DATA + offset + len], 0xee);
        let compare = d.io_sqe(COMPARE, slba, blocks, offset, len, list);
        assert_eq!(d.io(1, compare), Ok(0));
        d.root.memory[DATA + offset + len - 1] ^= 1;
        assert_eq!(d.io(1, compare), Err(Status::COMPARE_FAILURE));
    }
}

#[test]
fn wrong_commands_have_the_status_that_the_specification_says() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    let read = d.io_sqe(READ, 0, 8, 0, 4096, 0);
    for (what, sqe, status) in [
        ("opcode", read.opcode(0x7f), Status::INVALID_OPCODE),
        ("namespace", read.dword(1, 2), Status::INVALID_NAMESPACE),
        ("namespace 0", read.dword(1, 0), Status::INVALID_NAMESPACE),
        ("range", read.dword(10, 2041), Status::LBA_OUT_OF_RANGE),
        (
            "range over the end of numbers",
            read.dword(10, !0).dword(11, !0),
            Status::LBA_OUT_OF_RANGE,
        ),
        ("length above MDTS", read.dword(12, 256), Status::INVALID_FIELD),
        ("SGL", read.or_dword(0, 1 << 14), Status::INVALID_FIELD),
        ("fused", read.or_dword(0, 1 << 8), Status::INVALID_FIELD),
        ("offset of PRP1", read.or_dword(6, 2), Status::PRP_OFFSET_INVALID),
        ("offset of PRP2", read.dword(12, 15).or_dword(8, 8), Status::PRP_OFFSET_INVALID),
        ("PRP1 nowhere", read.dword(7, 0), Status::SUCCESS),
        ("list nowhere", read.dword(12, 63).dword(9, 0), Status::DATA_TRANSFER_ERROR),
        ("data from nowhere", read.opcode(WRITE).dword(7, 0), Status::DATA_TRANSFER_ERROR),
    ] {
        if what == "PRP1 nowhere" {
            // A posted write to nowhere is not heard of again; the root of this test panics.
            continue;
        }
        assert_eq!(d.io(1, sqe), Err(status), "{what}");
    }
    assert_eq!(d.io(1, read), Ok(0), "and it goes on");
    // Each is in the error log, newest first.
    let log = d.log_page(1, 64 * 2).unwrap();
    assert_eq!((u64_at(&log, 0), u64_at(&log, 64)), (12, 11));
    assert_eq!(u16_at(&log, 8), 1);
    assert_eq!(u16_at(&log, 12) >> 1 & 0x7ff, Status::DATA_TRANSFER_ERROR.code());
}

#[test]
fn queues_are_made_and_deleted_by_the_rules() {
    let mut d = Drive::on(Config { io_queues: 4, ..Config::default() }, memory(1 << 20));
    let base = MEMORY + 0x8000;
    let cq = |id: u32, size: u32| {
        Sqe::admin(0x05).dword(10, size << 16 | id).dword(11, 3 | 1 << 16).prp1(base)
    };
    let sq = |id: u32, size: u32, cq: u32| {
        Sqe::admin(0x01).dword(10, size << 16 | id).dword(11, 1 | cq << 16).prp1(base)
    };
    let delete_sq = |id: u32| Sqe::admin(0x00).dword(10, id);
    let delete_cq = |id: u32| Sqe::admin(0x04).dword(10, id);
    for (what, sqe, want) in [
        ("CQ 0", cq(0, 7), Err(Status::INVALID_QUEUE_ID)),
        ("CQ beyond", cq(5, 7), Err(Status::INVALID_QUEUE_ID)),
        ("CQ of one entry", cq(1, 0), Err(Status::INVALID_QUEUE_SIZE)),
        ("CQ too long", cq(1, 1024), Err(Status::INVALID_QUEUE_SIZE)),
        ("CQ in pieces", cq(1, 7).dword(11, 2), Err(Status::INVALID_FIELD)),
        ("CQ off its page", cq(1, 7).prp1(base + 8), Err(Status::PRP_OFFSET_INVALID)),
        ("CQ vector", cq(1, 7).dword(11, 3 | 5 << 16), Err(Status::INVALID_INTERRUPT_VECTOR)),
        ("SQ without CQ", sq(1, 7, 1), Err(Status::COMPLETION_QUEUE_INVALID)),
        ("SQ on CQ 0", sq(1, 7, 0), Err(Status::INVALID_QUEUE_ID)),
        ("CQ", cq(1, 7), Ok(0)),
        ("CQ again", cq(1, 7), Err(Status::INVALID_QUEUE_ID)),
        ("SQ", sq(2, 7, 1), Ok(0)),
        ("SQ again", sq(2, 7, 1), Err(Status::INVALID_QUEUE_ID)),
        ("CQ in use", delete_cq(1), Err(Status::INVALID_QUEUE_DELETION)),
        ("SQ not there", delete_sq(1), Err(Status::INVALID_QUEUE_ID)),
        ("admin SQ", delete_sq(0), Err(Status::INVALID_QUEUE_ID)),
        (
            "number of queues too late",
            Sqe::feature(7, 0x0001_0001),
            Err(Status::COMMAND_SEQUENCE_ERROR),
        ),
        ("delete SQ", delete_sq(2), Ok(0)),
        ("delete CQ", delete_cq(1), Ok(0)),
        ("delete CQ again", delete_cq(1), Err(Status::INVALID_QUEUE_ID)),
        ("number of queues", Sqe::feature(7, 0x0001_0002), Ok(0x0002_0002)),
        ("CQ beyond that", cq(4, 7), Err(Status::INVALID_QUEUE_ID)),
        ("65536 queues", Sqe::feature(7, 0xffff), Err(Status::INVALID_FIELD)),
    ] {
        assert_eq!(d.admin(sqe), want, "{what}");
    }
}

#[test]
fn many_commands_on_several_queues_all_complete_and_no_queue_starves() {
    let mut d = Drive::with_queues(memory(4 << 20), 4);
    for round in 0..5 {
        d.root.interrupts.clear();
        let mut wanted = Vec::new();
        for i in 0..30_usize {
            for queue in 1..=4_u16 {
                let n = i * 4 + usize::from(queue) - 1;
                let slba = (round * 120 + n) as u64 * 8;
                let at = n * 4096;
                let bytes = d.root.fill(DATA + at, 4096, (round * 7 + n) as u8);
                let sqe = d.io_sqe(WRITE, slba, 8, at, 4096, 0);
                d.post_command(queue, sqe);
                wanted.push((slba, bytes));
            }
        }
        d.ring_all();
        let order = d.completed_order();
        assert_eq!(order.len(), 120);
        // Bursts of eight by turns.
        for queue in 1..=4 {
            let early = order[..64].iter().filter(|&&q| q == queue).count();
            assert!(early >= 8, "queue {queue} has {early} of the first 64");
        }
        for (slba, bytes) in wanted {
            let read = d.io_sqe(READ, slba, 8, 0, 4096, 0);
            assert_eq!(d.io(1, read), Ok(0));
            assert_eq!(d.root.memory[DATA..DATA + 4096], bytes);
        }
    }
}

#[test]
fn more_scattered_pages_than_dma_reads_fit_are_all_read() {
    let mut d = Drive::with_queues(memory(8 << 20), 4);
    let want = d.root.fill(DATA, 128 * 1024, 5);
    // Every page is a DMA of its own: they go backwards.
    let backwards: Vec<u8> = want.chunks(4096).rev().flatten().copied().collect();
    for i in 0..15_u64 {
        for queue in 1..=4_u16 {
            let sqe = d.scattered(WRITE, (i * 4 + u64::from(queue) - 1) * 256);
            d.post_command(queue, sqe);
        }
    }
    d.ring_all();
    assert_eq!(d.completed_order().len(), 60);
    for i in [0, 17, 59] {
        let read = d.io_sqe(READ, i * 256, 256, 0, 128 * 1024, 0);
        assert_eq!(d.io(1, read), Ok(0));
        assert!(d.root.memory[DATA..DATA + 128 * 1024] == backwards);
    }
}

#[test]
fn a_full_completion_queue_holds_commands_back_and_loses_none() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    // The completion queue has 32 entries; 31 fit.
    for i in 0..31 {
        let sqe = d.io_sqe(READ, i, 1, 0, 512, 0);
        d.post_command(1, sqe);
    }
    d.ring_all();
    for i in 0..31 {
        let sqe = d.io_sqe(READ, i, 1, 0, 512, 0);
        d.post_command(1, sqe);
    }
    d.ring_all();
    let mut seen = 0;
    while let Some((_, status)) = d.take(1) {
        assert!(status.is_success());
        d.root.pump();
        seen += 1;
    }
    assert_eq!(seen, 62);
}

#[test]
fn flush_zeroes_and_deallocation_do_what_they_say() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    d.root.fill(DATA, 65536, 1);
    let write = d.io_sqe(WRITE, 0, 128, 0, 65536, 0);
    assert_eq!(d.io(1, write.or_dword(12, 1 << 30)), Ok(0), "FUA");
    assert_eq!(d.io(1, Sqe::nvm(0x00).dword(1, 1)), Ok(0));
    assert_eq!(d.io(1, Sqe::nvm(0x00).dword(1, !0)), Ok(0));
    let zeroes = Sqe::nvm(0x08).dword(1, 1);
    assert_eq!(d.io(1, zeroes.dword(10, 8).dword(12, 7)), Ok(0));
    assert_eq!(d.io(1, zeroes.dword(10, 2048)), Err(Status::LBA_OUT_OF_RANGE));
    // Two ranges of four and sixteen blocks.
    let ranges = DATA + 0x20000;
    for (i, (slba, blocks)) in [(32_u64, 4_u32), (64, 16)].into_iter().enumerate() {
        let at = ranges + 16 * i;
        d.root.memory[at + 4..at + 8].copy_from_slice(&blocks.to_le_bytes());
        d.root.memory[at + 8..at + 16].copy_from_slice(&slba.to_le_bytes());
    }
    let dsm = Sqe::nvm(0x09).dword(1, 1).dword(10, 1).prp1(MEMORY + ranges as u64);
    assert_eq!(d.io(1, dsm), Ok(0), "only a hint");
    assert_eq!(d.io(1, dsm.dword(11, 4)), Ok(0));
    d.root.memory[ranges + 4..ranges + 8].copy_from_slice(&3000_u32.to_le_bytes());
    assert_eq!(d.io(1, dsm.dword(11, 4)), Err(Status::LBA_OUT_OF_RANGE));
    let want = d.root.memory[DATA..DATA + 65536].to_vec();
    let read = d.io_sqe(READ, 0, 128, 0, 65536, 0);
    assert_eq!(d.io(1, read), Ok(0));
    for (block, bytes) in d.root.memory[DATA..DATA + 65536].chunks(512).enumerate() {
        let zero =
            (8..16).contains(&block) || (32..36).contains(&block) || (64..80).contains(&block);
        let expected = &want[block * 512..][..512];
        assert_eq!(bytes, if zero { &[0; 512][..] } else { expected }, "block {block}");
    }
}

#[test]
fn features_are_kept_and_refused() {
    let mut d = Drive::on(Config::default(), memory(1 << 20));
    let get = |f: u32| Sqe::admin(0x0a).dword(10, f);
    for (feature, value) in
        [(0x01, 0x0102_0304), (0x05, 7), (0x06, 0), (0x08, 0x0302), (0x0a, 1), (0x0b, 3)]
    {
        assert_eq!(d.admin(Sqe::feature(feature, value)), Ok(0));
        assert_eq!(d.admin(get(feature)), Ok(value), "feature {feature}");
        assert_eq!(d.admin(get(feature | 3 << 8)), Ok(4));
    }
    assert_eq!(d.admin(get(0x06 | 1 << 8)), Ok(1), "default");
    assert_eq!(d.admin(Sqe::feature(0x09, 1 << 16 | 3)), Ok(0));
    assert_eq!(d.admin(get(0x09).dword(11, 3)), Ok(1 << 16 | 3));
    assert_eq!(d.admin(Sqe::feature(0x04, 400)), Ok(0));
    assert_eq!(d.admin(get(0x04)), Ok(400));
    // All sensors at once are set, and cannot be read.
    let all = 0xf << 16;
    assert_eq!(d.admin(Sqe::feature(0x04, all | 390)), Ok(0));
    assert_eq!(d.admin(Sqe::feature(0x04, all | 1 << 20 | 200)), Ok(0));
    assert_eq!(d.admin(get(0x04)), Ok(390));
    assert_eq!(d.admin(get(0x04).dword(11, 1 << 20)), Ok(200));
    for dword in [all, 1 << 16] {
        assert_eq!(d.admin(get(0x04).dword(11, dword)), Err(Status::INVALID_FIELD));
    }
    assert_eq!(d.admin(Sqe::feature(0x04, 1 << 16 | 390)), Err(Status::INVALID_FIELD));
    assert_eq!(d.admin(Sqe::feature(0x02, 1)), Err(Status::INVALID_FIELD));
    assert_eq!(d.admin(Sqe::feature(0x33, 1)), Err(Status::INVALID_FIELD));
    let saved = Sqe::feature(0x06, 1).or_dword(10, 1 << 31);
    assert_eq!(d.admin(saved), Err(Status::FEATURE_NOT_SAVEABLE));
    d.disable();
    d.enable();
    assert_eq!(d.admin(get(0x01)), Ok(3), "a reset brings the defaults back");
}

#[test]
fn log_pages_tell_what_happened() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    let write = d.io_sqe(WRITE, 0, 128, 0, 65536, 0);
    assert_eq!(d.io(1, write), Ok(0));
    let health = d.log_page(2, 512).unwrap();
    assert_eq!((u16_at(&health, 1), health[3]), (313, 100));
    assert_eq!((u64_at(&health, 48), u64_at(&health, 80)), (1, 1));
    assert_eq!(d.log_page(3, 512).unwrap()[8..16], *b"1.0     ");
    let effects = d.log_page(5, 4096).unwrap();
    assert_eq!((u32_at(&effects, 4 * 6), u32_at(&effects, 1024 + 4)), (1, 3));
    assert_eq!(d.log_page(0x42, 512), Err(Status::INVALID_LOG_PAGE));
    let beyond = Sqe::admin(0x02).dword(10, 127 << 16 | 2).dword(12, 1024).prp1(MEMORY);
    assert_eq!(d.admin(beyond), Err(Status::INVALID_FIELD));
}

#[test]
fn events_are_told_once_until_their_page_is_read() {
    let mut d = Drive::on(Config::default(), memory(1 << 20));
    for _ in 0..4 {
        d.post_command(0, Sqe::admin(0x0c));
    }
    d.ring_all();
    assert_eq!(d.take(0), None);
    assert_eq!(d.admin(Sqe::admin(0x0c)), Err(Status::EVENT_REQUEST_LIMIT_EXCEEDED));
    // A doorbell that is not there, then a value that cannot be.
    d.root.write32(d.bar + regs::DOORBELLS + 8 * 9, 1);
    d.root.write32(d.bar + regs::DOORBELLS, 5000);
    assert_eq!(d.take(0), Some((0x01_0000, Status::SUCCESS)));
    assert_eq!(d.take(0), None, "errors are told once");
    d.log_page(1, 64).unwrap();
    assert_eq!(d.take_late(), Some((0x01_0100, Status::SUCCESS)));
    assert_eq!(d.admin(Sqe::feature(0x0b, 2)), Ok(0));
    assert_eq!(d.admin(Sqe::feature(0x04, 300)), Ok(0));
    assert_eq!(d.take_late(), Some((0x02_0101, Status::SUCCESS)));
    assert_eq!(d.log_page(2, 512).unwrap()[0], 2);
}

#[test]
fn a_command_can_be_aborted_while_its_data_is_under_way() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    d.root.answers = Answers::Held;
    let sqe = d.io_sqe(WRITE, 0, 8, 0, 4096, 0);
    let id = d.post_command(1, sqe);
    d.ring_all();
    d.root.answer(0);
    d.root.pump();
    assert!(!d.root.held.is_empty(), "data is asked for");
    let held = std::mem::take(&mut d.root.held);
    d.root.answers = Answers::Split;
    let abort = Sqe::admin(0x08).dword(10, u32::from(id) << 16 | 1);
    assert_eq!(d.admin(abort), Ok(0));
    assert_eq!(d.take(1), Some((0, Status::ABORT_REQUESTED)));
    assert_eq!(d.admin(abort), Ok(1), "nothing is left to be aborted");
    d.root.held = held;
    while !d.root.held.is_empty() {
        d.root.answer(0);
    }
    d.root.pump();
    assert_eq!(d.take(1), None);
}

#[test]
fn deleting_a_queue_ends_its_commands() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    d.root.answers = Answers::Held;
    let sqe = d.io_sqe(WRITE, 0, 8, 0, 4096, 0);
    d.post_command(1, sqe);
    d.ring_all();
    d.root.answer(0);
    d.root.pump();
    d.root.held.clear();
    d.root.answers = Answers::Split;
    assert_eq!(d.admin(Sqe::admin(0x00).dword(10, 1)), Ok(0));
    assert_eq!(d.take(1), Some((0, Status::ABORTED_SQ_DELETION)));
}

#[test]
fn a_command_id_in_use_is_a_conflict() {
    let mut d = Drive::on(Config::default(), memory(1 << 20));
    let event = Sqe::admin(0x0c);
    d.post_command_as(0, event, 77);
    d.post_command_as(0, event, 77);
    d.ring_all();
    assert_eq!(d.take(0), Some((0, Status::COMMAND_ID_CONFLICT)));
}

#[test]
fn a_queue_that_cannot_be_read_is_fatal_until_reset() {
    let mut d = Drive::on(Config::default(), memory(1 << 20));
    d.root.answers = Answers::Status(tlp_codec::tlp::CplStatus::UnsupportedRequest);
    d.post_command(0, Sqe::admin(0x06));
    d.ring_all();
    assert_eq!(d.csts() & regs::CSTS_CFS, regs::CSTS_CFS);
    d.root.answers = Answers::Split;
    d.disable();
    assert_eq!(d.csts(), 0);
    d.enable();
    assert!(d.identify(0, 1).is_ok());
}

#[test]
fn settings_that_it_cannot_run_with_are_fatal() {
    for (cc, aqa) in [(1 | 1 << 4, 0x1f_001f), (1 | 5 << 7, 0x1f_001f), (1, 0)] {
        let mut d = Drive::off(Config::default(), memory(1 << 20));
        d.root.write32(d.bar + regs::AQA, aqa);
        d.root.write32(d.bar + regs::CC, cc);
        assert_eq!(d.csts(), regs::CSTS_CFS);
    }
}

#[test]
fn shutdown_and_subsystem_reset() {
    let mut d = Drive::on(Config::default(), memory(1 << 20));
    let cc = d.root.read32(d.bar + regs::CC);
    d.root.write32(d.bar + regs::CC, cc | 1 << 14);
    d.root.pump();
    assert_eq!(d.csts() & regs::CSTS_SHST, regs::CSTS_SHST_COMPLETE);
    d.disable();
    d.enable();
    assert!(d.identify(0, 1).is_ok());
    d.root.write32(d.bar + regs::NSSR, regs::NSSR_VALUE);
    assert_eq!(d.csts(), regs::CSTS_NSSRO);
    d.root.write32(d.bar + regs::CSTS, regs::CSTS_NSSRO);
    assert_eq!(d.csts(), 0);
}

#[test]
fn a_function_reset_in_mid_transfer_leaves_a_drive_that_works() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    d.root.answers = Answers::Held;
    let sqe = d.io_sqe(WRITE, 0, 256, 0, 128 * 1024, 0);
    d.post_command(1, sqe);
    d.ring_all();
    while d.root.held.len() < 10 {
        d.root.answer(0);
        d.root.pump();
    }
    let control = d.root.config_read(DEVICE_CONTROL) as u16;
    d.root.config_write16(DEVICE_CONTROL, control | DEVICE_CONTROL_FLR);
    let late = d.root.held.len();
    for _ in 0..late {
        d.root.answer(0);
    }
    d.root.pump();
    assert!(d.root.held.is_empty());
    d.root.answers = Answers::Split;
    d.restart();
    d.make_queues(1);
    let read = d.io_sqe(READ, 0, 256, 0, 128 * 1024, 0);
    assert_eq!(d.io(1, read), Ok(0));
    assert!(d.root.memory[DATA..DATA + 128 * 1024].iter().all(|&b| b == 0), "nothing was written");
    let now = d.root.now;
    d.root.device.handle_reset(now, ResetKind::Power { on: false });
    d.root.device.handle_reset(now, ResetKind::Power { on: true });
    d.restart();
    let health = d.log_page(2, 512).unwrap();
    assert_eq!((u64_at(&health, 112), u64_at(&health, 144)), (1, 1), "cycles, unsafe ones");
}

#[test]
fn format_erases_and_changes_the_block_size() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    d.root.fill(DATA, 4096, 1);
    let write = d.io_sqe(WRITE, 0, 8, 0, 4096, 0);
    assert_eq!(d.io(1, write), Ok(0));
    let format = Sqe::admin(0x80).dword(1, 1).dword(10, 1);
    assert_eq!(d.admin(format.dword(10, 2)), Err(Status::INVALID_FORMAT));
    assert_eq!(d.admin(format.dword(1, 9)), Err(Status::INVALID_NAMESPACE));
    assert_eq!(d.admin(format), Ok(0));
    assert_eq!(u64_at(&d.identify(1, 0).unwrap(), 0), 256);
    let read = d.io_sqe(READ, 0, 1, 0, 4096, 0);
    assert_eq!(d.io(1, read), Ok(0));
    assert_eq!(d.root.memory[DATA..DATA + 4096], [0; 4096]);
    let beyond = d.io_sqe(READ, 256, 1, 0, 4096, 0);
    assert_eq!(d.io(1, beyond), Err(Status::LBA_OUT_OF_RANGE));
}

/// Of a file that ends in the middle of a block only whole ones are there.
#[test]
fn the_capacity_is_that_of_whole_blocks() {
    let mut d = Drive::on(Config::default(), memory(2 * 4096 - 1));
    let capacities = |d: &mut Drive| {
        let (namespace, drive) = (d.identify(1, 0).unwrap(), d.identify(0, 1).unwrap());
        (u64_at(&namespace, 0), u64_at(&namespace, 48), u64_at(&drive, 280))
    };
    assert_eq!(capacities(&mut d), (15, 15 * 512, 15 * 512));
    assert_eq!(d.admin(Sqe::admin(0x80).dword(1, 1).dword(10, 1)), Ok(0));
    assert_eq!(capacities(&mut d), (1, 4096, 4096));
    let mut d = Drive::on(Config::default(), memory(4095));
    let format = Sqe::admin(0x80).dword(1, 1);
    assert_eq!(d.admin(format.dword(10, 1)), Err(Status::INVALID_FORMAT), "not a block in it");
    assert_eq!(capacities(&mut d), (7, 3584, 3584));
}

#[test]
fn interrupts_are_coalesced_by_number_and_by_time() {
    let mut d = Drive::with_queues(memory(1 << 20), 1);
    // Four completions or 1 ms.
    assert_eq!(d.admin(Sqe::feature(0x08, 10 << 8 | 3)), Ok(0));
    d.root.interrupts.clear();
    for i in 0..5 {
        let sqe = d.io_sqe(READ, i, 1, 0, 512, 0);
        d.post_command(1, sqe);
    }
    d.ring_all();
    assert_eq!(d.root.interrupts, [0x41]);
    let at = d.root.device.poll_timeout().unwrap();
    assert_eq!(at, d.root.now + Duration::from_millis(1));
    d.root.now = at;
    d.root.pump();
    assert_eq!(d.root.interrupts, [0x41, 0x41]);
    assert_eq!(d.admin(Sqe::feature(0x09, 1 << 16 | 1)), Ok(0));
    d.root.interrupts.clear();
    let sqe = d.io_sqe(READ, 0, 1, 0, 512, 0);
    assert_eq!(d.io(1, sqe), Ok(0));
    assert_eq!(d.root.interrupts, [0x41], "not for this vector");
}

/// An image on which everything fails, or slow operations wait to be let go.
#[derive(Default)]
struct Odd {
    /// Bytes, where they are more than 1 MB.
    size: u64,
    /// Bytes that an erasing has still to do, for ever.
    left: u64,
    failing: bool,
    /// A flush has failed that nobody has heard of.
    lost: bool,
    read_only: bool,
    started: VecDeque<u64>,
    polls_left: usize,
    /// Slow operations that are refused.
    refusals: usize,
}

impl Image for Odd {
    fn size(&self) -> u64 {
        self.size.max(1 << 20)
    }

    fn left(&self, _: u64) -> u64 {
        self.left
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_now(&mut self, _: u64, _: &mut [u8]) -> std::io::Result<bool> {
        self.result().map(|()| true)
    }

    fn write_now(&mut self, _: u64, _: &[u8]) -> std::io::Result<bool> {
        self.result().map(|()| true)
    }

    fn start(&mut self, id: u64, _: ImageOp) -> Result<(), Full> {
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(Full);
        }
        self.started.push_back(id);
        Ok(())
    }

    fn cancel(&mut self, _: u64) {}

    fn abandon(&mut self) {
        self.started.clear();
    }

    fn is_settled(&self) -> bool {
        true
    }

    fn finished(&mut self) -> Option<Ended> {
        if self.polls_left > 0 {
            self.polls_left -= 1;
            return None;
        }
        let id = self.started.pop_front()?;
        Some((id, self.result().map(|()| Vec::new())))
    }

    fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }
}

impl Odd {
    fn result(&self) -> std::io::Result<()> {
        if self.failing { Err(std::io::Error::other("planned")) } else { Ok(()) }
    }
}

fn odd(image: Odd) -> Vec<(Box<dyn Image>, BlockSize)> {
    vec![(Box::new(image), BlockSize::B512)]
}

#[test]
fn image_errors_are_media_errors() {
    let mut d = Drive::with_queues(odd(Odd { failing: true, ..Odd::default() }), 1);
    let read = d.io_sqe(READ, 0, 1, 0, 512, 0);
    assert_eq!(d.io(1, read), Err(Status::UNRECOVERED_READ_ERROR));
    assert_eq!(d.io(1, read.opcode(WRITE)), Err(Status::WRITE_FAULT));
    assert_eq!(d.io(1, Sqe::nvm(0x00).dword(1, 1)), Err(Status::FLUSH_FAULT));
    assert_eq!(u64_at(&d.log_page(2, 512).unwrap(), 160), 2);
}

/// Linux' driver asks again by itself for what it may ask again for, and the storage's next answer is
/// good.
#[test]
fn a_flush_that_failed_is_not_to_be_tried_again() {
    const FLUSH: Sqe = Sqe([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut d = Drive::with_queues(odd(Odd { failing: true, ..Odd::default() }), 1);
    assert_ne!(d.io(1, FLUSH).unwrap_err().field() & 1 << 14, 0, "DNR");
    let lost = || odd(Odd { lost: true, ..Odd::default() });
    let mut d = Drive::with_queues(lost(), 1);
    let durable = d.io_sqe(WRITE, 0, 1, 0, 512, 0).or_dword(12, 1 << 30);
    assert_eq!(d.io(1, durable), Ok(0), "its own blocks are stored");
    assert_eq!(d.io(1, FLUSH), Err(Status::FLUSH_FAULT));
    assert_eq!(d.io(1, FLUSH), Ok(0), "that was told");
    for erase in [Sqe::admin(0x80).dword(1, 1), Sqe::admin(0x84).dword(10, 2)] {
        let mut d = Drive::with_queues(lost(), 1);
        assert_eq!(d.admin(erase), Ok(0));
        d.root.pump();
        assert_eq!(d.io(1, FLUSH), Ok(0), "nothing of it is there any more");
    }
}

#[test]
fn a_shutdown_that_could_not_store_everything_is_a_fatal_status() {
    for (failing, lost) in [(false, false), (true, false), (false, true)] {
        let mut d = Drive::with_queues(odd(Odd { failing, lost, ..Odd::default() }), 1);
        let cc = d.root.read32(d.bar + regs::CC);
        d.root.write32(d.bar + regs::CC, cc | 1 << 14);
        d.root.pump();
        let csts = d.csts();
        assert_eq!(csts & regs::CSTS_SHST, regs::CSTS_SHST_COMPLETE);
        assert_eq!(csts & regs::CSTS_CFS != 0, failing || lost);
        d.disable();
        d.enable();
        assert_eq!(d.csts() & regs::CSTS_CFS, 0);
    }
}

#[test]
fn what_an_image_has_no_room_for_is_to_be_tried_again() {
    let image = |refusals| (Box::new(Odd { refusals, ..Odd::default() }) as _, BlockSize::B512);
    let mut d = Drive::with_queues(vec![image(2), image(2)], 1);
    let flush = Sqe::nvm(0x00).dword(1, !0);
    assert_eq!(d.io(1, flush), Err(Status::INTERNAL_ERROR), "neither");
    let format = Sqe::admin(0x80).dword(1, !0);
    assert_eq!(d.admin(format), Err(Status::INTERNAL_ERROR));
    assert_eq!(d.io(1, flush), Err(Status::INTERNAL_ERROR), "only the first");
    assert_eq!(d.io(1, flush), Err(Status::INTERNAL_ERROR));
    assert_eq!((d.io(1, flush), d.admin(format)), (Ok(0), Ok(0)));
    let mut d = Drive::on(Config::default(), vec![image(3), image(0)]);
    let cc = d.root.read32(d.bar + regs::CC);
    d.root.write32(d.bar + regs::CC, cc | 1 << 14);
    while d.csts() & regs::CSTS_SHST == regs::CSTS_SHST_OCCURRING {
        d.root.now = d.root.device.poll_timeout().unwrap_or(d.root.now);
        d.root.pump();
    }
    assert_eq!(d.csts() & regs::CSTS_SHST, regs::CSTS_SHST_COMPLETE);
}

#[test]
fn a_protected_namespace_is_not_written() {
    let mut d = Drive::with_queues(odd(Odd { read_only: true, ..Odd::default() }), 1);
    let write = d.io_sqe(WRITE, 0, 1, 0, 512, 0);
    assert_eq!(d.io(1, write), Err(Status::NAMESPACE_WRITE_PROTECTED));
    assert_eq!(d.identify(1, 0).unwrap()[99], 1);
    let format = Sqe::admin(0x80).dword(1, 1);
    assert_eq!(d.admin(format), Err(Status::NAMESPACE_WRITE_PROTECTED));
}

#[test]
fn slow_operations_do_not_hold_up_others() {
    let mut d = Drive::with_queues(odd(Odd { polls_left: 1000, ..Odd::default() }), 1);
    let flush = d.post_command(1, Sqe::nvm(0x00).dword(1, 1));
    let read = d.io_sqe(READ, 0, 1, 0, 512, 0);
    let read = d.post_command(1, read);
    d.ring_all();
    assert_eq!(d.take_ids(1), [read]);
    let started = d.root.now;
    while let Some(at) = d.root.device.poll_timeout() {
        d.root.now = at;
        d.root.pump();
    }
    assert!(d.root.now - started > Duration::from_millis(100), "the image was asked in between");
    assert_eq!(d.take_ids(1), [flush]);
}

#[test]
fn configurations_out_of_range_are_named() {
    let config = Config { io_queues: 65, ..Config::default() };
    let error = Nvme::device(config, memory(4096)).err().unwrap();
    assert_eq!(error.to_string(), "NVMe: io_queues is 65; it has to be 1 to 64");
    let config = Config { serial_number: "ä".into(), ..Config::default() };
    assert!(Nvme::device(config, memory(4096)).err().unwrap().to_string().contains("ASCII"));
    assert!(Nvme::device(Config::default(), Vec::new()).is_err());
}

proptest! {
    #[test]
    fn no_entry_register_or_tlp_makes_it_panic(
        entries in prop::collection::vec((any::<[u32; 16]>(), any::<u8>(), any::<u16>()), 1..40),
        registers in prop::collection::vec((0_u64..0x40, any::<u32>()), 0..20),
        tlps in prop::collection::vec(tlp_bytes(), 0..20),
    ) {
        let mut d = Drive::with_queues(memory(1 << 20), 2);
        let mut buf = vec![0; tlp_codec::tlp::MAX_TLP];
        for (mut dwords, opcode, shape) in entries {
            // Often something that gets beyond the first check.
            let queue = shape % 3;
            dwords[0] = dwords[0] & 0xffff_3c00 | u32::from(if shape & 4 == 0 { opcode % 0x0d } else { opcode });
            if shape & 8 == 0 {
                dwords[1] = 1;
                (dwords[7], dwords[9]) = ((MEMORY >> 32) as u32, (MEMORY >> 32) as u32);
                (dwords[6], dwords[8]) = (dwords[6] & 0x3f_fffc, dwords[8] & 0x3f_f000);
                (dwords[10], dwords[11]) = (dwords[10] & 0x80ff_07ff, dwords[11] & 0x3);
                dwords[12] &= 0xff;
            }
            if queue == 0 && matches!(dwords[0] as u8, 0 | 4) {
                dwords[10] &= 3;
            }
            d.post_raw(queue, dwords);
            d.ring_all_unpumped();
            for _ in 0..300 {
                let Some(len) = d.root.device.poll_tlp(d.root.now, &mut buf) else {
                    if d.root.device.poll_timeout().is_some_and(|at| at <= d.root.now) {
                        d.root.device.handle_timeout(d.root.now);
                        continue;
                    }
                    break;
                };
                d.root.take_tolerant(&buf[..len]);
            }
        }
        for (at, value) in registers {
            d.root.post(d.bar + at / 4 * 4, &value.to_le_bytes());
            d.root.device.poll_tlp(d.root.now, &mut buf);
        }
        for tlp in tlps {
            d.root.device.handle_tlp(d.root.now, &tlp);
            d.root.device.poll_tlp(d.root.now, &mut buf);
            d.root.now += Duration::from_millis(5);
            d.root.device.handle_timeout(d.root.now);
        }
    }
}

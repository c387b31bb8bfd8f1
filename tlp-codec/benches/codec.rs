//! What the codec costs, beside the floor measured in the same run.
//!
//! `cargo bench -p tlp-codec` prints nanoseconds: for a TLP alone in its frame, which is the hard
//! case since the frame's header and CRC are for it alone, and for one of many. It fails when a
//! TLP with data, through a frame of its own with both CRCs, in and out, takes more than twice the
//! memcpy and the CRCs over the same bytes that it cannot do without, or when one that is only a
//! header takes 30 ns or more from meaning to bytes or back.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;
use tlp_codec::crc;
use tlp_codec::fabric::{
    FRAME_CRC, Frame, FrameKind, FrameWriter, HEADER, Header, RECORD_HEADER, Record, RecordAddress,
    TLP_OVERHEAD, TlpRecord, TlpTraits,
};
use tlp_codec::ids::{Bdf, BindingKey, Epoch, NodeId, PathId, SlotFunction, SlotId, Tag};
use tlp_codec::tlp::{ByteEnables, Class, CplStatus, Kind, Packet, Repr};

/// The most that a TLP with data may cost, in floors.
const MOST_FLOORS: f64 = 2.0;
/// The most that a header alone may take, each way, in nanoseconds.
const MOST_HEADER_NS: f64 = 30.0;

/// Calls in a batch.
const CALLS: u32 = 1000;
/// The same, of calls that deal with a whole jumbo frame.
const JUMBO_CALLS: u32 = 10;
/// A frame that many TLPs share.
const JUMBO: usize = 9000;

/// Nanoseconds that a call takes: the best of many short batches, since the machine has other
/// things to do as well.
fn time(calls: u32, mut call: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..3000 {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    best
}

fn tlps(data: &[u8; 256]) -> [(&'static str, Repr<'_>); 3] {
    let (requester, tag) = (Bdf::from_bits(0x0100), Tag::new(5).expect("a tag"));
    let address = 0x1_2345_6000;
    let read = Kind::MemRead {
        requester,
        tag,
        address,
        length_dw: 64,
        enables: ByteEnables::all(64),
        hint: None,
        locked: false,
    };
    let write =
        Kind::MemWrite { requester, tag, address, enables: ByteEnables::all(64), hint: None, data };
    let completion = Kind::Completion {
        completer: Bdf::from_bits(0x0500),
        requester,
        tag,
        status: CplStatus::Success,
        bcm: false,
        byte_count: 256,
        lower_address: 0,
        locked: false,
        data,
    };
    [
        ("MRd", Repr::new(read)),
        ("MWr 256 B", Repr::new(write)),
        ("CplD 256 B", Repr::new(completion)),
    ]
}

fn header() -> Header {
    Header {
        kind: FrameKind::Data,
        destination: NodeId::new(2).expect("a node"),
        source: NodeId::new(1).expect("a node"),
        source_incarnation: 1,
        destination_incarnation: Some(2),
        session: 5,
        path: PathId::ZERO,
        packet: 1,
        sequence: 1,
        ack: None,
    }
}

fn address() -> RecordAddress {
    let slot = SlotId::new(3).expect("a slot");
    let epoch = Epoch::new(1, 7).expect("an epoch");
    RecordAddress::from_host(&BindingKey { slot, function: SlotFunction::ZERO, epoch })
}

/// One TLP into a frame; gives the frame's length.
fn write_frame(repr: &Repr<'_>, tlp: &mut [u8], frame: &mut [u8]) -> usize {
    let len = repr.emit(tlp).expect("it fits");
    let tlp = &tlp[..len];
    let traits =
        TlpTraits { class: repr.class(), relaxed: false, sampled: false, outstanding: None };
    let record = TlpRecord { address: address(), traits, tlp, crc: crc::tlp(tlp) };
    let mut writer = FrameWriter::new(frame, &header()).expect("it fits");
    writer.push_tlp(&record).expect("it fits");
    writer.finish()
}

/// The TLP out of a frame again, everything checked.
fn read_frame(frame: &[u8]) -> u64 {
    let frame = Frame::new_checked(frame).expect("a frame");
    black_box(frame.header());
    let Some(Ok(Record::Tlp(record))) = frame.records().next() else { panic!("a TLP") };
    assert!(record.crc_matches());
    let repr = Repr::from_bytes(record.tlp).expect("a TLP");
    repr.data().len() as u64 + u64::from(repr.transaction_id().1.get())
}

/// As many of the TLP as fit a jumbo frame: what a busy link does. Nanoseconds for each TLP, in and
/// out, as a proxy does it, which passes TLPs on as bytes; and in floors.
fn packed(class: Class, tlp: &[u8]) -> (f64, f64, f64) {
    let traits = TlpTraits { class, relaxed: false, sampled: false, outstanding: None };
    let write = |out: &mut [u8]| {
        let mut writer = FrameWriter::new(out, &header()).expect("it fits");
        let mut count = 0;
        loop {
            let record = TlpRecord { address: address(), traits, tlp, crc: crc::tlp(tlp) };
            if writer.push_tlp(&record).is_err() {
                return (writer.finish(), count);
            }
            count += 1;
        }
    };
    let (mut frame, mut copy) = (vec![0; JUMBO], vec![0; JUMBO]);
    let (length, count) = write(&mut frame);
    let into = time(JUMBO_CALLS, || {
        black_box(write(black_box(&mut copy)));
    });
    let out = time(JUMBO_CALLS, || {
        let frame = Frame::new_checked(black_box(&frame[..length])).expect("a frame");
        for record in frame.records() {
            let Ok(Record::Tlp(record)) = record else { panic!("a TLP") };
            assert!(record.crc_matches());
            let store = &mut copy[..record.tlp.len()];
            store.copy_from_slice(record.tlp);
            black_box(Packet::new_checked(&*store).expect("a TLP").tlp_type());
        }
    });
    let floor = time(JUMBO_CALLS, || {
        let copy = &mut copy[..length];
        copy.copy_from_slice(black_box(&frame[..length]));
        black_box(crc::frame(&copy[..length - FRAME_CRC]));
        for record in copy[HEADER..].chunks_exact(TLP_OVERHEAD + tlp.len()) {
            black_box(crc::tlp(&record[RECORD_HEADER..RECORD_HEADER + tlp.len()]));
        }
    });
    let each = f64::from(count);
    (into / each, out / each, (into + out) / (2.0 * floor))
}

fn main() -> ExitCode {
    let data = [0x5a; 256];
    let (mut tlp, mut frame) = ([0; 512], [0; 1024]);
    let mut good = true;
    println!("nanoseconds      emit  parse   into a frame  out of it   floor   floors");
    for (name, repr) in tlps(&data) {
        let len = repr.emit(&mut tlp).expect("it fits");
        let bytes = tlp;
        let emit = time(CALLS, || {
            black_box(black_box(&repr).emit(black_box(&mut tlp)).expect("it fits"));
        });
        let parse = time(CALLS, || {
            black_box(Repr::from_bytes(black_box(&bytes[..len])).expect("a TLP"));
        });
        let into = time(CALLS, || {
            black_box(write_frame(black_box(&repr), &mut tlp, black_box(&mut frame)));
        });
        let frame_len = write_frame(&repr, &mut tlp, &mut frame);
        let out = time(CALLS, || {
            black_box(read_frame(black_box(&frame[..frame_len])));
        });
        // In: the TLP's CRC, the bytes moved, the frame's CRC over what was just written, which
        // is dearer than over bytes at rest. Out: the same two CRCs, and the bytes moved.
        let mut copy = [0; 1024];
        let floor = time(CALLS, || {
            black_box(crc::tlp(black_box(&bytes[..len])));
            black_box(&mut copy[..frame_len]).copy_from_slice(black_box(&frame[..frame_len]));
            black_box(crc::frame(black_box(&copy[..frame_len - 4])));
        }) + time(CALLS, || {
            black_box(crc::frame(black_box(&frame[..frame_len - 4])));
            black_box(crc::tlp(black_box(&bytes[..len])));
            black_box(&mut tlp[..len]).copy_from_slice(black_box(&bytes[..len]));
        });
        let floors = (into + out) / floor;
        println!(
            "{name:<14} {emit:>6.1} {parse:>6.1} {into:>14.1} {out:>10.1} {floor:>7.1} {floors:>8.2}"
        );
        good &= match repr.data() {
            [] => emit.max(parse) < MOST_HEADER_NS,
            _ => floors <= MOST_FLOORS,
        };
    }
    println!("each of many in a jumbo frame, as bytes");
    for (name, repr) in tlps(&data) {
        let len = repr.emit(&mut tlp).expect("it fits");
        let (into, out, floors) = packed(repr.class(), &tlp[..len]);
        println!("{name:<14} {into:>28.1} {out:>10.1} {floors:>16.2}");
    }
    if good {
        ExitCode::SUCCESS
    } else {
        eprintln!("more than {MOST_FLOORS} floors, or a header of {MOST_HEADER_NS} ns and more");
        ExitCode::FAILURE
    }
}

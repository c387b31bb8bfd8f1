//! Messages of the model device, which its driver tells it to send, and its INTx wire.

use super::{Mark, Model};
use crate::host::HOST_ID;
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{Kind, MsgCode, MsgRouting, Repr};

/// What it can be told to say, by its number in what the driver writes.
const CODES: [(MsgRouting, MsgCode); 10] = [
    (MsgRouting::ToRootComplex, MsgCode::VendorDefined0),
    (MsgRouting::ToRootComplex, MsgCode::VendorDefined1),
    (MsgRouting::ById, MsgCode::VendorDefined0),
    (MsgRouting::ById, MsgCode::VendorDefined1),
    (MsgRouting::ToRootComplex, MsgCode::PmPme),
    // Where nobody has enabled them, the switch keeps these to itself (PCIe 5.0 section 6.2.3.2.2).
    (MsgRouting::ToRootComplex, MsgCode::ErrCor),
    (MsgRouting::ToRootComplex, MsgCode::ErrNonFatal),
    (MsgRouting::ToRootComplex, MsgCode::ErrFatal),
    // They end at the port above.
    (MsgRouting::Local, MsgCode::VendorDefined1),
    (MsgRouting::Local, MsgCode::VendorDefined0),
];
/// Of those, the ones that come to the root complex.
const COME: usize = 5;
/// And those that come where error messages are enabled.
const ERRORS: std::ops::Range<usize> = COME..COME + 3;
/// As many as there are, and one more that turns the wire.
pub(crate) const SAYINGS: u64 = CODES.len() as u64 + 1;
/// Bytes of data at most; every device takes payloads so large.
pub(crate) const LONGEST: usize = 128;
const VENDOR: [u8; 2] = [0x1b, 0x36];
/// From the assertion of a wire to its deassertion, as codes.
const DEASSERT: u8 = 4;

impl Model {
    /// The driver wrote which message it is to send: its number, doublewords of data, and what is in it.
    pub(super) fn say(&mut self, told: &[u8]) {
        let Some([saying, dwords, _, _, number @ ..]) = told.first_chunk::<8>().copied() else {
            return;
        };
        let Some((routing, code)) = CODES.get(usize::from(saying)) else { return self.turn_wire() };
        let reports = self.errors && ERRORS.contains(&usize::from(saying));
        let comes = reports || usize::from(saying) < COME;
        let mark = if comes { Mark::Own } else { Mark::Nobodys };
        let vendors = matches!(code, MsgCode::VendorDefined0 | MsgCode::VendorDefined1);
        let mut fields = [0; 8];
        fields[4..].copy_from_slice(&number);
        if vendors {
            fields[2..4].copy_from_slice(&VENDOR);
        }
        if *routing == MsgRouting::ById {
            fields[..2].copy_from_slice(&HOST_ID.bits().to_be_bytes());
        }
        let data = [number[0]; LONGEST];
        let length = (usize::from(dwords) * 4).min(LONGEST);
        let mut repr = Repr::new(Kind::Message {
            routing: *routing,
            code: *code,
            requester: Bdf::from_bits(self.id),
            tag: Tag::new(number[0].into()).expect("8 bits"),
            fields,
            data: if vendors { &data[..length] } else { &[] },
        });
        let class = if vendors { self.dresser.class() } else { 0 };
        self.dresser.message(&mut repr, class);
        self.end.out.push(&repr, mark);
    }

    /// INTx is asserted, or no longer, by the wire of the function's number.
    fn turn_wire(&mut self) {
        self.wire = !self.wire;
        let code =
            MsgCode::AssertInta.byte() + self.function + if self.wire { 0 } else { DEASSERT };
        let mut repr = Repr::new(Kind::Message {
            routing: MsgRouting::Local,
            code: MsgCode::from_byte(code),
            requester: Bdf::from_bits(self.id),
            tag: Tag::new(0).expect("a tag"),
            fields: [0; 8],
            data: &[],
        });
        self.dresser.message(&mut repr, 0);
        // What the switch's wires are at is looked at when all is at rest.
        self.end.out.push(&repr, Mark::Wire);
    }

    /// A function that is reset lets go of its wire (PCIe 5.0 section 6.6.2).
    pub(super) fn let_go_of_wire(&mut self) {
        if self.wire {
            self.turn_wire();
        }
    }
}

//! What TLPs say beside what they do: traffic class, no snoop, steering hints, prefixes, a digest,
//! poison. No proxy may change any of it, and who takes them here does what they say all the same.

use crate::profile::Dress;
use crate::random::{Drawer, Random};
use tlp_codec::ids::Tag;
use tlp_codec::tlp::{ByteEnables, Kind, Packet, Prefix, Prefixes, Repr, TlpType, TphHint as Hint};

/// End-to-end prefixes of one TLP (PCIe 5.0 section 2.2.10.2).
const PREFIXES: u64 = 4;
/// Of the prefixes that are drawn, the first bytes: PASID and both vendor-defined ones, all end to end.
const KINDS: [u8; 3] = [0x91, 0x9e, 0x9f];

/// What came of each kind, at devices and root complexes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) classes: u64,
    pub(crate) no_snoop: u64,
    pub(crate) hints: u64,
    pub(crate) prefixes: u64,
    pub(crate) digests: u64,
    pub(crate) wrong_digests: u64,
    pub(crate) poisoned: u64,
    pub(crate) messages: u64,
    pub(crate) empty_reads: u64,
    /// Writes and reads of more than 40 bytes to devices, and atomics but additions to root complexes.
    pub(crate) wide: u64,
    pub(crate) swaps: u64,
}

impl Counts {
    /// A TLP came to a device, or to a root complex.
    pub(crate) fn came(&mut self, packet: &Packet<&[u8]>, at_root: bool) {
        let kind = packet.tlp_type();
        let message = matches!(kind, TlpType::Msg(_) | TlpType::MsgD(_));
        let empty = kind == TlpType::MRd && enables(packet).first == 0;
        let wide = !at_root && matches!(kind, TlpType::MRd | TlpType::MWr);
        let swaps = at_root && matches!(kind, TlpType::Swap | TlpType::Cas);
        for (count, is_it) in [
            (&mut self.classes, packet.traffic_class() > 0),
            (&mut self.no_snoop, packet.attributes().no_snoop),
            (&mut self.hints, !message && packet.has_hints()),
            (&mut self.prefixes, !packet.prefix_bytes().is_empty()),
            (&mut self.digests, packet.has_digest()),
            (&mut self.wrong_digests, packet.digest_is_good() == Some(false)),
            (&mut self.poisoned, packet.is_poisoned()),
            (&mut self.messages, message),
            (&mut self.empty_reads, empty),
            (&mut self.wide, wide && packet.length_dw() > 10),
            (&mut self.swaps, swaps),
        ] {
            *count += u64::from(is_it);
        }
    }

    /// Each by its name.
    pub(crate) fn list(&self) -> [(&'static str, u64); 11] {
        [
            ("TLPs of a traffic class above 0", self.classes),
            ("TLPs with no snoop", self.no_snoop),
            ("TLPs with steering hints", self.hints),
            ("TLPs with prefixes", self.prefixes),
            ("TLPs with a digest", self.digests),
            ("TLPs with a wrong digest", self.wrong_digests),
            ("poisoned TLPs", self.poisoned),
            ("messages", self.messages),
            ("reads of no bytes", self.empty_reads),
            ("writes and reads of many bytes of devices", self.wide),
            ("swaps of devices", self.swaps),
        ]
    }
}

/// Draws it for one sender.
#[derive(Clone, Debug)]
pub(crate) struct Dresser {
    dress: Dress,
    random: Random,
}

impl Dresser {
    pub(crate) fn new(dress: Dress, seed: u64, index: u64) -> Self {
        Self { dress, random: Random::stream(seed, Drawer::Dress, index) }
    }

    /// The traffic class of what belongs together: between classes PCIe knows no order.
    pub(crate) fn class(&mut self) -> u8 {
        if self.random.chance(self.dress.classes_ppm) { self.random.between(1, 7) as u8 } else { 0 }
    }

    /// A memory request or atomic of that traffic class, which means data.
    pub(crate) fn request(&mut self, repr: &mut Repr<'_>, class: u8) {
        self.plain(repr, class);
        repr.attributes.no_snoop = self.random.chance(self.dress.no_snoop_ppm);
        if self.random.chance(self.dress.hints_ppm) {
            self.hint(repr);
        }
        let with_data = !repr.data().is_empty();
        repr.poisoned = with_data && self.random.chance(self.dress.poison_ppm);
    }

    /// A request of any kind.
    pub(crate) fn plain(&mut self, repr: &mut Repr<'_>, class: u8) {
        repr.traffic_class = class;
        self.wrap(repr);
    }

    /// A message.
    pub(crate) fn message(&mut self, repr: &mut Repr<'_>, class: u8) {
        repr.traffic_class = class;
        self.answer(repr);
    }

    /// What answers a request, whose traffic class and attributes it has already.
    pub(crate) fn answer(&mut self, repr: &mut Repr<'_>) {
        self.wrap(repr);
        let with_data = !repr.data().is_empty();
        repr.poisoned = with_data && self.random.chance(self.dress.poison_ppm);
    }

    /// Prefixes and a digest, which is wrong now and then: one that is stays so.
    fn wrap(&mut self, repr: &mut Repr<'_>) {
        if self.random.chance(self.dress.prefixes_ppm) {
            repr.prefixes = Prefixes::none();
            for _ in 0..self.random.between(1, PREFIXES) {
                let [a, b, c, ..] = self.random.next().to_le_bytes();
                let first = KINDS[self.random.below(KINDS.len() as u64) as usize];
                let prefix = Prefix::from_bytes([first, a, b, c]).expect("a prefix's first byte");
                repr.prefixes.push(prefix).expect("at most four");
            }
        }
        if self.random.chance(self.dress.digests_ppm) {
            let wrong = self.random.chance(250_000);
            repr.digest = Some(if wrong { 1 + self.random.below(0xffff) as u32 } else { 0 });
        }
    }

    /// A steering tag has the place of a read's byte enables, so all bytes have to be meant.
    fn hint(&mut self, repr: &mut Repr<'_>) {
        let [steering_tag, processing_hint, ..] = self.random.next().to_le_bytes();
        let drawn = Hint { processing_hint: processing_hint & 3, steering_tag };
        match &mut repr.kind {
            Kind::MemRead { hint, enables, length_dw, .. }
                if *enables == ByteEnables::all(*length_dw) =>
            {
                *hint = Some(drawn);
            }
            Kind::MemWrite { hint, .. } | Kind::Atomic { hint, .. } => *hint = Some(drawn),
            _ => {}
        }
    }
}

/// Writes a digest behind what was written, if it has room for one: the right one, changed by what is
/// in its place.
pub(crate) fn finish(tlp: &mut [u8]) {
    let mut packet = Packet::new_checked(tlp).expect("own TLP");
    let Some(wrong) = packet.digest() else { return };
    packet.update_digest();
    let tlp = packet.into_inner();
    let at = tlp.len() - 4;
    tlp[at..].iter_mut().zip(wrong.to_le_bytes()).for_each(|(byte, wrong)| *byte ^= wrong);
}

/// Another tag, and the digest that goes with it if it was right.
pub(crate) fn set_tag(tlp: &mut [u8], tag: Tag) {
    let mut packet = Packet::new_checked(tlp).expect("own TLP");
    let good = packet.digest_is_good();
    packet.set_tag(tag);
    if good == Some(true) {
        packet.update_digest();
    }
}

/// Which bytes of a read or write are meant. A read's hint has the place of its byte enables, and
/// means all.
pub(crate) fn enables(packet: &Packet<&[u8]>) -> ByteEnables {
    let reads = packet.tlp_type() == TlpType::MRd;
    if reads && packet.has_hints() {
        ByteEnables::all(packet.length_dw())
    } else {
        packet.byte_enables()
    }
}

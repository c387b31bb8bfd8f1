//! A TLP as named fields. The names are those of `tlp encode --help`.

use crate::notes;
use serde_json::{Map, Value};
use tlp_codec::tlp::{
    AddressType, ByteEnables, CplStatus, IgnoredBits, Kind, Packet, Prefixes, Repr, RuleError,
    TphHint,
};

/// What is printed of a TLP.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    /// The specification's abbreviation.
    pub(crate) tlp_type: String,
    /// Every field that has not its usual value, and those that the type always has.
    pub(crate) map: Map<String, Value>,
    /// What a person may want to know besides.
    pub(crate) notes: Vec<String>,
    /// Where in a capture it was.
    pub(crate) from: Option<Map<String, Value>>,
}

/// Names of the address types, in the order of their values.
pub(crate) const ADDRESS_TYPES: [&str; 4] =
    ["untranslated", "translation-request", "translated", "reserved"];

/// Reads a TLP.
pub(crate) fn describe(bytes: &[u8]) -> Result<Fields, RuleError> {
    let packet = Packet::new_checked(bytes)?;
    let repr = Repr::parse(&packet)?;
    let mut put = Put(Map::new());
    put.common(&repr);
    put.kind(&repr.kind);
    put.tail(&repr);
    Ok(Fields {
        tlp_type: repr.tlp_type().name().into(),
        map: put.0,
        notes: notes::of(&packet, &repr),
        from: None,
    })
}

/// Bytes as hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Put(Map<String, Value>);

impl Put {
    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.into(), value.into());
    }

    fn flag(&mut self, key: &str, on: bool) {
        if on {
            self.put(key, true);
        }
    }

    fn hex_number(&mut self, key: &str, value: impl Into<u64>) {
        self.put(key, format!("{:#x}", value.into()));
    }

    fn common(&mut self, repr: &Repr<'_>) {
        if !repr.prefixes.is_empty() {
            self.put("prefixes", prefixes(&repr.prefixes));
        }
        if repr.traffic_class != 0 {
            self.put("tc", repr.traffic_class);
        }
        self.flag("ro", repr.attributes.relaxed_ordering);
        self.flag("ns", repr.attributes.no_snoop);
        self.flag("ido", repr.attributes.id_based_ordering);
        self.flag("ln", repr.ln);
        self.flag("poisoned", repr.poisoned);
        if repr.address_type != AddressType::Untranslated {
            self.put("at", ADDRESS_TYPES[repr.address_type as usize]);
        }
        if let Kind::Completion { completer, .. } = repr.kind {
            self.put("completer", completer.to_string());
        }
        let (requester, tag) = repr.transaction_id();
        self.put("requester", requester.to_string());
        self.put("tag", tag.get());
    }

    fn tail(&mut self, repr: &Repr<'_>) {
        if !repr.data().is_empty() {
            self.put("data", hex(repr.data()));
        }
        if let Some(digest) = repr.digest {
            self.put("ecrc", hex(&digest.to_le_bytes()));
        }
        if repr.ignored != IgnoredBits::NONE {
            self.put("reserved", format!("{:#010x}", repr.ignored.bits()));
        }
    }

    fn kind(&mut self, kind: &Kind<'_>) {
        match *kind {
            Kind::MemRead { address, length_dw, enables, hint, .. } => {
                self.hex_number("address", address);
                self.put("length", length_dw);
                self.enables_unless_implied(enables, hint);
            }
            Kind::MemWrite { address, enables, hint, .. } => {
                self.hex_number("address", address);
                self.enables(enables);
                self.hint(hint);
            }
            Kind::DeferrableMemWrite { address, enables, hint, .. } => {
                self.hex_number("address", address);
                self.enables_unless_implied(enables, hint);
            }
            Kind::Atomic { address, hint, .. } => {
                self.hex_number("address", address);
                self.hint(hint);
            }
            Kind::IoRead { address, first_be, .. } | Kind::IoWrite { address, first_be, .. } => {
                self.hex_number("address", address);
                self.hex_number("first_be", first_be);
            }
            Kind::ConfigRead { destination, register, first_be, .. }
            | Kind::ConfigWrite { destination, register, first_be, .. } => {
                self.put("destination", destination.to_string());
                self.hex_number("register", register);
                self.hex_number("first_be", first_be);
            }
            Kind::Message { routing, code, fields, .. } => {
                self.put("routing", routing.name());
                self.put("code", code.to_string());
                self.put("fields", hex(&fields));
            }
            Kind::Completion { status, bcm, byte_count, lower_address, .. } => {
                match status {
                    CplStatus::Unknown(bits) => self.put("status", bits),
                    known => self.put("status", known.to_string()),
                }
                self.flag("bcm", bcm);
                self.put("byte_count", byte_count);
                self.put("lower_address", lower_address);
            }
        }
    }

    fn enables(&mut self, enables: ByteEnables) {
        self.hex_number("first_be", enables.first);
        self.hex_number("last_be", enables.last);
    }

    fn enables_unless_implied(&mut self, enables: ByteEnables, hint: Option<TphHint>) {
        if hint.is_none() {
            self.enables(enables);
        }
        self.hint(hint);
    }

    fn hint(&mut self, hint: Option<TphHint>) {
        if let Some(hint) = hint {
            self.put("ph", hint.processing_hint);
            self.put("st", hint.steering_tag);
        }
    }
}

fn prefixes(prefixes: &Prefixes) -> Vec<String> {
    prefixes.iter().map(|prefix| hex(&prefix.bytes())).collect()
}

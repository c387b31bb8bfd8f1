//! What a person may want to know of a TLP besides its fields.

use tlp_codec::tlp::{Kind, MsgCode, MsgRouting, Packet, Pasid, Repr};

/// The notes on a TLP.
pub(crate) fn of(packet: &Packet<&[u8]>, repr: &Repr<'_>) -> Vec<String> {
    let mut notes: Vec<String> = repr.prefixes.pasid().iter().map(pasid).collect();
    notes.extend(kind(&repr.kind));
    for error in
        [packet.check_digest(), repr.check_known_message()].into_iter().filter_map(Result::err)
    {
        notes.push(error.to_string());
    }
    if packet.digest_is_good() == Some(true) {
        notes.push("the ECRC is right".into());
    }
    notes
}

fn pasid(pasid: &Pasid) -> String {
    let execute = if pasid.execute_requested { ", execute" } else { "" };
    let privileged = if pasid.privileged_requested { ", privileged" } else { "" };
    format!("PASID {:#x}{execute}{privileged}", pasid.value)
}

fn kind(kind: &Kind<'_>) -> Option<String> {
    match *kind {
        Kind::MemRead { address, length_dw, enables, .. } => {
            let at = address + u64::from(enables.first_offset());
            Some(match (enables.first, enables.byte_count(length_dw)) {
                (0, _) => format!("no bytes at {at:#x}"),
                (_, 1) => format!("1 byte at {at:#x}"),
                (_, count) => format!("{count} bytes at {at:#x}"),
            })
        }
        Kind::Message { routing, code, fields, data, .. } => message(routing, code, fields, data),
        _ => None,
    }
}

fn message(routing: MsgRouting, code: MsgCode, fields: [u8; 8], data: &[u8]) -> Option<String> {
    let be16 = |at: usize| u16::from_be_bytes([fields[at], fields[at + 1]]);
    match code {
        // PCIe 5.0 section 2.2.8.8: bytes 12 and 13 no-snoop, 14 and 15 snoop latency.
        MsgCode::Ltr => Some(format!("snoop {}, no-snoop {}", latency(be16(6)), latency(be16(4)))),
        MsgCode::SetSlotPowerLimit => data.first_chunk().map(|&d| power(d)),
        MsgCode::VendorDefined0 | MsgCode::VendorDefined1 => {
            Some(format!("vendor {:#06x}{}", be16(2), destination(routing, be16(0))))
        }
        _ => match destination(routing, be16(0)) {
            nowhere if nowhere.is_empty() => None,
            destination => Some(destination.trim_start().into()),
        },
    }
}

fn destination(routing: MsgRouting, id: u16) -> String {
    match routing {
        MsgRouting::ById => format!(" to {}", tlp_codec::ids::Bdf::from_bits(id)),
        _ => String::new(),
    }
}

/// Bit 15: required; bits 12:10: a scale of 32 to that power; bits 9:0: the value.
fn latency(field: u16) -> String {
    let (required, scale, value) = (field & 0x8000 != 0, field >> 10 & 7, u64::from(field & 0x3ff));
    match (required, scale) {
        (false, _) => "any".into(),
        (true, 6..) => "of a reserved scale".into(),
        (true, scale) => format!("{} ns", value << (5 * scale)),
    }
}

/// Bits 7:0: the value; bits 9:8: tenths, hundredths or thousandths of a watt. Of whole watts there are
/// three values for more than 239 (PCIe 5.0 section 7.5.3.9).
fn power(data: [u8; 4]) -> String {
    match (data[0], data[1] & 3) {
        (above @ 0xf0..=0xf2, 0) => return format!("{} W", 250 + 25 * (u16::from(above) - 0xf0)),
        (0xf3.., 0) => return "of a reserved value".into(),
        _ => {}
    }
    let scale = [1.0, 0.1, 0.01, 0.001][usize::from(data[1] & 3)];
    format!("{} W", (f64::from(data[0]) * scale * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_and_watts() {
        assert_eq!(latency(0x8864), "102400 ns" /* 100 x 1024 */);
        assert_eq!(latency(0x0864), "any");
        assert_eq!(latency(0x9801), "of a reserved scale");
        assert_eq!(power([25, 0, 0, 0]), "25 W");
        assert_eq!(power([123, 2, 0, 0]), "1.23 W");
        assert_eq!(
            [0xef, 0xf0, 0xf1, 0xf2].map(|w| power([w, 0, 0, 0])),
            ["239 W", "250 W", "275 W", "300 W"]
        );
        assert_eq!(power([0xf3, 0, 0, 0]), "of a reserved value");
        assert_eq!(power([0xf3, 1, 0, 0]), "24.3 W");
    }
}

//! From named fields to a TLP's bytes.

use crate::fields::ADDRESS_TYPES;
use crate::taker::Taker;
use serde_json::{Map, Value};
use tlp_codec::tlp::{
    AddressType, AtomicOp, Attributes, ByteEnables, CplStatus, IgnoredBits, Kind, MsgCode,
    MsgRouting, Packet, Prefix, Prefixes, Repr, TphHint,
};

/// Writes the TLP that the fields describe.
pub(crate) fn build(map: Map<String, Value>) -> Result<Vec<u8>, String> {
    let mut fields = Taker::new(map);
    let tlp_type = fields.text("type")?.ok_or("the type is missing")?;
    let data = fields.hex("data")?.unwrap_or_default();
    let kind = kind(&tlp_type, &mut fields, &data)?;
    let digest = digest(&mut fields)?;
    let repr = Repr {
        prefixes: prefixes(&mut fields)?,
        traffic_class: fields.number("tc", 7)?.unwrap_or(0) as u8,
        attributes: Attributes {
            relaxed_ordering: fields.flag("ro")?,
            no_snoop: fields.flag("ns")?,
            id_based_ordering: fields.flag("ido")?,
        },
        address_type: address_type(&mut fields)?,
        ln: fields.flag("ln")?,
        poisoned: fields.flag("poisoned")?,
        digest: digest.map(Digest::carried),
        ignored: IgnoredBits::from_bits(
            fields.number("reserved", u32::MAX.into())?.unwrap_or(0) as u32
        ),
        kind,
    };
    fields.finish(&tlp_type)?;

    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).map_err(|error| error.to_string())?;
    if digest == Some(Digest::Auto) {
        let mut packet = Packet::new_checked(&mut bytes[..]).map_err(|error| error.to_string())?;
        packet.update_digest();
    }
    Ok(bytes)
}

fn kind<'a>(tlp_type: &str, fields: &mut Taker, data: &'a [u8]) -> Result<Kind<'a>, String> {
    let with_data = matches!(
        tlp_type,
        "MWr"
            | "DMWr"
            | "IOWr"
            | "CfgWr0"
            | "CfgWr1"
            | "MsgD"
            | "CplD"
            | "CplDLk"
            | "FetchAdd"
            | "Swap"
            | "CAS"
    );
    if with_data && data.is_empty() {
        return Err(format!("{tlp_type} needs the field `data`"));
    }
    if !with_data && !data.is_empty() {
        return Err(format!("{tlp_type} has no data"));
    }
    match tlp_type {
        "MRd" => memory_read(fields, false),
        "MRdLk" => memory_read(fields, true),
        "MWr" => memory_write(fields, data),
        "DMWr" => deferrable_write(fields, data),
        "IORd" | "IOWr" => io(fields, data),
        "CfgRd0" | "CfgWr0" => config(fields, data, false),
        "CfgRd1" | "CfgWr1" => config(fields, data, true),
        "Msg" | "MsgD" => message(fields, data),
        "Cpl" | "CplD" => completion(fields, data, false),
        "CplLk" | "CplDLk" => completion(fields, data, true),
        "FetchAdd" => atomic(fields, data, AtomicOp::FetchAdd),
        "Swap" => atomic(fields, data, AtomicOp::Swap),
        "CAS" => atomic(fields, data, AtomicOp::Cas),
        other => Err(format!("`{other}` is not a type; `tlp encode --help` lists them")),
    }
}

fn memory_read<'a>(fields: &mut Taker, locked: bool) -> Result<Kind<'a>, String> {
    let length_dw = fields.number("length", 1024)?.unwrap_or(1) as u16;
    let hint = hint(fields)?;
    let enables = enables_unless_implied(fields, length_dw, hint)?;
    let (requester, tag, address) = (fields.requester()?, fields.tag()?, fields.address()?);
    Ok(Kind::MemRead { requester, tag, address, length_dw, enables, hint, locked })
}

fn memory_write<'a>(fields: &mut Taker, data: &'a [u8]) -> Result<Kind<'a>, String> {
    let enables = enables(fields, doublewords(data))?;
    let hint = hint(fields)?;
    let (requester, tag, address) = (fields.requester()?, fields.tag()?, fields.address()?);
    Ok(Kind::MemWrite { requester, tag, address, enables, hint, data })
}

fn deferrable_write<'a>(fields: &mut Taker, data: &'a [u8]) -> Result<Kind<'a>, String> {
    let hint = hint(fields)?;
    let enables = enables_unless_implied(fields, doublewords(data), hint)?;
    let (requester, tag, address) = (fields.requester()?, fields.tag()?, fields.address()?);
    Ok(Kind::DeferrableMemWrite { requester, tag, address, enables, hint, data })
}

fn atomic<'a>(fields: &mut Taker, data: &'a [u8], op: AtomicOp) -> Result<Kind<'a>, String> {
    let (requester, tag, address) = (fields.requester()?, fields.tag()?, fields.address()?);
    Ok(Kind::Atomic { op, requester, tag, address, hint: hint(fields)?, data })
}

fn io<'a>(fields: &mut Taker, data: &'a [u8]) -> Result<Kind<'a>, String> {
    let (requester, tag) = (fields.requester()?, fields.tag()?);
    let address = u32::try_from(fields.address()?).map_err(|_| "an I/O address has 32 bits")?;
    let first_be = fields.enables("first_be")?.unwrap_or(0xf);
    Ok(match data {
        [] => Kind::IoRead { requester, tag, address, first_be },
        data => Kind::IoWrite { requester, tag, address, first_be, data },
    })
}

fn config<'a>(fields: &mut Taker, data: &'a [u8], type1: bool) -> Result<Kind<'a>, String> {
    let (requester, tag) = (fields.requester()?, fields.tag()?);
    let destination = fields.required("destination", Taker::id)?;
    let register = fields.required("register", |f, key| f.number(key, 0xffc))? as u16;
    let first_be = fields.enables("first_be")?.unwrap_or(0xf);
    Ok(match data {
        [] => Kind::ConfigRead { type1, requester, tag, destination, register, first_be },
        data => Kind::ConfigWrite { type1, requester, tag, destination, register, first_be, data },
    })
}

fn message<'a>(fields: &mut Taker, data: &'a [u8]) -> Result<Kind<'a>, String> {
    let (requester, tag) = (fields.requester()?, fields.tag()?);
    let name = fields.required("routing", Taker::text)?;
    let routing = MsgRouting::ALL.into_iter().find(|routing| routing.name() == name);
    let routing = routing.ok_or_else(|| {
        let known = MsgRouting::ALL.map(MsgRouting::name).join(", ");
        format!("field `routing`: `{name}` is not one of {known}")
    })?;
    let name = fields.required("code", |fields, key| fields.as_text(key))?;
    let known = MsgCode::KNOWN.iter().find(|code| code.name() == Some(name.as_str()));
    let code = match known {
        Some(code) => *code,
        None => MsgCode::from_byte(
            crate::taker::parse_number(&name).and_then(|n| u8::try_from(n).ok()).ok_or_else(
                || format!("field `code`: `{name}` is neither a message code's name nor a number"),
            )?,
        ),
    };
    let bytes = fields.hex("fields")?.unwrap_or_else(|| vec![0; 8]);
    let header = bytes.try_into().map_err(|_| "`fields` is header bytes 8 to 15, in hex")?;
    Ok(Kind::Message { routing, code, requester, tag, fields: header, data })
}

fn completion<'a>(fields: &mut Taker, data: &'a [u8], locked: bool) -> Result<Kind<'a>, String> {
    let (requester, tag) = (fields.requester()?, fields.tag()?);
    let lower_address = fields.number("lower_address", 0x7f)?.unwrap_or(0) as u8;
    let there = data.len().saturating_sub(usize::from(lower_address & 3));
    let usual = if data.is_empty() { 4 } else { there as u64 };
    Ok(Kind::Completion {
        completer: fields.id("completer")?.unwrap_or_default(),
        requester,
        tag,
        status: status(fields)?,
        bcm: fields.flag("bcm")?,
        byte_count: fields.number("byte_count", 4096)?.unwrap_or(usual) as u16,
        lower_address,
        locked,
        data,
    })
}

fn status(fields: &mut Taker) -> Result<CplStatus, String> {
    let Some(name) = fields.as_text("status")? else { return Ok(CplStatus::Success) };
    Ok(match name.as_str() {
        "SC" => CplStatus::Success,
        "UR" => CplStatus::UnsupportedRequest,
        "CRS" => CplStatus::ConfigRetry,
        "CA" => CplStatus::CompleterAbort,
        other => match crate::taker::parse_number(other) {
            Some(bits @ 0..=7) => CplStatus::from_bits(bits as u8),
            _ => {
                return Err(format!(
                    "field `status`: `{other}` is neither SC, UR, CRS, CA nor 0 to 7"
                ));
            }
        },
    })
}

fn hint(fields: &mut Taker) -> Result<Option<TphHint>, String> {
    let (ph, st) = (fields.number("ph", 3)?, fields.number("st", 0xff)?);
    Ok((ph.is_some() || st.is_some()).then(|| TphHint {
        processing_hint: ph.unwrap_or(0) as u8,
        steering_tag: st.unwrap_or(0) as u8,
    }))
}

fn enables(fields: &mut Taker, length_dw: u16) -> Result<ByteEnables, String> {
    let all = ByteEnables::all(length_dw);
    Ok(ByteEnables {
        first: fields.enables("first_be")?.unwrap_or(all.first),
        last: fields.enables("last_be")?.unwrap_or(all.last),
    })
}

/// Of TLPs whose steering tag takes the byte enables' place.
fn enables_unless_implied(
    fields: &mut Taker,
    length_dw: u16,
    hint: Option<TphHint>,
) -> Result<ByteEnables, String> {
    match hint {
        Some(_) => Ok(ByteEnables::all(length_dw)),
        None => enables(fields, length_dw),
    }
}

fn address_type(fields: &mut Taker) -> Result<AddressType, String> {
    let Some(name) = fields.text("at")? else { return Ok(AddressType::Untranslated) };
    let at = ADDRESS_TYPES.iter().position(|known| *known == name);
    let at = at.ok_or_else(|| {
        format!("field `at`: `{name}` is not one of {}", ADDRESS_TYPES.join(", "))
    })?;
    Ok(AddressType::from_bits(at as u8))
}

fn prefixes(fields: &mut Taker) -> Result<Prefixes, String> {
    let mut prefixes = Prefixes::none();
    for text in fields.list("prefixes")? {
        let bytes =
            crate::input::parse_hex(&text).map_err(|error| format!("field `prefixes`: {error}"))?;
        let bytes = bytes.try_into().map_err(|_| format!("prefix {text} is not four bytes"))?;
        let prefix = Prefix::from_bytes(bytes)
            .ok_or_else(|| format!("prefix {text} does not start with 100b, as prefixes do"))?;
        prefixes.push(prefix).map_err(|error| error.to_string())?;
    }
    Ok(prefixes)
}

/// The digest that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digest {
    Auto,
    Given(u32),
}

impl Digest {
    fn carried(self) -> u32 {
        match self {
            Self::Auto => 0,
            Self::Given(digest) => digest,
        }
    }
}

fn digest(fields: &mut Taker) -> Result<Option<Digest>, String> {
    let Some(text) = fields.text("ecrc")? else { return Ok(None) };
    if text == "auto" {
        return Ok(Some(Digest::Auto));
    }
    let bytes = crate::input::parse_hex(&text)
        .map_err(|error| format!("field `ecrc`: {error}; it is hex or auto"))?;
    let bytes = bytes.try_into().map_err(|_| "`ecrc` is four bytes in hex, or auto")?;
    Ok(Some(Digest::Given(u32::from_le_bytes(bytes))))
}

fn doublewords(data: &[u8]) -> u16 {
    (data.len() / 4).min(1024) as u16
}

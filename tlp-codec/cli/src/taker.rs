//! Takes named fields out of a line, each as what it should be.

use serde_json::{Map, Value};
use tlp_codec::ids::{Bdf, Bus, Device, Function, Tag};

/// The fields of a line that nobody has taken yet.
pub(crate) struct Taker(Map<String, Value>);

/// Decimal, or hex after `0x`, or binary after `0b`; `_` anywhere.
pub(crate) fn parse_number(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    let (digits, radix) = match digits.get(..2) {
        Some("0x" | "0X") => (&digits[2..], 16),
        Some("0b" | "0B") => (&digits[2..], 2),
        _ => (&digits[..], 10),
    };
    // `from_str_radix` would take a sign.
    digits.starts_with(|c: char| c.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, radix).ok()
}

fn parse_id(text: &str) -> Option<Bdf> {
    let (bus, rest) = text.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let part = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_hexdigit()).then_some(())?;
        u8::from_str_radix(text, 16).ok()
    };
    Some(Bdf::new(
        Bus::new(part(bus)?).ok()?,
        Device::new(part(device)?).ok()?,
        Function::new(part(function)?).ok()?,
    ))
}

/// Takes a flag out of a line's fields; one that is not there is false.
pub(crate) fn take_flag(fields: &mut Map<String, Value>, key: &str) -> Result<bool, String> {
    match fields.shift_remove(key) {
        None => Ok(false),
        Some(Value::Bool(on)) => Ok(on),
        Some(Value::String(text)) if matches!(text.as_str(), "true" | "1") => Ok(true),
        Some(Value::String(text)) if matches!(text.as_str(), "false" | "0") => Ok(false),
        Some(other) => Err(format!("field `{key}`: {other} is neither true nor false")),
    }
}

impl Taker {
    pub(crate) fn new(map: Map<String, Value>) -> Self {
        Self(map)
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.shift_remove(key)
    }

    /// Whatever `read` makes of a field that has to be there.
    pub(crate) fn required<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Self, &str) -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        read(self, key)?.ok_or_else(|| format!("the field `{key}` is missing"))
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("field `{key}`: {other} is not text")),
        }
    }

    /// Text, or a number as text.
    pub(crate) fn as_text(&mut self, key: &str) -> Result<Option<String>, String> {
        if let Some(Value::Number(number)) = self.0.get(key) {
            let text = number.to_string();
            self.take(key);
            return Ok(Some(text));
        }
        self.text(key)
    }

    pub(crate) fn flag(&mut self, key: &str) -> Result<bool, String> {
        take_flag(&mut self.0, key)
    }

    pub(crate) fn number(&mut self, key: &str, max: u64) -> Result<Option<u64>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => parse_number(text),
            _ => None,
        };
        match number {
            None => Err(format!("field `{key}`: {value} is not a number")),
            Some(number) if number > max => {
                Err(format!("field `{key}`: {value} is out of range (at most {max:#x})"))
            }
            Some(number) => Ok(Some(number)),
        }
    }

    pub(crate) fn hex(&mut self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        crate::input::parse_hex(&text).map(Some).map_err(|error| format!("field `{key}`: {error}"))
    }

    pub(crate) fn list(&mut self, key: &str) -> Result<Vec<String>, String> {
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(text.split(',').map(str::to_owned).collect()),
            Some(Value::Array(list)) => list
                .into_iter()
                .map(|item| match item {
                    Value::String(text) => Ok(text),
                    other => Err(format!("field `{key}`: {other} is not text")),
                })
                .collect(),
            Some(other) => Err(format!("field `{key}`: {other} is not a list")),
        }
    }

    pub(crate) fn id(&mut self, key: &str) -> Result<Option<Bdf>, String> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match parse_id(&text) {
            Some(id) => Ok(Some(id)),
            None => Err(format!("field `{key}`: `{text}` is not bus:device.function in hex")),
        }
    }

    pub(crate) fn requester(&mut self) -> Result<Bdf, String> {
        Ok(self.id("requester")?.unwrap_or_default())
    }

    pub(crate) fn tag(&mut self) -> Result<Tag, String> {
        let tag = self.number("tag", Tag::MAX.get().into())?.unwrap_or(0);
        Tag::new(tag as u16).map_err(|error| error.to_string())
    }

    pub(crate) fn address(&mut self) -> Result<u64, String> {
        self.required("address", |fields, key| fields.number(key, u64::MAX))
    }

    pub(crate) fn enables(&mut self, key: &str) -> Result<Option<u8>, String> {
        Ok(self.number(key, 0xf)?.map(|enables| enables as u8))
    }

    /// Says what was left: fields that a TLP of that type does not have.
    pub(crate) fn finish(self, tlp_type: &str) -> Result<(), String> {
        let Some(key) = self.0.keys().next() else { return Ok(()) };
        Err(format!("{tlp_type} has no field `{key}`; `tlp encode --help` lists them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_hex_or_binary() {
        assert_eq!(parse_number("12"), Some(12));
        assert_eq!(parse_number("0x1_0000"), Some(0x1_0000));
        assert_eq!(parse_number("0b101"), Some(5));
        for wrong in ["", "0x", "-1", "+1", "x", "0x+1", "0b2", "18446744073709551616"] {
            assert_eq!(parse_number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_are_those_of_lspci() {
        assert_eq!(parse_id("3a:1f.7").map(Bdf::bits), Some(0x3aff));
        for wrong in ["3a:20.0", "3a:1f.8", "1:2", "100:0.0", "+1:0.0", ""] {
            assert_eq!(parse_id(wrong), None, "{wrong}");
        }
    }
}

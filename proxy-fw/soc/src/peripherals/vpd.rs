//! Vital product data as PCI has them (PCI Express Base 5.0, section 6.28): what a card is called,
//! and its numbers.

use super::Text;
use core::fmt;

/// Tags: identifier string, read-only data, end (PCI Express Base 5.0, table 6-29).
const IDENTIFIER: u8 = 0x82;
const READ_ONLY: u8 = 0x90;
const END: u8 = 0x78;

/// Why bytes are no vital product data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VpdError {
    /// They end in the middle.
    Truncated,
    /// They do not begin with a name.
    NoName,
    /// The check sum is wrong, or there is none.
    CheckSum,
}

impl fmt::Display for VpdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "they end in the middle",
            Self::NoName => "they do not begin with a name",
            Self::CheckSum => "their check sum is wrong, or there is none",
        })
    }
}

/// Vital product data in memory, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vpd<'a> {
    name: &'a [u8],
    fields: &'a [u8],
}

/// What is in a resource, and what follows it.
type Parts<'a> = (&'a [u8], &'a [u8]);

/// A large resource with this tag.
fn resource(bytes: &[u8], tag: u8) -> Result<Option<Parts<'_>>, VpdError> {
    let ([found, low, high], rest) = bytes.split_first_chunk().ok_or(VpdError::Truncated)?;
    if *found != tag {
        return Ok(None);
    }
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    rest.split_at_checked(length).map(Some).ok_or(VpdError::Truncated)
}

impl<'a> Vpd<'a> {
    /// Reads what begins with the name.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, VpdError> {
        let (name, rest) = resource(bytes, IDENTIFIER)?.ok_or(VpdError::NoName)?;
        let (fields, rest) = resource(rest, READ_ONLY)?.ok_or(VpdError::CheckSum)?;
        if rest.first().is_none_or(|tag| *tag != END && *tag & 0x80 == 0) {
            return Err(VpdError::Truncated);
        }
        let vpd = Self { name, fields };
        // RV: a byte that makes the sum of all from the first to itself 0.
        let (at, reserved) = vpd.find(*b"RV").ok_or(VpdError::CheckSum)?;
        let before = bytes.len() - rest.len() - fields.len();
        let covered = bytes.get(..=before + at).filter(|_| !reserved.is_empty());
        let sum = covered.ok_or(VpdError::CheckSum)?.iter();
        let sum = sum.fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        if sum == 0 { Ok(vpd) } else { Err(VpdError::CheckSum) }
    }

    /// What the card is called.
    pub fn name(&self) -> &'a [u8] {
        self.name
    }

    /// A read-only field: `PN` is the part's number, `SN` the serial number, `EC` the engineering
    /// change level, `MN` the maker.
    pub fn field(&self, keyword: [u8; 2]) -> Option<&'a [u8]> {
        self.find(keyword).map(|(_, value)| value)
    }

    /// A field's value, and where it is in the fields.
    fn find(&self, keyword: [u8; 2]) -> Option<(usize, &'a [u8])> {
        let mut rest = self.fields;
        loop {
            let ([a, b, length], behind) = rest.split_first_chunk()?;
            let (value, next) = behind.split_at_checked((*length).into())?;
            if [*a, *b] == keyword {
                return Some((self.fields.len() - behind.len(), value));
            }
            rest = next;
        }
    }
}

/// The name, and what of the usual fields is there.
impl fmt::Display for Vpd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text(self.name).fmt(f)?;
        let fields = [(*b"PN", "part"), (*b"EC", "change level"), (*b"SN", "serial number")];
        for (keyword, name) in fields {
            if let Some(value) = self.field(keyword) {
                write!(f, ", {name} {}", Text(value))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn card() -> Vec<u8> {
        let mut fields = Vec::new();
        for (keyword, value) in [(b"PN", &b"DX-1"[..]), (b"SN", b"0007"), (b"RV", &[0, 0])] {
            fields.extend(keyword);
            fields.push(value.len() as u8);
            fields.extend(value);
        }
        let mut bytes = b"\x82\x04\x00Card\x90".to_vec();
        bytes.extend((fields.len() as u16).to_le_bytes());
        bytes.extend(&fields);
        let sum = bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        let at = bytes.len() - 2;
        bytes[at] = 0_u8.wrapping_sub(sum);
        bytes.push(END);
        bytes
    }

    #[test]
    fn a_card_says_what_it_is() {
        let bytes = card();
        let vpd = Vpd::parse(&bytes).unwrap();
        assert_eq!(vpd.name(), b"Card");
        assert_eq!(vpd.field(*b"PN"), Some(&b"DX-1"[..]));
        assert_eq!(vpd.field(*b"SN"), Some(&b"0007"[..]));
        assert_eq!(vpd.field(*b"EC"), None);
        assert_eq!(vpd.to_string(), "Card, part DX-1, serial number 0007");
    }

    #[test]
    fn what_is_no_text_is_escaped_and_blanks_at_the_end_are_none_of_it() {
        assert_eq!(Text(b"a\x1b[0m b  ").to_string(), "a\\x1b[0m b");
    }

    #[test]
    fn what_is_cut_or_changed_is_refused() {
        let bytes = card();
        for length in 0..bytes.len() {
            assert!(Vpd::parse(&bytes[..length]).is_err(), "{length}");
        }
        // All but what follows the sum, and the end's tag.
        for at in 0..bytes.len() - 2 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Vpd::parse(&changed).is_err(), "byte {at}");
        }
        assert_eq!(Vpd::parse(&[0xff; 256]), Err(VpdError::NoName), "a blank memory");
    }

    proptest! {
        #[test]
        fn any_bytes_are_vpd_or_not(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Vpd::parse(&bytes);
            let mut card = card();
            for (at, byte) in bytes.iter().enumerate().take(20) {
                card[at] ^= byte & 7;
            }
            if let Ok(vpd) = Vpd::parse(&card) {
                let _ = vpd.field(*b"PN");
            }
        }
    }
}

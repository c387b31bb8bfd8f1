//! Numbers of bytes, and of bytes a second, as people write them.

use super::names::InvalidName;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Bytes, or bytes a second. Read from a whole number, or from a text with a unit: `80G` is
/// 80·10⁹, `80Gi` is 80·2³⁰. Written as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Amount(pub u64);

/// The units with what they stand for.
const UNITS: [(&str, u64); 8] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

impl FromStr for Amount {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let wrong = || {
            InvalidName(format!(
                "{text:?} is no amount: a whole number below 2^63, then k, M, G or T (powers of \
                 1000) or Ki, Mi, Gi or Ti (powers of 1024), such as 80G"
            ))
        };
        let bare = text.strip_suffix('B').unwrap_or(text);
        let unit =
            UNITS.iter().find_map(|(unit, factor)| Some((bare.strip_suffix(unit)?, *factor)));
        let (digits, factor) = unit.unwrap_or((bare, 1));
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        number.filter(|number| *number <= i64::MAX as u64).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The largest unit that leaves a whole number; of two that do, the shorter number.
        let whole = |(_, factor): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*factor);
        match UNITS.iter().filter(whole).max_by_key(|(_, factor)| *factor) {
            Some((unit, factor)) => f.pad(&format!("{}{unit}", self.0 / factor)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an amount such as 80000000000 or \"80G\"")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Amount, E> {
                if number > i64::MAX as u64 {
                    return Err(E::custom("an amount is below 2^63"));
                }
                Ok(Amount(number))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Amount, E> {
                u64::try_from(number).map(Amount).map_err(|_| E::custom("an amount is not below 0"))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Amount, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl PartialSchema for Amount {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[0-9]+([kMGT]|[KMGT]i)?B?$"));
        AnyOfBuilder::new()
            .item(number)
            .item(text)
            .description(Some("Bytes, or bytes a second: a number, or a text with a unit."))
            .examples(["80G"])
            .into()
    }
}

impl ToSchema for Amount {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_powers_of_1000_or_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("80G", 80_000_000_000),
            ("80GB", 80_000_000_000),
            ("2k", 2_000),
            ("1Gi", 1 << 30),
            ("3TiB", 3 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Amount(bytes)), "{text}");
        }
        for wrong in ["", "G", "-1", "+1", "1.5G", "80 G", "80g", "9999999999T", "80GG", "80Bi"] {
            assert!(wrong.parse::<Amount>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn json_has_a_number_or_a_text() {
        assert_eq!(serde_json::from_str::<Amount>("5").unwrap(), Amount(5));
        assert_eq!(serde_json::from_str::<Amount>("\"5G\"").unwrap(), Amount(5_000_000_000));
        for wrong in ["-5", "5.5", "\"much\"", "18446744073709551615", "null"] {
            assert!(serde_json::from_str::<Amount>(wrong).is_err(), "{wrong}");
        }
        assert_eq!(serde_json::to_string(&Amount(5)).unwrap(), "5");
    }

    proptest! {
        /// What is written reads as the same.
        #[test]
        fn amounts_survive_their_text(digits in 0..1000_u64, unit in 0..9_usize) {
            let factor = UNITS.get(unit).map_or(1, |(_, factor)| *factor);
            let amount = Amount(digits * factor);
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }
    }
}

//! What the settings say of the images that a card starts: whose, and how old.

use super::{lines, split_once, trim};
use card_image::{AntiDowngrade, KeyId, TrustedKey};

/// Keys that the settings have room for.
pub const MAX_TRUSTED: usize = 4;

/// Keys that the settings have.
pub type TrustedKeys = heapless::Vec<TrustedKey, MAX_TRUSTED>;

/// What a boot loader takes from the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `trust`: public keys (Ed25519) whose images are started, beside those that the boot loader
    /// was built with; none when nothing is said.
    pub keys: TrustedKeys,
    /// `downgrade`: whether images with a lower security version than one that was healthy are
    /// started (`allow`) or not (`refuse`, which is so when nothing is said).
    pub anti_downgrade: AntiDowngrade,
}

impl Policy {
    /// From the settings' text. A line that is wrong says nothing: a boot loader starts a firmware
    /// that can tell of it.
    pub fn of(text: &str) -> Self {
        let mut policy = Self::default();
        for (_, line) in lines(text) {
            match line {
                Ok(("trust", value)) => policy.keys = trust(value).unwrap_or_default(),
                Ok(("downgrade", value)) => {
                    policy.anti_downgrade = downgrade(value).unwrap_or_default();
                }
                _ => {}
            }
        }
        policy
    }
}

/// `NUMBER:KEY`, one after the other with commas; a key has 64 hexadecimal digits. `None`: it is
/// something else, or a number is there twice.
#[inline(never)] // its stack is needed seldom
pub(super) fn trust(value: &str) -> Option<TrustedKeys> {
    let mut keys = TrustedKeys::new();
    for said in value.split(',') {
        let (number, digits) = split_once(trim(said), b':')?;
        let id = KeyId(number.parse().ok()?);
        if id == KeyId::NONE || keys.iter().any(|key| key.id == id) {
            return None;
        }
        keys.push(TrustedKey { id, key: key(digits.as_bytes())? }).ok()?;
    }
    Some(keys)
}

fn key(digits: &[u8]) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(pairs) {
        for digit in pair {
            *byte = *byte << 4 | char::from(*digit).to_digit(16)? as u8;
        }
    }
    Some(key)
}

/// `allow` or `refuse`.
pub(super) fn downgrade(value: &str) -> Option<AntiDowngrade> {
    match value {
        "allow" => Some(AntiDowngrade::Off),
        "refuse" => Some(AntiDowngrade::BySecurityVersion),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::ToOwned;
    use std::format;

    #[test]
    fn keys_are_numbers_and_digits() {
        let ones = "11".repeat(32);
        let keys = trust(&format!("7:{ones}, 8:{}", "aF".repeat(32))).unwrap();
        let key = |id, byte| TrustedKey { id: KeyId(id), key: [byte; 32] };
        assert_eq!(keys[..], [key(7, 0x11), key(8, 0xaf)]);
        for wrong in [
            "".to_owned(),
            "7".to_owned(),
            ones.clone(),
            format!("0:{ones}"),
            format!("-1:{ones}"),
            format!("7:{ones}1"),
            format!("7:{ones}11"),
            format!("7:{}", &ones[2..]),
            format!("7:{}", "é1".repeat(21)),
            format!("7:{ones},"),
            format!("7:{ones},7:{ones}"),
            (1..=5).map(|id| format!("{id}:{ones}")).collect::<std::vec::Vec<_>>().join(","),
        ] {
            assert_eq!(trust(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_boot_loader_reads_what_is_right_whatever_is_beside_it() {
        assert_eq!(Policy::of(""), Policy::default());
        let key = TrustedKey { id: KeyId(3), key: [0x22; 32] };
        let text =
            format!("nam\n# trust = 1\ntrust = 3:{}\ndowngrade=allow # a bench", "22".repeat(32));
        let policy = Policy::of(&text);
        assert_eq!((&policy.keys[..], policy.anti_downgrade), (&[key][..], AntiDowngrade::Off));
        assert_eq!(Policy::of("trust = 3\ndowngrade = maybe"), Policy::default());
    }
}

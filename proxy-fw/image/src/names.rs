//! What an image says it is: board, role, versions, key.

use core::fmt;

/// A name that is no board's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadName;

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a board's name is 1 to 16 small letters, digits and hyphens")
    }
}

impl core::error::Error for BadName {}

/// Name of a board: 1 to 16 small letters, digits and hyphens.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BoardName([u8; Self::MAX]);

impl BoardName {
    /// Bytes of the longest name.
    pub const MAX: usize = 16;

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// When it is empty, too long or has other characters.
    pub const fn new(name: &str) -> Result<Self, BadName> {
        let name = name.as_bytes();
        if name.is_empty() || name.len() > Self::MAX {
            return Err(BadName);
        }
        let mut bytes = [0; Self::MAX];
        let mut at = 0;
        while at < name.len() {
            if !Self::is_allowed(name[at]) {
                return Err(BadName);
            }
            bytes[at] = name[at];
            at += 1;
        }
        Ok(Self(bytes))
    }

    const fn is_allowed(byte: u8) -> bool {
        matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')
    }

    /// Reads a name that is filled up with zeros.
    ///
    /// # Errors
    ///
    /// As of [`new`](Self::new), and when something follows the first zero.
    pub fn from_padded(bytes: &[u8; Self::MAX]) -> Result<Self, BadName> {
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(Self::MAX);
        let (name, rest) = bytes.split_at(length);
        let name = core::str::from_utf8(name).map_err(|_| BadName)?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err(BadName);
        }
        Self::new(name)
    }

    /// The name, filled up with zeros.
    #[must_use]
    pub const fn padded(&self) -> &[u8; Self::MAX] {
        &self.0
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(Self::MAX);
        core::str::from_utf8(&self.0[..length]).unwrap_or_default()
    }
}

impl fmt::Display for BoardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for BoardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Which side of the fabric a card, or an image, is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// Either: the card's configuration decides.
    Any = 0,
    /// The host's side.
    Host = 1,
    /// The box's side.
    Box = 2,
}

impl Role {
    /// The role of this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Any),
            1 => Some(Self::Host),
            2 => Some(Self::Box),
            _ => None,
        }
    }

    /// Whether an image for `self` runs on a card of this role.
    #[must_use]
    pub fn runs_on(self, card: Self) -> bool {
        self == Self::Any || card == Self::Any || self == card
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Any => "any",
            Self::Host => "host",
            Self::Box => "box",
        })
    }
}

/// Version of an image, for people: semantic version and number of the build. Ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// Changes that need others to change.
    pub major: u16,
    /// Additions.
    pub minor: u16,
    /// Repairs.
    pub patch: u16,
    /// Number of the build.
    pub build: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch, build } = self;
        write!(f, "{major}.{minor}.{patch}+{build}")
    }
}

/// Grows when an image closes a hole: what an image below it must not bring back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SecurityVersion(pub u32);

/// Number of a signing key. 0 is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

impl KeyId {
    /// Of an image that is not signed.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_are_checked() {
        assert_eq!(BoardName::new("qemu-virt").unwrap().as_str(), "qemu-virt");
        assert_eq!(BoardName::new("abcdefghijklmnop").unwrap().to_string().len(), 16);
        for wrong in ["", "abcdefghijklmnopq", "QEMU", "a b", "ä", "a\0"] {
            assert_eq!(BoardName::new(wrong), Err(BadName), "{wrong:?}");
        }
        assert_eq!(BoardName::from_padded(b"litex\0\0\0\0\0\0\0\0\0\0x"), Err(BadName));
        assert_eq!(BoardName::from_padded(&[0xff; 16]), Err(BadName));
        let name = BoardName::new("litex").unwrap();
        assert_eq!(BoardName::from_padded(name.padded()), Ok(name));
    }

    #[test]
    fn roles_meet() {
        for (image, card, runs) in [
            (Role::Any, Role::Box, true),
            (Role::Host, Role::Any, true),
            (Role::Host, Role::Host, true),
            (Role::Host, Role::Box, false),
            (Role::Box, Role::Host, false),
        ] {
            assert_eq!(image.runs_on(card), runs, "{image} {card}");
        }
        for number in 0..=255 {
            assert!(Role::from_number(number).is_none_or(|role| role as u8 == number));
        }
    }

    #[test]
    fn versions_are_ordered() {
        let version = |major, minor, patch, build| Version { major, minor, patch, build };
        assert!(version(1, 2, 3, 4) < version(1, 2, 3, 5));
        assert!(version(1, 9, 9, 9) < version(2, 0, 0, 0));
        assert_eq!(version(1, 2, 3, 45).to_string(), "1.2.3+45");
    }
}

//! A card's own settings: who it is, and where its manager is.
//!
//! They are text, one `key = value` a line, in the configuration's two erase blocks of the card's
//! flash, in a [`Journal`]: new ones are written while the old ones are still whole
//! (`proxy-fw/image/docs/image.md`, "Journal").

mod policy;

pub use policy::{MAX_TRUSTED, Policy, TrustedKeys};

use crate::manage::Addressing;
use card_image::{AntiDowngrade, Journal, JournalError, Region, Role};
use core::fmt;
use core::str::FromStr;
use embedded_storage::nor_flash::NorFlash;
use proxy_core::control::{LogLevel, Name};
use proxy_core::limits::{MAX_PORTS, MAX_SLOTS};

/// Bytes of a record in the journal.
pub const RECORD: usize = 1024;

/// Bytes of a record's content: the text's length, little-endian, and the text.
const CONTENT: usize = RECORD - 8;

/// Bytes of the longest text.
pub const MAX_TEXT: usize = CONTENT - 2;

/// The settings as they are written.
pub type Text = heapless::String<MAX_TEXT>;

/// Reads the text of the newest settings in a flash's configuration region; `None` when there are
/// none.
///
/// # Errors
///
/// When the flash cannot be read.
///
/// # Panics
///
/// When the region is not two erase blocks of this flash.
pub fn load<F: NorFlash>(flash: &mut F, region: Region) -> Result<Option<Text>, F::Error> {
    Ok(open(flash, region)?.1)
}

/// The same with a flash that is opened for it, and once more where that failed: a bus may err where the
/// flash does not, and a card that does not know its settings waits for a person.
///
/// # Errors
///
/// When it failed both times.
///
/// # Panics
///
/// As [`load`].
pub fn load_twice<F: NorFlash>(
    mut open: impl FnMut() -> Result<F, F::Error>,
    region: Region,
) -> Result<Option<Text>, F::Error> {
    let mut once = || load(&mut open()?, region);
    once().or_else(|_| once())
}

fn open<F: NorFlash>(
    flash: &mut F,
    region: Region,
) -> Result<(Journal<RECORD>, Option<Text>), F::Error> {
    let mut newest = None;
    let journal = Journal::open(flash, region, |content| {
        let found = text(content);
        let is_text = found.is_some();
        newest = found.or(newest.take());
        is_text
    })?;
    Ok((journal, newest))
}

fn text(content: &[u8]) -> Option<Text> {
    let (length, rest) = content.split_first_chunk::<2>()?;
    let text = rest.get(..u16::from_le_bytes(*length).into())?;
    Text::try_from(core::str::from_utf8(text).ok()?).ok()
}

/// Why settings were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError<E> {
    /// The text is longer than [`MAX_TEXT`].
    TooLong,
    /// The flash did not take them.
    Journal(JournalError<E>),
}

impl<E: fmt::Debug> fmt::Display for StoreError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "settings have at most {MAX_TEXT} bytes"),
            Self::Journal(error) => write!(f, "the settings were not written: {error}"),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for StoreError<E> {}

/// Writes settings, which are the newest then. Whether they are right says [`Settings`].
///
/// # Errors
///
/// When the text is too long or the flash fails: those before are still the newest then.
///
/// # Panics
///
/// When the region is not two erase blocks of this flash.
pub fn store<F: NorFlash>(
    flash: &mut F,
    region: Region,
    text: &str,
) -> Result<(), StoreError<F::Error>> {
    if text.len() > MAX_TEXT {
        return Err(StoreError::TooLong);
    }
    let flash_failed = |error| StoreError::Journal(JournalError::Flash(error));
    let (mut journal, _) = open(flash, region).map_err(flash_failed)?;
    let mut content = [0xff; CONTENT];
    content[..2].copy_from_slice(&(text.len() as u16).to_le_bytes());
    content[2..2 + text.len()].copy_from_slice(text.as_bytes());
    journal.append(flash, &content).map_err(StoreError::Journal)
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `name`: unique in the fabric.
    pub name: Name,
    /// `manager`: its IPv4 address and port.
    pub manager: ([u8; 4], u16),
    /// `address`: `dhcp`, which is so when nothing is said, or an address with a prefix; with
    /// `gateway`, if there is one.
    pub addressing: Addressing,
    /// `vlan`: of the fabric's frames, 1 to 4094; untagged when nothing is said.
    pub vlan: Option<u16>,
    /// `places`: a host's ports or a box's slots; 4 when nothing is said.
    pub places: u8,
    /// `trial`: seconds that a new image has to join the manager before the card goes back to the
    /// image that was healthy; 300 when nothing is said.
    pub trial: u16,
    /// `log`: the least that is logged; `info` when nothing is said.
    pub log: LogLevel,
    /// `downgrade`: as [`Policy`] has it. `trust` is the boot loader's alone.
    pub anti_downgrade: AntiDowngrade,
    /// `gateway`, where there is no fixed address for it: nobody uses it, since DHCP gives a card its
    /// gateway with its address. A card says so ([`STRAY_GATEWAY`]) and goes on, for it can be reached;
    /// `dxpu-flash` does not write it.
    pub stray_gateway: Option<[u8; 4]>,
}

/// Why `gateway` is not used, and what to do: for a person who reads a card's log.
pub const STRAY_GATEWAY: &str = "gateway is not used: DHCP gives the card its own; add `address = \
    ADDRESS/PREFIX` for a fixed address, or take gateway away";

/// The most [`Settings::places`] that a card with an image for this role starts with; `None` where
/// the image does not say whether they are ports or slots.
#[must_use]
pub const fn most_places(role: Role) -> Option<usize> {
    match role {
        Role::Host => Some(MAX_PORTS),
        Role::Box => Some(MAX_SLOTS),
        Role::Any => None,
    }
}

/// Why settings cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// There are none.
    None,
    /// A line is no `key = value`; its number, from 1.
    Line(u16),
    /// A key that there is not, or that is there twice; its line.
    Key(u16),
    /// A value that its key does not have; its line.
    Value(u16),
    /// A key without which a card does not work.
    Missing(&'static str),
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("the card has no settings; write some with dxpu-flash"),
            Self::Line(line) => write!(f, "line {line} is not `key = value`"),
            Self::Key(line) => write!(f, "line {line}: there is no such key, or it is said twice"),
            Self::Value(line) => write!(f, "line {line}: its key does not have such a value"),
            Self::Missing(key) => write!(f, "{key} is missing"),
        }
    }
}

impl core::error::Error for SettingsError {}

#[derive(Default)]
struct Draft {
    name: Option<Name>,
    manager: Option<([u8; 4], u16)>,
    /// Address and prefix, or DHCP.
    address: Option<Option<([u8; 4], u8)>>,
    gateway: Option<[u8; 4]>,
    vlan: Option<u16>,
    places: Option<u8>,
    trial: Option<u16>,
    log: Option<LogLevel>,
    trust: Option<TrustedKeys>,
    downgrade: Option<AntiDowngrade>,
}

/// The keys and values of settings, with their lines' numbers.
fn lines(text: &str) -> impl Iterator<Item = (u16, Result<(&str, &str), SettingsError>)> {
    text.lines().zip(1_u16..).filter_map(|(line, number)| {
        let line = trim(split_once(line, b'#').map_or(line, |(line, _)| line));
        let parts = split_once(line, b'=').map(|(key, value)| (trim(key), trim(value)));
        (!line.is_empty()).then(|| (number, parts.ok_or(SettingsError::Line(number))))
    })
}

// As `str` has them, but there once: code for it is short where a card has little room.

#[inline(never)]
fn trim(text: &str) -> &str {
    text.trim_ascii()
}

/// The text before the first such character, which is of ASCII, and behind it.
#[inline(never)]
fn split_once(text: &str, character: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == character)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

impl FromStr for Settings {
    type Err = SettingsError;

    #[inline(never)] // its stack is needed once
    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let mut draft = Draft::default();
        for (number, line) in lines(text) {
            let (key, value) = line?;
            draft.take(key, value, number)?;
        }
        draft.finish()
    }
}

impl Draft {
    fn take(&mut self, key: &str, value: &str, line: u16) -> Result<(), SettingsError> {
        fn once<T>(
            place: &mut Option<T>,
            value: Option<T>,
            line: u16,
        ) -> Result<(), SettingsError> {
            if place.is_some() {
                return Err(SettingsError::Key(line));
            }
            *place = Some(value.ok_or(SettingsError::Value(line))?);
            Ok(())
        }
        match key {
            "name" => {
                let name = Some(value).filter(|name| !name.is_empty());
                once(&mut self.name, name.and_then(|name| Name::try_from(name).ok()), line)
            }
            "manager" => {
                let parts = split_once(value, b':');
                let manager = parts.and_then(|(ip, port)| Some((ipv4(ip)?, number(port)?)));
                once(&mut self.manager, manager, line)
            }
            "address" => once(&mut self.address, address(value), line),
            "gateway" => once(&mut self.gateway, ipv4(value), line),
            "vlan" => {
                let vlan = number(value).filter(|vlan| (1..=4094).contains(vlan));
                once(&mut self.vlan, vlan, line)
            }
            "places" => {
                let places = number(value).filter(|places| (1..=32).contains(places));
                once(&mut self.places, places.map(|places| places as u8), line)
            }
            "trial" => {
                let trial = number(value).filter(|trial| *trial > 0);
                once(&mut self.trial, trial, line)
            }
            "log" => once(&mut self.log, LogLevel::from_name(value), line),
            "trust" => once(&mut self.trust, policy::trust(value), line),
            "downgrade" => once(&mut self.downgrade, policy::downgrade(value), line),
            _ => Err(SettingsError::Key(line)),
        }
    }

    fn finish(self) -> Result<Settings, SettingsError> {
        let (addressing, stray_gateway) = match self.address.flatten() {
            None => (Addressing::Dhcp, self.gateway),
            Some((address, prefix)) => {
                (Addressing::Fixed { address, prefix, gateway: self.gateway }, None)
            }
        };
        Ok(Settings {
            name: self.name.ok_or(SettingsError::Missing("name"))?,
            manager: self.manager.ok_or(SettingsError::Missing("manager"))?,
            addressing,
            vlan: self.vlan,
            places: self.places.unwrap_or(4),
            trial: self.trial.unwrap_or(300),
            log: self.log.unwrap_or_default(),
            anti_downgrade: self.downgrade.unwrap_or_default(),
            stray_gateway,
        })
    }
}

/// All numbers of settings, but those of keys, are of this size: the code for it is there once.
#[inline(never)]
fn number(text: &str) -> Option<u16> {
    text.parse().ok()
}

/// An address, as `core::net::Ipv4Addr` reads one; with what is there already it is shorter.
#[inline(never)]
fn ipv4(text: &str) -> Option<[u8; 4]> {
    let mut address = [0; 4];
    let mut rest = Some(text);
    for byte in &mut address {
        let here = rest?;
        let parts = split_once(here, b'.');
        let part = parts.map_or(here, |(part, _)| part);
        // A zero before others is read as octal by some.
        let is_plain = part.bytes().all(|digit| digit.is_ascii_digit())
            && (part.len() == 1 || part.bytes().next() != Some(b'0'));
        *byte = number(part).filter(|_| is_plain)?.try_into().ok()?;
        rest = parts.map(|(_, rest)| rest);
    }
    rest.is_none().then_some(address)
}

/// `dhcp`, or an address and the length of its prefix.
#[allow(clippy::option_option)] // a value that is none is a value
fn address(text: &str) -> Option<Option<([u8; 4], u8)>> {
    if text == "dhcp" {
        return Some(None);
    }
    let (address, prefix) = split_once(text, b'/')?;
    let prefix = number(prefix).filter(|prefix| *prefix <= 32)?;
    Some(Some((ipv4(address)?, prefix as u8)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nor_model::{Direct, Nor, Part};
    use proptest::prelude::*;
    use std::string::String;

    proptest! {
        #[test]
        fn addresses_are_those_of_the_library(
            text in "[0-9]{1,3}(\\.[0-9]{1,3}){2,4}|[0-9+. ]{0,12}",
        ) {
            let said = core::net::Ipv4Addr::from_str(&text).ok().map(|address| address.octets());
            prop_assert_eq!(ipv4(&text), said);
        }
    }

    #[test]
    fn every_key_means_something() {
        let text = "# a card\nname = card-1\nmanager=10.0.2.2:7781 # there\n\
                    address = 10.0.2.20/24\ngateway = 10.0.2.1\nvlan = 100\nplaces = 16\ntrial = 60\nlog = warn\n\
                    downgrade = allow\n";
        let text = &std::format!("{text}trust = 7:{}\n", "0a".repeat(32));
        let settings: Settings = text.parse().unwrap();
        assert_eq!(settings.name, "card-1");
        assert_eq!(settings.manager, ([10, 0, 2, 2], 7781));
        let (address, gateway) = ([10, 0, 2, 20], Some([10, 0, 2, 1]));
        assert_eq!(settings.addressing, Addressing::Fixed { address, prefix: 24, gateway });
        assert_eq!((settings.vlan, settings.places, settings.trial), (Some(100), 16, 60));
        assert_eq!(settings.log, LogLevel::Warn);
        assert_eq!(settings.anti_downgrade, AntiDowngrade::Off);
        assert_eq!(settings.stray_gateway, None);
        assert_eq!(Policy::of(text).keys[0].key, [10; 32]);
        let few: Settings = "name=a\nmanager=1.2.3.4:5".parse().unwrap();
        assert_eq!((few.addressing, few.vlan), (Addressing::Dhcp, None));
        assert_eq!((few.places, few.trial, few.log), (4, 300, LogLevel::Info));
        assert_eq!(few.anti_downgrade, AntiDowngrade::BySecurityVersion);
    }

    #[test]
    fn a_gateway_without_a_fixed_address_is_kept_apart() {
        for address in ["", "address = dhcp\n"] {
            let text = std::format!("name=a\nmanager=1.2.3.4:5\n{address}gateway = 10.0.0.1");
            let settings: Settings = text.parse().unwrap();
            assert_eq!(settings.addressing, Addressing::Dhcp);
            assert_eq!(settings.stray_gateway, Some([10, 0, 0, 1]));
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        use SettingsError::{Key, Line, Missing, Value};
        for (text, error) in [
            ("", Missing("name")),
            ("name = a", Missing("manager")),
            ("name = a\nmanager", Line(2)),
            ("name = a\nname = b", Key(2)),
            ("nam = a", Key(1)),
            ("name =", Value(1)),
            ("manager = here:1", Value(1)),
            ("manager = 1.2.3.4", Value(1)),
            ("manager = 1.2.3.4:70000", Value(1)),
            ("address = 10.0.0.1", Value(1)),
            ("address = 10.0.0.1/33", Value(1)),
            ("vlan = 0", Value(1)),
            ("places = 33", Value(1)),
            ("trial = 0", Value(1)),
            ("log = loud", Value(1)),
            ("trust = 7", Value(1)),
            ("downgrade = yes", Value(1)),
        ] {
            assert_eq!(text.parse::<Settings>(), Err(error), "{text:?}");
        }
    }

    const REGION: Region = Region { start: 1024, len: 2048 };

    type Flash = Direct<4, 1024>;

    fn read(flash: &mut Flash) -> Option<Text> {
        load(flash, REGION).unwrap()
    }

    /// Longer than a program page, so that a cut can leave some pages.
    fn long(name: char) -> String {
        std::format!("name = {name}\n{}", "# more\n".repeat(100))
    }

    #[test]
    fn the_newest_text_counts() {
        let mut flash: Flash = Direct(Nor::new(Part::small(4096), 1));
        assert_eq!(read(&mut flash), None);
        for name in ['a', 'b', 'c', 'd', 'e'] {
            store(&mut flash, REGION, &long(name)).unwrap();
            assert_eq!(read(&mut flash).unwrap(), *long(name));
        }
        store(&mut flash, REGION, "").unwrap();
        assert_eq!(read(&mut flash).unwrap(), "");
        let longest = "#".repeat(MAX_TEXT);
        store(&mut flash, REGION, &longest).unwrap();
        assert_eq!(read(&mut flash).unwrap(), *longest);
        let too_long = store(&mut flash, REGION, &(longest + "#"));
        assert_eq!(too_long, Err(StoreError::TooLong));
        assert_eq!((flash.0.reprogrammed(), flash.0.unraised()), (0, 0));
    }

    #[test]
    fn a_power_cut_leaves_the_old_text_or_the_new() {
        let mut before: Flash = Direct(Nor::new(Part::small(4096), 1));
        for name in ['a', 'b'] {
            store(&mut before, REGION, &long(name)).unwrap();
        }
        let (old, new) = (long('b'), long('c'));
        let mut outcomes = [0, 0];
        for steps in 0.. {
            let mut flash = before.clone();
            flash.0.cut_after(steps);
            let done = store(&mut flash, REGION, &new);
            flash.0.power_on();
            let text = read(&mut flash).expect("there is one at any time");
            assert!(text == *old || text == *new, "after {steps} steps");
            outcomes[usize::from(text == *new)] += 1;
            // And it can be written again.
            store(&mut flash, REGION, &new).unwrap();
            assert_eq!(read(&mut flash).unwrap(), *new);
            if done.is_ok() {
                break;
            }
        }
        assert!(outcomes[0] > 10 && outcomes[1] > 0, "{outcomes:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_settings_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = text(&bytes);
            if let Ok(text) = core::str::from_utf8(&bytes) {
                let _ = text.parse::<Settings>();
            }
        }
    }
}

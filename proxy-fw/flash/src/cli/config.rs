//! `config`: the card's own settings.

use std::collections::BTreeMap;
use std::path::Path;

use card_image::{AntiDowngrade, Header, Role, SecurityVersion};
use serde::Serialize;
use soc::settings::{MAX_TEXT, Policy, Settings, SettingsError, StoreError, load, store};

use super::args::Config;
use super::write::{InSlots, headers};
use super::{Bench, cannot_read};
use crate::board::Board;
use crate::card::{Card, CardFlash};
use crate::failure::{Failure, Kind, Outcome};
use crate::probe::ProbeName;
use crate::settings::Unusable;
use crate::{files, settings};

#[derive(Serialize)]
struct View {
    /// Value by key; none when there are no settings.
    settings: Option<Values>,
    /// The text as it is in the flash, with its comments.
    text: Option<String>,
    /// Why the card cannot use them.
    wrong: Option<String>,
    /// Whether the card's program stands still.
    halted: bool,
}

impl View {
    fn new(text: Option<String>, wrong: Option<String>, halted: bool) -> Self {
        Self { settings: text.as_deref().map(values), text, wrong, halted }
    }
}

/// Settings by their keys.
pub(super) type Values = BTreeMap<String, String>;

/// The settings of a text. Lines that are none are left out.
pub(super) fn values(text: &str) -> Values {
    let said = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let settings = said.filter_map(|line| line.split_once('='));
    settings.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

pub(super) fn config(bench: &Bench, said: &Config) -> Outcome<()> {
    match said {
        Config::Get => get(bench),
        Config::Set { settings, file, no_start } => {
            set(bench, settings, file.as_deref(), *no_start)
        }
    }
}

/// The text of the settings that a card has.
pub(super) fn text(
    flash: &mut CardFlash<'_>,
    board: &Board,
    probe: &ProbeName,
) -> Outcome<Option<String>> {
    let text = load(flash, board.layout.config()).map_err(|fault| fault.told(probe))?;
    Ok(text.map(|text| text.as_str().to_owned()))
}

/// What the card's boot loader takes from the settings: whose images it starts, and how old ones.
pub(super) fn policy(
    flash: &mut CardFlash<'_>,
    board: &Board,
    probe: &ProbeName,
) -> Outcome<Policy> {
    Ok(Policy::of(&text(flash, board, probe)?.unwrap_or_default()))
}

fn get(bench: &Bench) -> Outcome<()> {
    let mut card = bench.card()?;
    let (board, probe) = (card.board.clone(), card.probe.clone());
    let settings = text(&mut card.flash_to_read()?, &board, &probe)?;
    bench.tell_halted(&card);
    let wrong = settings.as_deref().and_then(|text| usable(text).err());
    let view = View::new(settings, wrong.map(|failure| failure.what), card.was_halted());
    bench.out.print(&view, |view| match (&view.text, &view.wrong) {
        (None, _) => "no settings: write some with `dxpu-flash config set`".to_owned(),
        (Some(text), None) => text.clone(),
        (Some(text), Some(wrong)) => format!("{text}\n# {wrong}"),
    })
}

/// Whether there is room for settings, and the card, and then the manager, can use them.
fn usable(text: &str) -> Outcome<Settings> {
    if text.len() > MAX_TEXT {
        return Err(too_long(text.len()));
    }
    let settings: Settings = text.parse().map_err(|error| cannot_be(error, text))?;
    settings::check(&settings).map_err(told)?;
    Ok(settings)
}

fn too_long(bytes: usize) -> Failure {
    Failure::new(Kind::Input, format!("settings have at most {MAX_TEXT} bytes, these have {bytes}"))
        .check("leave out comments: dxpu-flash config set --file FILE")
}

fn told(unusable: Unusable) -> Failure {
    let another = format!("give another: dxpu-flash config set {}=VALUE", unusable.key);
    let advice = unusable.advice.map_or(another, str::to_owned);
    Failure::new(Kind::Input, format!("the card could not use these settings: {unusable}"))
        .check(advice)
}

/// Whether the images that are in the card's slots can be started with settings; and the next one, as far
/// as it could be with those that the card has.
fn startable(bench: &Bench, card: &mut Card, new: &str, old: &str) -> Outcome<()> {
    let settings: Settings = new.parse().map_err(|error| cannot_be(error, new))?;
    let InSlots { lowest, next, there } = headers(card)?;
    for (slot, header) in there {
        let or_erase = |failure: Failure| {
            failure.check(format!("where the image is to go: `dxpu-flash erase slot-{slot}`"))
        };
        settings::check_places(settings.places, header.role).map_err(|unusable| {
            let has = format!("slot {slot} has an image for a {}", header.role);
            or_erase(told(unusable).check(has))
        })?;
        // The other one is refused when it is its turn, which is what the settings say.
        if next.is_none_or(|next| next == slot) {
            let why = not_any_more(bench, &card.board, &header, lowest, [old, new])?;
            if let Some((why, advice)) = why {
                let what = format!("the card would not start the image in slot {slot} any more");
                let failure = Failure::new(Kind::Input, format!("{what}: {why}")).check(advice);
                return Err(or_erase(failure));
            }
        }
    }
    Ok(())
}

/// Why a card that starts an image with old settings does not with new ones, and what to do.
fn not_any_more(
    bench: &Bench,
    board: &Board,
    image: &Header,
    lowest: SecurityVersion,
    settings: [&str; 2],
) -> Outcome<Option<(String, &'static str)>> {
    let policies = settings.map(Policy::of);
    let mut is_known = [false; 2];
    for (known, policy) in is_known.iter_mut().zip(&policies) {
        *known = image.check_signature(&bench.keys(Some(board), policy)?).is_ok();
    }
    let is_new_enough = policies
        .map(|policy| policy.anti_downgrade == AntiDowngrade::Off || image.security >= lowest);
    const NO_MORE: [bool; 2] = [true, false];
    Ok(if is_known == NO_MORE {
        let why = format!("it is signed with key {}, which these settings do not trust", image.key);
        Some((why, "leave its key in `trust`, beside others: trust=NUMBER:KEY,NUMBER:KEY"))
    } else if is_new_enough == NO_MORE {
        let why = format!(
            "it has security version {}, and the card runs none below {}",
            image.security.0, lowest.0
        );
        Some((why, "write a newer image first, or leave `downgrade=allow`"))
    } else {
        None
    })
}

/// Whether an image can be started with the settings that the card has. Where they are wrong
/// otherwise, the firmware tells of it.
pub(super) fn starts_with(role: Role, text: Option<&str>) -> Outcome<()> {
    let Some(Ok(settings)) = text.map(str::parse::<Settings>) else { return Ok(()) };
    settings::check_places(settings.places, role).map_err(told)
}

fn set(
    bench: &Bench,
    changes: &[(String, String)],
    file: Option<&Path>,
    no_start: bool,
) -> Outcome<()> {
    let from_file = match file {
        Some(path) => Some(read_text(path)?),
        None => None,
    };
    let mut card = bench.card()?;
    let (board, probe) = (card.board.clone(), card.probe.clone());
    let region = board.layout.config();
    let old = text(&mut card.flash_to_read()?, &board, &probe)?;
    let base = from_file.or_else(|| old.clone()).unwrap_or_default();
    check_taken_away(&base, changes)?;
    let new = changed(&base, changes);
    // What the card could not use is not written.
    usable(&new)?;
    startable(bench, &mut card, &new, old.as_deref().unwrap_or_default())?;
    check_numbers(bench, &board, &new, old.as_deref().unwrap_or_default())?;
    let is_new = old.as_deref() != Some(&new);
    if is_new {
        let mut flash = card.flash_to_write()?;
        store(&mut flash, region, &new).map_err(|error| match error {
            StoreError::Journal(card_image::JournalError::Flash(fault)) => fault.told(&probe),
            StoreError::TooLong => too_long(new.len()),
            error => Failure::new(Kind::Flash, error),
        })?;
    }
    match (is_new, no_start) {
        (true, false) => card.reset()?,
        (false, false) => bench.tell_halted(&card),
        (_, true) => {}
    }
    let halted = if is_new { no_start } else { card.was_halted() };
    let view = View::new(Some(new), None, halted);
    bench.out.print(&view, |view| view.text.clone().unwrap_or_default())
}

/// Looks for a key that is new among the settings, and whose number means another one to the boot loader:
/// what it signs would never be started.
fn check_numbers(bench: &Bench, board: &Board, new: &str, old: &str) -> Outcome<()> {
    let built_in = bench.keys(Some(board), &Policy::default())?;
    let old = Policy::of(old);
    for key in Policy::of(new).keys.iter().filter(|key| !old.keys.contains(key)) {
        let Some(other) = built_in.iter().find(|other| other.id == key.id) else { continue };
        if other.key != key.key {
            let what = format!(
                "trust: the boot loader was built with another key of the number {}, and goes by that",
                key.id
            );
            return Err(Failure::new(Kind::Input, what).checks(&[
                "give this key another number, in `trust` and where images are signed (--key-number)",
                "where the boot loader was built with other keys than the board file has: \
                 --trust NUMBER=FILE names one, or --board-file a file that has them",
            ]));
        }
    }
    Ok(())
}

fn read_text(path: &Path) -> Outcome<String> {
    files::text(path).map_err(|error| cannot_read(path, &error))
}

fn cannot_be(error: SettingsError, text: &str) -> Failure {
    let failure =
        Failure::new(Kind::Input, format!("the card could not use these settings: {error}"));
    let line = match error {
        SettingsError::Line(line) | SettingsError::Key(line) | SettingsError::Value(line) => line,
        SettingsError::Missing(key) => {
            return failure.check(format!("add it: dxpu-flash config set {key}=VALUE"));
        }
        SettingsError::None => return failure,
    };
    match text.lines().nth(usize::from(line).saturating_sub(1)) {
        Some(line) => {
            failure.check(format!("`{line}`; `dxpu-flash config set --help` names keys and values"))
        }
        None => failure,
    }
}

/// Looks for a key that is to be taken away and is no setting's: whoever has mistyped it would go on
/// with the setting still there. A key that nobody knows can be in the text, and is then taken away.
fn check_taken_away(text: &str, changes: &[(String, String)]) -> Outcome<()> {
    let there = values(text);
    let is_known = |key: &str| {
        !matches!(
            format!("{key} = x").parse::<Settings>(),
            Err(SettingsError::Key(_) | SettingsError::Line(_))
        )
    };
    let away = changes.iter().filter(|(_, value)| value.is_empty()).map(|(key, _)| key);
    match away.into_iter().find(|key| !there.contains_key(*key) && !is_known(key)) {
        None => Ok(()),
        Some(key) => Err(Failure::new(Kind::Input, format!("there is no setting {key:?}"))
            .check("`dxpu-flash config set --help` names keys and values")),
    }
}

/// The text with keys changed, added, or taken away where the value is empty. Comments and the
/// order of lines stay.
fn changed(text: &str, changes: &[(String, String)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (key, value) in changes {
        let is_key = |line: &String| {
            let said = line.split('#').next().unwrap_or_default();
            said.split_once('=').is_some_and(|(found, _)| found.trim() == key)
        };
        let place = lines.iter().position(is_key);
        match (place, value.is_empty()) {
            (Some(place), true) => drop(lines.remove(place)),
            (Some(place), false) => lines[place] = format!("{key} = {value}"),
            (None, true) => {}
            (None, false) => lines.push(format!("{key} = {value}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn changes(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn settings_are_changed_one_by_one() {
        let text = "# rack 7\nname = a # old\nmanager=1.2.3.4:5\n";
        let list = [("name", "b"), ("vlan", "100"), ("manager", ""), ("places", "")];
        assert_eq!(changed(text, &changes(&list)), "# rack 7\nname = b\nvlan = 100\n");
        assert_eq!(changed("", &changes(&[("name", "a")])), "name = a\n");
    }

    #[test]
    fn what_is_taken_away_is_a_setting() {
        let text = "name = a\nold-key = 1 # of another version\n";
        let check = |key: &str| check_taken_away(text, &changes(&[("name", "b"), (key, "")]));
        // What is not there may be a setting of others.
        for key in ["name", "old-key", "vlan", "trust", "downgrade", "gateway"] {
            assert!(check(key).is_ok(), "{key}");
        }
        for key in ["downgrad", "Name", "a key"] {
            let failure = check(key).unwrap_err();
            assert_eq!(failure.kind, Kind::Input);
            assert!(failure.what.contains(key), "{failure}");
        }
    }

    #[test]
    fn values_are_told_by_their_keys() {
        let text = "# rack 7\nname = a # old\nmanager=1.2.3.4:5\nno setting\n";
        let both = [("name", "a"), ("manager", "1.2.3.4:5")];
        let both = both.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(values(text), both.into());
    }

    #[test]
    fn what_cannot_be_is_told_with_its_line() {
        let text = "name = a\nmanager = here\n";
        let failure = cannot_be(text.parse::<Settings>().unwrap_err(), text);
        assert!(failure.check[0].starts_with("`manager = here`"), "{failure:?}");
        let failure = cannot_be("name = a".parse::<Settings>().unwrap_err(), "name = a");
        assert_eq!(failure.check, ["add it: dxpu-flash config set manager=VALUE"]);
    }

    proptest! {
        #[test]
        fn what_was_set_is_there_once(text in "([a-c] ?= ?[a-z]{1,3}\n){0,5}", key in "[a-c]", value in "[a-z]{1,3}") {
            let new = changed(&text, &[(key.clone(), value.clone())]);
            let line = format!("{key} = {value}");
            prop_assert!(new.lines().any(|found| found == line));
            let gone = changed(&new, &[(key.clone(), String::new())]);
            prop_assert!(gone.lines().count() < new.lines().count());
        }
    }
}

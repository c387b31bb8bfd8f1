//! `list`, `info` and `verify`: what is there.

use std::path::Path;

use card_image::{AntiDowngrade, Header, Refusal, Role, SlotId, SlotState};
use serde::Serialize;
use soc::settings::Policy;

use super::args::Verify;
use super::config::Values;
use super::images::{refused, refused_in_slot};
use super::output::Output;
use super::views::{ImageView, SlotView};
use super::write::{in_flash, open_store};
use super::{Bench, WAS_HALTED, read_image, read_program, regions};
use crate::card::Card;
use crate::failure::{Failure, Kind, Outcome};
use crate::image::whole;
use crate::probe::{ProbeName, none_connected, on_usb, that_fit};

/// A probe, and what it finds.
#[derive(Debug, Serialize)]
struct ProbeView {
    probe: String,
    what: String,
    /// The board behind it.
    card: Option<String>,
    /// IDCODEs on its chain.
    idcodes: Vec<u32>,
    /// Why no card is found.
    trouble: Option<String>,
}

pub(super) fn list(bench: &Bench) -> Outcome<()> {
    let probes = probes(bench.args.probe.as_ref());
    let is_one_named = bench.args.probe.is_some() && probes.len() == 1;
    let candidates = bench.candidates()?;
    let mut views = Vec::new();
    for (name, what) in probes {
        let opened = Card::open(Some(&name), &candidates, bench.args.clock);
        let (card, idcodes, trouble) = match opened {
            Ok(card) => {
                let idcodes = card.taps.iter().filter_map(|tap| tap.idcode).collect();
                (Some(card.board.name.to_string()), idcodes, None)
            }
            // Of the one probe that was asked for all is told.
            Err(failure) if is_one_named => return Err(failure),
            Err(failure) => (None, Vec::new(), Some(failure.what)),
        };
        views.push(ProbeView { probe: name.to_string(), what, card, idcodes, trouble });
    }
    listed(bench.out, &views)
}

/// The probes to look at, each with what it is: where one is named, no others than that name fits.
fn probes(named: Option<&ProbeName>) -> Vec<(ProbeName, String)> {
    let found = match named {
        None => on_usb(),
        Some(ProbeName::Usb(selector)) => that_fit(selector),
        Some(ProbeName::Remote(_)) => Vec::new(),
    };
    match (named, found.is_empty()) {
        (Some(name), true) => vec![(name.clone(), "as named".to_owned())],
        _ => found.into_iter().map(|found| (found.name, found.what)).collect(),
    }
}

/// Prints probes. None is a failure, as it is for every other command: whoever goes on after this
/// one has something to go on with.
fn listed(out: Output, views: &[ProbeView]) -> Outcome<()> {
    if views.is_empty() {
        return Err(none_connected());
    }
    out.print(&views, |views| views.iter().map(ProbeView::text).collect::<Vec<_>>().join("\n"))
}

impl ProbeView {
    fn text(&self) -> String {
        let card = match (&self.card, &self.trouble) {
            (Some(card), _) => format!("card {card}"),
            (None, Some(trouble)) => trouble.clone(),
            (None, None) => "no card".to_owned(),
        };
        format!("{}  {}\n    {card}", self.probe, self.what)
    }
}

/// A card, and what is in its flash.
#[derive(Debug, Serialize)]
struct CardView {
    board: String,
    description: String,
    probe: String,
    idcodes: Vec<u32>,
    /// Whether its program stood still before this, and goes on doing so.
    halted: bool,
    /// Manufacturer, kind and capacity.
    flash_id: String,
    /// Whether a boot state was ever recorded.
    recorded: bool,
    /// The highest security version that was healthy: what is older is not started, unless
    /// `older_images` is true.
    lowest_security_version: u32,
    /// Whether the settings have images started that are older than that.
    older_images: bool,
    slots: Vec<SlotView>,
    /// The settings, secrets left out; none when there are none.
    settings: Option<Values>,
    /// Their text.
    #[serde(skip)]
    settings_text: Option<String>,
}

pub(super) fn info(bench: &Bench) -> Outcome<()> {
    let mut card = bench.card()?;
    let (board, probe) = (card.board.clone(), card.probe.clone());
    let idcodes = card.taps.iter().filter_map(|tap| tap.idcode).collect();
    let mut flash = card.flash_to_read()?;
    let id = flash.jedec_id();
    let store = open_store(&mut flash, &board, &probe)?;
    let settings = super::config::text(&mut flash, &board, &probe)?;
    let policy = Policy::of(settings.as_deref().unwrap_or_default());
    let keys = bench.keys(Some(&board), &policy)?;
    let requirements = board.requirements(Role::Any, &keys, policy.anti_downgrade);
    let look = store.look(&mut flash, &requirements).map_err(|fault| fault.told(&probe))?;
    let mut slots = Vec::new();
    for slot in SlotId::ALL {
        let header = store.header(&mut flash, slot).map_err(|fault| fault.told(&probe))?;
        slots.push(SlotView::new(slot, store.state(), &look, header.as_ref().ok()));
    }
    drop(flash);
    let settings_text = settings.as_deref().map(without_secrets);
    let view = CardView {
        board: board.name.to_string(),
        description: board.description.clone(),
        probe: probe.to_string(),
        idcodes,
        halted: card.was_halted(),
        flash_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        recorded: store.is_recorded(),
        lowest_security_version: store.state().lowest_security.0,
        older_images: policy.anti_downgrade == AntiDowngrade::Off,
        slots,
        settings: settings_text.as_deref().map(super::config::values),
        settings_text,
    };
    bench.out.print(&view, CardView::text)
}

impl CardView {
    fn text(&self) -> String {
        let idcodes: Vec<String> = self.idcodes.iter().map(|id| format!("{id:#010x}")).collect();
        let mut lines = vec![
            format!("card   {}, {}", self.board, self.description),
            format!("probe  {}, IDCODE {}", self.probe, idcodes.join(" ")),
            format!("flash  {}", self.flash_id),
        ];
        if self.halted {
            lines.push(WAS_HALTED.to_owned());
        }
        if !self.recorded {
            lines.push(
                "no boot state is recorded: the card is new, or was filled by another program"
                    .to_owned(),
            );
        } else if let lowest @ 1.. = self.lowest_security_version {
            lines.push(match self.older_images {
                false => format!("starts no image below security version {lowest}"),
                true => format!(
                    "starts images below security version {lowest}, too: the settings have \
                     `downgrade = allow`"
                ),
            });
        }
        lines.extend(self.slots.iter().map(SlotView::text));
        match &self.settings_text {
            Some(settings) => {
                lines.push("settings".to_owned());
                lines.extend(settings.lines().map(|line| format!("    {line}")));
            }
            None => lines.push("no settings: write some with `dxpu-flash config set`".to_owned()),
        }
        lines.join("\n")
    }
}

/// Settings whose keys speak of secrets, without their values.
fn without_secrets(text: &str) -> String {
    let line = |line: &str| match line.split_once('=') {
        Some((key, _)) if is_secret(key) => format!("{}= (not shown)", key),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn is_secret(key: &str) -> bool {
    ["key", "secret", "password", "psk"].iter().any(|word| key.to_lowercase().contains(word))
}

/// What was checked.
#[derive(Debug, Serialize)]
struct Verified {
    slot: Option<String>,
    image: Option<ImageView>,
    bytes: u64,
    /// Whether it is right, and was started and did not say that it is healthy.
    failed: bool,
    /// Whether the card's program stands still.
    halted: bool,
}

impl Verified {
    fn text(&self) -> String {
        let failed = if self.failed { "; it failed, and is not started again" } else { "" };
        match (&self.slot, &self.image) {
            (Some(slot), Some(image)) => format!("slot {slot}: right, {}{failed}", image.text()),
            _ => format!("boot loader: right, {} bytes", self.bytes),
        }
    }
}

pub(super) fn verify(bench: &Bench, said: &Verify) -> Outcome<()> {
    let named = said.image.as_deref().map(|path| Ok((path, read_image(path)?))).transpose()?;
    let boot_loader = said.boot_loader.as_deref().map(read_program).transpose()?;
    let mut card = bench.card()?;
    let verified = match (named, &said.boot_loader, boot_loader) {
        (Some((path, bytes)), ..) => {
            against_image(bench, &mut card, path, &bytes, said.slot).map(|one| vec![one])
        }
        (_, Some(path), Some(bytes)) => {
            against_boot_loader(bench, &mut card, path, bytes).map(|one| vec![one])
        }
        _ => what_is_there(bench, &mut card, said.slot),
    };
    bench.tell_halted(&card);
    let mut verified = verified?;
    for one in &mut verified {
        one.halted = card.was_halted();
    }
    bench.out.print(&verified, |verified| {
        verified.iter().map(Verified::text).collect::<Vec<_>>().join("\n")
    })
}

/// Compares the boot loader with one that was named.
fn against_boot_loader(
    bench: &Bench,
    card: &mut Card,
    path: &Path,
    bytes: Vec<u8>,
) -> Outcome<Verified> {
    let bytes = in_flash(path, bytes, &card.board)?;
    let at = card.board.layout.boot_loader().start;
    match difference(bench, card, at, &bytes)? {
        None => Ok(Verified {
            slot: None,
            image: None,
            bytes: bytes.len() as u64,
            failed: false,
            halted: false,
        }),
        Some(at) => Err(other_boot_loader(path, card, at)?),
    }
}

/// The first address that differs.
fn difference(bench: &Bench, card: &mut Card, at: u32, bytes: &[u8]) -> Outcome<Option<u32>> {
    let probe = card.probe.clone();
    let mut flash = card.flash_to_read()?;
    let difference = regions::difference(&mut flash, at, bytes, bench.out);
    difference.map_err(|fault| fault.told(&probe))
}

/// What is there instead of a boot loader, which differs at an address.
fn other_boot_loader(path: &Path, card: &mut Card, differs: u32) -> Outcome<Failure> {
    let (region, probe) = (card.board.layout.boot_loader(), card.probe.clone());
    let mut flash = card.flash_to_read()?;
    let blank = regions::begins_blank(&mut flash, region).map_err(|fault| fault.told(&probe))?;
    let what = match blank {
        true => "no boot loader is there: its place is blank".to_owned(),
        false => format!(
            "another boot loader is there than {}, or a part of it: it differs at {differs:#x}",
            path.display()
        ),
    };
    let again = format!("write it: `dxpu-flash write --boot-loader {}`", path.display());
    Ok(Failure::new(Kind::Flash, what).check(again))
}

/// What is in a slot instead of an image, which differs at an address.
fn other_image(
    slot: SlotId,
    there: Result<&Header, &Refusal>,
    wanted: &Header,
    at: u32,
) -> Failure {
    let what = match there {
        Ok(there) if there == wanted => {
            format!("slot {slot} has the image, but not all of it is right: it differs at {at:#x}")
        }
        Ok(there) => {
            format!("slot {slot} has another image: {}", ImageView::from(there).text())
        }
        Err(Refusal::NotAnImage) => format!("slot {slot} has no image"),
        Err(refusal) => format!("slot {slot} has something else: {refusal}"),
    };
    Failure::new(Kind::Flash, what)
        .check(format!("write it there: `dxpu-flash write IMAGE --slot {slot}`"))
        .check("`dxpu-flash info` shows what is in both slots")
}

/// Compares a slot with an image, byte for byte. Without a slot, one that has it: of both, one that has all
/// of it.
fn against_image(
    bench: &Bench,
    card: &mut Card,
    path: &Path,
    bytes: &[u8],
    slot: Option<SlotId>,
) -> Outcome<Verified> {
    let header = whole(bytes).map_err(|refusal| refused(path, refusal))?;
    let (board, probe) = (card.board.clone(), card.probe.clone());
    let mut flash = card.flash_to_read()?;
    let store = open_store(&mut flash, &board, &probe)?;
    let mut wrong = None;
    for one in slot.map_or(SlotId::ALL.to_vec(), |slot| vec![slot]) {
        let there = store.header(&mut flash, one).map_err(|fault| fault.told(&probe))?;
        if slot.is_none() && there.as_ref() != Ok(&header) {
            continue;
        }
        let differs =
            regions::difference(&mut flash, board.layout.slot(one).start, bytes, bench.out);
        match differs.map_err(|fault| fault.told(&probe))? {
            None => {
                return Ok(Verified {
                    slot: Some(one.to_string()),
                    image: Some(ImageView::from(&header)),
                    bytes: bytes.len() as u64,
                    failed: matches!(store.state().slot(one), SlotState::Failed { .. }),
                    halted: false,
                });
            }
            Some(at) => {
                wrong.get_or_insert_with(|| other_image(one, there.as_ref(), &header, at));
            }
        }
    }
    Err(wrong.unwrap_or_else(|| {
        Failure::new(Kind::Flash, format!("no slot has the image {}", path.display()))
            .check("`dxpu-flash info` shows what is there")
    }))
}

/// Checks the images that are there as the boot loader does.
fn what_is_there(bench: &Bench, card: &mut Card, slot: Option<SlotId>) -> Outcome<Vec<Verified>> {
    let (board, probe) = (card.board.clone(), card.probe.clone());
    let mut flash = card.flash_to_read()?;
    let policy = super::config::policy(&mut flash, &board, &probe)?;
    let keys = bench.keys(Some(&board), &policy)?;
    let requirements = board.requirements(Role::Any, &keys, policy.anti_downgrade);
    let store = open_store(&mut flash, &board, &probe)?;
    let mut verified = Vec::new();
    for one in slot.map_or(SlotId::ALL.to_vec(), |slot| vec![slot]) {
        let checked = store.verify(&mut flash, one, &requirements);
        let header: Result<Header, Refusal> = checked.map_err(|fault| fault.told(&probe))?;
        let state = store.state().slot(one);
        let may_be_started = state.is_bootable() || state.is_used_up();
        let recorded = state.image().filter(|_| may_be_started);
        match header {
            // An image that is right by itself may not be the one that was recorded.
            Ok(header) if recorded.is_some_and(|recorded| recorded != header.id()) => {
                return Err(refused_in_slot(one, Refusal::NotAsRecorded));
            }
            Ok(header) => verified.push(Verified {
                failed: matches!(state, SlotState::Failed { .. }),
                halted: false,
                slot: Some(one.to_string()),
                image: Some(ImageView::from(&header)),
                bytes: header.image_len(),
            }),
            // An empty slot is nothing wrong, unless it was asked for.
            Err(Refusal::NotAnImage) if slot.is_none() => {}
            Err(refusal) => return Err(refused_in_slot(one, refusal)),
        }
    }
    if verified.is_empty() {
        return Err(Failure::new(Kind::Flash, "neither slot has an image")
            .check("write one with `dxpu-flash write IMAGE`"));
    }
    Ok(verified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_probe_is_a_failure() {
        let failure = listed(Output::new(true), &[]).unwrap_err();
        assert_eq!(failure.kind.exit_code(), 3);
        assert!(failure.what.contains("no probe is connected"), "{failure}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = "name = a\ntls-key = abc\nPassword=x\n# key";
        assert_eq!(
            without_secrets(text),
            "name = a\ntls-key = (not shown)\nPassword= (not shown)\n# key"
        );
    }
}

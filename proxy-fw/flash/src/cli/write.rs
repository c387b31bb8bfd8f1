//! `write`: images, boot loaders, and erasing it all before.

use std::path::Path;

use card_image::{
    AntiDowngrade, Begun, BootState, BootStore, Header, Look, Refusal, Region, Role,
    SecurityVersion, SlotId, StoreError, TrustedKey,
};
use embedded_storage::nor_flash::NorFlash;
use serde::Serialize;
use soc::settings::Policy;

use super::args::Write;
use super::images::refused;
use super::output::Output;
use super::{Bench, config, read_image, read_program, regions};
use crate::board::Board;
use crate::card::{Card, CardFlash, FlashFault};
use crate::failure::{Failure, Kind, Outcome};
use crate::image::{BootLoader, from_elf, whole};
use crate::probe::ProbeName;

/// Bytes that are written between two steps of the bar.
const STEP: usize = 4096;

/// What is said of a card that nothing starts on.
const NO_BOOT_LOADER: &str = "none is on the card, which starts nothing: write one with \
                              `dxpu-flash write --boot-loader FILE`";

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Written {
    board: String,
    erased: bool,
    /// The lowest security version that the card ran, where that was erased; 0 is none.
    lowest_security_version_forgotten: u32,
    /// Whether the boot loader was written, was there already, or there is none.
    boot_loader: Option<&'static str>,
    slot: Option<String>,
    /// Bytes of the image that were there already, from a write that was interrupted.
    resumed_at: Option<u32>,
    version: Option<String>,
    started: bool,
    /// Whether the card's program stands still.
    halted: bool,
}

/// An image that the card will take.
struct Wanted {
    path: std::path::PathBuf,
    bytes: Vec<u8>,
    role: Role,
}

pub(super) fn write(bench: &Bench, said: &Write) -> Outcome<()> {
    // What is wrong with files is said before a probe is looked for.
    let image = said.image.as_deref().map(wanted).transpose()?;
    let boot_loader = said.boot_loader.as_deref().map(read_program).transpose()?;
    let mut card = bench.card()?;
    if let Some(image) = &image {
        check_image(bench, &card.board, image, said.erase_all)?;
    }
    let boot_loader = match (&said.boot_loader, boot_loader) {
        (Some(path), Some(bytes)) => Some(in_flash(path, bytes, &card.board)?),
        _ => None,
    };
    let mut written = Written { board: card.board.name.to_string(), ..Written::default() };
    let jobs = Jobs { bench, said, image, boot_loader };
    // A card that does not take the image goes on as it was.
    let seen = jobs.look(&mut card)?;
    jobs.run(&mut card, seen, &mut written)?;
    finish(&mut card, said.no_start, &mut written)?;
    bench.out.print(&written, text)
}

/// What is written, once all of it was checked.
struct Jobs<'a> {
    bench: &'a Bench,
    said: &'a Write,
    image: Option<Wanted>,
    boot_loader: Option<Vec<u8>>,
}

/// What was seen in a card's slots. It takes a while: where the boot state is the same, so are they.
struct Seen {
    state: BootState,
    look: Look,
}

/// Where an image goes on a card that takes it.
struct Place {
    slot: SlotId,
    keys: Vec<TrustedKey>,
    policy: AntiDowngrade,
    store: BootStore,
    seen: Seen,
}

impl Jobs<'_> {
    /// Looks whether the card takes the image, where it has something that may speak against it and
    /// can be looked at: else that is seen when it was reset.
    fn look(&self, card: &mut Card) -> Outcome<Option<Seen>> {
        let Some(image) = self.image.as_ref().filter(|_| !self.said.erase_all) else {
            return Ok(None);
        };
        let (board, probe) = (card.board.clone(), card.probe.clone());
        let Some(mut flash) = card.flash_to_look()? else { return Ok(None) };
        let place = self.place(&mut flash, (&board, &probe), image, None)?;
        Ok(Some(place.seen))
    }

    fn run(&self, card: &mut Card, seen: Option<Seen>, written: &mut Written) -> Outcome<()> {
        let out = self.bench.out;
        let (board, probe) = (card.board.clone(), card.probe.clone());
        let mut flash = card.flash_to_write()?;
        if self.said.erase_all {
            let all = regions::all(&board.layout);
            written.lowest_security_version_forgotten =
                regions::lowest_security(&mut flash, board.layout, &probe)?;
            regions::erase_regions(&mut flash, &board.layout, &all, &probe, out)?;
            written.erased = true;
        }
        let image = self.image.as_ref();
        let placed =
            image.map(|image| Ok((image, self.place(&mut flash, (&board, &probe), image, seen)?)));
        let placed = placed.transpose()?;
        let region = board.layout.boot_loader();
        if let Some(bytes) = &self.boot_loader {
            let job = Job { flash: &mut flash, probe: &probe, out };
            written.boot_loader = Some(write_boot_loader(job, region, bytes)?);
        } else if regions::begins_blank(&mut flash, region).map_err(|fault| fault.told(&probe))? {
            written.boot_loader = Some(NO_BOOT_LOADER);
        }
        if let Some((image, place)) = placed {
            let job = Job { flash: &mut flash, probe: &probe, out };
            write_image(job, &board, place, image, written)?;
        }
        Ok(())
    }

    /// Where an image goes: the card takes it, by its settings and its slots as they are. Nothing is
    /// written but, where the flash can be, what was found in slots of which nothing is recorded.
    fn place(
        &self,
        flash: &mut CardFlash<'_>,
        (board, probe): (&Board, &ProbeName),
        image: &Wanted,
        seen: Option<Seen>,
    ) -> Outcome<Place> {
        let told = |error: StoreError<FlashFault>| store_failure(error, probe, &image.path);
        let settings = config::text(flash, board, probe)?;
        let policy = Policy::of(settings.as_deref().unwrap_or_default());
        let keys = self.bench.keys(Some(board), &policy)?;
        let requirements = board.requirements(Role::Any, &keys, policy.anti_downgrade);
        let mut store = open_store(flash, board, probe)?;
        let room = board.layout.slots()[0].len;
        let lowest = store.state().lowest_security;
        let header = Header::check_image(&image.bytes, &requirements, room, lowest)
            .map_err(|refusal| refused(&image.path, refusal))?;
        config::starts_with(image.role, settings.as_deref())?;
        if flash.is_to_be_written() {
            store.record_found(flash, &requirements).map_err(told)?;
        }
        let state = *store.state();
        let look = match seen.filter(|seen| seen.state == state) {
            Some(seen) => seen.look,
            None => store.look(flash, &requirements).map_err(|fault| fault.told(probe))?,
        };
        // One that the boot loader does not start: a cut leaves the card what it had. The same command
        // again finds its image there already, and leaves the other slot what may be gone back to.
        let is_done = |slot: &SlotId| {
            let there = state.slot(*slot);
            there.is_bootable() && there.image() == Some(header.id())
        };
        let usual = || {
            look.next.filter(is_done).unwrap_or_else(|| look.next.map_or(SlotId::A, SlotId::other))
        };
        let slot = self.said.slot.unwrap_or_else(usual);
        if !store.may_take(&look, slot, header.id()) {
            return Err(told(StoreError::LastGood(slot)));
        }
        let policy = policy.anti_downgrade;
        Ok(Place { slot, keys, policy, store, seen: Seen { state, look } })
    }
}

fn finish(card: &mut Card, no_start: bool, written: &mut Written) -> Outcome<()> {
    if !no_start {
        card.reset()?;
    }
    (written.started, written.halted) = (!no_start, no_start);
    Ok(())
}

fn text(written: &Written) -> String {
    let mut lines = Vec::new();
    if written.erased {
        lines.push("erased: boot loader, boot state, settings, both slots".to_owned());
    }
    if let lowest @ 1.. = written.lowest_security_version_forgotten {
        lines.push(regions::forgets(lowest));
    }
    if let Some(how) = written.boot_loader {
        lines.push(format!("boot loader: {how}"));
    }
    if let (Some(slot), Some(version)) = (&written.slot, &written.version) {
        let resumed = written
            .resumed_at
            .map_or(String::new(), |at| format!("; {at} bytes of it were there already"));
        lines
            .push(format!("slot {slot}: version {version}, verified, to be started next{resumed}"));
    }
    lines.push(match written.started {
        // There is nothing that starts.
        true if written.boot_loader == Some(NO_BOOT_LOADER) => format!("{}: reset", written.board),
        true => {
            format!("{}: reset; `dxpu-flash log --elf FILE` shows how it starts", written.board)
        }
        false => format!("{}: left halted", written.board),
    });
    lines.join("\n")
}

fn wanted(path: &Path) -> Outcome<Wanted> {
    let bytes = read_image(path)?;
    let role = whole(&bytes).map_err(|refusal| refused(path, refusal))?.role;
    Ok(Wanted { path: path.to_owned(), bytes, role })
}

/// Whether a card of this board takes it, as far as can be said of a card that was erased. What one
/// that was not has in its settings is looked at there: they may trust its key.
fn check_image(bench: &Bench, board: &Board, image: &Wanted, erased: bool) -> Outcome<()> {
    let room = board.layout.slots()[0].len;
    let keys = bench.keys(Some(board), &Policy::default())?;
    let requirements = board.requirements(Role::Any, &keys, AntiDowngrade::Off);
    let checked = Header::check_image(&image.bytes, &requirements, room, SecurityVersion(0));
    match checked.map(drop) {
        Err(Refusal::OtherBoard(other)) => {
            let path = image.path.display();
            let what = format!("{path} is for the board {other}, the card is a {}", board.name);
            Err(Failure::new(Kind::Image, what)
                .check("use the image that was built for this board")
                .check("is the probe at the card that is meant?"))
        }
        Err(refusal @ Refusal::UnknownKey(_)) if erased => Err(refused(&image.path, refusal)
            .check("--erase-all takes the settings away, and the keys that they trust")),
        Err(Refusal::UnknownKey(_)) => Ok(()),
        checked => checked.map_err(|refusal| refused(&image.path, refusal)),
    }
}

/// A boot loader's bytes as they are in flash: of an ELF file, or as they are. They are what starts
/// it on this board wants them to be.
pub(super) fn in_flash(path: &Path, bytes: Vec<u8>, board: &Board) -> Outcome<Vec<u8>> {
    let region = board.layout.boot_loader();
    let wrong = |what: String| Failure::new(Kind::Image, format!("{}: {what}", path.display()));
    let bytes = if bytes.starts_with(b"\x7fELF") {
        let program = from_elf(&bytes).map_err(|error| {
            wrong(error.to_string())
                .check("give the file `boot` or `boot.bin` of the firmware's build")
        })?;
        // A boot loader runs from flash, or from memory that images leave alone.
        if board.memory.contains(program.load, 1) {
            let what = format!("it runs at {:#010x}, where images do", program.load);
            return Err(wrong(what).check(
                "is it the boot loader (`boot`) and no firmware? Firmware is written as an image",
            ));
        }
        if !board.has_place_for(program.load) {
            let what =
                format!("it runs at {:#010x}, where a {} has no memory", program.load, board.name);
            return Err(wrong(what).check("is it the boot loader of another board?"));
        }
        board.boot_loader.in_flash(&program.payload)
    } else {
        bytes
    };
    if bytes.starts_with(&card_image::MAGIC) {
        return Err(wrong("it is a firmware image, no boot loader".to_owned())
            .check("write it without --boot-loader"));
    }
    if bytes.is_empty() || bytes.len() as u64 > u64::from(region.len) {
        let what = format!("it has {} bytes, there is room for 1 to {}", bytes.len(), region.len);
        return Err(wrong(what).check("give the file `boot` or `boot.bin` of the firmware's build"));
    }
    if board.boot_loader == BootLoader::Plain && BootLoader::LitexBios.check(&bytes).is_ok() {
        let what = format!("LiteX's BIOS starts it, and a {} has none", board.name);
        return Err(wrong(what).check("is it the boot loader of another board?"));
    }
    board.boot_loader.check(&bytes).map_err(|why| {
        wrong(why.to_string()).check(
            "give the ELF file of the boot loader (`boot`), or the file that the firmware's build makes of \
             it beside that (`boot.bin`, `litex-boot.bin`)",
        )
    })?;
    Ok(bytes)
}

/// A card's flash, and how one hears of it.
struct Job<'a, 'card> {
    flash: &'a mut CardFlash<'card>,
    probe: &'a ProbeName,
    out: Output,
}

/// Writes a boot loader, unless it is there already: while it is written the card does not start
/// without a probe.
fn write_boot_loader(job: Job<'_, '_>, region: Region, bytes: &[u8]) -> Outcome<&'static str> {
    let Job { flash, probe, out } = job;
    let told = |fault: FlashFault| {
        fault
            .told(probe)
            .check("the card does not start until its boot loader is whole: write it again")
    };
    if regions::difference(flash, region.start, bytes, out).map_err(told)?.is_none() {
        return Ok("it was there already");
    }
    let bar = out.bar("boot loader", bytes.len() as u64);
    flash.erase(region.start, region.start + region.len).map_err(told)?;
    for (number, step) in bytes.chunks(STEP).enumerate() {
        flash.write(region.start + (number * STEP) as u32, step).map_err(told)?;
        bar.inc(step.len() as u64);
    }
    bar.finish_and_clear();
    match regions::difference(flash, region.start, bytes, out).map_err(told)? {
        None => Ok("written and verified"),
        Some(at) => Err(kept_badly(at)),
    }
}

/// Of what was written just now and is not what is read back.
fn kept_badly(at: u32) -> Failure {
    Failure::new(Kind::Flash, format!("the flash does not keep what is written at {at:#x}")).checks(
        &[
            "write it again; if it stays so, the flash is worn out, or part of it is write-protected",
            "try a slower clock: --clock 1000",
        ],
    )
}

fn write_image(
    job: Job<'_, '_>,
    board: &Board,
    place: Place,
    image: &Wanted,
    written: &mut Written,
) -> Outcome<()> {
    let Job { flash, probe, out } = job;
    let told = |error: StoreError<FlashFault>| store_failure(error, probe, &image.path);
    let Place { slot, keys, policy, mut store, seen } = place;
    let requirements = &board.requirements(Role::Any, &keys, policy);
    if seen.look.wrong[slot.index()].is_some() {
        store.give_up(flash, slot).map_err(told)?;
    }
    let bytes = &image.bytes[..];
    let begun = store.begin(flash, slot, None, bytes, requirements).map_err(told)?;
    if let Begun::At(at) = begun {
        let bar = out.bar("image", bytes.len() as u64);
        bar.set_position(at.into());
        let mut at = at as usize;
        if at > card_image::HEADER_LEN {
            written.resumed_at = Some(at as u32);
        }
        for step in bytes[at..].chunks(STEP) {
            store.write(flash, at as u32, step).map_err(told)?;
            at += step.len();
            bar.set_position(at as u64);
        }
        bar.finish_and_clear();
        let spinner = out.spinner("verifying");
        store.finish(flash, requirements).map_err(told)?;
        spinner.finish_and_clear();
    } else {
        written.resumed_at = Some(bytes.len() as u32);
    }
    store.want(flash, slot, requirements).map_err(told)?;
    let header = Header::parse(bytes).expect("it was checked");
    written.slot = Some(slot.to_string());
    written.version = Some(header.version.to_string());
    Ok(())
}

/// Reads a card's boot state.
pub(super) fn open_store(
    flash: &mut CardFlash<'_>,
    board: &Board,
    probe: &ProbeName,
) -> Outcome<BootStore> {
    BootStore::open(flash, board.layout).map_err(|fault| fault.told(probe))
}

/// What is in a card's slots.
pub(super) struct InSlots {
    /// The lowest security version that the card runs.
    pub(super) lowest: SecurityVersion,
    /// The slot that is started at the next boot, where that is recorded.
    pub(super) next: Option<SlotId>,
    /// The images' headers.
    pub(super) there: Vec<(SlotId, Header)>,
}

/// Looks at the headers of the images that are in a card's slots.
pub(super) fn headers(card: &mut Card) -> Outcome<InSlots> {
    let (board, probe) = (card.board.clone(), card.probe.clone());
    let mut flash = card.flash_to_read()?;
    let store = open_store(&mut flash, &board, &probe)?;
    let mut there = Vec::new();
    for slot in SlotId::ALL {
        let header = store.header(&mut flash, slot).map_err(|fault| fault.told(&probe))?;
        there.extend(header.ok().map(|header| (slot, header)));
    }
    let state = store.state();
    Ok(InSlots { lowest: state.lowest_security, next: state.to_be_started(), there })
}

pub(super) fn store_failure(
    error: StoreError<FlashFault>,
    probe: &ProbeName,
    path: &Path,
) -> Failure {
    match error {
        StoreError::Flash(fault) | StoreError::Journal(card_image::JournalError::Flash(fault)) => {
            fault.told(probe)
        }
        StoreError::Refused(refusal) => refused(path, refusal),
        StoreError::LastGood(slot) => Failure::new(Kind::Image, error.to_string())
            .check(format!("write the other slot: --slot {}", slot.other())),
        StoreError::NotKept { at } => kept_badly(at),
        // Somebody else has changed the slots meanwhile, or what is recorded of them is wrong.
        error => Failure::new(Kind::Flash, error.to_string())
            .check("give the same command again; `dxpu-flash info` shows what is recorded of the slots")
            .check("if it stays so: `dxpu-flash erase boot-state`, and the images are taken as new ones; \
                    the lowest security version is forgotten with it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::BUILT_IN;
    use crate::image::tests::elf;

    #[test]
    fn a_boot_loader_of_another_board_is_refused() {
        let boards = BUILT_IN.map(|(name, text)| Board::parse(name, text).unwrap());
        // Where each board's boot loader runs.
        let places: [u32; 2] = [0x8078_0000, 0x4078_0000];
        for (its, board) in boards.iter().enumerate() {
            for (other, at) in places.into_iter().enumerate() {
                let file = elf(at, &[(at, &[1; 64])]);
                let taken = in_flash(Path::new("boot"), file, board);
                assert_eq!(taken.is_ok(), its == other, "{}: {taken:?}", board.name);
                if let Err(refused) = taken {
                    assert!(refused.to_string().contains("has no memory"), "{refused}");
                }
            }
            let firmware = elf(board.memory.start, &[(board.memory.start, &[1; 64])]);
            assert!(in_flash(Path::new("fw"), firmware, board).is_err());
        }
    }
}

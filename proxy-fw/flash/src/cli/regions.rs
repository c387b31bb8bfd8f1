//! `read` and `erase`: regions of the flash.

use std::io::Write as _;
use std::path::Path;

use card_image::{BootStore, Layout, Region, SlotId};
use clap::ValueEnum;
use embedded_storage::nor_flash::{NorFlash, ReadNorFlash};

use super::args::{Erase, Part, Read};
use super::output::Output;
use super::write::store_failure;
use super::{Bench, cannot_write};
use crate::card::{CardFlash, FlashFault};
use crate::failure::Outcome;
use crate::files::{self, Beside};
use crate::probe::ProbeName;

/// Bytes that are read between two steps of the bar.
const STEP: usize = 16 << 10;

/// Bytes without anything in them that tell of a region that is blank.
const BLANK: usize = 256;

/// All regions of a layout.
pub(super) fn all(layout: &Layout) -> [Region; 5] {
    let [a, b] = layout.slots();
    [layout.boot_loader(), layout.boot_state(), layout.config(), a, b]
}

fn regions(part: Part, layout: &Layout) -> Vec<Region> {
    let every = all(layout);
    match part {
        Part::All => every.to_vec(),
        part => vec![every[part as usize]],
    }
}

/// Reads flash and compares it: the first address that differs.
pub(super) fn difference(
    flash: &mut CardFlash<'_>,
    start: u32,
    bytes: &[u8],
    out: Output,
) -> Result<Option<u32>, FlashFault> {
    let bar = out.bar("comparing", bytes.len() as u64);
    for (number, step) in bytes.chunks(STEP).enumerate() {
        let at = start + (number * STEP) as u32;
        if let Some(at) = flash.difference(at, step)? {
            return Ok(Some(at));
        }
        bar.inc(step.len() as u64);
    }
    bar.finish_and_clear();
    Ok(None)
}

/// Whether there is nothing at the beginning of a region.
pub(super) fn begins_blank(flash: &mut CardFlash<'_>, region: Region) -> Result<bool, FlashFault> {
    Ok(flash.difference(region.start, &[0xff; BLANK])?.is_none())
}

pub(super) fn read(bench: &Bench, said: &Read) -> Outcome<()> {
    // Before a probe is looked for: a file is never overwritten, and half of a region is worth nothing.
    let cannot = |error: std::io::Error| cannot_write(&said.file, &error);
    files::is_free(&said.file).map_err(cannot)?;
    let mut file = Beside::begin(&said.file).map_err(cannot)?;
    let (bytes, halted) = copy(bench, said, |bytes| file.write_all(bytes).map_err(cannot))?;
    files::is_free(&said.file).and_then(|()| file.finish(&said.file)).map_err(cannot)?;
    // As it is shown: a name need not be UTF-8, JSON is.
    let file = said.file.display().to_string();
    let body = serde_json::json!({ "file": file, "bytes": bytes, "halted": halted });
    bench.out.print(&body, |_| format!("{file}: {bytes} bytes"))
}

/// Reads regions; the bytes of all of them, and whether the card's program stands still.
fn copy(
    bench: &Bench,
    said: &Read,
    mut take: impl FnMut(&[u8]) -> Outcome<()>,
) -> Outcome<(u64, bool)> {
    let mut card = bench.card()?;
    let probe = card.probe.clone();
    let regions = regions(said.part, &card.board.layout);
    let total = regions.iter().map(|region| u64::from(region.len)).sum();
    let bar = bench.out.bar("reading", total);
    let mut flash = card.flash_to_read()?;
    for region in regions {
        for at in (region.start..region.start + region.len).step_by(STEP) {
            let mut bytes = [0; STEP];
            let some = STEP.min((region.end() - u64::from(at)) as usize);
            flash.read(at, &mut bytes[..some]).map_err(|fault| fault.told(&probe))?;
            take(&bytes[..some])?;
            bar.inc(some as u64);
        }
    }
    bar.finish_and_clear();
    drop(flash);
    bench.tell_halted(&card);
    Ok((total, card.was_halted()))
}

pub(super) fn erase(bench: &Bench, said: &Erase) -> Outcome<()> {
    let mut card = bench.card()?;
    let (probe, layout) = (card.probe.clone(), card.board.layout);
    let regions = regions(said.part, &layout);
    let total: u64 = regions.iter().map(|region| u64::from(region.len)).sum();
    let mut flash = card.flash_to_write()?;
    let forgotten = match said.part {
        Part::BootState | Part::All => lowest_security(&mut flash, layout, &probe)?,
        _ => 0,
    };
    let slot = match said.part {
        Part::SlotA => Some(SlotId::A),
        Part::SlotB => Some(SlotId::B),
        Part::BootLoader | Part::BootState | Part::Config | Part::All => None,
    };
    if let Some(slot) = slot {
        give_up(&mut flash, layout, slot, &probe)?;
    }
    erase_regions(&mut flash, &layout, &regions, &probe, bench.out)?;
    let region = said.part.to_possible_value().expect("all are shown").get_name().to_owned();
    let body = serde_json::json!({
        "region": region,
        "erased": total,
        "lowest_security_version_forgotten": forgotten,
        "halted": true,
    });
    bench.out.print(&body, |_| {
        let forgotten = match forgotten {
            0 => String::new(),
            lowest => format!("; {}", forgets(lowest)),
        };
        format!(
            "{total} bytes are erased; the card is halted, `dxpu-flash reset` starts it{forgotten}"
        )
    })
}

/// The lowest security version that a card runs, which is in its boot state.
pub(super) fn lowest_security(
    flash: &mut CardFlash<'_>,
    layout: Layout,
    probe: &ProbeName,
) -> Outcome<u32> {
    let store = BootStore::open(flash, layout).map_err(|fault| fault.told(probe))?;
    Ok(store.state().lowest_security.0)
}

/// What is said of a lowest security version whose record was erased.
pub(super) fn forgets(lowest: u32) -> String {
    format!(
        "the card started no image below security version {lowest}, which is forgotten: it takes older \
         ones again, until it has run one of that version"
    )
}

/// Records that there is nothing to be started in a slot, nor a writing to go on with.
fn give_up(
    flash: &mut CardFlash<'_>,
    layout: Layout,
    slot: SlotId,
    probe: &ProbeName,
) -> Outcome<()> {
    let mut store = BootStore::open(flash, layout).map_err(|fault| fault.told(probe))?;
    if store.state().slot(slot).image().is_none() {
        return Ok(());
    }
    store.give_up(flash, slot).map_err(|error| store_failure(error, probe, Path::new("boot state")))
}

pub(super) fn erase_regions(
    flash: &mut CardFlash<'_>,
    layout: &Layout,
    regions: &[Region],
    probe: &ProbeName,
    out: Output,
) -> Outcome<()> {
    let bar = out.bar("erasing", regions.iter().map(|region| u64::from(region.len)).sum());
    let block = layout.erase_block();
    for region in regions {
        for at in (region.start..region.start + region.len).step_by(block as usize) {
            flash.erase(at, at + block).map_err(|fault| fault.told(probe))?;
            bar.inc(block.into());
        }
    }
    bar.finish_and_clear();
    Ok(())
}

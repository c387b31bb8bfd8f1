//! Whether what a board file says can be.

use card_image::{BoardName, KeyId, Layout, LayoutError, LayoutParts, Region, TrustedKey};
use probe_rs_target::{
    Chip, ChipFamily, CoreAccessOptions, CoreType, MemoryRegion, RawFlashAlgorithm,
};

use super::{Board, file};
use crate::image::keys;

/// What is wrong, and the keys that lead there.
pub(super) struct Wrong {
    pub(super) path: &'static [&'static str],
    pub(super) what: String,
}

fn wrong<T>(path: &'static [&'static str], what: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong { path, what: what.into() })
}

pub(super) fn checked(file: file::File) -> Result<Board, Wrong> {
    let file::File { card, target } = file;
    let name = BoardName::new(&card.board)
        .map_err(|error| Wrong { path: &["card", "board"], what: error.to_string() })?;
    if card.idcode & 1 == 0 {
        return wrong(&["card", "idcode"], "the lowest bit of an IDCODE is 1 (IEEE 1149.1, 12)");
    }
    if card.clock_khz == 0 {
        return wrong(&["card", "clock_khz"], "a clock of 0 kHz never ticks; 1000 is a safe value");
    }
    if !card.spi.is_multiple_of(4) {
        return wrong(&["card", "spi"], "the SPI block's address is a multiple of 4");
    }
    let layout = layout(&card.layout)?;
    if u64::from(card.window) + u64::from(layout.parts().flash) > 1 << 32 {
        return wrong(&["card", "window"], "the flash's window ends beyond 32 bits");
    }
    let memory = region(card.memory);
    if memory.len == 0 || memory.end() > 1 << 32 {
        return wrong(&["card", "memory"], "the memory is empty or ends beyond 32 bits");
    }
    check_target(&target, card.window, &layout)?;
    let keys: Vec<_> = card.keys.iter().map(key).collect::<Result<_, _>>()?;
    if let Some(twice) = twice(&keys) {
        let what = format!("two keys have the number {twice}");
        return wrong(&["card", "keys"], what);
    }
    Ok(Board {
        name,
        description: card.description,
        idcode: card.idcode,
        clock_khz: card.clock_khz,
        spi: card.spi,
        window: card.window,
        memory,
        layout,
        boot_loader: card.boot_loader,
        keys,
        target,
    })
}

fn region(range: file::Range) -> Region {
    Region { start: range.start, len: range.length }
}

fn layout(said: &file::Layout) -> Result<Layout, Wrong> {
    let parts = LayoutParts {
        flash: said.flash,
        erase_block: said.erase_block,
        progress: said.progress,
        boot_loader: region(said.boot_loader),
        boot_state: region(said.boot_state),
        config: region(said.config),
        slots: [region(said.slot_a), region(said.slot_b)],
    };
    Layout::new(parts).map_err(|error| Wrong {
        path: match error {
            LayoutError::EraseBlock => &["card", "layout", "erase_block"],
            LayoutError::Progress => &["card", "layout", "progress"],
            LayoutError::Slots => &["card", "layout", "slot_a"],
            LayoutError::Region(name)
            | LayoutError::NotTwoBlocks(name)
            | LayoutError::Overlap(_, name) => path_of(name),
        },
        what: error.to_string(),
    })
}

fn path_of(region: &str) -> &'static [&'static str] {
    match region {
        "boot loader" => &["card", "layout", "boot_loader"],
        "boot state" => &["card", "layout", "boot_state"],
        "configuration" => &["card", "layout", "config"],
        "slot a" => &["card", "layout", "slot_a"],
        "slot b" => &["card", "layout", "slot_b"],
        _ => &["card", "layout"],
    }
}

fn key(said: &file::Key) -> Result<TrustedKey, Wrong> {
    let id = KeyId(said.number);
    if id == KeyId::NONE {
        return wrong(&["card", "keys", "number"], "a key's number is not 0");
    }
    match keys::public(&said.public) {
        Ok(key) => Ok(TrustedKey { id, key }),
        Err(what) => wrong(&["card", "keys", "public"], format!("key {id}: {what}")),
    }
}

/// A number that several keys have, of which only one would count.
pub(crate) fn twice(keys: &[TrustedKey]) -> Option<KeyId> {
    let mut numbers = keys.iter().zip(1..).filter(|(key, next)| {
        keys[*next..].iter().any(|other| other.id == key.id && other.key != key.key)
    });
    numbers.next().map(|(key, _)| key.id)
}

/// The target is for this program: one chip with one RISC-V core, and an algorithm for the flash
/// that the layout is of.
fn check_target(target: &ChipFamily, window: u32, layout: &Layout) -> Result<(), Wrong> {
    let [chip] = &target.variants[..] else {
        return wrong(&["target", "variants"], "a board is one chip; put each into its own file");
    };
    let [core] = &chip.cores[..] else {
        return wrong(&["target", "cores"], "the card's processor has one core; name one");
    };
    if core.core_type != CoreType::Riscv {
        return wrong(&["target", "cores", "type"], "the card's core is of the type `riscv`");
    }
    let [algorithm] = &target.flash_algorithms[..] else {
        return wrong(&["target", "flash_algorithms"], "there is one flash, so one algorithm");
    };
    if chip.flash_algorithms != [algorithm.name.clone()] {
        let what = format!("the chip's one algorithm is `{}`", algorithm.name);
        return wrong(&["target", "variants", "flash_algorithms"], what);
    }
    check_tunnel(chip)?;
    check_flash(algorithm, window, layout)?;
    check_memory(algorithm, &chip.memory_map)
}

/// The instruction that leads through an FPGA fits into the register of its TAP.
fn check_tunnel(chip: &Chip) -> Result<(), Wrong> {
    let Some(jtag) = &chip.jtag else { return Ok(()) };
    let Some(tunnel) = &jtag.riscv_tunnel else { return Ok(()) };
    let place = match &chip.cores[0].core_access_options {
        CoreAccessOptions::Riscv(options) => options.jtag_tap.unwrap_or(0),
        _ => 0,
    };
    let tap = jtag.scan_chain.as_ref().and_then(|chain| chain.get(place));
    let Some(bits) = tap.and_then(|tap| tap.ir_len) else { return Ok(()) };
    if u64::from(tunnel.ir_id) >> bits.min(63) == 0 {
        return Ok(());
    }
    let what = format!(
        "`ir_id` is an instruction of the core's TAP, whose register has {bits} bits: {:#x} does not fit",
        tunnel.ir_id
    );
    wrong(&["target", "jtag", "riscv_tunnel"], what)
}

fn check_flash(algorithm: &RawFlashAlgorithm, window: u32, layout: &Layout) -> Result<(), Wrong> {
    let properties = &algorithm.flash_properties;
    let whole = u64::from(window)..u64::from(window) + u64::from(layout.parts().flash);
    if properties.address_range != whole {
        let what = format!(
            "the flash is {:#x} to {:#x}, as `card` has it in window and layout",
            whole.start, whole.end
        );
        return wrong(&["target", "flash_algorithms", "address_range"], what);
    }
    let block = u64::from(layout.erase_block());
    if !matches!(&properties.sectors[..], [only] if only.address == 0 && only.size == block) {
        let what = format!("the sectors are all {block:#x} long, as the layout's erase blocks");
        return wrong(&["target", "flash_algorithms", "sectors"], what);
    }
    if properties.page_size != 256 || properties.erased_byte_value != 0xff {
        let what = "pages have 256 bytes, which are 0xff when they are erased";
        return wrong(&["target", "flash_algorithms", "page_size"], what);
    }
    let length = algorithm.instructions.len() as u64;
    let (Some(init), Some(check)) = (algorithm.pc_init, algorithm.pc_blank_check) else {
        let what =
            "the algorithm needs the functions Init and BlankCheck (`pc_init`, `pc_blank_check`)";
        return wrong(&["target", "flash_algorithms", "name"], what);
    };
    let entries = [init, check, algorithm.pc_program_page, algorithm.pc_erase_sector];
    let mut entries = entries.into_iter().chain(algorithm.pc_uninit);
    if length == 0 || entries.any(|entry| entry >= length) || algorithm.data_section_offset > length
    {
        let what = "the algorithm's code is missing or shorter than where its functions are; \
                    `cargo xtask flash-algorithm` puts it there";
        return wrong(&["target", "flash_algorithms", "instructions"], what);
    }
    Ok(())
}

/// The algorithm is loaded where there is memory, also for the breakpoint before it.
fn check_memory(algorithm: &RawFlashAlgorithm, map: &[MemoryRegion]) -> Result<(), Wrong> {
    let memories = map.iter().filter_map(MemoryRegion::as_ram_region).map(|ram| ram.range.clone());
    // Two words before the code; probe-rs reads one more before them.
    let places: Vec<_> =
        memories.map(|memory| memory.start.saturating_add(16)..memory.end).collect();
    if places.is_empty() {
        return wrong(&["target", "memory_map"], "no memory (`!Ram`) is in the map");
    }
    if algorithm.load_address.is_some_and(|at| places.iter().any(|place| place.contains(&at))) {
        return Ok(());
    }
    let from: Vec<_> = places.iter().map(|place| format!("{:#x}", place.start)).collect();
    let what = format!("the algorithm is loaded to memory, from {} on", from.join(" or "));
    wrong(&["target", "flash_algorithms", "load_address"], what)
}

//! The loadable bytes of an ELF file, in a row.

use object::LittleEndian;
use object::elf::{EM_RISCV, ET_EXEC, FileHeader32, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use super::Program;

/// Bytes of the longest payload. What is longer has segments where no card has memory for both.
pub const MAX_PAYLOAD: u64 = 64 << 20;

/// Why an ELF file is no program for a card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// It is none, or damaged.
    #[error(
        "it is no ELF file for a 32-bit little-endian processor ({0}); give the file that cargo built for riscv32imac-unknown-none-elf"
    )]
    NotElf(String),
    /// It is for another processor.
    #[error(
        "it is for another processor (ELF machine {0}, RISC-V is 243); give the file that cargo built for riscv32imac-unknown-none-elf"
    )]
    OtherProcessor(u16),
    /// It is not linked, or linked to be loaded anywhere.
    #[error(
        "it is no executable with fixed addresses (ELF type {0}); give the firmware's own file, not a library or object file"
    )]
    NotExecutable(u16),
    /// Nothing in it is loaded.
    #[error("it has no segment that is loaded; was it linked with the board's linker script?")]
    Empty,
    /// A segment's bytes are not in the file.
    #[error("its segment at {0:#010x} is cut off; build it again")]
    CutOff(u32),
    /// Two segments have an address in common.
    #[error("its segments overlap at {0:#010x}; the linker script is wrong")]
    Overlap(u32),
    /// From the first byte to the last it is too much.
    #[error(
        "its segments are {0} bytes apart, {MAX_PAYLOAD} are the most; something is linked to another memory than the rest"
    )]
    TooLong(u64),
    /// The first instruction is elsewhere.
    #[error("its entry {0:#010x} is not in what is loaded; the linker script is wrong")]
    NoEntry(u32),
}

/// Makes a program of an ELF file: the segments that are loaded, by their physical address, with
/// zeros between them. What is zero at the end (`.bss`) is the program's own to clear.
///
/// # Errors
///
/// When the file is none, or no program for a card.
pub fn from_elf(elf: &[u8]) -> Result<Program, ElfError> {
    let bad = |error: object::Error| ElfError::NotElf(error.to_string());
    let header = FileHeader32::<LittleEndian>::parse(elf).map_err(bad)?;
    // Big-endian files are parsed, too.
    let endian = header.endian().map_err(bad)?;
    let machine = header.e_machine(endian);
    if machine != EM_RISCV {
        return Err(ElfError::OtherProcessor(machine));
    }
    let kind = header.e_type(endian);
    if kind != ET_EXEC {
        return Err(ElfError::NotExecutable(kind));
    }
    let mut segments = Vec::new();
    for segment in header.program_headers(endian, elf).map_err(bad)? {
        if segment.p_type(endian) != PT_LOAD || segment.p_filesz(endian) == 0 {
            continue;
        }
        let at = segment.p_paddr(endian);
        let data = segment.data(endian, elf).map_err(|()| ElfError::CutOff(at))?;
        segments.push((at, data));
    }
    segments.sort_by_key(|(at, _)| *at);
    let payload = joined(&segments)?;
    let (load, entry) = (segments[0].0, header.e_entry(endian));
    let offset = entry.checked_sub(load).ok_or(ElfError::NoEntry(entry))?;
    if offset as usize >= payload.len() {
        return Err(ElfError::NoEntry(entry));
    }
    Ok(Program { load, entry, payload })
}

/// The section in which a firmware's ELF file says for which role and board it is (`program_for!` of
/// `board-common`). It is not loaded: a card never sees it.
const PURPOSE: &[u8] = b".dxpu.program";

/// What a firmware says of itself in its ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// The role that it is for, as images name it.
    pub role: String,
    /// The board that it is for.
    pub board: String,
}

/// For what the program of an ELF file says that it is, if it does.
#[must_use]
pub fn purpose(elf: &[u8]) -> Option<Purpose> {
    let header = FileHeader32::<LittleEndian>::parse(elf).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, elf).ok()?;
    let (_, section) = sections.section_by_name(endian, PURPOSE)?;
    let text = std::str::from_utf8(section.data(endian, elf).ok()?).ok()?;
    let (role, board) = text.trim_end_matches('\0').split_once(' ')?;
    Some(Purpose { role: role.to_owned(), board: board.to_owned() })
}

/// Segments by rising address, with zeros between them.
fn joined(segments: &[(u32, &[u8])]) -> Result<Vec<u8>, ElfError> {
    let (first, last) = match segments {
        [first, .., last] => (first, last),
        [only] => (only, only),
        [] => return Err(ElfError::Empty),
    };
    let load = u64::from(first.0);
    let length = u64::from(last.0) + last.1.len() as u64 - load;
    if length > MAX_PAYLOAD {
        return Err(ElfError::TooLong(length));
    }
    let mut payload = Vec::with_capacity(length as usize);
    for (at, data) in segments {
        let gap = (u64::from(*at) - load).checked_sub(payload.len() as u64);
        let gap = gap.ok_or(ElfError::Overlap(*at))?;
        payload.resize(payload.len() + gap as usize, 0);
        payload.extend_from_slice(data);
    }
    Ok(payload)
}

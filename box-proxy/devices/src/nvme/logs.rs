//! Log pages (NVM Express 1.4 section 5.14.1).

use super::Nvme;
use super::entry::Sqe;
use super::identify::FIRMWARE;
use super::status::Status;
use std::collections::VecDeque;

/// Entries of the error log.
pub(super) const ERROR_ENTRIES: usize = 64;
const ERROR_ENTRY_LEN: usize = 64;

/// The composite temperature that the model has, in kelvins.
pub(super) const TEMPERATURE: u16 = 313;

/// A log page that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Page {
    Error = 1,
    Health = 2,
    Firmware = 3,
    Effects = 5,
    Sanitize = 0x81,
}

/// The last errors, newest first.
#[derive(Default)]
pub(super) struct ErrorLog {
    entries: VecDeque<[u8; ERROR_ENTRY_LEN]>,
    count: u64,
}

impl ErrorLog {
    /// Errors since the device was made.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// A command failed.
    pub(super) fn add(&mut self, sq: u16, sqe: &Sqe, status: Status) {
        // Which byte and bit is wrong is not told: FFFFh.
        let lba = if sq == 0 { 0 } else { sqe.slba() };
        self.push(sq, sqe.command_id(), status.field() << 1, lba, sqe.nsid());
    }

    /// Something failed that is no command.
    pub(super) fn add_event(&mut self) {
        self.push(0xffff, 0xffff, 0, 0, 0);
    }

    fn push(&mut self, sq: u16, command_id: u16, status: u16, lba: u64, nsid: u32) {
        self.count += 1;
        let mut entry = [0; ERROR_ENTRY_LEN];
        entry[..8].copy_from_slice(&self.count.to_le_bytes());
        entry[8..10].copy_from_slice(&sq.to_le_bytes());
        entry[10..12].copy_from_slice(&command_id.to_le_bytes());
        entry[12..14].copy_from_slice(&status.to_le_bytes());
        entry[14..16].copy_from_slice(&0xffff_u16.to_le_bytes());
        entry[16..24].copy_from_slice(&lba.to_le_bytes());
        entry[24..28].copy_from_slice(&nsid.to_le_bytes());
        self.entries.truncate(ERROR_ENTRIES - 1);
        self.entries.push_front(entry);
    }

    fn page(&self) -> Vec<u8> {
        let mut page = self.entries.iter().flatten().copied().collect::<Vec<u8>>();
        page.resize(ERROR_ENTRIES * ERROR_ENTRY_LEN, 0);
        page
    }
}

/// What the health log counts, since the device was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) other_commands: u64,
    pub(super) media_errors: u64,
    power_cycles: u64,
    unsafe_shutdowns: u64,
}

impl Health {
    /// Power went, after an orderly shutdown or not.
    pub(super) fn power_lost(&mut self, orderly: bool) {
        self.power_cycles += 1;
        self.unsafe_shutdowns += u64::from(!orderly);
    }

    pub(super) fn counters(&self, errors: u64) -> Vec<(&'static str, u64)> {
        vec![
            ("device.nvme_reads", self.reads),
            ("device.nvme_writes", self.writes),
            ("device.nvme_other_commands", self.other_commands),
            ("device.nvme_bytes_read", self.bytes_read),
            ("device.nvme_bytes_written", self.bytes_written),
            ("device.nvme_media_errors", self.media_errors),
            ("device.nvme_errors", errors),
        ]
    }

    fn page(&self, warning: u8, errors: u64) -> Vec<u8> {
        let mut page = vec![0; 512];
        page[0] = warning;
        page[1..3].copy_from_slice(&TEMPERATURE.to_le_bytes());
        // Available spare and its threshold, in percent.
        (page[3], page[4]) = (100, 10);
        // Thousands of 512 bytes, rounded up.
        let units = |bytes: u64| bytes.div_ceil(512 * 1000);
        for (at, value) in [
            (32, units(self.bytes_read)),
            (48, units(self.bytes_written)),
            (64, self.reads),
            (80, self.writes),
            (112, self.power_cycles),
            (144, self.unsafe_shutdowns),
            (160, self.media_errors),
            (176, errors),
        ] {
            page[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        page
    }
}

/// Bytes that the command wants.
pub(super) fn log_len(sqe: &Sqe) -> u64 {
    let dwords = u64::from(sqe.dword(10) >> 16) | u64::from(sqe.dword(11) & 0xffff) << 16;
    (dwords + 1) * 4
}

/// The page that the command wants.
///
/// # Errors
///
/// Invalid Log Page.
pub(super) fn log_page(sqe: &Sqe) -> Result<Page, Status> {
    match sqe.dword(10) as u8 {
        1 => Ok(Page::Error),
        2 => Ok(Page::Health),
        3 => Ok(Page::Firmware),
        5 => Ok(Page::Effects),
        0x81 => Ok(Page::Sanitize),
        _ => Err(Status::INVALID_LOG_PAGE),
    }
}

impl Nvme {
    pub(super) fn get_log_page(&mut self, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        let page = log_page(sqe)?;
        let bytes = match page {
            Page::Error => self.errors.page(),
            Page::Health => self.health.page(self.features.critical_warning(), self.errors.count()),
            Page::Firmware => firmware_slots(),
            Page::Effects => effects(),
            Page::Sanitize => self.sanitize.page(self.capacity(), self.left_to_sanitize()),
        };
        let offset = usize::try_from(sqe.qword(12)).ok();
        let rest = offset.and_then(|at| bytes.get(at..)).ok_or(Status::INVALID_FIELD)?;
        let mut data = rest.to_vec();
        // What is wanted beyond the page's end reads as zeros.
        data.resize(log_len(sqe) as usize, 0);
        let retain = sqe.dword(10) >> 15 & 1 != 0;
        if !retain {
            self.events.page_read(page);
        }
        Ok(data)
    }
}

fn firmware_slots() -> Vec<u8> {
    let mut page = vec![0; 512];
    // Slot 1 is active.
    page[0] = 1;
    page[8..16].copy_from_slice(FIRMWARE);
    page
}

/// Commands Supported and Effects: bit 0 supported, bit 1 changes logical blocks.
fn effects() -> Vec<u8> {
    let mut page = vec![0; 4096];
    let mut set = |at: usize, bits: u32| {
        page[4 * at..4 * at + 4].copy_from_slice(&bits.to_le_bytes());
    };
    for opcode in [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c] {
        set(opcode, 1);
    }
    // Format changes blocks (bit 1) and a namespace's capabilities (bit 2), and no other command
    // is to be sent to that namespace meanwhile (001b in bits 18:16).
    set(0x80, 1 | 1 << 1 | 1 << 2 | 1 << 16);
    // Sanitize: blocks change, and no other command at all is to be sent meanwhile (010b).
    set(0x84, 1 | 1 << 1 | 2 << 16);
    for opcode in [0x00, 0x02, 0x05] {
        set(256 + opcode, 1);
    }
    for opcode in [0x01, 0x08, 0x09] {
        set(256 + opcode, 1 | 1 << 1);
    }
    page
}

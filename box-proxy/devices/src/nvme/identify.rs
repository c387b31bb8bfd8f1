//! Identify's data structures (NVM Express 1.4 section 5.15.2).

use super::entry::Sqe;
use super::events::REQUESTS;
use super::features::RECOMMENDED_BURST;
use super::logs::ERROR_ENTRIES;
use super::namespace::{LBA_SHIFTS, Namespace};
use super::status::Status;
use super::{Config, MDTS, Nvme, regs};

/// Bytes of each structure.
pub(super) const LEN: usize = 4096;

/// Firmware revision.
pub(super) const FIRMWARE: &[u8; 8] = b"1.0     ";

/// Composite temperature from which on the controller warns, in kelvins; also the default
/// threshold.
pub(super) const WARNING_TEMPERATURE: u16 = 343;
const CRITICAL_TEMPERATURE: u16 = 353;

/// Abort commands that are looked at at a time, less one. They are carried out at once, so that
/// no host can exceed it.
const ABORT_LIMIT: u8 = 3;

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Text, left-justified, padded with spaces.
fn put_text(page: &mut [u8], at: usize, len: usize, text: &str) {
    page[at..at + len].fill(b' ');
    put(page, at, text.as_bytes());
}

fn controller(config: &Config, namespaces: &[Namespace]) -> Vec<u8> {
    let mut p = vec![0; LEN];
    put(&mut p, 0, &regs::VENDOR_ID.to_le_bytes());
    put(&mut p, 2, &regs::VENDOR_ID.to_le_bytes());
    put_text(&mut p, 4, 20, &config.serial_number);
    put_text(&mut p, 24, 40, &config.model);
    put(&mut p, 64, FIRMWARE);
    p[77] = MDTS;
    put(&mut p, 80, &regs::VERSION.to_le_bytes());
    p[72] = RECOMMENDED_BURST;
    // Controller type: I/O.
    p[111] = 1;
    // Format NVM.
    put(&mut p, 256, &2_u16.to_le_bytes());
    p[258] = ABORT_LIMIT;
    p[259] = REQUESTS as u8 - 1;
    // One firmware slot, read-only.
    p[260] = 0b11;
    // Effects log, extended data for Get Log Page.
    p[261] = 0b110;
    p[262] = ERROR_ENTRIES as u8 - 1;
    put(&mut p, 266, &WARNING_TEMPERATURE.to_le_bytes());
    put(&mut p, 268, &CRITICAL_TEMPERATURE.to_le_bytes());
    let capacity: u128 = namespaces.iter().map(|ns| u128::from(ns.capacity())).sum();
    put(&mut p, 280, &capacity.to_le_bytes());
    (p[512], p[513]) = (0x66, 0x44);
    put(&mut p, 328, &super::sanitize::CAPABILITIES.to_le_bytes());
    put(&mut p, 514, &(super::command::MAX_COMMANDS as u16).to_le_bytes());
    put(&mut p, 516, &(namespaces.len() as u32).to_le_bytes());
    // Compare, dataset management, write zeroes, save and select fields.
    put(&mut p, 520, &0b1_1101_u16.to_le_bytes());
    // A volatile write cache is there; flush takes all namespaces.
    p[525] = 0b111;
    let nqn = format!("nqn.2014.08.org.nvmexpress:{:04x}{:04x}", regs::VENDOR_ID, regs::VENDOR_ID);
    let nqn = format!("{nqn}{:<20}{:<40}", config.serial_number, config.model);
    put(&mut p, 768, nqn.as_bytes());
    // Power state 0: 25 W.
    put(&mut p, 2048, &2500_u16.to_le_bytes());
    p
}

fn namespace(ns: &Namespace, eui64: [u8; 8]) -> Vec<u8> {
    let mut p = vec![0; LEN];
    for at in [0, 8, 16] {
        put(&mut p, at, &ns.blocks().to_le_bytes());
    }
    p[25] = LBA_SHIFTS.len() as u8 - 1;
    p[26] = ns.format;
    // Deallocated blocks read as zeros, and Write Zeroes can deallocate.
    p[33] = 0b1001;
    put(&mut p, 48, &u128::from(ns.capacity()).to_le_bytes());
    // Write protected.
    p[99] = ns.image.is_read_only().into();
    put(&mut p, 120, &eui64);
    for (i, shift) in LBA_SHIFTS.into_iter().enumerate() {
        p[128 + 4 * i + 2] = shift as u8;
    }
    p
}

impl Nvme {
    pub(super) fn identify(&mut self, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        let nsid = sqe.nsid();
        match sqe.dword(10) & 0xff {
            0x00 => {
                let eui64 = self.eui64(nsid);
                Ok(namespace(self.namespace(nsid)?, eui64))
            }
            0x01 => Ok(controller(&self.config, &self.namespaces)),
            0x02 if nsid >= 0xffff_fffe => Err(Status::INVALID_NAMESPACE),
            0x02 => {
                let mut p = vec![0; LEN];
                let active = 1..=self.namespaces.len() as u32;
                for (i, id) in active.filter(|&id| id > nsid).enumerate() {
                    put(&mut p, 4 * i, &id.to_le_bytes());
                }
                Ok(p)
            }
            0x03 => {
                self.namespace(nsid)?;
                let mut p = vec![0; LEN];
                // Type 1, EUI-64, of 8 bytes.
                (p[0], p[1]) = (1, 8);
                put(&mut p, 4, &self.eui64(nsid));
                Ok(p)
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// The device's serial number with the namespace's number added.
    fn eui64(&self, nsid: u32) -> [u8; 8] {
        self.config.serial.wrapping_add(nsid.into()).to_be_bytes()
    }
}

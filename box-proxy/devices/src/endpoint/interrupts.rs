//! MSI-X and MSI: vectors that are raised, masked, pending and sent.

use super::config::ConfigSpace;
use super::layout::MsixLayout;
use super::registers::*;

/// An interrupt as the memory write that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) address: u64,
    pub(super) data: u32,
    pub(super) vector: u16,
}

/// The function's vectors. A raised vector is pending until its message is taken; raised again
/// before that, it stays one message (PCIe 5.0 section 6.1.4), so nothing here grows.
pub(super) struct Interrupts {
    /// MSI-X table entries: address low, address high, data, vector control.
    table: Vec<[u32; 4]>,
    pending: Vec<u64>,
    msi_vectors: u8,
    /// Where the search for the next pending vector starts: no vector starves another.
    next: usize,
}

/// Vector control: masked.
const MASKED: u32 = 1;

impl Interrupts {
    pub(super) fn new(msix: Option<MsixLayout>, msi_vectors: u8) -> Self {
        let vectors = usize::from(msix.map_or(0, |m| m.vectors));
        let words = vectors.max(msi_vectors.into()).div_ceil(64);
        let mut this =
            Self { table: vec![[0; 4]; vectors], pending: vec![0; words], msi_vectors, next: 0 };
        this.reset();
        this
    }

    /// After any reset every vector is masked and nothing is pending.
    pub(super) fn reset(&mut self) {
        self.table.fill([0, 0, 0, MASKED]);
        self.pending.fill(0);
    }

    /// Raises a vector. Says whether it will ever be sent: not while MSI-X and MSI are both off,
    /// nor if there is no such vector.
    pub(super) fn raise(&mut self, config: &ConfigSpace, vector: u16) -> bool {
        let vector = match self.mode(config) {
            Mode::Off => return false,
            Mode::Msix { .. } if usize::from(vector) >= self.table.len() => return false,
            Mode::Msix { .. } => vector,
            // With fewer messages than vectors, the last ones share (as drivers expect that
            // asked for one).
            Mode::Msi { granted } => vector % u16::from(granted),
        };
        self.pending[usize::from(vector / 64)] |= 1 << (vector % 64);
        true
    }

    /// Takes the message of a vector that is pending and not masked.
    pub(super) fn take(&mut self, config: &ConfigSpace) -> Option<Message> {
        if self.pending.iter().all(|&word| word == 0) {
            return None;
        }
        let mode = self.mode(config);
        let count = self.pending.len() * 64;
        let vector = (0..count).map(|i| (self.next + i) % count).find(|&v| {
            self.pending[v / 64] >> (v % 64) & 1 != 0 && self.is_open(config, mode, v)
        })?;
        self.pending[vector / 64] &= !(1 << (vector % 64));
        self.next = vector + 1;
        Some(self.message(config, mode, vector))
    }

    /// Puts a vector back whose message was taken and may not be sent now: when it may, the table can
    /// say something else, or that it is masked.
    pub(super) fn put_back(&mut self, vector: u16) {
        self.pending[usize::from(vector / 64)] |= 1 << (vector % 64);
    }

    /// Copies what is pending into MSI's register.
    pub(super) fn publish(&self, config: &mut ConfigSpace) {
        if self.msi_vectors > 0 {
            let pending = match self.mode(config) {
                Mode::Msi { .. } => self.pending[0] as u32,
                _ => 0,
            };
            config.set32(MSI_PENDING, pending);
        }
    }

    /// Reads `data.len()` bytes of the table from `offset`.
    pub(super) fn read_table(&self, offset: u64, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            let at = offset as usize + i;
            *byte = self.table.get(at / 16).map_or(0, |e| e[at % 16 / 4].to_le_bytes()[at % 4]);
        }
    }

    /// Writes into the table at `offset`.
    pub(super) fn write_table(&mut self, offset: u64, data: &[u8]) {
        for (i, byte) in data.iter().enumerate() {
            let at = offset as usize + i;
            let Some(entry) = self.table.get_mut(at / 16) else { return };
            let register = at % 16 / 4;
            let mut bytes = entry[register].to_le_bytes();
            bytes[at % 4] = *byte;
            // Address bits 1:0 and vector control bits 31:1 are reserved.
            let mask = [!3, !0, !0, MASKED][register];
            entry[register] = u32::from_le_bytes(bytes) & mask;
        }
    }

    /// Reads the pending bits from `offset`.
    pub(super) fn read_pending(&self, offset: u64, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            let at = offset as usize + i;
            *byte = self.pending.get(at / 8).map_or(0, |w| w.to_le_bytes()[at % 8]);
        }
    }

    fn mode(&self, config: &ConfigSpace) -> Mode {
        let msix = config.get16(MSIX_CONTROL);
        let msi = config.get16(MSI_CONTROL);
        if !self.table.is_empty() && msix & MSIX_ENABLE != 0 {
            Mode::Msix { masked: msix & MSIX_FUNCTION_MASK != 0 }
        } else if self.msi_vectors > 0 && msi & MSI_ENABLE != 0 {
            let asked = 1_u16 << (msi >> 4 & 7).min(5);
            Mode::Msi { granted: asked.min(self.msi_vectors.into()) as u8 }
        } else {
            Mode::Off
        }
    }

    fn is_open(&self, config: &ConfigSpace, mode: Mode, vector: usize) -> bool {
        match mode {
            Mode::Off => false,
            Mode::Msix { masked } => {
                !masked && self.table.get(vector).is_some_and(|e| e[3] & MASKED == 0)
            }
            Mode::Msi { granted } => {
                vector < usize::from(granted) && config.get32(MSI_MASK) >> vector & 1 == 0
            }
        }
    }

    fn message(&self, config: &ConfigSpace, mode: Mode, vector: usize) -> Message {
        if let Mode::Msi { granted } = mode {
            let data = config.get16(MSI_DATA) & !(u16::from(granted) - 1) | vector as u16;
            let address = config.get64(MSI_ADDRESS);
            return Message { address, data: data.into(), vector: vector as u16 };
        }
        let [low, high, data, _] = self.table[vector];
        let address = u64::from(high) << 32 | u64::from(low);
        Message { address, data, vector: vector as u16 }
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Off,
    Msix { masked: bool },
    Msi { granted: u8 },
}

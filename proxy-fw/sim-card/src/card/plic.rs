//! The interrupt controller (RISC-V platform-level interrupt controller specification 1.0.0), with
//! sources 1 to 31 and one context.

const PENDING: u32 = 0x1000;
const ENABLE: u32 = 0x2000;
const THRESHOLD: u32 = 0x20_0000;
const CLAIM: u32 = 0x20_0004;

/// Priorities are 0 to 7.
const PRIORITY: u32 = 7;

#[derive(Debug, Default)]
pub(super) struct Plic {
    priorities: [u32; 32],
    lines: u32,
    claimed: u32,
    enabled: u32,
    threshold: u32,
}

impl Plic {
    /// Sets the line of a source.
    pub(super) fn set_line(&mut self, source: u32, asserted: bool) {
        self.lines = self.lines & !(1 << source) | u32::from(asserted) << source;
    }

    fn pending(&self) -> u32 {
        self.lines & !self.claimed
    }

    /// The pending and enabled source with the highest priority; of several the lowest one.
    fn best(&self) -> Option<u32> {
        let candidates = self.pending() & self.enabled;
        (1..32)
            .filter(|source| candidates & 1 << source != 0)
            .filter(|source| self.priorities[*source as usize] > 0)
            .min_by_key(|source| PRIORITY - self.priorities[*source as usize])
    }

    /// The line to the core.
    pub(super) fn external(&self) -> bool {
        self.best().is_some_and(|source| self.priorities[source as usize] > self.threshold)
    }

    pub(super) fn read(&mut self, register: u32) -> u32 {
        match register {
            0..0x80 => self.priorities[(register / 4) as usize],
            PENDING => self.pending(),
            ENABLE => self.enabled,
            THRESHOLD => self.threshold,
            CLAIM => {
                let source = self.best().unwrap_or(0);
                self.claimed |= if source == 0 { 0 } else { 1 << source };
                source
            }
            _ => 0,
        }
    }

    pub(super) fn write(&mut self, register: u32, value: u32) {
        match register {
            4..0x80 => self.priorities[(register / 4) as usize] = value & PRIORITY,
            ENABLE => self.enabled = value & !1,
            THRESHOLD => self.threshold = value & PRIORITY,
            CLAIM if value < 32 => self.claimed &= !(1 << value),
            _ => {}
        }
    }
}

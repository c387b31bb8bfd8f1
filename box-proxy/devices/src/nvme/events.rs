//! Asynchronous events (NVM Express 1.4 section 5.2).

use super::logs::Page;
use std::collections::VecDeque;

/// Events that wait for a request. Further ones are dropped: the log pages have them too.
const WAITING: usize = 8;

/// Asynchronous event requests that a host may have waiting.
pub(super) const REQUESTS: usize = 4;

/// Something that the host may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A doorbell of a queue that is not there was written.
    InvalidDoorbell,
    /// A doorbell got a value that its queue cannot have.
    InvalidDoorbellValue,
    /// The temperature is beyond its threshold.
    Temperature,
    /// A sanitize operation has ended, well or not.
    Sanitized,
}

impl Event {
    /// Type, information, log page: as the completion's doubleword 0 has them.
    fn parts(self) -> (u8, u8, Page) {
        match self {
            Self::InvalidDoorbell => (0, 0, Page::Error),
            Self::InvalidDoorbellValue => (0, 1, Page::Error),
            Self::Temperature => (1, 1, Page::Health),
            Self::Sanitized => (6, 1, Page::Sanitize),
        }
    }

    /// Whether it belongs into the error log.
    pub(super) fn is_error(self) -> bool {
        self.parts().0 == 0
    }
}

/// Events that were not told yet. After one of a type was told, others of it wait until the host
/// has read its log page.
#[derive(Default)]
pub(super) struct Events {
    waiting: VecDeque<Event>,
    /// A bit for each type that was told and not cleared.
    told: u8,
}

impl Events {
    pub(super) fn add(&mut self, event: Event) {
        if self.waiting.len() < WAITING && !self.waiting.contains(&event) {
            self.waiting.push_back(event);
        }
    }

    /// Doubleword 0 for the next event that may be told.
    pub(super) fn take(&mut self) -> Option<u32> {
        let told = self.told;
        let at = self.waiting.iter().position(|event| told >> event.parts().0 & 1 == 0)?;
        let (kind, info, page) = self.waiting.remove(at)?.parts();
        self.told |= 1 << kind;
        Some((page as u32) << 16 | u32::from(info) << 8 | u32::from(kind))
    }

    /// The host has read a log page and did not want to keep its events.
    pub(super) fn page_read(&mut self, page: Page) {
        match page {
            Page::Error => self.told &= !1,
            Page::Health => self.told &= !2,
            Page::Sanitize => self.told &= !(1 << 6),
            Page::Firmware | Page::Effects => {}
        }
    }

    /// It means nothing any more, told or not.
    pub(super) fn forget(&mut self, event: Event) {
        self.waiting.retain(|waiting| *waiting != event);
        self.page_read(event.parts().2);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

//! What software has set in configuration space, decoded once for each write.

use super::config::ConfigSpace;
use super::layout::Layout;
use super::registers::*;
use std::ops::Range;
use std::time::Duration;
use tlp_codec::tlp::Attributes;

/// Decoded control registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) memory: bool,
    pub(super) bus_master: bool,
    pub(super) max_payload: usize,
    pub(super) max_read_request: usize,
    /// Tags that Device Control and Device Control 2 allow.
    pub(super) tags: Range<u16>,
    pub(super) attributes: Attributes,
    /// `None` when it is disabled.
    pub(super) completion_timeout: Option<Duration>,
    /// Base and size of each BAR.
    pub(super) bars: [Option<(u64, u64)>; 6],
}

impl Settings {
    pub(super) fn decode(config: &ConfigSpace, layout: &Layout) -> Self {
        let command = config.get16(COMMAND);
        let control = config.get16(DEVICE_CONTROL);
        let control2 = config.get16(DEVICE_CONTROL_2);
        let awake = config.get16(PM_CONTROL) & PM_STATE == PM_D0;
        let size = |shift: u16| 128_usize << (control >> shift & 7).min(5);
        Self {
            memory: awake && command & COMMAND_MEMORY != 0,
            bus_master: awake && command & COMMAND_BUS_MASTER != 0,
            max_payload: size(DEVICE_CONTROL_MPS_SHIFT).min(layout.max_payload.into()),
            max_read_request: size(DEVICE_CONTROL_MRRS_SHIFT),
            tags: tags(control, control2),
            attributes: Attributes {
                relaxed_ordering: control & DEVICE_CONTROL_RELAXED != 0,
                no_snoop: control & DEVICE_CONTROL_NO_SNOOP != 0,
                id_based_ordering: false,
            },
            completion_timeout: completion_timeout(control2),
            bars: std::array::from_fn(|i| {
                let bar = layout.bars[i]?;
                let at = BAR0 + 4 * i as u16;
                let raw = if bar.wide { config.get64(at) } else { config.get32(at).into() };
                Some((raw & !0xf, bar.size))
            }),
        }
    }

    /// The BAR that holds all of `len` bytes from `address` on, and the offset in it.
    pub(super) fn find_bar(&self, address: u64, len: u64) -> Option<(usize, u64)> {
        if !self.memory {
            return None;
        }
        self.bars.iter().enumerate().find_map(|(i, bar)| {
            let (base, size) = (*bar)?;
            let offset = address.checked_sub(base)?;
            (offset < size && len <= size - offset).then_some((i, offset))
        })
    }
}

/// Tags of 10, 8 or 5 bits. Those of 10 bits have at least one of the upper two (PCIe 5.0 section
/// 2.2.6.2).
fn tags(control: u16, control2: u16) -> Range<u16> {
    if control2 & DEVICE_CONTROL_2_TEN_BIT_TAGS != 0 {
        return 256..1024;
    }
    0..if control & DEVICE_CONTROL_EXTENDED_TAG != 0 { 256 } else { 32 }
}

/// The upper end of the range that Device Control 2 names (PCIe 5.0 section 7.5.3.16). Reserved
/// values are treated as the default range.
fn completion_timeout(control2: u16) -> Option<Duration> {
    if control2 & DEVICE_CONTROL_2_TIMEOUT_DISABLE != 0 {
        return None;
    }
    Some(match control2 & 0xf {
        0b0001 => Duration::from_micros(100),
        0b0010 => Duration::from_millis(10),
        0b0101 => Duration::from_millis(55),
        0b0110 => Duration::from_millis(210),
        0b1001 => Duration::from_millis(900),
        0b1010 => Duration::from_millis(3500),
        0b1101 => Duration::from_secs(13),
        0b1110 => Duration::from_secs(64),
        _ => Duration::from_millis(50),
    })
}

//! A board file as it is written.

use probe_rs_target::ChipFamily;
use serde::Deserialize;

use crate::image::BootLoader;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) card: Card,
    pub(super) target: ChipFamily,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Card {
    pub(super) board: String,
    pub(super) description: String,
    pub(super) idcode: u32,
    pub(super) clock_khz: u32,
    pub(super) spi: u32,
    pub(super) window: u32,
    pub(super) memory: Range,
    pub(super) layout: Layout,
    #[serde(default)]
    pub(super) boot_loader: BootLoader,
    pub(super) keys: Vec<Key>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    pub(super) start: u32,
    pub(super) length: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    pub(super) flash: u32,
    pub(super) erase_block: u32,
    pub(super) progress: u32,
    pub(super) boot_loader: Range,
    pub(super) boot_state: Range,
    pub(super) config: Range,
    pub(super) slot_a: Range,
    pub(super) slot_b: Range,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    pub(super) number: u32,
    pub(super) public: String,
}

//! What a person in front of a card sees of its places.

use super::SlotWire;
use proxy_core::control::{PortState, SlotState};
use proxy_core::limits::MAX_SLOTS;

/// What is at a place: of several functions, or of several ports behind a root complex, the last in
/// this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlaceState {
    /// Nothing.
    Empty,
    /// A device that can be lent, or a root complex to which none is.
    Free,
    /// It failed, and is not lent.
    Failed,
    /// It is looked at, made ready, or taken back: it will be another in a moment.
    Changing,
    /// It is lent, or has what is lent to it: not to be taken out.
    InUse,
}

/// The states of a card's places, by place.
pub type Places = heapless::Vec<(SlotWire, PlaceState), MAX_SLOTS>;

impl From<SlotState> for PlaceState {
    fn from(state: SlotState) -> Self {
        match state {
            SlotState::Empty => Self::Empty,
            SlotState::Free => Self::Free,
            SlotState::Quarantined => Self::Failed,
            SlotState::Probing | SlotState::Releasing => Self::Changing,
            SlotState::Bound => Self::InUse,
        }
    }
}

/// Of a root complex, by one of its ports.
impl From<PortState> for PlaceState {
    fn from(state: PortState) -> Self {
        match state {
            PortState::Empty | PortState::Placeholder => Self::Free,
            PortState::Failed => Self::Failed,
            PortState::Linking | PortState::Removing => Self::Changing,
            PortState::Present => Self::InUse,
        }
    }
}

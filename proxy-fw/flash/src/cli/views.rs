//! What is printed, as JSON has it.

use card_image::{BootState, Header, Look, SlotId, SlotState};
use serde::Serialize;

/// An image's header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ImageView {
    pub(super) board: String,
    pub(super) role: String,
    pub(super) version: String,
    pub(super) security_version: u32,
    /// Bytes of header and payload.
    pub(super) length: u64,
    pub(super) load: u32,
    pub(super) entry: u32,
    /// The number of the key that signed it; none when nobody did.
    pub(super) key: Option<u32>,
    pub(super) id: String,
}

impl From<&Header> for ImageView {
    fn from(header: &Header) -> Self {
        Self {
            board: header.board.to_string(),
            role: header.role.to_string(),
            version: header.version.to_string(),
            security_version: header.security.0,
            length: header.image_len(),
            load: header.load,
            entry: header.entry,
            key: (header.key.0 != 0).then_some(header.key.0),
            id: header.id().to_string(),
        }
    }
}

impl ImageView {
    /// In a line.
    pub(super) fn text(&self) -> String {
        let key = self.key.map_or("not signed".to_owned(), |key| format!("key {key:#x}"));
        format!(
            "{} for {} ({}), security version {}, {} bytes, {key}, {}",
            self.version, self.board, self.role, self.security_version, self.length, self.id
        )
    }
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SlotView {
    pub(super) slot: String,
    /// Whether it is the one to be started.
    pub(super) wanted: bool,
    /// Whether it is what the boot loader starts next.
    #[serde(skip)]
    is_next: bool,
    pub(super) state: &'static str,
    /// Starts that a new image has left.
    pub(super) tries_left: Option<u8>,
    /// Bytes that are there of an image that is being written.
    pub(super) written: Option<u32>,
    /// Why the boot loader does not start its image, where the state lets it be started.
    pub(super) wrong: Option<String>,
    /// The header that stands in it, whatever the state says.
    pub(super) image: Option<ImageView>,
}

impl SlotView {
    pub(super) fn new(
        slot: SlotId,
        state: &BootState,
        look: &Look,
        header: Option<&Header>,
    ) -> Self {
        let (name, tries_left, written) = match state.slot(slot) {
            SlotState::Empty => ("empty", None, None),
            SlotState::Writing { done, .. } => ("writing", None, Some(done)),
            SlotState::Staged { .. } => ("staged", None, None),
            SlotState::Trying { left, .. } => ("trying", Some(left), None),
            SlotState::Healthy { .. } => ("healthy", None, None),
            SlotState::Failed { .. } => ("failed", None, None),
        };
        let (wanted, is_next) = (state.wanted == slot, look.next == Some(slot));
        let wrong = look.wrong[slot.index()].map(|refusal| refusal.to_string());
        let image = header.map(ImageView::from);
        let slot = slot.to_string();
        Self { slot, wanted, is_next, state: name, tries_left, written, wrong, image }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("slot {}: {}", self.slot, self.state);
        if self.tries_left == Some(0) {
            text.push_str(", its starts are used up, and it is started only where no other can be");
        } else if let Some(left) = self.tries_left {
            let plural = if left == 1 { "" } else { "s" };
            text.push_str(&format!(", {left} further start{plural}"));
        }
        if let Some(written) = self.written {
            text.push_str(&format!(", {written} bytes are there"));
        }
        if let Some(wrong) = &self.wrong {
            text.push_str(&format!(", not to be started: {wrong}"));
        }
        if self.is_next {
            text.push_str(", to be started");
        }
        match &self.image {
            Some(image) => format!("{text}\n    {}", image.text()),
            None => format!("{text}\n    no image"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use card_image::{ImageId, Refusal};

    #[test]
    fn slots_are_told_in_words() {
        let image = ImageId([1; 16]);
        let seen = |slots, wrong| {
            let state = BootState { slots, ..BootState::NEW };
            let next = if wrong { None } else { state.to_be_started() };
            let look = Look { wrong: [wrong.then_some(Refusal::BadCrc), None], next };
            SlotView::new(SlotId::A, &state, &look, None).text()
        };
        let text = |slots| seen(slots, false);
        for (state, words) in [
            (SlotState::Empty, "slot a: empty\n"),
            (SlotState::Writing { image, done: 7 }, "slot a: writing, 7 bytes are there\n"),
            (SlotState::Staged { image }, "slot a: staged, to be started\n"),
            (
                SlotState::Trying { image, left: 1 },
                "slot a: trying, 1 further start, to be started\n",
            ),
            (
                SlotState::Trying { image, left: 0 },
                "slot a: trying, its starts are used up, and it is started only where no other can \
                 be, to be started\n",
            ),
            (SlotState::Healthy { image }, "slot a: healthy, to be started\n"),
            (SlotState::Failed { image }, "slot a: failed\n"),
        ] {
            let text = text([state, SlotState::Empty]);
            assert!(text.starts_with(words), "{text}");
        }
        let text_of_wrong = seen([SlotState::Healthy { image }, SlotState::Empty], true);
        let words = "slot a: healthy, not to be started: the image's payload is damaged\n";
        assert!(text_of_wrong.starts_with(words), "{text_of_wrong}");
        // Beside one that can be started it is none to be started, though it is the wanted one.
        let text = text([SlotState::Trying { image, left: 0 }, SlotState::Staged { image }]);
        assert!(text.starts_with("slot a: trying") && !text.contains("to be started"), "{text}");
    }
}

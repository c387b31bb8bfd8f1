//! What a hot-plug port does next: Linux's pciehp as a table.

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// Nothing in use.
    Off,
    /// The attention button was pressed; it is turned on unless it is pressed again.
    BlinkingOn,
    /// A device is in use.
    On,
    /// The attention button was pressed; it is turned off unless it is pressed again.
    BlinkingOff,
}

impl SlotState {
    /// Whether a device is in use.
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On | Self::BlinkingOff)
    }
}

/// What happened to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// The attention button.
    Button,
    /// The time after the attention button is over.
    Timer {
        /// Whether a device is there.
        present: bool,
    },
    /// Presence or link state changed.
    Changed {
        /// Whether a device is there now, or a link.
        present: bool,
    },
    /// A device could not be turned on.
    Failed,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Nothing.
    Nothing,
    /// Blink, and wait for the time after the button.
    StartTimer,
    /// Stop blinking: the button was pressed again.
    Cancel,
    /// Turn the device on.
    Enable,
    /// Turn the device off in order.
    Disable,
    /// The device is gone: clean up.
    Surprise,
    /// The device is gone and another is there: clean up, then turn it on.
    Replace,
}

impl Action {
    /// What is being done, for a person.
    pub(crate) const fn told(self) -> &'static str {
        match self {
            Self::Nothing => "nothing to do",
            Self::StartTimer => "the attention button was pressed; blinking for a while",
            Self::Cancel => "the attention button was pressed again; nothing changes",
            Self::Enable => "turning its device on",
            Self::Disable => "turning its device off",
            Self::Surprise => "its device is gone",
            Self::Replace => "its device is gone, and another one is there",
        }
    }
}

/// The transition table. Linux 6.12, `drivers/pci/hotplug/pciehp_ctrl.c`, is what was read.
pub(crate) const fn next(state: SlotState, input: Input) -> (SlotState, Action) {
    use {Action as A, Input as I, SlotState as S};
    match (state, input) {
        (S::Off, I::Button) => (S::BlinkingOn, A::StartTimer),
        (S::On, I::Button) => (S::BlinkingOff, A::StartTimer),
        (S::BlinkingOn, I::Button) => (S::Off, A::Cancel),
        (S::BlinkingOff, I::Button) => (S::On, A::Cancel),

        (S::BlinkingOn, I::Timer { present: true }) => (S::On, A::Enable),
        (S::BlinkingOn, I::Timer { present: false }) => (S::Off, A::Cancel),
        (S::BlinkingOff, I::Timer { .. }) => (S::Off, A::Disable),
        // A timer that was cancelled.
        (S::Off | S::On, I::Timer { .. }) => (state, A::Nothing),

        // Whatever changes at a slot in use, its device is not the same any more.
        (S::On | S::BlinkingOff, I::Changed { present: true }) => (S::On, A::Replace),
        (S::On | S::BlinkingOff, I::Changed { present: false }) => (S::Off, A::Surprise),
        (S::Off | S::BlinkingOn, I::Changed { present: true }) => (S::On, A::Enable),
        (S::BlinkingOn, I::Changed { present: false }) => (S::Off, A::Cancel),
        (S::Off, I::Changed { present: false }) => (S::Off, A::Nothing),

        (_, I::Failed) => (S::Off, A::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SlotState::{BlinkingOff, BlinkingOn, Off, On};

    const STATES: [SlotState; 4] = [Off, BlinkingOn, On, BlinkingOff];

    fn all_inputs() -> Vec<Input> {
        let both = [false, true];
        let mut inputs = vec![Input::Button, Input::Failed];
        inputs.extend(both.map(|present| Input::Timer { present }));
        inputs.extend(both.map(|present| Input::Changed { present }));
        inputs
    }

    #[test]
    fn every_pair_keeps_device_and_state_together() {
        for state in STATES {
            for input in all_inputs() {
                let (after, action) = next(state, input);
                let turns_on = matches!(action, Action::Enable | Action::Replace);
                let turns_off = matches!(action, Action::Disable | Action::Surprise);
                let was_on = state.is_on() && input != Input::Failed;
                let is_on = was_on && !turns_off || turns_on;
                assert_eq!(after.is_on(), is_on, "{state:?} {input:?}");
                if action == Action::Enable {
                    assert!(!state.is_on(), "a device is not turned on twice");
                }
                if turns_off || action == Action::Replace {
                    assert!(state.is_on(), "only what is on is turned off");
                }
                let blinks = matches!(after, BlinkingOn | BlinkingOff);
                assert_eq!(blinks, action == Action::StartTimer || blinks && state == after);
            }
        }
    }

    #[test]
    fn a_second_press_takes_the_first_back() {
        for state in [Off, On] {
            let (blinking, action) = next(state, Input::Button);
            assert_eq!(action, Action::StartTimer);
            assert_eq!(next(blinking, Input::Button), (state, Action::Cancel));
        }
    }
}

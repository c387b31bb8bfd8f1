use super::*;

const ONE: ImageId = ImageId([1; 16]);
const TWO: ImageId = ImageId([2; 16]);

const STATES: [SlotState; 8] = [
    SlotState::Empty,
    SlotState::Writing { image: ONE, done: 2048 },
    SlotState::Staged { image: ONE },
    SlotState::Trying { image: ONE, left: 2 },
    SlotState::Trying { image: ONE, left: 1 },
    SlotState::Trying { image: ONE, left: 0 },
    SlotState::Healthy { image: ONE },
    SlotState::Failed { image: ONE },
];

const EVENTS: [SlotEvent; 7] = [
    SlotEvent::Begin(TWO),
    SlotEvent::Progress(4096),
    SlotEvent::Written,
    SlotEvent::Adopt(TWO),
    SlotEvent::Try,
    SlotEvent::Healthy,
    SlotEvent::Fail,
];

/// Every state with every event.
#[test]
fn transitions() {
    use SlotState as S;
    let begun = Some(S::Writing { image: TWO, done: 0 });
    let adopted = Some(S::Staged { image: TWO });
    let further = Some(S::Writing { image: ONE, done: 4096 });
    let staged = Some(S::Staged { image: ONE });
    let trying = |left| Some(S::Trying { image: ONE, left });
    let healthy = Some(S::Healthy { image: ONE });
    let failed = Some(S::Failed { image: ONE });
    let table = [
        [begun, None, None, adopted, None, None, None],
        [begun, further, staged, adopted, None, None, failed],
        [begun, None, None, adopted, trying(2), None, failed],
        [begun, None, None, adopted, trying(1), healthy, failed],
        [begun, None, None, adopted, trying(0), healthy, failed],
        [begun, None, None, adopted, None, healthy, failed],
        [begun, None, None, adopted, healthy, healthy, failed],
        [begun, None, None, adopted, None, None, failed],
    ];
    for (state, row) in STATES.into_iter().zip(table) {
        for (event, after) in EVENTS.into_iter().zip(row) {
            let expected = after.ok_or(WrongTransition { state, event });
            assert_eq!(state.after(event), expected, "{state:?} {event:?}");
        }
    }
    let writing = STATES[1];
    for done in [0, 2047, 2048] {
        assert!(writing.after(SlotEvent::Progress(done)).is_err(), "it only grows");
    }
}

#[test]
fn records_read_back() {
    for a in STATES {
        for b in STATES {
            for wanted in SlotId::ALL {
                let lowest_security = SecurityVersion(0x0102_0304);
                let state = BootState { slots: [a, b], wanted, lowest_security };
                assert_eq!(BootState::parse(&state.emit()), Some(state));
            }
        }
    }
    assert_eq!(BootState::parse(&[]), None);
    assert_eq!(BootState::parse(&[0; 56]), None);
}

proptest::proptest! {
    /// What can be read is written the same.
    #[test]
    fn any_record(change: u8, at in 0..56_usize, which in 0..8_usize) {
        let state = BootState { slots: [STATES[which], STATES[7 - which]], ..BootState::NEW };
        let mut bytes = state.emit();
        bytes[at] = change;
        if let Some(state) = BootState::parse(&bytes) {
            proptest::prop_assert_eq!(state.emit(), bytes);
        }
    }
}

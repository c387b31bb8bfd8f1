//! A card's slots and boot state: updates, power cuts, damage, records that were made up. Only a
//! whole image that was signed is ever booted, one that was recorded in a slot is where there is any,
//! and what was recorded is found again.

use crate::image::{IMAGES, SLOT, requirements};
use crate::input::Input;
use card_image::{
    BOOT_TRIES, Begun, Boot, BootReason, BootState, BootStore, Decision, HEADER_LEN, Header,
    Layout, LayoutParts, STATE_RECORD, SecurityVersion, SlotId, SlotState, StoreError, WhyNot,
};
use nor_model::{Direct, Fault, Nor, Part};
use std::sync::LazyLock;

/// Steps of one input; the rest of it is not used.
const STEPS: usize = 40;

type Flash = Direct<4, 1024>;

static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let packed = Layout::packed(16 << 10, 1 << 10, 1 << 10, SLOT).expect("a right layout");
    let parts = LayoutParts { progress: 1 << 10, ..*packed.parts() };
    Layout::new(parts).expect("a right layout")
});

/// Takes steps: which, and what it needs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut card = Card::new(input.u8());
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        card.step(&mut input);
    }
}

struct Card {
    flash: Flash,
    store: BootStore,
    running: Option<SlotId>,
    /// The flash lost something since it was read: what is recorded may not be there any more.
    damaged: bool,
}

fn open(flash: &mut Flash) -> BootStore {
    BootStore::open(flash, *LAYOUT).expect("it has power")
}

/// Whether it was decided for the slot that comes first: by its tries, else for want of another.
fn check_choice(
    before: &BootState,
    candidates: [Option<u8>; 2],
    decision: &Decision,
    after: &BootState,
) {
    let order = [before.wanted, before.wanted.other()];
    let find = |may: fn(u8) -> bool| {
        order.into_iter().find(|slot| candidates[slot.index()].is_some_and(may))
    };
    let (by_tries, used_up) = (find(|left| left > 0), find(|left| left == 0));
    let (chosen, why) = match decision {
        Decision::Boot(boot) => match boot.reason {
            BootReason::Instead(why) | BootReason::Again(why) => (Some(boot.slot), [why; 2]),
            _ => (Some(boot.slot), [WhyNot::Empty; 2]),
        },
        Decision::Recovery(why) => (None, *why),
    };
    // A journal that takes nothing any more (its numbers are used up) lets nothing be tried.
    if !why.contains(&WhyNot::NotRecorded) {
        assert_eq!(chosen, by_tries.or(used_up), "{before:?} {candidates:?}: {decision:?}");
    }
    if let Decision::Boot(Boot { slot, reason: BootReason::Again(_), .. }) = decision {
        assert_eq!(candidates[slot.index()], Some(0), "only what has no tries left");
        let turned = BootState { wanted: slot.other(), ..*before };
        // A journal that takes nothing any more does not take that either.
        let is_turned = candidates == [Some(0); 2] && *after == turned;
        assert!(is_turned || after == before, "{before:?}: {after:?}");
    }
}

impl Card {
    fn new(seed: u8) -> Self {
        let mut flash = Direct(Nor::new(Part::small(16 << 10), seed.into()));
        let store = open(&mut flash);
        Self { flash, store, running: None, damaged: false }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let step = input.u8();
        match step & 7 {
            0 => self.plant(input),
            1 => self.plant_record(input),
            2 => self.damage(input),
            3 => self.boot(),
            4 | 5 => {
                let cut = input.u16();
                if cut & 1 != 0 {
                    self.flash.0.cut_after((cut >> 1).into());
                }
                let updated = self.update(usize::from(step >> 3) % IMAGES.len());
                self.after(updated);
            }
            6 => {
                let Some(slot) = self.running else { return };
                let reported = self.store.report_healthy(&mut self.flash, slot);
                self.after(reported);
            }
            _ => {
                let Some(slot) = self.running else { return };
                let back = self.store.roll_back(&mut self.flash, slot, &requirements());
                self.after(back);
            }
        }
    }

    /// Any bytes anywhere.
    fn plant(&mut self, input: &mut Input<'_>) {
        let at = u32::from(input.u16()) % (16 << 10);
        let length = usize::from(input.u8()).min((16 << 10) - at as usize);
        self.flash.0.preload(at, input.bytes(length));
        self.reset();
    }

    /// A whole record of any content in any place.
    fn plant_record(&mut self, input: &mut Input<'_>) {
        let place = u32::from(input.u8() % 32);
        let mut record = [0; STATE_RECORD];
        let (body, crc) = record.split_at_mut(STATE_RECORD - 4);
        body[..4].copy_from_slice(&input.u32().to_le_bytes());
        let mut content = self.store.state().emit();
        for change in input.bytes(16).chunks_exact(2) {
            content[usize::from(change[0]) % 56] = change[1];
        }
        body[4..].copy_from_slice(&content);
        crc.copy_from_slice(&tlp_codec::crc::tlp(body).to_le_bytes());
        let at = LAYOUT.boot_state().start + place * STATE_RECORD as u32;
        self.flash.0.preload(at, &record);
        self.reset();
    }

    fn damage(&mut self, input: &mut Input<'_>) {
        let at = u32::from(input.u16()) % (16 << 10);
        self.flash.0.flip(at, input.u8() % 8);
        self.damaged = true;
    }

    fn reset(&mut self) {
        self.flash.0.power_on();
        self.store = open(&mut self.flash);
        (self.running, self.damaged) = (None, false);
    }

    fn boot(&mut self) {
        self.reset();
        let (before, was_recorded) = (*self.store.state(), self.store.is_recorded());
        let candidates = SlotId::ALL.map(|slot| self.candidate(slot));
        let decision = self.store.decide(&mut self.flash, &requirements());
        if was_recorded {
            check_choice(&before, candidates, &decision, self.store.state());
        }
        let Decision::Boot(boot) = decision else { return };
        let region = LAYOUT.slot(boot.slot);
        let image = &self.flash.0.cells()[region.start as usize..region.end() as usize];
        let good = Header::check_image(image, &requirements(), SLOT, SecurityVersion(0));
        assert_eq!(good, Ok(boot.header), "what boots is whole and signed");
        self.running = Some(boot.slot);
    }

    /// Starts that a slot's image has left, where it is right and the recorded one; without end where
    /// it was healthy.
    fn candidate(&self, slot: SlotId) -> Option<u8> {
        let (state, region) = (self.store.state(), LAYOUT.slot(slot));
        let image = &self.flash.0.cells()[region.start as usize..region.end() as usize];
        let header =
            Header::check_image(image, &requirements(), SLOT, state.lowest_security).ok()?;
        let left = match state.slot(slot) {
            SlotState::Staged { .. } => BOOT_TRIES,
            SlotState::Trying { left, .. } => left,
            SlotState::Healthy { .. } => u8::MAX,
            SlotState::Empty | SlotState::Writing { .. } | SlotState::Failed { .. } => return None,
        };
        (state.slot(slot).image() == Some(header.id())).then_some(left)
    }

    fn update(&mut self, which: usize) -> Result<(), StoreError<Fault>> {
        let (flash, store, image) = (&mut self.flash, &mut self.store, &IMAGES[which]);
        let slot = store.update_slot(self.running);
        let header = &image[..HEADER_LEN];
        if let Begun::At(at) = store.begin(flash, slot, self.running, header, &requirements())? {
            store.write(flash, at, &image[at as usize..])?;
            store.finish(flash, &requirements())?;
        }
        store.want(flash, slot, &requirements())
    }

    /// What was said to be done is found again; after a power cut something is.
    fn after(&mut self, done: Result<(), StoreError<Fault>>) {
        if !self.flash.0.is_powered() {
            return self.reset();
        }
        self.flash.0.power_on();
        if done.is_ok() && self.store.is_recorded() && !self.damaged {
            let found = open(&mut self.flash);
            assert_eq!(found.state(), self.store.state());
        }
    }
}

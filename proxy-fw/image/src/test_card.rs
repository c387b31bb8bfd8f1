//! A small card for tests: keys, images, and flash that loses its power.

use std::vec::Vec;

use nor_model::{Direct, Fault, Nor, Part};

use crate::*;

pub(crate) type Flash = Direct<4, 1024>;

pub(crate) const SECRET: [u8; 32] = [7; 32];
pub(crate) const KEY: KeyId = KeyId(0x17);
pub(crate) const BOARD: BoardName = match BoardName::new("small") {
    Ok(name) => name,
    Err(_) => panic!(),
};
pub(crate) const MEMORY: Region = Region { start: 0x8000_0000, len: 0x1000 };

/// 1 KB each of boot loader and erase block, slots of 4 KB.
pub(crate) fn layout() -> Layout {
    let packed = Layout::packed(16 << 10, 1 << 10, 1 << 10, 4 << 10).unwrap();
    Layout::new(LayoutParts { progress: 1 << 10, ..*packed.parts() }).unwrap()
}

pub(crate) fn keys() -> [TrustedKey; 1] {
    [TrustedKey { id: KEY, key: public_key(&SECRET) }]
}

pub(crate) fn requirements(keys: &[TrustedKey]) -> Requirements<'_> {
    Requirements {
        board: BOARD,
        role: Role::Host,
        memory: MEMORY,
        keys,
        anti_downgrade: AntiDowngrade::BySecurityVersion,
        lowest_security: SecurityVersion(0),
    }
}

pub(crate) fn parts(major: u16) -> ImageParts {
    ImageParts {
        board: BOARD,
        role: Role::Any,
        version: Version { major, ..Version::default() },
        security: SecurityVersion(1),
        load: MEMORY.start,
        entry: MEMORY.start + 4,
    }
}

pub(crate) fn signed(parts: ImageParts, payload: &[u8]) -> Vec<u8> {
    let header = seal(parts.unsigned(payload).unwrap(), KEY, &SECRET).unwrap();
    [&header.emit()[..], payload].concat()
}

/// A good image of this version, whose payload has so many bytes.
pub(crate) fn image(major: u16, length: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..length).map(|n| (n * 31 + usize::from(major)) as u8).collect();
    signed(parts(major), &payload)
}

/// Flash and what the running program knows of it.
#[derive(Clone)]
pub(crate) struct Card {
    pub(crate) flash: Flash,
    pub(crate) store: BootStore,
    pub(crate) keys: [TrustedKey; 1],
}

pub(crate) type Outcome<T> = Result<T, StoreError<Fault>>;

impl Card {
    pub(crate) fn new(seed: u64) -> Self {
        let mut flash = Direct(Nor::new(Part::small(16 << 10), seed));
        let store = BootStore::open(&mut flash, layout()).unwrap();
        Self { flash, store, keys: keys() }
    }

    /// The power comes back, or a reset.
    pub(crate) fn reset(&mut self) {
        self.flash.0.power_on();
        self.store = BootStore::open(&mut self.flash, layout()).unwrap();
    }

    pub(crate) fn decide(&mut self) -> Decision {
        self.store.decide(&mut self.flash, &requirements(&self.keys))
    }

    pub(crate) fn look(&mut self) -> Look {
        self.store.look(&mut self.flash, &requirements(&self.keys)).unwrap()
    }

    /// Resets, and starts what is decided for.
    pub(crate) fn boot(&mut self) -> Boot {
        self.reset();
        match self.decide() {
            Decision::Boot(boot) => boot,
            Decision::Recovery(why) => panic!("it stays in the boot loader: {why:?}"),
        }
    }

    pub(crate) fn begin(
        &mut self,
        slot: SlotId,
        running: Option<SlotId>,
        image: &[u8],
    ) -> Outcome<Begun> {
        let requirements = requirements(&self.keys);
        self.store.begin(&mut self.flash, slot, running, &image[..HEADER_LEN], &requirements)
    }

    pub(crate) fn write(&mut self, offset: u32, bytes: &[u8]) -> Outcome<()> {
        self.store.write(&mut self.flash, offset, bytes)
    }

    pub(crate) fn finish(&mut self) -> Outcome<Header> {
        self.store.finish(&mut self.flash, &requirements(&self.keys))
    }

    pub(crate) fn want(&mut self, slot: SlotId) -> Outcome<()> {
        self.store.want(&mut self.flash, slot, &requirements(&self.keys))
    }

    pub(crate) fn roll_back(&mut self, running: SlotId) -> Outcome<()> {
        self.store.roll_back(&mut self.flash, running, &requirements(&self.keys))
    }

    pub(crate) fn report_healthy(&mut self, slot: SlotId) -> Outcome<()> {
        self.store.report_healthy(&mut self.flash, slot)
    }

    /// Writes what is left of an image, in odd pieces, and wants it.
    pub(crate) fn update(
        &mut self,
        slot: SlotId,
        running: Option<SlotId>,
        image: &[u8],
    ) -> Outcome<()> {
        if let Begun::At(mut at) = self.begin(slot, running, image)? {
            for piece in image[at as usize..].chunks(333) {
                self.write(at, piece)?;
                at += piece.len() as u32;
            }
            self.finish()?;
        }
        self.want(slot)
    }

    /// A card whose slot a has a healthy image of version 1, which runs.
    pub(crate) fn running(seed: u64) -> Self {
        let mut card = Self::new(seed);
        card.update(SlotId::A, None, &image(1, 3000)).unwrap();
        assert_eq!(card.boot().slot, SlotId::A);
        card.report_healthy(SlotId::A).unwrap();
        card
    }

    pub(crate) fn slot(&self, slot: SlotId) -> SlotState {
        self.store.state().slot(slot)
    }
}

//! A manager that updates a card over power cuts, and images that are none for it.

use super::*;
use crate::boot::choose;
use crate::reset::{self, RETAINED};
use card_image::{
    AntiDowngrade, BoardName, ImageParts, KeyId, LayoutParts, Region, Requirements, Role,
    SecurityVersion, TrustedKey, Version, public_key, seal,
};
use nor_model::{Direct, Nor, Part};
use proxy_core::control::FIRMWARE_PIECE;
use std::string::String;
use std::vec::Vec;

type Flash = Direct<4, 1024>;

const SECRET: [u8; 32] = [3; 32];
const KEY: KeyId = KeyId(1);
const MEMORY: Region = Region { start: 0x8000_0000, len: 4096 };
const BOARD: BoardName = match BoardName::new("small") {
    Ok(name) => name,
    Err(_) => panic!(),
};

/// Slots of 4 KB, and progress that is recorded every KB.
fn layout() -> Layout {
    let packed = Layout::packed(16 << 10, 1 << 10, 1 << 10, 4 << 10).unwrap();
    Layout::new(LayoutParts { progress: 1 << 10, ..*packed.parts() }).unwrap()
}

fn demands<K>(keys: K) -> Demands<K> {
    Demands {
        board: BOARD,
        role: Role::Box,
        memory: MEMORY,
        keys,
        anti_downgrade: AntiDowngrade::BySecurityVersion,
        lowest_security: SecurityVersion(0),
    }
}

fn parts(major: u16) -> ImageParts {
    ImageParts {
        board: BOARD,
        role: Role::Box,
        version: Version { major, ..Version::default() },
        security: SecurityVersion(1),
        load: MEMORY.start,
        entry: MEMORY.start,
    }
}

fn signed(parts: ImageParts, length: usize, secret: &[u8; 32]) -> Vec<u8> {
    let payload: Vec<u8> =
        (0..length).map(|at| (at * 7 + usize::from(parts.version.major)) as u8).collect();
    let header = seal(parts.unsigned(&payload).unwrap(), KEY, secret).unwrap();
    [&header.emit()[..], &payload].concat()
}

fn image(major: u16) -> Vec<u8> {
    signed(parts(major), 3000, &SECRET)
}

fn id(image: &[u8]) -> FirmwareId {
    FirmwareId(Header::parse(image).unwrap().id().0)
}

/// A card, as long as its power lasts.
struct Card {
    flash: Flash,
    update: Update,
}

impl Card {
    /// Starts what the boot loader chooses.
    fn boot(mut flash: Flash) -> Self {
        flash.0.power_on();
        let keys = [TrustedKey { id: KEY, key: public_key(&SECRET) }];
        let life = reset::begin(&mut [0; RETAINED], None);
        let mut said = String::new();
        let requirements: Requirements<'_> = demands(&keys[..]);
        let chosen = choose(&mut flash, layout(), &requirements, true, &life, &mut said);
        let slot = chosen.unwrap_or_else(|| panic!("{said}")).started.slot;
        Self { flash, update: Update::new(layout(), slot, demands(KeysOfBootLoader)) }
    }

    /// One that runs a healthy image of version 1 from slot a.
    fn new() -> Self {
        let mut nor = Nor::new(Part::small(16 << 10), 1);
        nor.preload(layout().slot(SlotId::A).start, &image(1));
        let mut card = Self::boot(Direct(nor));
        card.healthy();
        card
    }

    fn restart(self) -> Self {
        Self::boot(self.flash)
    }

    fn healthy(&mut self) {
        self.update.report_healthy(&mut self.flash).unwrap();
    }

    fn ask(&mut self, request: FirmwareRequest) -> Result<FirmwareAnswer, FirmwareError> {
        self.update.handle(&mut self.flash, &request)
    }

    fn begin(&mut self, image: &[u8]) -> Result<FirmwareAnswer, FirmwareError> {
        let header = image.iter().copied().take(FIRMWARE_HEADER).collect();
        let image = Header::parse(image).map(|header| FirmwareId(header.id().0));
        let image = image.unwrap_or_default();
        self.ask(FirmwareRequest::Begin { image, header })
    }

    fn piece(&mut self, offset: u32, bytes: &[u8]) -> Result<FirmwareAnswer, FirmwareError> {
        self.ask(FirmwareRequest::Piece { offset, bytes: bytes.iter().copied().collect() })
    }

    /// All that a manager does to update it. Gives the bytes that it sent.
    fn push(&mut self, image: &[u8]) -> Result<usize, FirmwareError> {
        let mut answer = self.begin(image)?;
        let mut sent = 0;
        loop {
            let FirmwareAnswer::Next(next) = answer else { panic!("{answer:?}") };
            let rest = &image[next as usize..];
            if rest.is_empty() {
                break;
            }
            let piece = &rest[..rest.len().min(FIRMWARE_PIECE)];
            answer = self.piece(next, piece)?;
            sent += piece.len();
        }
        self.ask(FirmwareRequest::Finish(id(image)))?;
        Ok(sent)
    }

    fn status(&mut self) -> FirmwareStatus {
        match self.ask(FirmwareRequest::Status) {
            Ok(FirmwareAnswer::Status(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    /// State and major version of what is in a slot.
    fn slot(&mut self, slot: FirmwareSlot) -> (FirmwareState, Option<u16>) {
        let slot = self.status().slots[slot as usize];
        (slot.state, slot.version.map(|version| version.release[0]))
    }

    fn runs(&mut self) -> u16 {
        self.status().running().version.unwrap().release[0]
    }
}

#[test]
fn an_update_is_written_tried_and_kept() {
    let mut card = Card::new();
    let status = card.status();
    assert_eq!((status.board.as_str(), status.room, status.lowest_security), ("small", 4096, 1));
    assert_eq!((status.running, status.wanted), (FirmwareSlot::A, FirmwareSlot::A));
    assert_eq!(card.slot(FirmwareSlot::A), (FirmwareState::Healthy, Some(1)));
    assert_eq!(card.slot(FirmwareSlot::B), (FirmwareState::Empty, None));
    let new = image(2);
    assert_eq!(card.push(&new), Ok(3000));
    assert_eq!(card.slot(FirmwareSlot::B), (FirmwareState::Staged, Some(2)));
    assert_eq!((card.runs(), card.status().wanted), (1, FirmwareSlot::B));
    let mut card = card.restart();
    assert_eq!(card.runs(), 2);
    assert_eq!(card.slot(FirmwareSlot::B), (FirmwareState::Trying { left: 2 }, Some(2)));
    assert_eq!(card.push(&image(3)), Err(FirmwareError::LastGood), "this one may not be good");
    card.healthy();
    assert_eq!(card.slot(FirmwareSlot::B), (FirmwareState::Healthy, Some(2)));
    // Asked for again, nothing is written.
    let mut card = card.restart();
    assert_eq!(card.begin(&image(1)), Ok(FirmwareAnswer::Next(3256)), "it is there");
}

#[test]
fn an_update_is_resumed_wherever_the_power_was_cut() {
    let new = image(2);
    let (mut whole, mut resumed) = (false, false);
    for cut in (1..).step_by(13) {
        let mut card = Card::new();
        card.flash.0.cut_after(cut);
        let done = card.push(&new);
        let lost = !card.flash.0.is_powered();
        let mut card = card.restart();
        match (lost, card.runs()) {
            (true, 1) => {
                let sent = card.push(&new).unwrap();
                resumed |= (1..3000).contains(&sent);
                card = card.restart();
            }
            (true, 2) => {}
            (false, 2) => {
                assert_eq!(done, Ok(3000));
                whole = true;
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
        assert_eq!(card.runs(), 2, "cut at {cut}");
        card.healthy();
        if whole {
            break;
        }
    }
    assert!(resumed, "what was there was not sent again");
}

#[test]
fn a_manager_that_comes_back_goes_on_where_it_was() {
    let mut card = Card::new();
    let new = image(2);
    assert_eq!(card.piece(256, &new[256..512]), Err(FirmwareError::NothingBegun));
    assert_eq!(card.begin(&new), Ok(FirmwareAnswer::Next(256)));
    assert_eq!(card.piece(256, &new[256..700]), Ok(FirmwareAnswer::Next(700)));
    // The same again, since its answer was lost; and what is not next.
    assert_eq!(card.piece(256, &new[256..700]), Ok(FirmwareAnswer::Next(700)));
    assert_eq!(card.piece(1000, &new[1000..1001]), Ok(FirmwareAnswer::Next(700)));
    let finish = || FirmwareRequest::Finish(id(&new));
    assert_eq!(card.ask(finish()), Err(FirmwareError::Incomplete(700)));
    assert_eq!(card.ask(FirmwareRequest::Finish(id(&image(3)))), Err(FirmwareError::NothingBegun));
    assert_eq!(card.piece(700, &[0; 400]), Ok(FirmwareAnswer::Next(1100)));
    assert_eq!(card.slot(FirmwareSlot::B).0, FirmwareState::Writing { done: 1024 });
    // Another manager knows only what is recorded.
    assert_eq!(card.begin(&new), Ok(FirmwareAnswer::Next(1024)));
    assert_eq!(card.piece(1024, &[0; 512]), Ok(FirmwareAnswer::Next(1536)));
    // Those were not the image's bytes.
    for at in (1536..new.len()).step_by(512) {
        let piece = &new[at..new.len().min(at + 512)];
        card.piece(at as u32, piece).unwrap();
    }
    assert_eq!(card.piece(new.len() as u32, &[0]), Err(FirmwareError::TooLarge));
    assert_eq!(card.ask(finish()), Ok(FirmwareAnswer::Done), "the boot loader looks at it");
    card = card.restart();
    assert_eq!((card.runs(), card.status().wanted), (1, FirmwareSlot::A));
    assert_eq!(card.slot(FirmwareSlot::B).0, FirmwareState::Failed);
    assert_eq!(card.push(&new), Ok(3000), "from the beginning");
    assert_eq!(card.ask(finish()), Ok(FirmwareAnswer::Done), "it is so already");
}

#[test]
fn images_that_are_none_for_the_card_are_refused_before_anything_is_erased() {
    let mut card = Card::new();
    let good = image(2);
    let unsigned = parts(2).unsigned(&good[256..]).unwrap();
    let refusals = [
        (good[..255].to_vec(), FirmwareError::NotAnImage),
        ([&[0x55][..], &good[1..]].concat(), FirmwareError::NotAnImage),
        ([&good[..20], &[0x55], &good[21..]].concat(), FirmwareError::NotAnImage),
        (unsigned.emit().to_vec(), FirmwareError::Unsigned),
        (
            signed(
                ImageParts { board: BoardName::new("other").unwrap(), ..parts(2) },
                3000,
                &SECRET,
            ),
            FirmwareError::OtherBoard,
        ),
        (
            signed(ImageParts { role: Role::Host, ..parts(2) }, 3000, &SECRET),
            FirmwareError::OtherRole,
        ),
        (signed(parts(2), 4000, &SECRET), FirmwareError::TooLarge),
        (
            signed(ImageParts { security: SecurityVersion(0), ..parts(2) }, 3000, &SECRET),
            FirmwareError::Downgrade(1),
        ),
    ];
    for (image, refusal) in refusals {
        assert_eq!(card.begin(&image), Err(refusal));
        assert_eq!(card.slot(FirmwareSlot::B).0, FirmwareState::Empty, "{refusal:?}");
    }
}

/// What the manager compares with is what the card does.
#[test]
fn a_card_whose_policy_is_off_says_and_takes_any_security_version() {
    let mut card = Card::new();
    let old = signed(ImageParts { security: SecurityVersion(0), ..parts(2) }, 3000, &SECRET);
    assert_eq!(card.status().lowest_security, 1);
    card.update.demands.anti_downgrade = AntiDowngrade::Off;
    assert_eq!(card.status().lowest_security, 0);
    assert_eq!(card.push(&old), Ok(3000));
    assert_eq!(card.slot(FirmwareSlot::B), (FirmwareState::Staged, Some(2)));
    // What was healthy is not forgotten.
    card.update.demands.anti_downgrade = AntiDowngrade::BySecurityVersion;
    assert_eq!(card.status().lowest_security, 1);
}

/// The policy may be switched on after a release that closes a hole.
#[test]
fn what_joins_while_the_policy_is_off_counts_once_it_is_on() {
    let mut card = Card::new();
    let secure = signed(ImageParts { security: SecurityVersion(5), ..parts(2) }, 3000, &SECRET);
    card.push(&secure).unwrap();
    let mut card = card.restart();
    card.update.demands.anti_downgrade = AntiDowngrade::Off;
    card.healthy();
    assert_eq!(card.status().lowest_security, 0);
    card.update.demands.anti_downgrade = AntiDowngrade::BySecurityVersion;
    assert_eq!(card.status().lowest_security, 5);
    assert_eq!(card.begin(&image(3)), Err(FirmwareError::Downgrade(5)));
}

#[test]
fn there_is_no_way_back_to_an_image_that_never_ran() {
    let mut card = Card::new();
    let running = card.status().slots[0].image;
    card.push(&image(2)).unwrap();
    assert_eq!(card.status().wanted, FirmwareSlot::B);
    assert_eq!(
        card.ask(FirmwareRequest::RollBack(running)),
        Err(FirmwareError::NotBootable),
        "it is staged, and was never healthy"
    );
    let mut card = card.restart();
    card.healthy();
    let running = card.status().slots[1].image;
    for _ in 0..2 {
        assert_eq!(card.ask(FirmwareRequest::RollBack(running)), Ok(FirmwareAnswer::Done));
        assert_eq!(card.status().wanted, FirmwareSlot::A);
    }
    assert_eq!(card.restart().runs(), 1);
}

#[test]
fn a_forged_image_is_refused_by_the_boot_loader() {
    let mut card = Card::new();
    let forged = signed(parts(2), 3000, &[4; 32]);
    assert_eq!(card.push(&forged), Ok(3000), "the firmware has no keys");
    let mut card = card.restart();
    assert_eq!(card.runs(), 1);
    assert_eq!(card.slot(FirmwareSlot::B), (FirmwareState::Failed, Some(2)));
    assert_eq!(card.status().wanted, FirmwareSlot::A);
}

#[test]
fn an_image_under_the_name_of_another_is_refused_by_the_boot_loader() {
    let mut card = Card::new();
    let (new, other) = (image(2), id(&image(3)));
    let header = new.iter().copied().take(FIRMWARE_HEADER).collect();
    card.ask(FirmwareRequest::Begin { image: other, header }).unwrap();
    for at in (256..new.len()).step_by(512) {
        card.piece(at as u32, &new[at..new.len().min(at + 512)]).unwrap();
    }
    assert_eq!(card.ask(FirmwareRequest::Finish(other)), Ok(FirmwareAnswer::Done));
    let mut card = card.restart();
    assert_eq!(card.runs(), 1);
    assert_eq!(card.slot(FirmwareSlot::B).0, FirmwareState::Failed);
}

#[test]
fn a_broken_image_is_rolled_back_by_the_boot_loader() {
    let mut card = Card::new();
    card.push(&image(2)).unwrap();
    for _ in 0..3 {
        card = card.restart();
        assert_eq!(card.runs(), 2, "it never joins");
    }
    let mut card = card.restart();
    assert_eq!(card.runs(), 1);
    assert_eq!(card.slot(FirmwareSlot::B), (FirmwareState::Failed, Some(2)));
}

#[test]
fn it_goes_back_once() {
    let mut card = Card::new();
    let back = |card: &mut Card, from| card.ask(FirmwareRequest::RollBack(id(&image(from))));
    assert_eq!(back(&mut card, 1), Err(FirmwareError::NotBootable), "there is nothing else");
    card.push(&image(2)).unwrap();
    card = card.restart();
    card.healthy();
    assert_eq!(back(&mut card, 1), Ok(FirmwareAnswer::Done), "that does not run");
    assert_eq!(card.status().wanted, FirmwareSlot::B);
    for _ in 0..2 {
        assert_eq!(back(&mut card, 2), Ok(FirmwareAnswer::Done));
        assert_eq!(card.status().wanted, FirmwareSlot::A);
    }
    card = card.restart();
    assert_eq!(card.runs(), 1);
    assert_eq!(back(&mut card, 2), Ok(FirmwareAnswer::Done), "asked again, nothing happens");
    assert_eq!(card.status().wanted, FirmwareSlot::A);
}

#[test]
fn a_new_image_that_is_left_is_not_started_again() {
    let mut card = Card::new();
    card.push(&image(2)).unwrap();
    card = card.restart();
    card.ask(FirmwareRequest::RollBack(id(&image(2)))).unwrap();
    card = card.restart();
    assert_eq!(card.runs(), 1);
    assert_eq!(card.slot(FirmwareSlot::B), (FirmwareState::Failed, Some(2)));
}

/// The boot loader would not start it, and record it failed.
#[test]
fn it_does_not_go_back_to_what_is_not_allowed_any_more() {
    let mut card = Card::new();
    let newer = ImageParts { security: SecurityVersion(2), ..parts(2) };
    let new = signed(newer, 3000, &SECRET);
    card.push(&new).unwrap();
    card = card.restart();
    let back = FirmwareRequest::RollBack(id(&new));
    card.healthy();
    assert_eq!(card.ask(back.clone()), Err(FirmwareError::Downgrade(2)));
    assert_eq!(card.status().wanted, FirmwareSlot::B);
    assert_eq!(card.slot(FirmwareSlot::A), (FirmwareState::Healthy, Some(1)));
    // Nor to what is no image any more, from one that is on trial.
    let mut card = Card::new();
    card.push(&image(2)).unwrap();
    card = card.restart();
    let start = layout().slot(SlotId::A).start;
    card.flash.0.preload(start, &[0; 16]);
    let back = FirmwareRequest::RollBack(id(&image(2)));
    assert_eq!(card.ask(back), Err(FirmwareError::NotAnImage));
    assert!(matches!(card.slot(FirmwareSlot::B).0, FirmwareState::Trying { .. }));
}

#[test]
fn a_flash_that_fails_is_asked_again() {
    let mut card = Card::new();
    let new = image(2);
    card.begin(&new).unwrap();
    card.flash.0.power_off();
    assert_eq!(card.piece(256, &new[256..768]), Err(FirmwareError::Flash));
    assert_eq!(card.ask(FirmwareRequest::Status), Err(FirmwareError::Flash));
    card.flash.0.power_on();
    assert_eq!(card.piece(256, &new[256..768]), Err(FirmwareError::NothingBegun));
    assert_eq!(card.push(&new), Ok(3000));
}

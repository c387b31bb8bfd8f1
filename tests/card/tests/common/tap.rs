//! In the wire between a card and what is at its PCIe side: everything goes through, and what a test
//! says comes to the card beside it.

use std::io::{ErrorKind, Read, Result, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The card's end, as soon as the card is there.
type ToCard = Arc<Mutex<Option<UnixStream>>>;

pub(crate) struct Tap(ToCard);

impl Tap {
    /// Listens for a card at one socket, and dials the other for it.
    pub(crate) fn between(card: &Path, side: &Path) -> Result<Self> {
        let listener = UnixListener::bind(card)?;
        let (side, to_card) = (side.to_owned(), ToCard::default());
        let shared = to_card.clone();
        std::thread::spawn(move || -> Result<()> {
            let (mut card, _) = listener.accept()?;
            let mut side = UnixStream::connect(side)?;
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(card.try_clone()?);
            let mut up = side.try_clone()?;
            std::thread::spawn(move || std::io::copy(&mut card, &mut up));
            loop {
                let mut length = [0; 4];
                side.read_exact(&mut length)?;
                let mut frame = vec![0; u32::from_be_bytes(length) as usize];
                side.read_exact(&mut frame)?;
                say(&shared, &frame)?;
            }
        });
        Ok(Self(to_card))
    }

    /// A frame comes to the card.
    pub(crate) fn say(&self, frame: &[u8]) -> Result<()> {
        say(&self.0, frame)
    }
}

/// Frames are whole: nobody comes between a length and what it is of.
fn say(card: &Mutex<Option<UnixStream>>, frame: &[u8]) -> Result<()> {
    let mut card = card.lock().unwrap_or_else(PoisonError::into_inner);
    let card = card.as_mut().ok_or(ErrorKind::NotConnected)?;
    card.write_all(&[&(frame.len() as u32).to_be_bytes(), frame].concat())
}

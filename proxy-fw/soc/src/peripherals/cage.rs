//! A cage for a network module: whether one is plugged, and what it says it is.

use super::eeprom::{Module, ModuleError};
use super::pins::Presence;
use core::time::Duration;
use embedded_hal::digital::InputPin;
use embedded_hal::i2c::I2c;
use proxy_core::time::Instant;

/// How long a module has before it is asked first: an SFP's t_2w_start_up (SFF-8431).
const READY: Duration = Duration::from_millis(300);

/// How often one that does not answer is asked, and how far apart: QSFP28 modules may take 2 s
/// (t_serial, SFF-8679).
const ATTEMPTS: u8 = 5;
const AGAIN: Duration = Duration::from_millis(500);

/// What is new at a cage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<E> {
    /// No module is there.
    Empty,
    /// This one is.
    Module(Module),
    /// One is, and says nothing that can be used.
    Unknown(ModuleError<E>),
}

/// What is to be done next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Nothing.
    Nothing,
    /// To tell that it is empty.
    Empty,
    /// To ask the module.
    Ask { at: Instant, attempts: u8 },
}

/// A cage.
#[derive(Debug)]
pub struct Cage<P> {
    presence: Presence<P>,
    next: Next,
}

impl<P: InputPin> Cage<P> {
    /// A cage at the start of its board, with the pin that is low while a module is plugged
    /// (Mod_ABS of an SFP, ModPrsL of a QSFP28).
    ///
    /// # Errors
    ///
    /// What the pin says.
    pub fn new(pin: P) -> Result<Self, P::Error> {
        let presence = Presence::settled(pin)?;
        let next = if presence.is_present() {
            Next::Ask { at: Instant::ZERO, attempts: ATTEMPTS }
        } else {
            Next::Empty
        };
        Ok(Self { presence, next })
    }

    /// Looks at the cage: what is new, the first time what is there. A module that is asked takes
    /// the bus for some milliseconds; it was just plugged, so no frames wait meanwhile.
    ///
    /// # Errors
    ///
    /// What the pin says.
    pub fn poll<I: I2c>(
        &mut self,
        now: Instant,
        bus: impl FnOnce() -> I,
    ) -> Result<Option<Seen<I::Error>>, P::Error> {
        match self.presence.poll(now)? {
            Some(true) => self.next = Next::Ask { at: now + READY, attempts: ATTEMPTS },
            Some(false) => self.next = Next::Empty,
            None => {}
        }
        Ok(match core::mem::replace(&mut self.next, Next::Nothing) {
            Next::Nothing => None,
            Next::Empty => Some(Seen::Empty),
            Next::Ask { at, attempts } if now < at => {
                self.next = Next::Ask { at, attempts };
                None
            }
            Next::Ask { attempts, .. } => match Module::identify(bus()) {
                Ok(module) => Some(Seen::Module(module)),
                Err(ModuleError::UnknownKind(kind)) => {
                    Some(Seen::Unknown(ModuleError::UnknownKind(kind)))
                }
                Err(_) if attempts > 1 => {
                    self.next = Next::Ask { at: now + AGAIN, attempts: attempts - 1 };
                    None
                }
                Err(error) => Some(Seen::Unknown(error)),
            },
        })
    }

    /// Gives the pin back.
    pub fn release(self) -> P {
        self.presence.release()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peripherals::eeprom::{MODULE, tests::page};
    use embedded_hal::i2c::{ErrorKind, NoAcknowledgeSource};
    use embedded_hal_mock::eh1::digital::{Mock as Pin, State, Transaction as Level};
    use embedded_hal_mock::eh1::i2c::{Mock as Bus, Transaction};
    use std::vec;
    use std::vec::Vec;

    fn pin(levels: &[State]) -> Pin {
        Pin::new(&levels.iter().map(|level| Level::get(*level)).collect::<Vec<_>>())
    }

    fn answers() -> Vec<Transaction> {
        vec![
            Transaction::write_read(MODULE, vec![0], vec![3]),
            Transaction::write_read(MODULE, vec![0], page(3)),
        ]
    }

    fn silent() -> Vec<Transaction> {
        let nobody = ErrorKind::NoAcknowledge(NoAcknowledgeSource::Address);
        vec![Transaction::write_read(MODULE, vec![0], vec![0]).with_error(nobody)]
    }

    /// Looks at a cage after so many milliseconds, with what is on the bus then.
    fn look(cage: &mut Cage<Pin>, at: u64, bus: &[Transaction]) -> Option<Seen<ErrorKind>> {
        let mut mock = Bus::new(bus);
        let now = Instant::ZERO + Duration::from_millis(at);
        let seen = cage.poll(now, || &mut mock).unwrap();
        mock.done();
        seen
    }

    #[test]
    fn what_is_there_at_the_start_is_told_once() {
        let mut cage = Cage::new(pin(&[State::High; 3])).unwrap();
        assert_eq!(look(&mut cage, 0, &[]), Some(Seen::Empty));
        assert_eq!(look(&mut cage, 1000, &[]), None);
        cage.release().done();

        let mut cage = Cage::new(pin(&[State::Low; 3])).unwrap();
        let Some(Seen::Module(module)) = look(&mut cage, 0, &answers()) else { panic!("none") };
        assert_eq!(&module.vendor[..5], b"Maker");
        assert_eq!(look(&mut cage, 1000, &[]), None);
        cage.release().done();
    }

    #[test]
    fn a_module_that_is_plugged_is_asked_when_it_is_ready_and_one_that_is_taken_out_is_told() {
        use State::{High, Low};
        let levels = [High, High, Low, Low, Low, Low, High, High, High];
        let mut cage = Cage::new(pin(&levels)).unwrap();
        assert_eq!(look(&mut cage, 0, &[]), Some(Seen::Empty));
        assert_eq!(look(&mut cage, 1000, &[]), None, "contacts bounce");
        assert_eq!(look(&mut cage, 1100, &[]), None, "it is there and not ready");
        assert_eq!(look(&mut cage, 1399, &[]), None);
        assert!(matches!(look(&mut cage, 1400, &answers()), Some(Seen::Module(_))));
        assert_eq!(look(&mut cage, 5000, &[]), None);
        assert_eq!(look(&mut cage, 5100, &[]), Some(Seen::Empty));
        assert_eq!(look(&mut cage, 5200, &[]), None);
        cage.release().done();
    }

    #[test]
    fn one_that_does_not_answer_is_asked_for_two_seconds() {
        let mut cage = Cage::new(pin(&[State::Low; 7])).unwrap();
        for at in [0, 500, 1000, 1500] {
            assert_eq!(look(&mut cage, at, &silent()), None, "{at} ms");
        }
        let nobody = ErrorKind::NoAcknowledge(NoAcknowledgeSource::Address);
        let unknown = Some(Seen::Unknown(ModuleError::Bus(nobody)));
        assert_eq!(look(&mut cage, 2000, &silent()), unknown);
        assert_eq!(look(&mut cage, 2500, &[]), None);
        cage.release().done();
    }

    #[test]
    fn one_of_another_kind_is_asked_once() {
        let mut cage = Cage::new(pin(&[State::Low; 3])).unwrap();
        let other = [Transaction::write_read(MODULE, vec![0], vec![0x0b])];
        let unknown = Some(Seen::Unknown(ModuleError::UnknownKind(0x0b)));
        assert_eq!(look(&mut cage, 0, &other), unknown);
        assert_eq!(look(&mut cage, 500, &[]), None);
        cage.release().done();
    }
}

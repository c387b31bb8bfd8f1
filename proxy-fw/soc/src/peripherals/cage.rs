//! A cage for a network module: whether one is plugged, and what it says it is.

use super::eeprom::{Inquiry, ModuleError, Said};
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
    /// One is, which says this of itself, one after the other.
    Module(Said),
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
    /// To ask the module, or to go on with that.
    Ask { at: Instant, attempts: u8, inquiry: Inquiry },
}

impl Next {
    fn ask(at: Instant) -> Self {
        Self::Ask { at, attempts: ATTEMPTS, inquiry: Inquiry::NEW }
    }
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
        let next = if presence.is_present() { Next::ask(Instant::ZERO) } else { Next::Empty };
        Ok(Self { presence, next })
    }

    /// Looks at the cage: what is new. A module is asked a piece at each look, for devices may be lent
    /// again before it is ready, and their links do not wait for all of it.
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
            Some(true) => self.next = Next::ask(now + READY),
            Some(false) => self.next = Next::Empty,
            None => {}
        }
        let seen = match &mut self.next {
            Next::Nothing => return Ok(None),
            Next::Empty => Seen::Empty,
            Next::Ask { at, .. } if now < *at => return Ok(None),
            Next::Ask { at, attempts, inquiry } => match inquiry.go_on(bus()) {
                Ok(said) => {
                    if inquiry.is_over() {
                        self.next = Next::Nothing;
                    }
                    return Ok(said.map(Seen::Module));
                }
                Err(ModuleError::UnknownKind(kind)) => {
                    Seen::Unknown(ModuleError::UnknownKind(kind))
                }
                Err(_) if *attempts > 1 => {
                    (*at, *attempts, *inquiry) = (now + AGAIN, *attempts - 1, Inquiry::NEW);
                    return Ok(None);
                }
                Err(error) => Seen::Unknown(error),
            },
        };
        self.next = Next::Nothing;
        Ok(Some(seen))
    }

    /// Gives the pin back.
    pub fn release(self) -> P {
        self.presence.release()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peripherals::eeprom::{MODULE, tests};
    use embedded_hal::i2c::{ErrorKind, NoAcknowledgeSource};
    use embedded_hal_mock::eh1::digital::{Mock as Pin, State, Transaction as Level};
    use embedded_hal_mock::eh1::i2c::{Mock as Bus, Transaction};
    use std::string::{String, ToString};
    use std::vec;
    use std::vec::Vec;

    fn pin(levels: &[State]) -> Pin {
        Pin::new(&levels.iter().map(|level| Level::get(*level)).collect::<Vec<_>>())
    }

    /// What is read of a module, one transaction at each look.
    fn answers() -> Vec<Transaction> {
        tests::reads(3, 0, &tests::page(3))
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

    /// A module is asked from then on, at a look every quarter of a second: what it says it is.
    fn asked(cage: &mut Cage<Pin>, from: u64) -> Vec<String> {
        let looks = answers().into_iter().zip((from..).step_by(250));
        let seen = looks.filter_map(|(read, at)| look(cage, at, &[read]));
        seen.map(|seen| match seen {
            Seen::Module(said) => said.to_string(),
            other => panic!("{other:?}"),
        })
        .collect()
    }

    /// What one says.
    const SAID: [&str; 3] = ["vendor Maker", "part PART-10G-SR", "serial number SN0042"];

    #[test]
    fn what_is_there_at_the_start_is_told_once() {
        let mut cage = Cage::new(pin(&[State::High; 3])).unwrap();
        assert_eq!(look(&mut cage, 0, &[]), Some(Seen::Empty));
        assert_eq!(look(&mut cage, 1000, &[]), None);
        cage.release().done();

        let mut cage = Cage::new(pin(&[State::Low; 12])).unwrap();
        assert_eq!(asked(&mut cage, 0), SAID);
        assert_eq!(look(&mut cage, 5000, &[]), None);
        cage.release().done();
    }

    #[test]
    fn a_module_that_is_plugged_is_asked_when_it_is_ready_and_one_that_is_taken_out_is_told() {
        use State::{High, Low};
        let levels = [&[High; 2][..], &[Low; 14], &[High; 3]].concat();
        let mut cage = Cage::new(pin(&levels)).unwrap();
        assert_eq!(look(&mut cage, 0, &[]), Some(Seen::Empty));
        assert_eq!(look(&mut cage, 1000, &[]), None, "contacts bounce");
        assert_eq!(look(&mut cage, 1100, &[]), None, "it is there and not ready");
        assert_eq!(look(&mut cage, 1399, &[]), None);
        assert_eq!(asked(&mut cage, 1400), SAID);
        assert_eq!(look(&mut cage, 5000, &[]), None);
        assert_eq!(look(&mut cage, 5100, &[]), None);
        assert_eq!(look(&mut cage, 5200, &[]), Some(Seen::Empty));
        assert_eq!(look(&mut cage, 5300, &[]), None);
        cage.release().done();
    }

    #[test]
    fn one_that_is_exchanged_while_it_is_asked_is_not_mixed_with_the_other() {
        use State::{High, Low};
        let levels = [&[Low; 4][..], &[High; 2], &[Low; 12]].concat();
        let mut cage = Cage::new(pin(&levels)).unwrap();
        for (at, piece) in [0, 250, 500].into_iter().zip(answers()) {
            assert_eq!(look(&mut cage, at, &[piece]), None);
        }
        assert_eq!(look(&mut cage, 750, &answers()[3..4]), None, "contacts bounce");
        assert_eq!(look(&mut cage, 1000, &[]), Some(Seen::Empty));
        for at in [1250, 1500] {
            assert_eq!(look(&mut cage, at, &[]), None);
        }
        assert_eq!(asked(&mut cage, 1800), SAID);
        cage.release().done();
    }

    #[test]
    fn one_that_fails_meanwhile_is_asked_again_from_its_beginning() {
        let mut cage = Cage::new(pin(&[State::Low; 15])).unwrap();
        for (at, piece) in [0, 250].into_iter().zip(answers()) {
            assert_eq!(look(&mut cage, at, &[piece]), None);
        }
        let fails = Transaction::write_read(MODULE, vec![16], vec![0; 16]);
        assert_eq!(look(&mut cage, 500, &[fails.with_error(ErrorKind::Bus)]), None);
        assert_eq!(look(&mut cage, 999, &[]), None);
        assert_eq!(asked(&mut cage, 1000), SAID);
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
        let mut cage = Cage::new(pin(&[State::Low; 4])).unwrap();
        let unknown = Some(Seen::Unknown(ModuleError::UnknownKind(0x0b)));
        assert_eq!(look(&mut cage, 0, &tests::reads(0x0b, 0, &[])), None);
        assert_eq!(look(&mut cage, 250, &[]), unknown);
        assert_eq!(look(&mut cage, 500, &[]), None);
        cage.release().done();
    }
}

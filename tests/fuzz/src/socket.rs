//! The TLP socket: any records of a root complex. Wrong ones end the connection with a reason; of
//! the others every request is answered once, and what the proxy sends is right.

use crate::input::Input;
use core::time::Duration;
use host_proxy::front::socket::session::{HEADER, MAX_RECORD, Session, Taken};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::TLP_BUFFER;
use proxy_core::link::LinkConfig;
use proxy_core::role::Role;
use proxy_core::switch::{ResetKind, SwitchConfig};
use proxy_core::time::Instant;
use tlp_codec::tlp::{Class, Packet, Repr};

const HELLO: &[u8] = &[16, 0, 0, 0, 1, 0, 0, 2, 0];
const RECORDS: usize = 300;

/// Takes records, each with how it comes and its length in front.
pub fn run(data: &[u8]) {
    let switch = SwitchConfig { ports: 3, ..SwitchConfig::default() };
    // There are no peers, and so no storage for links to speak of.
    let link =
        LinkConfig { channels: 1, shared_receive: 0, shared_send: 0, ..LinkConfig::default() };
    let config = HostConfig { switch, link, peers: 1, ..HostConfig::default() };
    let mut server = Server {
        role: HostRole::new(&config).expect("a host"),
        session: Session::default(),
        now: Instant::from_nanos(1),
        asked: 0,
    };
    let mut input = Input::new(data);
    for _ in 0..RECORDS {
        if input.is_empty() {
            break;
        }
        server.step(&mut input);
    }
    server.drain();
}

/// Whether the TLP in a record is a request that has a completion. What breaks a rule vanishes.
fn asks(record: &[u8]) -> bool {
    let repr = Repr::from_bytes(&record[HEADER..]);
    repr.is_ok_and(|repr| repr.class() == Class::NonPosted)
}

struct Server {
    role: HostRole,
    session: Session,
    now: Instant,
    /// Requests without their completion.
    asked: usize,
}

impl Server {
    fn step(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        match how {
            // Time, and what is due.
            0xf0.. => {
                self.now = self.now + Duration::from_millis(u64::from(input.u8()) << (how & 7));
                self.role.handle_timeout(self.now);
                self.drain();
            }
            0xe0..0xf0 => self.record(HELLO),
            0xa0..0xe0 => {
                // A TLP of a type that is known, with the bytes that it says.
                let mut tlp = input.bytes(16).to_vec();
                let need = Packet::new_header_checked(&tlp[..]).map_or(0, |p| p.total_len());
                tlp.resize(need.clamp(tlp.len(), TLP_BUFFER), how);
                self.record(&[&[0, 0, 0, 0], &tlp[..]].concat());
            }
            _ => {
                let length = usize::from(input.u8()) << (how & 3);
                let record = input.bytes(length).to_vec();
                self.record(&record);
            }
        }
    }

    fn record(&mut self, record: &[u8]) {
        let greeted = self.session.is_greeted();
        match self.session.take(&mut self.role, self.now, record) {
            Ok(Taken::Tlp) => {
                assert!(greeted && record.len() <= MAX_RECORD);
                self.asked += usize::from(asks(record));
            }
            Ok(Taken::Hello) => {
                assert!(self.session.is_greeted());
                for record in Session::greeting(&self.role) {
                    assert!((HEADER + 1..=MAX_RECORD).contains(&record.len()));
                }
            }
            Ok(Taken::Done) => {
                assert!(greeted);
                // A reset forgets what was asked before it.
                if record[0] == 1 && record[HEADER] < 2 {
                    self.drain_of_the_reset();
                }
            }
            Ok(Taken::NoRoom) => {
                // As the daemon does it: what is in the way goes first.
                self.drain();
                let again = self.session.take(&mut self.role, self.now, record);
                assert_ne!(again, Ok(Taken::NoRoom), "there is room once all was taken");
                if again == Ok(Taken::Tlp) {
                    self.asked += usize::from(asks(record));
                    self.drain();
                }
            }
            Err(why) => {
                assert!(!why.is_empty());
                // It is let go, and the next one finds a switch that was reset.
                self.session = Session::default();
                self.role.handle_reset(self.now, ResetKind::Fundamental);
                self.drain_of_the_reset();
            }
        }
    }

    /// What the role has to say. Gives how many completions there were.
    fn poll(&mut self) -> usize {
        let mut buffer = [0; TLP_BUFFER];
        let mut completions = 0;
        for _ in 0..10_000 {
            let Some(length) = self.role.poll_tlp(self.now, &mut buffer) else {
                while self.role.poll_control().is_some() {}
                return completions;
            };
            match Repr::from_bytes(&buffer[..length]) {
                Ok(repr) => completions += usize::from(repr.class() == Class::Completion),
                Err(error) => {
                    panic!("it sends what is no TLP ({error}): {:02x?}", &buffer[..length])
                }
            }
        }
        panic!("the role does not come to an end");
    }

    /// Nothing is lent, so that everything is answered at once.
    fn drain(&mut self) {
        let completions = self.poll();
        assert_eq!(completions, self.asked, "completions, and requests");
        self.asked = 0;
    }

    /// The same where answers may have been forgotten.
    fn drain_of_the_reset(&mut self) {
        assert!(self.poll() <= self.asked);
        self.asked = 0;
    }
}

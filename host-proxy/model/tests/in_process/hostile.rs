//! Whatever comes up from below, the host neither panics nor hangs.

use crate::fabric::quick;
use host_model::{ModelHost, PortError, TlpPort};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, CplStatus, Kind, MAX_TLP, Packet, Repr};

const FIRST: Bdf = Bdf::from_bits(0x0100);

/// Answers configuration reads with what a number makes of them, and throws in what it was given.
struct Hostile {
    seed: u64,
    answers: VecDeque<Vec<u8>>,
    /// TLPs, or what looks like them, each sent once.
    thrown_in: VecDeque<Vec<u8>>,
    sent: usize,
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Hostile {
    fn register(&self, destination: Bdf, register: u16) -> Option<u32> {
        let place = mix(self.seed ^ u64::from(destination.bits()));
        let first = destination == FIRST;
        // Few enough functions that the search ends soon.
        let far = destination.bus().get() > 6 || destination.function().get() > 1;
        if !first && (far || !place.is_multiple_of(3)) {
            return None;
        }
        let value = mix(place ^ u64::from(register)) as u32;
        Some(match register {
            // A switch, and behind it whatever comes: half of them are bridges.
            0x0c if first => value & 0xff80_ffff | 1 << 16,
            0x0c => value & 0xff80_ffff | (value >> 3 & 1) << 16,
            0x04 => value | 1 << 20,
            0x40 if first => 0x10 | 0x60 << 8 | 0x0052 << 16,
            // Some capability lists lead somewhere.
            0x34 => 0x40,
            0x40 => 0x10 | 0x60 << 8 | 0x0162 << 16,
            0x60 => 0x05 | (value & 0xffff_ff00),
            _ => value,
        })
    }

    fn answer(&mut self, tlp: &[u8]) {
        let packet = Packet::new_checked(tlp).unwrap();
        let repr = Repr::parse(&packet).expect("the host sends what a receiver takes");
        let mut data = [0; 4];
        let (requester, tag, completer, status, has_data) = match repr.kind {
            Kind::ConfigRead { requester, tag, destination, register, .. } => {
                let value = self.register(destination, register);
                data = value.unwrap_or(0).to_le_bytes();
                let status = value.map_or(CplStatus::UnsupportedRequest, |_| CplStatus::Success);
                (requester, tag, destination, status, value.is_some())
            }
            Kind::ConfigWrite { requester, tag, destination, .. } => {
                (requester, tag, destination, CplStatus::Success, false)
            }
            Kind::MemRead { requester, tag, .. } => {
                (requester, tag, Bdf::default(), CplStatus::UnsupportedRequest, false)
            }
            _ => return,
        };
        let completion = Repr::new(Kind::Completion {
            completer,
            requester,
            tag,
            status,
            bcm: false,
            byte_count: 4,
            lower_address: 0,
            locked: false,
            data: if has_data { &data } else { &[] },
        });
        let mut buf = [0; MAX_TLP];
        let len = completion.emit(&mut buf).unwrap();
        self.answers.push_back(buf[..len].to_vec());
    }
}

impl TlpPort for Hostile {
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError> {
        self.sent += 1;
        self.answer(tlp);
        Ok(())
    }

    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError> {
        let tlp = match self.thrown_in.pop_front() {
            Some(tlp) => tlp,
            None => match self.answers.pop_front() {
                Some(tlp) => tlp,
                None => {
                    while Instant::now() < deadline {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    return Ok(None);
                }
            },
        };
        buf[..tlp.len()].copy_from_slice(&tlp);
        Ok(Some(tlp.len()))
    }
}

fn host(seed: u64, thrown_in: Vec<Vec<u8>>) -> ModelHost<Hostile> {
    let mut config = quick();
    config.root.completion_timeout = Duration::from_millis(2);
    config.root.retry_timeout = Duration::from_millis(2);
    config.hot_plug.link_timeout = Duration::from_millis(2);
    config.hot_plug.command_timeout = Duration::from_millis(2);
    let port = Hostile { seed, answers: VecDeque::new(), thrown_in: thrown_in.into(), sent: 0 };
    ModelHost::new(port, config).unwrap()
}

/// A device's request that may be right, or nearly.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..600);
    let read = (any::<u64>(), 1_u16..=1024, any::<u16>(), 0..4_u8).prop_map(
        |(address, length_dw, tag, place)| {
            let address = match place {
                0 => address & !3,
                1 => (1 << 32) + (address & 0x3ff_fffc),
                2 => (1 << 32) + (64 << 20) - 4 * (address & 0x1f),
                _ => 0xfee0_0000 | address & 0xf_fffc,
            };
            let mut buf = vec![0; MAX_TLP];
            let kind = Kind::MemRead {
                requester: Bdf::from_bits(tag),
                tag: Tag::new(tag & 1023).unwrap(),
                address,
                length_dw,
                enables: ByteEnables::all(length_dw),
                hint: None,
                locked: false,
            };
            let len = Repr::new(kind).emit(&mut buf).unwrap_or(0);
            buf.truncate(len);
            buf
        },
    );
    prop_oneof![bytes, read]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn configuration_space_full_of_nonsense(seed: u64) {
        let mut host = host(seed, Vec::new());
        // It may end with an error; it has to end.
        let _ = host.enumerate();
        host.service(Instant::now()).unwrap();
        let tree = host.tree();
        prop_assert!(!tree.to_string().is_empty());
        prop_assert_eq!(host.root().outstanding(), 0);
        prop_assert!(host.root().counters().config_requests > 100, "nothing was looked at");
    }

    #[test]
    fn tlps_full_of_nonsense(
        seed: u64,
        requests in proptest::collection::vec((request(), any::<(u16, u8)>()), 0..40),
    ) {
        let thrown_in = requests
            .into_iter()
            .map(|(mut tlp, (at, change))| {
                if !tlp.is_empty() && change & 1 != 0 {
                    let at = usize::from(at) % tlp.len();
                    tlp[at] ^= change;
                }
                tlp
            })
            .collect();
        let mut host = host(seed, thrown_in);
        host.root_mut().idle(Instant::now() + Duration::from_millis(1)).unwrap();
        let _ = host.config_read(Bdf::from_bits(0x100), 0, 4);
        prop_assert!(host.root_mut().port_mut().sent <= 40 * 1024 + 10);
    }
}

//! Why a card's life began, as its manager is told.

use super::*;
use proxy_core::control::{Decoded, ResetCause, ToProxy, Welcome, decode, encode};
use tlp_codec::ids::NodeId;

impl Bench {
    /// A manager's conversation from hello to its welcome, without a network.
    fn join(&mut self) {
        let welcome = ToProxy::Welcome(Welcome {
            version: CONTROL_VERSION,
            node: NodeId::new(4).unwrap(),
            term: Term(1),
        });
        let now = self.board.now;
        let conversation = self.card.manage.conversation();
        conversation.handle_timeout(now);
        conversation.handle_open(now);
        let hello = conversation.outgoing().len();
        conversation.handle_sent(hello);
        let length = encode(&welcome, conversation.room()).unwrap().len();
        conversation.handle_received(length);
        self.card.talk(now, &mut self.board);
        assert!(self.card.manage.conversation().is_joined());
    }

    /// What the card says now, of which the stream takes so many bytes at most.
    fn said(&mut self, most: usize) -> Option<FromProxy> {
        let conversation = self.card.manage.conversation();
        let bytes = conversation.outgoing().to_vec();
        conversation.handle_sent(most.min(bytes.len()));
        self.card.talk(self.board.now, &mut self.board);
        match decode(&bytes).unwrap() {
            Decoded::Message(message, _) => Some(message),
            Decoded::Incomplete => None,
        }
    }
}

#[test]
fn why_a_life_began_is_said_until_it_has_gone_out() {
    let mut bench = Bench::new(64);
    let (cause, text) = (ResetCause::Watchdog, heapless::String::new());
    let report = ResetReport { cause, boots: 2, lived_ms: 3, place: 4, text };
    bench.card.config.reset = Some(report.clone());
    for most in [0, 5, usize::MAX] {
        bench.join();
        assert_eq!(bench.said(most), Some(FromProxy::Reset(report.clone())), "{most}");
        if most < usize::MAX {
            // The rest is all that there is to say, and then the stream ends.
            assert!(!bench.card.manage.conversation().outgoing().is_empty());
        } else {
            assert_eq!(bench.said(most), None);
        }
        bench.card.manage.conversation().handle_closed(bench.board.now);
        bench.card.talk(bench.board.now, &mut bench.board);
        bench.board.now = bench.board.now + Duration::from_secs(3);
    }
    bench.join();
    assert_eq!(bench.said(usize::MAX), None, "it has gone out");
}

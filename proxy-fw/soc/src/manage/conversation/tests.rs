use super::*;
use proxy_core::control::{CONTROL_VERSION, Name, Refused, RoleKind};
use std::string::ToString;
use std::vec::Vec;
use tlp_codec::ids::NodeId;

fn hello() -> Hello {
    Hello {
        version: CONTROL_VERSION,
        name: Name::try_from("card").unwrap(),
        role: RoleKind::Box { slots: 1 },
        incarnation: 7,
        node: None,
        paths: heapless::Vec::new(),
        mtu: 1500,
        term: Term(3),
    }
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn bytes(message: &ToProxy) -> Vec<u8> {
    let mut buf = [0; 4096];
    encode(message, &mut buf).unwrap().to_vec()
}

fn hear(conversation: &mut Conversation, bytes: &[u8]) {
    conversation.room()[..bytes.len()].copy_from_slice(bytes);
    conversation.handle_received(bytes.len());
}

fn said(conversation: &mut Conversation) -> Option<FromProxy> {
    let bytes = conversation.outgoing().to_vec();
    conversation.handle_sent(bytes.len());
    match decode(&bytes).unwrap() {
        Decoded::Message(message, used) => {
            assert_eq!(used, bytes.len());
            Some(message)
        }
        Decoded::Incomplete => None,
    }
}

fn welcome(node: u16) -> ToProxy {
    let node = NodeId::new(node).unwrap();
    ToProxy::Welcome(Welcome { version: CONTROL_VERSION, node, term: Term(9) })
}

/// One that has just said hello.
fn greeting() -> Conversation {
    let mut conversation = Conversation::new(hello());
    conversation.handle_timeout(at(0));
    assert!(conversation.wants_stream());
    conversation.handle_open(at(1));
    assert_eq!(said(&mut conversation), Some(FromProxy::Hello(hello())));
    conversation
}

fn joined() -> Conversation {
    let mut conversation = greeting();
    hear(&mut conversation, &bytes(&welcome(4)));
    assert!(matches!(conversation.poll(at(2)), Some(Heard::Joined(_))));
    assert!(conversation.is_joined());
    conversation
}

#[test]
fn joins_asks_and_answers() {
    let mut conversation = joined();
    let body = Request::ReadTable { from: 0 };
    let request = bytes(&ToProxy::Request { id: OperationId(5), term: Term(9), body });
    // In two pieces, with a ping behind.
    hear(&mut conversation, &request[..3]);
    assert_eq!(conversation.poll(at(3)), None);
    hear(&mut conversation, &request[3..]);
    hear(&mut conversation, &bytes(&ToProxy::Ping));
    let heard = conversation.poll(at(3));
    assert!(matches!(heard, Some(Heard::Request { id: OperationId(5), .. })), "{heard:?}");
    assert_eq!(conversation.poll(at(3)), None);
    assert_eq!(said(&mut conversation), Some(FromProxy::Pong));
    assert!(conversation.has_room());
    assert!(conversation.say(&FromProxy::Pong));
    assert!(!conversation.say(&FromProxy::Pong), "the first is not sent yet");
}

#[test]
fn a_ping_waits_for_room_and_holds_up_what_is_behind_it() {
    let mut conversation = joined();
    assert!(conversation.say(&FromProxy::Pong));
    conversation.handle_sent(1);
    hear(&mut conversation, &bytes(&ToProxy::Ping));
    hear(&mut conversation, &bytes(&ToProxy::Ping));
    assert_eq!(conversation.poll(at(3)), None);
    assert!(!conversation.has_room(), "the pong comes first");
    conversation.handle_sent(conversation.outgoing().len());
    for _ in 0..2 {
        assert_eq!(conversation.poll(at(4)), None);
        assert_eq!(said(&mut conversation), Some(FromProxy::Pong));
    }
    assert_eq!(conversation.poll(at(4)), None);
    assert!(conversation.has_room());
}

#[test]
fn it_remembers_its_node_and_the_highest_term() {
    let mut conversation = joined();
    conversation.handle_closed(at(10));
    assert_eq!(conversation.poll(at(10)), Some(Heard::Lost(Lost::Closed)));
    assert!(!conversation.wants_stream());
    conversation.handle_timeout(at(200));
    conversation.handle_open(at(200));
    let Some(FromProxy::Hello(hello)) = said(&mut conversation) else { panic!("no hello") };
    assert_eq!((hello.node, hello.term), (NodeId::new(4).ok(), Term(9)));
    // Another number in the same life is not taken.
    hear(&mut conversation, &bytes(&welcome(5)));
    assert_eq!(conversation.poll(at(201)), Some(Heard::Lost(Lost::OtherNode)));
}

#[test]
fn pauses_grow_up_to_two_seconds_and_a_welcome_ends_that() {
    let mut conversation = Conversation::new(hello());
    let mut now = Instant::ZERO;
    let mut pauses = Vec::new();
    for _ in 0..7 {
        conversation.handle_timeout(now);
        assert!(conversation.wants_stream());
        conversation.handle_closed(now);
        pauses.push(conversation.poll_timeout().saturating_since(now).as_millis());
        now = conversation.poll_timeout();
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
    conversation.handle_timeout(now);
    conversation.handle_open(now);
    hear(&mut conversation, &bytes(&welcome(4)));
    while conversation.poll(now).is_some() {}
    conversation.handle_closed(now);
    assert_eq!(conversation.poll_timeout(), now + FIRST_PAUSE);
}

#[test]
fn every_wait_has_a_bound() {
    let mut conversation = Conversation::new(hello());
    conversation.handle_timeout(at(0));
    conversation.handle_timeout(at(5000));
    assert_eq!(conversation.poll(at(5000)), Some(Heard::Lost(Lost::NoAnswer)), "no stream");
    let mut conversation = greeting();
    conversation.handle_timeout(at(5001));
    assert_eq!(conversation.poll(at(5001)), Some(Heard::Lost(Lost::NoAnswer)), "no welcome");
    let mut conversation = joined();
    conversation.handle_timeout(at(15_001));
    assert!(conversation.is_joined());
    conversation.handle_timeout(at(15_002));
    assert_eq!(conversation.poll(at(15_002)), Some(Heard::Lost(Lost::Silent)));
}

#[test]
fn what_breaks_the_protocol_ends_the_conversation() {
    let reason = heapless::String::try_from("the name is taken").unwrap();
    let request = ToProxy::Request {
        id: OperationId(1),
        term: Term(9),
        body: Request::ReadTable { from: 0 },
    };
    let refused = ToProxy::Refused(Refused { reason: reason.clone() });
    let mut garbage = 2_u32.to_le_bytes().to_vec();
    garbage.extend_from_slice(&[0xff; 2]);
    let long = 16_000_u32.to_le_bytes().to_vec();
    let cases = [
        (false, bytes(&request)),
        (false, bytes(&refused)),
        (true, bytes(&welcome(4))),
        (true, bytes(&refused)),
        (true, garbage),
        (true, u32::MAX.to_le_bytes().to_vec()),
    ];
    for (welcomed, bytes) in cases {
        let mut conversation = if welcomed { joined() } else { greeting() };
        hear(&mut conversation, &bytes);
        let heard = conversation.poll(at(3));
        assert!(matches!(heard, Some(Heard::Lost(_))), "{bytes:?}: {heard:?}");
        assert!(!conversation.wants_stream());
        assert!(conversation.outgoing().is_empty());
    }
    // One that is longer than a card takes is found when the inbox is full.
    let mut conversation = joined();
    hear(&mut conversation, &long);
    assert_eq!(conversation.poll(at(3)), None);
    let rest = conversation.room().len();
    conversation.handle_received(rest);
    let Some(Heard::Lost(why)) = conversation.poll(at(3)) else { panic!("it goes on") };
    assert_eq!(
        why.to_string(),
        "the manager breaks the protocol: a message is too long for a card"
    );
    // A manager hangs up at once then: both come together.
    let mut conversation = greeting();
    assert!(!conversation.is_to_hear());
    hear(&mut conversation, &bytes(&refused));
    assert!(conversation.is_to_hear());
    let why = Lost::Refused(reason);
    assert_eq!(conversation.poll(at(2)), Some(Heard::Lost(why.clone())));
    assert!(!conversation.is_to_hear());
    assert!(why.to_string().ends_with("the name is taken"));
}

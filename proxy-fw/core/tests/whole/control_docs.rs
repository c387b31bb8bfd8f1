//! `docs/control.md` says what the code does: its example bytes are the bytes, its numbers the
//! numbers.

use proxy_core::control::*;
use proxy_core::limits::{HAS_RECORDER, MAX_ANSWER, MAX_RECORDED, PAGE, RECORDER_PIECE};
use proxy_core::recorder::{Entry, Recorded};
use proxy_core::stamps::{Sampling, StampedTlp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use tlp_codec::ids::{
    BindingKey, Epoch, NodeId, OutstandingRef, PathId, PortId, SlotFunction, SlotId,
};

const DOCUMENT: &str = include_str!("../../docs/control.md");

/// Examples by name: the bytes before each line's explanation.
fn examples() -> BTreeMap<&'static str, Vec<u8>> {
    let mut examples = BTreeMap::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex ") else { continue };
        let body = lines.by_ref().take_while(|line| *line != "```");
        let hex = body.flat_map(|line| {
            // Two blanks end the bytes.
            line.split("  ")
                .next()
                .unwrap()
                .split(' ')
                .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        });
        assert!(examples.insert(name, hex.collect()).is_none(), "{name} is there twice");
    }
    examples
}

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

fn slot(number: u8) -> SlotId {
    SlotId::new(number).unwrap()
}

fn epoch(generation: u8, counter: u32) -> Epoch {
    Epoch::new(generation, counter).unwrap()
}

fn port(number: u8) -> PortId {
    PortId::new(number).unwrap()
}

fn key() -> BindingKey {
    BindingKey { slot: slot(1), function: SlotFunction::ZERO, epoch: epoch(0, 1) }
}

fn hello() -> Hello {
    Hello {
        version: CONTROL_VERSION,
        name: Name::try_from("host1").unwrap(),
        role: RoleKind::Host { ports: 4 },
        incarnation: 0xdead_beef,
        node: None,
        paths: [PathAddress::Udp4 { ip: [127, 0, 0, 1], port: 4000 }].into_iter().collect(),
        mtu: 1500,
        term: Term(0),
    }
}

fn reset() -> ResetReport {
    let (boots, lived_ms, place) = (3, 3000, 0x8000_1234);
    let text = "exception 5 with 0x8".try_into().unwrap();
    ResetReport { cause: ResetCause::Trap, boots, lived_ms, place, text }
}

fn bind_slot() -> SlotBinding {
    let windows = [Window::everything(node(5), PathSet::FIRST, epoch(0, 1))];
    let windows = windows.into_iter().collect();
    SlotBinding { key: key(), host: node(5), path_set: PathSet::FIRST, share: Share::EVEN, windows }
}

fn bind_port() -> PortBinding {
    let functions = [(SlotFunction::ZERO, epoch(0, 1))].into_iter().collect();
    let (port, slot) = (port(0), slot(1));
    PortBinding {
        port,
        box_node: node(2),
        slot,
        functions,
        path_set: PathSet::FIRST,
        share: Share::EVEN,
    }
}

fn request(id: u64, body: Request) -> ToProxy {
    ToProxy::Request { id: OperationId(id), term: Term(3), body }
}

fn response(result: Result<Reply, ControlError>) -> FromProxy {
    FromProxy::Response { id: OperationId(7), result }
}

/// Checks an example both ways and takes it off the list.
fn check<M>(examples: &mut BTreeMap<&str, Vec<u8>>, name: &str, message: &M)
where
    M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let bytes = examples.remove(name).unwrap_or_else(|| panic!("there is no example {name}"));
    let mut buffer = vec![0; 4 + MAX_MESSAGE];
    assert_eq!(encode(message, &mut buffer).unwrap(), bytes, "{name}: {:02x?}", bytes);
    match decode::<M>(&bytes).unwrap() {
        Decoded::Message(read, used) => assert_eq!((&read, used), (message, bytes.len()), "{name}"),
        Decoded::Incomplete => panic!("{name} is cut short"),
    }
    for cut in 0..bytes.len() {
        assert_eq!(decode::<M>(&bytes[..cut]), Ok(Decoded::Incomplete), "{name} cut at {cut}");
    }
}

#[test]
fn examples_are_the_bytes() {
    let mut examples = examples();
    let all = &mut examples;
    check(all, "hello", &FromProxy::Hello(hello()));
    check(all, "response-slot", &response(Ok(Reply::Slot(SlotState::Free))));
    check(all, "response-stale-epoch", &response(Err(ControlError::StaleEpoch(epoch(1, 2)))));
    let event = Event::LinkDown { peer: node(2), reason: LinkDownReason::PeerRestarted };
    check(all, "event-link-down", &FromProxy::Event { sequence: 3, event });
    check(all, "reset", &FromProxy::Reset(reset()));
    let welcome = Welcome { version: CONTROL_VERSION, node: node(5), term: Term(3) };
    check(all, "welcome", &ToProxy::Welcome(welcome));
    check(all, "ping", &ToProxy::Ping);
    check(all, "request-bind-slot", &request(7, Request::BindSlot(bind_slot())));
    check(all, "request-bind-port", &request(8, Request::BindPort(bind_port())));
    let mode = Removal::Orderly { within_ms: 5000 };
    let unbind = unbind_port(mode);
    check(all, "request-unbind-port", &request(9, unbind));
    check(all, "request-set-recorder", &request(10, Request::SetRecorder(recorded())));
    check(all, "request-read-recorder", &request(11, Request::ReadRecorder { from: 128 }));
    let entries = [(7, StampedTlp::Completion(OutstandingRef { index: 3, generation: 9 }))];
    if HAS_RECORDER {
        let page = page(&[5], entries.map(|(id, tlp)| Entry::Stamps { id, stamps: stamps(tlp) }));
        check(all, "response-recorder", &response(Ok(Reply::Recorder(page))));
    } else {
        all.remove("response-recorder");
    }
    let bytes = [0xaa, 0xbb, 0xcc].into_iter().collect();
    let piece = Request::Firmware(FirmwareRequest::Piece { offset: 512, bytes });
    check(all, "request-firmware-piece", &request(12, piece));
    let answer = |id, reply| FromProxy::Response { id: OperationId(id), result: Ok(reply) };
    check(all, "request-erase", &request(14, Request::Erase(erase())));
    check(all, "response-erasure", &answer(14, Reply::Erasure(Erasure::Running(500).into())));
    check(all, "response-firmware-next", &answer(12, Reply::FirmwareNext(515)));
    check(all, "response-firmware", &answer(13, Reply::Firmware(firmware())));
    assert!(examples.is_empty(), "not checked: {:?}", examples.keys());
}

fn recorded() -> heapless::Vec<Recorded, MAX_RECORDED> {
    let recorded = Recorded { peer: node(2), binding: key(), one_in: 1, tlps: 64, frames: 0 };
    [recorded].into_iter().collect()
}

fn stamps(tlp: StampedTlp) -> StampEntry {
    let at = [None, None, None, Some(400), Some(500), Some(600)];
    StampEntry { peer: node(2), binding: key(), from_host: true, tlp, at }
}

/// A page with these entries, and one that was lost; an empty one where there is no recorder.
fn page<const N: usize>(requests: &[u64], entries: [Entry; N]) -> RecorderPage {
    let mut bytes = heapless::Vec::new();
    let entries = entries.into_iter().chain([Entry::Lost { entries: 1 }]);
    for entry in entries.filter(|_| HAS_RECORDER) {
        let mut buffer = [0; 128];
        let entry = postcard::to_slice(&entry, &mut buffer).unwrap();
        bytes.extend_from_slice(&(entry.len() as u16).to_le_bytes()).unwrap();
        bytes.extend_from_slice(entry).unwrap();
    }
    let requests = requests.iter().copied().collect();
    RecorderPage { first: 0, end: bytes.len() as u64, lost: 1, now: 1000, requests, bytes }
}

fn firmware() -> FirmwareStatus {
    let version = FirmwareVersion { release: [1, 2, 3], build: 4 };
    let slot =
        |state, byte, version| SlotFirmware { state, image: FirmwareId([byte; 16]), version };
    FirmwareStatus {
        board: "qemu-v".try_into().unwrap(),
        room: 1 << 20,
        lowest_security: 1,
        running: FirmwareSlot::A,
        wanted: FirmwareSlot::A,
        slots: [
            slot(FirmwareState::Healthy, 0x11, Some(version)),
            slot(FirmwareState::Writing { done: 1 << 16 }, 0x22, None),
        ],
    }
}

fn erase() -> EraseRequest {
    let methods = [EraseMethod::SanitizeBlock, EraseMethod::FormatUser].into_iter().collect();
    EraseRequest { key: key(), serial: 0x1234_5678, methods, within_s: 3600 }
}

fn unbind_port(mode: Removal) -> Request {
    let (box_node, slot) = (node(2), slot(1));
    Request::UnbindPort { port: port(0), box_node, slot, epoch: epoch(0, 1), mode }
}

/// Variants by number, of the table that follows a paragraph of just the type's name.
fn table(name: &str) -> Vec<String> {
    let heading = format!("`{name}`:\n");
    let start = DOCUMENT.find(&heading).unwrap_or_else(|| panic!("there is no table of {name}"));
    let rows = DOCUMENT[start..].lines().skip_while(|line| !line.starts_with("| 0 "));
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('`').nth(1).unwrap().to_owned()).collect()
}

/// Column of the table of states and reasons.
fn column(name: &str) -> Vec<String> {
    let heading = "| number | `SlotState` |";
    let start = DOCUMENT.find(heading).expect("the table of states");
    let mut rows = DOCUMENT[start..].lines().take_while(|line| line.starts_with('|'));
    let titles: Vec<&str> = rows.next().unwrap().split('|').map(str::trim).collect();
    let at = titles.iter().position(|title| *title == format!("`{name}`")).unwrap();
    let cells = rows.skip(1).map(|row| row.split('|').nth(at).unwrap().trim().replace('`', ""));
    cells.filter(|cell| !cell.is_empty()).collect()
}

/// The number that a value's first byte is, and the name that `Debug` begins with.
fn number<T: Serialize + std::fmt::Debug>(value: &T) -> (usize, String) {
    let mut buffer = vec![0; 4 + MAX_MESSAGE];
    let first = encode(value, &mut buffer).unwrap()[4];
    let text = format!("{value:?}");
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    (first.into(), text[..end].to_owned())
}

/// Checks that a list of one value of each variant is what the document lists, and that there is
/// no further variant.
fn check_numbers<T>(documented: Vec<String>, values: &[T])
where
    T: Serialize + DeserializeOwned + std::fmt::Debug,
{
    // Ones decode as the fields of any variant: they are in range of every identifier.
    let mut further = [1; 64];
    further[0] = values.len() as u8;
    assert!(postcard::take_from_bytes::<T>(&further).is_err(), "a variant is not listed");
    let coded: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let (number, name) = number(value);
            assert_eq!(number, index, "{name}");
            name
        })
        .collect();
    assert_eq!(coded, documented);
}

#[test]
fn messages_have_the_numbers_of_the_tables() {
    let refused = Refused { reason: Default::default() };
    let welcome = Welcome { version: CONTROL_VERSION, node: node(5), term: Term(3) };
    let ask = request(1, Request::ReadTable { from: 0 });
    let to = [ToProxy::Welcome(welcome), ToProxy::Refused(refused), ask, ToProxy::Ping];
    check_numbers(table("ToProxy"), &to);
    let event = Event::LinkUp { peer: node(1) };
    let event = FromProxy::Event { sequence: 1, event };
    let answer = response(Ok(Reply::Done));
    let reset = FromProxy::Reset(reset());
    let from = [FromProxy::Hello(hello()), answer, event, FromProxy::Pong, reset];
    check_numbers(table("FromProxy"), &from);
    let roles = [RoleKind::Host { ports: 1 }, RoleKind::Box { slots: 1 }];
    check_numbers(table("RoleKind"), &roles);
    let paths = [
        PathAddress::Ethernet { mac: [0; 6], vlan: None },
        PathAddress::Udp4 { ip: [0; 4], port: 0 },
        PathAddress::Udp6 { ip: [0; 16], port: 0 },
    ];
    check_numbers(table("PathAddress"), &paths);
    check_numbers(table("Removal"), &[Removal::Orderly { within_ms: 1 }, Removal::Force]);
}

#[test]
fn requests_have_the_numbers_of_the_table() {
    let peer = Peer { node: node(2), incarnation: 1, paths: hello().paths, mtu: 1500 };
    let unbind = unbind_port(Removal::Force);
    let requests = [
        Request::SetPeer(peer),
        Request::RemovePeer(node(2)),
        Request::BindSlot(bind_slot()),
        Request::UnbindSlot(key()),
        Request::BindPort(bind_port()),
        unbind,
        Request::Recover(slot(1)),
        Request::ReadTable { from: 0 },
        Request::ReadInventory { from: 0 },
        Request::ReadCounters { from: 0 },
        Request::SetSampling(Sampling::Off),
        Request::ReadStamps { from: 0 },
        Request::SetRecorder(Default::default()),
        Request::ReadRecorder { from: 0 },
        Request::SetLogLevel(LogLevel::Info),
        Request::Firmware(FirmwareRequest::Status),
        Request::Erase(erase()),
    ];
    check_numbers(table("Request"), &requests);
    check_numbers(table("LogLevel"), &LogLevel::ALL);
    check_numbers(table("ResetCause"), &ResetCause::ALL);
}

#[test]
fn answers_and_events_have_the_numbers_of_the_tables() {
    let replies = [
        Reply::Done,
        Reply::Slot(SlotState::Free),
        Reply::Removed { orderly: true },
        Reply::Mapping { root_complex: true, entries: Default::default(), next: None },
        Reply::Slots { entries: Default::default(), next: None },
        Reply::Inventory { entries: Default::default(), next: None },
        Reply::Counters { entries: Default::default(), next: None },
        Reply::Stamps { entries: Default::default(), next: None },
        Reply::Recorder(page(&[], [])),
        Reply::Firmware(firmware()),
        Reply::FirmwareNext(1),
        Reply::Erasure(Erasure::Running(0).into()),
    ];
    check_numbers(table("Reply"), &replies);
    let errors = [
        ControlError::StaleTerm(Term(1)),
        ControlError::StaleEpoch(epoch(0, 1)),
        ControlError::WrongRole,
        ControlError::NoSuchPort(port(0)),
        ControlError::NoSuchSlot(slot(1)),
        ControlError::SlotEmpty(slot(1)),
        ControlError::InUse(epoch(0, 1)),
        ControlError::Quarantined(slot(1)),
        ControlError::UnknownPeer(node(1)),
        ControlError::Limit(Limit::Peers),
        ControlError::BadWindows,
        ControlError::CompletionTimeout(slot(1)),
        ControlError::Busy,
        ControlError::NotReady(slot(1)),
        ControlError::LinkDown(node(1)),
        ControlError::NoRecorder,
        ControlError::NoFirmware,
        ControlError::Firmware(FirmwareError::Flash),
    ];
    check_numbers(table("ControlError"), &errors);
    let (peer, key, function) = (node(2), key(), SlotFunction::ZERO);
    let (port, slot) = (port(0), slot(1));
    let events = [
        Event::LinkUp { peer },
        Event::LinkDown { peer, reason: LinkDownReason::GaveUp },
        Event::BindingFailed { peer, key, reason: BindingFailure::TlpCrc },
        Event::Port { port, state: PortState::Empty },
        Event::DeviceConfigured { port },
        Event::Slot { slot, function, state: SlotState::Empty },
        Event::PathLost { peer, path: PathId::new(1).unwrap() },
        Event::PathFound { peer, path: PathId::new(1).unwrap() },
        Event::RootComplex { present: true },
    ];
    check_numbers(table("Event"), &events);
    let (id, length) = (1, 12);
    let stamps = stamps(StampedTlp::Posted(None));
    let (at, received, binding, path) = (1, true, key, PathId::ZERO);
    let entries = [
        Entry::Tlp { id, length, stamps: stamps.clone() },
        Entry::Stamps { id, stamps },
        Entry::Frame { at, received, peer, binding, path, length },
        Entry::Lost { entries: 1 },
    ];
    check_numbers(table("Entry"), &entries);
}

#[test]
fn states_and_reasons_have_the_numbers_of_the_table() {
    use SlotState as S;
    let slots = [S::Empty, S::Probing, S::Free, S::Bound, S::Releasing, S::Quarantined];
    check_numbers(column("SlotState"), &slots);
    use PortState as P;
    let ports = [P::Empty, P::Placeholder, P::Linking, P::Present, P::Removing, P::Failed];
    check_numbers(column("PortState"), &ports);
    use LinkDownReason as L;
    let downs = [L::GaveUp, L::PeerRestarted, L::PeerClosed, L::Removed, L::Protocol];
    check_numbers(column("LinkDownReason"), &downs);
    use BindingFailure as B;
    let failures = [B::TlpCrc, B::PeerUnbound, B::DeviceGone, B::LinkDown, B::HostLetGo];
    check_numbers(column("BindingFailure"), &failures);
    let words = ["0 `Off`", "1 `OneIn`", "2 `All`", "0 `Peers`", "1 `Channels`", "2 `Windows`"];
    assert!(words.iter().all(|word| DOCUMENT.contains(word)));
    check_numbers(
        ["Off", "OneIn", "All"].map(str::to_owned).to_vec(),
        &[Sampling::Off, Sampling::OneIn(1), Sampling::All],
    );
    check_numbers(
        ["Peers", "Channels", "Windows"].map(str::to_owned).to_vec(),
        &[Limit::Peers, Limit::Channels, Limit::Windows],
    );
}

#[test]
fn what_is_said_of_firmware_has_the_numbers_of_the_tables() {
    let requests = [
        FirmwareRequest::Status,
        FirmwareRequest::Begin { image: FirmwareId([0; 16]), header: Default::default() },
        FirmwareRequest::Piece { offset: 0, bytes: Default::default() },
        FirmwareRequest::Finish(FirmwareId([0; 16])),
        FirmwareRequest::RollBack(FirmwareId([0; 16])),
        FirmwareRequest::Restart { incarnation: 1 },
    ];
    check_numbers(table("FirmwareRequest"), &requests);
    check_numbers(table("FirmwareSlot"), &[FirmwareSlot::A, FirmwareSlot::B]);
    use FirmwareState as S;
    let writing = S::Writing { done: 1 };
    let states = [S::Empty, writing, S::Staged, S::Trying { left: 1 }, S::Healthy, S::Failed];
    check_numbers(table("FirmwareState"), &states);
    use FirmwareError as E;
    let errors = [
        E::NotAnImage,
        E::OtherBoard,
        E::OtherRole,
        E::TooLarge,
        E::Unsigned,
        E::Downgrade(1),
        E::LastGood,
        E::NotBootable,
        E::NothingBegun,
        E::Incomplete(1),
        E::Flash,
    ];
    check_numbers(table("FirmwareError"), &errors);
}

/// The largest page of every kind fits in one message.
#[test]
fn full_pages_fit() {
    let full = |text: char| Name::try_from(text.to_string().repeat(MAX_NAME).as_str()).unwrap();
    let last = epoch(255, Epoch::MAX_COUNTER);
    let (big_slot, big_function) = (SlotId::MAX, SlotFunction::MAX);
    let window = Window {
        base: u64::MAX,
        limit: u64::MAX,
        node: NodeId::MAX,
        path_set: PathSet(255),
        epoch: last,
        target: u64::MAX,
        read: true,
        write: true,
    };
    let slots = SlotEntry {
        entry: u16::MAX,
        valid: true,
        used: true,
        state: SlotState::Bound,
        slot: big_slot,
        function: big_function,
        host_node: u16::MAX,
        path_set: PathSet(255),
        epoch: u32::MAX,
        windows: vec![window; 8].into_iter().collect(),
    };
    let inventory = InventoryEntry {
        slot: big_slot,
        function: big_function,
        state: SlotState::Free,
        model: full('m'),
        id: (u16::MAX, u16::MAX),
        subsystem: (u16::MAX, u16::MAX),
        class: 0xff_ffff,
        revision: 255,
        serial: u64::MAX,
        bars: [u64::MAX; 6],
        highest_epoch: u32::MAX,
    };
    let next = Some(u16::MAX);
    let entries = vec![slots; PAGE].into_iter().collect();
    let slots = Reply::Slots { entries, next };
    let entries = vec![inventory; PAGE].into_iter().collect();
    let inventory = Reply::Inventory { entries, next };
    let entries = vec![(full('c'), u64::MAX); PAGE].into_iter().collect();
    let counters = Reply::Counters { entries, next };
    let recorder = Reply::Recorder(RecorderPage {
        first: u64::MAX,
        end: u64::MAX,
        lost: u64::MAX,
        now: u64::MAX,
        requests: vec![u64::MAX; MAX_RECORDED].into_iter().collect(),
        bytes: vec![u8::MAX; RECORDER_PIECE].into_iter().collect(),
    });
    let mut buffer = vec![0; 4 + MAX_ANSWER];
    for reply in [slots, inventory, counters, recorder] {
        let message = FromProxy::Response { id: OperationId(u64::MAX), result: Ok(reply) };
        encode(&message, &mut buffer).unwrap();
    }
}

#[test]
fn what_is_said_of_erasures_has_the_numbers_of_the_tables() {
    let methods = DOCUMENT.find("| number | `EraseMethod` |").unwrap();
    let rows = DOCUMENT[methods..].lines().skip(2);
    for (number, (method, row)) in EraseMethod::ALL.iter().zip(rows).enumerate() {
        assert!(row.starts_with(&format!("| {number} | `{method:?}` |")), "{row}");
    }
    /// The same bytes as something else.
    fn seen<T: Serialize, U: DeserializeOwned>(value: T) -> U {
        let mut buffer = [0; 8];
        postcard::from_bytes(postcard::to_slice(&value, &mut buffer).unwrap()).unwrap()
    }
    for (erasure, code) in [
        (Erasure::Running(1000), 1000),
        (Erasure::Done(EraseMethod::FormatUser), 0x10004),
        (Erasure::Failed(EraseFailure::Status(0x7ff)), 0x207ff),
        (Erasure::Failed(EraseFailure::NoMeans), 0x20800),
        (Erasure::Failed(EraseFailure::NotOffered), 0x20801),
        (Erasure::Failed(EraseFailure::Broken), 0x20802),
        (Erasure::Failed(EraseFailure::TooLong), 0x20803),
        (Erasure::Failed(EraseFailure::NotReady), 0x20804),
    ] {
        assert_eq!(seen::<_, u32>(ErasureCode::from(erasure)), code);
        assert_eq!(Erasure::try_from(ErasureCode::from(erasure)), Ok(erasure));
    }
    for code in [0x10005, 0x1ffff, 0x20805, u32::MAX] {
        let code: ErasureCode = seen(code);
        assert_eq!(Erasure::try_from(code), Err(UnknownErasure));
    }
}

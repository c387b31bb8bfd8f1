use super::*;
use crate::front::lines::tests::Log;
use crate::front::stale::tests::{crowd, refusal};
use proxy_core::control::{CONTROL_VERSION, Event, FromProxy, Term, Welcome};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::limits::MAX_FRAME;
use proxy_daemon::Spin;
use proxy_daemon::control::{ControlHandle, Inbound};
use proxy_net::MemoryPort;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::Duration;
use tlp_codec::ids::NodeId;
use tracing::Dispatch;

/// Longest that anything is waited for.
const BOUND: Duration = Duration::from_secs(60);

const HELLO: &[u8] = &[16, 0, 0, 0, 1, 0, 0, 2, 0];

/// Type 0 configuration read of the upstream port's vendor and device ID, tag 5, and its answer:
/// the example of `docs/tlp-socket.md`.
const READ_ID: &[u8] = &[0, 0, 0, 0, 4, 0, 0, 1, 0, 0, 5, 0xf, 1, 0, 0, 0];
const ID: &[u8] = &[0, 0, 0, 0, 0x4a, 0, 0, 1, 0, 0, 0, 4, 0, 0, 5, 0, 0x34, 0x12, 0xb0, 0xd0];

/// Type 0 configuration write and read of the upstream port's bus numbers (offset 18h).
const WRITE_BUSES: &[u8] = &[0, 0, 0, 0, 0x44, 0, 0, 1, 0, 0, 6, 0xf, 1, 0, 0, 0x18, 1, 2, 9, 0];
const READ_BUSES: &[u8] = &[0, 0, 0, 0, 4, 0, 0, 1, 0, 0, 7, 0xf, 1, 0, 0, 0x18];

/// As [`READ_ID`], tag 9.
const HELD: &[u8] = &[0, 0, 0, 0, 4, 0, 0, 1, 0, 0, 9, 0xf, 1, 0, 0, 0];

/// What a data plane says to the manager next.
type Said = Box<dyn FnMut() -> FromProxy>;

/// A data plane that a manager has welcomed, and the other ends of it.
fn plane() -> (Plane<HostRole>, MemoryPort, SyncSender<Inbound>, Said) {
    let (port, network) = MemoryPort::pair(MAX_FRAME, 8);
    let (control, manager, mut said) = ControlHandle::pair();
    let (version, node, term) = (CONTROL_VERSION, NodeId::new(1).unwrap(), Term(1));
    manager.send(Inbound::Joined(Welcome { version, node, term })).unwrap();
    let role = HostRole::new(&HostConfig::default()).unwrap();
    let plane = Plane::new(role, vec![Box::new(port)], control, Spin::always(Duration::ZERO));
    let said = Box::new(move || said.blocking_recv().expect("the front-end runs").1);
    (plane, network, manager, said)
}

/// A front-end at work on a thread of its own; it stops when this is dropped.
struct Front {
    path: std::path::PathBuf,
    stop: Stop,
    thread: Option<JoinHandle<Result<(), String>>>,
    said: Said,
    _folder: tempfile::TempDir,
    _network: MemoryPort,
    _manager: SyncSender<Inbound>,
}

impl Front {
    fn start() -> Self {
        Self::with(HELLO_BOUND, Dispatch::none())
    }

    fn with_hello_bound(hello_bound: Duration) -> Self {
        Self::with(hello_bound, Dispatch::none())
    }

    fn with(hello_bound: Duration, log: Dispatch) -> Self {
        Self::made(log, |front| front.hello_bound = hello_bound)
    }

    /// One whose switch never has room for [`HELD`].
    fn hung() -> Self {
        Self::made(Dispatch::none(), |front| front.full = |tlp| tlp == &HELD[HEADER..])
    }

    fn made(log: Dispatch, make: impl FnOnce(&mut SocketFront)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tlp");
        let mut front = SocketFront::open(&path).unwrap();
        make(&mut front);
        let (plane, _network, _manager, said) = plane();
        let stop = Stop::default();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            tracing::dispatcher::with_default(&log, || front.run(plane, &stopped))
        });
        Self { path, stop, thread: Some(thread), said, _folder: folder, _network, _manager }
    }

    /// What the manager hears next of the root complex.
    fn root_complex(&mut self) -> bool {
        loop {
            if let FromProxy::Event { event: Event::RootComplex { present }, .. } = (self.said)() {
                return present;
            }
        }
    }

    fn connect(&self) -> Client {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        socket.connect(&SockAddr::unix(&self.path).unwrap()).unwrap();
        socket.set_read_timeout(Some(BOUND)).unwrap();
        Client(socket)
    }

    /// A client that was greeted.
    fn greeted(&self) -> Client {
        let mut client = self.connect();
        client.send(HELLO);
        assert_eq!(client.receive(), [16, 0, 0, 0, 1, 0, 0, 16, 8], "hello");
        assert_eq!(client.receive(), [2, 0, 0, 0, 1, 3, 16], "link up");
        client
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.request();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
            assert!(!self.path.exists(), "the socket was left behind");
        }
    }
}

struct Client(Socket);

impl Client {
    fn send(&mut self, record: &[u8]) {
        assert_eq!(self.0.write(record).unwrap(), record.len());
    }

    /// The next record; empty when the connection is closed.
    fn receive(&mut self) -> Vec<u8> {
        let mut record = vec![0; 4096];
        let length = self.0.read(&mut record).unwrap();
        record.truncate(length);
        record
    }

    /// Why the proxy closes the connection, which it then does.
    fn refusal(&mut self) -> String {
        let record = self.receive();
        assert_eq!(&record[..4], &[17, 0, 0, 0], "no error record: {record:?}");
        assert!(self.receive().is_empty(), "the connection is closed after it");
        String::from_utf8(record[4..].to_vec()).unwrap()
    }

    /// Asserts that the switch answers.
    fn assert_answered(&mut self) {
        self.send(READ_ID);
        assert_eq!(self.receive(), ID);
    }

    fn buses(&mut self) -> Vec<u8> {
        self.send(READ_BUSES);
        self.receive()[16..].to_vec()
    }
}

#[test]
fn the_example_of_the_documentation_holds() {
    Front::start().greeted().assert_answered();
}

#[test]
fn the_link_record_says_what_link_status_says() {
    let front = Front::start();
    // Greeting it looks at the record.
    let mut client = front.greeted();
    let read = [0, 0, 0, 0, 4, 0, 0, 1, 0, 0, 8, 0xf, 1, 0, 0, 0x80];
    client.send(&read);
    let answer = client.receive();
    let status = u16::from_le_bytes([answer[18], answer[19]]);
    assert_eq!((status & 0xf, status >> 4 & 0x3f), (3, 16));
}

#[test]
fn a_second_hello_is_answered_and_changes_nothing() {
    let front = Front::start();
    let mut client = front.greeted();
    client.send(WRITE_BUSES);
    client.receive();
    client.send(HELLO);
    assert_eq!(client.receive(), [16, 0, 0, 0, 1, 0, 0, 16, 8]);
    assert_eq!(client.receive(), [2, 0, 0, 0, 1, 3, 16]);
    assert_eq!(client.buses(), [1, 2, 9, 0]);
}

#[test]
fn the_manager_hears_of_a_root_complex_from_its_hello_to_its_end() {
    let mut front = Front::start();
    for _ in 0..2 {
        let mut client = front.connect();
        client.send(HELLO);
        assert!(front.root_complex());
        client.send(HELLO);
        drop(client);
        assert!(!front.root_complex(), "a second hello is no news");
    }
    // Whoever says nothing is no root complex.
    drop(front.connect());
    front.greeted();
    assert!(front.root_complex() && !front.root_complex());
}

#[test]
fn released_perst_and_power_have_no_effect() {
    let front = Front::start();
    let mut client = front.greeted();
    client.send(WRITE_BUSES);
    client.receive();
    for record in [[1, 0, 0, 0, 2], [3, 0, 0, 0, 0], [3, 0, 0, 0, 1]] {
        client.send(&record);
        assert_eq!(client.buses(), [1, 2, 9, 0], "{record:?}");
    }
    // While PERST# is asserted the switch, which was reset, answers.
    client.send(&[1, 0, 0, 0, 1]);
    assert_eq!(client.buses(), [0, 0, 0, 0]);
}

#[test]
fn malformed_records_are_refused_with_a_reason_and_the_next_client_is_served() {
    let front = Front::start();
    let before_hello: [(&[u8], &str); 7] = [
        (&[], "cut short"),
        (&[16], "cut short"),
        (&[16, 0, 0], "cut short"),
        (&[16, 0, 0, 0], "hello is cut short"),
        (&[16, 0, 0, 0, 1], "hello is cut short"),
        (&[16, 0, 0, 0, 2, 0, 0, 2, 0], "version is not 1"),
        (READ_ID, "must be a hello"),
    ];
    for (record, reason) in before_hello {
        let mut client = front.connect();
        client.send(record);
        let said = client.refusal();
        assert!(said.contains(reason), "{record:?}: {said}");
    }
    let after_hello: [(&[u8], &str); 5] = [
        (&[], "cut short"),
        (&[0, 0], "cut short"),
        (&[1, 0, 0, 0], "reset is none of"),
        (&[1, 0, 0, 0, 3], "reset is none of"),
        (&[3, 0, 0, 0], "power record is cut short"),
    ];
    for (record, reason) in after_hello {
        let mut client = front.greeted();
        client.send(record);
        let said = client.refusal();
        assert!(said.contains(reason), "{record:?}: {said}");
    }
    front.greeted().assert_answered();
}

#[test]
fn a_record_that_is_too_long_is_refused() {
    let front = Front::start();
    for length in [MAX_RECORD + 1, MAX_RECORD + 2, 60_000] {
        let mut client = front.greeted();
        client.send(&vec![0; length]);
        assert!(client.refusal().contains("too long"), "{length}");
    }
    // The longest that there may be is no error of the connection, whatever is in it.
    let mut client = front.greeted();
    let mut longest = vec![0xff; MAX_RECORD];
    longest[..4].copy_from_slice(&[0, 0, 0, 0]);
    client.send(&longest);
    client.assert_answered();
}

#[test]
fn what_is_wrong_inside_a_tlp_or_unknown_ends_nothing() {
    let front = Front::start();
    let mut client = front.greeted();
    for record in [
        // No TLP at all, one without its data, one of a reserved type.
        &[0, 0, 0, 0][..],
        &[0, 0, 0, 0, 0x44, 0, 0, 1, 0, 0, 6, 0xf, 1, 0, 0, 0x18],
        &[0, 0, 0, 0, 0x1f, 0, 0, 1, 0, 0, 6, 0xf, 1, 0, 0, 0x18],
        // Records of a later version.
        &[99, 0, 0, 0],
        &[4, 7, 7, 7, 1, 2, 3],
        // Well-formed ones that nothing is answered to.
        &[3, 0, 0, 0, 1],
        &[1, 0, 0, 0, 2],
    ] {
        client.send(record);
    }
    client.assert_answered();
}

#[test]
fn a_second_client_is_told_and_the_first_goes_on() {
    let front = Front::start();
    let mut first = front.greeted();
    for _ in 0..3 {
        let mut second = front.connect();
        assert!(second.refusal().contains("another root complex"));
    }
    first.assert_answered();
    drop(first);
    front.greeted().assert_answered();
}

#[test]
fn a_client_that_never_says_hello_is_let_go() {
    let front = Front::with_hello_bound(Duration::ZERO);
    for _ in 0..2 {
        assert!(front.connect().refusal().contains("no hello"));
    }
}

#[test]
fn clients_that_come_again_and_again_fill_nobodys_log() {
    let log = Log::default();
    let front = Front::with(HELLO_BOUND, Dispatch::new(log.clone()));
    for again in 0..200 {
        let mut client = front.connect();
        if again % 2 == 0 {
            client.send(&[16]);
            assert!(client.refusal().contains("cut short"));
        }
    }
    front.greeted();
    let said = log.lines().len();
    assert!((3..50).contains(&said), "{said} lines");
}

#[test]
fn a_client_that_goes_in_the_middle_leaves_a_switch_that_was_reset() {
    let front = Front::start();
    let mut client = front.greeted();
    client.send(WRITE_BUSES);
    assert_eq!(client.receive()[4], 0x0a, "a completion without data");
    assert_eq!(client.buses(), [1, 2, 9, 0]);
    // Requests under way, and half of a handshake: nobody reads the answers.
    for _ in 0..20 {
        client.send(READ_ID);
    }
    drop(client);
    drop(front.connect());

    let mut next = front.greeted();
    assert_eq!(next.buses(), [0, 0, 0, 0]);
    next.assert_answered();
}

#[test]
fn a_hot_reset_forgets_what_was_configured() {
    let front = Front::start();
    let mut client = front.greeted();
    for kind in [0, 1] {
        client.send(WRITE_BUSES);
        client.receive();
        assert_eq!(client.buses(), [1, 2, 9, 0]);
        client.send(&[1, 0, 0, 0, kind]);
        assert_eq!(client.buses(), [0, 0, 0, 0], "reset {kind}");
    }
}

#[test]
fn answers_wait_for_a_client_that_does_not_read() {
    let front = Front::start();
    let mut client = front.greeted();
    // Far more than the socket holds in either direction.
    const REQUESTS: usize = 5000;
    let mut asker = Client(client.0.try_clone().unwrap());
    let asking = std::thread::spawn(move || {
        for _ in 0..REQUESTS {
            asker.send(READ_ID);
        }
    });
    // Time for it to run into the wall; that it does is not what the test needs.
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..REQUESTS {
        assert_eq!(client.receive(), ID);
    }
    asking.join().unwrap();
}

/// However often the socket is full. Only one that takes nothing for long excuses a device.
#[test]
fn a_client_that_takes_some_reads() {
    let folder = tempfile::tempdir().unwrap();
    let front = SocketFront::open(&folder.path().join("tlp")).unwrap();
    let (mut plane, _network, _manager, _said) = plane();
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut theirs = Client(theirs);
    let mut client = front.welcome(ours, plane.now(), &mut Told::default()).unwrap();
    theirs.send(HELLO);
    let mut fill = |theirs: &mut Client, taken: usize| {
        for _ in 0..taken {
            theirs.receive();
        }
        assert!(client.turn(&mut plane).is_ok());
        while client.unsent.is_none() {
            let _ = theirs.0.write(READ_ID);
            assert!(client.turn(&mut plane).is_ok());
        }
        let given_at = client.given_at;
        assert!(!client.does_not_read(given_at + NOT_READING));
        assert!(client.does_not_read(given_at + 2 * NOT_READING));
        given_at
    };
    let first = fill(&mut theirs, 0);
    assert_eq!(fill(&mut theirs, 0), first, "it took none");
    assert!(fill(&mut theirs, 8) > first);
}

#[test]
fn a_socket_whose_listener_accepts_nobody_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full");
    let _crowd = crowd(&path, Type::SEQPACKET);
    let at = path.clone();
    assert!(refusal(move || SocketFront::open(&at)).contains("in use"));
    assert!(path.exists());
}

#[test]
fn a_client_that_goes_while_its_tlp_is_held_is_gone_at_once() {
    let mut front = Front::hung();
    let mut client = front.connect();
    client.send(HELLO);
    assert!(front.root_complex());
    for record in [HELD, READ_ID, HELD] {
        client.send(record);
    }
    drop(client);
    assert!(!front.root_complex(), "the manager hears of it");
    front.greeted().assert_answered();
}

#[test]
fn a_second_client_is_told_while_a_tlp_is_held() {
    let front = Front::hung();
    let mut first = front.greeted();
    for record in [HELD, READ_ID] {
        first.send(record);
    }
    assert!(front.connect().refusal().contains("another root complex"));
}

#[test]
fn what_is_behind_a_tlp_that_is_held_goes_on_when_that_is_taken() {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    let front = Front::made(Dispatch::none(), |front| {
        front.full = |tlp| tlp == &HELD[HEADER..] && LOOKS.fetch_add(1, Relaxed) < 20;
    });
    let mut client = front.greeted();
    client.send(WRITE_BUSES);
    client.receive();
    for record in [HELD, &[1, 0, 0, 0, 0]] {
        client.send(record);
    }
    // The reset was read behind it, and forgets what is on its way: that of before, too.
    assert_eq!(client.buses(), [0, 0, 0, 0]);
    assert!(LOOKS.load(Relaxed) > 20);
}

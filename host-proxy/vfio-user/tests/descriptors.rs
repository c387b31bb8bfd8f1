//! A server whose process has no file descriptor left: a process of its own, for that is everybody's.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vfio_user_server::limits::ACCEPT_PAUSE;
use vfio_user_server::{Device, Event, Server};

const COUNTER: &str = "vfio-user: times that nobody could be accepted";

fn refused(server: &Server) -> u64 {
    let counters = server.counters();
    counters.iter().find(|(name, _)| *name == COUNTER).expect("it is counted").1
}

#[test]
fn who_cannot_be_accepted_waits_and_makes_no_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device.sock");
    let mut server = Server::listen(&path, Device::default()).unwrap();
    let _client = UnixStream::connect(&path).unwrap();

    let before = getrlimit(Resource::Nofile);
    let next = File::open("/dev/null").unwrap().as_raw_fd();
    let none_left = Rlimit { current: Some(next as u64), ..before };
    setrlimit(Resource::Nofile, none_left).unwrap();
    let began = Instant::now();
    while began.elapsed() < 5 * ACCEPT_PAUSE / 2 {
        assert_eq!(server.poll(), None);
        // The socket would be ready at once.
        assert_eq!(server.waits_on().count(), 0);
        assert!(server.waits_at_most().unwrap() <= ACCEPT_PAUSE);
        std::thread::sleep(Duration::from_micros(100));
    }
    let (times, took) = (refused(&server), began.elapsed());
    let most = took.as_millis().div_ceil(ACCEPT_PAUSE.as_millis()) as u64;
    assert!((1..=most).contains(&times), "{times} times in {took:?}");

    // Nor is it waited on once the pause is over, and nobody has polled yet: who asks for both
    // never gets neither.
    std::thread::sleep(ACCEPT_PAUSE);
    assert_eq!((server.waits_at_most(), server.waits_on().count()), (Some(Duration::ZERO), 0));

    setrlimit(Resource::Nofile, before).unwrap();
    assert_eq!(server.poll(), Some(Event::Connected));
    assert_eq!((server.waits_at_most(), server.waits_on().count()), (None, 1));
}

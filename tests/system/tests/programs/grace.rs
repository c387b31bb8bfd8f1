//! Hosts whose root complex goes away, at a TLP socket.

use crate::harness::{ACCELERATOR, Daemon, Pool, wait_event, wait_for};
use serde_json::Value;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};

/// A root complex that says hello and nothing else.
struct RootComplex(Socket);

impl RootComplex {
    fn connect(pool: &Pool, host: &str) -> Self {
        let address = SockAddr::unix(pool.path(&format!("{host}.sock"))).expect("a short path");
        let mut socket = wait_for("the TLP socket", || {
            let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
            socket.connect(&address).is_ok().then_some(socket)
        });
        socket.write_all(&[16, 0, 0, 0, 1, 0, 0, 2, 0]).expect("a hello");
        let mut answer = [0; 64];
        let length = socket.read(&mut answer).expect("an answer");
        assert_eq!(&answer[..length], [16, 0, 0, 0, 1, 0, 0, 16, 4], "hello");
        Self(socket)
    }

    /// As when a virtual machine is killed.
    fn vanish(self) {
        drop(self.0);
    }
}

/// A host with a root complex at a socket, another one, and a box with an accelerator.
fn start(pool: &Pool) -> (RootComplex, [Daemon; 3]) {
    let at_box = pool.boxed("box-a", &["1=accelerator".into()]);
    let daemons = [pool.socket_host("host-1"), pool.host("host-2"), at_box];
    let root_complex = RootComplex::connect(pool, "host-1");
    pool.wait_ready(3);
    wait_present(pool, true);
    (root_complex, daemons)
}

fn root_complex(pool: &Pool) -> Value {
    pool.manager_json(&["show", "host-1"])["root_complex"].clone()
}

fn wait_present(pool: &Pool, present: bool) {
    wait_for("the manager to hear of the root complex", || {
        (root_complex(pool)["present"] == present).then_some(())
    });
}

#[test]
fn the_devices_of_a_host_that_is_killed_come_back_after_the_grace_time() {
    let pool = Pool::with_settings("host_grace_s = 1\n");
    let (root_complex, _daemons) = start(&pool);
    // Nobody enumerates behind this root complex.
    pool.lend_plugged("host-1", "box-a/1");
    root_complex.vanish();
    wait_event(&pool, "root-complex-lost", "host-1");
    wait_event(&pool, "host-grace-over", "host-1");
    wait_for("the slot", || (pool.slot("box-a/1")["status"] == "free").then_some(()));
    let why = "host-1 has had no root complex for 1 s";
    assert_eq!(pool.manager_json(&["show", "op-2"])["what"]["reason"], why);
    assert!(pool.manager_json(&["tables", "--host", "host-1"])["entries"][0]["used"] == false);

    // Whoever gets it next can use it.
    pool.allocate("host-2", "box-a/1");
    let accelerator = pool.find("host-2", ACCELERATOR, 1).remove(0);
    pool.host_json("host-2", &["bandwidth", &accelerator, "--bytes", "65536"]);
}

#[test]
fn a_host_that_is_back_in_time_keeps_its_devices() {
    let pool = Pool::with_settings("host_grace_s = 3600\n");
    let (root_complex, _daemons) = start(&pool);
    let lent = pool.lend_plugged("host-1", "box-a/1");
    root_complex.vanish();
    wait_present(&pool, false);
    assert!(self::root_complex(&pool)["taken_back_in_ms"].as_u64().is_some_and(|ms| ms > 0));
    let _back = RootComplex::connect(&pool, "host-1");
    wait_present(&pool, true);
    assert_eq!(self::root_complex(&pool)["taken_back_in_ms"], Value::Null);
    assert_eq!(pool.slot("box-a/1")["owner"]["allocation"], lent);
    let entry = pool.manager_json(&["tables", "--host", "host-1"])["entries"][0].clone();
    assert_eq!((&entry["used"], &entry["state"]), (&true.into(), &"present".into()));
}

//! A proxy's whole connection, as the manager hears it: any bytes, messages that were made up, and
//! answers to what the manager asks. Nothing panics, the connection ends when the proxy is gone, and
//! what cannot be is not in the records.

use crate::input::Input;
use crate::pool;
use manager::control::server::attend;
use manager::manager::Manager;
use manager::types::Role;
use proxy_core::control::{
    CONTROL_VERSION, Decoded, FromProxy, Hello, MAX_MESSAGE, Name, OperationId, PathAddress, Reply,
    RoleKind, Term, ToProxy, decode, encode,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const STEPS: usize = 200;

/// Longer than anything that the manager waits for of a proxy.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Takes a byte that says how the connection begins, and steps: which, and what it needs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    pool::run(async {
        let (manager, _queues) = pool::manager().await;
        let (here, there) = tokio::io::duplex(1 << 16);
        let attended = manager.clone();
        let remote = ([127, 0, 0, 1], 7).into();
        let serving = tokio::spawn(async move { attend(&attended, there, remote, || {}).await });
        let mut proxy = Proxy { stream: here, heard: Vec::new(), asked: VecDeque::new() };
        proxy.begin(input.u8()).await;
        for _ in 0..STEPS {
            if input.is_empty() {
                break;
            }
            proxy.step(&mut input).await;
        }
        drop(proxy);
        let ended = tokio::time::timeout(MAX_WAIT, serving).await;
        ended.expect("the connection ends with the proxy").expect("nothing panics");
        check(&manager);
    });
}

/// What holds whatever was said.
fn check(manager: &Arc<Manager>) {
    assert_eq!(manager.registry.count(), 0);
    let tables = manager.records.snapshot();
    for device in tables.devices().values() {
        let slot = &device.address.slot;
        let node = tables.nodes().get(slot.box_name()).expect("boxes of devices are known");
        assert_eq!(node.role, Role::Box);
        assert!((1..=node.size).contains(&slot.slot().get()), "{slot} is no slot");
    }
    assert!(tables.bindings().is_empty() && tables.allocations().is_empty());
}

struct Proxy {
    stream: DuplexStream,
    /// What the manager said and is not a whole message yet.
    heard: Vec<u8>,
    /// What it asked and has no answer to.
    asked: VecDeque<OperationId>,
}

impl Proxy {
    /// Says Hello: as a box, a host, one that is new or claims to be another; or not at all.
    async fn begin(&mut self, how: u8) {
        let name = ["box1", "host1", "box9", "host9"][usize::from(how >> 1 & 3)];
        let role = match how >> 3 & 1 {
            0 if name.starts_with("box") => RoleKind::Box { slots: 4 },
            0 => RoleKind::Host { ports: 4 },
            _ if name.starts_with("box") => RoleKind::Host { ports: 4 },
            _ => RoleKind::Box { slots: 4 },
        };
        if how & 1 == 0 {
            let path = PathAddress::Udp4 { ip: [127, 0, 0, 1], port: 4000 };
            let hello = Hello {
                version: CONTROL_VERSION,
                name: Name::try_from(name).expect("it is short"),
                role,
                incarnation: 1,
                node: None,
                paths: [path].into_iter().collect(),
                mtu: 1500,
                term: Term((how >> 4).into()),
            };
            self.say(&FromProxy::Hello(hello)).await;
        }
        self.listen().await;
    }

    async fn say(&mut self, message: &FromProxy) {
        let mut buffer = vec![0; 4 + MAX_MESSAGE];
        if let Ok(bytes) = encode(message, &mut buffer) {
            let bytes = bytes.to_vec();
            self.write(&bytes).await;
        }
    }

    /// A manager that does not listen any more is no mistake.
    async fn write(&mut self, bytes: &[u8]) {
        let _ = tokio::time::timeout(MAX_WAIT, self.stream.write_all(bytes)).await;
    }

    /// Hears what the manager says until it waits for something.
    async fn listen(&mut self) {
        let mut chunk = [0; 4096];
        let pause = Duration::from_millis(1);
        while let Ok(Ok(count @ 1..)) =
            tokio::time::timeout(pause, self.stream.read(&mut chunk)).await
        {
            self.heard.extend(&chunk[..count]);
        }
        while let Decoded::Message(message, used) =
            decode::<ToProxy>(&self.heard).expect("the manager's messages decode")
        {
            self.heard.drain(..used);
            if let ToProxy::Request { id, .. } = message {
                self.asked.push_back(id);
            }
        }
    }

    async fn step(&mut self, input: &mut Input<'_>) {
        let which = input.u8();
        match which % 8 {
            0 => {
                let length = usize::from(input.u8());
                self.write(input.bytes(length)).await;
            }
            // A message of these bytes, whatever they are.
            1 => {
                let bytes = self.piece(input);
                self.write(&[&(bytes.len() as u32).to_le_bytes(), bytes].concat()).await;
            }
            2 => {
                let wait = Duration::from_millis(u64::from(input.u16()));
                tokio::time::sleep(wait).await;
            }
            3 => self.say(&FromProxy::Pong).await,
            4 => {
                let reply = empty(input.u8());
                self.answer(reply).await;
            }
            // The bytes of a reply, as the answer to what was asked first.
            _ => {
                let bytes = self.piece(input);
                let framed = [&(bytes.len() as u32).to_le_bytes(), bytes].concat();
                match decode::<FromProxy>(&framed) {
                    Ok(Decoded::Message(FromProxy::Response { result, .. }, _)) => {
                        if let Some(id) = self.asked.pop_front() {
                            self.say(&FromProxy::Response { id, result }).await;
                        }
                    }
                    _ => self.write(&framed).await,
                }
            }
        }
        self.listen().await;
    }

    fn piece<'a>(&self, input: &mut Input<'a>) -> &'a [u8] {
        let length = usize::from(input.u16()) % 2048;
        input.bytes(length)
    }

    async fn answer(&mut self, reply: Reply) {
        if let Some(id) = self.asked.pop_front() {
            self.say(&FromProxy::Response { id, result: Ok(reply) }).await;
        }
    }
}

/// An answer with nothing in it.
fn empty(which: u8) -> Reply {
    match which % 4 {
        0 => Reply::Inventory { entries: Default::default(), next: None },
        1 => Reply::Slots { entries: Default::default(), next: None },
        2 => {
            Reply::Mapping { root_complex: which & 4 == 0, entries: Default::default(), next: None }
        }
        _ => Reply::Done,
    }
}

//! A manager that welcomes every card and asks for nothing.

use anyhow::{Context, Result};
use proxy_core::control::{
    CONTROL_VERSION, Decoded, FromProxy, Hello, MAX_MESSAGE, Term, ToProxy, Welcome, decode, encode,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use tlp_codec::ids::NodeId;

/// Such a manager, and what cards say to it.
pub(crate) struct Welcomer {
    /// Its port on this computer.
    pub(crate) port: u16,
    /// What cards said.
    pub(crate) said: Receiver<FromProxy>,
}

impl Welcomer {
    /// Listens, until the test ends.
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || converse(stream, &sender));
            }
        });
        Ok(Self { port, said })
    }
}

/// One conversation, until the card goes.
fn converse(mut stream: TcpStream, said: &Sender<FromProxy>) -> Result<()> {
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 4096];
        let length = stream.read(&mut some)?;
        anyhow::ensure!(length > 0, "the card went");
        bytes.extend_from_slice(&some[..length]);
        while let Decoded::Message(message, used) = decode::<FromProxy>(&bytes)? {
            bytes.drain(..used);
            if let FromProxy::Hello(hello) = &message {
                welcome(&mut stream, hello)?;
            }
            said.send(message)?;
        }
    }
}

fn welcome(stream: &mut TcpStream, hello: &Hello) -> Result<()> {
    let node = hello.node.or(NodeId::new(1).ok()).context("a node's number")?;
    let welcome = Welcome { version: CONTROL_VERSION, node, term: Term(1) };
    let mut room = vec![0; 4 + MAX_MESSAGE];
    let bytes = encode(&ToProxy::Welcome(welcome), &mut room)?;
    Ok(stream.write_all(bytes)?)
}

//! The server, with clients that are no good.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sim_card::Card;
use sim_card::bitbang::{Ask, Pins, Server};

/// Serves until the client has got what it waits for.
fn serve(server: &mut Server, card: &mut Card, client: &mut TcpStream, bytes: usize) -> Vec<u8> {
    client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut all = Vec::new();
    let mut chunk = [0; 1000];
    for _ in 0..20_000 {
        server.poll(card, Duration::from_millis(1));
        if let Ok(length) = client.read(&mut chunk) {
            all.extend(&chunk[..length]);
        }
        if all.len() >= bytes {
            return all;
        }
    }
    panic!("only {} of {bytes} answers came", all.len());
}

#[test]
fn garbage_is_ignored_and_counted() {
    let (mut pins, mut card, mut answers) = (Pins::default(), Card::new(), Vec::new());
    let all: Vec<u8> = (0..=255).filter(|byte| *byte != b'Q').collect();
    assert_eq!(pins.handle(&all, &mut card, &mut answers), Ask::Continue);
    // 8 for pins, 4 for resets, R, B, b, and Q, which was left out.
    assert_eq!((pins.unknown(), answers.len()), (256 - 8 - 4 - 3 - 1, 1));
    assert_eq!(pins.handle(b"RQRR", &mut card, &mut answers), Ask::Quit);
    assert_eq!(answers.len(), 2);
}

#[test]
fn srst_resets_the_card_when_it_is_released() {
    let (mut pins, mut card, mut answers) = (Pins::default(), Card::new(), Vec::new());
    pins.handle(b"su", &mut card, &mut answers);
    assert_eq!(card.resets(), 0);
    pins.handle(b"r", &mut card, &mut answers);
    assert_eq!(card.resets(), 1);
}

#[test]
fn one_client_after_the_other() {
    let mut card = Card::new();
    let mut server = Server::bind("127.0.0.1:0").unwrap();
    let mut first = TcpStream::connect(server.address()).unwrap();
    let mut second = TcpStream::connect(server.address()).unwrap();
    second.write_all(b"RRR").unwrap();
    first.write_all(&[b'R'; 100_000]).unwrap();
    assert_eq!(serve(&mut server, &mut card, &mut first, 100_000).len(), 100_000);
    assert!(server.is_connected());
    first.write_all(b"Q").unwrap();
    assert_eq!(serve(&mut server, &mut card, &mut second, 3), b"111");
    drop(second);
    let mut third = TcpStream::connect(server.address()).unwrap();
    third.write_all(b"R").unwrap();
    assert_eq!(serve(&mut server, &mut card, &mut third, 1), b"1");
}

#[test]
fn the_server_ends_with_and_without_a_client() {
    let mut server = Server::bind("127.0.0.1:0").unwrap();
    let address = server.address();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"R").unwrap();
    let mut card = Card::new();
    serve(&mut server, &mut card, &mut client, 1);
    drop(server);
    drop(Server::bind("127.0.0.1:0").unwrap());
    assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0, "the client was hung up on");
}

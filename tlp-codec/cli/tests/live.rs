//! `tlp live`, asking a manager of this test's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What a manager answers of which nothing is lent: at once, as there is nothing to wait for.
const NOTHING: &str =
    r#"{"window_ms":200,"one_in":1,"devices":[],"slowest":[],"missing":[],"cut_short":[]}"#;

/// Reads a question to its end and answers it. Who asked may be gone.
fn answer(stream: TcpStream) {
    let mut lines = BufReader::new(&stream).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}", NOTHING.len());
    let _ = (&stream).write_all(format!("{head}\r\n\r\n{NOTHING}").as_bytes());
}

#[test]
fn a_look_that_has_nothing_to_wait_for_takes_its_time_too() {
    let manager = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = manager.local_addr().unwrap().to_string();
    let (asked, questions) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in manager.incoming() {
            if asked.send(Instant::now()).is_err() {
                return;
            }
            answer(stream.unwrap());
        }
    });
    let began = Instant::now();
    let mut live = Command::new(env!("CARGO_BIN_EXE_tlp"))
        .args(["live", "--json", "--interval", "200ms", "--manager", &address])
        .stdout(Stdio::piped())
        .spawn()
        .expect("tlp runs");
    let question = || questions.recv_timeout(Duration::from_secs(60));
    let third = [question(), question(), question()][2];
    live.kill().expect("it runs");
    live.wait().expect("it ends");
    // Two looks lie behind the third question.
    let took = third.expect("it asks again and again") - began;
    assert!(took >= Duration::from_millis(400), "{took:?} for two looks of 200 ms");
    let mut shown = String::new();
    live.stdout.take().expect("stdout is piped").read_to_string(&mut shown).unwrap();
    assert_eq!(shown.lines().next(), Some(NOTHING));
}

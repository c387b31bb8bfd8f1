//! The probe against servers that do what servers should not.

use std::net::TcpListener;
use std::time::Instant;

use super::*;

/// A server whose life this is; its address.
fn server(life: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || life(listener.accept().unwrap().0));
    address
}

fn trouble(life: impl FnOnce(TcpStream) + Send + 'static) -> Option<Trouble> {
    let mut probe = RemoteBitbang::connect(&server(life)).unwrap();
    probe.shift_bit(false, true, true).unwrap();
    assert!(probe.read_captured_bits().is_err());
    let began = Instant::now();
    assert!(probe.read_captured_bits().is_err(), "it does not come back");
    assert!(began.elapsed() < TIMEOUT, "nothing is waited for twice");
    probe.trouble
}

#[test]
fn bits_go_out_and_come_back() {
    let (sender, seen) = std::sync::mpsc::channel();
    let address = server(move |mut stream| {
        let mut bytes = [0; 7];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(b"10").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        sender.send((bytes, rest)).unwrap();
    });
    let mut probe = RemoteBitbang::connect(&address).unwrap();
    probe.shift_bit(true, true, true).unwrap();
    probe.shift_bit(false, false, true).unwrap();
    // Whoever asks for the bits has all of them.
    probe.batch.push(b'B');
    assert_eq!(probe.read_captured_bits().unwrap(), [true, false].into_iter().collect::<BitVec>());
    probe.target_reset().unwrap();
    drop(probe);
    // TCK is 4, TMS 2, TDI 1; TDO is read before the rising edge.
    let (bytes, rest) = seen.recv().unwrap();
    assert_eq!(&bytes, b"3R70R4B");
    assert_eq!(rest, b"srQ");
}

#[test]
fn servers_that_misbehave_are_given_up() {
    assert_eq!(trouble(drop), Some(Trouble::Closed));
    let strange = trouble(|mut stream| {
        stream.write_all(b"x").unwrap();
        let _ = stream.read(&mut [0; 64]);
    });
    assert_eq!(strange, Some(Trouble::Strange(b'x')));
}

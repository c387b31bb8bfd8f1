//! Control messages: what is decoded encodes again, and means the same.

use core::fmt::Debug;
use proxy_core::control::{
    Decoded, FromProxy, Hello, MAX_MESSAGE, Refused, ToProxy, Welcome, decode, encode,
};
use serde::{Serialize, de::DeserializeOwned};

/// Takes one byte that says which message is expected, and the bytes of a stream.
pub fn run(data: &[u8]) {
    let Some((which, stream)) = data.split_first() else { return };
    let framed;
    let stream = if which & 0x80 == 0 {
        stream
    } else {
        // Bytes of a message without its length.
        framed = [&(stream.len() as u32).to_le_bytes(), stream].concat();
        &framed
    };
    match which & 0x7f {
        0 => there_and_back::<ToProxy>(stream),
        1 => there_and_back::<FromProxy>(stream),
        2 => there_and_back::<Hello>(stream),
        3 => there_and_back::<Welcome>(stream),
        _ => there_and_back::<Refused>(stream),
    }
}

fn there_and_back<M: Serialize + DeserializeOwned + PartialEq + Debug>(mut stream: &[u8]) {
    let mut buffer = vec![0; 4 + MAX_MESSAGE];
    while let Ok(Decoded::Message(message, used)) = decode::<M>(stream) {
        assert!((4..=stream.len()).contains(&used));
        let bytes = encode(&message, &mut buffer).expect("what came fits a message");
        // Shorter where the sender has written a number longer than it needs.
        assert!(bytes.len() <= used, "{message:?}");
        let again = decode::<M>(bytes);
        assert_eq!(again, Ok(Decoded::Message(message, bytes.len())));
        stream = &stream[used..];
    }
}

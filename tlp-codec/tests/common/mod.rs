//! The vectors of `tests/vectors`.

use serde_json::Value;

/// The vectors of a file.
pub(crate) fn vectors(file: &str) -> Vec<Value> {
    let path = format!("{}/../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let list: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(list.len() > 20, "{file} has lost its vectors");
    list
}

/// Bytes from hex.
pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// The bytes of a vector.
pub(crate) fn bytes_of(vector: &Value) -> Vec<u8> {
    from_hex(vector["hex"].as_str().unwrap())
}

//! A line that the log writes itself, as `tracing_subscriber` writes an event as JSON.

use std::fmt::Write;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// An error with that message, as of now.
pub(super) fn error(message: &str) -> String {
    let mut time = String::new();
    // A time that cannot be told is none.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let (time, message) = (escaped(&time), escaped(message));
    format!(
        r#"{{"timestamp":"{time}","level":"ERROR","fields":{{"message":"{message}"}},"target":"{}"}}"#,
        module_path!()
    )
}

/// What stands between the quotes of a JSON string (RFC 8259, section 7).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            c if c < ' ' => {
                let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_message_has_it_is_one_line_and_one_string() {
        let line = error("\"C:\\x\"\n\tü\u{1}");
        let (time, rest) = line.split_once(r#"Z","level":"#).unwrap();
        assert!(time.starts_with(r#"{"timestamp":"20"#), "{line}");
        let fields = r#""ERROR","fields":{"message":"\"C:\\x\"\n\u0009ü\u0001"},"target":"#;
        assert!(rest.starts_with(fields), "{line}");
    }
}

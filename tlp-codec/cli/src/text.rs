//! Lines of text and of JSON, and the fields on them.

use crate::fields::Fields;
use crate::taker::take_flag;
use serde_json::{Map, Value};

/// Keys that say something about a TLP and are not part of it.
pub(crate) const ABOUT: [&str; 2] = ["from", "notes"];

/// The flag of a TLP that came before: one that was sent again, which is still one.
pub(crate) const AGAIN: &str = "again";

/// One line of text.
pub(crate) fn to_text(fields: &Fields) -> String {
    let mut line = fields.tlp_type.clone();
    for (key, value) in &fields.map {
        match value {
            Value::Bool(true) => line += &format!(" {key}"),
            value => line += &format!(" {key}={}", scalar(value)),
        }
    }
    let about: Vec<String> = fields.from.iter().map(place).chain(fields.notes.clone()).collect();
    if !about.is_empty() {
        line += &format!(" # {}", about.join("; "));
    }
    line
}

/// One line of JSON.
pub(crate) fn to_json(fields: &Fields) -> String {
    let mut object = Map::new();
    object.insert("type".into(), fields.tlp_type.clone().into());
    object.extend(fields.map.clone());
    if !fields.notes.is_empty() {
        object.insert("notes".into(), fields.notes.clone().into());
    }
    if let Some(from) = &fields.from {
        object.insert("from".into(), Value::Object(from.clone()));
    }
    Value::Object(object).to_string()
}

/// What a line to be encoded is.
pub(crate) enum Line {
    /// Nothing that stands for a TLP.
    Nothing,
    /// A TLP's fields, with its type as the field `type`.
    Tlp(Map<String, Value>),
}

/// Reads a line of either kind.
pub(crate) fn parse(line: &str) -> Result<Line, String> {
    let line = line.trim();
    if line.starts_with('{') {
        return parse_json(line);
    }
    let line = without_comment(line);
    let mut words = line.split_whitespace();
    let Some(tlp_type) = words.next() else { return Ok(Line::Nothing) };
    let mut map = Map::new();
    map.insert("type".into(), tlp_type.into());
    for word in words {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Value::from(value)),
            None => (word, Value::Bool(true)),
        };
        if map.insert(key.into(), value).is_some() {
            return Err(format!("field `{key}` is there twice"));
        }
    }
    of_fields(map)
}

fn parse_json(line: &str) -> Result<Line, String> {
    let mut map: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| format!("not a JSON object: {error}"))?;
    if map.contains_key("record") && !map.contains_key("type") {
        return Ok(Line::Nothing);
    }
    map.retain(|key, _| !ABOUT.contains(&key.as_str()));
    of_fields(map)
}

fn of_fields(mut map: Map<String, Value>) -> Result<Line, String> {
    Ok(if take_flag(&mut map, AGAIN)? { Line::Nothing } else { Line::Tlp(map) })
}

/// The line up to a `#` that starts a word.
pub(crate) fn without_comment(line: &str) -> &str {
    let comment = line.char_indices().find(|&(at, c)| {
        c == '#' && line[..at].chars().next_back().is_none_or(char::is_whitespace)
    });
    match comment {
        Some((at, _)) => line[..at].trim_end(),
        None => line,
    }
}

/// `{"packet": 3, "sequence": 7}` as `packet 3 sequence 7`.
pub(crate) fn place(from: &Map<String, Value>) -> String {
    let words: Vec<String> =
        from.iter().map(|(key, value)| format!("{key} {}", scalar(value))).collect();
    words.join(" ")
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(scalar).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Map<String, Value> {
        match parse(line) {
            Ok(Line::Tlp(map)) => map,
            Ok(Line::Nothing) => panic!("nothing in {line}"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn comments_are_words_that_start_with_a_hash() {
        assert_eq!(without_comment("MRd # note"), "MRd");
        assert_eq!(without_comment("# note"), "");
        assert_eq!(without_comment("MRd x=a#b"), "MRd x=a#b");
    }

    #[test]
    fn text_and_json_say_the_same() {
        let text = fields("MRd ro tag=5 address=0x1000 # four bytes");
        assert_eq!(text["ro"], true);
        assert_eq!(text["tag"], "5");
        let json = fields(r#"{"type":"MRd","ro":true,"tag":5,"notes":["x"],"from":{"packet":1}}"#);
        assert_eq!(json.len(), 3);
        assert!(matches!(parse(r#"{"record":"credits"}"#), Ok(Line::Nothing)));
        assert!(matches!(parse("MRd address=0 again"), Ok(Line::Nothing)));
        assert!(matches!(parse(r#"{"type":"MRd","again":true}"#), Ok(Line::Nothing)));
        assert!(matches!(parse("MRd address=0 again=true"), Ok(Line::Nothing)));
        assert_eq!(fields(r#"{"type":"MRd","address":0,"again":false}"#).len(), 2);
        assert!(parse("MRd address=0 again=perhaps").is_err());
        assert!(parse("MRd tag=1 tag=2").is_err());
        assert!(parse("{").is_err());
    }
}

//! TLPs alone in a capture, as `dxpu-manager record --format tlps` writes them: each packet is one,
//! and a comment has what is known of it.

use pcap_file::DataLink;
use serde_json::{Map, Value};

/// The link type of a recording's TLPs. It means whatever those agree on that use it, and there is
/// nothing else in it that would tell them from another's packets.
pub(crate) const LINK: DataLink = DataLink::USER0;

/// How the comment of a recording begins; a person's stands beside it.
const BEGIN: &str = "kind=";

/// Words that are taken, and bytes of a name or a value: far more than a recording has. With them a
/// line of output is never longer than a line of input may be.
const MOST_WORDS: usize = 64;
const LONGEST_WORD: usize = 64;

/// What the comments of a packet say of its TLP, by name.
pub(crate) fn known<'a>(comments: impl Iterator<Item = &'a str>) -> Map<String, Value> {
    comments.filter(|text| text.starts_with(BEGIN)).flat_map(words).take(MOST_WORDS).collect()
}

/// The words `name=value` of a comment. A file may hold anything: others are passed over.
fn words(comment: &str) -> impl Iterator<Item = (String, Value)> {
    let plain = |text: &str| {
        (1..=LONGEST_WORD).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    let pairs = comment.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.filter(move |(name, value)| plain(name) && plain(value)).map(|(name, value)| {
        let number = value.parse::<u64>().ok().filter(|number| number.to_string() == value);
        (name.to_owned(), number.map_or_else(|| value.into(), Value::from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_comment_are_numbers_or_text() {
        let comments = [
            "look at this: tag=7",
            "kind=request outstanding=3.9 slot=1 host.sent=83011 word =x y= a=\u{1b}[0m",
        ];
        let expected = r#"{"kind":"request","outstanding":"3.9","slot":1,"host.sent":83011}"#;
        assert_eq!(Value::Object(known(comments.into_iter())).to_string(), expected);
        assert!(known(std::iter::empty()).is_empty());
        // What no recording says makes no line that is longer than those that are read.
        let many: String = (0..1000).map(|n| format!(" word{n}=1")).collect();
        assert_eq!(known([format!("kind=posted{many}").as_str()].into_iter()).len(), MOST_WORDS);
        let long = format!("kind=posted {0}=1 x={0}", "y".repeat(LONGEST_WORD + 1));
        assert_eq!(known([long.as_str()].into_iter()).len(), 1);
    }
}

//! JSON as it stands in a part of a file, taken apart without being copied.
//!
//! What is asked for is judged; what is skipped only has to end: profilers write numbers that JSON
//! does not have (`NaN`, `inf`) and names that are not UTF-8 into fields that nobody needs.

use std::borrow::Cow;

use memchr::memchr2;

/// How deep arrays and objects may lie in each other.
const DEPTH: usize = 64;

/// Why a value cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// This part of the file ends first.
    End,
    /// Something else stands here.
    Wrong {
        /// Offset in this part.
        at: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

/// A string as it stands in the file, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<'a> {
    pub(super) raw: &'a [u8],
    escapes: bool,
}

impl<'a> Text<'a> {
    /// What it says. What is not UTF-8 is replaced, and so is an escape that JSON does not have.
    pub(super) fn text(&self) -> Cow<'a, str> {
        if !self.escapes {
            return String::from_utf8_lossy(self.raw);
        }
        let quoted = [b"\"", self.raw, b"\""].concat();
        match serde_json::from_slice::<String>(&quoted) {
            Ok(text) => Cow::Owned(text),
            Err(_) => String::from_utf8_lossy(self.raw),
        }
    }
}

/// Goes through a part of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn wrong<T>(&self, reason: &'static str) -> Result<T, Fault> {
        Err(Fault::Wrong { at: self.at, reason })
    }

    /// The next byte that is not white space.
    pub(super) fn peek(&mut self) -> Result<u8, Fault> {
        loop {
            match self.bytes.get(self.at) {
                None => return Err(Fault::End),
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(byte) => return Ok(*byte),
            }
        }
    }

    /// Takes this byte, if it is the next that is not white space.
    pub(super) fn take(&mut self, byte: u8) -> Result<bool, Fault> {
        let is = self.peek()? == byte;
        self.at += usize::from(is);
        Ok(is)
    }

    fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), Fault> {
        if self.take(byte)? { Ok(()) } else { self.wrong(reason) }
    }

    /// Takes a string.
    pub(super) fn string(&mut self) -> Result<Text<'a>, Fault> {
        self.expect(b'"', "a string is wanted here")?;
        let start = self.at;
        let mut escapes = false;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(found) = memchr2(b'"', b'\\', rest) else { return Err(Fault::End) };
            self.at += found;
            if self.bytes[self.at] == b'"' {
                let raw = &self.bytes[start..self.at];
                self.at += 1;
                return Ok(Text { raw, escapes });
            }
            escapes = true;
            self.at += 2;
        }
    }

    /// Takes the name of a member and its colon.
    fn key(&mut self) -> Result<Text<'a>, Fault> {
        let key = self.string()?;
        self.expect(b':', "a colon is wanted here")?;
        Ok(key)
    }

    /// Takes an object: for each member, `member` is given its name and takes its value.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Cursor<'a>, Text<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(b'{', "an object is wanted here")?;
        if self.take(b'}')? {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            if self.take(b'}')? {
                return Ok(());
            }
            self.expect(b',', "a comma or a closing brace is wanted here")?;
        }
    }

    /// Takes a number or word, or a string that has one: what stands there.
    pub(super) fn scalar(&mut self) -> Result<&'a [u8], Fault> {
        match self.peek()? {
            b'"' => Ok(self.string()?.raw),
            b'{' | b'[' => self.wrong("a number is wanted here"),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<&'a [u8], Fault> {
        let start = self.at;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' => {
                    if self.at == start {
                        return self.wrong("a value is wanted here");
                    }
                    return Ok(&self.bytes[start..self.at]);
                }
                b'"' | b'{' | b'[' | b':' => return self.wrong("a comma is wanted here"),
                _ => self.at += 1,
            }
        }
        Err(Fault::End)
    }

    /// Passes over a value of any kind.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b'{' | b'[' => self.skip_to_level(0),
            _ => self.word().map(|_| ()),
        }
    }

    /// Passes over what is left of the object whose member was just taken.
    pub(super) fn skip_rest(&mut self) -> Result<(), Fault> {
        self.skip_to_level(1)
    }

    /// Passes over what comes, `open` objects deep, until none is open.
    fn skip_to_level(&mut self, open: usize) -> Result<(), Fault> {
        // What is open, a bit each: 1 an array, 0 an object.
        let mut arrays = 0_u64;
        let mut open = open;
        loop {
            let Some(byte) = self.bytes.get(self.at) else { return Err(Fault::End) };
            match byte {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' if open == DEPTH => return self.wrong("more than 64 values deep"),
                b'{' | b'[' => {
                    arrays = arrays << 1 | u64::from(*byte == b'[');
                    open += 1;
                }
                b'}' | b']' => {
                    if (arrays & 1 == 1) != (*byte == b']') {
                        return self.wrong("a brace where a bracket is wanted, or the other way");
                    }
                    arrays >>= 1;
                    open -= 1;
                    if open == 0 {
                        self.at += 1;
                        return Ok(());
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

/// A decimal number of microseconds as nanoseconds, exactly; what is below a nanosecond is rounded.
/// `None` where it is no number or further from 0 than 2^62 ns.
pub(super) fn nanoseconds(microseconds: &[u8]) -> Option<i64> {
    let (negative, digits) = match microseconds {
        [b'-', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let mut whole = 0_i64;
    let mut at = 0;
    while let Some(digit @ b'0'..=b'9') = digits.get(at) {
        whole = whole.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
        at += 1;
    }
    if at == 0 {
        return None;
    }
    let mut value = whole.checked_mul(1000)?;
    let mut rest = &digits[at..];
    if let [b'.', fraction @ ..] = rest {
        let end = fraction.iter().position(|b| !b.is_ascii_digit()).unwrap_or(fraction.len());
        if end == 0 {
            return None;
        }
        let digit = |at: usize| fraction[..end].get(at).map_or(0, |digit| i64::from(digit - b'0'));
        let below = digit(0) * 100 + digit(1) * 10 + digit(2) + i64::from(digit(3) >= 5);
        value = value.checked_add(below)?;
        rest = &fraction[end..];
    }
    if !rest.is_empty() {
        // With an exponent, as some programs write large numbers.
        value = with_exponent(digits)?;
    }
    (value <= 1 << 62).then_some(if negative { -value } else { value })
}

fn with_exponent(digits: &[u8]) -> Option<i64> {
    if !digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    let number: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let value = (number * 1000.0).round();
    (value <= (1_i64 << 62) as f64).then_some(value as i64)
}

/// A whole number, also one that is written with a fraction of zeros.
pub(super) fn whole(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.split_once('.').map_or(text, |(whole, zeros)| {
        if zeros.bytes().all(|zero| zero == b'0') { whole } else { text }
    });
    text.parse().ok()
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn skipped(text: &str) -> Result<usize, Fault> {
        let mut cursor = Cursor::new(text.as_bytes(), 0);
        cursor.skip().map(|()| cursor.at())
    }

    #[test]
    fn values_are_passed_over() {
        for text in [
            "{}",
            "[]",
            r#""a \" ] string""#,
            r#"{"a": [1, {"b": "}"}, NaN], "c": -inf}"#,
            "[[[]]]",
        ] {
            assert_eq!(skipped(&format!(" {text}, more")), Ok(text.len() + 1), "{text}");
        }
        for text in ["", "  ", "{", "[1, 2", r#""a"#, r#""a\"#, "12", r#"{"a": "#] {
            assert_eq!(skipped(text), Err(Fault::End), "{text}");
        }
        for text in ["{]", "[}", "[{]}", "}", ",", "1:2"] {
            assert!(matches!(skipped(text), Err(Fault::Wrong { .. })), "{text}");
        }
        assert!(skipped(&"[".repeat(64)).is_err_and(|fault| fault == Fault::End));
        assert!(matches!(skipped(&"[".repeat(65)), Err(Fault::Wrong { at: 64, .. })));
    }

    #[test]
    fn members_are_given_one_after_the_other() {
        let text = br#" { "a\n" : 12 , "b":"x\u00e9y", "c" : { "d" : 1 } } "#;
        let mut cursor = Cursor::new(text, 0);
        let mut seen = Vec::new();
        let object = cursor.object(|cursor, key| {
            let value = match key.raw {
                b"c" => {
                    cursor.skip()?;
                    String::new()
                }
                b"b" => cursor.string()?.text().into_owned(),
                _ => String::from_utf8_lossy(cursor.scalar()?).into_owned(),
            };
            seen.push((key.text().into_owned(), value));
            Ok(())
        });
        assert_eq!(object, Ok(()));
        let said = [("a\n", "12"), ("b", "xéy"), ("c", "")];
        assert_eq!(seen, said.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn text_that_is_no_text_is_shown_all_the_same() {
        let text = |raw| Text { raw, escapes: true }.text();
        assert_eq!(text(br"\q"), r"\q");
        assert_eq!(text(b"\xff\\n"), "\u{fffd}\\n");
    }

    #[test]
    fn microseconds_are_exact() {
        for (text, ns) in [
            ("0", 0),
            ("1694039968955744", 1_694_039_968_955_744_000),
            ("1694039968955744.123", 1_694_039_968_955_744_123),
            ("12.3456", 12_346),
            ("12.3454", 12_345),
            ("-1.5", -1500),
            ("0.001", 1),
            ("1.5e3", 1_500_000),
            ("2E-3", 2),
        ] {
            assert_eq!(nanoseconds(text.as_bytes()), Some(ns), "{text}");
        }
        for text in [
            "",
            "-",
            ".5",
            "1.",
            "NaN",
            "nan",
            "Infinity",
            "inf",
            "null",
            "1.2.3",
            "1e400",
            "0x10",
            "99999999999999999999",
            "9223372036854775.9",
            "1 2",
            "--1",
            "1einf",
        ] {
            assert_eq!(nanoseconds(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn whole_numbers() {
        for (text, number) in
            [("7", Some(7)), ("-1", Some(-1)), ("7.0", Some(7)), ("7.5", None), ("x", None)]
        {
            assert_eq!(whole(text.as_bytes()), number, "{text}");
        }
    }
}

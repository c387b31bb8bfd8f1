//! Selectors as text.

use super::condition::{Comparison, Condition};
use super::{InvalidSelector, MAX_CONDITIONS, MAX_SELECTOR, Selector};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is == Comparison::Lacks {
            f.write_str("!")?;
        }
        write!(f, "{}{}", self.attribute, self.is.sign())?;
        for (index, value) in self.values.iter().enumerate() {
            f.write_str(if index > 0 { "|" } else { "" })?;
            if value.chars().all(is_plain) && !value.is_empty() {
                f.write_str(value)?;
            } else {
                write!(f, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, condition) in self.0.iter().enumerate() {
            write!(f, "{}{condition}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Whether a character stands in a value without quotes.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/' | '+')
}

impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        if text.len() > MAX_SELECTOR {
            let why = format!("a selector has at most {MAX_SELECTOR} bytes");
            return Err(InvalidSelector { why, at: MAX_SELECTOR });
        }
        let mut reader = Reader { rest: text, at: 1 };
        let mut conditions = Vec::new();
        reader.space();
        if reader.rest.is_empty() {
            return Ok(Self::default());
        }
        loop {
            let at = reader.at;
            let condition = reader.condition()?;
            if let Some(why) = condition.fault() {
                return Err(InvalidSelector { why, at });
            }
            conditions.push(condition);
            if conditions.len() > MAX_CONDITIONS {
                return Err(InvalidSelector {
                    why: format!("at most {MAX_CONDITIONS} conditions"),
                    at,
                });
            }
            if reader.rest.is_empty() {
                return Ok(Self(conditions));
            }
            if !reader.take(",") {
                return Err(reader.wrong("a comma or the end should be here"));
            }
        }
    }
}

/// What is left of a selector's text.
struct Reader<'a> {
    rest: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn wrong(&self, why: &str) -> InvalidSelector {
        let why = match self.rest.chars().next() {
            Some(found) => format!("{why}, not {found:?}"),
            None => format!("{why}, not the end"),
        };
        InvalidSelector { why, at: self.at }
    }

    fn skip(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.at += taken.chars().count();
        self.rest = rest;
        taken
    }

    fn space(&mut self) {
        let length = self.rest.len() - self.rest.trim_start_matches(' ').len();
        self.skip(length);
    }

    /// Takes a sign and the space around it, if it is here.
    fn take(&mut self, sign: &str) -> bool {
        self.space();
        let here = self.rest.starts_with(sign);
        if here {
            self.skip(sign.len());
            self.space();
        }
        here
    }

    fn while_true(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let length = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        self.skip(length)
    }

    fn condition(&mut self) -> Result<Condition, InvalidSelector> {
        let lacks = self.take("!");
        let attribute = self
            .while_true(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
            .to_ascii_lowercase();
        if attribute.is_empty() {
            return Err(self.wrong("the name of an attribute should be here"));
        }
        self.space();
        // Those that begin like another one first.
        let signs = [
            ("!=", Comparison::IsNot),
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            ("==", Comparison::Is),
            ("=", Comparison::Is),
            (">", Comparison::Above),
            ("<", Comparison::Below),
        ];
        let found = signs.into_iter().find(|(sign, _)| self.rest.starts_with(sign));
        let Some((sign, is)) = found else {
            let is = if lacks { Comparison::Lacks } else { Comparison::Has };
            return Ok(Condition { attribute, is, values: Vec::new() });
        };
        if lacks {
            return Err(self.wrong("a condition with ! in front has no value"));
        }
        self.take(sign);
        let mut values = vec![self.value()?];
        while self.take("|") {
            values.push(self.value()?);
        }
        Ok(Condition { attribute, is, values })
    }

    fn value(&mut self) -> Result<String, InvalidSelector> {
        if !self.rest.starts_with('"') {
            let value = self.while_true(is_plain);
            if value.is_empty() {
                return Err(self.wrong(
                    "a value should be here (with other characters than letters, \
                                       digits and . _ - : / + in \"quotes\")",
                ));
            }
            self.space();
            return Ok(value.to_owned());
        }
        let begin = self.at;
        self.skip(1);
        let mut value = String::new();
        let mut escaped = false;
        for (index, c) in self.rest.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => {
                    escaped = true;
                    continue;
                }
                '"' => {
                    self.skip(index + 1);
                    self.space();
                    return Ok(value);
                }
                _ => {}
            }
            value.push(c);
        }
        Err(InvalidSelector { why: "the quote is not closed".into(), at: begin })
    }
}

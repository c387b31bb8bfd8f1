//! Words of a shell's commands, for people to type.

/// A word as a shell takes it, whatever is in it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_for_more_than_a_word_is_quoted() {
        for plain in ["storm", "/a/b-1.toml", "seeds=0..5", "host:7780"] {
            assert_eq!(quoted(plain), plain);
        }
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("/a b/c"), "'/a b/c'");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
    }
}

//! Laying out names and sentences.

/// The line at the beginning of everything that is made.
pub(super) const MADE: &str =
    "Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.";

/// `slot_link` as a Rust type has it. Numbers stay apart: `gt_2_5` becomes `Gt2_5`.
pub(super) fn pascal(snake: &str) -> String {
    let mut name = String::new();
    for word in snake.split('_') {
        let mut letters = word.chars();
        let Some(first) = letters.next() else { continue };
        if first.is_ascii_digit() && name.ends_with(|last: char| last.is_ascii_digit()) {
            name.push('_');
        }
        name.push(first.to_ascii_uppercase());
        name.extend(letters);
    }
    name
}

/// `slot_link` as a macro has it.
pub(super) fn upper(snake: &str) -> String {
    snake.to_ascii_uppercase()
}

/// Breaks sentences into lines of at most `width` letters, each behind `before`.
pub(super) fn wrapped(text: &str, before: &str, width: usize) -> String {
    let mut lines = String::new();
    let mut line = before.to_owned();
    for word in text.split_whitespace() {
        if line.len() > before.len() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push_str(&line);
            lines.push('\n');
            line = before.to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(pascal("slot_link"), "SlotLink");
        assert_eq!(pascal("gt_2_5"), "Gt2_5");
        assert_eq!(pascal("crc_32c"), "Crc32c");
        assert_eq!(upper("slot_link"), "SLOT_LINK");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three", "//", 10), "// one two\n// three\n");
        assert_eq!(wrapped("averylongwordindeed", "//", 10), "// averylongwordindeed\n");
    }
}

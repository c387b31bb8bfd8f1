//! Texts that people write for people, and that are shown as they are.

/// Whether a character would begin a line, command a terminal, or change in what order others around
/// it are shown: control characters, the separators of lines and paragraphs, and the formatting
/// characters of the Unicode Bidirectional Algorithm (UAX #9, sections 2.1 to 2.6).
pub fn is_formatting(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}'
                | '\u{2029}'
                | '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// A text that a proxy or device says of itself, for people: what formats is replaced (U+FFFD), since
/// nobody there has to be trusted with a terminal.
pub fn plain(text: &str) -> String {
    text.replace(is_formatting, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_formats_is_left() {
        assert_eq!(plain("A100 80G, ü"), "A100 80G, ü");
        assert_eq!(plain("\u{1b}[31mA\nB\u{202e}C"), "\u{fffd}[31mA\u{fffd}B\u{fffd}C");
    }
}

//! What the guest's kernel says.

/// One line of the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// From 0 (emergency) to 7 (debug); 4 is a warning, 3 an error (`linux/kern_levels.h`).
    pub level: u8,
    /// What it says, without level and time.
    pub text: String,
}

/// A place in the kernel's log: what was there when it was taken is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(crate) usize);

impl Message {
    /// Whether it is a warning, or worse.
    pub fn is_warning(&self) -> bool {
        self.level <= 4
    }
}

/// Reads what `dmesg -r` prints: `<6>[    1.234567] text`.
pub(crate) fn parse(text: &str) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for line in text.lines() {
        match message(line) {
            Some(message) => messages.push(message),
            // A message of several lines.
            None => {
                if let Some(last) = messages.last_mut() {
                    last.text.push('\n');
                    last.text.push_str(line);
                }
            }
        }
    }
    messages
}

fn message(line: &str) -> Option<Message> {
    let (level, rest) = line.strip_prefix('<')?.split_once('>')?;
    let level: u16 = level.parse().ok()?;
    let text = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((time, text)) if time.trim().parse::<f64>().is_ok() => text,
        _ => rest,
    };
    // The bits above the level are the facility.
    Some(Message {
        level: (level & 7) as u8,
        text: text.strip_prefix(' ').unwrap_or(text).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_and_text_are_told_apart() {
        let text = "<6>[    0.000000] Linux version 6.1\n<12>[    3.25] written by a program\n\
                    <4>[   12.500000] pci 0000:00:05.0: [8086:28c0] odd\nand more\n<3>no time\n";
        let expected = [
            (6, "Linux version 6.1"),
            (4, "written by a program"),
            (4, "pci 0000:00:05.0: [8086:28c0] odd\nand more"),
            (3, "no time"),
        ];
        let messages = parse(text);
        let found: Vec<(u8, &str)> = messages.iter().map(|m| (m.level, m.text.as_str())).collect();
        assert_eq!(found, expected);
        assert_eq!(messages.iter().filter(|message| message.is_warning()).count(), 3);
    }
}

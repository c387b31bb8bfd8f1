//! A command line that makes no sense, told as every other failure is.

use std::ffi::OsStr;

use clap::error::ErrorKind;

use crate::failure::{Failure, Kind};

/// Whether errors are to be JSON, of a command line that need not make sense.
pub fn wants_json<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> bool {
    // What follows `--` are no options.
    let mut options = arguments.into_iter().take_while(|argument| argument.as_ref() != "--");
    options.any(|argument| argument.as_ref() == "--json")
}

/// What is wrong with a command line. The parser's text has paragraphs: what is wrong, hints, how
/// the command is used, and where help is.
#[must_use]
pub fn failure(error: &clap::Error) -> Failure {
    let no_command = matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    );
    if no_command {
        return Failure::new(Kind::Input, "the command is missing")
            .check("`dxpu-flash --help` names the commands");
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(in_a_line).filter(|text| !text.is_empty());
    let what = paragraphs.next().unwrap_or_default();
    let failure = Failure::new(Kind::Input, what.strip_prefix("error: ").unwrap_or(&what));
    paragraphs
        .fold(failure, |failure, hint| failure.check(hint.strip_prefix("tip: ").unwrap_or(&hint)))
}

fn in_a_line(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Args;
    use clap::Parser;

    fn told(line: &str) -> Failure {
        let words = std::iter::once("dxpu-flash").chain(line.split_whitespace());
        failure(&Args::try_parse_from(words).unwrap_err())
    }

    #[test]
    fn what_is_wrong_comes_first_and_hints_follow() {
        let failure = told("read slot-c out");
        let begins = "invalid value 'slot-c' for '<PART>' [possible values: boot-loader";
        assert!(failure.what.starts_with(begins), "{failure}");
        assert_eq!(failure.kind.exit_code(), 2);
        assert!(failure.check.iter().any(|hint| hint.contains("similar value")), "{failure:?}");
        let failure = told("log");
        assert!(failure.what.contains("--elf <FILE>"), "{failure}");
        assert!(failure.check.iter().any(|hint| hint.starts_with("Usage: dxpu-flash log")));
        for line in ["", "image"] {
            assert_eq!(told(line).what, "the command is missing");
        }
    }

    #[test]
    fn json_is_wanted_by_an_option_only() {
        assert!(wants_json(["read", "--json"]) && wants_json(["--json", "read", "--", "x"]));
        assert!(!wants_json(["read"]) && !wants_json(["read", "--", "--json"]));
    }
}

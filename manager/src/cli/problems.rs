//! `problems`: every kind of problem, what to do about it, and its exit code. `docs/problems.md` is
//! what it prints.

use super::args::EXIT_CODES;
use super::failure::of_problem;
use super::{Failure, Output};
use crate::types::ProblemCode;
use manager_client::bodies::ProblemKind;
use serde::Serialize;

/// A kind of problem and the exit code of a command that meets it.
#[derive(Serialize)]
struct Kind {
    #[serde(flatten)]
    kind: ProblemKind,
    exit_code: u8,
}

impl From<ProblemCode> for Kind {
    fn from(code: ProblemCode) -> Self {
        Self { kind: code.into(), exit_code: of_problem(code) }
    }
}

/// Prints one kind, or all.
pub(super) fn problems(out: &Output, code: Option<ProblemCode>) -> Result<(), Failure> {
    match code {
        Some(code) => out.print(&Kind::from(code), section),
        None => {
            let all: Vec<Kind> = ProblemCode::ALL.iter().copied().map(Kind::from).collect();
            out.print(&all, |all| page(all))
        }
    }
}

fn section(Kind { kind, exit_code }: &Kind) -> String {
    let ProblemKind { code, title, status, meaning, advice, .. } = kind;
    format!(
        "## {code}\n\n{title}. HTTP status {status}, exit code {exit_code}.\n\n{meaning}\n\n{advice}"
    )
}

fn page(all: &[Kind]) -> String {
    let codes = EXIT_CODES.split_once("\n\n").map_or(EXIT_CODES, |(codes, _)| codes);
    let codes = codes.trim_start_matches("Exit codes:").trim_matches('\n');
    let sections = all.iter().map(section).collect::<Vec<_>>().join("\n\n");
    format!(
        "# Problems\n\n\
         `dxpu-manager problems` prints this page. `type` of a problem in an answer of the REST API is the\n\
         address where the manager says the same of it, such as `/v1/problems/slot-in-use`.\n\n\
         Commands end with an exit code by kind:\n\n```text\n{codes}\n```\n\n{sections}"
    )
}

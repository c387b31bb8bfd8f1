//! Errors of the command line and their exit codes.

use crate::config::ConfigError;
use crate::serve::ServeError;
use crate::store::StoreError;
use crate::types::{OperationId, OperationRecord, Problem, ProblemCode, Timestamp};
use manager_client::ClientError;
use manager_client::bodies::ProblemBody;
use manager_client::views::ErasureView;
use std::sync::atomic::Ordering;

/// Why a command did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The manager said no, or is not there.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The manager went away while an operation was waited for, or no longer knows it or what it
    /// has made.
    #[error("{0} was begun, and what became of it cannot be asked: {1}")]
    Waiting(OperationId, ClientError),
    /// No answer came to a request that may have begun something.
    #[error(
        "{error}; what was asked for may have been begun: the same command {}goes on with it, and \
         does nothing twice",
        again(key, what)
    )]
    Unanswered {
        /// The key that the command had.
        key: String,
        /// What the command was for, all of it in its order, if it can have meant it by names that
        /// mean something else the next time.
        what: Vec<String>,
        /// Why there was no answer.
        error: Box<ClientError>,
    },
    /// No answer came to a request that may have begun a rollout of firmware.
    #[error(
        "{0}; a rollout may have begun: `dxpu-manager firmware status` says so, and the same command \
         would begin another one when that has ended"
    )]
    RolloutUnanswered(ClientError),
    /// An operation failed.
    #[error("{} failed: {}", .0.id, .0.error.as_ref().map_or("no reason given", |e| &e.detail))]
    Operation(Box<OperationRecord>),
    /// An erasure ended otherwise than with the device erased.
    #[error("{}: {} is not erased ({}): {}", .0.id, .0.slot, .0.state, .0.detail)]
    Erasure(Box<ErasureView>),
    /// A rollout of firmware failed.
    #[error("{0}")]
    Rollout(String),
    /// The server cannot run.
    #[error("{0}")]
    Serve(#[from] ServeError),
    /// The store cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// A store has what does not read.
    #[error("{0}")]
    Damaged(String),
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A dry run found nothing that fits; what stands in the way is printed.
    #[error("nothing fits the request")]
    NothingFits,
    /// An argument is wrong.
    #[error("{0}")]
    Argument(String),
    /// Standard output cannot be written.
    #[error("standard output cannot be written: {0}")]
    Output(#[from] std::io::Error),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Client(problem.into())
    }
}

impl Failure {
    /// The exit code, as `--help` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Client(error) | Self::Waiting(_, error) | Self::RolloutUnanswered(error) => {
                of_client(error)
            }
            Self::Unanswered { error, .. } => of_client(error),
            Self::Operation(operation) => match &operation.error {
                Some(problem) if problem.code == ProblemCode::NotEnumerated => {
                    of_problem(problem.code)
                }
                _ => 7,
            },
            Self::Rollout(_) | Self::Erasure(_) => 7,
            // Who started the manager is to start it again.
            Self::Serve(ServeError::Store(error)) if error.may_pass() => 11,
            Self::Store(_) | Self::Damaged(_) | Self::Serve(ServeError::Store(_)) => 8,
            Self::Serve(ServeError::AddressInUse { .. } | ServeError::Listen { .. }) => 9,
            Self::Config(_) | Self::Argument(_) => 2,
            Self::NothingFits => 5,
            Self::Serve(_) | Self::Output(_) => 1,
        }
    }

    /// Prints it to stderr.
    pub fn print(&self, json: bool) {
        let problem = match self {
            Self::Client(ClientError::Problem(problem))
            | Self::Waiting(_, ClientError::Problem(problem)) => Some(problem.clone()),
            Self::Operation(operation) => operation.error.clone(),
            _ => None,
        };
        if json {
            super::complain!("{}", self.json(problem));
            return;
        }
        if super::LOG_IS_JSON.load(Ordering::Relaxed) {
            super::complain!("{}", self.log_line());
            return;
        }
        super::complain!("dxpu-manager: {self}");
        // A sentence that gives its reasons itself needs no list of them.
        let said = self.to_string();
        let reasons = problem.map(|problem| problem.reasons).unwrap_or_default();
        for reason in reasons.iter().filter(|reason| !said.contains(reason.as_str())) {
            super::complain!("  - {reason}");
        }
    }
}

impl Failure {
    /// It as a line of a log that is JSON.
    fn log_line(&self) -> serde_json::Value {
        serde_json::json!({
            "timestamp": Timestamp::now().to_string(),
            "level": "ERROR",
            "fields": { "message": format!("dxpu-manager: {self}") },
            "target": module_path!(),
        })
    }

    /// It as JSON: the problem, if it is one, and what a program needs to go on.
    fn json(&self, problem: Option<Problem>) -> serde_json::Value {
        let mut body = match problem {
            Some(problem) => {
                serde_json::to_value(ProblemBody::from(problem)).expect("problems are JSON")
            }
            None => serde_json::json!({ "detail": self.to_string() }),
        };
        match self {
            Self::Waiting(id, _) => body["operation"] = serde_json::json!(id),
            Self::Operation(operation) => body["operation"] = serde_json::json!(operation.id),
            Self::Unanswered { key, what, .. } => {
                body["key"] = serde_json::json!(key);
                if !what.is_empty() {
                    body["what"] = serde_json::json!(what);
                }
            }
            _ => {}
        }
        body
    }
}

/// How a command is to be given again.
fn again(key: &str, what: &[String]) -> String {
    match what {
        [] => format!("with --key {key} "),
        what => format!("for {} and with --key {key} ", what.join(" ")),
    }
}

fn of_client(error: &ClientError) -> u8 {
    match error {
        ClientError::Problem(problem) => of_problem(problem.code),
        ClientError::Unreachable { .. } => 6,
        ClientError::Strange { .. } | ClientError::Unfinished { .. } => 1,
    }
}

/// The exit code of a command that meets a problem.
pub(super) fn of_problem(code: ProblemCode) -> u8 {
    use ProblemCode::*;
    match code {
        InvalidRequest | MethodNotAllowed | BodyTooLarge | RequestTimeout
        | UnsupportedMediaType | WrongRole | NotACard | IdempotencyKeyReused | NotAnImage => 2,
        NoSuchPath | NoSuchNode | NoSuchHost | NoSuchBox | NoSuchSlot | NoSuchPlace
        | NoSuchAllocation | NoSuchBinding | NoSuchOperation | NoSuchErasure | NoSuchRecording
        | NoSuchImage | NoSuchRollout | NotHeld | OutcomeForgotten => 3,
        SlotInUse | SlotEmpty | SlotQuarantined | SlotBusy | NotLent | EpochsExhausted
        | StillConnected | RecordingRuns | RolloutRuns | CardInUse | WrongImage | NoWayBack
        | TooLate | Held | PreconditionFailed => 4,
        NothingFits => 5,
        NotConnected | Stopping => 6,
        ProxyRefused | ProxyTimeout | OperationTimeout | Superseded | Cancelled => 7,
        NotEnumerated => 10,
        StoreFailed => 8,
        LimitReached | Internal => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_is_always_named() {
        let json = |failure: Failure| {
            let problem = match &failure {
                Failure::Waiting(_, ClientError::Problem(problem)) => Some(problem.clone()),
                _ => None,
            };
            (failure.exit_code(), failure.json(problem))
        };
        let problem = Problem::new(ProblemCode::LimitReached, "no seat").passing(true);
        let (code, body) = json(Failure::Waiting(OperationId(7), problem.into()));
        assert_eq!(
            (code, &body["operation"], &body["code"]),
            (1, &"op-7".into(), &"limit-reached".into())
        );
        let (server, reason, asked) = ("here".to_owned(), "gone".to_owned(), true);
        let gone =
            || ClientError::Unreachable { server: server.clone(), reason: reason.clone(), asked };
        let unanswered = |what: &[&str]| Failure::Unanswered {
            key: "k-1".into(),
            what: what.iter().copied().map(String::from).collect(),
            error: gone().into(),
        };
        let (code, body) = json(Failure::RolloutUnanswered(gone()));
        assert_eq!(code, 6);
        assert!(body["detail"].as_str().unwrap().contains("`dxpu-manager firmware status`"));
        let (code, body) = json(unanswered(&[]));
        assert_eq!((code, &body["key"]), (6, &"k-1".into()));
        assert!(body["detail"].as_str().unwrap().contains("the same command with --key k-1 goes"));
        assert!(body.get("what").is_none(), "{body}");
        let (_, body) = json(unanswered(&["bind-1", "alloc-2"]));
        assert_eq!(body["what"], serde_json::json!(["bind-1", "alloc-2"]));
        let said = "the same command for bind-1 alloc-2 and with --key k-1 goes";
        assert!(body["detail"].as_str().unwrap().contains(said), "{body}");
    }
}

//! A client of the REST API.

use crate::bodies::ProblemBody;
use crate::types::{OperationId, OperationRecord, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};
use ureq::RequestBuilder;

/// Largest answer that is read, bytes.
const MAX_ANSWER: u64 = 1 << 30;

/// How long the first question about an operation waits: most are over by then.
pub const FIRST_TURN: Duration = Duration::from_millis(300);

/// How long one question about an operation waits for its answer.
pub const WAIT_TURN: Duration = Duration::from_secs(2);

/// How long a wait for an operation goes on while the manager is away: it may restart, and the
/// operation goes on.
const AWAY_BOUND: Duration = Duration::from_secs(30);

/// How long a wait for an operation pauses until it asks again a manager that is away.
const AWAY_TURN: Duration = Duration::from_millis(250);

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The manager cannot be reached.
    #[error(
        "the manager at {server} cannot be reached: {reason}; is it running, and is --server (or \
         DXPU_MANAGER) its address?"
    )]
    Unreachable {
        /// Where it was looked for.
        server: String,
        /// Why.
        reason: String,
    },
    /// What is there does not answer as a manager does.
    #[error("{server} does not answer as a dxpu-manager does: {reason}")]
    Strange {
        /// Where it was looked for.
        server: String,
        /// Why.
        reason: String,
    },
    /// The manager says no.
    #[error("{0}")]
    Problem(#[from] Problem),
}

/// How long a manager may take to answer: longer than any answer that it is asked to wait with.
const ANSWER_BOUND: Duration = Duration::from_secs(60);

/// A manager at an address.
pub struct Client {
    server: String,
    actor: Option<String>,
    agent: ureq::Agent,
}

impl Client {
    /// For the manager at this URL, such as `http://127.0.0.1:7780`.
    pub fn new(server: &str) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(5)))
            .timeout_recv_response(Some(ANSWER_BOUND))
            // A manager is reached directly.
            .proxy(None)
            .build()
            .new_agent();
        let server = server.trim_end_matches('/');
        let server = match server.contains("://") {
            true => server.to_owned(),
            false => format!("http://{server}"),
        };
        Self { server, actor: None, agent }
    }

    /// Says who asks, for the manager's audit log: 1 to 128 bytes without control characters.
    /// Nobody checks it.
    pub fn acting_as(self, actor: &str) -> Self {
        Self { actor: Some(actor.to_owned()), ..self }
    }

    fn signed<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.actor {
            Some(actor) => request.header("x-dxpu-actor", actor),
            None => request,
        }
    }

    /// The manager's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server)
    }

    /// Gets what is at a path.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.read(self.signed(self.agent.get(self.url(path))).call())
    }

    /// Posts a body.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, ClientError> {
        let mut request = self.signed(self.agent.post(self.url(path)));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.read(request.send_json(body))
    }

    /// Posts a file.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn post_bytes<T: DeserializeOwned>(
        &self,
        path: &str,
        bytes: &[u8],
    ) -> Result<T, ClientError> {
        let request = self.signed(self.agent.post(self.url(path)));
        self.read(request.header("content-type", "application/octet-stream").send(bytes))
    }

    /// Deletes what is at a path.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        key: Option<&str>,
    ) -> Result<T, ClientError> {
        let mut request = self.signed(self.agent.delete(self.url(path)));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.read(request.call())
    }

    /// Puts a body; the answer has none.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn put(&self, path: &str, body: &impl Serialize) -> Result<(), ClientError> {
        let (status, text) =
            self.text(self.signed(self.agent.put(self.url(path))).send_json(body))?;
        if (200..300).contains(&status) { Ok(()) } else { Err(self.problem(status, &text)) }
    }

    /// Puts a body and reads the answer.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn put_for<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.read(self.agent.put(self.url(path)).send_json(body))
    }

    /// Deletes what is at a path; the answer has no body.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn remove(&self, path: &str) -> Result<(), ClientError> {
        let (status, text) = self.text(self.signed(self.agent.delete(self.url(path))).call())?;
        if (200..300).contains(&status) { Ok(()) } else { Err(self.problem(status, &text)) }
    }

    /// Gets a file.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        let mut response =
            self.signed(self.agent.get(self.url(path))).call().map_err(|e| self.unreachable(e))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(MAX_ANSWER);
        let bytes = body.read_to_vec().map_err(|e| self.unreachable(e))?;
        match (200..300).contains(&status) {
            true => Ok(bytes),
            false => Err(self.problem(status, &String::from_utf8_lossy(&bytes))),
        }
    }

    fn unreachable(&self, error: ureq::Error) -> ClientError {
        ClientError::Unreachable {
            server: self.server.clone(),
            reason: match error {
                ureq::Error::Io(error) => error.to_string(),
                other => other.to_string(),
            },
        }
    }

    /// Waits until an operation has ended and tells of its state whenever a step is done, and
    /// every [`WAIT_TURN`] meanwhile; for the first time after [`FIRST_TURN`].
    ///
    /// # Errors
    ///
    /// When the manager cannot be asked, and could not for 30 s. An operation that failed is
    /// no error here.
    pub fn wait(
        &self,
        id: OperationId,
        mut progress: impl FnMut(&OperationRecord),
    ) -> Result<OperationRecord, ClientError> {
        let (mut beyond, mut turn) = (0, FIRST_TURN);
        let mut away: Option<Instant> = None;
        loop {
            let turn = std::mem::replace(&mut turn, WAIT_TURN).as_millis();
            let path = format!("/v1/operations/{id}?wait_ms={turn}&beyond_steps={beyond}");
            let operation: OperationRecord = match self.get(&path) {
                Ok(operation) => operation,
                Err(ClientError::Unreachable { .. })
                    if away.get_or_insert_with(Instant::now).elapsed() < AWAY_BOUND =>
                {
                    std::thread::sleep(AWAY_TURN);
                    continue;
                }
                Err(error) => return Err(error),
            };
            away = None;
            progress(&operation);
            if operation.state.is_final() {
                return Ok(operation);
            }
            let past =
                operation.steps.iter().filter(|s| s.state != crate::types::StepState::Pending);
            beyond = past.count();
        }
    }

    fn text(
        &self,
        result: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<(u16, String), ClientError> {
        let mut response = result.map_err(|e| self.unreachable(e))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(MAX_ANSWER);
        Ok((status, body.read_to_string().map_err(|e| self.unreachable(e))?))
    }

    fn read<T: DeserializeOwned>(
        &self,
        result: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T, ClientError> {
        let (status, text) = self.text(result)?;
        if !(200..300).contains(&status) {
            return Err(self.problem(status, &text));
        }
        serde_json::from_str(&text).map_err(|error| ClientError::Strange {
            server: self.server.clone(),
            reason: error.to_string(),
        })
    }

    fn problem(&self, status: u16, text: &str) -> ClientError {
        match serde_json::from_str::<ProblemBody>(text) {
            Ok(body) => ClientError::Problem(body.into()),
            Err(_) => ClientError::Strange {
                server: self.server.clone(),
                reason: format!("HTTP status {status} without a problem that it could read"),
            },
        }
    }
}

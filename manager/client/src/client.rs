//! A client of the REST API.

use crate::bodies::ProblemBody;
use crate::types::{OperationId, OperationRecord, Problem, ProblemCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use ureq::{RequestBuilder, Timeout};

/// Largest answer that is read, bytes: 1 GiB.
pub const MAX_ANSWER: u64 = 1 << 30;

/// How long the first question about an operation waits: most are over by then.
pub const FIRST_TURN: Duration = Duration::from_millis(300);

/// How long one question about an operation waits for its answer.
pub const WAIT_TURN: Duration = Duration::from_secs(2);

/// How long is asked again while the manager is away or cannot answer now: it may restart, and the
/// operation goes on.
const AWAY_BOUND: Duration = Duration::from_secs(30);

/// The pause before a manager that is away is asked again.
const AWAY_TURN: Duration = Duration::from_millis(250);

/// How long an answer is waited for at least when the manager is asked again: longer than it is asked
/// to wait with it ([`WAIT_TURN`]).
const LEAST_ANSWER: Duration = Duration::from_secs(5);

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
        /// Whether it may have got the request nevertheless.
        asked: bool,
    },
    /// What is there does not answer as a manager does.
    #[error("{server} does not answer as a dxpu-manager does: {reason}")]
    Strange {
        /// Where it was looked for.
        server: String,
        /// Why.
        reason: String,
    },
    /// The answer was begun, and is not taken as a whole: it is too large, or comes too slowly. The
    /// next one would be, too.
    #[error("what {server} answers was not read to its end: {reason}")]
    Unfinished {
        /// Where it came from.
        server: String,
        /// Why.
        reason: String,
    },
    /// The manager says no.
    #[error("{0}")]
    Problem(#[from] Problem),
}

impl ClientError {
    /// Whether the manager is away or cannot answer now, which may pass by itself: it restarts, or
    /// all of its connections are taken.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Problem(problem) => match problem.code {
                ProblemCode::LimitReached => problem.transient,
                code => code == ProblemCode::Stopping,
            },
            Self::Strange { .. } | Self::Unfinished { .. } => false,
        }
    }
}

/// Whether a request that ended so may have been sent.
fn may_be_sent(error: &ureq::Error) -> bool {
    use ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    match error {
        ureq::Error::Io(error) => !matches!(
            error.kind(),
            ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable
        ),
        ureq::Error::Timeout(timeout) => !matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => false,
        _ => true,
    }
}

/// How long a manager has not answered, and how long that may go on.
struct Patience {
    bound: Duration,
    away: Option<Instant>,
}

impl Patience {
    /// Pauses; how long the next answer may take. `None` if it has gone on for too long.
    fn pause(&mut self) -> Option<Duration> {
        let away = *self.away.get_or_insert_with(Instant::now);
        if away.elapsed() >= self.bound {
            return None;
        }
        std::thread::sleep(AWAY_TURN);
        // A manager that hangs does not make it longer than it is said to be.
        let rest = self.bound.saturating_sub(away.elapsed());
        Some(rest.clamp(LEAST_ANSWER, ANSWER_BOUND))
    }
}

/// Bytes of a connection's buffers, which are cleared for each connection: what comes and goes is
/// mostly short.
const BUFFER: usize = 16 << 10;

/// How long a manager may take to answer: longer than any answer that it is asked to wait with.
const ANSWER_BOUND: Duration = Duration::from_secs(60);

/// How long the rest of an answer may take when it has begun, if it is no file.
const BODY_BOUND: Duration = Duration::from_secs(600);

/// How long a file may take to come when it has begun: an hour, which is as long as a manager takes to
/// send a backup.
pub const FILE_BOUND: Duration = Duration::from_secs(3600);

/// A manager at an address.
pub struct Client {
    server: String,
    actor: Option<String>,
    patience: Duration,
    /// [`MAX_ANSWER`].
    largest: u64,
    /// [`FILE_BOUND`].
    body_bound: Duration,
    file_bound: Duration,
    agent: ureq::Agent,
}

impl Client {
    /// For the manager at this URL, such as `http://127.0.0.1:7780`.
    pub fn new(server: &str) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(5)))
            .input_buffer_size(BUFFER)
            .output_buffer_size(BUFFER)
            // A manager is reached directly.
            .proxy(None)
            .build()
            .new_agent();
        let server = server.trim_end_matches('/');
        let server = match server.contains("://") {
            true => server.to_owned(),
            false => format!("http://{server}"),
        };
        let (actor, patience, largest) = (None, AWAY_BOUND, MAX_ANSWER);
        let (body_bound, file_bound) = (BODY_BOUND, FILE_BOUND);
        Self { server, actor, patience, largest, body_bound, file_bound, agent }
    }

    /// How long is asked again while the manager is away, instead of 30 s: by [`Client::wait`], by
    /// [`Client::get_patiently`], and by requests with an idempotency key. Each answer is waited for
    /// 60 s, and when it is asked for again as long as the rest of that, but at least 5 s.
    pub fn patient_for(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    fn patience(&self) -> Patience {
        Patience { bound: self.patience, away: None }
    }

    /// Says who asks, for the manager's audit log: 1 to 128 bytes without control characters
    /// and those that change the order of others. Nobody checks it.
    pub fn acting_as(self, actor: &str) -> Self {
        Self { actor: Some(actor.to_owned()), ..self }
    }

    /// A request that says who asks, and waits so long for its answer.
    fn bounded<B>(&self, request: RequestBuilder<B>, bound: Duration) -> RequestBuilder<B> {
        let config = request.config().timeout_recv_response(Some(bound));
        let request = config.timeout_recv_body(Some(self.body_bound)).build();
        match &self.actor {
            Some(actor) => request.header("x-dxpu-actor", actor),
            None => request,
        }
    }

    fn signed<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        self.bounded(request, ANSWER_BOUND)
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

    /// Gets what is at a path, and asks again for 30 s while the manager is away or cannot answer now
    /// ([`ClientError::is_away`]).
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn get_patiently<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.patiently(|bound| {
            self.read(self.bounded(self.agent.get(self.url(path)), bound).call())
        })
    }

    /// Asks for what may be done twice, again while the manager is away.
    fn patiently<T>(
        &self,
        ask: impl Fn(Duration) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let (mut patience, mut bound) = (self.patience(), ANSWER_BOUND);
        loop {
            match ask(bound) {
                Err(error) if error.is_away() => match patience.pause() {
                    Some(rest) => bound = rest,
                    None => return Err(error),
                },
                other => return other,
            }
        }
    }

    /// Sends a request with an idempotency key, again if there is no answer to it: it may have been
    /// done, and is not done twice. Without a key it is sent once.
    fn insist<T>(
        &self,
        key: Option<&str>,
        send: impl Fn(Duration) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let (mut patience, mut unanswered) = (self.patience(), None);
        let (mut bound, mut reached) = (ANSWER_BOUND, false);
        loop {
            let error = match send(bound) {
                Err(error) if key.is_some() => error,
                other => return other,
            };
            let goes_on = match &error {
                // What never came there has begun nothing, and nobody may be there.
                ClientError::Unreachable { asked, .. } => *asked || reached,
                other => other.is_away(),
            };
            if !goes_on {
                return Err(error);
            }
            let is_asked = matches!(error, ClientError::Unreachable { asked: true, .. });
            let error = if is_asked { error } else { unanswered.unwrap_or(error) };
            match patience.pause() {
                Some(rest) => bound = rest,
                None => return Err(error),
            }
            reached = true;
            unanswered =
                matches!(error, ClientError::Unreachable { asked: true, .. }).then_some(error);
        }
    }

    /// Posts a body. With an idempotency key it is sent again for 30 s while no answer comes: the
    /// manager may restart, or its connections may all be taken. One that cannot be reached in the
    /// first place is not waited for.
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
        self.insist(key, |bound| {
            let mut request = self.bounded(self.agent.post(self.url(path)), bound);
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            self.read(request.send_json(body))
        })
    }

    /// Posts a body for what is the same done once or twice, as patiently as
    /// [`Client::get_patiently`].
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn post_patiently<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.patiently(|bound| {
            self.read(self.bounded(self.agent.post(self.url(path)), bound).send_json(body))
        })
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

    /// Deletes what is at a path. With an idempotency key as [`Client::post`].
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        key: Option<&str>,
    ) -> Result<T, ClientError> {
        self.insist(key, |bound| {
            let mut request = self.bounded(self.agent.delete(self.url(path)), bound);
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            self.read(request.call())
        })
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
        self.read(self.signed(self.agent.put(self.url(path))).send_json(body))
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

    /// Gets a file of at most [`MAX_ANSWER`] bytes. It may take an hour when it has begun
    /// ([`FILE_BOUND`]).
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        self.bytes_within(path, ANSWER_BOUND)
    }

    /// As [`Client::bytes`], as patiently as [`Client::get_patiently`]. What is too large or comes too
    /// slowly is not asked for again.
    ///
    /// # Errors
    ///
    /// When there is no good answer.
    pub fn bytes_patiently(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        self.patiently(|bound| self.bytes_within(path, bound))
    }

    fn bytes_within(&self, path: &str, bound: Duration) -> Result<Vec<u8>, ClientError> {
        let request = self.bounded(self.agent.get(self.url(path)), bound);
        let request = request.config().timeout_recv_body(Some(self.file_bound)).build();
        let mut response = request.call().map_err(|e| self.unreachable(e))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(self.largest);
        let bytes = body.read_to_vec().map_err(|e| self.unread(e, self.file_bound))?;
        match (200..300).contains(&status) {
            true => Ok(bytes),
            false => Err(self.problem(status, &String::from_utf8_lossy(&bytes))),
        }
    }

    /// Why a body could not be read, which had so long.
    fn unread(&self, error: ureq::Error, bound: Duration) -> ClientError {
        let reason = match error {
            ureq::Error::BodyExceedsLimit(most) => format!("it has more than {most} bytes"),
            ureq::Error::Timeout(Timeout::RecvBody) => format!("it took longer than {bound:?}"),
            other => return self.unreachable(other),
        };
        ClientError::Unfinished { server: self.server.clone(), reason }
    }

    fn unreachable(&self, error: ureq::Error) -> ClientError {
        ClientError::Unreachable {
            server: self.server.clone(),
            asked: may_be_sent(&error),
            reason: match error {
                ureq::Error::Io(error) => error.to_string(),
                error @ ureq::Error::Protocol(_) => format!(
                    "{error}: it speaks no HTTP, as where proxies dial in (port 7781 if nothing else \
                     was said; the REST API's is 7780)"
                ),
                other => other.to_string(),
            },
        }
    }

    /// Waits until an operation has ended and tells of its state whenever a step is done, and
    /// every [`WAIT_TURN`] meanwhile; for the first time after [`FIRST_TURN`].
    ///
    /// # Errors
    ///
    /// When the manager cannot be asked, and could not for 30 s ([`ClientError::is_away`]). An
    /// operation that failed is no error here.
    pub fn wait(
        &self,
        id: OperationId,
        mut progress: impl FnMut(&OperationRecord),
    ) -> Result<OperationRecord, ClientError> {
        let (mut beyond, mut turn) = (0, FIRST_TURN);
        loop {
            let turn = std::mem::replace(&mut turn, WAIT_TURN).as_millis();
            let path = format!("/v1/operations/{id}?wait_ms={turn}&beyond_steps={beyond}");
            let operation: OperationRecord = self.get_patiently(&path)?;
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
        let body = response.body_mut().with_config().limit(self.largest);
        Ok((status, body.read_to_string().map_err(|e| self.unread(e, self.body_bound))?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_request_with_a_key_says_whether_it_may_have_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let asked = |key: Option<&str>| {
            let client = Client::new(&server).patient_for(Duration::ZERO);
            match client.post::<()>("/v1/allocations", &(), key) {
                Err(ClientError::Unreachable { asked, .. }) => asked,
                other => panic!("{other:?}"),
            }
        };
        let hangs_up = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                drop(stream);
            }
        });
        assert!(asked(Some("k")) && asked(None));
        hangs_up.join().unwrap();
        // Nobody listens any more.
        assert!(!asked(Some("k")) && !asked(None));
    }

    /// It says that it is full or stops, is away for a moment, and does what it is asked.
    #[test]
    fn a_manager_that_was_there_is_waited_for_while_it_restarts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let says = |listener: &TcpListener, status: u16, body: &str| {
            let mut stream = listener.accept().unwrap().0;
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}");
            write!(stream, "{head}\r\n\r\n{body}").unwrap();
        };
        let restarts = std::thread::spawn(move || {
            let stopping = serde_json::json!({
                "type": "/v1/problems/stopping", "title": "", "status": 503, "code": "stopping",
                "detail": "", "transient": true,
            });
            says(&listener, 503, &stopping.to_string());
            drop(listener);
            // It is asked again meanwhile.
            std::thread::sleep(3 * AWAY_TURN);
            says(&TcpListener::bind(address).unwrap(), 200, "7");
        });
        let client = Client::new(&address.to_string()).patient_for(AWAY_BOUND);
        assert_eq!(client.post::<u8>("/v1/allocations", &(), Some("k")).unwrap(), 7);
        restarts.join().unwrap();
    }

    /// A manager that hangs takes the connection and says nothing.
    #[test]
    fn a_manager_that_hangs_is_not_waited_for_longer_than_one_that_is_away() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let hangs = std::thread::spawn(move || {
            drop(listener.accept().unwrap());
            listener.accept().unwrap()
        });
        let client = Client::new(&server).patient_for(Duration::from_secs(1));
        let begun = Instant::now();
        let error = client.post::<()>("/v1/allocations", &(), Some("k")).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { asked: true, .. }), "{error}");
        assert!(begun.elapsed() < ANSWER_BOUND, "{:?}", begun.elapsed());
        hangs.join().unwrap();
    }

    /// Says this to each request and keeps the connection; how often it was asked.
    fn begins(answer: &'static str) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                kept.push(stream);
            }
        });
        (server, asked)
    }

    #[test]
    fn an_answer_that_is_too_large_or_does_not_end_is_not_asked_for_again() {
        let (server, asked) = begins("HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\n123");
        let client = Client { file_bound: Duration::from_millis(100), ..Client::new(&server) };
        let error = client.bytes_patiently("/v1/backup").unwrap_err();
        let says =
            format!("what {server} answers was not read to its end: it took longer than 100ms");
        assert_eq!((error.to_string(), error.is_away()), (says.clone(), false));
        let client = Client { body_bound: Duration::from_millis(100), ..client };
        let of_text = client.get_patiently::<String>("/").unwrap_err();
        let of_post = client.post::<String>("/", &(), Some("k")).unwrap_err();
        for error in [of_text, of_post] {
            assert_eq!((error.to_string(), error.is_away()), (says.clone(), false));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3);

        let (server, asked) = begins("HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\n\"34567890\"");
        assert_eq!(Client::new(&server).bytes("/").unwrap(), b"\"34567890\"");
        let client = Client { largest: 9, ..Client::new(&server) };
        let says =
            format!("what {server} answers was not read to its end: it has more than 9 bytes");
        let of_file = client.bytes_patiently("/").unwrap_err();
        let of_text = client.get_patiently::<String>("/").unwrap_err();
        let of_post = client.post::<String>("/", &(), Some("k")).unwrap_err();
        for error in [of_file, of_text, of_post] {
            assert_eq!((error.to_string(), error.is_away()), (says.clone(), false));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 4);
    }

    #[test]
    fn what_passes_by_itself_is_told_from_what_does_not() {
        let problem = |code, passes| ClientError::from(Problem::new(code, "").passing(passes));
        assert!(problem(ProblemCode::LimitReached, true).is_away());
        assert!(problem(ProblemCode::Stopping, false).is_away());
        // Of what is asked for, not of the manager.
        assert!(!problem(ProblemCode::LimitReached, false).is_away());
        assert!(!problem(ProblemCode::NotConnected, true).is_away());
        let (server, reason) = (String::new(), String::new());
        assert!(!ClientError::Strange { server, reason }.is_away());
    }
}

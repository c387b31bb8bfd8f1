//! A client of the REST API with one connection, for thousands of requests.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How long an answer waits for the operation to end, seconds.
const WAIT: u32 = 60;

/// Bytes a second that each device is limited to: all slots of a box together stay below what its
/// proxy carries, so that every slot can be lent.
const LIMIT: u64 = 100_000_000;

/// What is looked at of an operation that has ended.
#[derive(Deserialize)]
struct Ended {
    state: String,
    allocation: Option<String>,
    what: What,
    #[serde(default)]
    warnings: Vec<String>,
}

/// What it was for.
#[derive(Deserialize)]
struct What {
    #[serde(default)]
    slots: Vec<String>,
}

/// One connection.
pub(crate) struct Client {
    api: SocketAddr,
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub(crate) async fn connect(api: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(api).await.context("the REST API")?;
        stream.set_nodelay(true)?;
        Ok(Self { api, stream: BufReader::new(stream) })
    }

    /// Asks for a change and waits until it is done: the operation, which has ended well.
    async fn change(&mut self, method: &str, path: &str, body: &str) -> Result<Ended> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nprefer: wait={WAIT}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.api,
            body.len()
        );
        self.stream.get_mut().write_all(head.as_bytes()).await?;
        let (status, length) = self.head().await?;
        let mut bytes = vec![0; length.context("an answer without a length")?];
        self.stream.read_exact(&mut bytes).await?;
        let ended = (status == 200).then(|| serde_json::from_slice::<Ended>(&bytes)).transpose()?;
        match ended {
            Some(ended) if ended.state == "succeeded" && ended.warnings.is_empty() => Ok(ended),
            _ => bail!("{method} {path} {body}: {status} {}", String::from_utf8_lossy(&bytes)),
        }
    }

    async fn head(&mut self) -> Result<(u16, Option<usize>)> {
        let first = self.line().await?;
        let status = first.split(' ').nth(1).context("no status")?.parse()?;
        let mut length = None;
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok((status, length));
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = Some(value.trim().parse()?);
            }
        }
    }

    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).await? == 0 {
            bail!("the manager closed the connection");
        }
        Ok(line.trim_end().to_owned())
    }

    /// Lends to a host and waits for it. The allocation and the slots.
    pub(crate) async fn allocate(
        &mut self,
        host: &str,
        count: u32,
    ) -> Result<(String, Vec<String>)> {
        let link = format!("{{\"limit\":{LIMIT}}}");
        let body = format!("{{\"host\":\"{host}\",\"count\":{count},\"link\":{link}}}");
        let ended = self.change("POST", "/v1/allocations", &body).await?;
        Ok((ended.allocation.context("an operation that lends has one")?, ended.what.slots))
    }

    /// Takes an allocation back and waits for it.
    pub(crate) async fn release(&mut self, allocation: &str) -> Result<()> {
        self.change("DELETE", &format!("/v1/allocations/{allocation}"), "").await.map(drop)
    }

    /// Turns the connection into a stream of events: each is given to `see` with its data.
    pub(crate) async fn watch(mut self, mut see: impl FnMut(&str)) -> Result<()> {
        let head = format!("GET /v1/events/stream HTTP/1.1\r\nhost: {}\r\n\r\n", self.api);
        self.stream.get_mut().write_all(head.as_bytes()).await?;
        self.head().await?;
        loop {
            // Chunk lengths and blank lines are between the lines that count.
            let line = self.line().await?;
            if let Some(data) = line.strip_prefix("data:") {
                see(data);
            }
        }
    }
}

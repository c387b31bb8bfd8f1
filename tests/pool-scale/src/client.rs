//! A client of the REST API with one connection, for thousands of requests.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How long one question about an operation waits, milliseconds.
const WAIT_MS: u32 = 60_000;

/// Bytes a second that each device is limited to: all slots of a box together stay below what its
/// proxy carries, so that every slot can be lent.
const LIMIT: u64 = 100_000_000;

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

    /// A request and the body of its answer; the error is the problem.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Value> {
        let (status, value) = self.exchange(method, path, body).await?;
        if status >= 400 {
            bail!("{method} {path} {body}: {status} {value}");
        }
        Ok(value)
    }

    /// A request; status and body.
    pub(crate) async fn exchange(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, Value)> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.api,
            body.len()
        );
        self.stream.get_mut().write_all(head.as_bytes()).await?;
        let (status, length) = self.head().await?;
        let mut bytes = vec![0; length.context("an answer without a length")?];
        self.stream.read_exact(&mut bytes).await?;
        let value = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? };
        Ok((status, value))
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

    /// Waits until an operation has ended well.
    pub(crate) async fn finish(&mut self, operation: &Value) -> Result<()> {
        let id = operation["id"].as_str().context("an operation has a number")?;
        let path = format!("/v1/operations/{id}?wait_ms={WAIT_MS}");
        let ended = self.ask("GET", &path, "").await?;
        if ended["state"] != "succeeded"
            || ended["warnings"].as_array().is_some_and(|w| !w.is_empty())
        {
            bail!("{ended}");
        }
        Ok(())
    }

    /// Lends to a host and waits for it. The allocation and the slots.
    pub(crate) async fn allocate(
        &mut self,
        host: &str,
        count: u32,
    ) -> Result<(String, Vec<String>)> {
        let link = format!("{{\"limit\":{LIMIT}}}");
        let body = format!("{{\"host\":\"{host}\",\"count\":{count},\"link\":{link}}}");
        let operation = self.ask("POST", "/v1/allocations", &body).await?;
        self.finish(&operation).await?;
        let slots = operation["what"]["slots"].as_array().context("it has slots")?;
        let slots = slots.iter().map(|slot| slot.as_str().unwrap_or_default().to_owned()).collect();
        Ok((operation["allocation"].as_str().context("it has one")?.to_owned(), slots))
    }

    /// Takes an allocation back and waits for it.
    pub(crate) async fn release(&mut self, allocation: &str) -> Result<()> {
        let operation = self.ask("DELETE", &format!("/v1/allocations/{allocation}"), "").await?;
        self.finish(&operation).await
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

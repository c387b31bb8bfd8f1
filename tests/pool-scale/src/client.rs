//! A client of the REST API with one connection, for thousands of requests.

use anyhow::{Context, Error, Result, bail};
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

/// An allocation and its slots.
pub(crate) type Lent = (String, Vec<String>);

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

    /// Asks for a change and waits until it is done: the operation, which has ended well, or what was
    /// answered instead.
    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<std::result::Result<Ended, String>> {
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
        Ok(match ended {
            Some(ended) if ended.state == "succeeded" && ended.warnings.is_empty() => Ok(ended),
            _ => {
                Err(format!("{method} {path} {body}: {status} {}", String::from_utf8_lossy(&bytes)))
            }
        })
    }

    /// As [`Client::ask`]; anything but the operation is an error.
    async fn change(&mut self, method: &str, path: &str, body: &str) -> Result<Ended> {
        self.ask(method, path, body).await?.map_err(Error::msg)
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

    /// Lends to a host and waits for it; why not, if that is refused or fails.
    pub(crate) async fn lend(
        &mut self,
        host: &str,
        count: u32,
    ) -> Result<std::result::Result<Lent, String>> {
        let link = format!("{{\"limit\":{LIMIT}}}");
        let body = format!("{{\"host\":\"{host}\",\"count\":{count},\"link\":{link}}}");
        Ok(match self.ask("POST", "/v1/allocations", &body).await? {
            Ok(ended) => {
                let allocation = ended.allocation.context("an operation that lends has one")?;
                Ok((allocation, ended.what.slots))
            }
            Err(why) => Err(why),
        })
    }

    /// As [`Client::lend`]; it has to be lent.
    pub(crate) async fn allocate(&mut self, host: &str, count: u32) -> Result<Lent> {
        self.lend(host, count).await?.map_err(Error::msg)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{Shutdown, TcpListener};

    /// What is answered to a wish to lend.
    fn lend(answer: &'static str) -> Result<std::result::Result<Lent, String>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let api = listener.local_addr()?;
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            // Nothing more comes, and what the client sent meanwhile does not reset the connection.
            stream.shutdown(Shutdown::Write).unwrap();
            stream
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let lent = runtime.block_on(async { Client::connect(api).await?.lend("host1", 1).await });
        drop(answers.join().unwrap());
        lent
    }

    #[test]
    fn what_is_refused_is_told_from_what_breaks() {
        let refused = lend("HTTP/1.1 409 x\r\ncontent-length: 2\r\n\r\nno").unwrap();
        assert!(refused.unwrap_err().ends_with(": 409 no"));
        let failed =
            lend("HTTP/1.1 200 x\r\ncontent-length: 29\r\n\r\n{\"state\":\"failed\", \"what\":{}}");
        assert!(failed.unwrap().unwrap_err().contains("failed"));
        assert!(lend("").is_err(), "the connection is gone");
    }
}

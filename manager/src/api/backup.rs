//! A backup of the store, made while everything goes on.

use super::App;
use crate::types::{Problem, ProblemCode};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use hyper::body::{Frame, SizeHint};
use manager_client::bodies::ProblemBody;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Backups are made one at a time: each is in memory while it is sent.
static ONE: Semaphore = Semaphore::const_new(1);

/// How long a backup may take to be sent: who takes it slower ends without one, and others have their
/// turn. Our own client gives it as long.
const SEND_BOUND: Duration = manager_client::FILE_BOUND;

/// Bytes that are given to the connection at a time.
const PIECE: usize = 64 * 1024;

/// A file in pieces, which keeps something until the last piece was taken: of one in one piece the
/// connection would take all at once, however slowly it is read.
struct Pieces<K> {
    rest: Bytes,
    /// When it has to be sent.
    until: Instant,
    _kept: K,
}

impl<K: Unpin> HttpBody for Pieces<K> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let size = self.rest.len().min(PIECE);
        if size > 0 && Instant::now() >= self.until {
            self.rest.clear();
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        Poll::Ready((size > 0).then(|| Ok(Frame::data(self.rest.split_to(size)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// All records as they are at one moment, as a file that `dxpu-manager restore` takes.
#[utoipa::path(get, path = "/v1/backup", tag = "manager",
    responses((status = 200, description = "A store's file", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "default", description = "A problem", body = ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn backup(State(manager): State<App>) -> Result<impl IntoResponse, Problem> {
    let Ok(one) = ONE.try_acquire() else {
        let detail = "another backup is being made; try again when it is there";
        return Err(Problem::new(ProblemCode::LimitReached, detail).passing(true));
    };
    let records = manager.records.clone();
    // With it, as it goes on when nobody waits for it any more.
    let made = tokio::task::spawn_blocking(move || (one, records.backup())).await;
    let (one, made) =
        made.map_err(|error| Problem::new(ProblemCode::Internal, error.to_string()))?;
    let file = made.map_err(|error| Problem::new(ProblemCode::StoreFailed, error.to_string()))?;
    // The next one is made when this one is sent, or nobody takes it any more.
    let file =
        Body::new(Pieces { rest: file.into(), until: Instant::now() + SEND_BOUND, _kept: one });
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_backup_waits_until_this_one_is_sent() {
        let one = Semaphore::new(1);
        let bytes: Vec<u8> = (0..PIECE * 2 + 1).map(|n| n as u8).collect();
        let rest = Bytes::from(bytes.clone());
        let until = Instant::now() + SEND_BOUND;
        let mut file = Pieces { rest, until, _kept: one.try_acquire().unwrap() };
        assert_eq!(file.size_hint().exact(), Some(bytes.len() as u64));
        let mut sent = Vec::new();
        for _ in 0..3 {
            assert!(!file.is_end_stream() && one.try_acquire().is_err());
            let piece = std::future::poll_fn(|cx| Pin::new(&mut file).poll_frame(cx)).await;
            sent.extend_from_slice(&piece.unwrap().unwrap().into_data().unwrap());
        }
        assert_eq!((sent, file.is_end_stream()), (bytes, true));
        drop(file);
        assert!(one.try_acquire().is_ok());
    }

    #[tokio::test]
    async fn who_takes_too_long_ends_without_one() {
        let (rest, until) = (Bytes::from_static(b"1234"), Instant::now());
        let mut file = Pieces { rest, until, _kept: () };
        let piece = std::future::poll_fn(|cx| Pin::new(&mut file).poll_frame(cx)).await;
        assert_eq!(piece.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(file.is_end_stream());
    }
}

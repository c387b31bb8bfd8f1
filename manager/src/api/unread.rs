//! What of a request's body nobody read. A connection that is closed with bytes unread is reset, and the
//! answer lost with it: who is told that the body is too large, or that something before it is wrong,
//! would hear that the manager cannot be reached.

use super::App;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as _, Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

/// Bytes that are read of what nobody wants; who sends more loses the answer.
const MOST: usize = 64 << 20;

/// A body, and how far it has been read.
struct Rest {
    body: Body,
    begun: bool,
    over: bool,
}

/// A body that is read by who serves the request, and by who reads the rest.
#[derive(Clone)]
struct Shared(Arc<Mutex<Rest>>);

impl Shared {
    fn new(body: Body) -> Self {
        Self(Arc::new(Mutex::new(Rest { body, begun: false, over: false })))
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.0.lock().expect("no one panics while holding it")
    }

    /// Reads what is left, and forgets it.
    async fn drain(mut self) {
        let mut left = MOST;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut self).poll_frame(cx)).await {
            let count = frame.data_ref().map_or(0, Bytes::len);
            let Some(fewer) = left.checked_sub(count) else { return };
            left = fewer;
        }
    }
}

impl hyper::body::Body for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut rest = self.rest();
        if rest.over {
            return Poll::Ready(None);
        }
        rest.begun = true;
        let polled = Pin::new(&mut rest.body).poll_frame(cx);
        rest.over = matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.rest();
        rest.over || rest.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.rest().body.size_hint()
    }
}

/// Around every request: reads what is left of its body before it is answered.
pub(super) async fn read(State(manager): State<App>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let (asks_first, body) = (parts.headers.contains_key(header::EXPECT), Shared::new(body));
    let answer = next.run(Request::from_parts(parts, Body::new(body.clone()))).await;
    // Who asks whether to send it sends nothing when told no; who was too slow is not waited for again.
    let comes = body.rest().begun || !asks_first;
    if comes && answer.status() != StatusCode::REQUEST_TIMEOUT {
        let _ = tokio::time::timeout(manager.settings.http_bound, body.drain()).await;
    }
    answer
}

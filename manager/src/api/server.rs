//! Serves the API's connections, with bounds on what a slow or endless client can hold.

use super::MAX_BODY;
use super::observe::{Peer, Seat};
use super::unstuck::Unstuck;
use crate::manager::Manager;
use crate::types::{Problem, ProblemCode};
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use manager_client::bodies::{ProblemBody, RETRY_AFTER_S};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections beyond the seats that are told so at a time; a further one is closed without a word.
const MAX_REFUSALS: usize = 64;

/// How long one of them has to read that.
const REFUSAL_BOUND: Duration = Duration::from_secs(2);

/// Bytes that are held of a request whose head is not whole. When there are so many or, by one
/// read, more, the answer is status 431.
pub const MAX_HEAD: usize = 32 * 1024;

const _: () = assert!(MAX_HEAD <= MAX_BODY, "one buffer of this size is enough for either");

/// What a connection hears for which there is no seat.
fn refusal(seats: usize) -> Arc<[u8]> {
    let detail = format!("{seats} connections are open, which is `connections`; ask again later");
    let problem = Problem::new(ProblemCode::LimitReached, detail).passing(true);
    let body = serde_json::to_string(&ProblemBody::from(problem)).expect("problems are JSON");
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\nretry-after: {RETRY_AFTER_S}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes().into()
}

async fn refuse(mut stream: TcpStream, answer: Arc<[u8]>) {
    let told = async {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        // A connection that is closed with bytes unread is reset, and the answer lost with it.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // Who is gone, or too slow, has had a chance.
    let _ = tokio::time::timeout(REFUSAL_BOUND, told).await;
}

/// Accepts connections until the manager stops, then lets those that are busy end.
pub async fn serve(manager: Arc<Manager>, listener: TcpListener, router: Router) {
    let count = usize::from(manager.settings.connections.get());
    let seats = Arc::new(Semaphore::new(count));
    let (refusals, answer) = (Arc::new(Semaphore::new(MAX_REFUSALS)), refusal(count));
    let ending = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = manager.stopping() => break,
        };
        let (stream, peer): (TcpStream, SocketAddr) = match accepted {
            Ok(accepted) => accepted,
            // Out of file descriptors, or the peer is gone already: others may still come.
            Err(error) => {
                tracing::warn!("cannot accept a connection to the REST API: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(seat) = seats.clone().try_acquire_owned() else {
            if let Ok(refusal) = refusals.clone().try_acquire_owned() {
                let answer = answer.clone();
                tokio::spawn(async move {
                    refuse(stream, answer).await;
                    drop(refusal);
                });
            }
            continue;
        };
        // Answers are small, and somebody waits for them.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let seat = Seat(Arc::new(seat));
        let sits = seat.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            request.extensions_mut().insert(sits.clone());
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(manager.settings.http_bound)
            .max_buf_size(MAX_HEAD)
            .serve_connection(
                TokioIo::new(Unstuck::new(stream, manager.settings.http_bound)),
                service,
            );
        let connection = ending.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                // The library's own text leaves out what the operating system, or we, said.
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                tracing::debug!("a connection to the REST API ended: {error}{cause}");
            }
            drop(seat);
        });
    }
    ending.shutdown().await;
}

//! Serves the API's connections, with bounds on what a slow or endless client can hold.

use super::MAX_BODY;
use super::observe::Peer;
use crate::manager::Manager;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at a time. A further one waits to be accepted until another ends.
pub const MAX_CONNECTIONS: usize = 1024;

/// Bytes that are held of a request whose head is not whole. When there are so many or, by one
/// read, more, the answer is status 431.
pub const MAX_HEAD: usize = 32 * 1024;

const _: () = assert!(MAX_HEAD <= MAX_BODY, "one buffer of this size is enough for either");

/// Accepts connections until the manager stops, then lets those that are busy end.
pub async fn serve(manager: Arc<Manager>, listener: TcpListener, router: Router) {
    let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let ending = GracefulShutdown::new();
    loop {
        let accepted = async {
            let seat = seats.clone().acquire_owned().await.expect("never closed");
            (listener.accept().await, seat)
        };
        let (accepted, seat) = tokio::select! {
            accepted = accepted => accepted,
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
        // Answers are small, and somebody waits for them.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(manager.settings.http_bound)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        let connection = ending.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection to the REST API ended: {error}");
            }
            drop(seat);
        });
    }
    ending.shutdown().await;
}

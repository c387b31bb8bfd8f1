//! The server: everything put together, from a configuration until it is told to stop.

use crate::config::Config;
use crate::manager::{Manager, Queues};
use crate::metrics::{self, Metered, Metrics};
use crate::records::Records;
use crate::store::{EmbeddedStore, StoreError};
use crate::types::{EventKind, EventRecord};
use crate::{api, control, erasure, firmware, health, notify, operations, reconcile};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

/// How long connections have to end when the manager stops.
const STOP_BOUND: Duration = Duration::from_secs(5);

/// The signal to who writes beyond its limit of a file's size (`signal(7)`, Linux).
const SIGXFSZ: i32 = 25;

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address is in use.
    #[error(
        "{address} is in use by another program, so the {what} cannot listen there; stop that \
         program or choose another address with {flag}"
    )]
    AddressInUse {
        /// The address.
        address: SocketAddr,
        /// What would listen there.
        what: &'static str,
        /// How to choose another.
        flag: &'static str,
    },
    /// An address cannot be listened on.
    #[error("the {what} cannot listen on {address}: {source}; choose another address with {flag}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What would listen there.
        what: &'static str,
        /// How to choose another.
        flag: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The store cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The file for scripts cannot be written.
    #[error("the ready file {} cannot be written: {source}", path.display())]
    ReadyFile {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The operating system does not let us.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// What the ready file holds, as one JSON object.
#[derive(Debug, Serialize)]
struct Ready {
    /// Process ID.
    pid: u32,
    /// Where the REST API listens.
    listen: SocketAddr,
    /// Where proxies dial in.
    control: SocketAddr,
    /// The leader's term.
    term: u64,
}

/// A server that listens and has its records, and does not serve yet.
pub struct Server {
    manager: Arc<Manager>,
    listener: TcpListener,
    control: TcpListener,
    queues: Queues,
    ready_file: Option<PathBuf>,
    /// What became of the store's last write, if that is not there.
    went_back: Option<String>,
}

impl Server {
    /// Listens, opens the store and begins a term.
    ///
    /// # Errors
    ///
    /// When an address or the store cannot be used, for two seconds if somebody has it. The store is
    /// not touched if an address cannot.
    pub async fn new(config: Config) -> Result<Self, ServeError> {
        let by = tokio::time::Instant::now() + FREED;
        let listener = freed(by, || Place::take(config.listen, "REST API", "--listen")).await?;
        let control =
            freed(by, || Place::take(config.control, "control server", "--control")).await?;
        let store = freed(by, || Ok(EmbeddedStore::open(&config.store)?)).await?;
        let went_back = store.went_back().map(|kept| {
            format!(
                "the last write before the manager was killed is not in the store {} as it was \
                 written (the write was cut off, or the disk changed it); the store is as it was \
                 before that write, and begins a new generation; the file as it was is {}",
                config.store.display(),
                kept.display()
            )
        });
        if let Some(detail) = &went_back {
            tracing::warn!("{detail}");
        }
        let metrics = Arc::new(Metrics::default());
        // Copies are beside the file, and not beside a link to it.
        let path = store.path().to_owned();
        let store = Metered::new(store, metrics.clone());
        let records = Records::open_with(Arc::new(store), &path, config.settings.keep)?;
        let (manager, queues) = Manager::new(records, config.settings, metrics);
        // Whoever dials before this is refused and dials again; later, nobody is kept waiting who
        // could not be heard.
        let (listener, control) = (listener.listen()?, control.listen()?);
        Ok(Self { manager, listener, control, queues, ready_file: config.ready_file, went_back })
    }

    /// The manager, for whoever runs it in their own process.
    pub fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// Where the REST API listens and where proxies dial in.
    ///
    /// # Errors
    ///
    /// When the operating system does not say.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.listener.local_addr()?, self.control.local_addr()?))
    }

    /// Serves until [`Manager::stop`], then ends every connection.
    ///
    /// # Errors
    ///
    /// When the ready file cannot be written.
    ///
    /// # Panics
    ///
    /// When a part of the manager panicked: a manager that is not whole does not go on.
    pub async fn run(self) -> Result<(), ServeError> {
        let Self { manager, listener, control, queues, ready_file, went_back } = self;
        let system = |what| move |source| ServeError::System { what, source };
        let ready = Ready {
            pid: std::process::id(),
            listen: listener.local_addr().map_err(system("the REST API's address"))?,
            control: control.local_addr().map_err(system("the control server's address"))?,
            term: manager.term().0,
        };
        let detail = format!(
            "the manager serves on http://{} and proxies dial in on {} (term {})",
            ready.listen, ready.control, ready.term
        );
        manager.event_now(EventRecord::new(EventKind::ManagerStarted, detail)).await;
        if let Some(detail) = went_back {
            manager.event_now(EventRecord::new(EventKind::StoreWentBack, detail)).await;
        }
        let mut parts: JoinSet<()> = JoinSet::new();
        let mended = manager.clone();
        parts.spawn(async move { mended.mend_store().await });
        parts.spawn(control::server::serve(manager.clone(), control));
        parts.spawn(control::flapping::run(manager.clone()));
        parts.spawn(reconcile::driver::run(manager.clone()));
        parts.spawn(reconcile::unsettled::run(manager.clone()));
        parts.spawn(operations::watchdog::run(manager.clone()));
        parts.spawn(operations::grace::run(manager.clone()));
        parts.spawn(operations::lease::run(manager.clone()));
        parts.spawn(operations::drain::run(manager.clone()));
        parts.spawn(health::run(manager.clone()));
        parts.spawn(health::counters::run(manager.clone()));
        parts.spawn(firmware::run(manager.clone()));
        parts.spawn(metrics::follow(manager.clone()));
        parts.spawn(erasure::driver::run(manager.clone()));
        let Queues { events, audit } = queues;
        let mut writers: JoinSet<()> = JoinSet::new();
        let last = [(); 2].map(|()| Arc::new(Notify::new()));
        let (recorder, ends) = (manager.clone(), last[0].clone());
        writers.spawn(async move { recorder.record_events(events, &ends).await });
        let (auditor, ends) = (manager.clone(), last[1].clone());
        writers.spawn(async move { crate::audit::write(&auditor, audit, &ends).await });
        let router = api::router(manager.clone());
        parts.spawn(api::server::serve(manager.clone(), listener, router));
        let _ready = ready_file.map(|path| ReadyFile::write(path, &ready)).transpose()?;
        notify::tell("READY=1");
        tokio::select! {
            () = manager.stopping() => {}
            error = panicked(&mut parts) => std::panic::resume_unwind(error.into_panic()),
            error = panicked(&mut writers) => std::panic::resume_unwind(error.into_panic()),
        }
        notify::tell("STOPPING=1");
        let ended = async { while parts.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_BOUND, ended).await.is_err() {
            tracing::warn!("some connections did not end within {STOP_BOUND:?}");
        }
        parts.shutdown().await;
        // What was answered is written, if the disk takes it.
        last.iter().for_each(|writer| writer.notify_one());
        let written = async { while writers.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_BOUND, written).await.is_err() {
            tracing::error!("events and entries of the audit log are lost: the store is too slow");
        }
        Ok(())
    }
}

/// Waits until one of these panics. Those that come to their ends are nothing to wait for.
async fn panicked(parts: &mut JoinSet<()>) -> JoinError {
    while let Some(ended) = parts.join_next().await {
        if let Err(error) = ended {
            return error;
        }
    }
    std::future::pending().await
}

/// How long an address or a store that is in use is waited for. A manager that was killed while it
/// began a program leaves both to that program's process until it is that program: a moment, which
/// a supervisor that starts the next manager at once meets.
const FREED: Duration = Duration::from_secs(2);

/// What is to be had, once nobody else has it, which is waited for until `by`.
async fn freed<T>(
    by: tokio::time::Instant,
    mut take: impl FnMut() -> Result<T, ServeError>,
) -> Result<T, ServeError> {
    const EVERY: Duration = Duration::from_millis(20);
    loop {
        match take() {
            Err(ServeError::AddressInUse { .. } | ServeError::Store(StoreError::Locked(_)))
                if tokio::time::Instant::now() < by =>
            {
                tokio::time::sleep(EVERY).await;
            }
            taken => return taken,
        }
    }
}

/// Connections that have come and wait to be accepted: as many as all proxies are that come back
/// together after a restart. The system may have a lower bound (`net.core.somaxconn`); who is above
/// it waits for seconds before it tries again.
const BACKLOG: u32 = 8192;

/// An address that is taken and not listened on yet.
struct Place {
    socket: TcpSocket,
    address: SocketAddr,
    what: &'static str,
    flag: &'static str,
}

impl Place {
    fn take(
        address: SocketAddr,
        what: &'static str,
        flag: &'static str,
    ) -> Result<Self, ServeError> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let bound = socket.and_then(|socket| {
            // A manager that starts again does not wait for connections of the one before.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(socket)
        });
        match bound {
            Ok(socket) => Ok(Self { socket, address, what, flag }),
            Err(source) => Err(failure(address, what, flag, source)),
        }
    }

    fn listen(self) -> Result<TcpListener, ServeError> {
        let Self { socket, address, what, flag } = self;
        socket.listen(BACKLOG).map_err(|source| failure(address, what, flag, source))
    }
}

fn failure(
    address: SocketAddr,
    what: &'static str,
    flag: &'static str,
    source: io::Error,
) -> ServeError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::AddressInUse { address, what, flag },
        _ => ServeError::Listen { address, what, flag, source },
    }
}

/// The ready file; it goes when the server does.
struct ReadyFile(PathBuf);

impl ReadyFile {
    /// Writes it in one move, so that nobody reads half of it.
    fn write(path: PathBuf, ready: &Ready) -> Result<Self, ServeError> {
        let write = |path: &Path| {
            let mut new = path.as_os_str().to_owned();
            new.push(".new");
            let mut text = serde_json::to_string(ready).expect("it is JSON");
            text.push('\n');
            std::fs::write(&new, text)?;
            std::fs::rename(&new, path)
        };
        match write(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(ServeError::ReadyFile { path, source }),
        }
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // Whoever waits for it does not mind if it is gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a server until SIGTERM or SIGINT.
///
/// # Errors
///
/// When it cannot start.
pub fn run_until_signal(config: Config) -> Result<(), ServeError> {
    let system = |what| move |source| ServeError::System { what, source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(system("threads cannot be started"))?;
    let result = runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate =
            signal(SignalKind::terminate()).map_err(system("SIGTERM cannot be caught"))?;
        let mut interrupt =
            signal(SignalKind::interrupt()).map_err(system("SIGINT cannot be caught"))?;
        // A file that may not grow is a full disk, and no reason to be killed.
        let _file_size =
            signal(SignalKind::from_raw(SIGXFSZ)).map_err(system("SIGXFSZ cannot be caught"))?;
        let server = Server::new(config).await?;
        let manager = server.manager().clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
                _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            }
            manager.stop();
        });
        server.run().await
    });
    // What still waits for the disk gets its time.
    runtime.shutdown_timeout(STOP_BOUND);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_panics_is_noticed_behind_one_that_ended() {
        let mut parts = JoinSet::new();
        parts.spawn(async {});
        tokio::task::yield_now().await;
        parts.spawn(async { panic!("a mistake") });
        let error = tokio::time::timeout(STOP_BOUND, panicked(&mut parts)).await.unwrap();
        assert!(error.is_panic());
        let ended = panicked(&mut parts);
        assert!(tokio::time::timeout(Duration::from_millis(1), ended).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_has_for_a_moment_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.redb");
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let take = || Place::take(address, "REST API", "--listen").map(drop);
        let open = || Ok(EmbeddedStore::open(&path).map(drop)?);
        let store = EmbeddedStore::open(&path).unwrap();
        // It is not waited for for ever.
        let by = || tokio::time::Instant::now() + FREED;
        assert!(matches!(freed(by(), take).await, Err(ServeError::AddressInUse { .. })));
        assert!(matches!(freed(by(), open).await, Err(ServeError::Store(StoreError::Locked(_)))));
        tokio::spawn(async move {
            tokio::time::sleep(FREED / 2).await;
            drop((held, store));
        });
        tokio::try_join!(freed(by(), take), freed(by(), open)).unwrap();
    }
}

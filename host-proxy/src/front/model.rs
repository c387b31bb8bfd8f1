//! The model host as the root complex, on the data plane's own thread.

use crate::config::Model;
use crate::shell::server::{Job, Server};
use crate::shell::{self, CountingPort, exec};
use host_model::{AccessError, HostConfig, ModelHost, PortError, TlpPort};
use proxy_core::host::HostRole;
use proxy_core::limits::TLP_BUFFER;
use proxy_core::role::Role;
use proxy_daemon::plane::Plane;
use proxy_daemon::stop::Stop;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use tlp_codec::tlp::{Class, Packet};
use tracing::{debug, info};

/// How often the loop looks for commands and for the end.
const LOOK: Duration = Duration::from_millis(1);

/// Completions of the host that share frames at most: as long as devices ask for more than was
/// answered, answers wait for each other.
const TOGETHER: usize = 32;

/// TLPs that the host takes or answers between two looks at the clock, as long as it does nothing
/// else.
const TAKEN_AT_ONCE: usize = 16;

/// TLPs taken in while one of the host waits for room. When so many wait the rest of the devices' stays
/// in the switch, and what the host sends waits for it.
const MEANWHILE: usize = 1024;

/// The model host, ready to run.
pub struct ModelFront {
    server: Server,
    config: HostConfig,
}

/// The root port: TLPs go into the role and come out of it, and each wait turns the data plane.
pub struct PlanePort {
    plane: Plane<HostRole>,
    meanwhile: VecDeque<Vec<u8>>,
    /// Completions that the role has and that were not sent yet.
    held: usize,
    /// TLPs taken and answers given since the clock was read.
    taken: usize,
    /// A TLP that is taken. It is not made for each look: that would clear it each time.
    tlp: Vec<u8>,
    stop: Stop,
}

impl ModelFront {
    /// Opens the command socket.
    ///
    /// # Errors
    ///
    /// A text that names the socket or the setting.
    pub fn open(socket: &Path, model: &Model) -> Result<Self, String> {
        let memory_size = usize::try_from(model.memory)
            .map_err(|_| "model-memory-mib is too much".to_string())?;
        let mut config = HostConfig { memory_size, ..HostConfig::default() };
        config.hot_plug.button_delay = model.button_delay;
        (config.max_payload, config.root.max_payload) = (model.payload, model.payload);
        config.max_read_request = model.read_request;
        config.check().map_err(|e| e.to_string())?;
        Ok(Self { server: Server::open(socket)?, config })
    }

    /// Starts the host, then serves interrupts and commands until told to stop.
    ///
    /// # Errors
    ///
    /// When the fabric is broken for good.
    pub fn run(self, mut plane: Plane<HostRole>, stop: &Stop) -> Result<(), String> {
        plane.role.set_root_complex(true);
        let port = PlanePort {
            plane,
            meanwhile: VecDeque::new(),
            held: 0,
            taken: 0,
            tlp: vec![0; TLP_BUFFER],
            stop: stop.clone(),
        };
        self.serve(port, stop)
    }

    /// As [`run`](Self::run), at a root port that is somewhere else.
    ///
    /// # Errors
    ///
    /// When the root port is broken for good.
    pub fn serve(self, port: impl CountingPort, stop: &Stop) -> Result<(), String> {
        let mut host = ModelHost::new(port, self.config).map_err(|e| e.to_string())?;
        match shell::enumerate(&mut host) {
            Ok(()) => {}
            Err(AccessError::Port(PortError::Closed)) => return Ok(()),
            Err(_) if stop.requested() => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        info!("the model host is up:\n{}", host.tree());
        while !stop.requested() {
            if let Some(Job { command, reply }) = self.server.try_next() {
                debug!(?command, "command");
                let line = exec::run(&mut host, &command, &reply);
                reply.end(line);
            }
            match shell::serve(&mut host, Instant::now() + LOOK) {
                Ok(()) => {}
                Err(AccessError::Port(PortError::Closed)) => break,
                Err(_) if stop.requested() => break,
                Err(error) => return Err(error.to_string()),
            }
            // The host has logged them itself.
            while host.poll_event().is_some() {}
        }
        Ok(())
    }
}

impl CountingPort for PlanePort {
    /// Counters of the role and of the plane.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.plane.role.counters().chain(self.plane.counters()).collect()
    }
}

impl PlanePort {
    fn mark(&mut self) {
        if self.plane.role.wants_mark() {
            let now = self.plane.now();
            self.plane.role.mark(now);
        }
    }

    /// The time, as last read or anew: the host does one thing after the other with what it takes.
    fn time(&mut self) -> proxy_core::time::Instant {
        self.taken += 1;
        if self.taken <= TAKEN_AT_ONCE {
            return self.plane.latest();
        }
        self.taken = 0;
        self.plane.now()
    }

    fn take(&mut self, buf: &mut [u8]) -> Option<usize> {
        let length = self.plane.role.poll_tlp(self.plane.latest(), buf)?;
        self.mark();
        Some(length)
    }

    /// Takes in what came up until nothing more is there or enough of devices' waits. Whether there
    /// was any.
    fn take_meanwhile(&mut self) -> bool {
        let before = self.meanwhile.len();
        let mut tlp = std::mem::take(&mut self.tlp);
        loop {
            let length = match self.meanwhile.len() < MEANWHILE {
                true => self.take(&mut tlp),
                false => self.plane.role.poll_own(&mut tlp),
            };
            let Some(length) = length else { break };
            self.meanwhile.push_back(tlp[..length].to_vec());
        }
        self.tlp = tlp;
        self.meanwhile.len() > before
    }

    fn transmit(&mut self) -> Result<bool, PortError> {
        self.held = 0;
        self.plane.transmit().map_err(broken)
    }

    /// Sends what the role has. A completion waits for the next one when that is sure to come:
    /// when a further TLP is there for the host to take.
    fn transmit_or_hold(&mut self, answers: bool) -> Result<(), PortError> {
        if answers
            && self.held < TOGETHER
            && (!self.meanwhile.is_empty() || self.plane.role.may_poll())
        {
            self.held += 1;
            return Ok(());
        }
        // What leaves is timed from now on, however long ago the clock was read.
        self.plane.now();
        self.transmit().map(|_| ())
    }
}

fn is_completion(tlp: &[u8]) -> bool {
    let class = Packet::new_header_checked(tlp).ok().and_then(|packet| packet.class());
    class == Some(Class::Completion)
}

fn broken(error: proxy_net::NetError) -> PortError {
    PortError::Io(io::Error::other(error))
}

impl TlpPort for PlanePort {
    fn send(&mut self, tlp: &[u8]) -> Result<(), PortError> {
        if tlp.len() > TLP_BUFFER {
            return Err(PortError::TooLong { len: tlp.len(), max: TLP_BUFFER });
        }
        let answers = is_completion(tlp);
        loop {
            // The host may have been busy with itself for long; but not between a request of a
            // device and its answer.
            let now = if answers { self.time() } else { self.plane.now() };
            if self.plane.role.handle_tlp(now, tlp).is_ok() {
                self.mark();
                return self.transmit_or_hold(answers);
            }
            if self.stop.requested() {
                return Err(PortError::Closed);
            }
            let mut busy = self.plane.receive().map_err(broken)?;
            busy |= self.take_meanwhile();
            busy |= self.transmit()?;
            self.plane.rest(busy, None).map_err(broken)?;
        }
    }

    fn at_hand(&mut self, buf: &mut [u8]) -> Option<usize> {
        if let Some(tlp) = self.meanwhile.pop_front() {
            buf[..tlp.len()].copy_from_slice(&tlp);
            return Some(tlp.len());
        }
        // The host may have been busy with itself for long.
        self.time();
        self.take(buf)
    }

    fn recv(&mut self, buf: &mut [u8], deadline: Instant) -> Result<Option<usize>, PortError> {
        if let Some(length) = self.at_hand(buf) {
            return Ok(Some(length));
        }
        let deadline = self.plane.clock().at(deadline);
        loop {
            let mut busy = self.plane.receive().map_err(broken)?;
            if let Some(length) = self.take(buf) {
                return Ok(Some(length));
            }
            busy |= self.transmit()?;
            if self.stop.requested() {
                return Err(PortError::Closed);
            }
            if self.plane.latest() >= deadline {
                return Ok(None);
            }
            self.plane.rest(busy, None).map_err(broken)?;
        }
    }
}

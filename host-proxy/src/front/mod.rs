//! Where the host's root complex is.

mod absence;
mod lines;
pub mod model;
mod routes;
pub mod socket;
pub(crate) mod stale;
pub mod vm;

use crate::config::Front;
use proxy_core::host::HostRole;
use proxy_daemon::plane::Plane;
use proxy_daemon::stop::Stop;

/// A front-end that is ready to run.
pub enum Opened {
    /// The model host.
    Model(Box<model::ModelFront>),
    /// A root complex at a socket.
    Socket(socket::SocketFront),
    /// A virtual machine's adapter.
    Vm(Box<vm::VmFront>),
}

/// Opens the front-end's sockets, so that what is wrong shows before anything runs.
///
/// # Errors
///
/// A text for a person.
pub fn open(front: &Front) -> Result<Opened, String> {
    Ok(match front {
        Front::Model { socket, model } => {
            Opened::Model(Box::new(model::ModelFront::open(socket, model)?))
        }
        Front::Socket(path) => Opened::Socket(socket::SocketFront::open(path)?),
        Front::Vm { socket, adapter } => Opened::Vm(Box::new(vm::VmFront::open(socket, adapter)?)),
    })
}

impl Opened {
    /// Runs the data plane with this front-end until told to stop.
    ///
    /// # Errors
    ///
    /// When something is broken for good.
    pub fn run(self, plane: Plane<HostRole>, stop: &Stop) -> Result<(), String> {
        match self {
            Self::Model(front) => front.run(plane, stop),
            Self::Socket(front) => front.run(plane, stop),
            Self::Vm(front) => front.run(plane, stop),
        }
    }
}

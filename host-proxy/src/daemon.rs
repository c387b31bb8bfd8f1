//! The daemon itself: opens everything, then hands the data plane to the front-end.

use crate::config::Config;
use crate::{front, socket_folder};
use proxy_core::control::{Hello, Name, RoleKind, Term};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::link::LinkConfig;
use proxy_core::switch::SwitchConfig;
use proxy_daemon::clock::incarnation;
use proxy_daemon::control::ControlHandle;
use proxy_daemon::fabric::Fabric;
use proxy_daemon::plane::Plane;
use proxy_daemon::stop::Stop;
use tracing::info;

/// Runs until told to stop.
///
/// # Errors
///
/// A text for a person: what could not be opened or broke, and what to do.
pub fn run(config: &Config, stop: &Stop) -> Result<(), String> {
    let common = &config.common;
    let fabric = Fabric::open(common)?;
    let mtu = fabric.mtu;
    let life = incarnation();
    let role = HostRole::new(&HostConfig {
        incarnation: life,
        switch: SwitchConfig {
            ports: config.ports,
            placeholders: config.placeholders,
            ..SwitchConfig::default()
        },
        link: LinkConfig { max_frame: mtu, paths: fabric.ports.len(), ..LinkConfig::default() },
        ..HostConfig::default()
    })
    .map_err(|e| e.to_string())?;
    let hello = Hello {
        version: proxy_core::control::CONTROL_VERSION,
        name: Name::try_from(common.name.as_str()).expect("checked with the settings"),
        role: RoleKind::Host { ports: config.ports },
        incarnation: life,
        node: None,
        paths: fabric.paths(),
        mtu: mtu as u16,
        term: Term(0),
    };
    socket_folder::check(config.front.socket())?;
    let front = front::open(&config.front)?;
    info!(%fabric, mtu, ports = config.ports, "host proxy {} is up", common.name);
    let control = ControlHandle::dial(common.manager.clone(), hello)
        .map_err(|e| format!("thread for the manager's connection: {e}"))?;
    let plane = Plane::new(role, fabric.ports, control, common.spin);
    let result = front.run(plane, stop);
    info!("stopped");
    result
}

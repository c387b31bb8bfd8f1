//! The daemon itself: opens everything, then hands the data plane to the front-end.

use crate::config::Config;
use crate::front;
use proxy_core::control::{Hello, Name, RoleKind, Term};
use proxy_core::host::{HostConfig, HostRole};
use proxy_core::link::LinkConfig;
use proxy_core::switch::SwitchConfig;
use proxy_daemon::clock::incarnation;
use proxy_daemon::config::path_address;
use proxy_daemon::control::ControlHandle;
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
    let port =
        common.fabric.open(common.mtu).map_err(|e| format!("fabric {}: {e}", common.fabric))?;
    let mtu = port.mtu().min(proxy_core::limits::MAX_FRAME);
    let life = incarnation();
    let role = HostRole::new(&HostConfig {
        incarnation: life,
        switch: SwitchConfig {
            ports: config.ports,
            placeholders: config.placeholders,
            ..SwitchConfig::default()
        },
        link: LinkConfig { max_frame: mtu, ..LinkConfig::default() },
        ..HostConfig::default()
    })
    .map_err(|e| e.to_string())?;
    let local = common.advertise.map_or_else(|| port.local_address(), proxy_net::Address::Udp);
    let hello = Hello {
        version: proxy_core::control::CONTROL_VERSION,
        name: Name::try_from(common.name.as_str()).expect("checked with the settings"),
        role: RoleKind::Host { ports: config.ports },
        incarnation: life,
        node: None,
        paths: [path_address(&local)].into_iter().collect(),
        mtu: mtu as u16,
        term: Term(0),
    };
    let front = front::open(&config.front)?;
    info!(fabric = %local, mtu, ports = config.ports, "host proxy {} is up", common.name);
    let control = ControlHandle::dial(common.manager.clone(), hello)
        .map_err(|e| format!("thread for the manager's connection: {e}"))?;
    let plane = Plane::new(role, port, control, common.spin);
    let result = front.run(plane, stop);
    info!("stopped");
    result
}

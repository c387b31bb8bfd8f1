//! The proxies as firmware in emulated cards, and what is at the cards' PCIe side.

use super::{HOST, PORTS, Setting};
use anyhow::{Context, Result};
use card_image::Role;
use emulated_card::emulator::{Network, NewCard};
use emulated_card::firmware::Firmware;
use processes::{Daemon, wait_for};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// How long a program gets to listen at its socket.
const LISTEN: Duration = Duration::from_secs(20);

/// What runs on the cards, for people and for programs.
pub(super) fn describe(firmware: &Firmware) -> Result<(String, Value)> {
    let images = [firmware.describe(Role::Host)?, firmware.describe(Role::Box)?];
    let emulator = firmware.emulator();
    let text = format!("each card: boot loader, image and settings in its flash; {emulator}");
    let text = format!("{text}\nimages: {}", images.join(", "));
    Ok((text, json!({ "emulator": emulator, "images": images })))
}

/// Starts the cards, and before them what they are plugged into.
pub(super) fn start(
    setting: &Setting<'_>,
    firmware: &Firmware,
) -> Result<Vec<(&'static str, Daemon)>> {
    let Setting { place, control, host_socket, boxes, button_ms } = setting;
    let port = control.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let manager = port.with_context(|| format!("{control} has no port"))?;
    let side = |name: &str| place.folder.join(format!("{name}.pcie"));

    let mut command = place.command("dxpu-card-host", None);
    command.arg("--card").arg(side(HOST)).args(["--model-host", host_socket]);
    command.args(["--model-button-ms", button_ms]);
    let mut sides = vec![("root-complex", place.start("root-complex", command)?)];
    let mut cards = vec![(HOST, Role::Host, PORTS)];
    for ((name, slot), devices) in boxes.iter().zip(["devices-a", "devices-b"]) {
        let mut command = place.command("dxpu-card-devices", None);
        command.arg("--card").arg(side(name)).args(["--name", name, "--slot", slot]);
        sides.push((devices, place.start(devices, command)?));
        cards.push((name, Role::Box, 1));
    }
    let sockets: Vec<PathBuf> = cards.iter().map(|(name, ..)| side(name)).collect();
    wait_for("what is at the cards' PCIe side", LISTEN, || {
        sides.iter_mut().try_for_each(|(_, daemon)| daemon.check())?;
        Ok(sockets.iter().all(|socket| socket.exists()).then_some(()))
    })?;

    let (network, process) = Network::start(&place.folder, cards.len(), place.outlive)?;
    let mut daemons = Vec::new();
    for (cable, (name, role, places)) in cards.into_iter().enumerate() {
        let pcie = &side(name);
        let new = NewCard { name, role, places, manager, vlan: None, pcie };
        daemons.push((name, network.start_new_card(cable, firmware, &new)?));
    }
    daemons.push(("network", process));
    daemons.append(&mut sides);
    Ok(daemons)
}

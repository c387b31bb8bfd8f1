//! Proxies that are firmware in emulated cards.

use super::{BOUND, Fabric, own};
use anyhow::{Context, Result};
use card_image::Role;
use emulated_card::emulator::{Network, NewCard};
use emulated_card::firmware::Firmware;
use processes::{Daemon, wait_for};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Ports of the host's switch.
const PORTS: u8 = 4;

impl Fabric {
    /// Starts a host and boxes whose proxies are firmware in emulated cards on a network of their
    /// own; the boxes with slots as the flag `--slot` has them. The socket for the guest.
    ///
    /// # Errors
    ///
    /// When something does not start.
    pub fn add_cards(
        &mut self,
        firmware: &Firmware,
        host: &str,
        boxes: &[(&str, Vec<String>)],
    ) -> Result<PathBuf> {
        let manager = self.control.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let manager = manager.with_context(|| format!("{} has no port", self.control))?;
        let folder = self.folder.clone();
        let side = |name: &str| folder.join(format!("{name}.pcie"));
        let socket = folder.join(format!("{host}.sock"));

        let mut command = own(&self.programs.join("dxpu-card-host"), &folder);
        command.arg("--card").arg(side(host)).arg("--vm").arg(&socket);
        self.start_side(host, command, &side(host))?;
        for (name, slots) in boxes {
            let mut command = own(&self.programs.join("dxpu-card-devices"), &folder);
            command.arg("--card").arg(side(name)).args(["--name", name]);
            for slot in slots {
                command.args(["--slot", slot]);
            }
            self.start_side(name, command, &side(name))?;
        }

        let (network, process) = Network::start(&folder, 1 + boxes.len(), false)?;
        self.beside.push(process);
        let start = |cable, name, role, places| {
            let new = NewCard { name, role, places, manager, vlan: None, pcie: &side(name) };
            network.start_new_card(cable, firmware, &new)
        };
        self.hosts.push((host.to_owned(), start(0, host, Role::Host, PORTS)?));
        for (cable, (name, slots)) in (1..).zip(boxes) {
            let card = start(cable, name, Role::Box, slots.len().try_into()?)?;
            self.boxes.push(((*name).to_owned(), card));
        }
        Ok(socket)
    }

    /// Starts what is at a card's PCIe side, and waits until it listens for the card.
    fn start_side(&mut self, card: &str, command: Command, socket: &Path) -> Result<()> {
        let mut daemon = Daemon::start(&format!("{card}-pcie"), &self.folder, command, false)?;
        wait_for("what is at a card's PCIe side", BOUND, || {
            daemon.check()?;
            Ok(socket.exists().then_some(()))
        })?;
        self.beside.push(daemon);
        Ok(())
    }
}

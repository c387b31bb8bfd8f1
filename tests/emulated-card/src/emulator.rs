//! QEMU as cards, and as the network between them.

use crate::firmware::Firmware;
use crate::flash::CardFlash;
use anyhow::Result;
use card_image::{Role, SlotId};
use processes::Daemon;
use processes::relay::Relay;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The emulator, which has to be on the path.
pub const QEMU: &str = "qemu-system-riscv32";

/// The network that all cards are on: Ethernet, a DHCP server, and this computer's loopback
/// network behind the address [`Network::HERE`].
pub struct Network {
    folder: PathBuf,
    outlive: bool,
    /// Cables with something in them that misbehaves.
    bad: BTreeSet<usize>,
}

/// What misbehaves in a card's cable.
pub struct BadCable {
    /// From the network to the card.
    pub to_card: Relay,
    /// From the card to the network.
    pub from_card: Relay,
}

impl Network {
    /// The address of this computer, as cards see it.
    pub const HERE: [u8; 4] = [10, 0, 2, 2];

    /// A network for so many cards, whose sockets are in a folder, and the process that it is. It
    /// and its cards end with this program, unless they may `outlive` it.
    ///
    /// # Errors
    ///
    /// When QEMU does not start.
    pub fn start(folder: &Path, cards: usize, outlive: bool) -> Result<(Self, Daemon)> {
        let network = Self { folder: folder.to_owned(), outlive, bad: BTreeSet::new() };
        let mut command = Command::new(QEMU);
        command.args(["-M", "none", "-nodefaults", "-display", "none", "-monitor", "none"]);
        command.args(["-netdev", "user,id=here", "-netdev", "hubport,id=h,hubid=0,netdev=here"]);
        for card in 0..cards {
            let (near, far) = network.ends(card);
            let wire = format!(
                "dgram,id=c{card},local.type=unix,local.path={},remote.type=unix,remote.path={}",
                near.display(),
                far.display()
            );
            command.args(["-netdev", &wire]);
            command.args(["-netdev", &format!("hubport,id=h{card},hubid=0,netdev=c{card}")]);
        }
        let daemon = Daemon::start("network", folder, command, outlive)?;
        Ok((network, daemon))
    }

    /// Puts relays into a card's cable, before the card is started. They let everything through
    /// until they are told otherwise; the seed says which frames they will harm.
    ///
    /// # Errors
    ///
    /// When there are no sockets.
    pub fn make_bad(&mut self, cable: usize, seed: u64) -> Result<BadCable> {
        let (network, card) = self.ends(cable);
        let (behind, up) = self.bad_ends(cable);
        self.bad.insert(cable);
        Ok(BadCable {
            to_card: Relay::between(&card, &behind, seed)?,
            from_card: Relay::between(&up, &network, seed.wrapping_add(1))?,
        })
    }

    /// Where a card behind a bad cable listens, and where it sends to.
    fn bad_ends(&self, cable: usize) -> (PathBuf, PathBuf) {
        let end = |name: &str| self.folder.join(format!("cable-{cable}-{name}"));
        (end("behind"), end("up"))
    }

    /// Both ends of a card's cable, each the socket that it listens at: the network's, and the
    /// card's.
    fn ends(&self, card: usize) -> (PathBuf, PathBuf) {
        let end = |name: &str| self.folder.join(format!("cable-{card}-{name}"));
        (end("net"), end("card"))
    }
}

/// A card that is to be started.
#[derive(Clone, Debug)]
pub struct CardOptions {
    /// Its name, also of its files.
    pub name: String,
    /// Its flash, which the card starts from and writes to.
    pub flash: PathBuf,
    /// The socket of what is at its PCIe side, which has to listen already.
    pub pcie: PathBuf,
}

/// A card that never ran: its flash is made as `dxpu-flash` leaves one, with boot loader, settings
/// and an image that is to be started next.
#[derive(Clone, Copy, Debug)]
pub struct NewCard<'a> {
    /// Its name in the fabric, also of its files.
    pub name: &'a str,
    /// Which firmware it gets.
    pub role: Role,
    /// Slots of a box, ports of a host: 1 to 32.
    pub places: u8,
    /// The manager's port for proxies on this computer's loopback network.
    pub manager: u16,
    /// The VLAN of the fabric's frames, if they are in one.
    pub vlan: Option<u16>,
    /// The socket of what is at its PCIe side, which has to listen already.
    pub pcie: &'a Path,
}

impl Network {
    /// Starts a new card at one of the network's cables, with its flash in `NAME.flash`; else as
    /// [`start_card`](Self::start_card).
    ///
    /// # Errors
    ///
    /// When its firmware or its flash is not to be had, or QEMU does not start.
    pub fn start_new_card(
        &self,
        cable: usize,
        firmware: &Firmware,
        new: &NewCard<'_>,
    ) -> Result<Daemon> {
        let NewCard { name, role, places, manager, vlan, pcie } = new;
        let [a, b, c, d] = Self::HERE;
        let mut flash = CardFlash::new(&firmware.boot_loader())?;
        let vlan = vlan.map(|vlan| format!("vlan = {vlan}\n")).unwrap_or_default();
        flash.set_settings(&format!(
            "name = {name}\nmanager = {a}.{b}.{c}.{d}:{manager}\nplaces = {places}\n{vlan}"
        ))?;
        flash.write_image(SlotId::A, &firmware.image(*role)?)?;
        let path = self.folder.join(format!("{name}.flash"));
        flash.write(&path)?;
        let options =
            CardOptions { name: (*name).to_owned(), flash: path, pcie: pcie.to_path_buf() };
        self.start_card(cable, &options)
    }

    /// Starts a card at one of the network's cables, which is the process; what it says on its
    /// console, the boot loader in plain words and the firmware as its log encodes it, is added to
    /// `NAME.uart` in the network's folder. A debugger finds it at the socket `NAME.gdb` there
    /// ([`Debugger`](crate::debugger::Debugger), or `gdb` with `target remote`).
    ///
    /// # Errors
    ///
    /// When QEMU does not start.
    pub fn start_card(&self, cable: usize, options: &CardOptions) -> Result<Daemon> {
        let CardOptions { name, flash, pcie } = options;
        let (near, far) = if self.bad.contains(&cable) {
            self.bad_ends(cable)
        } else {
            let (network, card) = self.ends(cable);
            (card, network)
        };
        let mut command = machine(&self.folder, name, flash);
        command.args(["-global", "virtio-mmio.force-legacy=false"]);
        let gdb = self.folder.join(format!("{name}.gdb"));
        let socket = format!("socket,id=gdb,server=on,wait=off,path={}", gdb.display());
        command.args(["-chardev", &socket, "-gdb", "chardev:gdb"]);
        let fabric = format!(
            "dgram,id=f,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            near.display(),
            far.display()
        );
        let side = format!("stream,id=p,server=off,addr.type=unix,addr.path={}", pcie.display());
        for (place, (id, wire)) in [("f", fabric), ("p", side)].iter().enumerate() {
            let device = format!(
                "virtio-net-device,bus=virtio-mmio-bus.{place},netdev={id},mac=02:00:00:00:0{place}:{cable:02x}"
            );
            command.args(["-netdev", wire, "-device", &device]);
        }
        Daemon::start(name, &self.folder, command, self.outlive)
    }
}

/// The emulator's machine with this flash, without a network.
pub fn machine(folder: &Path, name: &str, flash: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-M", "virt", "-bios", "none", "-display", "none", "-monitor", "none"]);
    let uart = folder.join(format!("{name}.uart"));
    let console = format!("file,id=console,append=on,path={}", uart.display());
    command.args(["-chardev", &console, "-serial", "chardev:console"]);
    let bank = format!("if=pflash,unit=0,format=raw,file={}", flash.display());
    command.args(["-drive", &bank]);
    command
}

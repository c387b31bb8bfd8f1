//! A manager, boxes, and guests as hosts.

use anyhow::Result;
use emulated_card::firmware::Firmware;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use vm::{BOOT_BOUND, Fabric, Guest, Kernel, Message, Options, Stage};

/// Longest that a device is waited for to come or go.
pub(crate) const PLUG_BOUND: Duration = Duration::from_secs(300);

/// Longest that a piece of work with a drive takes.
pub(crate) const WORK_BOUND: Duration = Duration::from_secs(900);

/// Guests on a fabric.
pub(crate) struct Scene {
    // Guests end before the hosts' proxies, and these before the folder goes.
    pub(crate) guests: Vec<Guest>,
    pub(crate) fabric: Fabric,
    folder: TempDir,
    options: Vec<Options>,
    stage: Stage,
}

/// What a scene is made of.
pub(crate) struct Plan<'a> {
    /// The guests' kernels; they are host-1, host-2 and so on.
    pub(crate) kernels: &'a [Kernel],
    /// The boxes and what is in their slots.
    pub(crate) boxes: &'a [(&'a str, &'a [&'a str])],
    /// More flags of the manager.
    pub(crate) manager: &'a [&'a str],
    /// More flags of the host proxies.
    pub(crate) flags: &'a [&'a str],
    /// Whether the guests load `vmd` when they boot.
    pub(crate) adapter: bool,
    /// More of the guests' kernel command line.
    pub(crate) append: &'a str,
    /// Whether the proxies are firmware in emulated cards; the one host's then, too.
    pub(crate) cards: bool,
}

/// One guest and one box with a drive.
pub(crate) const SMALL: Plan<'static> = Plan {
    kernels: &[Kernel::V6_12],
    boxes: &[("box-a", &["nvme"])],
    manager: &[],
    flags: &[],
    adapter: true,
    append: "",
    cards: false,
};

/// Sets a scene and runs a play in it; tells why where there can be no guests.
///
/// # Panics
///
/// When the play fails, with what the guests' consoles and the proxies' logs end with.
#[track_caller]
pub(crate) fn play(plan: &Plan, act: impl FnOnce(&mut Scene) -> Result<()>) {
    let firmware = match plan.cards.then(Firmware::find).transpose() {
        Ok(firmware) => firmware,
        Err(reason) => {
            println!("SKIPPED: no emulated cards: {reason:#}");
            return;
        }
    };
    let stage = Stage::take(plan.kernels).unwrap_or_else(|error| panic!("{error:#}"));
    let Some(stage) = stage else { return };
    let mut scene = set(stage, plan, firmware.as_ref()).unwrap_or_else(|error| panic!("{error:#}"));
    if let Err(error) = act(&mut scene) {
        panic!("{error:#}\n{}", scene.fabric.last_words());
    }
}

fn set(stage: Stage, plan: &Plan, firmware: Option<&Firmware>) -> Result<Scene> {
    let folder = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    let programs = own.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    let mut fabric = Fabric::start_with(programs, folder.path(), plan.manager)?;
    let boxes: Vec<(&str, Vec<String>)> =
        plan.boxes.iter().map(|(name, slots)| (*name, slots_of(name, slots))).collect();
    if firmware.is_none() {
        for (name, slots) in &boxes {
            fabric.add_box(name, slots)?;
        }
    }
    let (mut guests, mut all) = (Vec::new(), Vec::new());
    for (number, kernel) in (1..).zip(plan.kernels) {
        let name = format!("host-{number}");
        let socket = match firmware {
            Some(firmware) => fabric.add_cards(firmware, &name, &boxes)?,
            None => fabric.add_host(&name, plan.flags)?,
        };
        let mut options = Options::new(&name, *kernel).with_vfio_user(&socket);
        options.append = plan.append.to_owned();
        if !plan.adapter {
            options.modules.retain(|module| module != "vmd");
        }
        guests.push(Guest::start(&stage.cache, &options, folder.path())?);
        all.push(options);
    }
    fabric.wait_ready()?;
    for guest in &mut guests {
        guest.boot(BOOT_BOUND)?;
    }
    Ok(Scene { guests, fabric, folder, stage, options: all })
}

/// What a box has in its slots, as its flags say it. A drive's image outlives its box.
pub(crate) fn slots_of(name: &str, slots: &[&str]) -> Vec<String> {
    let mut flags = Vec::new();
    for (number, device) in (1..).zip(slots) {
        flags.push(match *device {
            "nvme" => format!("{number}=nvme,image={name}-{number}.img,size=128M,model=nvme"),
            other => format!("{number}={other}"),
        });
    }
    flags
}

impl Scene {
    /// Ends a guest's machine at once, and boots another one in its place.
    pub(crate) fn power_cut(&mut self, guest: usize) -> Result<()> {
        self.guests.remove(guest).kill();
        let mut new = Guest::start(&self.stage.cache, &self.options[guest], self.folder.path())?;
        new.boot(BOOT_BOUND)?;
        self.guests.insert(guest, new);
        Ok(())
    }
}

/// What a kernel says when the machine below its emulated processors was busy with other things.
const BUSY: &[&str] = &[
    "RT throttling activated",
    "clocksource: ",
    "hrtimer: interrupt took",
    "perf: interrupt took",
    "hogged CPU for",
];

/// Those that are warnings or worse, and not among what is known.
pub(crate) fn warnings(messages: Vec<Message>, known: &[&str]) -> Vec<Message> {
    let known =
        |message: &Message| BUSY.iter().chain(known).any(|text| message.text.contains(text));
    messages.into_iter().filter(|message| message.is_warning() && !known(message)).collect()
}

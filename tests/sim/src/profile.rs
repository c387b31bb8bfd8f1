//! What kind of fabric a run is of, what goes on in it and what goes wrong: a TOML file.

mod check;

use anyhow::{Context, Result, bail, ensure};
use proxy_core::limits::MAX_FRAME;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Everything that one run is made from, beside its seed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// For a person: what it is for.
    pub about: String,
    /// The fabric.
    pub(crate) fabric: Fabric,
    /// What goes wrong by itself, with every frame, until the faults stop.
    #[serde(default)]
    pub(crate) always: Trouble,
    /// What hosts and devices do.
    pub(crate) work: Work,
    /// How long it all takes.
    pub(crate) time: Time,
    /// What goes wrong by schedule.
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<FaultKind>,
}

/// Who is there and what joins them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fabric {
    pub(crate) hosts: usize,
    pub(crate) boxes: usize,
    /// Of each box.
    pub(crate) slots: usize,
    /// How many of them hold NVMe drives; the others hold model devices.
    #[serde(default)]
    pub(crate) drives: usize,
    /// Functions of each model device; all of them are lent together.
    #[serde(default = "one")]
    pub(crate) functions: usize,
    /// After a reset a model device has configuration requests tried again for so long, milliseconds,
    /// from and to; each of its functions draws its own.
    #[serde(default)]
    pub(crate) ready_ms: [u64; 2],
    /// How long a host's proxy waits for a device that takes nothing, milliseconds: each seed has one of
    /// these; without any, as long as software does.
    #[serde(default)]
    pub(crate) hold_ms: Vec<u64>,
    /// Whether a slot that was released is lent to the next host.
    #[serde(default)]
    pub(crate) roams: bool,
    /// Every second time that the operator asks for a slot it does so for so long, milliseconds, from
    /// and to: a lease; 0: never. Nothing has an end any more when the faults have stopped.
    #[serde(default)]
    pub(crate) lease_ms: [u64; 2],
    /// Slots that are lent to nobody at first: what replaces others.
    #[serde(default)]
    pub(crate) spare: usize,
    /// Planes of the network.
    #[serde(default = "one")]
    pub(crate) paths: usize,
    /// Switches on the way in each plane, 1 or 2.
    #[serde(default = "one")]
    pub(crate) tiers: usize,
    /// Every cable.
    #[serde(default)]
    pub(crate) cable: Cable,
    /// Largest frame of the proxies, bytes.
    #[serde(default = "largest_frame")]
    pub(crate) frame: usize,
    /// TLP buffers that a link lends beyond its guarantees, each way.
    #[serde(default = "shared_buffers")]
    pub(crate) shared_buffers: usize,
    /// Whether the manager's own code lends, and not the director.
    #[serde(default)]
    pub(crate) manager: bool,
    /// What bindings may send beside each other, drawn for each of them; without it, all alike.
    #[serde(default)]
    pub(crate) shares: Option<Shares>,
    /// Whether a binding may use some of the paths only, drawn for each of them.
    #[serde(default)]
    pub(crate) path_sets: bool,
    /// The control messages take so long, microseconds, from and to.
    #[serde(default = "control_delay")]
    pub(crate) control_us: [u64; 2],
}

/// Shares of bindings, each from and to; each binding draws its own for either direction.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shares {
    pub(crate) weights: [u64; 2],
    /// How many in a million have a limit, and which.
    pub(crate) limited_ppm: u32,
    pub(crate) limit_mbps: [u64; 2],
    /// How many in a million have a guaranteed rate, and which.
    pub(crate) guaranteed_ppm: u32,
    pub(crate) guarantee_mbps: [u64; 2],
}

const fn one() -> usize {
    1
}

const fn largest_frame() -> usize {
    MAX_FRAME
}

const fn shared_buffers() -> usize {
    256
}

const fn control_delay() -> [u64; 2] {
    [50, 400]
}

/// One direction of a cable and the queue in front of it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cable {
    pub(crate) rate_mbps: u64,
    pub(crate) delay_ns: u64,
    pub(crate) queue_kb: u64,
    /// With more than so much in the queue, frames are marked as RFC 3168 says (CE); 0: never.
    pub(crate) mark_kb: u64,
    /// Largest frame, bytes.
    pub(crate) mtu: usize,
}

impl Default for Cable {
    fn default() -> Self {
        Self { rate_mbps: 25_000, delay_ns: 800, queue_kb: 1024, mark_kb: 128, mtu: MAX_FRAME }
    }
}

/// What goes wrong with frames, each by its chance in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Trouble {
    pub(crate) loss_ppm: u32,
    /// A burst begins; while it lasts everything is lost.
    pub(crate) burst_ppm: u32,
    /// The burst ends with this frame.
    pub(crate) burst_end_ppm: u32,
    pub(crate) twice_ppm: u32,
    /// It is overtaken by others.
    pub(crate) late_ppm: u32,
    /// How late at most, microseconds; of a double, too.
    pub(crate) late_us: u64,
    /// Bit errors for each 10^12 bits.
    pub(crate) bit_errors_e12: u64,
    /// Of those, how many the Ethernet FCS does not find.
    pub(crate) escapes_ppm: u32,
    /// A TLP is changed and the frame's CRC made right again: memory that lies.
    pub(crate) lies_ppm: u32,
    /// A direction of a cable dies for a while: the other one goes on.
    pub(crate) dies_ppm: u32,
    /// For how long at most, microseconds.
    pub(crate) dies_us: u64,
}

/// How often each kind of work comes, by weight.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Work {
    /// Bursts of work in a run, from and to.
    pub(crate) bursts: [u64; 2],
    /// Operations in a burst, from and to.
    pub(crate) operations: [u64; 2],
    #[serde(default)]
    pub(crate) registers: u32,
    #[serde(default)]
    pub(crate) doorbells: u32,
    #[serde(default)]
    pub(crate) atomics: u32,
    #[serde(default)]
    pub(crate) dma_writes: u32,
    #[serde(default)]
    pub(crate) dma_reads: u32,
    #[serde(default)]
    pub(crate) dma_atomics: u32,
    /// What devices ask of each other.
    #[serde(default)]
    pub(crate) peer_writes: u32,
    #[serde(default)]
    pub(crate) peer_reads: u32,
    #[serde(default)]
    pub(crate) peer_atomics: u32,
    /// Transfers to the host that end with a read of no bytes.
    #[serde(default)]
    pub(crate) dma_flushes: u32,
    /// Swaps, compares and swaps, and additions of 4 bytes in host memory.
    #[serde(default)]
    pub(crate) dma_swaps: u32,
    /// Writes of up to the largest payload in device memory, and reads of up to 2 KB; nothing where
    /// devices ask each other.
    #[serde(default)]
    pub(crate) wide: u32,
    /// Reads of no bytes of devices.
    #[serde(default)]
    pub(crate) empty_reads: u32,
    /// Messages of devices, and to them.
    #[serde(default)]
    pub(crate) messages: u32,
    #[serde(default)]
    pub(crate) host_messages: u32,
    /// Reads of configuration space.
    #[serde(default)]
    pub(crate) configuration: u32,
    /// Commands of drives.
    #[serde(default)]
    pub(crate) block_writes: u32,
    #[serde(default)]
    pub(crate) block_reads: u32,
    #[serde(default)]
    pub(crate) block_zeroes: u32,
    #[serde(default)]
    pub(crate) flushes: u32,
    /// Blocks of one of them, from and to; at most 40 KB are taken.
    #[serde(default = "blocks")]
    pub(crate) blocks: [u64; 2],
    /// How often a device or a root complex stops taking some classes for a while, in a million times
    /// that it could take something.
    #[serde(default = "stalls")]
    pub(crate) stalls_ppm: u32,
    /// How long, microseconds at most; of one in sixteen a hundred times as long.
    #[serde(default = "stall_us")]
    pub(crate) stall_us: u64,
    /// How often a root complex takes no non-posted requests before one of its own is answered, in a
    /// million times that it could take something.
    #[serde(default)]
    pub(crate) waits_ppm: u32,
    /// Largest payload of every device in bytes, a power of two; 0: of some as large as there are,
    /// of others smaller.
    #[serde(default)]
    pub(crate) payload: usize,
    /// Bytes of one DMA, from and to; at most 4096.
    #[serde(default = "dma_bytes")]
    pub(crate) bytes: [u64; 2],
    /// Whether operating systems have error messages come to them.
    #[serde(default)]
    pub(crate) errors: bool,
    /// Whether model devices have power states, D0 and D3hot, and without Bus Master Enable send nothing
    /// that they had begun with, either.
    #[serde(default)]
    pub(crate) power_states: bool,
    /// What TLPs say beside what they do.
    #[serde(default)]
    pub(crate) dress: Dress,
}

/// What TLPs of model devices, their drivers and root complexes say beside what they do, each by its
/// chance in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Dress {
    /// A traffic class above 0: of a transfer, or of all that a driver asks.
    pub(crate) classes_ppm: u32,
    pub(crate) no_snoop_ppm: u32,
    /// Steering hints (TH), of reads, writes and atomics.
    pub(crate) hints_ppm: u32,
    /// End-to-end prefixes, one to four.
    pub(crate) prefixes_ppm: u32,
    /// A digest (ECRC); one in four is wrong.
    pub(crate) digests_ppm: u32,
    /// What has data is poisoned: writes, atomics, messages and completions.
    pub(crate) poison_ppm: u32,
}

impl Work {
    /// Whether devices ask each other.
    pub(crate) const fn has_peers(&self) -> bool {
        self.peer_writes + self.peer_reads + self.peer_atomics > 0
    }
}

const fn stalls() -> u32 {
    10_000
}

const fn stall_us() -> u64 {
    30
}

const fn blocks() -> [u64; 2] {
    [1, 16]
}

const fn dma_bytes() -> [u64; 2] {
    [1, 4096]
}

/// Milliseconds of virtual time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Time {
    /// Work and faults are spread over this time, which begins when everything was lent once.
    pub(crate) busy_ms: u64,
    /// When the faults have stopped, everything is right again within this.
    pub(crate) settle_ms: u64,
    /// Nothing of a device that is in use is under way for longer; 0: that is not looked at.
    #[serde(default)]
    pub(crate) crosses_ms: u64,
    /// As long as a path between its two ends is whole, no binding in use has something under way and
    /// sees nothing of it come for longer; 0: that is not looked at.
    #[serde(default)]
    pub(crate) stands_ms: u64,
    /// How long an operating system lets the power indicator blink before it lets go.
    #[serde(default = "blink")]
    pub(crate) blink_ms: u64,
}

const fn blink() -> u64 {
    50
}

/// One kind of fault and how often it comes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultKind {
    pub(crate) kind: Kind,
    /// How often in a run, from and to.
    pub(crate) count: [u64; 2],
    /// How long each lasts, milliseconds, from and to.
    #[serde(default)]
    pub(crate) for_ms: [u64; 2],
    /// Of a storm.
    #[serde(default)]
    pub(crate) trouble: Trouble,
    /// How late a device answers, or the manager is heard and hears, and how long a notice or a lease
    /// is, milliseconds, from and to.
    #[serde(default = "late")]
    pub(crate) late_ms: [u64; 2],
    /// Of an MTU that shrinks, bytes.
    #[serde(default)]
    pub(crate) mtu: usize,
}

const fn late() -> [u64; 2] {
    [0, 3_000]
}

/// What can go wrong by schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A cable has [`Trouble`].
    Storm,
    /// Frames of a cable take a millisecond or more longer.
    DelaySpike,
    /// Nothing leaves a port for a while.
    Pause,
    /// A node is cut off in one direction, on every path.
    OneWay,
    /// A node is cut off on every path.
    Partition,
    /// One path of a node dies, and returns.
    PathDeath,
    /// One path of a node dies in one direction, and returns; the other direction goes on.
    PathOneWay,
    /// The manager takes away some of the paths between a host and a box, and gives them back.
    PathsChange,
    /// A plane takes smaller frames only.
    MtuShrink,
    /// The switches of a plane are rebooted.
    SwitchReboot,
    /// A host's proxy dies and comes back without its tables.
    HostProxyCrash,
    /// A box's proxy dies and comes back without its tables.
    BoxProxyCrash,
    /// A host's proxy dies and comes back with its tables, as another life.
    HostProxyRestart,
    /// A box's proxy dies and comes back with its tables, as another life.
    BoxProxyRestart,
    /// A proxy stands still and goes on as the same life.
    Freeze,
    /// A host begins anew without a word: its root complex is reset, or only another operating
    /// system starts.
    HostReboot,
    /// An operating system resets the bus behind a port (Secondary Bus Reset), and begins anew with
    /// the device.
    BusReset,
    /// An operating system resets one function of a device (function-level reset), and begins anew
    /// with that.
    FunctionReset,
    /// Bus Master Enable of a function, or of the port that it is behind, is off for a while. This and
    /// the next ones come in the middle of work, or when a driver has brought its own to an end.
    BusMasterOff,
    /// Memory Space Enable is.
    MemoryOff,
    /// A function, or the port that it is behind, is in D3hot for a while.
    PowerDown,
    /// A function's registers are moved within its port's window. Its driver leaves them alone
    /// meanwhile; what the function was told to do goes on.
    RegistersMove,
    /// A device is pulled out of its slot, and put back.
    DevicePulled,
    /// A device answers nothing.
    DeviceHangs,
    /// A device takes nothing. When that is over its operating system resets it.
    DeviceStuck,
    /// A device answers late.
    DeviceLate,
    /// A device answers twice.
    DeviceTwice,
    /// A device answers wrongly: one part of each answer is not what it should be.
    DeviceWrong,
    /// A root complex answers devices late.
    RootLate,
    /// A root complex answers devices twice.
    RootTwice,
    /// A root complex also answers devices wrongly.
    RootWrong,
    /// A device writes without being asked to.
    DeviceFloods,
    /// A device strays: it writes where it has no business.
    DeviceStrays,
    /// The control connection of a proxy is lost.
    ControlLost,
    /// The manager dies at a write of its records, and comes back.
    ManagerCrash,
    /// The manager hears everything late, and is heard late.
    ManagerSlow,
    /// Another manager takes over, and the old one goes on for a while.
    ManagerTakeover,
    /// A binding is released in order, and made again.
    Release,
    /// A binding is released by force, and made again.
    ForcedRelease,
    /// The manager replaces a device by another one, which the host gets in its place; there have to be
    /// some that are not lent ([`Fabric::spare`]).
    Replace,
    /// The manager empties a slot, a box, a host or a path: by releasing what is lent there, or by
    /// replacing it. When it is over, that can be used again.
    Drain,
    /// What the manager was asked for last is called back.
    CallBack,
    /// The lender takes a device back, with a notice of `late_ms`.
    TakeBack,
    /// A lease is extended to `late_ms` from then on.
    Extend,
    /// The manager's wall clock jumps, by up to an hour.
    ClockJump,
}

macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        /// The profiles that are built in, by name.
        pub const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),+];
    };
}

built_in![
    "calm",
    "lossy",
    "nodes",
    "devices",
    "hung",
    "reset",
    "release",
    "slow",
    "memory",
    "manager",
    "incast",
    "nvme",
    "shares",
    "paths",
    "peers",
    "functions",
    "configuration",
    "lending",
    "operator",
    "kinds",
    "roots",
    "storm",
    "day",
    "bench"
];

/// The profiles that `all` means: those of which a seed takes no minute.
pub fn quick() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).filter(|name| !["day", "bench"].contains(name))
}

impl Profile {
    /// The profile of that name, or the one in that file.
    ///
    /// # Errors
    ///
    /// When there is none, or it is not right.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(text).with_context(|| format!("profile {name:?}"));
        }
        let path = Path::new(name);
        if !path.exists() {
            let known: Vec<&str> = BUILT_IN.iter().map(|p| p.0).collect();
            bail!("there is no profile {name:?}; name a TOML file or one of {}", known.join(", "));
        }
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the profile {name} cannot be read"))?;
        Self::parse(&text).with_context(|| format!("the profile {name} is not right"))
    }

    fn parse(text: &str) -> Result<Self> {
        let profile: Self = toml::from_str(text)?;
        profile.check()?;
        Ok(profile)
    }

    /// Nothing goes wrong.
    #[cfg(test)]
    pub(crate) fn calm() -> Self {
        Self::find("calm").expect("it is built in")
    }

    /// With another number of nodes: half of them hosts, at least one of each kind.
    pub fn with_nodes(mut self, nodes: usize) -> Result<Self> {
        ensure!(nodes >= 2, "a fabric has at least 2 nodes, a host and a box");
        self.fabric.hosts = nodes / 2;
        self.fabric.boxes = nodes - nodes / 2;
        self.check().with_context(|| {
            let (hosts, boxes) = (self.fabric.hosts, self.fabric.boxes);
            format!("of {nodes} nodes {hosts} are hosts and {boxes} boxes")
        })?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_reads() {
        for (name, _) in BUILT_IN {
            Profile::find(name).unwrap();
        }
    }

    #[test]
    fn a_profile_that_is_not_there_is_named_with_those_that_are() {
        let error = Profile::find("nowhere").unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("calm"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let calm = BUILT_IN[0].1;
        let error = |from: &str, to: &str| {
            assert!(calm.contains(from));
            Profile::parse(&calm.replace(from, to)).unwrap_err().to_string()
        };
        assert!(error("hosts = 2", "hosts = 2\nlegs = 3").contains("legs"));
    }
}

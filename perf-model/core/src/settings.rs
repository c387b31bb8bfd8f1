//! What `dxpu-perf run` tells the shim, as the value of one environment variable.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;

use crate::{
    BytesPerSecond, Fabric, FabricError, Kind, KindSet, Nanos, ReadSize, Tags, Thousandths,
};

/// The environment variable that holds [`Settings`]. Without it the shim delays nothing.
pub const VARIABLE: &str = "DXPU_PERF";

/// The environment variable that names the folder for ledgers. Without it nothing is counted.
pub const LEDGER_VARIABLE: &str = "DXPU_PERF_LEDGERS";

/// The environment variable that, when it is not empty, has the shim hook nothing at all.
pub const BYPASS_VARIABLE: &str = "DXPU_PERF_BYPASS";

/// Where a delay is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the GPU's own timeline, in the stream concerned.
    Gpu,
    /// By the CPU, in the call. For comparison: it holds up the program where a fabric would not.
    Cpu,
}

/// What a graph's launch costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphs {
    /// A kernel's end, once for the whole graph: the GPU goes from node to node without the host.
    Launch,
    /// A kernel's end for each kernel node, a memset's for each memset, a copy's for each copy.
    Node,
}

impl Graphs {
    /// What it is called in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Node => "node",
        }
    }
}

/// Which proxies the GPUs are behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// All behind one: they share its rate, and reach each other without the fabric.
    #[default]
    One,
    /// Each behind one of its own.
    Each,
}

impl Proxies {
    /// What it is called in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Each => "each",
        }
    }
}

/// Copies to the device as writes of the CPU, for those from `least` to `most` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushCopies {
    /// The smallest copy that is pushed, bytes.
    pub least: u64,
    /// The largest copy that is pushed, bytes.
    pub most: u64,
}

/// What is delayed and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// All that the program does.
    All,
    /// What it does between `cuProfilerStart` and `cuProfilerStop`, as profilers have it.
    Profiler,
}

/// What the shim does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What each operation costs more.
    pub fabric: Fabric,
    /// Where that is spent.
    pub place: Place,
    /// What a graph's launch costs.
    pub graphs: Graphs,
    /// Which proxies the GPUs are behind: what copies between them cost.
    pub proxies: Proxies,
    /// Kinds that cost nothing more.
    pub off: KindSet,
    /// The duration of one of so many kernels is measured (0: of none).
    pub measure_every: u32,
    /// Copies that are done as writes of the CPU.
    pub push_copies: Option<PushCopies>,
    /// What a delay of no length takes on the GPU's timeline: each is made shorter by it.
    pub delay_cost: Nanos,
    /// What lies between two events around a kernel that does nothing: each kernel that is measured
    /// lasts so much less.
    pub event_cost: Nanos,
    /// What is delayed and counted.
    pub range: Range,
}

impl Settings {
    /// What the paper injects and more, on the GPU's timeline: everything but the doorbell and mapped
    /// memory, which have to be asked for.
    pub const fn of(fabric: Fabric) -> Self {
        Self {
            fabric,
            place: Place::Gpu,
            graphs: Graphs::Launch,
            proxies: Proxies::One,
            off: KindSet::EMPTY.with(Kind::Doorbell).with(Kind::Mapped),
            measure_every: 16,
            push_copies: None,
            delay_cost: Nanos::ZERO,
            event_cost: Nanos::ZERO,
            range: Range::All,
        }
    }

    /// What `kind` takes longer when it moves `bytes`; nothing when the kind is left out. Kinds
    /// that never cross the fabric cost nothing.
    pub fn extra(&self, kind: Kind, bytes: u64) -> Nanos {
        if self.off.has(kind) {
            return Nanos::ZERO;
        }
        let fabric = &self.fabric;
        match kind {
            Kind::HostToDevice => fabric.htod_extra(bytes),
            // The GPU reads these itself, whatever the CPU pushes.
            Kind::Managed | Kind::Mapped => Fabric { push: None, ..*fabric }.htod_extra(bytes),
            Kind::DeviceToHost => fabric.dtoh_extra(bytes),
            Kind::PeerToPeer if self.proxies == Proxies::Each => fabric.peer_extra(bytes),
            Kind::PeerToPeer | Kind::DeviceToDevice | Kind::HostToHost => Nanos::ZERO,
            Kind::Kernel | Kind::Graph => fabric.kernel_extra(),
            Kind::Memset => fabric.memset_extra(),
            Kind::Synchronise => fabric.sync_extra(),
            Kind::HostCallback => fabric.callback_extra(),
            Kind::Doorbell => fabric.doorbell_extra(),
        }
    }

    /// The value of [`VARIABLE`]; [`str::parse`] reads it.
    pub fn to_env(&self) -> String {
        let fabric = &self.fabric;
        let mut text = format!(
            "native={},rtt={},tags={},mrs={},ahead={},htod={},dtoh={},rate={},trips={}",
            fabric.native_rtt.0,
            fabric.rtt.0,
            fabric.tags.get(),
            fabric.read_size.get(),
            fabric.read_ahead,
            fabric.native_htod.get(),
            fabric.native_dtoh.get(),
            fabric.fabric_rate.get(),
            fabric.kernel_round_trips.0,
        );
        if let Some(push) = fabric.push {
            text += &format!(",push-rate={}", push.get());
        }
        text += if self.place == Place::Gpu { ",place=gpu" } else { ",place=cpu" };
        text += &format!(",graphs={}", self.graphs.name());
        text += &format!(",proxies={}", self.proxies.name());
        text += &format!(",measure={}", self.measure_every);
        let off: Vec<&str> = self.off.iter().map(Kind::name).collect();
        text += &format!(",off={}", off.join("+"));
        if let Some(PushCopies { least, most }) = self.push_copies {
            text += &format!(",push={least}-{most}");
        }
        if self.delay_cost != Nanos::ZERO {
            text += &format!(",cost={}", self.delay_cost.0);
        }
        if self.event_cost != Nanos::ZERO {
            text += &format!(",events={}", self.event_cost.0);
        }
        if self.range == Range::Profiler {
            text += ",range=profiler";
        }
        text
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        let fabric = &mut self.fabric;
        match key {
            "native" => fabric.native_rtt = Nanos(number(value)?),
            "rtt" => fabric.rtt = Nanos(number(value)?),
            "tags" => fabric.tags = Tags::new(number(value)?)?,
            "mrs" => fabric.read_size = ReadSize::new(number(value)?)?,
            "ahead" => fabric.read_ahead = number(value)?,
            "htod" => fabric.native_htod = BytesPerSecond::new(number(value)?)?,
            "dtoh" => fabric.native_dtoh = BytesPerSecond::new(number(value)?)?,
            "rate" => fabric.fabric_rate = BytesPerSecond::new(number(value)?)?,
            "trips" => fabric.kernel_round_trips = Thousandths(number(value)?),
            "push-rate" => fabric.push = Some(BytesPerSecond::new(number(value)?)?),
            "measure" => self.measure_every = number(value)?,
            "place" => self.place = place(value)?,
            "graphs" => self.graphs = graphs(value)?,
            "proxies" => self.proxies = proxies(value)?,
            "off" => self.off = kinds(value)?,
            "push" => self.push_copies = Some(push_copies(value)?),
            "cost" => self.delay_cost = Nanos(number(value)?),
            "events" => self.event_cost = Nanos(number(value)?),
            "range" => self.range = range(value)?,
            _ => return Err(Wrong::Text("this setting is not known")),
        }
        Ok(())
    }
}

/// Why one setting was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Text(&'static str),
    Fabric(FabricError),
}

impl From<FabricError> for Wrong {
    fn from(error: FabricError) -> Self {
        Self::Fabric(error)
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, Wrong> {
    text.parse().map_err(|_| Wrong::Text("a whole number in range is wanted"))
}

fn place(text: &str) -> Result<Place, Wrong> {
    match text {
        "gpu" => Ok(Place::Gpu),
        "cpu" => Ok(Place::Cpu),
        _ => Err(Wrong::Text("gpu or cpu is wanted")),
    }
}

fn graphs(text: &str) -> Result<Graphs, Wrong> {
    match text {
        "launch" => Ok(Graphs::Launch),
        "node" => Ok(Graphs::Node),
        _ => Err(Wrong::Text("launch or node is wanted")),
    }
}

fn proxies(text: &str) -> Result<Proxies, Wrong> {
    match text {
        "one" => Ok(Proxies::One),
        "each" => Ok(Proxies::Each),
        _ => Err(Wrong::Text("one or each is wanted")),
    }
}

fn range(text: &str) -> Result<Range, Wrong> {
    match text {
        "all" => Ok(Range::All),
        "profiler" => Ok(Range::Profiler),
        _ => Err(Wrong::Text("all or profiler is wanted")),
    }
}

fn kinds(text: &str) -> Result<KindSet, Wrong> {
    let names = text.split('+').filter(|name| !name.is_empty());
    names.map(|name| Kind::from_name(name).ok_or(Wrong::Text("a kind is not known"))).collect()
}

fn push_copies(text: &str) -> Result<PushCopies, Wrong> {
    let (least, most) = text.split_once('-').ok_or(Wrong::Text("LEAST-MOST in bytes is wanted"))?;
    let range = PushCopies { least: number(least)?, most: number(most)? };
    if range.least > range.most {
        return Err(Wrong::Text("the smallest is larger than the largest"));
    }
    Ok(range)
}

/// What is wrong with the variable's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    setting: String,
    wrong: Wrong,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{VARIABLE}: \"{}\": ", self.setting)?;
        match &self.wrong {
            Wrong::Text(text) => out.write_str(text),
            Wrong::Fabric(error) => error.fmt(out),
        }
    }
}

impl core::error::Error for SettingsError {}

impl FromStr for Settings {
    type Err = SettingsError;

    /// Reads what [`Settings::to_env`] wrote; a setting that is not there keeps the value that
    /// [`Settings::of`] gives it for [`Fabric::DXPU_68`].
    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self::of(Fabric::DXPU_68);
        let mut seen = BTreeSet::new();
        for setting in text.split(',').filter(|setting| !setting.is_empty()) {
            let refuse = |wrong| SettingsError { setting: setting.to_owned(), wrong };
            let (key, value) = setting
                .split_once('=')
                .ok_or_else(|| refuse(Wrong::Text("KEY=VALUE is wanted")))?;
            if !seen.insert(key) {
                return Err(refuse(Wrong::Text("it is there twice")));
            }
            settings.set(key, value).map_err(refuse)?;
        }
        let fabric = settings.fabric;
        settings.fabric = fabric.with_rtt(fabric.rtt).map_err(|error| SettingsError {
            setting: format!("rtt={}", fabric.rtt.0),
            wrong: error.into(),
        })?;
        Ok(settings)
    }
}

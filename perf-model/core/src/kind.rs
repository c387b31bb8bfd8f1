//! The kinds of operation that cost more over a fabric.

/// Copies to the device of at most so many bytes from pageable memory are in the driver's own buffer
/// when their call returns (CUDA Driver API, "API synchronization behavior").
pub const STAGED_AT_ONCE: u64 = 64 << 10;

/// A kind of operation that a program asks the driver for. Calls, bytes and added time are counted
/// by kind, and each can be left out of the model on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A copy from host memory to GPU memory: the GPU reads (non-posted).
    HostToDevice,
    /// A copy from GPU memory to host memory: the GPU writes (posted).
    DeviceToHost,
    /// A copy within one GPU: nothing crosses the fabric.
    DeviceToDevice,
    /// A copy from one GPU to another.
    PeerToPeer,
    /// A copy within host memory.
    HostToHost,
    /// A kernel launched by itself.
    Kernel,
    /// A graph launched, as one or node by node (see [`crate::Graphs`]).
    Graph,
    /// Memory set to a value by the GPU.
    Memset,
    /// The CPU waits for a stream, an event or a context, or asks whether one is ready.
    Synchronise,
    /// The GPU's stream waits for a function on the CPU.
    HostCallback,
    /// Pages of managed memory that move (prefetch, or the touch of the other side).
    Managed,
    /// A kernel that was given host memory mapped into the GPU.
    Mapped,
    /// Work that reaches an idle GPU: the doorbell and the fetch of the work behind it.
    Doorbell,
}

impl Kind {
    /// Every kind, in the order of [`Kind::number`].
    pub const ALL: [Self; 13] = [
        Self::HostToDevice,
        Self::DeviceToHost,
        Self::DeviceToDevice,
        Self::PeerToPeer,
        Self::HostToHost,
        Self::Kernel,
        Self::Graph,
        Self::Memset,
        Self::Synchronise,
        Self::HostCallback,
        Self::Managed,
        Self::Mapped,
        Self::Doorbell,
    ];

    /// Its place in [`Kind::ALL`].
    pub const fn number(self) -> usize {
        self as usize
    }

    /// Its name in settings, CSV files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostToDevice => "htod",
            Self::DeviceToHost => "dtoh",
            Self::DeviceToDevice => "dtod",
            Self::PeerToPeer => "peer",
            Self::HostToHost => "htoh",
            Self::Kernel => "kernel",
            Self::Graph => "graph",
            Self::Memset => "memset",
            Self::Synchronise => "sync",
            Self::HostCallback => "callback",
            Self::Managed => "managed",
            Self::Mapped => "mapped",
            Self::Doorbell => "doorbell",
        }
    }

    /// What a person calls it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::HostToDevice => "host-to-device copies",
            Self::DeviceToHost => "device-to-host copies",
            Self::DeviceToDevice => "copies within a GPU",
            Self::PeerToPeer => "copies between GPUs",
            Self::HostToHost => "copies within the host",
            Self::Kernel => "kernels",
            Self::Graph => "graph launches",
            Self::Memset => "memsets",
            Self::Synchronise => "synchronisation",
            Self::HostCallback => "host callbacks",
            Self::Managed => "managed memory",
            Self::Mapped => "mapped host memory",
            Self::Doorbell => "work for an idle GPU",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSet(u16);

impl KindSet {
    /// No kind.
    pub const EMPTY: Self = Self(0);

    /// This set and `kind`.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind.number())
    }

    /// This set without `kind`.
    #[must_use]
    pub const fn without(self, kind: Kind) -> Self {
        Self(self.0 & !(1 << kind.number()))
    }

    /// Whether `kind` is in it.
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind.number() != 0
    }

    /// The kinds in it.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::EMPTY, Self::with)
    }
}

//! What the device is, as the client is told.

/// Regions of a PCI device (`<linux/vfio.h>`, `VFIO_PCI_*_REGION_INDEX`): BAR 0 to 5, the
/// expansion ROM, the configuration space, VGA.
pub const REGIONS: usize = 9;

/// The region of the expansion ROM.
pub const ROM: u8 = 6;

/// The region of the configuration space.
pub const CONFIG: u8 = 7;

/// Kinds of interrupts of a PCI device, [`Irq`].
pub const IRQS: usize = 5;

/// A device: what never changes while the server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its regions, by their index.
    pub regions: [Region; REGIONS],
    /// How many vectors it has of each kind of [`Irq`], at most
    /// [`MAX_VECTORS`](crate::limits::MAX_VECTORS).
    pub irqs: [u32; IRQS],
}

/// A region that the client reaches by messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Bytes; 0 for one that is not there.
    pub size: u64,
    /// What the client may do.
    pub access: Access,
}

/// What a client may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    #[default]
    None,
    /// Read.
    Read,
    /// Write.
    Write,
    /// Read and write.
    ReadWrite,
}

impl Access {
    /// Whether it may be read.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Whether it may be written.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// A kind of interrupt (`<linux/vfio.h>`, `VFIO_PCI_*_IRQ_INDEX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irq {
    /// The interrupt line. It masks itself when it is triggered, until the client unmasks it.
    Intx,
    /// MSI.
    Msi,
    /// MSI-X.
    Msix,
    /// The device has an error that it cannot recover from.
    Err,
    /// The device is wanted back.
    Req,
}

impl Irq {
    /// All of them, by their index.
    pub const ALL: [Self; IRQS] = [Self::Intx, Self::Msi, Self::Msix, Self::Err, Self::Req];

    /// The one of an index.
    pub fn from_index(index: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(index).ok()?).copied()
    }

    /// Its index.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the client can mask its vectors.
    pub const fn is_maskable(self) -> bool {
        matches!(self, Self::Intx | Self::Msi | Self::Msix)
    }

    /// Whether a vector masks itself when it is triggered.
    pub const fn masks_itself(self) -> bool {
        matches!(self, Self::Intx)
    }
}

//! The numbers that everything is addressed by.
//!
//! Each is a type of its own, so that a slot cannot be passed where a port is meant, and each is
//! made by a fallible constructor where not every bit pattern is a value.

use core::fmt;

/// A value that does not fit the identifier it was meant for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange {
    /// What the value was to be, as a person would call it.
    pub what: &'static str,
    /// The value.
    pub value: u64,
    /// The largest value allowed.
    pub max: u64,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x} is out of range (at most {:#x})", self.what, self.value, self.max)
    }
}

crate::debug_as_display!(OutOfRange);

impl core::error::Error for OutOfRange {}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty), $what:literal, $min:literal ..= $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($int);

        impl $name {
            /// The largest value.
            pub const MAX: $name = $name($max);

            /// Checks the value.
            ///
            /// # Errors
            ///
            /// When it is outside the range that the type's documentation names.
            #[allow(unused_comparisons, clippy::absurd_extreme_comparisons, clippy::manual_range_contains)]
            pub const fn new(value: $int) -> Result<Self, OutOfRange> {
                if value < $min || value > $max {
                    return Err(OutOfRange { what: $what, value: value as u64, max: $max });
                }
                Ok(Self(value))
            }

            /// The number.
            pub const fn get(self) -> $int {
                self.0
            }
        }

        impl TryFrom<$int> for $name {
            type Error = OutOfRange;

            fn try_from(value: $int) -> Result<Self, OutOfRange> {
                Self::new(value)
            }
        }

        impl From<$name> for $int {
            fn from(id: $name) -> $int {
                id.0
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = <$int>::deserialize(deserializer)?;
                Self::new(value).map_err(serde::de::Error::custom)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// A PCI bus number, 0 to 255.
    Bus(u8), "bus number", 0 ..= 0xff
);
id!(
    /// A PCI device number, 0 to 31.
    Device(u8), "device number", 0 ..= 31
);
id!(
    /// A PCI function number, 0 to 7 (0 to 255 with ARI, which uses [`Bdf`] directly).
    Function(u8), "function number", 0 ..= 7
);
id!(
    /// A request tag, 0 to 1023 (10-bit tags, PCIe 4.0 section 2.2.6.2).
    Tag(u16), "tag", 0 ..= 1023
);
id!(
    /// A proxy's node number in the fabric. 0 is "none yet" and 0xffff is reserved; a
    /// [`NodeId`] is neither. The manager gives them out and never uses one twice.
    NodeId(u16), "node number", 1 ..= 0xfffe
);
id!(
    /// A box's slot number. 0 is the host's own end of a binding (DESIGN: "the host's slot
    /// number is 0"); boxes number theirs from 1.
    SlotId(u8), "slot number", 0 ..= 0xff
);
id!(
    /// A function in a slot: an ARI-style function number, 0 to 255, carried in 16 bits.
    SlotFunction(u16), "slot function", 0 ..= 0xff
);
id!(
    /// One of the paths between two nodes.
    PathId(u8), "path number", 0 ..= 7
);
id!(
    /// A downstream port of the virtual switch, 0 to 31.
    PortId(u8), "downstream port number", 0 ..= 31
);

impl Tag {
    /// The tag with bits 7:0 cleared: what a posted write with a steering tag has left.
    pub const fn without_low_byte(self) -> Self {
        Self(self.0 & 0x300)
    }
}

impl SlotId {
    /// The host's end of every binding.
    pub const HOST: SlotId = SlotId(0);
}

impl SlotFunction {
    /// Function 0.
    pub const ZERO: SlotFunction = SlotFunction(0);
}

impl PathId {
    /// The first path.
    pub const ZERO: PathId = PathId(0);
}

/// A routing ID: bus, device and function, as requester and completer IDs carry it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bdf(u16);

impl Bdf {
    /// Puts an ID together.
    pub const fn new(bus: Bus, device: Device, function: Function) -> Self {
        Self((bus.0 as u16) << 8 | (device.0 as u16) << 3 | function.0 as u16)
    }

    /// From the 16 bits of a header.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// As the 16 bits of a header.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The bus number.
    pub const fn bus(self) -> Bus {
        Bus((self.0 >> 8) as u8)
    }

    /// The device number (without ARI).
    pub const fn device(self) -> Device {
        Device((self.0 >> 3) as u8 & 0x1f)
    }

    /// The function number (without ARI).
    pub const fn function(self) -> Function {
        Function(self.0 as u8 & 7)
    }

    /// Device and function number in one byte: behind a downstream port, where the device number is
    /// 0 or part of the function's number (ARI, PCIe 5.0 section 6.13), the function's number.
    #[inline(always)]
    pub const fn routed_function(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Debug for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bdf({self})")
    }
}

impl fmt::Display for Bdf {
    /// As `lspci` writes it: `3a:00.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{:x}", self.bus().0, self.device().0, self.function().0)
    }
}

/// The number of one binding of a slot's function to a host: an 8-bit generation, which goes up
/// when the manager is restored from a backup, and a 24-bit counter, counted for each box, slot
/// and function. It only grows; both ends discard what does not match. A counter that runs out
/// retires the function until the generation goes up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u32);

impl Epoch {
    /// The largest counter.
    pub const MAX_COUNTER: u32 = 0x00ff_ffff;

    /// From generation and counter.
    ///
    /// # Errors
    ///
    /// When the counter is 0 (no binding has it) or needs more than 24 bits.
    pub const fn new(generation: u8, counter: u32) -> Result<Self, OutOfRange> {
        if counter == 0 || counter > Self::MAX_COUNTER {
            return Err(OutOfRange {
                what: "epoch counter",
                value: counter as u64,
                max: Self::MAX_COUNTER as u64,
            });
        }
        Ok(Self((generation as u32) << 24 | counter))
    }

    /// From the 32 bits of a record.
    ///
    /// # Errors
    ///
    /// When the counter's 24 bits are 0.
    pub const fn from_bits(bits: u32) -> Result<Self, OutOfRange> {
        Self::new((bits >> 24) as u8, bits & Self::MAX_COUNTER)
    }

    /// As the 32 bits of a record. They compare as epochs do.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The generation.
    pub const fn generation(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// The counter.
    pub const fn counter(self) -> u32 {
        self.0 & Self::MAX_COUNTER
    }

    /// The next epoch of the same generation, or `None` when the counter has run out.
    pub const fn next(self) -> Option<Self> {
        match Self::new(self.generation(), self.counter() + 1) {
            Ok(epoch) => Some(epoch),
            Err(_) => None,
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Epoch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Epoch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bits = u32::deserialize(deserializer)?;
        Self::from_bits(bits).map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({self})")
    }
}

impl fmt::Display for Epoch {
    /// `generation.counter`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation(), self.counter())
    }
}

/// What names one binding between two nodes: the box's slot, the function in it and the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BindingKey {
    /// The box's slot (never [`SlotId::HOST`]).
    pub slot: SlotId,
    /// The function in that slot.
    pub function: SlotFunction,
    /// The epoch of this binding.
    pub epoch: Epoch,
}

impl fmt::Display for BindingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} function {} epoch {}", self.slot, self.function, self.epoch)
    }
}

/// The entry of an outstanding table that a non-posted request, and later its completions,
/// belong to. The generation tells a reused entry from its earlier life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OutstandingRef {
    /// Index into the table of the node that sent the request.
    pub index: u16,
    /// Generation of that entry.
    pub generation: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        assert!(Device::new(31).is_ok());
        assert_eq!(Device::new(32).unwrap_err().max, 31);
        assert!(NodeId::new(0).is_err());
        assert!(NodeId::new(0xffff).is_err());
        assert!(Tag::new(1023).is_ok());
        assert!(Tag::new(1024).is_err());
        assert!(Epoch::new(3, 0).is_err());
        assert!(Epoch::new(3, 0x0100_0000).is_err());
    }

    #[test]
    fn a_bdf_takes_apart_and_prints_as_lspci_does() {
        let bdf = Bdf::new(Bus(0x3a), Device(0x1f), Function(7));
        assert_eq!(bdf.bits(), 0x3aff);
        assert_eq!((bdf.bus().get(), bdf.device().get(), bdf.function().get()), (0x3a, 0x1f, 7));
        assert_eq!(std::format!("{bdf}"), "3a:1f.7");
    }

    #[test]
    fn epochs_only_grow_and_run_out() {
        let last = Epoch::new(1, Epoch::MAX_COUNTER).unwrap();
        assert_eq!(last.next(), None);
        let first = Epoch::new(1, 1).unwrap();
        assert!(first.next().unwrap() > first);
        assert!(Epoch::new(2, 1).unwrap() > last);
        assert_eq!(Epoch::from_bits(last.bits()), Ok(last));
    }
}

//! One register, and what it may hold.

use core::fmt;
use core::marker::PhantomData;

use crate::Bus;

/// What a register holds: 32 bits, with a meaning.
pub trait Value: Copy {
    /// From what was read.
    fn from_bits(bits: u32) -> Self;

    /// As it is written.
    fn bits(self) -> u32;
}

/// It can be read. Sealed: one of the kinds here.
pub trait Readable: sealed::Kind {}

/// It can be written. Sealed: one of the kinds here.
pub trait Writable: sealed::Kind {}

/// Reading is all there is.
#[derive(Clone, Copy, Debug)]
pub struct ReadOnly;

/// Writing is all there is.
#[derive(Clone, Copy, Debug)]
pub struct WriteOnly;

/// What is written is what is read.
#[derive(Clone, Copy, Debug)]
pub struct ReadWrite;

/// It can be read and written, but each write does something of its own (clears what is written
/// as 1, rings a doorbell), so that writing back what was read is no good.
#[derive(Clone, Copy, Debug)]
pub struct ReadWriteEffect;

impl Readable for ReadOnly {}
impl Readable for ReadWrite {}
impl Readable for ReadWriteEffect {}
impl Writable for WriteOnly {}
impl Writable for ReadWrite {}
impl Writable for ReadWriteEffect {}

mod sealed {
    /// Of the kinds of access.
    pub trait Kind {}
    impl Kind for super::ReadOnly {}
    impl Kind for super::WriteOnly {}
    impl Kind for super::ReadWrite {}
    impl Kind for super::ReadWriteEffect {}
}

/// A register that holds `V` and has the accesses of `A`.
pub struct Register<B, V, A> {
    bus: B,
    address: u32,
    kind: PhantomData<fn() -> (V, A)>,
}

impl<B, V, A> Register<B, V, A> {
    #[inline(always)]
    pub(crate) const fn at(bus: B, address: u32) -> Self {
        Self { bus, address, kind: PhantomData }
    }

    /// Where it is, in bytes from the bus's origin.
    pub const fn address(&self) -> u32 {
        self.address
    }
}

impl<B: Bus, V: Value, A: Readable> Register<B, V, A> {
    /// What it holds.
    #[inline(always)]
    pub fn read(&self) -> V {
        V::from_bits(self.bus.read32(self.address))
    }
}

impl<B: Bus, V: Value, A: Writable> Register<B, V, A> {
    /// Gives it a new value.
    #[inline(always)]
    pub fn write(&self, value: V) {
        self.bus.write32(self.address, value.bits());
    }
}

impl<B: Bus, V: Value> Register<B, V, ReadWrite> {
    /// Reads it, changes what was read, and writes that: two accesses. Nobody else may write the
    /// register in between, an interrupt handler for one.
    #[inline(always)]
    pub fn modify(&self, change: impl FnOnce(V) -> V) {
        self.write(change(self.read()));
    }
}

/// A number of `WIDTH` bits, 1 to 31, as a field holds it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bits<const WIDTH: u32>(u32);

impl<const WIDTH: u32> Bits<WIDTH> {
    /// The largest one.
    pub const MAX: Self = {
        assert!(WIDTH >= 1 && WIDTH <= 31);
        Self((1 << WIDTH) - 1)
    };

    /// The number, if it has no more bits.
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The lowest `WIDTH` bits of a number.
    #[inline(always)]
    pub const fn low_of(number: u32) -> Self {
        Self(number & Self::MAX.0)
    }

    /// The number.
    #[inline(always)]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const WIDTH: u32> fmt::Debug for Bits<WIDTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One register of the map, in words, for models of the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterInfo {
    /// Its path from the top, such as `mac[0].receive_fabric.tail`.
    pub path: &'static str,
    /// Where it is, in bytes from the map's beginning.
    pub address: u32,
    /// What firmware may do.
    pub access: Access,
    /// What it holds after a reset.
    pub reset: u32,
    /// Bits that the board gives, and which `reset` does not tell.
    pub from_board: u32,
}

/// What firmware may do with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// See [`ReadOnly`].
    ReadOnly,
    /// See [`WriteOnly`].
    WriteOnly,
    /// See [`ReadWrite`].
    ReadWrite,
    /// See [`ReadWriteEffect`].
    ReadWriteEffect,
}

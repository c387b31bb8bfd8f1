//! Pointers that a caller in C gives.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;

use crate::status::{Answer, Status};

/// Where an answer goes. Only a caller in C makes one: by the driver's interface, it is null or
/// points to room for a `T`.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Writes the answer. Refuses null.
    pub(crate) fn put(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller's room for a `T`; it may lie anywhere.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Where no answer goes.
    pub(crate) fn unwanted() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Writes the answer where one is wanted.
    pub(crate) fn put_if_wanted(self, value: T) {
        if !self.0.is_null() {
            self.put(value).expect("it is not null");
        }
    }

    /// Writes several answers one after the other, at most `limit`.
    pub(crate) fn put_all(self, values: impl IntoIterator<Item = T>, limit: usize) {
        if self.0.is_null() {
            return;
        }
        for (index, value) in values.into_iter().take(limit).enumerate() {
            // SAFETY: by the driver's interface the room is for as many as the caller says.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
    }

    /// The same place, for an answer of another type: the caller's room depends on what it asks.
    pub(crate) fn of<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Whether an answer is wanted.
    pub(crate) fn is_wanted(self) -> bool {
        !self.0.is_null()
    }
}

impl<T: Copy> Out<T> {
    /// What is there before the answer, of functions that ask and tell with one parameter.
    pub(crate) fn get(self) -> Result<T, Status> {
        In(self.0.cast_const()).get()
    }
}

/// Something that a function reads, or the first of several. Only a caller in C makes one: by the
/// driver's interface, it is null or points to as many as the function reads.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The first one. Refuses null.
    pub(crate) fn get(self) -> Result<T, Status> {
        self.at(0)
    }

    /// One of several. Refuses null.
    pub(crate) fn at(self, index: usize) -> Result<T, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so the caller's, who says that there are more than `index`.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    /// The first `count`. Refuses null, except where none are wanted.
    pub(crate) fn all(self, count: usize) -> Result<Vec<T>, Status> {
        (0..count).map(|index| self.at(index)).collect()
    }

    /// Whether it is null.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Nothing to read.
    pub(crate) fn null() -> Self {
        Self(std::ptr::null())
    }

    /// What [`In::address`] gave, to be given back to the caller that it came from.
    pub(crate) fn from_address(address: u64) -> Self {
        Self(address as *const T)
    }

    /// Its address.
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }
}

/// A name. Only a caller in C makes one: null, or ended by a zero byte.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Name(*const c_char);

impl Name {
    /// The name. Refuses null and what is no UTF-8.
    pub(crate) fn get(self) -> Result<String, Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so ended by a zero byte.
        let name = unsafe { CStr::from_ptr(self.0) };
        name.to_str().map(str::to_owned).map_err(|_| Status::INVALID_VALUE)
    }
}

/// An address that is only passed on. Null is one too.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opaque(u64, PhantomData<*mut ()>);

// SAFETY: it is only a number here; what is there is the business of whoever gets it.
unsafe impl Send for Opaque {}

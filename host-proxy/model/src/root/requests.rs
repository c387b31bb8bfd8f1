//! Requests of the host: configuration, memory and I/O space.

use super::tags::{Expect, Failure};
use super::{HOST_ID, RootComplex};
use crate::error::{Access, AccessError};
use crate::port::TlpPort;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tlp_codec::ids::{Bdf, Tag};
use tlp_codec::tlp::{ByteEnables, Kind, Repr};

/// The bus on the root port's link. Requests to it are of type 0, to those behind it of type 1.
pub const FIRST_BUS: u8 = 1;

/// How long a tag rests after a timeout, in completion timeouts. What is below completes
/// everything in less than one (DESIGN: the host never hangs).
const QUARANTINE: u32 = 4;

/// TLPs that may lie before a completion when its time is over: they are looked through before a
/// request counts as timed out.
const LAST_LOOK: usize = 4096;

/// Between two tries of a configuration request that got retry status.
const FIRST_RETRY: Duration = Duration::from_millis(1);
const LAST_RETRY: Duration = Duration::from_millis(100);

/// Register 0, for which a device that is not ready answers with retry status.
const VENDOR_ID: u16 = 0;

impl<P: TlpPort> RootComplex<P> {
    /// Reads the doubleword of configuration space that holds `register`. A device that asks for
    /// a retry is asked again until the time for that is over.
    ///
    /// # Errors
    ///
    /// How the request ended, if not well.
    pub fn config_read(&mut self, bdf: Bdf, register: u16) -> Result<u32, AccessError> {
        let access = Access::Config { bdf, register, write: false };
        check_register(bdf, register, access)?;
        self.with_retries(access, |root, tag| {
            Repr::new(Kind::ConfigRead {
                type1: bdf.bus().get() != FIRST_BUS,
                requester: root,
                tag,
                destination: bdf,
                register: register & !3,
                first_be: 0xf,
            })
        })
    }

    /// Writes `len` bytes (1, 2 or 4, not over a doubleword's end) of configuration space.
    ///
    /// # Errors
    ///
    /// As [`RootComplex::config_read`].
    pub fn config_write(
        &mut self,
        bdf: Bdf,
        register: u16,
        len: usize,
        value: u32,
    ) -> Result<(), AccessError> {
        let access = Access::Config { bdf, register, write: true };
        check_register(bdf, register, access)?;
        let at = register & 3;
        if !matches!(len, 1 | 2 | 4) || usize::from(at) + len > 4 {
            return Err(AccessError::Invalid(access));
        }
        let data = (value << (8 * at)).to_le_bytes();
        let first_be = ((1_u8 << len) - 1) << at;
        self.with_retries(access, |root, tag| {
            Repr::new(Kind::ConfigWrite {
                type1: bdf.bus().get() != FIRST_BUS,
                requester: root,
                tag,
                destination: bdf,
                register: register & !3,
                first_be,
                data: &data,
            })
        })
        .map(drop)
    }

    /// Vendor and device ID of a function, `None` when there is none. A device that is not ready
    /// is asked until the time for that is over.
    ///
    /// # Errors
    ///
    /// Anything but "nobody there".
    pub fn probe(&mut self, bdf: Bdf) -> Result<Option<(u16, u16)>, AccessError> {
        match self.config_read(bdf, VENDOR_ID) {
            Ok(u32::MAX) => Ok(None),
            Ok(ids) => Ok(Some((ids as u16, (ids >> 16) as u16))),
            Err(error) if error.is_unsupported() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn with_retries<'a>(
        &mut self,
        access: Access,
        request: impl Fn(Bdf, Tag) -> Repr<'a>,
    ) -> Result<u32, AccessError> {
        let start = Instant::now();
        let mut pause = FIRST_RETRY;
        loop {
            let write = matches!(access, Access::Config { write: true, .. });
            let expect = if write { Expect::Nothing } else { Expect::Dword };
            let tag = self.issue(access, expect, &request)?;
            self.counters.config_requests += 1;
            match self.finish(access, tag) {
                Err(AccessError::ConfigRetry(access)) => {
                    let now = Instant::now();
                    if now.duration_since(start) >= self.config.retry_timeout {
                        return Err(AccessError::ConfigRetry(access));
                    }
                    self.counters.config_retries += 1;
                    self.idle(now + pause)?;
                    pause = (pause * 2).min(LAST_RETRY);
                }
                Err(error) => return Err(error),
                Ok(data) => return Ok(dword(&data)),
            }
        }
    }

    /// Reads memory space into `buf`, split into requests that PCIe allows, several of them
    /// outstanding. What could not be read is all ones.
    ///
    /// # Errors
    ///
    /// How the first request that failed ended. The others are done all the same, but after a
    /// timeout no further ones are made: a device without answers costs one timeout, not many.
    pub fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), AccessError> {
        let whole = Access::Memory { address, len: buf.len() };
        if wraps_around(address, buf.len()) {
            return Err(AccessError::Invalid(whole));
        }
        let mut in_flight: VecDeque<(Tag, Access, usize, usize)> = VecDeque::new();
        let (mut asked, mut first_error) = (0, None);
        loop {
            if matches!(first_error, Some(AccessError::Timeout(_) | AccessError::NoTags(_))) {
                buf[asked..].fill(0xff);
                asked = buf.len();
            }
            while asked < buf.len() && in_flight.len() < self.config.reads_outstanding.max(1) {
                let at = address + asked as u64;
                let len = chunk(at, buf.len() - asked, self.config.max_read_request.into());
                let access = Access::Memory { address: at, len };
                match self.issue_read(access, at, len) {
                    Ok(tag) => in_flight.push_back((tag, access, asked, len)),
                    // Whatever is outstanding gives tags back.
                    Err(AccessError::NoTags(_)) if !in_flight.is_empty() => break,
                    Err(AccessError::Port(error)) => return Err(error.into()),
                    Err(error) => {
                        first_error.get_or_insert(error);
                        break;
                    }
                }
                asked += len;
            }
            let Some((tag, access, at, len)) = in_flight.pop_front() else { break };
            match self.finish(access, tag) {
                Ok(data) => buf[at..at + len].copy_from_slice(&data),
                Err(AccessError::Port(error)) => return Err(error.into()),
                Err(error) => {
                    buf[at..at + len].fill(0xff);
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn issue_read(&mut self, access: Access, at: u64, len: usize) -> Result<Tag, AccessError> {
        let (enables, length_dw) = ByteEnables::for_range(at, len);
        let expect = Expect::Memory { address: at, len };
        let tag = self.issue(access, expect, |requester, tag| {
            Repr::new(Kind::MemRead {
                requester,
                tag,
                address: at & !3,
                length_dw,
                enables,
                hint: None,
                locked: false,
            })
        })?;
        self.counters.reads += 1;
        Ok(tag)
    }

    /// Reads the same doubleword of memory space `reads` times, `outstanding` of them at a time, and
    /// gives how long each took, from its request to when it and all before it were answered.
    ///
    /// # Errors
    ///
    /// [`AccessError::Invalid`] when `address` is no multiple of 4; else how the first that failed
    /// ended. No further ones are made then, and what is outstanding is waited for.
    pub fn read_again(
        &mut self,
        address: u64,
        reads: usize,
        outstanding: usize,
    ) -> Result<Vec<Duration>, AccessError> {
        let access = Access::Memory { address, len: 4 };
        if !address.is_multiple_of(4) {
            return Err(AccessError::Invalid(access));
        }
        let mut in_flight = VecDeque::with_capacity(outstanding);
        let mut times = Vec::with_capacity(reads);
        let (mut left, mut first_error) = (reads, None);
        loop {
            let done = if left > 0 && in_flight.len() < outstanding.max(1) {
                left -= 1;
                let begun = Instant::now();
                let issued = self.issue_read(access, address, 4);
                issued.map(|tag| in_flight.push_back((tag, begun)))
            } else {
                let Some((tag, begun)) = in_flight.pop_front() else { break };
                self.finish(access, tag).map(|_| times.push(begun.elapsed()))
            };
            match done {
                Ok(()) => {}
                Err(AccessError::Port(error)) => return Err(error.into()),
                Err(error) => {
                    left = 0;
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(times), Err)
    }

    /// Writes memory space, split into TLPs of at most `max_payload` bytes. The writes are posted:
    /// success means that they are on their way.
    ///
    /// # Errors
    ///
    /// The port's, or a range that wraps around.
    pub fn write(
        &mut self,
        address: u64,
        data: &[u8],
        max_payload: usize,
    ) -> Result<(), AccessError> {
        let access = Access::Memory { address, len: data.len() };
        if wraps_around(address, data.len()) {
            return Err(AccessError::Invalid(access));
        }
        let mut dwords = Vec::with_capacity(max_payload + 8);
        let mut done = 0;
        while done < data.len() {
            let at = address + done as u64;
            let len = chunk(at, data.len() - done, max_payload);
            let (enables, length_dw) = ByteEnables::for_range(at, len);
            dwords.clear();
            dwords.resize((at & 3) as usize, 0);
            dwords.extend_from_slice(&data[done..done + len]);
            dwords.resize(usize::from(length_dw) * 4, 0);
            self.send(&Repr::new(Kind::MemWrite {
                requester: HOST_ID,
                tag: Tag::new(0).expect("0 is a tag"),
                address: at & !3,
                enables,
                hint: None,
                data: &dwords,
            }))?;
            self.counters.writes += 1;
            done += len;
        }
        Ok(())
    }

    /// Reads `len` bytes (1, 2 or 4, not over a doubleword's end) of I/O space.
    ///
    /// # Errors
    ///
    /// How the request ended, if not well.
    pub fn io_read(&mut self, port: u32, len: usize) -> Result<u32, AccessError> {
        let access = Access::Io { port, write: false };
        let first_be = io_enables(port, len, access)?;
        let tag = self.issue(access, Expect::Dword, |requester, tag| {
            Repr::new(Kind::IoRead { requester, tag, address: port & !3, first_be })
        })?;
        self.counters.io_requests += 1;
        let value = dword(&self.finish(access, tag)?);
        let value = value >> (8 * (port & 3));
        Ok(if len == 4 { value } else { value & ((1 << (8 * len)) - 1) })
    }

    /// Writes `len` bytes of I/O space.
    ///
    /// # Errors
    ///
    /// How the request ended, if not well.
    pub fn io_write(&mut self, port: u32, len: usize, value: u32) -> Result<(), AccessError> {
        let access = Access::Io { port, write: true };
        let first_be = io_enables(port, len, access)?;
        let data = (value << (8 * (port & 3))).to_le_bytes();
        let tag = self.issue(access, Expect::Nothing, |requester, tag| {
            Repr::new(Kind::IoWrite { requester, tag, address: port & !3, first_be, data: &data })
        })?;
        self.counters.io_requests += 1;
        self.finish(access, tag).map(drop)
    }

    /// Sends a non-posted request under a tag of its own.
    fn issue<'a>(
        &mut self,
        access: Access,
        expect: Expect,
        request: impl Fn(Bdf, Tag) -> Repr<'a>,
    ) -> Result<Tag, AccessError> {
        let now = Instant::now();
        let deadline = now + self.config.completion_timeout;
        let tag = self.tags.open(expect, now, deadline).ok_or(AccessError::NoTags(access))?;
        if let Err(error) = self.send(&request(HOST_ID, tag)) {
            self.tags.cancel(tag);
            return Err(error.into());
        }
        Ok(tag)
    }

    /// Waits for a request's end, serving what devices ask meanwhile.
    fn finish(&mut self, access: Access, tag: Tag) -> Result<Vec<u8>, AccessError> {
        let mut left = LAST_LOOK;
        loop {
            if let Some(result) = self.tags.take(tag) {
                return result.map_err(|failure| failure.of(access));
            }
            let deadline = self.tags.deadline(tag).expect("the tag is pending");
            let late = Instant::now() >= deadline;
            let came = self.pump(deadline)?;
            // Who was not running while the answer came has not been kept waiting.
            if late && (!came || left == 0) {
                self.counters.timeouts += 1;
                let until = Instant::now() + self.config.completion_timeout * QUARANTINE;
                self.tags.time_out(tag, until);
                return Err(Failure::Timeout.of(access));
            }
            left -= usize::from(late);
        }
    }

    /// Requests of the host that have not ended.
    pub fn outstanding(&self) -> usize {
        self.tags.pending()
    }
}

impl Failure {
    fn of(self, access: Access) -> AccessError {
        match self {
            // Retry status means something for configuration requests only.
            Self::Retry if !matches!(access, Access::Config { .. }) => {
                AccessError::Malformed(access)
            }
            Self::Unsupported => AccessError::UnsupportedRequest(access),
            Self::Abort => AccessError::CompleterAbort(access),
            Self::Retry => AccessError::ConfigRetry(access),
            Self::Poisoned => AccessError::Poisoned(access),
            Self::Malformed => AccessError::Malformed(access),
            Self::Timeout => AccessError::Timeout(access),
        }
    }
}

fn check_register(bdf: Bdf, register: u16, access: Access) -> Result<(), AccessError> {
    let there = bdf.bus().get() >= FIRST_BUS && register < 4096;
    if there { Ok(()) } else { Err(AccessError::Invalid(access)) }
}

fn io_enables(port: u32, len: usize, access: Access) -> Result<u8, AccessError> {
    let at = port & 3;
    if !matches!(len, 1 | 2 | 4) || at as usize + len > 4 {
        return Err(AccessError::Invalid(access));
    }
    Ok(((1_u8 << len) - 1) << at)
}

fn dword(data: &[u8]) -> u32 {
    data.try_into().map_or(0, u32::from_le_bytes)
}

/// Whether a range has a byte behind the last one that there is.
fn wraps_around(address: u64, len: usize) -> bool {
    address.checked_add(len.saturating_sub(1) as u64).is_none()
}

/// How much of a transfer one TLP can have: up to the next multiple of `max` (a power of two,
/// which keeps it from crossing 4 KB, and makes all but the first start on such a boundary).
fn chunk(address: u64, left: usize, max: usize) -> usize {
    let to_boundary = max - (address % max as u64) as usize;
    left.min(to_boundary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_never_cross_what_they_must_not(at: u64, left in 1_usize..10_000, power in 7_u32..=12) {
            let max = 1 << power;
            let len = chunk(at, left, max);
            prop_assert!(len >= 1 && len <= left);
            prop_assert_eq!(at / 4096, (at + (len as u64 - 1)) / 4096);
            let dwords = (at % 4) as usize + len;
            prop_assert!(dwords.next_multiple_of(4) <= max);
        }
    }
}

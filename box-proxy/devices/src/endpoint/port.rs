//! What a function does through its endpoint: DMA, interrupts, errors.

use super::config::{ConfigSpace, Depth};
use super::counters::Counters;
use super::errors::{self, Advisory, Fault};
use super::interrupts::Interrupts;
use super::layout::Layout;
use super::outbound::{CompletionQueue, Leaving, PostedQueue, VALID};
use super::registers::*;
use super::requester::{DmaError, MAX_TAGS, ReadDone, Requester};
use super::settings::Settings;
use crate::device::Classes;
use std::time::Duration;
use tlp_codec::ids::{Bdf, Bus, Device as DeviceNumber, Function as FunctionNumber};
use tlp_codec::tlp::{Attributes, Class, Kind, MsgCode, MsgRouting, Repr};

/// Why a DMA was not taken. Nothing of it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The queue is full; it empties as TLPs are polled.
    Full,
    /// Bus Master Enable is 0, or the function is not in D0.
    BusMasterOff,
}

/// What a DMA carries, which decides its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// Queue entries, flags, descriptors: strictly ordered, snooped.
    Control,
    /// Bulk data, about which something of the other kind tells afterwards: relaxed ordering
    /// where Device Control allows it, no snoop where that and the layout do.
    Data,
}

/// The endpoint as its function sees it.
pub struct Port {
    pub(super) layout: Layout,
    pub(super) config: ConfigSpace,
    pub(super) settings: Settings,
    pub(super) interrupts: Interrupts,
    pub(super) requester: Requester,
    pub(super) posted: PostedQueue,
    pub(super) completions: CompletionQueue,
    pub(super) counters: Counters,
    /// Bus and device number as the last configuration write had them.
    pub(super) id: Bdf,
    order: u64,
    /// The device's own limit of a write, in bytes.
    max_write: usize,
}

/// Largest payload that there is (PCIe 5.0 section 7.5.3.3), in bytes.
const MAX_PAYLOAD: usize = 4096;

impl Port {
    pub(super) fn new(layout: Layout) -> Self {
        let config = layout.config_space();
        Self {
            settings: Settings::decode(&config, &layout),
            config,
            interrupts: Interrupts::new(layout.msix, layout.msi),
            requester: Requester::new(layout.tags, layout.max_read_request.into()),
            posted: PostedQueue::new(),
            completions: CompletionQueue::new(),
            counters: Counters::default(),
            id: function_0(0, 0),
            order: 0,
            max_write: MAX_PAYLOAD,
            layout,
        }
    }

    /// Reads `len` bytes of host memory. [`Function::read_done`](super::Function::read_done) is
    /// called once with `token` when all of them have come or one request failed, except after a
    /// reset or [`cancel_reads`](Port::cancel_reads). Requests are split at
    /// Max_Read_Request_Size, the device's own limit and 4 KB. Addresses go around at 2^64.
    ///
    /// # Errors
    ///
    /// [`Refused`] says why it was not taken.
    ///
    /// # Panics
    ///
    /// When `len` is 0.
    pub fn dma_read(
        &mut self,
        address: u64,
        len: usize,
        token: u64,
        traffic: Traffic,
    ) -> Result<(), Refused> {
        assert!(len > 0, "a DMA read of nothing");
        self.check_bus_master()?;
        if !self.requester.has_room() {
            return Err(Refused::Full);
        }
        let order = self.next_order();
        self.requester.push(order, address, len, token, traffic);
        if self.requester.is_out_of_tags(&self.settings) {
            self.requester.fail_all(DmaError::NoTags);
        }
        Ok(())
    }

    /// Writes host memory. Writes, interrupts and completions leave in the order in which they
    /// are handed over. Split at Max_Payload_Size and 4 KB.
    ///
    /// # Errors
    ///
    /// [`Refused`] says why it was not taken.
    ///
    /// # Panics
    ///
    /// When there is no data.
    pub fn dma_write(
        &mut self,
        address: u64,
        data: impl Into<Vec<u8>>,
        traffic: Traffic,
    ) -> Result<(), Refused> {
        self.check_bus_master()?;
        let data = data.into();
        assert!(!data.is_empty(), "a DMA write of nothing");
        if !self.posted.has_room(data.len()) {
            return Err(Refused::Full);
        }
        let order = self.next_order();
        self.posted.push_write(order, address, data, self.attributes(traffic));
        Ok(())
    }

    /// Whether a write of `len` bytes would be taken now.
    ///
    /// # Errors
    ///
    /// [`Refused`] says why not.
    pub fn check_write(&self, len: usize) -> Result<(), Refused> {
        self.check_bus_master()?;
        if self.posted.has_room(len) { Ok(()) } else { Err(Refused::Full) }
    }

    /// Bytes of writes that wait to be sent.
    pub fn write_backlog(&self) -> usize {
        self.posted.bytes()
    }

    /// TLPs that a write of `len` bytes to `address` is sent as.
    pub fn write_tlps(&self, address: u64, len: usize) -> u64 {
        let most = self.max_write();
        ((address % most as u64) as usize + len).div_ceil(most) as u64
    }

    /// The last write handed over, to be asked about with [`has_left`](Port::has_left).
    pub fn write_mark(&self) -> u64 {
        self.order
    }

    /// Whether every write up to that mark has been sent or dropped.
    pub fn has_left(&self, mark: u64) -> bool {
        self.posted.next_order(Leaving::All).is_none_or(|order| order > mark)
    }

    /// Forgets the writes that wait for Bus Master Enable, if any do, and counts them: what they were
    /// for is over, and host memory may be somebody else's when they could leave.
    pub fn drop_held_writes(&mut self) {
        if !self.settings.bus_master {
            self.drop_writes();
        }
    }

    /// The same of all writes that wait, as at a reset of the function's own.
    pub fn drop_writes(&mut self) {
        self.counters.writes_dropped += self.posted.drop_writes();
    }

    /// Forgets reads whose token `which` says yes to: nothing more is sent for them and
    /// [`Function::read_done`](super::Function::read_done) is not called.
    pub fn cancel_reads(&mut self, which: impl FnMut(u64) -> bool) {
        self.requester.cancel(which);
    }

    /// Raises an interrupt vector, MSI-X or MSI, behind the writes handed over so far. Raised
    /// again before its message was sent it stays one message. Lost and counted while both are
    /// off.
    pub fn interrupt(&mut self, vector: u16) {
        if self.interrupts.raise(&self.config, vector) {
            self.send_interrupts();
        } else {
            self.counters.interrupts_lost += 1;
        }
    }

    /// Whether DMA is allowed: Bus Master Enable, and power state D0.
    pub fn bus_master(&self) -> bool {
        self.settings.bus_master
    }

    /// Whether MSI-X is enabled.
    pub fn msix_enabled(&self) -> bool {
        self.layout.msix.is_some() && self.config.get16(MSIX_CONTROL) & MSIX_ENABLE != 0
    }

    /// Largest payload of a write in bytes: the smaller of Device Control's and the device's own.
    pub fn max_write(&self) -> usize {
        self.settings.max_payload.min(self.max_write)
    }

    /// Sets the device's own limit of a write, in bytes.
    ///
    /// # Panics
    ///
    /// When it is not a power of two from 64 to 4096.
    pub fn set_max_write(&mut self, bytes: usize) {
        assert!(bytes.is_power_of_two() && (64..=MAX_PAYLOAD).contains(&bytes), "{bytes} bytes");
        self.max_write = bytes;
    }

    /// Largest read request in bytes: the smaller of Device Control's and the device's own.
    pub fn max_read_request(&self) -> usize {
        self.settings.max_read_request.min(self.requester.max_read)
    }

    /// Sets the device's own limit of a read request, in bytes.
    ///
    /// # Panics
    ///
    /// When it is not a power of two from 64 to 4096.
    pub fn set_max_read_request(&mut self, bytes: usize) {
        assert!(bytes.is_power_of_two() && (64..=4096).contains(&bytes), "{bytes} bytes");
        self.requester.max_read = bytes;
    }

    /// Sets how many tags reads may use.
    ///
    /// # Panics
    ///
    /// When it is 0 or above 768.
    pub fn set_tags(&mut self, tags: u16) {
        assert!((1..=MAX_TAGS).contains(&tags), "{tags} tags");
        self.requester.tag_limit = tags;
    }

    /// Read requests outstanding.
    pub fn reads_in_flight(&self) -> u16 {
        self.requester.outstanding()
    }

    /// How the device is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn attributes(&self, traffic: Traffic) -> Attributes {
        match traffic {
            Traffic::Control => Attributes::default(),
            Traffic::Data => {
                let allowed = self.settings.attributes;
                Attributes { no_snoop: allowed.no_snoop && self.layout.no_snoop_data, ..allowed }
            }
        }
    }

    fn check_bus_master(&self) -> Result<(), Refused> {
        if self.settings.bus_master { Ok(()) } else { Err(Refused::BusMasterOff) }
    }

    /// The next place in the order of everything that is sent.
    pub(super) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Turns pending interrupts into posted writes, as far as there is room and permission.
    pub(super) fn send_interrupts(&mut self) {
        while self.settings.bus_master && self.posted.has_room(4) {
            let Some(message) = self.interrupts.take(&self.config) else { break };
            let order = self.next_order();
            self.posted.push_interrupt(order, &message);
            self.counters.interrupts_sent += 1;
        }
    }

    /// Records an error and sends the message about it.
    pub(super) fn fault(&mut self, fault: Fault, advisory: Advisory, header: Option<&[u8]>) {
        if let Some(code) = errors::report(&mut self.config, fault, advisory, header) {
            self.send_message(MsgRouting::ToRootComplex, code);
        }
    }

    pub(super) fn send_message(&mut self, routing: MsgRouting, code: MsgCode) {
        if self.posted.has_room_for_message() {
            let order = self.next_order();
            self.posted.push_message(order, routing, code);
        } else {
            self.counters.messages_dropped += 1;
        }
    }

    /// Sets bits of the Status register.
    pub(super) fn add_status(&mut self, bits: u16) {
        let status = self.config.get16(STATUS);
        self.config.set16(STATUS, status | bits);
    }

    /// A configuration write of the doubleword at `register`.
    pub(super) fn write_config(&mut self, register: u16, data: [u8; 4], enables: u8) {
        let before = self.config.get16(PM_CONTROL) & PM_STATE;
        self.config.write(register, data, enables);
        let control = self.config.get16(PM_CONTROL);
        // There is no D1 and no D2: such a value is discarded (PCIe 5.0 section 7.5.2.2).
        if ![PM_D0, PM_D3_HOT].contains(&(control & PM_STATE)) {
            self.config.set16(PM_CONTROL, control & !PM_STATE | before);
        }
        self.config_changed();
    }

    /// Decodes what a configuration write changed and acts on it. Without Bus Master Enable writes
    /// wait: PCIe 5.0 section 7.5.1.1.3 forbids to send them, and nobody hands them over again.
    fn config_changed(&mut self) {
        let before = self.settings.bus_master;
        self.settings = Settings::decode(&self.config, &self.layout);
        if before && !self.settings.bus_master {
            for vector in self.posted.take_interrupts() {
                self.interrupts.put_back(vector);
                self.counters.interrupts_sent -= 1;
            }
            self.requester.fail_all(DmaError::BusMasterOff);
        }
        self.send_interrupts();
    }

    /// Brings register bits that mirror the device's state up to date, before they are read.
    pub(super) fn refresh_status(&mut self) {
        let status = self.config.get16(DEVICE_STATUS) & !DEVICE_STATUS_PENDING;
        let pending = self.requester.outstanding() > 0;
        let bit = if pending { DEVICE_STATUS_PENDING } else { 0 };
        self.config.set16(DEVICE_STATUS, status | bit);
        self.interrupts.publish(&mut self.config);
    }

    pub(super) fn reset(&mut self, now: Duration, depth: Depth) {
        let rest = self.settings.completion_timeout.unwrap_or(Duration::from_millis(50));
        let after_flr = depth == Depth::Function;
        self.requester.reset(now, after_flr.then_some(rest));
        self.max_write = MAX_PAYLOAD;
        self.requester.tag_limit = self.layout.tags;
        self.requester.max_read = self.layout.max_read_request.into();
        self.posted.clear();
        if !after_flr {
            // In a function-level reset those to requests before it are still owed, the one to
            // the write that started it among them.
            self.completions.clear();
            self.id = function_0(0, 0);
        }
        self.interrupts.reset();
        self.config.reset(depth);
        self.settings = Settings::decode(&self.config, &self.layout);
    }

    /// Ends reads that waited too long.
    pub(super) fn expire(&mut self, now: Duration) {
        let expired = self.requester.expire(now, &self.settings);
        self.counters.completion_timeouts += u64::from(expired);
        for _ in 0..expired {
            self.fault(Fault::CompletionTimeout, Advisory::No, None);
        }
    }

    pub(super) fn take_done(&mut self) -> Option<ReadDone> {
        self.requester.take_done()
    }

    /// The next TLP, the oldest that may be sent. Posted TLPs may pass the others; reads and
    /// completions wait for older posted ones, also where relaxed ordering would let them pass
    /// (PCIe 5.0 table 2-40); not for writes that wait for Bus Master Enable, as the request that sets
    /// it is completed, too.
    pub(super) fn emit(
        &mut self,
        now: Duration,
        classes: Classes,
        buf: &mut [u8],
    ) -> Option<usize> {
        let leaving = if self.settings.bus_master { Leaving::All } else { Leaving::Messages };
        let posted = self.posted.next_order(leaving);
        let (payload, write) = (self.settings.max_payload, self.max_write());
        if posted.is_some()
            && classes.has(Class::Posted)
            && self.completions.is_empty()
            && self.requester.has_nothing_to_ask()
        {
            // Most often nothing else is there.
            self.counters.tlps_sent += 1;
            return self.posted.emit(leaving, self.id, write, buf);
        }
        let behind = |order: &u64| posted.is_none_or(|p| *order < p);
        let completion = self
            .completions
            .next_order()
            .filter(|order| classes.has(Class::Completion) && behind(order));
        let read = if self.settings.bus_master && classes.has(Class::NonPosted) {
            self.requester.next_order(&self.settings).filter(behind)
        } else {
            None
        };
        let posted = posted.filter(|_| classes.has(Class::Posted));
        let oldest = [posted, completion, read].into_iter().flatten().min()?;
        let length = if Some(oldest) == completion {
            self.completions.emit(self.id, payload, buf)?
        } else if Some(oldest) == posted {
            self.posted.emit(leaving, self.id, write, buf)?
        } else {
            self.emit_read(now, buf)?
        };
        self.counters.tlps_sent += 1;
        Some(length)
    }

    fn emit_read(&mut self, now: Duration, buf: &mut [u8]) -> Option<usize> {
        let request = self.requester.issue(now, &self.settings)?;
        let mut repr = Repr::new(Kind::MemRead {
            requester: self.id,
            tag: request.tag,
            address: request.address,
            length_dw: request.length_dw,
            enables: request.enables,
            hint: None,
            locked: false,
        });
        repr.attributes = self.attributes(request.traffic);
        Some(repr.emit(buf).expect(VALID))
    }
}

/// The ID of function 0 of a device. Numbers out of range do not happen: they come from a `Bdf`.
pub(super) fn function_0(bus: u8, device: u8) -> Bdf {
    let (bus, device) = (Bus::new(bus), DeviceNumber::new(device & 0x1f));
    match (bus, device, FunctionNumber::new(0)) {
        (Ok(bus), Ok(device), Ok(function)) => Bdf::new(bus, device, function),
        _ => unreachable!("masked to their ranges"),
    }
}

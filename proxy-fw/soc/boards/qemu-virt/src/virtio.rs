//! A network interface of the machine.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use soc::board::{Arrived, EthernetMac, MacCounters};
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::{DeviceType, Transport};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

/// Where virtio devices are, and how far apart.
const PLACES: usize = 0x1000_1000;
const APART: usize = 0x1000;

/// Frames in each direction that the interface has at a time.
const QUEUE: usize = 16;

/// Bytes of a buffer: what is in front, virtio's header, and the longest frame; no fewer than the
/// driver takes.
const BUFFER: usize = 1536;

/// Bytes of a buffer that are not used: behind them and virtio's 12 and Ethernet's 14 what a frame
/// carries begins at a word, as a buffer does (`board_common::memory`).
const FRONT: usize = 2;

const _: () = assert!(FRONT + 12 + MAX_FRAME <= BUFFER);

/// The longest frame.
const MAX_FRAME: usize = 1514;

/// The queues of two interfaces, which are two queues each, and the pages of a queue.
const QUEUES: usize = 2 * 2;
const PAGES: usize = QUEUES * 2;

#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; PAGES * PAGE_SIZE]>);

// SAFETY: parts of it are handed out once each.
unsafe impl Sync for Pages {}

/// Bytes of frames, and of the queues that they are in.
pub(crate) const PACKET_POOL: usize = PAGES * PAGE_SIZE + QUEUES * QUEUE * BUFFER;

static POOL: Pages = Pages(UnsafeCell::new([0; PAGES * PAGE_SIZE]));
static USED: AtomicUsize = AtomicUsize::new(0);

struct Machine;

// SAFETY: pages are handed out once, zeroed as they are at the start; addresses are the same for
// the core and for devices, and caches are coherent.
unsafe impl Hal for Machine {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let first = USED.load(Ordering::Relaxed);
        assert!(first + pages <= PAGES, "two interfaces have two queues each");
        USED.store(first + pages, Ordering::Relaxed);
        // SAFETY: inside the pool.
        let start = unsafe { POOL.0.get().cast::<u8>().add(first * PAGE_SIZE) };
        (start as usize as PhysAddr, NonNull::new(start).expect("a static is somewhere"))
    }

    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0
    }

    unsafe fn mmio_phys_to_virt(address: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(address as usize as *mut u8).expect("no device is at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.as_ptr().cast::<u8>() as usize as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}

type Net = VirtIONetRaw<Machine, MmioTransport<'static>, QUEUE>;

/// Buffers of one direction, and which of them a descriptor has.
struct Buffers {
    bytes: Box<[[u8; BUFFER]]>,
    /// By descriptor.
    of: [u8; QUEUE],
}

impl Buffers {
    fn new() -> Self {
        Self { bytes: alloc::vec![[0; BUFFER]; QUEUE].into_boxed_slice(), of: [0; QUEUE] }
    }

    /// What the device is given of a buffer: always the same.
    fn of_number(&mut self, buffer: u8) -> &mut [u8] {
        &mut self.bytes[usize::from(buffer)][FRONT..]
    }
}

/// A network interface.
pub(crate) struct VirtioMac {
    net: Net,
    incoming: Buffers,
    outgoing: Buffers,
    /// Bytes of the header in front of each frame. An outgoing buffer's is written once, since the
    /// device leaves it.
    header: usize,
    /// Buffers of `outgoing` that are free.
    free: heapless::Vec<u8, QUEUE>,
    /// There was no room for a frame when somebody looked.
    lacked: bool,
    counters: MacCounters,
}

impl VirtioMac {
    /// The interface at a place; `None` when none is there.
    pub(crate) fn at(place: usize) -> Option<Self> {
        let header = NonNull::new((PLACES + place * APART) as *mut VirtIOHeader)?;
        // SAFETY: the machine has a virtio-mmio register block at each of its eight places, which
        // nobody else uses.
        let transport = unsafe { MmioTransport::new(header, APART) }.ok()?;
        if transport.device_type() != DeviceType::Network {
            return None;
        }
        let mut mac = Self {
            net: Net::new(transport).ok()?,
            incoming: Buffers::new(),
            outgoing: Buffers::new(),
            header: 0,
            free: (0..QUEUE as u8).collect(),
            lacked: false,
            counters: MacCounters::default(),
        };
        for buffer in 0..QUEUE as u8 {
            mac.offer(buffer);
            let header = mac.net.fill_buffer_header(mac.outgoing.of_number(buffer));
            let Ok(header) = header else { panic!("a buffer is longer than that") };
            mac.header = header;
        }
        Some(mac)
    }

    /// Offers a buffer for a frame to come.
    fn offer(&mut self, buffer: u8) {
        let bytes = self.incoming.of_number(buffer);
        // SAFETY: the buffer is not touched until its descriptor comes back.
        let token = unsafe { self.net.receive_begin(bytes) };
        // Not with expect, here and below: that takes what turns names into text.
        let Ok(token) = token else { panic!("there are as many descriptors as buffers") };
        self.incoming.of[usize::from(token)] = buffer;
    }

    fn reclaim(&mut self) {
        while let Some(token) = self.net.poll_transmit() {
            let buffer = self.outgoing.of[usize::from(token)];
            let bytes = self.outgoing.of_number(buffer);
            // SAFETY: it is the buffer that was given with this descriptor; of its length only the
            // address counts here.
            let sent = unsafe { self.net.transmit_complete(token, bytes) };
            assert!(sent.is_ok(), "the device is done with it");
            let pushed = self.free.push(buffer);
            assert!(pushed.is_ok(), "there are no more buffers");
        }
    }

    /// Whether a frame came, or there is room again where somebody found none for one to be sent.
    pub(crate) fn is_wanted(&mut self) -> bool {
        if self.lacked && self.net.poll_transmit().is_some() {
            self.lacked = false;
            return true;
        }
        self.has_arrived()
    }

    pub(crate) fn acknowledge_interrupt(&mut self) {
        self.net.ack_interrupt();
    }
}

impl EthernetMac for VirtioMac {
    fn address(&self) -> [u8; 6] {
        self.net.mac_address()
    }

    fn link_is_up(&mut self) -> bool {
        true
    }

    fn max_frame(&self) -> usize {
        MAX_FRAME
    }

    fn has_arrived(&mut self) -> bool {
        self.net.poll_receive().is_some()
    }

    fn receive<R>(&mut self, sink: impl FnOnce(&mut Arrived<'_>) -> R) -> Option<R> {
        loop {
            let token = self.net.poll_receive()?;
            let buffer = self.incoming.of[usize::from(token)];
            let bytes = self.incoming.of_number(buffer);
            // SAFETY: it is the buffer that was given with this descriptor.
            let received = unsafe { self.net.receive_complete(token, bytes) };
            let frame = received.ok().and_then(|(at, length)| bytes.get_mut(at..at + length));
            let Some(frame) = frame else {
                self.counters.damaged += 1;
                self.offer(buffer);
                continue;
            };
            self.counters.received += 1;
            let result = sink(&mut Arrived { bytes: frame, marked: false });
            self.offer(buffer);
            return Some(result);
        }
    }

    fn can_transmit(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
            self.lacked = self.free.is_empty();
        }
        !self.free.is_empty()
    }

    fn transmit<R>(
        &mut self,
        room: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        if !self.can_transmit() {
            self.counters.full += 1;
            return None;
        }
        let buffer = *self.free.last()?;
        let bytes = self.outgoing.of_number(buffer);
        let header = self.header;
        let (length, result) = fill(&mut bytes[header..header + room]);
        if length > 0 {
            self.free.pop();
            // SAFETY: the buffer is not touched until its descriptor comes back.
            let token = unsafe { self.net.transmit_begin(&bytes[..header + length]) };
            let Ok(token) = token else { panic!("there are as many descriptors as buffers") };
            self.outgoing.of[usize::from(token)] = buffer;
            self.counters.sent += 1;
        }
        Some(result)
    }

    fn counters(&self) -> MacCounters {
        self.counters
    }
}

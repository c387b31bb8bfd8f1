//! A vfio-user client: any messages, whole and broken, with any file descriptors, at any time, and a
//! device that answers when it likes. The server stands, answers every request once and in order,
//! gives the device only what its regions have, and its memory is what was mapped.

use crate::input::Input;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use vfio_user_server::{
    Access, Device, DmaToken, Errno, Event, Gone, Irq, MemoryError, Region, Server,
};

const STEPS: usize = 300;
const PAGE: u64 = 4096;
/// Length of the files that stand for guest memory.
const FILE: u64 = 16 * PAGE;

const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const SET_IRQS: u16 = 8;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
const DMA_READ: u16 = 11;
const WRITE_MULTI: u16 = 15;

const NO_REPLY: u32 = 0x10;

/// Takes steps: which, and what it needs.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new();
    if input.u8() & 1 == 0 {
        world.greet();
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.finish();
}

fn device() -> Device {
    let mut device = Device::default();
    for (index, size, access) in [
        (0, 0x1_0000, Access::ReadWrite),
        (2, 0x1000, Access::Write),
        (6, 0x800, Access::Read),
        (7, 0x1000, Access::ReadWrite),
    ] {
        device.regions[index] = Region { size, access };
    }
    device.irqs = [1, 4, 32, 1, 1];
    device
}

/// What the device has in hand.
#[derive(Clone, Copy)]
enum InHand {
    Read(usize),
    Other,
}

/// A request whose reply is to come.
struct Asked {
    id: u16,
    command: u16,
    payload: Vec<u8>,
    /// Which of [`Files`] went with it.
    fd: Option<usize>,
}

/// A map as the client has it.
struct Map {
    size: u64,
    flags: u32,
    /// Which of [`Files`].
    file: Option<usize>,
    offset: u64,
}

/// File descriptors to send: eventfds, memory, and what is neither.
struct Files(Vec<OwnedFd>);

impl Files {
    const SEALED: usize = 1;
    const CUT_OFF: usize = 3;

    fn new() -> Self {
        let memory = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("fuzz", flags).expect("memory");
            ftruncate(&file, FILE).expect("its length");
            file
        };
        let sealed = memory();
        fcntl_add_seals(&sealed, SealFlags::SHRINK).expect("a seal");
        let (_read, write) = rustix::pipe::pipe().expect("a pipe");
        let event = || eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let folder = rustix::fs::open("/", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Self(vec![event(), sealed, memory(), memory(), write, folder.expect("a folder"), event()])
    }
}

/// A server without a client. Making one takes the kernel longer than most inputs do, so that it
/// serves one input after the other.
struct Idle {
    server: Server,
    address: SocketAddr,
}

impl Idle {
    fn new() -> Self {
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("dxpu-fuzz-vfio-user-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).expect("a short name");
        let listener = UnixListener::bind_addr(&address).expect("nobody else has this name");
        let server = Server::adopt(listener, device()).expect("a server");
        Self { server, address }
    }
}

thread_local! {
    static IDLE: RefCell<Option<Idle>> = const { RefCell::new(None) };
}

struct World {
    server: Server,
    address: SocketAddr,
    socket: UnixStream,
    inbox: Vec<u8>,
    files: Files,
    cut_off: bool,
    next_id: u16,
    asked: VecDeque<Asked>,
    in_hand: Option<InHand>,
    maps: BTreeMap<u64, Map>,
    /// Some map was made or taken away without a reply.
    maps_unknown: bool,
    tokens: BTreeSet<DmaToken>,
    /// DMA messages that the client has not answered: ID, command, payload.
    dma: Vec<(u16, u16, Vec<u8>)>,
    /// Bytes were sent that are perhaps no messages.
    tainted: bool,
    /// Another major version was proposed.
    other_version: bool,
    connected: bool,
    /// How many there were.
    clients: u32,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("so many bytes")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(number(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(number(bytes, at))
}

fn message(id: u16, command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(id.to_ne_bytes());
    bytes.extend(command.to_ne_bytes());
    bytes.extend((16 + payload.len() as u32).to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

impl World {
    fn new() -> Self {
        let idle = IDLE.with_borrow_mut(Option::take).unwrap_or_else(Idle::new);
        let Idle { mut server, address } = idle;
        let socket = UnixStream::connect_addr(&address).expect("it listens");
        assert_eq!(server.poll(), Some(Event::Connected));
        Self {
            server,
            address,
            socket,
            inbox: Vec::new(),
            files: Files::new(),
            cut_off: false,
            next_id: 0,
            asked: VecDeque::new(),
            in_hand: None,
            maps: BTreeMap::new(),
            maps_unknown: false,
            tokens: BTreeSet::new(),
            dma: Vec::new(),
            tainted: false,
            other_version: false,
            connected: true,
            clients: 1,
        }
    }

    fn greet(&mut self) {
        let data = br#"{"capabilities":{"max_msg_fds":16,"write_multiple":true}}"#;
        self.send(VERSION, 0, &[&[0; 4], &data[..], &[0]].concat(), &[], None);
        self.turn();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() {
            how @ 0..0x90 => self.request(how, input),
            how @ 0x90..0xb0 => self.answer(how & 7 == 0),
            0xb0..0xb8 => {
                let irq = Irq::ALL[usize::from(input.u8() % 5)];
                let vector = u32::from(input.u8());
                let set = self.server.trigger(irq, vector);
                assert!(!set || vector < device().irqs[irq.index()]);
            }
            how @ 0xb8..0xc8 => self.dma_message(how & 1 == 0, input),
            how @ 0xc8..0xd8 => self.dma_reply(how, input),
            how @ 0xd8..0xf0 => self.memory(how & 1 == 0, input),
            0xf0..0xf3 => {
                ftruncate(&self.files.0[Files::CUT_OFF], PAGE).expect("shorter");
                self.cut_off = true;
            }
            0xf3..0xf6 => self.raw(input),
            0xf6..0xf8 => self.server.let_go(),
            0xf8..0xfc => self.reconnect(),
            how => self.lie(how, input),
        }
        self.turn();
    }

    /// A message of the right length.
    fn request(&mut self, how: u8, input: &mut Input<'_>) {
        let command = u16::from(how & 0x1f);
        let (flags, cut) = match input.u8() {
            0xff => (u32::from(input.u8() & 0xf), false),
            flags => (if flags & 7 == 7 { NO_REPLY } else { 0 }, flags & 0xf0 == 0xf0),
        };
        let mut payload = payload(command, input);
        // Memory and eventfds where they belong; anything, and any number, now and then.
        let fds: Vec<usize> = match (command, how >> 5) {
            (DMA_MAP, 0..3) => vec![usize::from(input.u8() % 3) + Files::SEALED],
            (SET_IRQS, 0..3) => vec![0; (u32_at(&payload, 16) as usize).min(20)],
            (_, 3) => (0..input.u8() % 20).map(|_| usize::from(input.u8() % 7)).collect(),
            _ => vec![],
        };
        if cut {
            payload.truncate(usize::from(input.u8()));
        }
        let split = (how >> 5 == 4).then(|| usize::from(input.u8()));
        self.other_version |= command == VERSION && payload.starts_with(&[1]);
        self.send(command, flags, &payload, &fds, split);
    }

    fn send(&mut self, command: u16, flags: u32, payload: &[u8], fds: &[usize], at: Option<usize>) {
        self.next_id = self.next_id.wrapping_add(1);
        let bytes = message(self.next_id, command, flags, payload);
        let kind = flags & 0xf;
        let quiet = kind == 0 && flags & NO_REPLY != 0;
        if kind != 1 && !quiet && !self.tainted {
            let fd = (fds.len() == 1).then(|| fds[0]);
            let (id, payload) = (self.next_id, payload.to_vec());
            self.asked.push_back(Asked { id, command, payload, fd });
        }
        self.maps_unknown |= quiet && (command == DMA_MAP || command == DMA_UNMAP);
        let (first, second) = bytes.split_at(at.unwrap_or(0).min(bytes.len() - 1));
        if !first.is_empty() {
            self.put(first, &[]);
            let clients = self.clients;
            self.turn();
            if self.clients != clients {
                // Who sent the first half is gone.
                return;
            }
        }
        self.put(second, fds);
    }

    /// A message whose header has another length than it.
    fn lie(&mut self, how: u8, input: &mut Input<'_>) {
        let command = u16::from(input.u8() & 0x1f);
        let mut bytes = message(1, command, 0, &payload(command, input));
        let says = bytes.len() as u32 ^ u32::from(input.u8()) << (how & 3);
        bytes[4..8].copy_from_slice(&says.to_ne_bytes());
        self.tainted = true;
        self.put(&bytes, &[]);
    }

    /// Any bytes, with any file descriptors.
    fn raw(&mut self, input: &mut Input<'_>) {
        let fds: Vec<usize> = (0..input.u8() % 4).map(|_| usize::from(input.u8() % 7)).collect();
        let length = usize::from(input.u8());
        let bytes = input.bytes(length);
        if !bytes.is_empty() {
            self.tainted = true;
            self.put(bytes, &fds);
        }
    }

    fn put(&mut self, bytes: &[u8], fds: &[usize]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(|fd| self.files.0[*fd].as_fd()).collect();
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "there is room");
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags);
        // A server that let this client go takes nothing.
        self.tainted |= sent != Ok(bytes.len());
    }

    fn answer(&mut self, fail: bool) {
        let Some(in_hand) = self.in_hand.take() else {
            return;
        };
        match in_hand {
            _ if fail => self.server.answer(Err(Errno::IO)),
            InHand::Read(len) => self.server.answer(Ok(&vec![0x5a; len])),
            InHand::Other => self.server.answer(Ok(&[])),
        }
    }

    fn dma_message(&mut self, write: bool, input: &mut Input<'_>) {
        let address = u64::from(input.u16()) << 4;
        let len = usize::from(input.u8());
        let token = match write {
            true => self.server.dma_write(address, &vec![1; len]),
            false => self.server.dma_read(address, len),
        };
        if let Ok(token) = token {
            assert!(self.tokens.insert(token), "a token is used once");
        }
    }

    /// The client answers a DMA message, rightly or not.
    fn dma_reply(&mut self, how: u8, input: &mut Input<'_>) {
        if self.dma.is_empty() {
            return;
        }
        let which = usize::from(input.u8()) % self.dma.len();
        let (id, command, asked) = self.dma.swap_remove(which);
        let mut payload = asked[..16].to_vec();
        if command == DMA_READ {
            payload.resize(16 + u64_at(&asked, 8) as usize, 7);
        }
        let flags = match how & 7 {
            0 => 0x21,
            1 => {
                payload.truncate(usize::from(input.u8()));
                1
            }
            2 => {
                payload[usize::from(input.u8() & 15)] ^= 1;
                1
            }
            _ => 1,
        };
        self.put(&message(id, command, flags, &payload), &[]);
    }

    /// An access of the device to the client's memory, which has to end as the client's own list
    /// of maps says.
    fn memory(&mut self, write: bool, input: &mut Input<'_>) {
        let address = u64::from(input.u8()) * PAGE + u64::from(input.u16() & 0xfff);
        let len = usize::from(input.u8()) << (input.u8() & 7);
        let data: Vec<u8> = (0..len).map(|n| (n ^ usize::from(input.u8())) as u8).collect();
        let mut back = vec![0; len];
        let result = match write {
            true => self.server.memory().write(address, &data),
            false => self.server.memory().read(address, &mut back),
        };
        if self.tainted || self.maps_unknown || !self.connected {
            return;
        }
        let expected = self.expected(address, len as u64, if write { 2 } else { 1 });
        let cut_off = self.cut_off && result == Err(MemoryError::Io(Errno::IO));
        assert!(result == expected || cut_off, "{address:#x}+{len:#x}: {result:?} {expected:?}");
        let readable = self.expected(address, len as u64, 1).is_ok();
        if write && result.is_ok() && readable && !self.aliased(address, len as u64) {
            self.server.memory().read(address, &mut back).expect("it is readable");
            assert!(back == data, "what was written is read");
        }
    }

    /// How an access of a direction ends.
    fn expected(&self, address: u64, len: u64, direction: u32) -> Result<(), MemoryError> {
        let mut result = Ok(());
        let mut at = address;
        while at < address + len {
            let map = self.maps.range(..=at).next_back();
            let map = map.filter(|(first, map)| at - *first < map.size);
            let (first, map) = map.ok_or(MemoryError::Unmapped)?;
            if map.flags & direction == 0 {
                return Err(MemoryError::Protected);
            }
            if map.file.is_none() {
                result = Err(MemoryError::ByMessage);
            }
            at = first.saturating_add(map.size);
        }
        result
    }

    /// Whether two bytes of a range may be the same one of a file.
    fn aliased(&self, address: u64, len: u64) -> bool {
        let touched: Vec<&Map> = self
            .maps
            .iter()
            .filter(|(first, map)| {
                **first < address + len && address - address % PAGE < **first + map.size
            })
            .map(|(_, map)| map)
            .collect();
        touched.iter().enumerate().any(|(n, one)| {
            touched[..n].iter().any(|other| {
                one.file == other.file
                    && one.offset < other.offset + other.size
                    && other.offset < one.offset + one.size
            })
        })
    }

    fn reconnect(&mut self) {
        self.socket = UnixStream::connect_addr(&self.address).expect("it listens");
        // What the old client sent is done first.
        for _ in 0..STEPS * 8 {
            self.answer(false);
            if !self.connected {
                break;
            }
            self.poll();
        }
        assert!(!self.connected, "the old client is gone");
        assert_eq!(self.server.poll(), Some(Event::Connected));
        self.forget();
        self.connected = true;
    }

    /// Nothing of a client outlives it.
    fn forget(&mut self) {
        self.clients += 1;
        self.inbox.clear();
        self.asked.clear();
        self.in_hand = None;
        self.maps.clear();
        self.tokens.clear();
        self.dma.clear();
        (self.tainted, self.other_version, self.maps_unknown) = (false, false, false);
    }

    /// What the server and the client have to say to each other now.
    fn turn(&mut self) {
        self.poll();
        if !self.connected {
            // The next one.
            self.socket = UnixStream::connect_addr(&self.address).expect("it listens");
            assert_eq!(self.server.poll(), Some(Event::Connected));
            self.forget();
            self.connected = true;
        }
        if !self.tainted && !self.maps_unknown {
            assert_eq!(self.server.memory().maps(), self.maps.len());
        }
        assert!(self.server.waits_on().count() <= 2);
    }

    /// Polls until there is nothing, and takes in what was sent.
    fn poll(&mut self) {
        loop {
            match self.server.poll() {
                None => {
                    if self.server.waits_on().any(|(_, _, write)| write) && self.take_in() {
                        continue;
                    }
                    break;
                }
                Some(Event::Connected) => panic!("one was connected already"),
                Some(Event::Disconnected(gone)) => return self.disconnected(gone),
                Some(Event::Reset) => self.given(InHand::Other),
                Some(Event::Read { region, offset, len }) => {
                    let region = device().regions[usize::from(region)];
                    assert!(region.access.reads() && len > 0);
                    assert!(offset + len as u64 <= region.size);
                    self.given(InHand::Read(len));
                }
                Some(Event::Write { region, offset, data }) => {
                    let region = device().regions[usize::from(region)];
                    assert!(region.access.writes() && !data.is_empty());
                    assert!(offset + data.len() as u64 <= region.size);
                    self.given(InHand::Other);
                }
                Some(Event::DmaDone { token, .. }) => {
                    assert!(self.tokens.remove(&token), "it was asked for, and is done once");
                }
            }
        }
        self.take_in();
    }

    fn given(&mut self, access: InHand) {
        assert!(self.in_hand.is_none(), "one at a time");
        self.in_hand = Some(access);
    }

    fn disconnected(&mut self, gone: Gone) {
        self.connected = false;
        self.in_hand = None;
        assert_eq!(self.server.memory().maps(), 0);
        assert!(Irq::ALL.iter().all(|irq| !self.server.trigger(*irq, 0)));
        match gone {
            Gone::Closed | Gone::Died | Gone::LetGo => {}
            Gone::Version => assert!(self.tainted || self.other_version),
            Gone::BadSize(_) => assert!(self.tainted),
            // It reads all the time.
            Gone::NotReading | Gone::Io(_) => panic!("{gone}"),
        }
    }

    /// The client reads; whether there was something.
    fn take_in(&mut self) -> bool {
        let before = self.inbox.len();
        let mut bytes = [0; 4096];
        while let Ok((_, got @ 1..)) = recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            self.inbox.extend(&bytes[..got]);
        }
        let came = self.inbox.len() > before;
        while self.inbox.len() >= 16 {
            let size = u32_at(&self.inbox, 4) as usize;
            assert!(size >= 16, "a message has its header");
            if self.inbox.len() < size {
                break;
            }
            let whole: Vec<u8> = self.inbox.drain(..size).collect();
            self.message(&whole);
        }
        came
    }

    fn message(&mut self, whole: &[u8]) {
        let (id, command) =
            (u16::from_ne_bytes(number(whole, 0)), u16::from_ne_bytes(number(whole, 2)));
        let (flags, error) = (u32_at(whole, 8), u32_at(whole, 12));
        let payload = &whole[16..];
        match flags {
            0 => return self.dma.push((id, command, payload.to_vec())),
            1 => assert_eq!(error, 0),
            0x21 => assert!(error != 0 && payload.is_empty()),
            _ => panic!("flags {flags:#x}"),
        }
        if self.tainted {
            return;
        }
        let asked = self.asked.pop_front().expect("it answers what was asked");
        assert_eq!((asked.id, asked.command), (id, command), "replies come in order");
        if command == DMA_MAP && error == 0 {
            self.mapped(&asked);
        }
        if command == DMA_UNMAP {
            self.unmapped(&asked, error == 0);
        }
    }

    fn mapped(&mut self, asked: &Asked) {
        let (address, size) = (u64_at(&asked.payload, 16), u64_at(&asked.payload, 24));
        let overlaps = self.maps.iter().any(|(first, map)| {
            *first <= address + (size - 1) && address <= *first + (map.size - 1)
        });
        assert!(!overlaps || self.maps_unknown, "nothing is mapped twice");
        let (flags, offset) = (u32_at(&asked.payload, 4), u64_at(&asked.payload, 8));
        self.maps.insert(address, Map { size, flags, file: asked.fd, offset });
    }

    fn unmapped(&mut self, asked: &Asked, done: bool) {
        if !done {
            return;
        }
        let (address, size) = (u64_at(&asked.payload, 8), u64_at(&asked.payload, 16));
        if u32_at(&asked.payload, 4) == 2 {
            self.maps.clear();
        } else if !self.maps_unknown {
            let map = self.maps.remove(&address);
            assert!(map.is_some_and(|map| map.size == size), "exactly what was mapped");
        } else {
            self.maps.remove(&address);
        }
    }

    /// Everything that was asked has its reply.
    fn finish(mut self) {
        for _ in 0..STEPS * 8 {
            self.turn();
            if self.in_hand.is_none() {
                break;
            }
            self.answer(false);
        }
        assert!(self.in_hand.is_none());
        assert!(self.tainted || self.asked.is_empty(), "{} without a reply", self.asked.len());
        assert!(!self.server.counters().is_empty());
        self.server.let_go();
        self.poll();
        assert!(!self.connected && !self.server.is_connected());
        let idle = Idle { server: self.server, address: self.address };
        IDLE.set(Some(idle));
    }
}

/// A payload of the right form for a command, with numbers that mean something.
fn payload(command: u16, input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Sizes of replies that are too small now and then.
    let how = input.u8();
    let argsz = if how == 0xff { u32::from(input.u8()) } else { 64 };
    match command {
        VERSION => {
            bytes.extend([how >> 7, 0, how & 3, 0]);
            let length = usize::from(input.u8());
            bytes.extend(input.bytes(length));
            bytes.push(0);
        }
        DMA_MAP => {
            let offset = u64::from(how & 15) * PAGE + u64::from(how == 0xfe);
            bytes.extend(argsz.to_ne_bytes());
            bytes.extend(u32::from(input.u8() & 3).to_ne_bytes());
            bytes.extend(offset.to_ne_bytes());
            bytes.extend((u64::from(input.u8()) * PAGE).to_ne_bytes());
            bytes.extend((u64::from(input.u8() & 31) * PAGE).to_ne_bytes());
        }
        DMA_UNMAP => {
            bytes.extend(argsz.to_ne_bytes());
            bytes.extend(u32::from((how & 7).saturating_sub(4)).to_ne_bytes());
            bytes.extend((u64::from(input.u8()) * PAGE).to_ne_bytes());
            bytes.extend((u64::from(input.u8() & 31) * PAGE).to_ne_bytes());
        }
        SET_IRQS => {
            let count = u32::from(input.u8() & 31);
            bytes.extend(argsz.to_ne_bytes());
            bytes.extend(u32::from(how & 0x3f).to_ne_bytes());
            bytes.extend(u32::from(input.u8() & 7).to_ne_bytes());
            bytes.extend(u32::from(input.u8() & 31).to_ne_bytes());
            bytes.extend(count.to_ne_bytes());
            if how & 7 == 2 {
                bytes.extend(input.bytes(count as usize));
            }
        }
        REGION_READ | REGION_WRITE => {
            let length = usize::from(input.u8()) << (how & 7);
            bytes.extend(u64::from(input.u16()).to_ne_bytes());
            bytes.extend(u32::from(how >> 4).to_ne_bytes());
            bytes.extend((length as u32).to_ne_bytes());
            if command == REGION_WRITE {
                bytes.resize(16 + length, how);
            }
        }
        WRITE_MULTI => {
            bytes.extend(u64::from(how & 15).to_ne_bytes());
            for _ in 0..how & 15 {
                bytes.extend(u64::from(input.u16()).to_ne_bytes());
                bytes.extend(u32::from(input.u8() & 7).to_ne_bytes());
                bytes.extend(u32::from(input.u8() % 10).to_ne_bytes());
                bytes.extend([how; 8]);
            }
        }
        _ => {
            bytes.extend(argsz.to_ne_bytes());
            bytes.extend(u32::from(how == 0xfe).to_ne_bytes());
            bytes.extend(u32::from(input.u8()).to_ne_bytes());
            bytes.resize(32, 0);
        }
    }
    bytes
}

use super::mapping::word_len;
use super::*;
use crate::limits::MAX_LET_GO_AT_ONCE;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::sync::atomic::{AtomicBool, Ordering};

fn memfd(size: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, size).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

fn sealed(pages: u64) -> OwnedFd {
    memfd(pages * PAGE, SealFlags::SHRINK)
}

fn whole(address: u64, pages: u64) -> DmaMap {
    DmaMap { readable: true, writable: true, offset: 0, address, size: pages * PAGE }
}

fn mapped(file: &OwnedFd, pages: u64) -> Memory {
    let mut memory = Memory::default();
    memory.map(&whole(0, pages), vec![file.try_clone().unwrap()], 1).unwrap();
    memory
}

/// Where this process has this file mapped, and under which descriptors.
fn held(name: &str) -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let links = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let is_it = |path: &std::path::PathBuf| path.to_string_lossy().contains(name);
    (maps.lines().filter(|line| line.contains(name)).count(), links.filter(is_it).count())
}

/// A virtual machine that is gone leaves its memory to this process alone.
#[test]
fn much_memory_is_let_go_of_in_a_thread_of_its_own_and_little_at_once() {
    for (name, bytes, threads) in
        [("little-memory", MAX_LET_GO_AT_ONCE, 0), ("much-memory", 5 * MAX_LET_GO_AT_ONCE, 1)]
    {
        for all in [false, true] {
            let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, bytes).unwrap();
            fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
            let (mut memory, map) = (Memory::default(), whole(0, bytes / PAGE));
            memory.map(&map, vec![file], 1).unwrap();
            assert_eq!(held(name), (1, 0), "it is mapped, and its descriptor closed");
            memory.write(8, &[1; 8]).unwrap();
            let unmap = if all { DmaUnmap::All } else { DmaUnmap::One { address: 0, size: bytes } };
            memory.unmap(unmap).unwrap();
            assert_eq!(memory.leaving.threads(), threads, "{name}");
            assert_eq!(memory.read(8, &mut [0; 8]), Err(MemoryError::Unmapped));
            assert_eq!((memory.mapped, memory.maps()), (0, 0));
            memory.leaving.wait();
            assert_eq!(held(name), (0, 0), "{name} is gone");
        }
    }
}

/// A client cuts its file short and seals it while the proxy looks at it: what is mapped is there.
#[test]
fn a_file_that_is_cut_short_just_before_its_seal() {
    for try_ in 0..1500 {
        let file = memfd(2 * PAGE, SealFlags::empty());
        let client = file.try_clone().unwrap();
        let (ready, go) = (AtomicBool::new(false), AtomicBool::new(false));
        let backing = std::thread::scope(|scope| {
            scope.spawn(|| {
                ready.store(true, Ordering::Release);
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                // From one try to the next it comes a little later.
                for _ in 0..try_ % 300 {
                    std::hint::spin_loop();
                }
                ftruncate(&client, PAGE).unwrap();
                fcntl_add_seals(&client, SealFlags::SHRINK).unwrap();
            });
            while !ready.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            go.store(true, Ordering::Release);
            Backing::new(file, &whole(0, 2), u64::MAX)
        });
        assert!(!matches!(backing, Ok(Backing::Mapped(_))), "two pages of a file of one");
    }
}

/// Every access is cut into words that are naturally aligned, and as long as can be.
#[test]
fn words() {
    for start in 0..16_usize {
        for len in 1..40 {
            let mut done = 0;
            let mut lengths = Vec::new();
            while done < len {
                let word = word_len(start + done, len - done);
                assert!([1, 2, 4, 8].contains(&word) && (start + done).is_multiple_of(word));
                assert!(
                    word == 8 || !(start + done).is_multiple_of(2 * word) || done + 2 * word > len,
                    "the longest that fits"
                );
                lengths.push(word);
                done += word;
            }
            assert_eq!(done, len);
            assert!(lengths.len() <= 6 + len / 8, "{start} {len}: {lengths:?}");
        }
    }
}

#[test]
fn every_alignment_and_length() {
    let file = sealed(1);
    let memory = mapped(&file, 1);
    let data: Vec<u8> = (1..=64).collect();
    for at in 0..16 {
        for len in 0..=data.len() {
            memory.write(0, &[0; 128]).unwrap();
            memory.write(at, &data[..len]).unwrap();
            let mut back = vec![0xee; len];
            memory.read(at, &mut back).unwrap();
            assert_eq!(back, data[..len]);
            let mut all = [0; 128];
            memory.read(0, &mut all).unwrap();
            let at = at as usize;
            assert_eq!(all[at..at + len], data[..len]);
            assert!(all[..at].iter().chain(&all[at + len..]).all(|byte| *byte == 0));
        }
    }
}

/// A driver that polls the last word of an entry sees all of the entry once it sees that word.
#[test]
fn who_sees_the_last_word_sees_the_rest() {
    const ROUNDS: u64 = 20_000;
    let file = sealed(1);
    let (device, guest) = (mapped(&file, 1), mapped(&file, 1));
    let writer = std::thread::spawn(move || {
        for round in 1..=ROUNDS {
            device.write(8, &round.to_ne_bytes().repeat(8)).unwrap();
        }
    });
    let word = |at: u64| {
        let mut word = [0; 8];
        guest.read(at, &mut word).unwrap();
        u64::from_ne_bytes(word)
    };
    loop {
        let last = word(8 + 56);
        for at in (8..8 + 56).step_by(8) {
            assert!(word(at) >= last, "an entry's end before its beginning");
        }
        if last == ROUNDS {
            break;
        }
    }
    writer.join().unwrap();
}

/// What a map is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Made {
    Sealed,
    Plain,
    Nothing,
}

#[derive(Clone, Debug)]
enum Action {
    Map { page: u64, pages: u64, made: Made, readable: bool, writable: bool },
    Unmap { page: u64, pages: u64 },
    UnmapAll,
    Read { at: u64, len: usize },
    Write { at: u64, len: usize, with: u8 },
}

const PAGES: u64 = 12;

fn action() -> impl Strategy<Value = Action> {
    let made = prop_oneof![Just(Made::Sealed), Just(Made::Plain), Just(Made::Nothing)];
    let page = 0..PAGES;
    let at = 0..PAGES * PAGE;
    prop_oneof![
        4 => (page.clone(), 1_u64..4, made, any::<(bool, bool)>()).prop_map(
            |(page, pages, made, (readable, writable))| {
                Action::Map { page, pages, made, readable, writable }
            }
        ),
        2 => (page, 1_u64..4).prop_map(|(page, pages)| Action::Unmap { page, pages }),
        1 => Just(Action::UnmapAll),
        4 => (at.clone(), 0_usize..9000).prop_map(|(at, len)| Action::Read { at, len }),
        4 => (at, 0_usize..9000, any::<u8>())
            .prop_map(|(at, len, with)| Action::Write { at, len, with }),
    ]
}

/// One page, as a list of all pages has it.
#[derive(Clone, Copy)]
struct Page {
    first: u64,
    pages: u64,
    made: Made,
    readable: bool,
    writable: bool,
}

/// Memory as simply as can be: a list of pages and all bytes.
struct Model {
    pages: Vec<Option<Page>>,
    bytes: Vec<u8>,
}

impl Model {
    fn access(&self, at: u64, len: usize, allowed: fn(&Page) -> bool) -> Result<(), MemoryError> {
        let mut by_message = false;
        for at in at..at + len as u64 {
            let page = self.pages.get((at / PAGE) as usize).copied().flatten();
            let page = page.ok_or(MemoryError::Unmapped)?;
            if !allowed(&page) {
                return Err(MemoryError::Protected);
            }
            by_message |= page.made == Made::Nothing;
        }
        if by_message { Err(MemoryError::ByMessage) } else { Ok(()) }
    }
}

proptest! {
    /// Each page of address space has its own page of a file, so that memory is a list of bytes.
    #[test]
    fn maps_are_a_list_of_pages(actions in prop::collection::vec(action(), 0..40)) {
        let (shrinks_not, shrinks) = (sealed(2 * PAGES), memfd(2 * PAGES * PAGE, SealFlags::empty()));
        let mut memory = Memory::default();
        let mut model = Model {
            pages: vec![None; 2 * PAGES as usize],
            bytes: vec![0; (2 * PAGES * PAGE) as usize],
        };
        for action in actions {
            match action {
                Action::Map { page, pages, made, readable, writable } => {
                    let map = DmaMap {
                        readable, writable,
                        offset: page * PAGE, address: page * PAGE, size: pages * PAGE,
                    };
                    let file = match made {
                        Made::Sealed => vec![shrinks_not.try_clone().unwrap()],
                        Made::Plain => vec![shrinks.try_clone().unwrap()],
                        Made::Nothing => vec![],
                    };
                    let range = page as usize..(page + pages) as usize;
                    let expected = match () {
                        () if !readable && !writable => Err(Errno::INVAL),
                        () if model.pages[range.clone()].iter().any(Option::is_some) => {
                            Err(Errno::EXIST)
                        }
                        () => Ok(()),
                    };
                    prop_assert_eq!(memory.map(&map, file, MAX_DMA_MAPS), expected);
                    if expected.is_ok() {
                        let made = Page { first: page, pages, made, readable, writable };
                        model.pages[range.clone()].fill(Some(made));
                        // A page's bytes are those of the file that it has now.
                        let bytes = range.start * PAGE as usize..range.end * PAGE as usize;
                        let file = if made.made == Made::Plain { &shrinks } else { &shrinks_not };
                        let got = rustix::io::pread(
                            file, &mut model.bytes[bytes.clone()], bytes.start as u64,
                        );
                        prop_assert_eq!(got, Ok(bytes.len()));
                    }
                }
                Action::Unmap { page, pages } => {
                    let exact = model.pages[page as usize]
                        .is_some_and(|there| there.first == page && there.pages == pages);
                    let unmap = DmaUnmap::One { address: page * PAGE, size: pages * PAGE };
                    let expected = if exact { Ok(()) } else { Err(Errno::NOENT) };
                    prop_assert_eq!(memory.unmap(unmap), expected);
                    if exact {
                        model.pages[page as usize..(page + pages) as usize].fill(None);
                    }
                }
                Action::UnmapAll => {
                    memory.unmap(DmaUnmap::All).unwrap();
                    model.pages.fill(None);
                }
                Action::Read { at, len } => {
                    let mut back = vec![0; len];
                    let expected = model.access(at, len, |page| page.readable);
                    prop_assert_eq!(memory.read(at, &mut back), expected);
                    let there = matches!(expected, Ok(()) | Err(MemoryError::ByMessage));
                    prop_assert_eq!(memory.is_readable(at, len), there);
                    if expected.is_ok() {
                        prop_assert!(back == model.bytes[at as usize..at as usize + len]);
                    }
                }
                Action::Write { at, len, with } => {
                    let data: Vec<u8> = (0..len).map(|n| n as u8 ^ with).collect();
                    let expected = model.access(at, len, |page| page.writable);
                    prop_assert_eq!(memory.write(at, &data), expected);
                    let there = matches!(expected, Ok(()) | Err(MemoryError::ByMessage));
                    prop_assert_eq!(memory.is_writable(at, len), there);
                    if expected.is_ok() {
                        model.bytes[at as usize..at as usize + len].copy_from_slice(&data);
                    }
                }
            }
            let mut firsts: Vec<u64> = model.pages.iter().flatten().map(|page| page.first).collect();
            firsts.dedup();
            prop_assert_eq!(memory.maps(), firsts.len());
        }
    }
}

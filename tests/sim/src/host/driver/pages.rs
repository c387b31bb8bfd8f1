//! Pages of host memory for a drive's data: they lie anywhere, and what nobody gave to the drive
//! has to stay as it is.

use crate::host::memory::{self, Memory};
use crate::oracle::{Verdict, Violation};
use crate::random::Random;
use std::collections::VecDeque;

pub(super) const PAGE: usize = 4096;
/// What memory holds that is nobody's.
const REST: u8 = 0xa5;

/// A page of a port's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    port: usize,
    high: bool,
    at: usize,
}

impl Page {
    pub(super) fn low(port: usize, number: usize) -> Self {
        Self { port, high: false, at: number * PAGE }
    }

    pub(super) fn address(self) -> u64 {
        Memory::address(self.port, self.high, self.at as u64)
    }

    pub(super) fn bytes(self, memory: &mut Memory) -> &mut [u8] {
        memory.bytes(self.port, self.high, self.at, PAGE)
    }
}

/// Pages that are free.
pub(super) struct Pool {
    free: VecDeque<Page>,
}

impl Pool {
    /// All pages of a port but the first ones below 4 GB.
    pub(super) fn new(port: usize, but: usize, memory: &mut Memory) -> Self {
        let count = memory::LENGTH as usize / PAGE;
        let low = (but..count).map(|number| Page::low(port, number));
        let high = (0..count).map(|number| Page { port, high: true, at: number * PAGE });
        // One from below and one from above by turns: neighbours are rarely neighbours.
        let mut pages: Vec<Page> = low.chain(high).collect();
        pages.sort_by_key(|page| (page.at * 7 % memory::LENGTH as usize, page.high));
        pages.iter().for_each(|page| page.bytes(memory).fill(REST));
        Self { free: pages.into() }
    }

    /// Pages, which nobody may have written to since they were given back.
    fn take(&mut self, memory: &mut Memory, count: usize) -> Verdict<Option<Vec<Page>>> {
        if self.free.len() < count {
            return Ok(None);
        }
        let pages: Vec<Page> = self.free.drain(..count).collect();
        for page in &pages {
            if !page.bytes(memory).iter().all(|byte| *byte == REST) {
                let what =
                    format!("a drive wrote to {:#x}, which it had given back", page.address());
                return Err(Violation::new(2, what));
            }
        }
        Ok(Some(pages))
    }

    fn give(&mut self, memory: &mut Memory, pages: &[Page]) {
        pages.iter().for_each(|page| page.bytes(memory).fill(REST));
        self.free.extend(pages);
    }
}

/// Memory for one command's data, and the PRP lists that say where it is (NVM Express 1.4 section
/// 4.3).
#[derive(Debug)]
pub(super) struct Buffer {
    data: Vec<Page>,
    lists: Vec<Page>,
    /// Where in the first page it begins.
    offset: usize,
    length: usize,
    pub(super) prp: [u64; 2],
}

impl Buffer {
    /// Nothing when there are too few pages.
    pub(super) fn new(
        pool: &mut Pool,
        memory: &mut Memory,
        random: &mut Random,
        length: usize,
    ) -> Verdict<Option<Self>> {
        let within = random.below(PAGE as u64 / 4) as usize * 4;
        let offset = if random.chance(500_000) { 0 } else { within };
        let count = (offset + length).div_ceil(PAGE);
        // A list begins anywhere in its page; one that has too little room there goes on.
        let starts =
            if random.chance(300_000) { PAGE - 16 } else { random.below(500) as usize * 8 };
        let lists = match count {
            0..=2 => 0,
            count if starts + (count - 1) * 8 <= PAGE => 1,
            _ => 2,
        };
        let Some(mut data) = pool.take(memory, count + lists)? else { return Ok(None) };
        let lists = data.split_off(count);
        let mut buffer = Self { data, lists, offset, length, prp: [0; 2] };
        buffer.prp[0] = buffer.data[0].address() + offset as u64;
        if let [list, ..] = buffer.lists[..] {
            buffer.prp[1] = list.address() + starts as u64;
            buffer.write_lists(memory, starts);
        } else if count == 2 {
            buffer.prp[1] = buffer.data[1].address();
        }
        Ok(Some(buffer))
    }

    fn write_lists(&self, memory: &mut Memory, starts: usize) {
        let (mut list, mut at) = (self.lists[0], starts);
        let entries = &self.data[1..];
        for (index, page) in entries.iter().enumerate() {
            if at == PAGE - 8 && index + 1 < entries.len() {
                let next = self.lists[1];
                list.bytes(memory)[at..].copy_from_slice(&next.address().to_le_bytes());
                (list, at) = (next, 0);
            }
            list.bytes(memory)[at..at + 8].copy_from_slice(&page.address().to_le_bytes());
            at += 8;
        }
    }

    /// The pieces of the data: page, and which bytes of it.
    fn pieces(&self) -> impl Iterator<Item = (Page, std::ops::Range<usize>)> {
        let end = self.offset + self.length;
        self.data.iter().enumerate().map(move |(index, page)| {
            let from = if index == 0 { self.offset } else { 0 };
            (*page, from..(end - index * PAGE).min(PAGE))
        })
    }

    pub(super) fn write(&self, memory: &mut Memory, mut data: &[u8]) {
        for (page, range) in self.pieces() {
            let (piece, rest) = data.split_at(range.len());
            page.bytes(memory)[range].copy_from_slice(piece);
            data = rest;
        }
    }

    /// What is in it. Beside it nothing may have been written.
    pub(super) fn read(&self, memory: &mut Memory) -> Verdict<Vec<u8>> {
        let mut data = Vec::with_capacity(self.length);
        for (page, range) in self.pieces() {
            let bytes = page.bytes(memory);
            let beside = bytes[..range.start].iter().chain(&bytes[range.end..]);
            if beside.copied().any(|byte| byte != REST) {
                let what = format!("a drive wrote beside {range:?} of {:#x}", page.address());
                return Err(Violation::new(2, what));
            }
            data.extend_from_slice(&bytes[range]);
        }
        Ok(data)
    }

    pub(super) fn free(self, pool: &mut Pool, memory: &mut Memory) {
        pool.give(memory, &self.data);
        pool.give(memory, &self.lists);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Drawer;

    #[test]
    fn data_is_found_again_and_pages_come_back() {
        let mut memory = Memory::new(2);
        let mut pool = Pool::new(1, 7, &mut memory);
        let pages = pool.free.len();
        let mut random = Random::stream(1, Drawer::Burst, 0);
        let mut chained = 0;
        for _ in 0..300 {
            let length = random.between(1, 60) as usize * 512;
            let data: Vec<u8> = (0..length).map(|n| n as u8 ^ length as u8).collect();
            let buffer = Buffer::new(&mut pool, &mut memory, &mut random, length).unwrap().unwrap();
            chained += usize::from(buffer.lists.len() == 2);
            buffer.write(&mut memory, &data);
            assert_eq!(buffer.read(&mut memory).unwrap(), data);
            buffer.free(&mut pool, &mut memory);
            assert_eq!(pool.free.len(), pages);
        }
        assert!(chained > 10);
    }

    #[test]
    fn what_is_written_beside_or_too_late_is_noticed() {
        let mut memory = Memory::new(1);
        let mut pool = Pool::new(0, 7, &mut memory);
        let mut random = Random::stream(1, Drawer::Burst, 1);
        let buffer = Buffer::new(&mut pool, &mut memory, &mut random, 512).unwrap().unwrap();
        let (page, range) = buffer.pieces().next().unwrap();
        page.bytes(&mut memory)[range.end % PAGE] = 0;
        assert_eq!(buffer.read(&mut memory).unwrap_err().promise, 2);
        let all = pool.free.len();
        pool.free[0].bytes(&mut memory)[5] = 0;
        assert_eq!(pool.take(&mut memory, all).unwrap_err().promise, 2);
        assert!(pool.take(&mut memory, all + 1).unwrap().is_none());
    }
}

//! PRP entries and lists: where a command's data is in host memory (NVM Express 1.4 section 4.3).

use super::status::Status;

/// A run of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) len: usize,
}

/// What is to be done next to know where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is known.
    Ready,
    /// These bytes of a PRP list are wanted.
    List(Segment),
}

/// A command's data in host memory, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Prps {
    segments: Vec<Segment>,
    /// Bytes whose place is not known yet.
    left: usize,
    page: usize,
}

impl Prps {
    /// Starts from a command's two entries, for `len` bytes (not 0) and pages of `page` bytes.
    ///
    /// # Errors
    ///
    /// PRP Offset Invalid.
    pub(super) fn new(
        prp1: u64,
        prp2: u64,
        len: usize,
        page: usize,
    ) -> Result<(Self, Next), Status> {
        let mut this = Self { segments: Vec::new(), left: len, page };
        let offset = (prp1 % page as u64) as usize;
        if !offset.is_multiple_of(4) {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        this.push(prp1, page - offset);
        if this.left == 0 {
            return Ok((this, Next::Ready));
        }
        if this.left <= page {
            this.push_page(prp2)?;
            return Ok((this, Next::Ready));
        }
        let next = this.list(prp2)?;
        Ok((this, next))
    }

    /// Takes the bytes of the list that was wanted.
    ///
    /// # Errors
    ///
    /// PRP Offset Invalid.
    pub(super) fn take_list(&mut self, list: &[u8]) -> Result<Next, Status> {
        let entries = list.chunks_exact(8);
        let count = entries.len();
        for (i, entry) in entries.enumerate() {
            let mut raw = [0; 8];
            raw.copy_from_slice(entry);
            let entry = u64::from_le_bytes(raw);
            if self.left > self.page && i + 1 == count {
                // The last entry of a page leads to the next list.
                if entry % self.page as u64 != 0 {
                    return Err(Status::PRP_OFFSET_INVALID);
                }
                return self.list(entry);
            }
            self.push_page(entry)?;
            if self.left == 0 {
                break;
            }
        }
        // A list that was asked for has what was still wanted, or a pointer to the rest.
        assert_eq!(self.left, 0, "a PRP list ended early");
        Ok(Next::Ready)
    }

    /// The segments, neighbours joined.
    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    fn push_page(&mut self, entry: u64) -> Result<(), Status> {
        if !entry.is_multiple_of(self.page as u64) {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        self.push(entry, self.page);
        Ok(())
    }

    fn push(&mut self, address: u64, most: usize) {
        let len = most.min(self.left);
        self.left -= len;
        match self.segments.last_mut() {
            Some(last) if last.address.wrapping_add(last.len as u64) == address => last.len += len,
            _ => self.segments.push(Segment { address, len }),
        }
    }

    /// The part of the list at `pointer` that is in its page and wanted.
    fn list(&self, pointer: u64) -> Result<Next, Status> {
        if !pointer.is_multiple_of(8) {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        let in_page = (self.page - (pointer % self.page as u64) as usize) / 8;
        let wanted = self.left.div_ceil(self.page);
        let len = 8 * wanted.min(in_page);
        Ok(Next::List(Segment { address: pointer, len }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn seg(address: u64, len: usize) -> Segment {
        Segment { address, len }
    }

    fn list(entries: &[u64]) -> Vec<u8> {
        entries.iter().flat_map(|e| e.to_le_bytes()).collect()
    }

    #[test]
    fn two_entries_need_no_list() {
        let (p, next) = Prps::new(0x1ffc, 0x8000, 4100, PAGE).unwrap();
        assert_eq!((p.segments(), next), (&[seg(0x1ffc, 4), seg(0x8000, 4096)][..], Next::Ready));
        let (p, _) = Prps::new(0x1000, 0x2000, 8192, PAGE).unwrap();
        assert_eq!(p.segments(), [seg(0x1000, 8192)], "neighbours are joined");
        let (p, _) = Prps::new(0x1000, 0xdead_beef, 4096, PAGE).unwrap();
        assert_eq!(p.segments(), [seg(0x1000, 4096)], "the second is not looked at");
    }

    #[test]
    fn offsets_are_checked() {
        let bad = |r: Result<(Prps, Next), Status>| r.unwrap_err() == Status::PRP_OFFSET_INVALID;
        assert!(bad(Prps::new(0x1002, 0, 512, PAGE)));
        assert!(bad(Prps::new(0x1000, 0x2004, 8192, PAGE)));
        assert!(bad(Prps::new(0x1000, 0x2004, 3 * 4096, PAGE)));
        let (mut p, next) = Prps::new(0x1000, 0x2008, 3 * 4096, PAGE).unwrap();
        assert_eq!(next, Next::List(seg(0x2008, 16)));
        assert_eq!(p.take_list(&list(&[0x3000, 0x4004])), Err(Status::PRP_OFFSET_INVALID));
    }

    #[test]
    fn a_list_goes_on_in_the_next_page() {
        // The first list has room for two entries; the second of them leads on.
        let (mut p, next) = Prps::new(0x1800, 0x2ff0, 4 * 4096, PAGE).unwrap();
        assert_eq!(next, Next::List(seg(0x2ff0, 16)));
        assert_eq!(p.take_list(&list(&[0x3000, 0x9000])), Ok(Next::List(seg(0x9000, 24))));
        assert_eq!(p.take_list(&list(&[0x5000, 0x7000, 0xb000])), Ok(Next::Ready));
        let want = [
            seg(0x1800, 2048),
            seg(0x3000, 4096),
            seg(0x5000, 4096),
            seg(0x7000, 4096),
            seg(0xb000, 2048),
        ];
        assert_eq!(p.segments(), want);
        let (mut p, _) = Prps::new(0x1800, 0x2ff0, 4 * 4096, PAGE).unwrap();
        assert_eq!(p.take_list(&list(&[0x3000, 0x9008])), Err(Status::PRP_OFFSET_INVALID));
    }

    #[test]
    fn the_last_entry_of_a_full_list_can_be_data() {
        let (mut p, next) = Prps::new(0x1000, 0x2ff0, 3 * 4096, PAGE).unwrap();
        assert_eq!(next, Next::List(seg(0x2ff0, 16)));
        assert_eq!(p.take_list(&list(&[0x3000, 0x5000])), Ok(Next::Ready));
        assert_eq!(p.segments().len(), 3);
    }
}

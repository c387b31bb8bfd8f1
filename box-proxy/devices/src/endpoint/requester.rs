//! The reading half of the DMA engine: tags, splitting, reassembly, completion timeouts.

use super::port::Traffic;
use super::settings::Settings;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use tlp_codec::ids::Tag;
use tlp_codec::tlp::{ByteEnables, CplStatus, Packet};

/// DMA reads that a function may have handed over at a time. A further one is refused.
pub const READ_JOBS: usize = 1024;

/// Tags of 10 bits.
const TAGS: usize = 1024;

/// Tags that a function may use at most: of 10 bits those whose upper two are not both 0 (PCIe 5.0
/// section 2.2.6.2).
pub const MAX_TAGS: u16 = 768;

/// Why a DMA read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DmaError {
    /// A completion said Unsupported Request (or a status that is treated as that).
    UnsupportedRequest,
    /// A completion said Completer Abort.
    CompleterAbort,
    /// A completion did not come in time.
    Timeout,
    /// A completion's data was poisoned.
    Poisoned,
    /// A completion did not fit its request.
    Malformed,
    /// Bus Master Enable was cleared before the read was done.
    BusMasterOff,
    /// Every tag waits for a completion that timed out.
    NoTags,
}

/// Round trips of one DMA read's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadTiming {
    /// Read requests sent.
    pub requests: u32,
    /// From request to last completion, all requests together.
    pub sum: Duration,
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// Most requests of the function that were outstanding when one of these was sent.
    pub peak: u16,
}

/// A DMA read that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// The token it was handed over with.
    pub token: u64,
    /// The bytes, or the first error.
    pub result: Result<Vec<u8>, DmaError>,
    /// Its round trips.
    pub timing: ReadTiming,
}

/// What came of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It belongs to a request.
    Expected,
    /// It ended its request with this error.
    Failed(DmaError),
    /// No request has its tag.
    Unexpected,
    /// It belongs to a request from before a reset or to one that timed out.
    Stale,
}

struct Job {
    token: u64,
    address: u64,
    data: Vec<u8>,
    /// Place among everything that the function sends.
    order: u64,
    traffic: Traffic,
    issued: usize,
    outstanding: u16,
    /// Requests that have ended.
    ended: u32,
    error: Option<DmaError>,
    cancelled: bool,
    timing: ReadTiming,
}

#[derive(Clone, Copy)]
enum TagState {
    Free,
    /// Part of a job: where its remaining bytes go, how many, since when and until when.
    Outstanding {
        job: u16,
        at: usize,
        remaining: usize,
        since: Duration,
        deadline: Option<Duration>,
    },
    /// Not to be used until its last completion has come (which is known only if the first was
    /// understood) or, if there is one, until the deadline.
    Stale {
        remaining: usize,
        deadline: Option<Duration>,
    },
}

/// A read request to be sent.
pub(super) struct ReadRequest {
    pub(super) tag: Tag,
    pub(super) address: u64,
    pub(super) enables: ByteEnables,
    pub(super) length_dw: u16,
    pub(super) traffic: Traffic,
}

pub(super) struct Requester {
    jobs: Vec<Option<Job>>,
    /// Jobs that still have requests to be sent.
    queue: VecDeque<u16>,
    done: VecDeque<ReadDone>,
    tags: Box<[TagState; TAGS]>,
    /// The tag to be looked at next, of those that may be used now.
    next_tag: usize,
    outstanding: u16,
    jobs_used: usize,
    /// No deadline is earlier.
    next_deadline: Option<Duration>,
    pub(super) tag_limit: u16,
    pub(super) max_read: usize,
}

impl Requester {
    pub(super) fn new(tag_limit: u16, max_read: usize) -> Self {
        Self {
            jobs: (0..READ_JOBS).map(|_| None).collect(),
            queue: VecDeque::with_capacity(READ_JOBS),
            done: VecDeque::with_capacity(READ_JOBS),
            tags: Box::new([TagState::Free; TAGS]),
            next_tag: 0,
            outstanding: 0,
            jobs_used: 0,
            next_deadline: None,
            tag_limit,
            max_read,
        }
    }

    /// Whether [`push`](Self::push) has room. Jobs that are done and not yet taken count.
    pub(super) fn has_room(&self) -> bool {
        self.jobs_used + self.done.len() < READ_JOBS
    }

    /// Hands over a read. The caller checked that there is room.
    pub(super) fn push(
        &mut self,
        order: u64,
        address: u64,
        len: usize,
        token: u64,
        traffic: Traffic,
    ) {
        let index = self.jobs.iter().position(Option::is_none).expect("room was checked");
        self.jobs[index] = Some(Job {
            token,
            address,
            data: vec![0; len],
            order,
            traffic,
            issued: 0,
            outstanding: 0,
            ended: 0,
            error: None,
            cancelled: false,
            timing: ReadTiming::default(),
        });
        self.jobs_used += 1;
        self.queue.push_back(index as u16);
    }

    /// Whether no read waits to be sent.
    pub(super) fn has_nothing_to_ask(&self) -> bool {
        self.queue.is_empty()
    }

    /// The place in the order of what would be sent next, if a tag is free for it.
    pub(super) fn next_order(&self, settings: &Settings) -> Option<u64> {
        let &index = self.queue.front()?;
        let usable = self.usable_tags(settings);
        if usize::from(self.outstanding) >= usable.len() || self.find_tag(usable).is_none() {
            return None;
        }
        self.jobs[usize::from(index)].as_ref().map(|job| job.order)
    }

    /// The next read request. `None` where [`next_order`](Self::next_order) is `None`.
    pub(super) fn issue(&mut self, now: Duration, settings: &Settings) -> Option<ReadRequest> {
        let &index = self.queue.front()?;
        let tag = self.find_tag(self.usable_tags(settings))?;
        let most = self.max_read.min(settings.max_read_request);
        let job = self.jobs[usize::from(index)].as_mut()?;
        let address = job.address.wrapping_add(job.issued as u64);
        let len = chunk(address, job.data.len() - job.issued, most);
        let deadline = settings.completion_timeout.map(|t| now + t);
        self.tags[tag] = TagState::Outstanding {
            job: index,
            at: job.issued,
            remaining: len,
            since: now,
            deadline,
        };
        self.next_tag = tag + 1;
        self.outstanding += 1;
        self.next_deadline = earliest(self.next_deadline, deadline);
        job.issued += len;
        job.outstanding += 1;
        job.timing.requests += 1;
        job.timing.peak = job.timing.peak.max(self.outstanding);
        let traffic = job.traffic;
        if job.issued == job.data.len() {
            self.queue.pop_front();
        }
        let (enables, length_dw) = ByteEnables::for_range(address, len);
        let tag = Tag::new(tag as u16).expect("ten bits");
        Some(ReadRequest { tag, address: address & !3, enables, length_dw, traffic })
    }

    /// A completion, already checked by itself.
    pub(super) fn complete(&mut self, now: Duration, cpl: &Packet<&[u8]>) -> Taken {
        let tag = usize::from(cpl.tag().get());
        match self.tags.get(tag).copied() {
            None | Some(TagState::Free) => Taken::Unexpected,
            Some(TagState::Stale { remaining, deadline }) => {
                let left = remaining.saturating_sub(data_bytes(cpl));
                self.tags[tag] = if left == 0 || cpl.status() != CplStatus::Success {
                    TagState::Free
                } else {
                    TagState::Stale { remaining: left, deadline }
                };
                Taken::Stale
            }
            Some(TagState::Outstanding { job, at, remaining, since, deadline }) => {
                let part = Part { job, at, remaining, since, deadline };
                self.complete_part(now, tag, part, cpl)
            }
        }
    }

    fn complete_part(
        &mut self,
        now: Duration,
        tag: usize,
        part: Part,
        cpl: &Packet<&[u8]>,
    ) -> Taken {
        let job = self.jobs[usize::from(part.job)].as_mut().expect("an outstanding tag has a job");
        let error = match cpl.status() {
            CplStatus::Success => None,
            CplStatus::CompleterAbort => Some(DmaError::CompleterAbort),
            // A reserved status is treated as Unsupported Request; retry status is only for
            // configuration requests (PCIe 5.0 section 2.3.2).
            CplStatus::UnsupportedRequest | CplStatus::Unknown(_) => {
                Some(DmaError::UnsupportedRequest)
            }
            CplStatus::ConfigRetry => Some(DmaError::Malformed),
        };
        if let Some(error) = error {
            self.fail_job(part.job, error);
            self.finish_tag(now, tag, part, TagState::Free);
            return Taken::Failed(error);
        }
        let address = job.address.wrapping_add(part.at as u64);
        let Some(skip) = fits(address, part.remaining, cpl) else {
            self.fail_job(part.job, DmaError::Malformed);
            // More of it may come; the tag is not to be used for another request meanwhile.
            let stale = TagState::Stale { remaining: usize::MAX, deadline: None };
            self.finish_tag(now, tag, part, stale);
            return Taken::Failed(DmaError::Malformed);
        };
        let poisoned = cpl.is_poisoned();
        let len = data_bytes(cpl).min(part.remaining);
        job.data[part.at..part.at + len].copy_from_slice(&cpl.payload()[skip..skip + len]);
        if poisoned {
            self.fail_job(part.job, DmaError::Poisoned);
        }
        if len == part.remaining {
            self.finish_tag(now, tag, part, TagState::Free);
        } else {
            self.tags[tag] = TagState::Outstanding {
                job: part.job,
                at: part.at + len,
                remaining: part.remaining - len,
                since: part.since,
                deadline: part.deadline,
            };
        }
        if poisoned { Taken::Failed(DmaError::Poisoned) } else { Taken::Expected }
    }

    /// A request has ended: its tag gets a new state and its job one request less.
    fn finish_tag(&mut self, now: Duration, tag: usize, part: Part, state: TagState) {
        self.tags[tag] = state;
        self.outstanding -= 1;
        let job = self.jobs[usize::from(part.job)].as_mut().expect("an outstanding tag has a job");
        job.outstanding -= 1;
        let took = now.saturating_sub(part.since);
        job.timing.sum += took;
        job.timing.min = if job.ended == 0 { took } else { job.timing.min.min(took) };
        job.ended += 1;
        job.timing.max = job.timing.max.max(took);
        self.finish_job(part.job);
    }

    /// The first error is the job's; nothing more of it is asked for.
    fn fail_job(&mut self, index: u16, error: DmaError) {
        if let Some(job) = &mut self.jobs[usize::from(index)] {
            job.error.get_or_insert(error);
            self.queue.retain(|&i| i != index);
        }
    }

    /// Ends the job if nothing of it is outstanding and nothing is to be sent.
    fn finish_job(&mut self, index: u16) {
        let slot = &mut self.jobs[usize::from(index)];
        let Some(job) = slot else { return };
        let stopped = job.error.is_some() || job.cancelled;
        if job.outstanding > 0 || !stopped && job.issued < job.data.len() {
            return;
        }
        let job = slot.take().expect("just seen");
        self.jobs_used -= 1;
        if !job.cancelled {
            let result = job.error.map_or(Ok(job.data), Err);
            self.done.push_back(ReadDone { token: job.token, result, timing: job.timing });
        }
    }

    /// A read that ended.
    pub(super) fn take_done(&mut self) -> Option<ReadDone> {
        self.done.pop_front()
    }

    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Stops reads of which the function wants to hear no more.
    pub(super) fn cancel(&mut self, mut which: impl FnMut(u64) -> bool) {
        self.done.retain(|done| !which(done.token));
        for index in 0..self.jobs.len() {
            if let Some(job) = self.jobs[index].as_mut().filter(|job| which(job.token)) {
                job.cancelled = true;
                self.finish_job(index as u16);
            }
        }
        let jobs = &self.jobs;
        self.queue.retain(|&i| jobs[usize::from(i)].as_ref().is_some_and(|job| !job.cancelled));
    }

    /// Fails every job: no more requests are sent, and those outstanding are waited for.
    pub(super) fn fail_all(&mut self, error: DmaError) {
        self.queue.clear();
        for index in 0..self.jobs.len() {
            if let Some(job) = &mut self.jobs[index]
                && job.issued < job.data.len()
            {
                job.error.get_or_insert(error);
                self.finish_job(index as u16);
            }
        }
    }

    /// Forgets every job. After a function-level reset completions of earlier requests can still
    /// come (PCIe 5.0 section 6.6.2): their tags rest for one completion timeout. After a
    /// conventional reset none can, the link was down.
    pub(super) fn reset(&mut self, now: Duration, rest: Option<Duration>) {
        self.jobs.iter_mut().for_each(|job| *job = None);
        (self.jobs_used, self.outstanding) = (0, 0);
        self.queue.clear();
        self.done.clear();
        let until = rest.map(|rest| now + rest);
        for tag in self.tags.iter_mut() {
            *tag = match (*tag, until) {
                (TagState::Outstanding { remaining, .. }, Some(_)) => {
                    TagState::Stale { remaining, deadline: until }
                }
                (TagState::Stale { remaining, .. }, Some(_)) => {
                    TagState::Stale { remaining, deadline: until }
                }
                _ => TagState::Free,
            };
        }
        self.next_deadline = until;
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.next_deadline
    }

    /// Ends what waited too long; says how many requests did.
    pub(super) fn expire(&mut self, now: Duration, settings: &Settings) -> u32 {
        if self.next_deadline.is_none_or(|deadline| now < deadline) {
            return 0;
        }
        self.next_deadline = None;
        let mut expired = 0;
        for tag in 0..TAGS {
            let deadline = match self.tags[tag] {
                TagState::Free => None,
                TagState::Outstanding { deadline, .. } | TagState::Stale { deadline, .. } => {
                    deadline
                }
            };
            match (self.tags[tag], deadline) {
                (_, None) => {}
                (_, Some(deadline)) if now < deadline => {
                    self.next_deadline = earliest(self.next_deadline, Some(deadline));
                }
                (TagState::Outstanding { job, at, remaining, since, deadline }, _) => {
                    expired += 1;
                    let part = Part { job, at, remaining, since, deadline };
                    self.fail_job(job, DmaError::Timeout);
                    let stale = TagState::Stale { remaining, deadline: None };
                    self.finish_tag(now, tag, part, stale);
                }
                _ => self.tags[tag] = TagState::Free,
            }
        }
        if self.is_out_of_tags(settings) {
            self.fail_all(DmaError::NoTags);
        }
        expired
    }

    /// Whether no tag will ever become free by itself.
    pub(super) fn is_out_of_tags(&self, settings: &Settings) -> bool {
        self.tags[self.usable_tags(settings)]
            .iter()
            .all(|t| matches!(t, TagState::Stale { deadline: None, .. }))
    }

    /// Requests outstanding.
    pub(super) fn outstanding(&self) -> u16 {
        self.outstanding
    }

    fn usable_tags(&self, settings: &Settings) -> Range<usize> {
        let Range { start, end } = settings.tags;
        usize::from(start)..usize::from(end.min(start + self.tag_limit.max(1)))
    }

    /// A free tag, in turn, so that one is used again as late as possible.
    fn find_tag(&self, usable: Range<usize>) -> Option<usize> {
        let next = if usable.contains(&self.next_tag) { self.next_tag } else { usable.start };
        (next..usable.end)
            .chain(usable.start..next)
            .find(|&tag| matches!(self.tags[tag], TagState::Free))
    }
}

/// Where the next bytes of an outstanding request go.
#[derive(Clone, Copy)]
struct Part {
    job: u16,
    at: usize,
    remaining: usize,
    since: Duration,
    deadline: Option<Duration>,
}

fn earliest(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Bytes of the next TLP of a transfer: at most `most`, ending at a multiple of `most` or of 4 KB
/// where the transfer goes on behind it.
pub(super) fn chunk(address: u64, left: usize, most: usize) -> usize {
    let to_boundary = most - (address % most as u64) as usize;
    left.min(to_boundary)
}

/// Bytes that a completion brings, its first doubleword's unwanted ones taken off.
fn data_bytes(cpl: &Packet<&[u8]>) -> usize {
    let skip = usize::from(cpl.lower_address() & 3);
    cpl.payload_len().saturating_sub(skip).min(cpl.byte_count().into())
}

/// Whether a successful completion is the next part of a request that still wants `remaining`
/// bytes from `address` on: if so, how many bytes of its data come before them.
fn fits(address: u64, remaining: usize, cpl: &Packet<&[u8]>) -> Option<usize> {
    if usize::from(cpl.byte_count()) != remaining
        || u64::from(cpl.lower_address()) != address & 0x7f
        || !cpl.has_data()
    {
        return None;
    }
    let skip = (address & 3) as usize;
    let len = data_bytes(cpl);
    let exact = cpl.payload_len() == (skip + len).next_multiple_of(4);
    // What is not the last ends at a read completion boundary, 64 bytes at the least
    // (PCIe 5.0 section 2.3.1.1).
    let at_boundary = len == remaining || address.wrapping_add(len as u64).is_multiple_of(64);
    (len > 0 && exact && at_boundary).then_some(skip)
}

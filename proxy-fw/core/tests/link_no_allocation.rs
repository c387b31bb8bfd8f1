//! A link allocates in its constructor and never again, whatever it goes through; nor does the link
//! that comes after it in the same storage.

use proxy_core::link::{ClassSet, Ends, Link, LinkConfig, LinkState, TlpMeta};
use proxy_core::stamps::{Sampling, StampKey, StampedTlp, Stamps};
use proxy_core::time::Instant;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tlp_codec::fabric::Sideband;
use tlp_codec::ids::{BindingKey, Epoch, NodeId, OutstandingRef, SlotFunction, SlotId};
use tlp_codec::tlp::Class;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is this function's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract, and the pointer came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LOSE_EVERY: u64 = 7;

struct End {
    link: Link,
    stamps: Stamps,
}

fn end(local: u16, peer: u16) -> End {
    let node = |n| NodeId::new(n).unwrap();
    let link = Link::new(node(local), local.into(), node(peer), None, local == 1, config());
    End { link, stamps: Stamps::new() }
}

fn config() -> LinkConfig {
    LinkConfig { max_frame: 1500, ..LinkConfig::default() }
}

/// The end with a link to the next life of its peer.
fn again(end: End, local: u16, life: u32) -> End {
    let ends = Ends {
        local: NodeId::new(local).unwrap(),
        local_incarnation: life,
        peer: end.link.peer(),
        peer_incarnation: None,
        local_is_host: local == 1,
        peer_paths: 1,
    };
    End { link: Link::with_storage(ends, config(), end.link.into_storage()), stamps: end.stamps }
}

/// Carries frames from one end to the other, losing some.
fn carry(from: &mut End, to: &mut End, now: Instant, buffer: &mut [u8], count: &mut u64) {
    while let Some(transmit) = from.link.poll_transmit(now, buffer, &mut from.stamps) {
        *count += 1;
        if !(*count).is_multiple_of(LOSE_EVERY) {
            to.link.handle_frame(now, &buffer[..transmit.len], &mut to.stamps).unwrap();
        }
    }
    from.stamps.mark(now);
    to.stamps.mark(now);
}

fn key(counter: u32) -> BindingKey {
    let slot = SlotId::new(1).unwrap();
    let epoch = Epoch::new(0, counter).unwrap();
    BindingKey { slot, function: SlotFunction::ZERO, epoch }
}

#[test]
fn nothing_is_allocated_after_construction() {
    let (mut host, mut rack) = (end(1, 2), end(2, 1));
    host.stamps.set_sampling(Sampling::All);
    let mut buffer = vec![0; 9000];
    let mut now = Instant::ZERO;
    let (mut frames, mut received) = (0, 0);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for round in 0..4000_u32 {
        now = now + Duration::from_micros(50);
        let binding = key(round / 500 + 1);
        if round % 1000 == 0 && round > 0 {
            (host, rack) = (again(host, 1, 10 + round), again(rack, 2, 10 + round));
        }
        if round % 500 == 0 {
            for end in [&mut rack, &mut host] {
                if round > 0
                    && let Some(channel) = end.link.channel_of(&key(round / 500))
                {
                    end.link.close_channel(channel);
                }
                end.link.open_channel(binding).unwrap();
            }
        }
        for end in [&mut host, &mut rack] {
            let channel = end.link.channel_of(&binding).unwrap();
            for class in Class::ALL {
                let outstanding = OutstandingRef { index: round as u16, generation: 0 };
                let peer = end.link.peer();
                let tlp = StampedTlp::Request(outstanding);
                let stamp_key = StampKey { binding, peer, from_host: true, tlp };
                let stamp = end.stamps.arrived(stamp_key, now);
                let meta = TlpMeta {
                    class,
                    outstanding: Some(outstanding),
                    relaxed: false,
                    stamp: Some(stamp),
                };
                let tlp = [7; 552];
                let _ =
                    end.link.send_tlp(now, channel, meta, &tlp[..16 + 4 * (round as usize % 100)]);
            }
            if round % 50 == 0 {
                let _ = end.link.send_sideband(now, channel, Sideband::Flush);
            }
        }
        carry(&mut host, &mut rack, now, &mut buffer, &mut frames);
        carry(&mut rack, &mut host, now, &mut buffer, &mut frames);
        for end in [&mut host, &mut rack] {
            while end.link.poll_sideband().is_some() {}
            while let Some(channel) = end.link.next_with_received(None) {
                if end.link.take_received(channel, ClassSet::ALL, &mut buffer).is_none() {
                    break;
                }
                received += 1;
            }
            end.link.handle_timeout(now);
            while end.link.poll_event().is_some() {}
        }
    }
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert_eq!(after, before, "allocations after construction");
    assert_eq!((host.link.state(), rack.link.state()), (LinkState::Up, LinkState::Up));
    assert!(received > 10_000, "{received} TLPs went through");
    let sent = host.link.counters().find(|(name, _)| *name == "link.tlps_sent").unwrap().1;
    assert!(sent > 5_000, "the counts of all links, not of the last alone: {sent}");
}

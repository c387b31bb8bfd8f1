//! A role allocates in its constructor and never again: not for links, bindings, traffic or their
//! end.

mod world;

use proxy_core::control::{Removal, Request};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tlp_codec::tlp::CplStatus;
use world::*;

/// The system's allocator, counting what roles ask of it.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if in_a_role() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
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

fn use_it(world: &mut World) {
    for n in 0..200_u8 {
        world.mem_write(FIRST_WINDOW + 0x20, &[n; 8]);
        assert_eq!(world.mem_read(FIRST_WINDOW + 0x20, 2), (CplStatus::Success, vec![n; 8]));
    }
    assert_eq!(world.config_read(bdf(3, 0), 0), (CplStatus::Success, 0xd0ac_1b36));
}

#[test]
fn nothing_is_allocated_after_construction() {
    let mut world = World::bound();
    use_it(&mut world);
    for counter in 1..4 {
        let mode = Removal::Force;
        let unbind = unbind_port(port(0), key(counter).epoch, mode);
        world.ask_host(unbind).unwrap();
        world.ask_box(Request::UnbindSlot(key(counter))).unwrap();
        world.run(Duration::from_secs(2));
        // The peers part, and get to know each other again.
        world.ask_host(Request::RemovePeer(node(BOX))).unwrap();
        world.ask_box(Request::RemovePeer(node(HOST))).unwrap();
        world.run(Duration::from_millis(100));
        world.introduce();
        world.bind(counter + 1);
        world.assign_buses();
        use_it(&mut world);
        world.ask_host(Request::ReadTable { from: 0 }).unwrap();
        world.ask_box(Request::ReadCounters { from: 0 }).unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0, "allocations in calls of roles");
}

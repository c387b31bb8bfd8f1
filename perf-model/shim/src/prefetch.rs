//! Managed memory that the program moves ahead of its use.

use perf_core::{Kind, Nanos};

use crate::arch::Frame;
use crate::copies::list;
use crate::session::Session;
use crate::table::{Class, Hook, Role};
use crate::work::number;

/// Whether managed memory goes to a device: a `CUmemLocation` says CU_MEM_LOCATION_TYPE_DEVICE in
/// its first half; the older form is the device's number, with −1 for the host.
fn to_device(word: u64, width: u8) -> bool {
    if width == 4 { word as u32 as i32 >= 0 } else { word as u32 == 1 }
}

/// Managed memory that goes to a device, or to the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    address: u64,
    bytes: u64,
    to_device: bool,
    /// Nobody wants what is in it: it is there then, and no byte of it crosses the fabric.
    discarded: bool,
}

/// What a call asks for.
pub(crate) fn pages(hook: &Hook, frame: &Frame) -> Vec<Pages> {
    let at = |role| number(hook, frame, role);
    if hook.class != Class::Prefetch {
        return batch(hook, frame);
    }
    let width = hook.position(Role::Location).map_or(8, |at| hook.parameters[at].width);
    let to_device = to_device(at(Role::Location), width);
    vec![Pages { address: at(Role::Address), bytes: at(Role::Bytes), to_device, discarded: false }]
}

/// What a call asks for that has a list.
fn batch(hook: &Hook, frame: &Frame) -> Vec<Pages> {
    let at = |role| number(hook, frame, role);
    let count = at(Role::Count) as usize;
    let Some(position) = hook.position(Role::Locations) else { return Vec::new() };
    // After the locations: the first range of each, and how many they are.
    let locations = frame.word(position + 2) as usize;
    let firsts = list::<u64>(frame.word(position + 1), locations);
    let locations = list::<u64>(at(Role::Locations), locations);
    let ranges = list::<u64>(at(Role::Addresses), count).iter();
    let pages = ranges.zip(list::<u64>(at(Role::Sizes), count)).enumerate();
    pages
        .map(|(index, (address, bytes))| {
            let last = firsts.iter().rposition(|first| *first <= index as u64);
            let location = last.and_then(|last| locations.get(last)).copied().unwrap_or(0);
            Pages {
                address: *address,
                bytes: *bytes,
                to_device: to_device(location, 8),
                discarded: hook.class == Class::DiscardAndPrefetch,
            }
        })
        .collect()
}

/// The driver moves them: how many bytes cross the fabric, and what that takes longer.
pub(crate) fn moved(session: &Session, pages: Pages) -> (u64, Nanos) {
    session.ranges.moved(pages.address, pages.bytes, pages.to_device);
    let bytes = if pages.discarded { 0 } else { pages.bytes };
    let extra = session.extra(Kind::Managed, bytes);
    let extra = if pages.to_device || extra == Nanos::ZERO {
        extra
    } else {
        session.settings.fabric.dtoh_extra(bytes)
    };
    (bytes, extra)
}

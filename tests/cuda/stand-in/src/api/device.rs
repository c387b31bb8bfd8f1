//! Devices: what they are.

use std::ffi::{CString, c_char};

use super::driver_functions;
use crate::ffi::{Name, Out};
use crate::settings::settings;
use crate::status::{Answer, Status};

const NAME: &str = "DxPU stand-in";

/// Attributes of every device (cuda.h: `CUdevice_attribute`). Those that are not here are 0: the
/// device has not what they ask for.
const ATTRIBUTES: &[(i32, i32)] = &[
    (1, 1024),         // threads of a block
    (2, 1024),         // x of a block
    (3, 1024),         // y
    (4, 64),           // z
    (5, 0x7FFF_FFFF),  // x of a grid
    (6, 65535),        // y
    (7, 65535),        // z
    (8, 49152),        // shared memory of a block
    (9, 65536),        // constant memory
    (10, 32),          // threads of a warp
    (11, 0x7FFF_FFFF), // pitch of a copy
    (12, 65536),       // registers of a block
    (13, 1_755_000),   // clock, in kHz
    (14, 512),         // alignment of textures
    (15, 1),           // copies beside kernels
    (16, 132),         // multiprocessors
    (19, 1),           // maps host memory
    (21, 131_072),     // textures: width
    (22, 131_072),
    (23, 65536),
    (24, 16384),
    (25, 16384),
    (26, 16384),
    (30, 512),        // alignment of surfaces
    (31, 1),          // kernels beside kernels
    (36, 2_619_000),  // clock of the memory, in kHz
    (37, 5120),       // width of its bus
    (38, 52_428_800), // L2 cache
    (39, 2048),       // threads of a multiprocessor
    (40, 2),          // copy engines
    (41, 1),          // one address space with the host
    (51, 32),         // alignment of pitches
    (75, 9),          // compute capability 9.0
    (76, 0),
    (78, 1), // streams have priorities
    (79, 1), // L1 caches
    (80, 1),
    (81, 233_472), // shared memory of a multiprocessor
    (82, 65536),   // registers of a multiprocessor
    (83, 1),       // managed memory
    (89, 1),       // that the host may touch while kernels run
    (90, 1),       // kernels can be interrupted
    (91, 1),       // registered memory has the host's address
    (95, 1),       // cooperative launches
    (97, 232_448), // shared memory of a block that asks for it
    (99, 1),       // registers host memory
    (106, 32),     // blocks of a multiprocessor
    (111, 1024),   // shared memory of a block that the system keeps
    (115, 1),      // memory pools
    (120, 1),      // clusters
    (130, 0),      // on no NUMA node
    (131, -1),
    (134, -1),
];

/// The attributes that say where the device is on PCIe.
const PCI_BUS: i32 = 33;
const PCI_DEVICE: i32 = 34;
const PCI_DOMAIN: i32 = 50;

driver_functions! {
    Get fn cuDeviceGetCount(call, count: Out<i32>) {
        count.put(call.devices.len() as i32)
    }

    Get fn cuDeviceGet(call, device: Out<i32>, ordinal: i32) {
        call.device(ordinal)?;
        device.put(ordinal)
    }

    Get fn cuDeviceGetName(call, name: Out<c_char>, length: i32, device: i32) {
        call.device(device)?;
        put_text(name, NAME, length)
    }

    Get [cuDeviceGetUuid_v2] fn cuDeviceGetUuid(call, uuid: Out<[u8; 16]>, device: i32) {
        let mut id = *b"DxPU stand-in \0\0";
        id[15] = call.device(device)? as u8;
        uuid.put(id)
    }

    Call fn cuDeviceTotalMem_v2(call, bytes: Out<usize>, device: i32) {
        call.device(device)?;
        bytes.put(settings().memory as usize)
    }

    Get fn cuDeviceGetAttribute(call, value: Out<i32>, attribute: i32, device: i32) {
        let index = call.device(device)? as i32;
        if attribute <= 0 || attribute > 200 {
            return Err(Status::INVALID_VALUE);
        }
        let known = ATTRIBUTES.iter().find(|known| known.0 == attribute);
        value.put(match (attribute, known) {
            (PCI_BUS, _) => index + 1,
            (PCI_DEVICE | PCI_DOMAIN, _) => 0,
            (_, Some((_, value))) => *value,
            (_, None) => 0,
        })
    }

    Call fn cuDeviceComputeCapability(call, major: Out<i32>, minor: Out<i32>, device: i32) {
        call.device(device)?;
        major.put(9)?;
        minor.put(0)
    }

    Get fn cuDeviceGetPCIBusId(call, id: Out<c_char>, length: i32, device: i32) {
        let index = call.device(device)?;
        put_text(id, &format!("0000:{:02X}:00.0", index + 1), length)
    }

    Get fn cuDeviceGetByPCIBusId(call, device: Out<i32>, id: Name) {
        let id = id.get()?.to_ascii_uppercase();
        let known = |index: &usize| format!("0000:{:02X}:00.0", index + 1).ends_with(&id);
        let found = (0..call.devices.len()).find(known).ok_or(Status::INVALID_DEVICE)?;
        device.put(found as i32)
    }

    Call fn cuDeviceCanAccessPeer(call, can: Out<i32>, device: i32, peer: i32) {
        let (device, peer) = (call.device(device)?, call.device(peer)?);
        can.put(i32::from(device != peer))
    }

    Get fn cuDeviceGetP2PAttribute(
        call, value: Out<i32>, attribute: i32, device: i32, peer: i32,
    ) {
        if call.device(device)? == call.device(peer)? {
            return Err(Status::INVALID_DEVICE);
        }
        // cuda.h, `CUdevice_P2PAttribute`: 2 is access.
        value.put(i32::from(attribute == 2))
    }

    Get fn cuDeviceGetLuid(_call, _luid: Out<c_char>, _mask: Out<u32>, _device: i32) {
        // Of Windows only.
        Err(Status::NOT_SUPPORTED)
    }
}

/// Writes a text with its zero byte, cut to `length` bytes.
fn put_text(place: Out<c_char>, text: &str, length: i32) -> Answer {
    let length = usize::try_from(length).map_err(|_| Status::INVALID_VALUE)?;
    if !place.is_wanted() || length == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let text = CString::new(&text[..text.len().min(length - 1)]).expect("no zero byte is in it");
    place.put_all(text.as_bytes_with_nul().iter().map(|byte| *byte as c_char), length);
    Ok(())
}

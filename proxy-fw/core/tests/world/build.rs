//! Names, TLPs and requests, written short.

use super::*;

pub fn node(n: u16) -> NodeId {
    NodeId::new(n).unwrap()
}

pub fn slot(n: u8) -> SlotId {
    SlotId::new(n).unwrap()
}

pub fn port(n: u8) -> PortId {
    PortId::new(n).unwrap()
}

pub fn key(counter: u32) -> BindingKey {
    let epoch = Epoch::new(0, counter).unwrap();
    BindingKey { slot: slot(1), function: SlotFunction::ZERO, epoch }
}

pub fn emit(repr: &Repr<'_>) -> Vec<u8> {
    let mut buf = vec![0; repr.buffer_len()];
    let length = repr.emit(&mut buf).unwrap();
    buf.truncate(length);
    buf
}

/// The one completion of a root complex for an aligned read, with all of its data.
pub fn answer_to(read: &[u8], data: &[u8]) -> Vec<u8> {
    let read = Packet::new_checked(read).unwrap();
    emit(&Repr::new(Kind::Completion {
        completer: Bdf::default(),
        requester: read.requester(),
        tag: read.tag(),
        status: CplStatus::Success,
        bcm: false,
        byte_count: data.len() as u16,
        lower_address: read.address() as u8 & 0x7f,
        locked: false,
        data,
    }))
}

pub fn peer(n: u16, incarnation: u32) -> Peer {
    let paths = Default::default();
    Peer { node: node(n), incarnation, paths, mtu: MAX_FRAME as u16 }
}

pub fn mem_write<'a>(requester: Bdf, address: u64, data: &'a [u8]) -> Kind<'a> {
    let enables = ByteEnables::all((data.len() / 4) as u16);
    let tag = Tag::new(0).unwrap();
    Kind::MemWrite { requester, tag, address, enables, hint: None, data }
}

/// What [`World::config_write`] writes.
pub fn config_write(tag: Tag, destination: Bdf, register: u16, data: &[u8; 4]) -> Repr<'_> {
    Repr::new(Kind::ConfigWrite {
        type1: destination.bus().get() != 1,
        requester: Bdf::default(),
        tag,
        destination,
        register,
        first_be: 0xf,
        data,
    })
}

pub fn mem_read(requester: Bdf, tag: u16, address: u64, dwords: u16) -> Kind<'static> {
    Kind::MemRead {
        requester,
        tag: Tag::new(tag).unwrap(),
        address,
        length_dw: dwords,
        enables: ByteEnables::all(dwords),
        hint: None,
        locked: false,
    }
}

pub fn bdf(bus: u8, device: u8) -> Bdf {
    Bdf::from_bits(u16::from(bus) << 8 | u16::from(device) << 3)
}

pub fn slot_binding(key: BindingKey) -> SlotBinding {
    let window = Window::everything(node(HOST), PathSet::FIRST, key.epoch);
    SlotBinding {
        key,
        host: node(HOST),
        path_set: PathSet::FIRST,
        share: Share::EVEN,
        windows: [window].into_iter().collect(),
    }
}

pub fn port_binding(key: BindingKey) -> PortBinding {
    PortBinding {
        port: port(0),
        box_node: node(BOX),
        slot: key.slot,
        functions: [(key.function, key.epoch)].into_iter().collect(),
        path_set: PathSet::FIRST,
        share: Share::EVEN,
    }
}

/// Takes what the first box's slot has out of a port.
pub fn unbind_port(port: PortId, epoch: Epoch, mode: Removal) -> Request {
    unbind_port_of(BOX, port, epoch, mode)
}

/// Takes what a box's slot has out of a port.
pub fn unbind_port_of(box_node: u16, port: PortId, epoch: Epoch, mode: Removal) -> Request {
    Request::UnbindPort { port, box_node: node(box_node), slot: slot(1), epoch, mode }
}

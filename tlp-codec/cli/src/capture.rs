//! Capture files: packets, the DxPU frames in them, and their records.

use crate::decode::Printer;
use crate::input::{Format, Stream};
use crate::joiner::Joiner;
use anyhow::{Context, Result};
use etherparse::{EtherType, SlicedPacket, TransportSlice};
use pcap_file::pcapng::Block;
use pcap_file::{DataLink, pcap::PcapReader, pcapng::PcapNgReader};
use serde_json::{Map, Value};
use std::io::Write;
use tlp_codec::fabric::{ETHERTYPE, Frame, FrameKind, Header, Record, RecordAddress, TlpTraits};

/// Prints every TLP of a capture.
pub(crate) fn read<W: Write>(
    format: Format,
    stream: Stream,
    printer: &mut Printer<'_, W>,
) -> Result<()> {
    let mut capture = Capture { packets: 0, frames: 0, joiner: Joiner::default(), printer };
    match format {
        Format::Pcap => capture.read_pcap(stream)?,
        Format::PcapNg => capture.read_pcapng(stream)?,
    }
    capture.finish()
}

/// What packets of a capture start with; `None` for link types that cannot carry frames.
fn frame_bytes(link: DataLink, packet: &[u8]) -> Option<Carried<'_>> {
    let sliced = match link {
        DataLink::ETHERNET => SlicedPacket::from_ethernet(packet),
        DataLink::LINUX_SLL => SlicedPacket::from_linux_sll(packet),
        DataLink::LINUX_SLL2 => {
            let (head, rest) = packet.split_at_checked(20)?;
            SlicedPacket::from_ether_type(EtherType(u16::from_be_bytes([head[0], head[1]])), rest)
        }
        DataLink::NULL | DataLink::LOOP => SlicedPacket::from_ip(packet.get(4..)?),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => SlicedPacket::from_ip(packet),
        _ => return None,
    };
    // What the slicer cannot read is somebody else's traffic.
    let sliced = sliced.ok()?;
    if let Some(TransportSlice::Udp(udp)) = sliced.transport {
        return Some(Carried::Udp(udp.payload()));
    }
    let ether = sliced.ether_payload()?;
    (ether.ether_type == EtherType(ETHERTYPE)).then_some(Carried::Ethernet(ether.payload))
}

/// Bytes that may be a frame, and in what.
enum Carried<'a> {
    /// Ours by its EtherType.
    Ethernet(&'a [u8]),
    /// Ours if it reads as a frame.
    Udp(&'a [u8]),
}

struct Capture<'a, 'b, W: Write> {
    packets: u64,
    frames: u64,
    joiner: Joiner,
    printer: &'a mut Printer<'b, W>,
}

impl<W: Write> Capture<'_, '_, W> {
    fn read_pcap(&mut self, stream: Stream) -> Result<()> {
        let mut reader = PcapReader::new(stream).context("cannot read the capture")?;
        let link = reader.header().datalink;
        while let Some(packet) = reader.next_packet() {
            match packet {
                Ok(packet) => self.packet(link, &packet.data)?,
                Err(error) => return self.cut_off(&error.to_string()),
            }
        }
        Ok(())
    }

    fn read_pcapng(&mut self, stream: Stream) -> Result<()> {
        let mut reader = PcapNgReader::new(stream).context("cannot read the capture")?;
        let mut links = Vec::new();
        while let Some(block) = reader.next_block() {
            let (interface, data) = match block {
                Ok(Block::SectionHeader(_)) => {
                    links.clear();
                    continue;
                }
                Ok(Block::InterfaceDescription(interface)) => {
                    links.push(interface.linktype);
                    continue;
                }
                Ok(Block::EnhancedPacket(packet)) => (packet.interface_id as usize, packet.data),
                Ok(Block::Packet(packet)) => (packet.interface_id as usize, packet.data),
                Ok(Block::SimplePacket(packet)) => (0, packet.data),
                Ok(_) => continue,
                Err(error) => return self.cut_off(&error.to_string()),
            };
            match links.get(interface) {
                Some(&link) => self.packet(link, &data)?,
                None => self.cut_off(&format!("no interface {interface} is described"))?,
            }
        }
        Ok(())
    }

    fn cut_off(&mut self, reason: &str) -> Result<()> {
        let place = format!("behind packet {}", self.packets);
        self.printer.broken(&place, &format!("the capture cannot be read further: {reason}"))
    }

    fn packet(&mut self, link: DataLink, packet: &[u8]) -> Result<()> {
        self.packets += 1;
        let place = format!("packet {}", self.packets);
        let frame = match frame_bytes(link, packet) {
            None => return Ok(()),
            Some(Carried::Udp(bytes)) => match Frame::new_checked(bytes) {
                Ok(frame) => frame,
                Err(_) => return Ok(()),
            },
            Some(Carried::Ethernet(bytes)) => match Frame::new_checked(bytes) {
                Ok(frame) => frame,
                Err(error) => {
                    self.frames += 1;
                    return self.printer.broken(&place, &error.to_string());
                }
            },
        };
        self.frames += 1;
        self.frame(&place, &frame)
    }

    fn frame(&mut self, place: &str, frame: &Frame<&[u8]>) -> Result<()> {
        let header = frame.header();
        if header.kind != FrameKind::Data {
            let what = match header.kind {
                FrameKind::Open => "open",
                _ => "close",
            };
            return self.printer.record(what, self.place_of(&header, header.sequence));
        }
        let mut sequence = header.sequence;
        for record in frame.records() {
            match record {
                Ok(record) => self.record(place, &header, sequence, &record)?,
                Err(error) => self.printer.broken(place, &error.to_string())?,
            }
            sequence = sequence.wrapping_add(1);
        }
        Ok(())
    }

    fn record(
        &mut self,
        place: &str,
        header: &Header,
        sequence: u32,
        record: &Record<'_>,
    ) -> Result<()> {
        let mut from = self.place_of(header, sequence);
        match record {
            Record::Nop => self.printer.record("nop", from),
            Record::Tlp(tlp) => {
                put_address(&mut from, &tlp.address);
                put_traits(&mut from, &tlp.traits);
                if !tlp.crc_matches() {
                    return self.printer.broken(place, "a TLP's CRC is wrong in a right frame");
                }
                self.printer.tlp(place, tlp.tlp, Some(from))
            }
            Record::SplitHeader(start) => {
                put_address(&mut from, &start.address);
                put_traits(&mut from, &start.traits);
                let joined = self.joiner.start(header, sequence, start, from);
                self.joined(place, joined)
            }
            Record::SplitData(more) => {
                let joined = self.joiner.more(header, sequence, more);
                self.joined(place, joined)
            }
            Record::Sideband(address, sideband) => {
                put_address(&mut from, address);
                self.printer.record(&format!("sideband {sideband:?}"), from)
            }
            Record::Credits(credits) => {
                put_address(&mut from, &credits.address);
                let [posted, non_posted, completion] = credits.tlps;
                let what = format!(
                    "credits posted {posted} non-posted {non_posted} completion {completion} \
                     sideband {}",
                    credits.sideband
                );
                self.printer.record(&what, from)
            }
            Record::Unbind(address) => {
                put_address(&mut from, address);
                self.printer.record("unbind", from)
            }
        }
    }

    fn joined(
        &mut self,
        place: &str,
        joined: Result<Option<crate::joiner::Joined>, &'static str>,
    ) -> Result<()> {
        match joined {
            Ok(None) => Ok(()),
            Ok(Some(tlp)) => self.printer.tlp(place, &tlp.bytes, Some(tlp.from)),
            Err(reason) => self.printer.broken(place, reason),
        }
    }

    fn place_of(&self, header: &Header, sequence: u32) -> Map<String, Value> {
        let mut from = Map::new();
        from.insert("packet".into(), self.packets.into());
        from.insert("source".into(), header.source.get().into());
        from.insert("destination".into(), header.destination.get().into());
        from.insert("path".into(), header.path.get().into());
        from.insert("sequence".into(), sequence.into());
        from
    }

    fn finish(self) -> Result<()> {
        let place = format!("packet {}", self.packets);
        if self.frames == 0 {
            let reason = format!("no DxPU frame in it; packets read: {}", self.packets);
            return self.printer.broken("capture", &reason);
        }
        for unfinished in self.joiner.unfinished() {
            self.printer.broken(&place, &unfinished)?;
        }
        Ok(())
    }
}

fn put_address(from: &mut Map<String, Value>, address: &RecordAddress) {
    from.insert("source_slot".into(), address.source.get().into());
    from.insert("destination_slot".into(), address.destination.get().into());
    from.insert("function".into(), address.function.get().into());
    from.insert("epoch".into(), address.epoch.to_string().into());
}

fn put_traits(from: &mut Map<String, Value>, traits: &TlpTraits) {
    if let Some(outstanding) = traits.outstanding {
        let text = format!("{}.{}", outstanding.index, outstanding.generation);
        from.insert("outstanding".into(), text.into());
    }
}

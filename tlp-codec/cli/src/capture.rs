//! Capture files: packets, the DxPU frames in them, and their records; or TLPs alone.

use crate::bare;
use crate::decode::Printer;
use crate::input::{Format, Stream};
use crate::joiner::Joiner;
use crate::pcapng;
use crate::recent::{Key, Recent};
use crate::segments::{length_said, segment_size};
use anyhow::{Context, Result};
use etherparse::{EtherType, LaxSlicedPacket, TransportSlice, UdpHeader};
use pcap_file::{DataLink, PcapError, pcap::PcapReader};
use serde_json::{Map, Value};
use std::io::{ErrorKind, Write};
use tlp_codec::fabric::{
    ETHERTYPE, Frame, FrameError, FrameKind, Header, Record, RecordAddress, TlpTraits,
};

/// Prints every TLP of a capture.
pub(crate) fn read<W: Write>(
    format: Format,
    stream: Stream,
    printer: &mut Printer<'_, W>,
) -> Result<()> {
    let (joiner, came) = (Joiner::default(), Recent::default());
    let mut capture = Capture { packets: 0, cut: 0, found: 0, joiner, came, printer };
    match format {
        Format::Pcap => capture.read_pcap(stream)?,
        Format::PcapNg => capture.read_pcapng(stream)?,
    }
    capture.finish()
}

/// What a packet carries; `None` for link types that cannot carry frames and for what is somebody
/// else's. Read as far as it goes, since a capture may hold only the start of a packet.
fn frame_bytes(link: DataLink, packet: &[u8]) -> Option<Carried<'_>> {
    // The length of the link's header, and where in it the EtherType is.
    let behind = |header: usize, at: usize| {
        let (head, rest) = packet.split_at_checked(header)?;
        let ether_type = EtherType(u16::from_be_bytes([head[at], head[at + 1]]));
        Some(LaxSlicedPacket::from_ether_type(ether_type, rest))
    };
    let sliced = match link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(packet).ok()?,
        DataLink::LINUX_SLL => behind(16, 14)?,
        DataLink::LINUX_SLL2 => behind(20, 0)?,
        DataLink::NULL | DataLink::LOOP => LaxSlicedPacket::from_ip(packet.get(4..)?).ok()?,
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(packet).ok()?,
        _ => return None,
    };
    if let Some(TransportSlice::Udp(udp)) = &sliced.transport {
        let length = usize::from(udp.length()).saturating_sub(UdpHeader::LEN);
        return Some(Carried::Udp { payload: udp.payload(), length });
    }
    let ether = sliced.ether_payload()?;
    (ether.ether_type == EtherType(ETHERTYPE)).then_some(Carried::Ethernet(ether.payload))
}

/// Bytes that may be a frame, and in what.
enum Carried<'a> {
    /// Ours by its EtherType.
    Ethernet(&'a [u8]),
    /// Ours if it reads as a frame.
    Udp {
        payload: &'a [u8],
        /// How long the payload was when it was sent.
        length: usize,
    },
}

/// A packet as a capture holds it.
struct Captured<'a> {
    link: DataLink,
    bytes: &'a [u8],
    /// How long it was on the wire.
    original: u32,
    /// What comments say of a TLP that is alone.
    known: Map<String, Value>,
}

impl Captured<'_> {
    /// What to say of a packet of which only the start is there (`tcpdump -s`).
    fn cut(&self) -> Option<String> {
        let (have, original) = (self.bytes.len(), self.original);
        let remedy = if self.link == bare::LINK {
            "record whole TLPs (without --snap)"
        } else {
            "capture whole packets (tcpdump -s 0)"
        };
        (have < original as usize).then(|| {
            format!("the capture holds only {have} of the packet's {original} bytes; {remedy}")
        })
    }
}

struct Capture<'a, 'b, W: Write> {
    packets: u64,
    /// Packets of which only the start is there.
    cut: u64,
    /// Frames, and TLPs that are alone.
    found: u64,
    joiner: Joiner,
    /// TLPs that were no split ones.
    came: Recent,
    printer: &'a mut Printer<'b, W>,
}

impl<W: Write> Capture<'_, '_, W> {
    fn read_pcap(&mut self, stream: Stream) -> Result<()> {
        let mut reader = PcapReader::new(stream.bytes).context("cannot read the capture")?;
        // The field's upper half says how long a packet's checksum is, where there is one.
        let link = DataLink::from(u32::from(reader.header().datalink) & 0xffff);
        // Raw, because the crate's own packets must not have been longer than the snap length:
        // `tcpdump -s` leaves such ones.
        while let Some(packet) = reader.next_raw_packet() {
            match packet {
                Ok(packet) => {
                    let (bytes, original) = (&packet.data[..], packet.orig_len);
                    self.packet(Captured { link, bytes, original, known: Map::new() })?;
                    self.printer.part_ends()?;
                }
                Err(error) => return self.cut_off(&why_unread(error)),
            }
        }
        Ok(())
    }

    fn read_pcapng(&mut self, stream: Stream) -> Result<()> {
        let mut reader = pcapng::Reader::new(stream.bytes);
        loop {
            match reader.next_packet() {
                Ok(None) => return Ok(()),
                Ok(Some(Ok(packet))) => {
                    let known = bare::known(packet.comments());
                    let pcapng::Packet { link, bytes, original, .. } = packet;
                    self.packet(Captured { link, bytes, original, known })?;
                    self.printer.part_ends()?;
                }
                Ok(Some(Err(broken))) => {
                    self.packets += 1;
                    self.printer
                        .broken(&format!("packet {}", self.packets), &broken.to_string())?;
                }
                Err(end) => return self.cut_off(&end.to_string()),
            }
        }
    }

    fn cut_off(&mut self, reason: &str) -> Result<()> {
        let place = format!("behind packet {}", self.packets);
        self.printer.broken(&place, &format!("the capture cannot be read further: {reason}"))
    }

    fn packet(&mut self, packet: Captured<'_>) -> Result<()> {
        self.packets += 1;
        let cut = packet.cut();
        self.cut += u64::from(cut.is_some());
        let place = format!("packet {}", self.packets);
        if packet.link == bare::LINK {
            return self.alone(&place, packet, cut);
        }
        match frame_bytes(packet.link, packet.bytes) {
            None => Ok(()),
            Some(Carried::Ethernet(bytes)) => self.carried(&place, bytes, None, cut),
            Some(Carried::Udp { payload, length }) => match segment_size(payload, length) {
                None => self.carried(&place, payload, Some(length), cut),
                Some(size) => {
                    let cut = cut.filter(|_| payload.len() < length);
                    self.several(&place, &payload[..payload.len().min(length)], size, cut)
                }
            },
        }
    }

    /// Takes a TLP that is alone.
    fn alone(&mut self, place: &str, packet: Captured<'_>, cut: Option<String>) -> Result<()> {
        self.found += 1;
        if let Some(cut) = cut {
            return self.printer.broken(place, &cut);
        }
        let mut from = Map::from_iter([("packet".to_owned(), Value::from(self.packets))]);
        from.extend(packet.known.into_iter().filter(|(name, _)| name != "packet"));
        self.printer.tlp(place, packet.bytes, Some(from))
    }

    /// Takes several frames of this size, of which the last may be shorter; those that the capture
    /// has, if it cut the packet.
    fn several(
        &mut self,
        place: &str,
        payload: &[u8],
        size: usize,
        cut: Option<String>,
    ) -> Result<()> {
        for bytes in payload.chunks(size) {
            if cut.is_some() && bytes.len() < size {
                break;
            }
            self.found += 1;
            match Frame::new_checked(bytes) {
                Ok(frame) => self.frame(place, &frame)?,
                Err(error) => self.printer.broken(place, &error.to_string())?,
            }
        }
        let Some(cut) = cut else { return Ok(()) };
        self.found += 1;
        self.printer.broken(place, &cut)
    }

    /// Takes a frame, if it is one: alone in Ethernet, or so long in UDP.
    fn carried(
        &mut self,
        place: &str,
        bytes: &[u8],
        udp_length: Option<usize>,
        cut: Option<String>,
    ) -> Result<()> {
        let error = match Frame::new_checked(bytes) {
            Ok(frame) => {
                self.found += 1;
                return self.frame(place, &frame);
            }
            Err(error) => error,
        };
        // The start of a frame in UDP is told by the two lengths, which agree.
        let ours = match (udp_length, &error) {
            (None, _) => true,
            (Some(length), FrameError::CutShort { need, .. }) => cut.is_some() && *need == length,
            // Or by its version, length and kind, where only the CRC does not fit.
            (Some(length), FrameError::Crc { .. }) => {
                length == bytes.len() && length_said(bytes) == Some(length)
            }
            // These are found behind a right CRC.
            (
                Some(_),
                FrameError::Key(_)
                | FrameError::Kind(_)
                | FrameError::Node(_)
                | FrameError::Path(_)
                | FrameError::Sacks,
            ) => true,
            (Some(_), _) => false,
        };
        if !ours {
            return Ok(());
        }
        self.found += 1;
        self.printer.broken(place, &cut.unwrap_or_else(|| error.to_string()))
    }

    fn frame(&mut self, place: &str, frame: &Frame<&[u8]>) -> Result<()> {
        let header = frame.header();
        if header.kind != FrameKind::Data {
            let what = match header.kind {
                FrameKind::Open => "open",
                FrameKind::Probe => "probe",
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
                match self.came.came_before(Key::new(header, sequence)) {
                    true => self.printer.tlp_again(place, tlp.tlp, from),
                    false => self.printer.tlp(place, tlp.tlp, Some(from)),
                }
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
        if self.found == 0 {
            let mut reason =
                format!("no DxPU frame and no TLP in it; packets read: {}", self.packets);
            if self.cut > 0 {
                reason += &format!(", of which only the start is there: {}", self.cut);
            }
            return self.printer.broken("capture", &reason);
        }
        for unfinished in self.joiner.unfinished() {
            self.printer.broken(&place, &unfinished)?;
        }
        Ok(())
    }
}

/// Why no packet could be read of a pcap, whose reader takes a packet that is longer than its memory
/// for the file's end.
fn why_unread(error: PcapError) -> String {
    match error {
        PcapError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            "it ends in the middle of a packet, or the packet's length is wrong".into()
        }
        error => format!("{:#}", anyhow::Error::from(error)),
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

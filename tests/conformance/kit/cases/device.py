"""What is in the TLPs: a device in the tested box, or the tested host's answers (sections 5.2, 12)."""

import struct

from .. import wire
from ..end import Failed
from ..lab import Skip
from ..wire import SplitData, SplitHeader, Tlp
from . import case

SUCCESS, UR, CA = 0, 1, 4
IDS, COMMAND, BAR0, CAPABILITIES, BUS = 0x00, 0x04, 0x10, 0x34, 0x01
PCI_EXPRESS = 0x10
# Where the kit puts the device's memory.
MEMORY = 0xE0000000


class Device:
    """Configuration and memory of the device in the tested box's slot, through the link."""

    def __init__(self, lab):
        self.lab, self.number = lab, 0
        self.end = lab.bound(credits=(4000, 4000, 4000, 4000))

    def completed(self, head, data=b""):
        """Sends a non-posted request; gives status and data of the whole answer."""
        self.number += 1
        entry = (self.number, 3)
        head = head[:6] + bytes([self.number & 0xFF]) + head[7:]
        self.lab.queue(self.end, Tlp(self.end.address, wire.NON_POSTED, head + data, entry))
        self.end.pump(lambda: self.whole(entry), self.lab.settings.patience)
        if not self.whole(entry):
            raise Failed(f"no whole completion of {head.hex()} "
                         f"(link closed: {self.end.closed_with()})")
        return self.whole(entry)

    def whole(self, entry):
        """(status, data) when all completions of a request are here."""
        data = b""
        for sequence, record in sorted(self.end.records.items()):
            if isinstance(record, SplitHeader) and record.entry == entry:
                record = self.joined(sequence, record)
            if not isinstance(record, Tlp) or record.entry != entry:
                continue
            tlp, status = record.tlp, record.tlp[6] >> 5
            count = struct.unpack_from(">H", tlp, 6)[0] & 0xFFF or 4096
            if status != SUCCESS or tlp[0] == 0x0A:
                return status, b""
            low = tlp[11] & 3
            data += tlp[12 + low:12 + low + count]
            words = struct.unpack_from(">H", tlp, 2)[0] & 0x3FF or 1024
            if words * 4 - low >= count:
                return status, data
        return None

    def joined(self, sequence, head):
        """A split TLP whose parts have come."""
        data = head.data
        for part in range(1, head.parts + 1):
            record = self.end.records.get(sequence + part)
            if not isinstance(record, SplitData) or record.part != part:
                return None
            if record.offset != len(data):
                raise Failed(f"section 5.3: part {part} belongs at {record.offset}, not {len(data)}")
            data += record.data
        if len(data) != head.total or wire.tlp_crc(data) != head.crc:
            raise Failed(f"section 5.3: {len(data)} bytes of {head.total}, or their CRC is wrong")
        return Tlp(head.address, head.tlp_class, data, head.entry)

    def config(self, register, write=None):
        """Reads or writes a register."""
        kind = 0x04000001 if write is None else 0x44000001
        head = struct.pack(">III", kind, 0x0F, BUS << 24 | self.lab.function << 16 | register)
        data = b"" if write is None else struct.pack("<I", write)
        status, data = self.completed(head, data)
        if status != SUCCESS:
            raise Failed(f"register {register:#x}: completion status {status}")
        return struct.unpack("<I", data)[0] if data else None

    def read(self, address, length):
        """Reads memory; gives status and data."""
        words, wide = length // 4, address >> 32
        head = struct.pack(">II", (0x20000000 if wide else 0) | words & 0x3FF,
                           0xFF if words > 1 else 0x0F)
        head += struct.pack(">Q" if wide else ">I", address)
        return self.completed(head)

    def write(self, address, data):
        words, wide = len(data) // 4, address >> 32
        head = struct.pack(">II", (0x60000000 if wide else 0x40000000) | words & 0x3FF,
                           0xFF if words > 1 else 0x0F)
        head += struct.pack(">Q" if wide else ">I", address)
        self.lab.queue(self.end, Tlp(self.end.address, wire.POSTED, head + data))

    def largest_payload(self):
        """Lets it take and send TLPs of the largest payload that it is able of, and gives that."""
        place = self.config(CAPABILITIES) & 0xFC
        for _ in range(48):
            if not place:
                break
            head = self.config(place)
            if head & 0xFF == PCI_EXPRESS:
                supported = min(self.config(place + 4) & 7, 5)
                # The upper half is status, whose bits are cleared by ones.
                control = self.config(place + 8) & 0x8F1F
                self.config(place + 8, control | supported << 5 | supported << 12)
                return 128 << supported
            place = head >> 8 & 0xFC
        return 128

    def map(self):
        """Puts every memory BAR at a place of its own; gives (address, size) of each."""
        self.config(COMMAND, 0)
        bars, register, place = [], BAR0, MEMORY
        while register < BAR0 + 24:
            self.config(register, 0xFFFFFFFF)
            mask = self.config(register)
            wide = mask & 7 == 4
            high = 0xFFFFFFFF
            if wide:
                self.config(register + 4, 0xFFFFFFFF)
                high = self.config(register + 4)
            if mask and not mask & 1:
                size = (~(high << 32 | mask & ~0xF) & 2**64 - 1) + 1
                place = (place + size - 1) // size * size
                self.config(register, place & 0xFFFFFFFF)
                if wide:
                    self.config(register + 4, place >> 32)
                bars.append((place, size))
                place += size
            register += 8 if wide else 4
        self.config(COMMAND, 2)
        return bars


@case("device.config", "5.2", role="box")
def config(lab):
    """Configuration reads are answered with the device's registers; writes take."""
    device = Device(lab)
    ids = device.config(IDS)
    if ids in (0, 0xFFFFFFFF):
        raise Failed(f"vendor and device ID are {ids:#010x}")
    if device.config(IDS) != ids:
        raise Failed("vendor and device ID change")
    device.config(0x0C, 0x10)
    if device.config(0x0C) & 0xFF != 0x10:
        raise Failed("the cache line size was written, and reads back as something else")


@case("device.memory", "12", role="box")
def memory(lab):
    """A read of the device's memory is answered, one that no BAR has is an Unsupported Request."""
    device = Device(lab)
    bars = device.map()
    if not bars:
        raise Skip("the device has no memory BAR")
    for address, _size in bars:
        status, data = device.read(address, 4)
        if status != SUCCESS or len(data) != 4:
            raise Failed(f"a read of {address:#x}: status {status}, {data.hex()}")
    status, data = device.read(0x1000, 4)
    if status != UR:
        raise Failed(f"a read of 0x1000, which no BAR has: status {status}; 1 is due")
    device.config(COMMAND, 0)
    status, data = device.read(bars[0][0], 4)
    if status != UR:
        raise Failed(f"a read while Memory Space Enable is off: status {status}; 1 is due")


@case("device.memory-kept", "9", role="box")
def memory_kept(lab):
    """What was written is read, and no read passes the write before it."""
    device = Device(lab)
    address, size = max(device.map(), key=lambda bar: bar[1], default=(0, 0))
    if size < 65536 or not lab.settings.scratch:
        raise Skip("--scratch says that the largest BAR is plain memory; it was not given")
    for number in range(20):
        data = bytes((number * 7 + n) & 0xFF for n in range(128))
        device.write(address + 4096 + 256 * number, data)
        status, back = device.read(address + 4096 + 256 * number, 128)
        if status != SUCCESS or back != data:
            raise Failed(f"wrote {data.hex()}, read {back.hex()} (status {status})")


@case("device.split-completion", "5.3", role="box")
def split_completion(lab):
    """To an end that takes 512 bytes, a large completion comes in parts that fit."""
    device = Device(lab)
    device.end = lab.bound(credits=(4000,) * 4, max_frame=512)
    address, size = max(device.map(), key=lambda bar: bar[1], default=(0, 0))
    if size < 65536 or not lab.settings.scratch:
        raise Skip("--scratch says that the largest BAR is plain memory; it was not given")
    data = bytes(n * 3 & 0xFF for n in range(512))
    for offset in range(0, 512, 128):
        device.write(address + offset, data[offset:offset + 128])
    status, back = device.read(address, 512)
    if status != SUCCESS or back != data:
        raise Failed(f"512 bytes: status {status}, {len(back)} bytes, same: {back == data}")


@case("device.large-tlps", "13", role="box")
def large_tlps(lab):
    """Writes and completions of the device's largest payload go through, in records that fit frames
    of 1200 bytes."""
    device = Device(lab)
    address, size = max(device.map(), key=lambda bar: bar[1], default=(0, 0))
    if size < 65536 or not lab.settings.scratch:
        raise Skip("--scratch says that the largest BAR is plain memory; it was not given")
    payload = device.largest_payload()
    # Four doublewords of header.
    if payload + 16 > device.end.peer_open.max_tlp:
        raise Failed(f"the device offers a payload of {payload} bytes; the largest TLP that its box "
                     f"takes has {device.end.peer_open.max_tlp}")
    for number in range(4):
        data = bytes(n * 7 + (n >> 8) + number & 0xFF for n in range(payload))
        device.write(address + 4096 * number, data)
        status, back = device.read(address + 4096 * number, payload)
        if status != SUCCESS or back != data:
            raise Failed(f"{payload} bytes: status {status}, {len(back)} bytes, same: {back == data}")


@case("device.reset", "5.4", role="box")
def reset(lab):
    """A hot reset (code 1) takes the device's settings, and the link goes on."""
    device = Device(lab)
    device.config(0x0C, 0x10)
    device.end.send(wire.Sideband(device.end.address, 1))
    bound = 20
    while bound and device.config(0x0C) & 0xFF:
        device.end.pump(seconds=0.1)
        bound -= 1
    if not bound:
        raise Failed("the cache line size outlived a hot reset by 2 s")


@case("host.unsupported", "12", role="host")
def host_unsupported(lab):
    """A device's read that the host does not let through is an Unsupported Request (Bus Master is
    off), or a Completer Abort (ACS Source Validation is on)."""
    end = lab.bound()
    completion = lab.ask(end, 1)
    status = completion.tlp[6] >> 5
    if status not in (UR, CA):
        raise Failed(f"completion status {status}; 1 or 4 is due")


@case("host.posted-dropped", "12", role="host")
def host_posted_dropped(lab):
    """A device's write that the host does not let through is dropped, and its credit comes back."""
    end = lab.bound()
    before = end.limits[end.address.epoch][wire.POSTED]
    write = struct.pack(">III", 0x40000001, 0x0100000F, 0x1000) + bytes(4)
    for _ in range(4):
        end.send(Tlp(end.address, wire.POSTED, write))
    if not end.pump(lambda: end.limits[end.address.epoch][wire.POSTED] >= before + 4,
                    lab.settings.patience):
        raise Failed(f"posted credits: {before} before, {end.limits[end.address.epoch]} after")
    lab.still_up(end)

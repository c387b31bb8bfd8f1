"""Frames and records as `tlp-codec/docs/wire.md` has them, written from that document alone.

`Frame` and the records (`Tlp`, `Credits`, …) are what the bytes mean; `Frame.encode` and
`Frame.decode` go between the two. What is no frame or record raises `WireError`, whose `rule` is
the line of section 10 that it breaks.
"""

import struct
from dataclasses import dataclass, field

VERSION = 1
ETHERTYPE = 0x88B5
OPEN, DATA, CLOSE, PROBE = 1, 2, 3, 4
KINDS = {OPEN: "open", DATA: "data", CLOSE: "close", PROBE: "probe"}
HEADER, CRC_BYTES = 48, 4
SMALLEST_FRAME = HEADER + CRC_BYTES
LARGEST_FRAME = 9000
# What every record that is sent fits (sections 5.3 and 14).
SAFE_FRAME = 1200
# The largest TLP of software and of a card (section 13).
LARGEST_TLP, CARD_TLP = 4136, 552
LARGEST_PATH = 7
MOST_RANGES = 8

NOP, TLP, SPLIT_HEADER, SPLIT_DATA, SIDEBAND, CREDITS, UNBIND = range(7)
POSTED, NON_POSTED, COMPLETION = 0, 1, 2
CLASSES = ("posted", "non-posted", "completion")
RELAXED, HAS_ENTRY, SAMPLED, ANNOUNCE = 4, 8, 16, 32

REMOVED, GAVE_UP, PROTOCOL, NO_VERSION, RESTARTED = 1, 2, 3, 4, 5

_HEADER = struct.Struct("<BBHHHIIIBBHIIIIHBBHH")
_RANGE = struct.Struct("<HH")
_OPEN = struct.Struct("<BBHHHIIQQ")
_ADDRESS = struct.Struct("<BBHBBHI")


class WireError(Exception):
    """Bytes that are no frame or record; `rule` names the line of section 10."""

    def __init__(self, rule, text):
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def _table(polynomial):
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table.append(value)
    return table


_CRC32C = _table(0x82F63B78)
_CRC32 = _table(0xEDB88320)


def _crc(table, data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc32c(data):
    """The frame CRC (section 4.2)."""
    return _crc(_CRC32C, data)


def tlp_crc(data):
    """The TLP CRC (section 5.2)."""
    return _crc(_CRC32, data)


def before(a, b):
    """Whether one sequence is before another (section 2)."""
    return (a - b) % 2**32 >= 2**31


def wrap(number):
    """A sequence, packet number or count in its 32 bits."""
    return number % 2**32


# --- records --------------------------------------------------------------------------------------


@dataclass
class Address:
    """Bytes 4 to 11 of a record."""

    source_slot: int = 0
    destination_slot: int = 0
    function: int = 0
    epoch: int = 1

    def same_binding(self, other):
        """Whether both name the same binding, in whichever direction."""
        slots = {self.source_slot, self.destination_slot}
        return (slots == {other.source_slot, other.destination_slot}
                and (self.function, self.epoch) == (other.function, other.epoch))

    def turned(self):
        """The same binding in the other direction."""
        return Address(self.destination_slot, self.source_slot, self.function, self.epoch)


@dataclass
class Nop:
    """Section 5.1."""

    def encode(self):
        return struct.pack("<BBH", NOP, 0, 4)


@dataclass
class Tlp:
    """Section 5.2."""

    address: Address
    tlp_class: int
    tlp: bytes
    entry: tuple = None
    relaxed: bool = False
    sampled: bool = False
    crc: int = None

    def encode(self):
        crc = tlp_crc(self.tlp) if self.crc is None else self.crc
        index, generation = self.entry or (0, 0)
        return (_record(TLP, _flags(self), 20 + len(self.tlp), self.address)
                + struct.pack("<HH", index, generation) + self.tlp + struct.pack("<I", crc))

    @property
    def crc_is_right(self):
        return self.crc is None or self.crc == tlp_crc(self.tlp)


@dataclass
class SplitHeader:
    """Section 5.3."""

    address: Address
    tlp_class: int
    total: int
    parts: int
    crc: int
    data: bytes
    entry: tuple = None
    relaxed: bool = False
    sampled: bool = False

    def encode(self):
        index, generation = self.entry or (0, 0)
        return (_record(SPLIT_HEADER, _flags(self), 24 + len(self.data), self.address)
                + struct.pack("<HHHHI", index, generation, self.total, self.parts, self.crc)
                + self.data)


@dataclass
class SplitData:
    """Section 5.3."""

    address: Address
    tlp_class: int
    part: int
    offset: int
    data: bytes

    def encode(self):
        return (_record(SPLIT_DATA, self.tlp_class, 16 + len(self.data), self.address)
                + struct.pack("<HH", self.part, self.offset) + self.data)


def records_of(tlp, room=SAFE_FRAME - SMALLEST_FRAME):
    """The records that a TLP is sent as where a frame has room for so many bytes of them: its own,
    or a header record and as many data records as it takes."""
    if len(tlp.tlp) + 20 <= room:
        return [tlp]
    first, step = (room - 24) // 4 * 4, (room - 16) // 4 * 4
    rest = range(first, len(tlp.tlp), step)
    parts = [SplitData(tlp.address, tlp.tlp_class, 1 + n, at, tlp.tlp[at:at + step])
             for n, at in enumerate(rest)]
    crc = tlp_crc(tlp.tlp) if tlp.crc is None else tlp.crc
    return [SplitHeader(tlp.address, tlp.tlp_class, len(tlp.tlp), len(parts), crc, tlp.tlp[:first],
                        tlp.entry, tlp.relaxed, tlp.sampled), *parts]


@dataclass
class Sideband:
    """Section 5.4."""

    address: Address
    code: int
    argument: int = 0

    def encode(self):
        return (_record(SIDEBAND, 0, 16, self.address)
                + struct.pack("<BBH", self.code, 0, self.argument))


@dataclass
class Credits:
    """Section 5.5: limits are posted, non-posted, completion, sideband."""

    address: Address
    limits: tuple
    announce: bool = False

    def encode(self):
        return (_record(CREDITS, ANNOUNCE if self.announce else 0, 32, self.address)
                + struct.pack("<I4I", 0, *self.limits))


@dataclass
class Unbind:
    """Section 5.6."""

    address: Address

    def encode(self):
        return _record(UNBIND, 0, 16, self.address) + bytes(4)


def _flags(record):
    return (record.tlp_class | (RELAXED if record.relaxed else 0)
            | (HAS_ENTRY if record.entry is not None else 0)
            | (SAMPLED if record.sampled else 0))


def _record(kind, flags, length, address):
    return _ADDRESS.pack(kind, flags, length, address.source_slot, address.destination_slot,
                         address.function, address.epoch)


# The lengths of section 5: what a kind must have, or the least.
_EXACT = {NOP: 4, SIDEBAND: 16, CREDITS: 32, UNBIND: 16}
_LEAST = {TLP: 32, SPLIT_HEADER: 36, SPLIT_DATA: 20}


def decode_record(data):
    """The record at the beginning of these bytes, and its length."""
    if len(data) < 4:
        raise WireError("record-length", f"{len(data)} bytes are left for a record")
    kind, flags, length = struct.unpack_from("<BBH", data)
    if kind > UNBIND:
        raise WireError("record-kind", f"kind {kind}")
    if length % 4 or length != _EXACT.get(kind, length) or length < _LEAST.get(kind, 4):
        raise WireError("record-length", f"a record of kind {kind} with {length} bytes")
    if length > len(data):
        raise WireError("record-length", f"{length} bytes, of which {len(data)} are there")
    if kind == NOP:
        return Nop(), length
    _, _, _, source, destination, function, epoch = _ADDRESS.unpack_from(data)
    if source == 0 and destination == 0:
        raise WireError("record-slots", "both slots are 0")
    if function > 255:
        raise WireError("record-function", f"function {function}")
    if epoch & 0xFFFFFF == 0:
        raise WireError("record-epoch", f"epoch {epoch:#010x} has counter 0")
    address = Address(source, destination, function, epoch)
    return _body_of(kind, flags, address, data[:length]), length


def _body_of(kind, flags, address, data):
    if kind == UNBIND:
        return Unbind(address)
    if kind == CREDITS:
        return Credits(address, struct.unpack_from("<4I", data, 16), bool(flags & ANNOUNCE))
    if kind == SIDEBAND:
        code, _, argument = struct.unpack_from("<BBH", data, 12)
        return Sideband(address, code, argument)
    tlp_class = flags & 3
    if tlp_class == 3:
        raise WireError("record-class", "class 3")
    first, second = struct.unpack_from("<HH", data, 12)
    if kind == SPLIT_DATA:
        if first == 0 or second % 4 or second + len(data) - 16 > 0xFFFF:
            raise WireError("record-split", f"part {first}, {len(data) - 16} bytes at {second}")
        return SplitData(address, tlp_class, first, second, data[16:])
    traits = {"entry": (first, second) if flags & HAS_ENTRY else None,
              "relaxed": bool(flags & RELAXED), "sampled": bool(flags & SAMPLED)}
    if kind == TLP:
        (crc,) = struct.unpack_from("<I", data, len(data) - 4)
        return Tlp(address, tlp_class, data[16:-4], crc=crc, **traits)
    total, parts, crc = struct.unpack_from("<HHI", data, 16)
    if parts == 0 or total % 4 or len(data) - 24 >= total:
        raise WireError("record-split", f"{total} bytes in {parts} parts, {len(data) - 24} here")
    return SplitHeader(address, tlp_class, total, parts, crc, data[24:], **traits)


def decode_records(body):
    """All records of a data frame's body."""
    records = []
    while body:
        record, length = decode_record(body)
        records.append(record)
        body = body[length:]
    return records


# --- frames ---------------------------------------------------------------------------------------


@dataclass
class Ack:
    """Bytes 32 to 45 of the header, and the ranges: (offset, number) each."""

    next: int = 0
    packet: int = 0
    delay_us: int = 0
    path: int = 0
    ce: int = 0
    ranges: list = field(default_factory=list)

    def covers(self, sequence):
        """Whether a record is acknowledged."""
        if before(sequence, self.next):
            return True
        offset = wrap(sequence - self.next)
        return any(first <= offset < first + number for first, number in self.ranges)


@dataclass
class Open:
    """The body of an open frame (section 6)."""

    session: int
    token: int = 0
    echo: int = 0
    lowest: int = VERSION
    highest: int = VERSION
    max_frame: int = LARGEST_FRAME
    window: int = 1024
    max_tlp: int = LARGEST_TLP

    def encode(self):
        return _OPEN.pack(self.lowest, self.highest, self.max_frame, self.window, self.max_tlp,
                          self.session, 0, self.token, self.echo)

    @classmethod
    def decode(cls, body):
        if len(body) != _OPEN.size:
            raise WireError("body", f"an open frame's body of {len(body)} bytes")
        lowest, highest, max_frame, window, max_tlp, session, _, token, echo = _OPEN.unpack(body)
        if lowest > highest:
            raise WireError("body", f"versions {lowest} to {highest}")
        return cls(session, token, echo, lowest, highest, max_frame, window, max_tlp)


@dataclass
class Frame:
    """A frame. `body` is what lies between the header's ranges and the CRC."""

    kind: int
    destination: int
    source: int
    source_incarnation: int
    destination_incarnation: int = None
    session: int = 0
    path: int = 0
    packet: int = 0
    sequence: int = 0
    ack: Ack = None
    body: bytes = b""
    version: int = VERSION
    key: int = 0

    def encode(self):
        """The bytes, with a right length and CRC."""
        ack = self.ack or Ack()
        known = self.destination_incarnation is not None
        flags = (1 if known else 0) | (2 if self.ack else 0)
        length = HEADER + 4 * len(ack.ranges) + len(self.body) + CRC_BYTES
        head = _HEADER.pack(
            self.version, self.kind, length, self.destination, self.source,
            self.source_incarnation, self.destination_incarnation if known else 0, self.session,
            self.path, flags, self.key, self.packet, self.sequence, ack.next, ack.packet,
            ack.delay_us, ack.path, len(ack.ranges), ack.ce, 0)
        return sealed(head + b"".join(_RANGE.pack(*r) for r in ack.ranges) + self.body)

    @classmethod
    def decode(cls, data):
        """The checks of section 10 that need no link, in their order."""
        if len(data) < SMALLEST_FRAME:
            raise WireError("short", f"{len(data)} bytes")
        (version, kind, length, destination, source, source_life, destination_life, session, path,
         flags, key, packet, sequence, next_, ack_packet, delay, ack_path, count, ce,
         _) = _HEADER.unpack_from(data)
        if version != VERSION:
            raise WireError("version", f"version {version}")
        if length < SMALLEST_FRAME:
            raise WireError("length", f"length {length}")
        if length > len(data):
            raise WireError("cut-short", f"{length} bytes, of which {len(data)} came")
        data = data[:length]
        (crc,) = struct.unpack_from("<I", data, length - CRC_BYTES)
        if crc != crc32c(data[:-CRC_BYTES]):
            raise WireError("frame-crc", f"{crc:08x}")
        if key:
            raise WireError("key", f"key {key}")
        if kind not in KINDS:
            raise WireError("kind", f"kind {kind}")
        for node in (destination, source):
            if node in (0, 0xFFFF):
                raise WireError("node", f"node {node}")
        for number in (path, ack_path):
            if number > LARGEST_PATH:
                raise WireError("path", f"path {number}")
        ranges = _ranges(data, count)
        body = data[HEADER + 4 * count:-CRC_BYTES]
        ack = Ack(next_, ack_packet, delay, ack_path, ce, ranges) if flags & 2 else None
        frame = cls(kind, destination, source, source_life,
                    destination_life if flags & 1 else None, session, path, packet, sequence, ack,
                    body)
        if kind == OPEN:
            frame.open()
        if kind == CLOSE:
            frame.reason()
        return frame

    def open(self):
        """The body of an open frame."""
        return Open.decode(self.body)

    def reason(self):
        """The reason in a close frame."""
        if len(self.body) != 4:
            raise WireError("body", f"a close frame's body of {len(self.body)} bytes")
        return self.body[0]

    def records(self):
        """The records of a data frame."""
        return decode_records(self.body)


def sealed(data):
    """With its CRC behind it."""
    return data + struct.pack("<I", crc32c(data))


def resealed(frame, at, new):
    """A frame with other bytes at a place, and a CRC that is right for them."""
    data = bytearray(frame[:-CRC_BYTES])
    data[at:at + len(new)] = new
    return sealed(bytes(data))


def _ranges(data, count):
    if count > MOST_RANGES:
        raise WireError("ranges", f"{count} ranges")
    if HEADER + 4 * count + CRC_BYTES > len(data):
        raise WireError("ranges", f"{count} ranges do not fit {len(data)} bytes")
    ranges, end = [], 0
    for number in range(count):
        offset, length = _RANGE.unpack_from(data, HEADER + 4 * number)
        # At least one record is missing before each: of the first, the one at offset 0.
        if length == 0 or offset <= end:
            raise WireError("ranges", f"range {number} is {length} records at {offset}")
        ranges.append((offset, length))
        end = offset + length
    return ranges

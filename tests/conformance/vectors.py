"""Writes the wire's vectors from `kit/wire.py`, which was written from wire.md and shares no code
with the proxies. tests/vectors/README.md says what the files hold.

    python3 vectors.py [FOLDER]

FOLDER is tests/vectors unless told otherwise. `cargo test` compares what is there with what
tlp-codec and the link of proxy-core make of the same bytes.

FOLDER/frozen.txt has a digest of each vector. One that is there already must stay: version 1 of the
wire gets new vectors, and none of the old ones changes (wire.md, section 15).
"""

import hashlib
import itertools
import json
import pathlib
import struct
import sys

from kit import wire
from kit.link_vectors import link_vectors
from kit.wire import Ack, Address, Frame, Open

HOST, BOX = 1, 2
LIFE = {HOST: 0x11111111, BOX: 0x22222222}
# What frames to a node carry: that node's number for the link.
SESSION = {HOST: 0x0A0A, BOX: 0x0B0B}
TO_BOX = Address(0, 3, 0, 7)
TO_HOST = TO_BOX.turned()
READ = bytes.fromhex("00000001 0000050f fe000010")
WRITE = bytes.fromhex("40000001 0000000f fe000010 78563412")
COMPLETION = bytes.fromhex("4a000001 03000004 00000510 78563412")


def header(kind, source=HOST, **fields):
    """A frame between the two nodes of wire.md's examples."""
    destination = BOX if source == HOST else HOST
    given = {"session": SESSION[destination], "packet": 4, "sequence": 9,
             "destination_incarnation": LIFE[destination]}
    return Frame(kind, destination, source, LIFE[source], **{**given, **fields})


# --- meaning as JSON ------------------------------------------------------------------------------


def record_fields(record):
    """What a record says, by name."""
    fields = {"kind": type(record).__name__}
    for name, value in vars(record).items():
        if name == "address":
            fields.update(vars(value))
        elif name == "tlp_class":
            fields["class"] = wire.CLASSES[value]
        elif name == "limits":
            names = ("posted", "non_posted", "completion", "sideband")
            fields["limits"] = dict(zip(names, value))
        elif isinstance(value, bytes):
            fields[name] = value.hex()
        elif name == "entry":
            fields[name] = value and {"index": value[0], "generation": value[1]}
        else:
            fields[name] = value
    return fields


def frame_fields(frame):
    """What a frame says, by name."""
    fields = {name: getattr(frame, name) for name in (
        "destination", "source", "source_incarnation", "destination_incarnation", "session",
        "path", "packet", "sequence")}
    ack = frame.ack and {**vars(frame.ack), "ranges": [list(r) for r in frame.ack.ranges]}
    fields = {"kind": wire.KINDS[frame.kind], **fields, "ack": ack}
    if frame.kind == wire.OPEN:
        fields["open"] = vars(frame.open())
    elif frame.kind == wire.CLOSE:
        fields["reason"] = frame.reason()
    elif frame.kind == wire.DATA:
        fields["records"] = [record_fields(record) for record in frame.records()]
    else:
        fields["padding"] = len(frame.body)
    return fields


# --- right ones -----------------------------------------------------------------------------------


def good_records():
    """(name, section, bytes, whether they are what a sender writes)"""
    largest = Address(0, 255, 255, 0xFFFFFFFF)
    write = bytes(range(20))
    tlp, split = wire.Tlp, wire.SplitHeader
    yield "nop", "5.1", wire.Nop(), True
    yield "read", "5.2", tlp(TO_BOX, 1, READ, (6, 2)), True
    yield "posted write", "5.2", tlp(TO_BOX, 0, WRITE), True
    yield "completion", "5.2", tlp(TO_HOST, 2, COMPLETION, (6, 2)), True
    yield "completion with relaxed ordering", "5.2", tlp(TO_HOST, 2, COMPLETION, (6, 2), relaxed=True), True
    yield "sampled", "5.2", tlp(TO_HOST, 0, WRITE, sampled=True), True
    yield "largest binding and entry", "5.2", tlp(largest, 1, READ, (65535, 65535)), True
    yield "entry 0.0 is one", "5.2", tlp(TO_BOX, 1, READ, (0, 0)), True
    yield "largest TLP of a card", "5.2", tlp(TO_BOX, 0, bytes(n % 251 for n in range(wire.CARD_TLP))), True
    yield "wrong TLP CRC is still a record", "10", tlp(TO_BOX, 1, READ, (6, 2), crc=0x12345678), True
    yield "split header", "5.3", split(TO_BOX, 0, 20, 1, wire.tlp_crc(write), write[:16]), True
    yield "split header of a sampled read", "5.3", split(TO_BOX, 1, 552, 2, 1, READ, (9, 1), sampled=True), True
    yield "split data", "5.3", wire.SplitData(TO_BOX, 0, 1, 16, write[16:]), True
    yield "last split data there can be", "5.3", wire.SplitData(TO_HOST, 2, 65535, 65528, write[:4]), True
    for code in range(1, 14):
        argument = {4: 0x0310, 10: 3}.get(code, 0)
        address = TO_HOST if code in (4, 5, 10, 12, 13) else TO_BOX
        yield f"sideband {code}", "5.4", wire.Sideband(address, code, argument), True
    yield "sideband of an unknown code", "5.4", wire.Sideband(TO_BOX, 77, 0x1234), True
    yield "sideband of an unknown power state", "5.4", wire.Sideband(TO_HOST, 10, 9), True
    yield "credits", "5.5", wire.Credits(TO_HOST, (16, 64, 32, 8)), True
    yield "credits that announce", "5.5", wire.Credits(TO_HOST, (16, 64, 32, 8), True), True
    yield "credits that wrapped", "5.5", wire.Credits(TO_BOX, (0xFFFFFFFF, 0, 0x80000000, 1)), True
    yield "unbind", "5.6", wire.Unbind(TO_BOX), True
    # Reserved bits and bytes are ignored (section 2).
    def patched(record, at, new):
        data = bytearray(encoded(record))
        data[at:at + len(new)] = new
        return bytes(data)
    yield "nop with reserved flags", "2", patched(wire.Nop(), 1, b"\xff"), False
    yield "TLP with reserved flags", "2", patched(tlp(TO_BOX, 1, READ, (6, 2)), 1, b"\xe9"), False
    yield "TLP without an entry has none, whatever its bytes", "2", patched(tlp(TO_BOX, 0, WRITE), 12, b"\x01\x02\x03\x04"), False
    yield "split data with reserved flags", "2", patched(wire.SplitData(TO_BOX, 0, 1, 16, write[16:]), 1, b"\xfc"), False
    yield "sideband with reserved flags and byte", "2", patched(patched(wire.Sideband(TO_BOX, 11), 1, b"\xff"), 13, b"\xff"), False
    yield "credits with reserved flags and bytes", "2", patched(patched(wire.Credits(TO_BOX, (1, 2, 3, 4)), 1, b"\xdf"), 12, b"\xff\xff\xff\xff"), False
    yield "unbind with reserved flags and bytes", "2", patched(patched(wire.Unbind(TO_BOX), 1, b"\xff"), 12, b"\xff\xff\xff\xff"), False


def large_records():
    """(name, section, bytes, whether they are what a sender writes), of TLPs that do not fit a card."""
    data = bytes(n % 251 for n in range(wire.LARGEST_TLP))
    room = wire.SAFE_FRAME - wire.SMALLEST_FRAME
    yield "largest TLP that fits a frame of 1200 bytes", "5.3", wire.Tlp(TO_BOX, 0, data[:room - 20]), True
    for length in (room - 16, wire.LARGEST_TLP):
        head, *parts = wire.records_of(wire.Tlp(TO_BOX, 0, data[:length]))
        yield f"split header of a TLP of {length} bytes", "5.3", head, True
        for part in parts:
            yield f"split data {part.part} of a TLP of {length} bytes", "5.3", part, True


def good_frames():
    """(name, section, bytes, whether they are what a sender writes)"""
    read = wire.Tlp(TO_BOX, 1, READ, (6, 2)).encode()
    ack = Ack(10, 4, 25, 0, 3, [(2, 3)])
    full = Ack(0xFFFFFFFF, 0, 65535, 7, 65535, [(1 + 2 * n, 1) for n in range(7)] + [(15, 65000)])
    asks = Open(0x0A0A, 0xC0FFEE, max_tlp=wire.CARD_TLP)
    answers = Open(0x0B0B, 0xBEEF, 0xC0FFEE, 1, 3, 512, 1, 12)
    begin = {"session": 0, "packet": 0, "sequence": 0}
    yield "open", "6", header(1, destination_incarnation=None, body=asks.encode(), **begin), True
    yield "open of an end with more versions and small limits", "6", header(1, BOX, body=answers.encode(), **begin), True
    yield "open of software", "13", header(1, destination_incarnation=None, body=Open(0x0A0A, 0xC0FFEE).encode(), **begin), True
    card = Open(0x0A0A, 0xC0FFEE, window=128, max_tlp=wire.CARD_TLP)
    yield "open of a card", "13", header(1, destination_incarnation=None, body=card.encode(), **begin), True
    for reason in (1, 2, 3, 4, 5, 77):
        yield f"close, reason {reason}", "6.1", header(3, body=bytes([reason, 0, 0, 0])), True
    yield "data with a read", "4.4", header(2, body=read), True
    yield "data with nothing", "4.1", header(2), True
    yield "acknowledgement alone", "7", header(2, BOX, ack=ack), True
    yield "acknowledgement with all that it can say", "4.1", header(2, BOX, ack=full), True
    every = [record for _, _, record, clean in good_records() if clean]
    yield "every record in one frame", "5", header(2, ack=ack, sequence=0xFFFFFFF0, packet=0xFFFFFFFF, body=b"".join(r.encode() for r in every)), True
    yield "probe", "14", header(4, path=1, body=bytes(4)), True
    yield "probe of full size", "14", header(4, BOX, path=7, ack=ack, body=bytes(9000 - 56)), True
    yield "probe with nothing", "14", header(4), True
    yield "between the largest nodes", "4.1", Frame(2, 65534, 1, 0, 0, body=read), True
    good = header(2, ack=ack, body=read).encode()
    yield "with Ethernet's padding behind it", "3", good + bytes(7), False
    yield "reserved flags and bytes", "2", wire.resealed(wire.resealed(good, 21, b"\xff"), 46, b"\xff\xff"), False
    yield "probe whose body is not zero", "4.1", wire.resealed(header(4, body=bytes(4)).encode(), 48, b"\x01\x02\x03\x04"), False
    yield "close with reserved bytes", "2", header(3, body=b"\x01\xff\xff\xff"), False
    opening = header(1, destination_incarnation=None, body=asks.encode(), **begin).encode()
    yield "open with reserved bytes", "2", wire.resealed(opening, 48 + 12, b"\xff\xff\xff\xff"), False
    yield "unknown life, whatever its bytes", "4.1", wire.resealed(opening, 12, b"\x01\x02\x03\x04"), False
    plain = header(2, body=read).encode()
    yield "no acknowledgement, whatever its bytes", "4.1", wire.resealed(plain, 32, bytes(range(10))), False


# --- wrong ones -----------------------------------------------------------------------------------


def bad_records():
    """(name, rule, bytes)"""
    read = wire.Tlp(TO_BOX, 1, READ, (6, 2)).encode()
    sideband = wire.Sideband(TO_BOX, 11).encode()
    split = wire.SplitHeader(TO_BOX, 0, 20, 1, 5, bytes(16)).encode()
    part = wire.SplitData(TO_BOX, 0, 1, 16, bytes(4)).encode()
    credits = wire.Credits(TO_BOX, (1, 2, 3, 4)).encode()

    def patched(record, at, new):
        return record[:at] + new + record[at + len(new):]

    def with_length(record, length):
        return struct.pack("<BBH", record[0], record[1], length) + (record + bytes(64))[4:length]
    yield "two bytes", "record-length", b"\x00\x00"
    yield "length 0", "record-length", patched(read, 2, b"\x00\x00")
    yield "length no multiple of 4", "record-length", with_length(read, 33)
    yield "length beyond the frame", "record-length", read[:-4]
    yield "NOP of 8 bytes", "record-length", with_length(b"\x00\x00\x04\x00", 8)
    yield "TLP of 8 bytes", "record-length", with_length(read, 28)
    yield "sideband of 20 bytes", "record-length", with_length(sideband, 20)
    yield "sideband of 12 bytes", "record-length", with_length(sideband, 12)
    yield "credits of 28 bytes", "record-length", with_length(credits, 28)
    yield "credits of 36 bytes", "record-length", with_length(credits, 36)
    yield "unbind of 20 bytes", "record-length", with_length(wire.Unbind(TO_BOX).encode(), 20)
    yield "split header of 8 bytes", "record-length", with_length(split, 32)
    yield "split data of none", "record-length", with_length(part, 16)
    for kind in (7, 8, 128, 255):
        yield f"kind {kind}", "record-kind", patched(read, 0, bytes([kind]))
    yield "TLP of class 3", "record-class", patched(read, 1, b"\x0b")
    yield "split header of class 3", "record-class", patched(split, 1, b"\x03")
    yield "split data of class 3", "record-class", patched(part, 1, b"\x03")
    yield "function 256", "record-function", patched(read, 6, b"\x00\x01")
    yield "function 65535", "record-function", patched(sideband, 6, b"\xff\xff")
    yield "epoch 0", "record-epoch", patched(read, 8, bytes(4))
    yield "epoch with counter 0", "record-epoch", patched(credits, 8, b"\x00\x00\x00\x05")
    yield "both slots 0", "record-slots", patched(read, 4, b"\x00\x00")
    yield "split header without parts", "record-split", patched(split, 18, b"\x00\x00")
    yield "split header with all bytes", "record-split", patched(split, 16, b"\x10\x00")
    yield "split header of no whole doublewords", "record-split", patched(split, 16, b"\x15\x00")
    yield "split data number 0", "record-split", patched(part, 12, b"\x00\x00")
    yield "split data beyond every TLP", "record-split", patched(part, 14, b"\xfc\xff")
    yield "split data between doublewords", "record-split", patched(part, 14, b"\x12\x00")


def bad_frames():
    """(name, rule, bytes)"""
    read = wire.Tlp(TO_BOX, 1, READ, (6, 2)).encode()
    ack = Ack(10, 4, 25, 0, 3, [(2, 3)])
    good = header(2, ack=ack, body=read).encode()
    sealed = wire.resealed
    flipped = bytearray(good)
    flipped[60] ^= 0x10
    yield "nothing", "short", b""
    yield "51 bytes", "short", header(2).encode()[:51]
    yield "version 0", "version", sealed(good, 0, b"\x00")
    yield "version 2", "version", sealed(good, 0, b"\x02")
    yield "version 2 with a wrong CRC", "version", b"\x02" + good[1:]
    yield "length 51", "length", sealed(good, 2, b"\x33\x00")
    yield "length 0", "length", sealed(good, 2, b"\x00\x00")
    yield "cut short", "cut-short", good[:-1]
    yield "length above what came", "cut-short", sealed(good, 2, b"\xff\xff")
    yield "one bit flipped", "frame-crc", bytes(flipped)
    yield "CRC of another polynomial", "frame-crc", good[:-4] + struct.pack("<I", wire.tlp_crc(good[:-4]))
    yield "length that leaves bytes out", "frame-crc", sealed(good, 2, struct.pack("<H", len(good) - 4))
    yield "key 1", "key", sealed(good, 22, b"\x01\x00")
    yield "kind 0", "kind", sealed(good, 1, b"\x00")
    yield "kind 5", "kind", sealed(good, 1, b"\x05")
    yield "key and kind", "key", sealed(sealed(good, 1, b"\x05"), 22, b"\x01\x00")
    yield "source 0", "node", sealed(good, 6, b"\x00\x00")
    yield "source 65535", "node", sealed(good, 6, b"\xff\xff")
    yield "destination 0", "node", sealed(good, 4, b"\x00\x00")
    yield "destination 65535", "node", sealed(good, 4, b"\xff\xff")
    yield "path 8", "path", sealed(good, 20, b"\x08")
    yield "acknowledged path 8", "path", sealed(good, 42, b"\x08")
    yield "acknowledged path 8 without an acknowledgement", "path", sealed(header(2).encode(), 42, b"\x08")
    yield "nine ranges", "ranges", sealed(header(2, ack=ack, body=bytes(64)).encode(), 43, b"\x09")
    yield "ranges beyond the frame", "ranges", sealed(header(2).encode(), 43, b"\x01")
    yield "empty range", "ranges", sealed(good, 48, b"\x02\x00\x00\x00")
    yield "range at 0", "ranges", sealed(good, 48, b"\x00\x00\x01\x00")
    touching = header(2, ack=Ack(10, 4, ranges=[(1, 2), (3, 1)])).encode()
    yield "ranges that touch", "ranges", touching
    yield "ranges out of order", "ranges", header(2, ack=Ack(10, 4, ranges=[(8, 1), (2, 1)])).encode()
    asks = Open(0x0A0A, 0xC0FFEE, max_tlp=wire.CARD_TLP).encode()
    yield "open with a body of 28 bytes", "body", header(1, body=asks[:-4]).encode()
    yield "open with a body of 36 bytes", "body", header(1, body=asks + bytes(4)).encode()
    yield "open with versions 2 to 1", "body", header(1, body=b"\x02" + asks[1:]).encode()
    yield "close with a body of 8 bytes", "body", header(3, body=bytes(8)).encode()
    yield "close without a body", "body", header(3).encode()


# --- files ----------------------------------------------------------------------------------------


def encoded(what):
    return what if isinstance(what, bytes) else what.encode()


def right(vectors, decode):
    """A line for each: bytes, and what they mean."""
    for name, section, what, canonical in vectors:
        data = encoded(what)
        line = {"name": name, "section": section, "hex": data.hex(), **decode(data)}
        yield line if canonical else {**line, "canonical": False}


def wrong(vectors, decode):
    """A line for each: bytes, and the rule that they break."""
    for name, rule, data in vectors:
        try:
            decode(data)
        except wire.WireError as error:
            assert error.rule == rule, f"{name}: {error}"
        else:
            raise AssertionError(f"{name}: nothing is wrong")
        yield {"name": name, "section": "10", "hex": data.hex(), "rule": rule}


def files():
    """Every file's name and lines."""
    frame = lambda data: {"frame": frame_fields(Frame.decode(data))}
    record = lambda data: {"record": record_fields(wire.decode_record(data)[0])}
    yield "frames.json", right(good_frames(), frame)
    yield "frames-broken.json", wrong(bad_frames(), Frame.decode)
    yield "records.json", right(itertools.chain(good_records(), large_records()), record)
    yield "records-broken.json", wrong(bad_records(), wire.decode_record)
    yield "link.json", link_vectors()


def digest(file, line):
    """A vector's line in frozen.txt."""
    name = json.loads(line)["name"]
    return f"{hashlib.sha256(line.encode()).hexdigest()[:32]} {file}: {name}"


def main():
    """Writes the files, unless a vector of before would go or change."""
    default = pathlib.Path(__file__).resolve().parent.parent / "vectors"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    written = {name: [json.dumps(vector) for vector in vectors] for name, vectors in files()}
    digests = [digest(name, line) for name, lines in written.items() for line in lines]
    list_of_frozen = folder / "frozen.txt"
    frozen = list_of_frozen.read_text().splitlines() if list_of_frozen.exists() else []
    if missing := [line for line in frozen if line not in digests]:
        sys.exit("vectors of version 1 are gone or differ, which would be another version (wire.md,\n"
                 "section 15); nothing was written:\n" + "\n".join(missing))
    for name, lines in written.items():
        (folder / name).write_text("[\n" + ",\n".join(lines) + "\n]\n")
        print(f"{folder / name}: {len(lines)} vectors")
    list_of_frozen.write_text("\n".join(digests) + "\n")


if __name__ == "__main__":
    main()

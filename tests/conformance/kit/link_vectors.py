"""What a receiver does with frames: the part of section 10 that needs a link, as vectors.

The receiver is wire.md's box, node 2 in its life 0x22222222, with one path and the session 0xb0b.
Its peer, whose life the manager told it, is the host, node 1 in its life 0x11111111, with the
session 0xa0a. The host has binding slot 3, function 0, epoch 0.7.
"""

import struct

from . import wire
from .wire import Address, Credits, Frame, Nop, Open, Sideband, SplitData, SplitHeader, Tlp, Unbind

HOST, BOX, HOST_LIFE, BOX_LIFE = 1, 2, 0x11111111, 0x22222222
HOST_SESSION, BOX_SESSION = 0x0A0A, 0x0B0B
BOUND = Address(0, 3, 0, 7)
LIMITS = {"posted": 16, "non_posted": 64, "completion": 32, "sideband": 8}


def frame(*records, sequence=0, kind=wire.DATA, **fields):
    """A frame of the host's."""
    body = b"".join(r if isinstance(r, bytes) else r.encode() for r in records)
    given = {"destination_incarnation": BOX_LIFE, "session": BOX_SESSION, "packet": 10,
             "destination": BOX, "source": HOST, "source_incarnation": HOST_LIFE, "body": body}
    return Frame(kind, sequence=sequence, **{**given, **fields})


def write(number=0, address=BOUND, words=1, **fields):
    """A posted write of so many doublewords."""
    tlp = struct.pack(">III", 0x40000000 | words % 1024, 0x0000000F, 0xFE000000 + 4 * number)
    data = b"".join(struct.pack("<I", number + n) for n in range(words))
    return Tlp(address, wire.POSTED, tlp + data, **fields)


def read(number=0, address=BOUND):
    """A non-posted read."""
    tlp = struct.pack(">III", 1, 0x0000000F | number << 8, 0xFE000010)
    return Tlp(address, wire.NON_POSTED, tlp, (number, 1))


def opens(session=HOST_SESSION, token=0, echo=0):
    """What the host says in open frames, with the largest TLP of wire.md's example."""
    return Open(session, token, echo, max_tlp=wire.CARD_TLP)


def largest_write():
    """A posted write as large as there can be one: five prefixes, four doublewords of header, 4096
    bytes of data, and a digest, which nobody looks at here."""
    prefixes = bytes.fromhex("8e000000 91000001 9e000000 9e000000 9e000000")
    head = bytes.fromhex("60008000 000000ff 00000001 fe000000")
    data = b"".join(struct.pack("<I", n) for n in range(1024))
    return Tlp(BOUND, wire.POSTED, prefixes + head + data + bytes(4))


def opening(body=None, **fields):
    """An open frame of the host's; `body` is an `Open`."""
    body = body or opens(token=5)
    return frame(body, kind=wire.OPEN, **{"session": 0, **fields})


def close(reason=1, **fields):
    """A close frame of the host's."""
    return frame(bytes([reason, 0, 0, 0]), kind=wire.CLOSE, **fields)


def case(name, frames, section="10", last="taken", link="up", close=None, next=0, delivered=(),
         sideband=(), answer=None, counted=None, state="up", binding="open"):
    """A vector; what is not said is that everything is as it was."""
    return {"name": name, "section": section, "state": state, "binding": binding,
            "frames": [f.encode().hex() for f in frames], "last": last, "counted": counted,
            "link": link, "close": close, "next": next, "answer": answer,
            "delivered": delivered and [t.tlp.hex() for t in delivered], "sideband": sideband}


def dropped(name, frames, counted, **more):
    """A vector whose last frame is dropped without a word."""
    return case(name, frames, last="dropped", counted=counted, **more)


def violation(name, frames, counted, **more):
    """A vector whose last frame ends the link."""
    return case(name, frames, **{"last": "violation", "counted": counted, "link": "down",
                                 "close": wire.PROTOCOL, "next": None, "delivered": None,
                                 "sideband": None, **more})


def link_vectors():
    yield from _frames()
    yield from _opening()
    yield from _violations()
    yield from _records()
    yield from _split()


def _frames():
    one = [write()]
    good = frame(*one)
    yield case("a write", [good], "5.2", next=1, delivered=one)
    yield case("a frame with nothing", [frame()], "4.1")
    yield case("a probe", [frame(bytes(8), kind=wire.PROBE)], "14", answer="acknowledgement")
    yield dropped("for another node", [frame(*one, destination=3)], "not-for-us")
    yield dropped("from another node", [frame(*one, source=3)], "not-from-peer")
    lives = {"another life of the sender": {"source_incarnation": 0x11111112},
             "another life of the receiver": {"destination_incarnation": 0x22222221},
             "the receiver's life unknown": {"destination_incarnation": None}}
    for name, fields in lives.items():
        for kind, records in ((wire.DATA, one), (wire.PROBE, [bytes(4)]),
                              (wire.CLOSE, [b"\x01\0\0\0"])):
            wrong = frame(*records, kind=kind, **fields)
            yield dropped(f"{wire.KINDS[kind]}, {name}", [wrong], "incarnation")
    for kind, records in ((wire.DATA, one), (wire.PROBE, [bytes(4)]), (wire.CLOSE, [b"\x01\0\0\0"])):
        wrong = frame(*records, kind=kind, session=BOX_SESSION - 1)
        yield dropped(f"{wire.KINDS[kind]}, another session", [wrong], "session")
    for kind, records in ((wire.DATA, one), (wire.PROBE, [bytes(4)])):
        wrong = frame(*records, kind=kind, path=1)
        yield dropped(f"{wire.KINDS[kind]} on a path that there is not", [wrong], "path")
        early = frame(*records, kind=kind)
        yield dropped(f"{wire.KINDS[kind]} before the link is up", [early], "not-up",
                      state="opening", link="opening")
    yield dropped("close before the link is up", [close()], "not-up", state="opening",
                  link="opening")
    for reason in (1, 2, 3, 4, 5, 200):
        yield case(f"close, reason {reason}", [close(reason)], "6.1", link="down")
    yield case("data while down", [good], last="dropped", counted="link-down", state="down",
               link="down", close=wire.REMOVED)
    yield case("a packet number again, with another record", [good, frame(write(1), sequence=1)],
               "7", next=2, delivered=[write(), write(1)])


def _opening():
    begin = {"state": "opening", "link": "opening"}
    yield case("asked", [opening()], "6", answer="open with echo and token", **begin)
    yield case("asked by one that does not know this life",
               [opening(destination_incarnation=None)], "6", answer="open with echo and token",
               **begin)
    yield case("an echo of a token that was never made",
               [opening(opens(token=5, echo=0xFFFFFFFFFFFFFFF0))], "6",
               answer="open with echo and token", **begin)
    yield case("nothing asked", [opening(opens())], "6", **begin)
    yield dropped("asked on a path that there is not", [opening(path=1)], "path", **begin)
    yield dropped("asked, another life of the receiver",
                  [opening(destination_incarnation=0x22222221)], "incarnation", **begin)
    yield dropped("asked by a life that the manager did not tell",
                  [opening(source_incarnation=0x11111112)], "incarnation", **begin)
    yield case("asked again while up", [opening()], "6", answer="open with echo")
    yield dropped("asked on a path that there is not, while up", [opening(path=1)], "path")
    yield dropped("asked while down", [opening()], "link-down", state="down", link="down")
    another = opens(HOST_SESSION + 1, token=9)
    yield case("asked by another session while up", [opening(another)], "6",
               answer="open with token")
    yield case("asked by another life while up",
               [opening(another, source_incarnation=0x11111112)], "6", answer="open with token")


def _violations():
    one = write()
    yield violation("acknowledges a sequence that was never sent",
                    [frame(ack=wire.Ack(1000, 0))], "acknowledgement")
    yield violation("acknowledges a packet that was never sent",
                    [frame(ack=wire.Ack(0, 1000))], "acknowledgement")
    yield violation("acknowledges a range that was never sent",
                    [frame(ack=wire.Ack(0, 0, ranges=[(500, 1)]))], "acknowledgement")
    for name, record in (
            ("no kind", struct.pack("<BBH", 7, 0, 4)),
            ("length 0", bytes(4)),
            ("class 3", one.encode()[:1] + b"\x03" + one.encode()[2:]),
            ("both slots 0", Unbind(Address(0, 0, 0, 7)).encode()),
            ("function 256", Unbind(Address(0, 3, 256, 7)).encode()),
            ("epoch 0", Unbind(Address(0, 3, 0, 0)).encode())):
        yield violation(f"a record that is none: {name}", [frame(record)], "record")
    posted = LIMITS["posted"]
    within = [write(n) for n in range(posted)]
    yield case("as many writes as there is credit for", [frame(*within)], "8", next=posted,
               delivered=within)
    yield violation("one write too many", [frame(*within), frame(write(posted), sequence=posted)],
                    "credit")
    sidebands = [Sideband(BOUND, 200 + n) for n in range(LIMITS["sideband"])]
    yield case("as many sideband records as there is credit for", [frame(*sidebands)], "8",
               next=len(sidebands), sideband=[s.code for s in sidebands])
    over = frame(*sidebands, Sideband(BOUND, 208))
    yield violation("one sideband record too many", [over], "credit")
    # Larger than any TLP that there can be: prefixes, header, 4096 bytes of data, digest.
    yield violation("a TLP that is larger than what is taken", [frame(write(words=1035))], "tlp-too-long")


def _records():
    first, second = write(), write(1)
    yield case("a record that came before", [frame(first), frame(first, packet=11)], "7", next=1,
               delivered=[first], counted="duplicate", answer="acknowledgement")
    yield case("a record behind one that is missing", [frame(second, sequence=1)], "7", next=0,
               answer="acknowledgement")
    yield case("the missing one comes", [frame(second, sequence=1), frame(first, packet=11)], "7",
               next=2, delivered=[first, second])
    yield case("beyond the window", [frame(first, sequence=1024)], counted="beyond-window")
    yield case("the last one within the window", [frame(first, sequence=1023)],
               answer="acknowledgement")
    yield case("an epoch that is not open yet", [frame(write(address=Address(0, 3, 0, 8)))],
               next=1, counted="unknown")
    yield case("an epoch below the one that is open", [frame(write(address=Address(0, 3, 0, 6)))],
               next=1, counted="stale")
    yield case("an epoch that is over", [frame(first)], next=1, counted="stale",
               binding="closed")
    yield case("another slot", [frame(write(address=Address(0, 4, 0, 7)))], next=1,
               counted="unknown")
    yield case("another function", [frame(write(address=Address(0, 3, 1, 7)))], next=1,
               counted="unknown")
    yield case("slots that do not fit the direction", [frame(write(address=Address(3, 0, 0, 7)))],
               next=1, counted="unknown")
    yield case("nothing is open", [frame(first)], next=1, counted="unknown", binding="none")
    wrong = write(crc=0x12345678)
    yield case("a wrong TLP CRC", [frame(wrong)], next=1, counted="tlp-crc",
               answer="binding failed")
    yield case("a binding that failed", [frame(wrong), frame(second, sequence=1, packet=11)],
               next=2, counted="failed-binding", answer="binding failed")
    yield case("unbound by the peer", [frame(Unbind(BOUND))], "11", next=1,
               answer="binding failed")
    yield case("NOPs count", [frame(Nop(), Nop(), first)], "5.1", next=3, delivered=[first])
    flush = Sideband(BOUND, 11)
    yield case("a flush drops what came before it", [frame(first, read(1), flush, second)], "9",
               next=4, delivered=[second], sideband=[11])
    yield case("a sideband record of an unknown code does not flush",
               [frame(first, Sideband(BOUND, 99, 1))], "5.4", next=2, delivered=[first],
               sideband=[99])
    ready = Credits(BOUND, (16, 64, 32, 8))
    yield case("limits", [frame(ready)], "5.5", next=1)
    yield case("limits that ask for an answer", [frame(Credits(BOUND, (16, 64, 32, 8), True))],
               "8", next=1, answer="credits")
    # What is posted is drained before what is not, if the reader cannot take the latter.
    yield case("reads and writes", [frame(read(1), first, read(2), second)], "9", next=4,
               delivered=[read(1), first, read(2), second])


def _split():
    whole = write(words=20)
    crc = wire.tlp_crc(whole.tlp)
    head = SplitHeader(BOUND, 0, len(whole.tlp), 2, crc, whole.tlp[:40])
    parts = [SplitData(BOUND, 0, 1, 40, whole.tlp[40:80]), SplitData(BOUND, 0, 2, 80, whole.tlp[80:])]
    yield case("a split TLP", [frame(head, *parts)], "5.3", next=3, delivered=[whole])
    backwards = [frame(parts[1], sequence=2), frame(parts[0], sequence=1, packet=11),
                 frame(head, packet=12)]
    yield case("its parts in any order", backwards, "5.3", next=3, delivered=[whole])
    yield case("another record in place of a part", [frame(head, parts[0], Nop(), write(1))],
               "5.3", next=4, delivered=[write(1)])
    wrong = SplitHeader(BOUND, 0, len(whole.tlp), 2, crc ^ 1, whole.tlp[:40])
    yield case("a wrong CRC over the whole", [frame(wrong, *parts)], "5.3", next=3,
               counted="tlp-crc", answer="binding failed")

    yield from _large()

    def broken(name, *records):
        return violation(name, [frame(*records)], "split")
    yield broken("a gap", head, SplitData(BOUND, 0, 1, 44, whole.tlp[44:80]), parts[1])
    yield broken("an overlap", head, SplitData(BOUND, 0, 1, 36, whole.tlp[36:80]), parts[1])
    yield broken("beyond its end", head, parts[0], SplitData(BOUND, 0, 2, 80, bytes(16)))
    yield broken("not to its end", head, parts[0], SplitData(BOUND, 0, 2, 80, bytes(4)))
    yield broken("parts of another class", head, SplitData(BOUND, 2, 1, 40, whole.tlp[40:80]),
                 parts[1])


def _large():
    whole = largest_write()
    assert len(whole.tlp) == wire.LARGEST_TLP
    frames = [frame(record, sequence=n, packet=10 + n)
              for n, record in enumerate(wire.records_of(whole))]
    assert all(len(f.encode()) <= wire.SAFE_FRAME for f in frames)
    yield case("the largest TLP, split so that each record fits a frame of 1200 bytes", frames,
               "5.3", next=len(frames), delivered=[whole])
    longer = Tlp(BOUND, wire.POSTED, whole.tlp + bytes(4))
    head, *_ = wire.records_of(longer)
    yield violation("a split TLP that is larger than what is taken", [frame(head)], "tlp-too-long")

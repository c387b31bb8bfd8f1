"""Frames that are none, or not for this link, and what every frame may have (sections 4 and 10)."""

import struct

from .. import wire
from ..end import Failed
from . import case


def _dropped(lab, make, end=None):
    """A request in a wrong frame is not taken, and the same in a right one is."""
    end = end or lab.bound()
    good = end.data(lab.request(1))
    acked = end.acked
    end.resends = False
    end.put(make(good, end))
    lab.ignored(end, 1)
    if end.acked != acked:
        raise Failed("the record in the wrong frame was acknowledged")
    if end.closed_with() is not None:
        raise Failed(f"it closed the link (reason {end.closed_with()}); the frame is dropped")
    end.resends = True
    end.put(good)
    lab.answered(end, 1, "10")


def _sealed(at, new):
    return lambda good, _end: wire.resealed(good.encode(), at, new)


def _flip(at, bit):
    def make(good, _end):
        data = bytearray(good.encode())
        data[at] ^= 1 << bit
        return bytes(data)
    return make


def _with(**fields):
    def make(good, end):
        wrong = {name: value(end) if callable(value) else value for name, value in fields.items()}
        return wire.Frame(**{**vars(good), **wrong})
    return make


WRONG = {
    "frame.crc": ("4.2", [_flip(60, 3), _flip(0x18, 0), _flip(-1, 7)],
                  "Frames with a flipped bit are dropped."),
    "frame.crc-of-another-polynomial": ("4.2", [
        lambda good, _end: good.encode()[:-4] + struct.pack("<I", wire.tlp_crc(good.encode()[:-4]))],
        "A frame with the CRC of Ethernet and of TLPs is dropped."),
    "frame.version": ("10", [_sealed(0, b"\x02"), _sealed(0, b"\x00")],
                      "Frames of another version are dropped."),
    "frame.length": ("10", [_sealed(2, b"\x33\x00"), _sealed(2, b"\xff\xff"),
                            lambda good, _end: good.encode()[:-1],
                            lambda good, _end: good.encode()[:40],
                            lambda _good, _end: b"\x01"],
                     "Frames that are cut short, or say a wrong length, are dropped."),
    "frame.key": ("4.3", [_sealed(22, b"\x01\x00")], "A frame with a key ID is dropped."),
    "frame.kind": ("10", [_sealed(1, b"\x00"), _sealed(1, b"\x05"), _sealed(1, b"\xff")],
                   "Frames of an unknown kind are dropped."),
    "frame.node": ("10", [_sealed(6, b"\x00\x00"), _sealed(4, b"\xff\xff"), _with(destination=65000),
                          _with(source=65001)],
                   "Frames of or for another node, or of none, are dropped."),
    "frame.path": ("10", [_sealed(20, b"\x08"), _sealed(42, b"\x08"), _sealed(20, b"\x07")],
                   "Frames of a path that there is not are dropped."),
    "frame.ranges": ("10", [_sealed(43, b"\x09"), _sealed(43, b"\x08")],
                     "Frames whose ranges are too many, or do not fit, are dropped."),
    "frame.incarnation": ("10", [_with(source_incarnation=lambda end: end.incarnation - 1),
                                 _with(destination_incarnation=lambda end: end.peer_life ^ 1),
                                 _with(destination_incarnation=None)],
                          "Frames of another life of either end are dropped."),
    "frame.session": ("10", [_with(session=lambda end: end.peer_session ^ 1), _with(session=0)],
                      "Frames of another link between the same lives are dropped."),
}


def _add(name, section, wrongs, about):
    def run(lab):
        for make in wrongs:
            _dropped(lab, make)
    run.__doc__ = about
    case(name, section)(run)


for _name, (_section, _wrongs, _about) in WRONG.items():
    _add(_name, _section, _wrongs, _about)


@case("frame.ranges-that-are-wrong", "10")
def ranges_that_are_wrong(lab):
    """Frames whose ranges are empty, begin at 0, touch, or are out of order are dropped."""
    for ranges in ([(2, 0)], [(0, 1)], [(1, 1), (2, 1)], [(8, 1), (2, 1)]):
        def make(good, end, ranges=ranges):
            ack = end.acknowledgement() or wire.Ack()
            return _with(ack=wire.Ack(**{**vars(ack), "ranges": ranges}))(good, end)
        _dropped(lab, make)


@case("frame.padding", "3")
def padding(lab):
    """Bytes behind the frame's length are ignored."""
    end = lab.bound()
    end.resends = False
    end.put(end.data(lab.request(1)).encode() + bytes(60))
    lab.answered(end, 1, "3")


@case("frame.reserved", "2")
def reserved(lab):
    """Reserved bits and bytes of a frame are ignored."""
    end = lab.bound()
    end.resends = False
    data = end.data(lab.request(1)).encode()
    flags = data[21] | 0xFC
    end.put(wire.resealed(wire.resealed(data, 21, bytes([flags])), 46, b"\xff\xff"))
    lab.answered(end, 1, "2")


@case("frame.random", "10")
def random(lab):
    """Datagrams of noise change nothing."""
    end = lab.bound()
    noise = 1
    # An interface sends no more than it does; the length does not matter.
    for length in (n for n in (0, 1, 51, 52, 100, 1400, 8000) if n <= lab.largest):
        data = bytearray()
        while len(data) < length:
            noise = noise * 6364136223846793005 + 1442695040888963407 & 2**64 - 1
            data += noise.to_bytes(8, "little")
        end.put(bytes(data[:length]))
        end.put(b"\x01\x02" + bytes(data[2:length]))
    lab.still_up(end)


@case("frame.small", "6")
def small(lab):
    """An end that takes frames of 512 bytes gets none that are larger."""
    end = lab.bound(max_frame=512)
    for number in range(1, 30):
        lab.queue(end, lab.request(number))
    for number in range(1, 30):
        lab.answered(end, number)

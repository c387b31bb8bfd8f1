"""Records (section 5, and section 10 where they are wrong)."""

import struct

from .. import wire
from ..end import Failed
from ..lab import Skip
from ..wire import Address, Nop, Sideband, SplitData, SplitHeader, Tlp, Unbind
from . import case


def _patched(record, at, new):
    data = bytearray(record.encode())
    data[at:at + len(new)] = new
    return bytes(data)


NONE = {
    "record.kind": ("Records of an unknown kind close the link: version 1 has no others.",
                    lambda r, a: [struct.pack("<BBH", 7, 0, 4), _patched(r, 0, b"\xff")]),
    "record.length": ("Records whose length does not fit their kind close the link.",
                      lambda r, a: [bytes(4), b"\x00\x00\x08\x00" + bytes(4), r.encode()[:-4],
                                    _patched(Sideband(a, 11), 2, b"\x14\x00") + bytes(4)]),
    "record.class": ("A TLP of class 3 closes the link.",
                     lambda r, a: [_patched(r, 1, b"\x0b")]),
    "record.function": ("A function above 255 closes the link.",
                        lambda r, a: [_patched(r, 6, b"\x00\x01")]),
    "record.epoch": ("An epoch with counter 0 closes the link.",
                     lambda r, a: [_patched(r, 8, bytes(4))]),
    "record.slots": ("Source and destination slot 0 close the link.",
                     lambda r, a: [_patched(r, 4, b"\x00\x00")]),
}


def _add(name, about, make):
    def run(lab):
        for wrong in make(lab.request(1), lab.address()):
            end = lab.bound()
            end.send(make(lab.request(1), end.address)[0] if wrong is None else wrong)
            lab.closes(end, wire.PROTOCOL)
    run.__doc__ = about
    case(name, "10")(run)


for _name, (_about, _make) in NONE.items():
    _add(_name, _about, _make)


def _acknowledged(lab, end):
    """Waits until all that was sent is acknowledged."""
    if not end.pump(lambda: end.acked == end.sequence, lab.settings.patience):
        raise Failed(f"acknowledged up to {end.acked}; {end.sequence} were sent")


@case("record.nop", "5.1")
def nop(lab):
    """NOPs take a sequence and are acknowledged."""
    end = lab.bound()
    end.send(Nop(), Nop(), Nop())
    _acknowledged(lab, end)
    lab.still_up(end)


@case("record.reserved", "2")
def reserved(lab):
    """Reserved flags and bytes of records are ignored."""
    end = lab.bound()
    data = bytearray(lab.request(1).encode())
    data[1] |= 0xE0
    end.send(_patched(Nop(), 1, b"\xff"), bytes(data))
    lab.answered(end, 1, "2")


@case("record.many-in-one-frame", "5")
def many_in_one_frame(lab):
    """Records lie one behind the other, and each has one sequence more."""
    end = lab.bound()
    end.send(Nop(), lab.request(1), lab.request(2), Nop(), lab.request(3))
    for number in (1, 2, 3):
        lab.answered(end, number)
    _acknowledged(lab, end)


@case("record.entry", "5.2")
def entry(lab):
    """A completion carries back index and generation, whatever they are, and its own binding."""
    end = lab.bound()
    for entry in ((0, 0), (65535, 65535), (1, 2)):
        end.send(lab.request(1, entry=entry))
        if not end.pump(lambda entry=entry: end.completions(entry), lab.settings.patience):
            raise Failed(f"no completion with entry {entry}")
        completion = end.completions(entry)[0]
        if completion.address != end.address.turned():
            raise Failed(f"the completion is of {completion.address}")


@case("record.once", "5.2")
def once(lab):
    """Each request is completed once."""
    end = lab.bound()
    for number in range(1, 41):
        lab.ask(end, number)
    end.pump(seconds=0.1)
    for number in range(1, 41):
        count = len(end.completions((number, 7)))
        if count != 1:
            raise Failed(f"request {number} has {count} completions")


@case("record.tlp-crc", "10")
def tlp_crc(lab):
    """A wrong TLP CRC in a right frame: acknowledged, the binding fails, the link goes on."""
    end = lab.bound()
    wrong = lab.request(1)
    wrong.crc = wire.tlp_crc(wrong.tlp) ^ 1
    end.send(wrong)
    _acknowledged(lab, end)
    end.send(lab.request(2))
    lab.ignored(end, 1)
    lab.ignored(end, 2)
    end.send(Nop())
    _acknowledged(lab, end)
    if end.closed_with() is not None:
        raise Failed("it closed the link; only the binding fails")


def _dropped(lab, address, number=1):
    """A request for a binding that is not open is acknowledged and not completed."""
    end = lab.end
    end.send(lab.request(number, address=address))
    _acknowledged(lab, end)
    lab.ignored(end, number)
    lab.still_up(end)


@case("epoch.stale", "10")
def stale(lab):
    """A record of an epoch below the one that is open is acknowledged and dropped."""
    end = lab.bound()
    # The generation is above the counter, and no epoch has counter 0.
    if end.address.epoch & 0xFFFFFF <= 1:
        raise Skip("no epoch of its generation is below the one that is open; --epoch gives another")
    _dropped(lab, Address(**{**vars(end.address), "epoch": end.address.epoch - 1}))


@case("epoch.of-another-generation", "10")
def another_generation(lab):
    """A record of the same counter in another generation is acknowledged and dropped."""
    end = lab.bound()
    _dropped(lab, Address(**{**vars(end.address), "epoch": end.address.epoch ^ 0x01000000}))


@case("epoch.unknown", "10")
def unknown(lab):
    """A record of an epoch, slot or function that is not open is acknowledged and dropped."""
    end = lab.bound()
    address = vars(end.address)
    slot = "destination_slot" if lab.role == "box" else "source_slot"
    for number, change in enumerate(({"epoch": end.address.epoch + 5}, {slot: 200},
                                     {"function": 201})):
        _dropped(lab, Address(**{**address, **change}), number + 1)


@case("epoch.direction", "10")
def direction(lab):
    """A record whose slots do not fit its direction is acknowledged and dropped."""
    end = lab.bound()
    _dropped(lab, end.address.turned())


@case("epoch.closed", "8", manager=True)
def closed(lab):
    """What comes for a binding that was closed is acknowledged and dropped, on the same link."""
    end = lab.bound()
    old = end.address
    lab.ask(end, 1)
    lab.unbind()
    end.pump(seconds=0.1)
    end.send(lab.request(2, address=old))
    _acknowledged(lab, end)
    lab.ignored(end, 2)
    lab.bind()
    end.address = lab.address()
    lab.open_binding(end)
    end.send(lab.request(3, address=old))
    lab.ignored(end, 3)
    lab.still_up(end)


@case("unbind.said", "8", manager=True)
def unbind_said(lab):
    """An end that closes a binding sends an unbind record."""
    end = lab.bound()
    lab.unbind()
    def unbinds():
        return [r for r in end.records.values() if isinstance(r, Unbind)]
    end.pump(unbinds, lab.settings.patience)
    if not unbinds():
        raise Failed("no unbind record came")
    if not unbinds()[0].address.same_binding(end.address):
        raise Failed(f"it is of {unbinds()[0].address}")


@case("unbind.heard", "11")
def unbind_heard(lab):
    """After an unbind record of the peer the binding gives nothing; the link goes on."""
    end = lab.bound()
    lab.ask(end, 1)
    end.send(Unbind(end.address))
    _acknowledged(lab, end)
    end.send(lab.request(2))
    lab.ignored(end, 2)
    end.send(Nop())
    _acknowledged(lab, end)
    if end.closed_with() is not None:
        raise Failed("it closed the link; only the binding fails")


@case("sideband.unknown", "5.4")
def sideband_unknown(lab):
    """A sideband record of an unknown code, or with an unknown argument, is ignored."""
    end = lab.bound()
    end.send(Sideband(end.address, 77, 0x1234), Sideband(end.address, 10, 99))
    _acknowledged(lab, end)
    lab.still_up(end)


@case("sideband.flush", "9")
def sideband_flush(lab):
    """A flush (code 11) ends nothing but what is under way."""
    end = lab.bound()
    lab.ask(end, 1)
    end.send(Sideband(end.address, 11))
    _acknowledged(lab, end)
    lab.still_up(end)


def _split(lab, number):
    """A request as header record and one data record."""
    whole = lab.long_request(number)
    head = SplitHeader(whole.address, whole.tlp_class, 16, 1, wire.tlp_crc(whole.tlp),
                       whole.tlp[:12], whole.entry)
    return head, SplitData(whole.address, whole.tlp_class, 1, 12, whole.tlp[12:])


def _completed(lab, end, number):
    if not end.pump(lambda: end.completions((number, 7)), lab.settings.patience):
        raise Failed(f"no completion of a split request (closed: {end.closed_with()})")


@case("split.together", "5.3")
def split_together(lab):
    """A split TLP is taken, in one frame or in several."""
    end = lab.bound()
    end.send(*_split(lab, 1))
    _completed(lab, end, 1)
    head, rest = _split(lab, 2)
    end.send(head)
    end.pump(seconds=0.02)
    end.send(rest)
    _completed(lab, end, 2)


@case("split.backwards", "5.3")
def split_backwards(lab):
    """The parts of a split TLP may come in any order."""
    end = lab.bound()
    first, second = (end.data(part) for part in _split(lab, 1))
    end.resends = False
    end.put(second)
    end.pump(seconds=0.02)
    end.put(first)
    _completed(lab, end, 1)


@case("split.interrupted", "5.3")
def split_interrupted(lab):
    """Another record in place of a part: the whole TLP is dropped, and nothing else."""
    end = lab.bound()
    head, _ = _split(lab, 1)
    end.send(head, Nop())
    _acknowledged(lab, end)
    lab.ignored(end, 1)
    lab.still_up(end)


@case("split.wrong", "10")
def split_wrong(lab):
    """Parts that leave a gap, overlap, or are of another class close the link."""
    for change in ({"offset": 16}, {"offset": 8}, {"tlp_class": wire.POSTED}, {"data": bytes(8)}):
        end = lab.bound()
        head, rest = _split(lab, 1)
        end.send(head, SplitData(**{**vars(rest), **change}))
        lab.closes(end, wire.PROTOCOL)


def _write(lab, end, words):
    """A posted write of so many doublewords to where nothing is."""
    requester = 0 if lab.role == "box" else 0x0100
    head = struct.pack(">IHHI", 0x40000000 | words & 0x3FF, requester, 0x00FF, 0x1000)
    return Tlp(end.address, wire.POSTED, head + bytes(n & 0xFF for n in range(4 * words)))


@case("tlp.largest", "13")
def largest(lab):
    """A TLP as large as it said it takes is taken, in records that fit frames of 1200 bytes, and
    its credit comes back."""
    end = lab.bound()
    words = min(1024, (end.peer_open.max_tlp - 12) // 4)
    before = end.limits[end.address.epoch][wire.POSTED]
    for _ in range(3):
        lab.queue(end, _write(lab, end, words))
    _acknowledged(lab, end)
    if not end.pump(lambda: end.limits[end.address.epoch][wire.POSTED] >= before + 3,
                    lab.settings.patience):
        raise Failed(f"section 8: posted credits: {before} before 3 writes of {4 * words} bytes, "
                     f"{end.limits[end.address.epoch]} after")
    lab.still_up(end)


@case("split.too-large", "10")
def split_too_large(lab):
    """A split TLP that is larger than it said it takes closes the link."""
    end = lab.bound()
    words = end.peer_open.max_tlp // 4 + 2
    if 12 + 4 * words > 0xFFFF:
        raise Skip("it takes every TLP that a header record can tell of")
    for record in wire.records_of(_write(lab, end, words), 512 - wire.SMALLEST_FRAME):
        end.send(record)
    lab.closes(end, wire.PROTOCOL)


@case("tlp.too-large", "10")
def too_large(lab):
    """A TLP that is larger than it said it takes closes the link."""
    end = lab.bound()
    words = end.peer_open.max_tlp // 4 + 2
    lab.fit(end, 20 + 12 + 4 * words)
    end.send(_write(lab, end, words))
    lab.closes(end, wire.PROTOCOL)

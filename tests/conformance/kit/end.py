"""The kit's end of one link: sends whatever a case wants, right or wrong, writes down what comes,
and holds every frame that comes to the rules that always hold."""

import time
from dataclasses import dataclass, field

from . import net, wire
from .wire import Ack, Credits, Frame, Nop, Open, Sideband, SplitData, SplitHeader, Tlp, Unbind

PLENTY = (64, 64, 64, 64)
RESEND_S = 0.15


class Failed(Exception):
    """What was seen that must not be, or the other way round."""


@dataclass
class Seen:
    """A frame that came."""

    at: float
    path: int
    frame: Frame
    mark: int
    # (sequence, record, whether it came for the first time)
    records: list = field(default_factory=list)


def place_of(record):
    """Where a record's credit stands among the four; None of one that needs none."""
    if isinstance(record, Sideband):
        return 3
    return record.tlp_class if isinstance(record, (Tlp, SplitHeader)) else None


def never(condition, text):
    """Fails with this text where the condition holds."""
    if condition:
        raise Failed(text)


class End:
    """One life of the kit's node, with one link to the implementation that is tested."""

    def __init__(self, ports, local, peer, told_incarnation, incarnation, address, **limits):
        self.ports = ports
        self.local, self.peer = local, peer
        self.incarnation, self.peer_life = incarnation, told_incarnation
        self.session = incarnation & 0xFFFF | 0x50000
        self.open = Open(self.session, **limits)
        self.address = address
        self.peer_open, self.up = None, False
        self.tokens, self.peer_tokens = set(), []
        self.seen, self.asked = [], 0
        # What this end does by itself.
        self.acknowledges = self.resends = self.answers_opens = True
        # Paths whose frames it leaves unread.
        self.deaf = set()
        # Sending.
        self.sequence, self.packets = 0, [0] * 8
        self.sent, self.acked, self.acked_by, self.last_ack = {}, 0, {}, None
        # Receiving: sequence, what came at it, credits that were given.
        self.next, self.records = 0, {}
        # The last packet on each path, and the last of which an acknowledgement may speak.
        self.largest, self.came = {}, {}
        self.marks = {}
        # Frames on each path that are to be acknowledged; the sequence of the next new record;
        # the last cumulative acknowledgement.
        self.due, self.bound_next, self.told = {}, 0, 0
        self.given = {}
        self.taken, self.used = {}, {}
        self.limits, self.limits_by = {}, {}

    # --- sending ----------------------------------------------------------------------------------

    def header(self, kind, path=0, **fields):
        """A frame of this link; it takes the path's next packet number unless one is given."""
        if "packet" not in fields:
            fields["packet"], self.packets[path] = (self.packets[path],
                                                    wire.wrap(self.packets[path] + 1))
        given = {"destination": self.peer, "source": self.local, "session": self.peer_session,
                 "source_incarnation": self.incarnation,
                 "destination_incarnation": self.peer_life, "sequence": self.sequence}
        return Frame(kind, path=path, **{**given, **fields})

    @property
    def peer_session(self):
        """Session of the other end's link, 0 before it is known."""
        return self.peer_open.session if self.peer_open else 0

    def acknowledgement(self, path=None):
        """What this end would acknowledge now."""
        if not self.came:
            return None
        if path is None:
            path = max(self.came, key=lambda p: self.came[p][1])
        packet, at = self.came[path]
        delay = min(int((time.monotonic() - at) * 1e6), 65535)
        ranges, run = [], None
        for sequence in sorted(self.records, key=lambda s: wire.wrap(s - self.next)):
            offset = wire.wrap(sequence - self.next)
            if not 0 < offset < 2**16 or len(ranges) >= 8 and offset != run:
                continue
            if offset == run:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
            else:
                ranges.append((offset, 1))
            run = offset + 1
        self.told = self.next
        return Ack(self.next, packet, delay, path, self.marks.get(path, 0), ranges)

    def put(self, frame, mark=net.ECT0):
        """Sends a frame, or bytes."""
        data = frame if isinstance(frame, bytes) else frame.encode()
        path = frame.path if isinstance(frame, Frame) else 0
        self.ports[path % len(self.ports)].send(data, mark)

    def data(self, *records, path=0, sequence=None, ack="own", **fields):
        """A data frame. Records without a sequence of their own take the next ones."""
        if sequence is None:
            sequence = self.sequence
            for record in records:
                self.use_credit(record)
                self.sent[self.sequence] = (record, time.monotonic())
                self.sequence = wire.wrap(self.sequence + 1)
        body = b"".join(r if isinstance(r, bytes) else r.encode() for r in records)
        ack = self.acknowledgement() if ack == "own" and self.acknowledges else ack
        return self.header(wire.DATA, path, sequence=sequence, body=body,
                           ack=None if ack == "own" else ack, **fields)

    def send(self, *records, mark=net.ECT0, **fields):
        """Sends a data frame with these records."""
        self.put(self.data(*records, **fields), mark)

    def use_credit(self, record):
        """Counts what the other end's limits are for."""
        place = place_of(record)
        if place is not None:
            self.used.setdefault(record.address.epoch, [0] * 4)[place] += 1

    def may_send(self, record):
        """Whether the other end has given credit for one more such record."""
        place, epoch = place_of(record), record.address.epoch
        limits = self.limits.get(epoch, (0,) * 4)
        return wire.before(self.used.get(epoch, [0] * 4)[place], limits[place])

    def give(self, limits, announce=False, address=None):
        """Gives credit, as cumulative limits."""
        address = address or self.address
        self.given[address.epoch] = tuple(limits)
        self.send(Credits(address, tuple(limits), announce))

    def ask_open(self, path=0, **fields):
        """Sends an open frame with a new token."""
        self.asked += 1
        token = self.incarnation << 32 | self.asked
        self.tokens.add(token)
        self.send_open(path=path, token=token, **fields)

    def send_open(self, path=0, token=0, echo=0, header=(), **limits):
        """Sends an open frame with this token, and these of its fields otherwise."""
        body = Open(**{**vars(self.open), "token": token, "echo": echo, **limits})
        given = {"session": 0, "sequence": 0, "destination_incarnation": self.peer_life}
        self.put(self.header(wire.OPEN, path, body=body.encode(), **{**given, **dict(header)}))

    def close(self, reason=wire.REMOVED, **fields):
        """Sends a close frame."""
        self.put(self.header(wire.CLOSE, body=bytes([reason, 0, 0, 0]), **fields))

    # --- receiving --------------------------------------------------------------------------------

    def pump(self, until=lambda: False, seconds=1.0):
        """Takes frames until something is true, or the time is over. Gives whether it is."""
        end = time.monotonic() + seconds
        while not until():
            left = end - time.monotonic()
            if left <= 0:
                return False
            # What came is acknowledged as soon as nothing more is there.
            got = net.wait(self.ports, min(left, 0 if self.due and self.acknowledges else 0.02))
            if got is not None and got[0] not in self.deaf:
                self.take(*got)
            self.tick(idle=got is None)
        return True

    def tick(self, idle):
        """What this end does by itself."""
        if self.up and self.acknowledges and self.due and (idle or sum(self.due.values()) > 4):
            self.acknowledge()
        now = time.monotonic()
        if self.up and self.resends:
            for sequence, (record, at) in list(self.sent.items()):
                if now - at > RESEND_S:
                    self.sent[sequence] = record, now
                    self.send(record, sequence=sequence)

    def acknowledge(self):
        """Acknowledges what came, on each path that something came by."""
        for path in list(self.due) or [None]:
            self.send(sequence=self.sequence, ack=self.acknowledgement(path))
        self.due = {}

    def take(self, path, data, mark):
        """Checks a frame and keeps it."""
        try:
            frame = Frame.decode(data)
            records = frame.records() if frame.kind == wire.DATA else []
        except wire.WireError as error:
            raise Failed(f"section 4: it sent what is no frame: {error}: {data.hex()}") from None
        stranger = frame.destination_incarnation not in (None, self.incarnation)
        if stranger or frame.kind != wire.OPEN and frame.session != self.session:
            # Of the link before this one: it may be late.
            return
        if frame.kind == wire.OPEN and self.peer_open not in (None, frame.open()):
            if frame.open().session != self.peer_open.session:
                # Of the link behind this one, which is over.
                return
        self.check_frame(path, frame, data)
        seen = Seen(time.monotonic(), path, frame, mark)
        self.seen.append(seen)
        if mark == net.CE:
            self.marks[path] = self.marks.get(path, 0) + 1
        if frame.kind == wire.OPEN:
            return self.take_open(frame)
        if frame.kind == wire.CLOSE or not self.up:
            return
        self.take_ack(frame)
        for record in records:
            length = len(record.encode())
            never(length > wire.SAFE_FRAME - wire.SMALLEST_FRAME,
                  f"section 5.3: a record of {length} bytes does not fit a frame of 1200 bytes; "
                  "such a TLP is split")
        for number, record in enumerate(records):
            sequence = wire.wrap(frame.sequence + number)
            seen.records.append((sequence, record, self.take_record(path, sequence, record)))
        if records or frame.kind == wire.PROBE:
            self.due[path] = self.due.get(path, 0) + (1 if records else 100)

    def check_frame(self, path, frame, data):
        """What holds for every frame of this link."""
        never(frame.encode() != data,
              f"section 2: reserved bits or bytes are not 0, or bytes lie behind the frame: {data.hex()}")
        never(frame.source != self.peer or frame.destination != self.local,
              f"section 4.1: a frame from {frame.source} to {frame.destination}")
        never(self.peer_life not in (None, frame.source_incarnation),
              f"section 4.1: its incarnation is {frame.source_incarnation}, not {self.peer_life}")
        never(frame.kind != wire.OPEN and frame.destination_incarnation is None,
              f"section 10: a {wire.KINDS[frame.kind]} frame without our incarnation")
        never(frame.path != path, f"section 4.1: a frame on path {path} says path {frame.path}")
        largest = self.largest.get(path)
        never(largest is not None and not wire.before(largest, frame.packet),
              f"section 7: packet {frame.packet} on path {path} after {largest}")
        never(len(data) > self.open.max_frame,
              f"section 6: a frame of {len(data)} bytes; we take {self.open.max_frame}")
        self.largest[path] = frame.packet
        if frame.kind in (wire.DATA, wire.PROBE):
            self.came[path] = frame.packet, time.monotonic()

    def take_open(self, frame):
        """Notes what an open frame says, and answers it."""
        body = frame.open()
        if body.token:
            never(body.token in self.peer_tokens[:-1] and not self.up and not body.echo,
                  f"section 6: token {body.token:#x} is used twice")
            if body.token not in self.peer_tokens:
                self.peer_tokens.append(body.token)
        if not self.answers_opens:
            return
        self.peer_open = body
        self.peer_life = frame.source_incarnation
        if body.echo in self.tokens:
            self.up = True
        if body.token:
            own = 0
            if not self.up:
                self.asked += 1
                own = self.incarnation << 32 | self.asked
                self.tokens.add(own)
            self.send_open(frame.path, token=own, echo=body.token)

    def take_ack(self, frame):
        """Checks an acknowledgement and forgets what it covers."""
        ack = frame.ack
        if ack is None:
            return
        never(wire.before(self.sequence, ack.next),
              f"section 7: it acknowledges {ack.next}; we have sent up to {self.sequence}")
        never(not wire.before(ack.packet, self.packets[ack.path]),
              f"section 7: it acknowledges packet {ack.packet} of path {ack.path}, never sent")
        # Frames of different paths may overtake each other.
        told = self.acked_by.get(frame.path, 0)
        never(wire.before(ack.next, told),
              f"section 7: its acknowledgement went back from {told} to {ack.next}")
        self.acked_by[frame.path] = ack.next
        if not wire.before(ack.next, self.acked):
            self.acked, self.last_ack = ack.next, ack
        self.sent = {s: r for s, r in self.sent.items() if not ack.covers(s)}

    def take_record(self, path, sequence, record):
        """Checks a record; gives whether it came for the first time."""
        known = self.records.get(sequence)
        past = wire.before(sequence, self.next) and known is None
        never(past, f"section 7: sequence {sequence} again, which was acknowledged long ago")
        if known is not None:
            changes = isinstance(known, (Credits, Tlp, SplitHeader, SplitData)) and isinstance(
                record, (Credits, Nop, Unbind))
            never(known != record and not changes,
                  f"section 7: sequence {sequence} came with another record: {known}, then {record}")
            return False
        gap = wire.before(self.bound_next, sequence) and len(self.ports) == 1
        never(gap, f"section 7: sequence {sequence}, when the next new record is {self.bound_next}")
        never(wire.wrap(sequence - self.told) >= self.open.window,
              f"section 6: sequence {sequence} is beyond our window of {self.open.window} from {self.told}")
        if not wire.before(sequence, self.bound_next):
            self.bound_next = wire.wrap(sequence + 1)
        self.records[sequence] = record
        self.check_credit(path, record)
        while self.next in self.records:
            self.next = wire.wrap(self.next + 1)
        return True

    def check_credit(self, path, record):
        """Whether there was credit for a record, or notes what it gives."""
        if isinstance(record, Credits):
            return self.take_limits(path, record)
        place = place_of(record)
        if place is None:
            return None
        epoch = record.address.epoch
        counts = self.taken.setdefault(epoch, [0] * 4)
        counts[place] += 1
        limit = self.given.get(epoch, (0,) * 4)[place]
        name = (*wire.CLASSES, "sideband")[place]
        never(counts[place] > limit,
              f"section 8: {counts[place]} {name} records; their limit is {limit}")
        return None

    def take_limits(self, path, record):
        """Limits only grow. A record that is sent again says the limits of then, so that it is the
        order of packets that counts, not that of records."""
        epoch = record.address.epoch
        told = self.limits_by.get((epoch, path), (0,) * 4)
        shrunk = any(wire.before(new, old) for new, old in zip(record.limits, told))
        never(shrunk, f"section 8: limits went back from {told} to {record.limits}")
        self.limits_by[epoch, path] = record.limits
        known = self.limits.get(epoch, record.limits)
        self.limits[epoch] = tuple(old if wire.before(new, old) else new
                                   for new, old in zip(record.limits, known))

    # --- what came --------------------------------------------------------------------------------

    def all_records(self, since=0):
        """Every (frame, sequence, record, first) from a place in `seen` on."""
        return [(seen, *entry) for seen in self.seen[since:] for entry in seen.records]

    def frames(self, kind, since=0):
        """Every frame of a kind that came."""
        return [seen for seen in self.seen[since:] if seen.frame.kind == kind]

    def closed_with(self):
        """The reason in the close frame that came, or None."""
        closes = self.frames(wire.CLOSE)
        return closes[0].frame.reason() if closes else None

    def completions(self, entry=None):
        """The completion records that came for the first time."""
        return [record for record in self.records.values()
                if isinstance(record, (Tlp, SplitHeader)) and record.tlp_class == wire.COMPLETION
                and entry in (None, record.entry)]

"""What the reference sends: frames on paths, records again, acknowledgements, probes."""

import time

from .. import net, wire
from ..wire import Ack, Credits, Frame, Nop, Tlp, Unbind, before, wrap

RTO_S, LONGEST_RTO_S = 0.02, 0.1
PROBE_S, LONGEST_PROBE_S = 0.02, 0.25
OVERTAKEN = 3
PROVEN = object()
PLACES = (wire.POSTED, wire.NON_POSTED, wire.COMPLETION)


class Way:
    """One path: numbers, what came by it, and whether it carries anything."""

    def __init__(self):
        self.packet, self.largest, self.marks = 0, None, 0
        self.ack_now, self.ack_at = False, None
        self.good, self.suspect_since, self.acked = True, 0, None
        self.rto, self.probe_at, self.probe_gap = RTO_S, 0.0, PROBE_S
        # When packets were sent; round-trip time, smoothed and how it varies; when something was
        # acknowledged last.
        self.times, self.smoothed, self.varies, self.acked_at = {}, None, 0.0, 0.0

    def arrive(self, packet):
        if self.largest is None or before(self.largest[0], packet):
            self.largest = packet, time.monotonic()

    def measure(self, ack):
        """An acknowledgement names a packet of this path: its round trip, as RFC 6298 has it."""
        sent = self.times.get(ack.packet)
        self.times = {p: at for p, at in self.times.items() if before(ack.packet, p)}
        if sent is None or ack.delay_us == 65535:
            return
        took = max(time.monotonic() - sent - ack.delay_us / 1e6, 0.0)
        if self.smoothed is None:
            self.smoothed, self.varies = took, took / 2
        self.varies += (abs(self.smoothed - took) - self.varies) / 4
        self.smoothed += (took - self.smoothed) / 8

    def timeout(self):
        """The retransmission timeout, before it is doubled."""
        return min(max((self.smoothed or 0.0) + 4 * self.varies + 0.0001, RTO_S), LONGEST_RTO_S)

    def want_ack(self, now, delay):
        self.ack_now |= now and delay < 0.1
        self.ack_at = self.ack_at or time.monotonic() + delay


class Sent:
    """A record that is not acknowledged."""

    def __init__(self, record, path, packet):
        self.record, self.path, self.packet = record, path, packet
        self.first = self.last = time.monotonic()
        self.times, self.lost, self.doubted = 1, False, False


class Sender:
    """The sending half of a link."""

    def __init__(self, node, peer, paths):
        self.node, self.peer, self.paths = node, peer, paths
        self.faulty = node.faulty
        self.ways = [Way() for _ in range(paths)]
        self.sequence, self.acked, self.flight, self.control = 0, 0, {}, []
        self.turn = 0

    # --- frames -----------------------------------------------------------------------------------

    def put(self, kind, path, body=b"", sequence=None, ack=None, life=PROVEN, session=None):
        """Sends a frame; gives its packet number. `life` is the peer's, None when not known."""
        way = self.ways[path]
        packet = way.packet
        if not (self.faulty("packets-repeat") and packet % 7 == 3 and kind == wire.DATA):
            way.packet = wrap(way.packet + 1)
        else:
            packet = wrap(packet - 1)
        life = self.life[0] if life is PROVEN else life
        session = self.life[1] if session is None else session
        sequence = self.sequence if sequence is None else sequence
        data = Frame(kind, self.peer, self.node.number, self.node.incarnation, life, session, path,
                     packet, sequence, ack, body).encode()
        if self.faulty("reserved-bit-set"):
            data = wire.resealed(data, 47, b"\1")
        way.times[packet] = time.monotonic()
        self.node.ports[path].send(data, net.ECT0)
        return packet

    def acknowledgement(self, path):
        """What is acknowledged, in the words of a path; that path is told then."""
        way = self.ways[path]
        if way.largest is None:
            return None
        way.ack_now, way.ack_at = False, None
        packet, at = way.largest
        delay = min(int((time.monotonic() - at) * 1e6), 65535)
        next_, ranges, run = self.next, [], None
        for sequence in sorted(self.stored, key=lambda s: wrap(s - self.next)):
            offset = wrap(sequence - self.next)
            if offset == run:
                ranges[-1] = ranges[-1][0], ranges[-1][1] + 1
            elif len(ranges) < wire.MOST_RANGES:
                ranges.append((offset, 1))
            else:
                break
            run = offset + 1
        if self.stored and self.faulty("acknowledges-early"):
            next_, ranges = wrap(self.next + run), []
        if self.faulty("no-ranges"):
            ranges = []
        return Ack(next_, packet, delay, path, way.marks, ranges)

    def data(self, path, records=(), sequence=None):
        """Sends a data frame; gives its packet number."""
        waiting = [p for p, way in enumerate(self.ways) if way.ack_now or way.ack_at]
        spoken = min(waiting, key=lambda p: self.ways[p].ack_at or 0) if waiting else self.latest()
        ack = self.acknowledgement(spoken) if spoken is not None else None
        body = b"".join(record.encode() for record in records)
        return self.put(wire.DATA, path, body, sequence, ack)

    def latest(self):
        """The path that something came by last."""
        came = [p for p, way in enumerate(self.ways) if way.largest]
        return max(came, key=lambda p: self.ways[p].largest[1], default=None)

    # --- paths ------------------------------------------------------------------------------------

    def begin_paths(self, proven):
        for path, way in enumerate(self.ways):
            way.good = path == proven
            way.suspect_since = way.packet

    def path(self, but=None):
        """The path of the next frame: the good ones in turn, or all when there is none."""
        good = [p for p, way in enumerate(self.ways) if way.good and p != but]
        usable = good or list(range(self.paths))
        if self.faulty("no-fail-over"):
            usable = list(range(self.paths))
        self.turn += 1
        return usable[self.turn % len(usable)]

    def suspect(self, path):
        way = self.ways[path]
        if way.good and self.paths > 1:
            way.good, way.suspect_since = False, way.packet
            way.probe_at, way.probe_gap = 0.0, PROBE_S
        if any(other.good for other in self.ways):
            for sent in self.flight.values():
                sent.lost |= sent.path == path and not self.faulty("no-fail-over")

    def probe(self, now):
        if not self.bindings or self.paths == 1 or self.faulty("no-probes"):
            return
        for path, way in enumerate(self.ways):
            if not way.good and now >= way.probe_at:
                way.probe_at, way.probe_gap = now + way.probe_gap, min(
                    2 * way.probe_gap, LONGEST_PROBE_S)
                ack = self.acknowledgement(path) if way.largest else None
                self.put(wire.PROBE, path, bytes(8), ack=ack)

    # --- acknowledged, lost -----------------------------------------------------------------------

    def acknowledged(self, ack):
        way = self.ways[ack.path % self.paths]
        if way.acked is None or before(way.acked, ack.packet):
            way.acked = ack.packet
            way.measure(ack)
        if not before(ack.packet, way.suspect_since):
            way.good = True
        if before(self.acked, ack.next):
            self.acked = ack.next
        if self.faulty("ranges-unread"):
            ack = Ack(**{**vars(ack), "ranges": []})
        left = {s: sent for s, sent in self.flight.items() if not ack.covers(s)}
        if len(left) < len(self.flight):
            way.rto, way.acked_at = way.timeout(), time.monotonic()
        self.flight = left
        for sent in left.values():
            overtaken = sent.path == ack.path and not before(way.acked, wrap(sent.packet + OVERTAKEN))
            sent.lost |= overtaken

    def time_out(self, now):
        if self.faulty("never-resends"):
            return
        for path, way in enumerate(self.ways):
            oldest = min((s for s in self.flight.values() if s.path == path and not s.lost),
                         key=lambda s: s.last, default=None)
            if oldest is None or now < oldest.last + way.rto:
                continue
            for sent in self.flight.values():
                sent.lost |= sent.path == path and sent.packet == oldest.packet
            if not self.faulty("no-back-off"):
                way.rto = min(2 * way.rto, LONGEST_RTO_S)
            self.suspect(path)

    def doubt(self, now):
        """What nothing was acknowledged of for some time goes by another good path, too."""
        good = [path for path, way in enumerate(self.ways) if way.good]
        for path in good if len(good) > 1 else []:
            way = self.ways[path]
            oldest = min((s for s in self.flight.values() if s.path == path and not s.lost),
                         key=lambda s: s.last, default=None)
            patience = max(2 * (way.smoothed or 0.0), way.rto / 4)
            if self.faulty("doubts-early"):
                patience = RTO_S / 4
            if oldest and oldest.times == 1 and now > max(oldest.last, way.acked_at) + patience:
                for sent in self.flight.values():
                    sent.lost |= sent.path == path and sent.packet == oldest.packet
                    sent.doubted |= sent.lost
                self.put(wire.PROBE, path, bytes(8),
                         ack=self.acknowledgement(path) if way.largest else None)

    def resend(self):
        for sequence, sent in list(self.flight.items()):
            if not sent.lost:
                continue
            path = self.path(sent.path if sent.doubted else None)
            if self.faulty("no-fail-over"):
                path = sent.path
            record = self.now_said(sent.record)
            if self.faulty("resends-under-new-sequence"):
                del self.flight[sequence]
                sequence, self.sequence = self.sequence, wrap(self.sequence + 1)
                self.flight[sequence] = sent
            packet = self.data(path, [record], sequence)
            sent.path, sent.packet, sent.lost, sent.doubted = path, packet, False, False
            sent.last, sent.times = time.monotonic(), sent.times + 1

    def now_said(self, record):
        """What goes in place of a record whose binding was closed since."""
        address = getattr(record, "address", None)
        binding = self.bindings.get(self.name(address)) if address else None
        if isinstance(record, Credits) and binding:
            binding.told = list(binding.granted)
            return Credits(address, tuple(binding.granted), record.announce)
        if address is None or binding:
            return record
        if isinstance(record, Credits):
            return Nop()
        return Unbind(address) if isinstance(record, Tlp) else record

    # --- new records ------------------------------------------------------------------------------

    def room(self):
        """How many records more the peer can store."""
        if self.faulty("peer-window-ignored"):
            return 1000
        return self.peer_open.window - wrap(self.sequence - self.acked)

    def frame_room(self):
        largest = 9000 if self.faulty("frames-too-large") else self.peer_open.max_frame
        return min(largest, wire.LARGEST_FRAME) - wire.SMALLEST_FRAME - 4 * wire.MOST_RANGES

    def credits(self, now):
        """Credit records that are due."""
        for binding in self.bindings.values():
            due = binding.tell or binding.tell_at is not None and now >= binding.tell_at
            if not due or binding.failed:
                continue
            if binding.tell and self.faulty("announces-nothing"):
                binding.announce = False
            binding.told = list(binding.granted)
            self.control.append(Credits(binding.address.turned(), tuple(binding.granted),
                                        binding.announce and not binding.peer_open))
            binding.tell, binding.tell_at = False, None

    def ready(self):
        """TLPs that have credit, with the records of each."""
        for binding in self.bindings.values():
            if binding.failed:
                continue
            for place in PLACES:
                queue = binding.queues[place]
                while queue and (before(binding.sent[place], binding.limits[place])
                                 or self.faulty("credit-ignored")):
                    binding.sent[place] += 1
                    yield self.parts(queue.pop(0))

    def parts(self, record):
        """The records of a TLP: one, or as many as frames need, those that a path may come down to
        among them."""
        room = self.frame_room()
        if not self.faulty("large-records"):
            room = min(room, wire.SAFE_FRAME - wire.SMALLEST_FRAME - 4 * wire.MOST_RANGES)
        return wire.records_of(record, room)

    def send_all(self, now):
        """Everything that may leave now."""
        self.time_out(now)
        self.doubt(now)
        self.resend()
        self.probe(now)
        self.credits(now)
        for parts in self.ready():
            self.control += parts
        while self.control and self.room() > 0:
            self.send_frame()
        for path, way in enumerate(self.ways):
            if way.ack_now or way.ack_at is not None and now >= way.ack_at:
                self.put(wire.DATA, self.path(), ack=self.acknowledgement(path))

    def send_frame(self):
        """One frame with as many records as fit and as the peer can store."""
        taken, bytes_left, room = [], self.frame_room(), self.room()
        while self.control and len(taken) < room:
            length = len(self.control[0].encode())
            if taken and length > bytes_left:
                break
            bytes_left -= length
            taken.append(self.control.pop(0))
        if self.faulty("frames-too-large"):
            taken += [Nop()] * 150
        path, first = self.path(), self.sequence
        self.sequence = wrap(first + len(taken))
        packet = self.data(path, taken, first)
        for number, record in enumerate(taken):
            self.flight[wrap(first + number)] = Sent(record, path, packet)

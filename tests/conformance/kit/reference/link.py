"""The reference's link: opening, what comes, and when something is due. `sending` has what leaves."""

import os
import struct
import time
from dataclasses import dataclass

from .. import wire
from ..wire import (Credits, Frame, Open, Sideband, SplitData, SplitHeader, Tlp, Unbind,
                    WireError, before, wrap)
from .sending import Sender

OPENING, UP, DOWN = "opening", "up", "down"
OPEN_RETRY_S, LONGEST_RETRY_S = 0.03, 0.25
GIVE_UP_S, KEEP_ALIVE_S, GOODBYE_S = 1.0, 0.5, 0.02
CREDIT_DELAY_S = 0.001


@dataclass(frozen=True)
class Sizes:
    """What an end stores (section 13)."""

    window: int
    max_tlp: int
    guaranteed: tuple


SIZES = {"software": Sizes(256, wire.LARGEST_TLP, (16, 64, 32, 8)),
         "card": Sizes(128, wire.CARD_TLP, (8, 16, 8, 8))}


class Violation(Exception):
    """The peer broke the protocol."""


class Binding:
    """One binding at this end; counts by class, and for sideband."""

    def __init__(self, address, guaranteed):
        self.address = address
        self.sent, self.limits, self.peer_open = [0] * 4, [0] * 4, False
        self.received, self.granted, self.told = [0] * 4, list(guaranteed), guaranteed
        self.queues = ([], [], [], [])
        self.failed, self.tell = False, True
        self.announce, self.tell_at = True, None


class Link(Sender):
    """One life of a link with one peer."""

    def __init__(self, node, peer, told, paths):
        super().__init__(node, peer, paths)
        self.told, self.state, self.sizes = told, OPENING, SIZES[node.sizes]
        self.session = int.from_bytes(os.urandom(4), "little") | 1
        self.life, self.peer_open, self.reason, self.ended = None, None, None, None
        self.tokens, self.challenges = [], set()
        self.retry_at, self.retry, self.tries = 0.0, OPEN_RETRY_S, 0
        self.goodbye_at = 0.0
        self.next, self.stored, self.split = 0, {}, None
        # The path that each record came by first.
        self.came_by = {}
        self.bindings, self.closed = {}, set()
        self.heard = time.monotonic()

    # --- bindings ---------------------------------------------------------------------------------

    @staticmethod
    def name(address):
        return max(address.source_slot, address.destination_slot), address.function, address.epoch

    def bind(self, address):
        self.bindings[self.name(address)] = Binding(address, self.sizes.guaranteed)

    def unbind(self, address):
        if self.bindings.pop(self.name(address), None):
            self.closed.add(self.name(address))
            if self.state == UP and not self.faulty("unbind-unsaid"):
                self.control.append(Unbind(address.turned()))

    # --- opening ----------------------------------------------------------------------------------

    def new_token(self):
        if self.tokens and self.faulty("token-twice"):
            return self.tokens[-1]
        self.tokens.append(time.monotonic_ns() & 2**64 - 1)
        return self.tokens[-1]

    def send_open(self, path, token, echo, life):
        body = Open(self.session, token, echo, window=self.sizes.window, max_tlp=self.sizes.max_tlp)
        if echo and self.faulty("wrong-echo"):
            body.echo ^= 1
        self.put(wire.OPEN, path, body=body.encode(), life=life, session=0)

    def take_open(self, path, frame):
        body, own = frame.open(), frame.destination_incarnation
        if own not in (None, self.node.incarnation) and not self.faulty("any-incarnation"):
            return
        if self.state == DOWN:
            return
        echo = body.echo if own is not None else 0
        life = frame.source_incarnation, body.session
        if self.state == UP:
            return self.open_while_up(path, life, echo, body.token)
        if self.told not in (None, life[0]) and not self.faulty("any-incarnation"):
            return
        right = echo in self.tokens or echo and self.faulty("any-echo")
        if right:
            self.come_up(path, life, body)
        if body.token and self.state != DOWN:
            self.send_open(path, 0 if right else self.new_token(), body.token, life[0])

    def come_up(self, path, life, body):
        self.life, self.peer_open, self.state = life, body, UP
        self.heard = time.monotonic()
        if not body.lowest <= 1 <= body.highest and not self.faulty("any-open-version"):
            return self.go_down(wire.NO_VERSION)
        if body.max_frame < 512 or body.window == 0 or body.max_tlp < 12:
            return self.go_down(wire.PROTOCOL)
        self.begin_paths(path)

    def open_while_up(self, path, life, echo, token):
        if life == self.life:
            if token:
                self.send_open(path, 0, token, life[0])
        elif echo in self.challenges:
            if not self.faulty("believes-no-restart"):
                self.go_down(None)
        else:
            self.challenges.add(self.new_token())
            told = token if self.faulty("echoes-another-session") else 0
            self.send_open(path, self.tokens[-1], told, life[0])

    def go_down(self, reason):
        """The end; without a reason the peer knows already."""
        self.state, self.reason, self.ended = DOWN, reason, time.monotonic()
        if reason and self.faulty("wrong-close-reason"):
            self.reason = wire.REMOVED
        if reason:
            self.say_goodbye()

    def say_goodbye(self):
        self.goodbye_at = time.monotonic()
        for path in range(self.paths):
            self.put(wire.CLOSE, path, body=bytes([self.reason, 0, 0, 0]))

    # --- frames -----------------------------------------------------------------------------------

    def decode(self, data):
        """The frame, with whatever this end does not check."""
        lax = {"any-version": (0, b"\1"), "any-key": (22, b"\0\0")}
        for mistake, (at, right) in lax.items():
            if self.faulty(mistake) and len(data) > 52:
                data = wire.resealed(data, at, right)
        length = struct.unpack_from("<H", data, 2)[0] if len(data) > 52 else 0
        if self.faulty("any-length") and len(data) > 52 and not 52 <= length <= len(data):
            data = wire.resealed(data, 2, struct.pack("<H", len(data)))
        if self.faulty("any-frame-crc") and len(data) > 52:
            data = wire.sealed(data[:-4])
        frame = Frame.decode(data)
        if self.faulty("strict-reserved") and (data[21] & 0xFC or data[46:48] != b"\0\0"):
            raise WireError("body", "reserved bits")
        return frame

    def take(self, path, data, mark):
        """A datagram came."""
        try:
            frame = self.decode(data)
        except WireError as error:
            lax = error.rule == "ranges" and self.faulty("any-ranges")
            if not lax:
                return
            self.bad_ranges(path, data)
            return
        if frame.source != self.peer or frame.destination != self.node.number:
            return
        if frame.path >= self.paths:
            return
        if frame.kind == wire.OPEN:
            return self.take_open(path, frame)
        if not self.is_of_this_link(frame):
            return
        if frame.kind == wire.CLOSE:
            if self.state == UP and not self.faulty("close-unheard"):
                self.go_down(None)
            return
        if self.state == DOWN:
            again = self.reason and time.monotonic() > self.goodbye_at + GOODBYE_S
            if again and not self.faulty("no-second-goodbye"):
                self.say_goodbye()
            return
        self.take_data(path, frame, mark)

    def bad_ranges(self, path, data):
        """Takes a frame whose ranges are wrong as if it had none, by mistake."""
        count = data[43]
        end = 48 + 4 * count
        head = bytearray(data[:48])
        head[43] = 0
        rest = bytes(head) + data[end:-4] if end <= len(data) - 4 else bytes(head)
        head_and_rest = rest[:2] + struct.pack("<H", len(rest) + 4) + rest[4:]
        self.take(path, wire.sealed(head_and_rest), None)

    def is_of_this_link(self, frame):
        if self.life is None:
            return False
        if frame.kind == wire.CLOSE and self.faulty("any-close"):
            return True
        lives = (frame.source_incarnation, frame.destination_incarnation) == (
            self.life[0], self.node.incarnation)
        session = frame.session == self.session or self.faulty("any-session")
        return (lives or self.faulty("any-incarnation")) and session

    def take_data(self, path, frame, mark):
        self.heard = time.monotonic()
        way = self.ways[path]
        way.arrive(frame.packet)
        if mark == 3 and not self.faulty("marks-uncounted"):
            way.marks = way.marks + 1 & 0xFFFF
        try:
            if frame.ack:
                self.take_ack(frame.ack)
            if frame.kind == wire.PROBE:
                way.ack_now |= not self.faulty("probes-unanswered")
                return
            self.take_records(way, frame)
        except (Violation, WireError):
            if not self.faulty("violations-ignored"):
                self.go_down(wire.PROTOCOL)

    def take_ack(self, ack):
        ends = [ack.next, *(wrap(ack.next + o + n) for o, n in ack.ranges)]
        unsent = any(before(self.sequence, end) for end in ends)
        if unsent or not before(ack.packet, self.ways[ack.path % self.paths].packet):
            if not self.faulty("any-acknowledgement"):
                raise Violation
            return
        self.acknowledged(ack)

    def records_of(self, frame):
        if not self.faulty("any-class"):
            return frame.records()
        body = bytearray(frame.body)
        if body and body[0] == wire.TLP and body[1] & 3 == 3:
            body[1] &= ~2
        return wire.decode_records(bytes(body))

    def take_records(self, way, frame):
        records = self.records_of(frame)
        again = missing = False
        for number, record in enumerate(records):
            sequence = wrap(frame.sequence + number)
            offset = wrap(sequence - self.next)
            known = before(sequence, self.next) or sequence in self.stored
            doubted = self.came_by.setdefault(sequence, way) is not way
            twice = doubted and self.faulty("doubted-delivered")
            if known and not (twice or self.faulty("doubles-delivered")):
                again = True
            elif known:
                self.deliver(record)
            elif offset >= self.sizes.window and not self.faulty("window-ignored"):
                pass
            elif offset >= self.sizes.window:
                self.deliver(record)
            elif self.faulty("split-in-order-only") and isinstance(record, SplitData) and offset:
                pass
            else:
                self.stored[sequence] = record
        if self.faulty("out-of-order"):
            for sequence in [s for s in self.stored if s != self.next]:
                self.deliver(self.stored[sequence])
                self.stored[sequence] = wire.Nop()
        while self.next in self.stored:
            record = self.stored.pop(self.next)
            self.next = wrap(self.next + 1)
            self.deliver(record)
        missing = bool(self.stored)
        if records:
            way.want_ack(again or missing, 0.3 if self.faulty("acknowledges-late") else 0.0001)

    # --- records ----------------------------------------------------------------------------------

    def deliver(self, record):
        """A record's turn has come."""
        if self.split and not isinstance(record, SplitData):
            self.split = None
        address = getattr(record, "address", None)
        if address is None:
            return
        binding = self.binding_of(address)
        if binding is None:
            answered = isinstance(record, Credits) and record.announce
            if answered and self.name(address) in self.closed:
                self.control.append(Unbind(address.turned()))
            return
        if binding.failed:
            return
        if isinstance(record, Credits):
            self.take_limits(binding, record)
        elif isinstance(record, Unbind):
            binding.failed = not self.faulty("unbind-unheard")
        elif isinstance(record, Sideband):
            self.count(binding, 3)
            if record.code == 1:
                self.node.device.reset()
            if record.code > 13 and self.faulty("unknown-sideband-closes"):
                raise Violation
        elif isinstance(record, SplitData):
            self.join(binding, record)
        else:
            self.count(binding, record.tlp_class)
            self.take_tlp(binding, record)

    def binding_of(self, address):
        name = self.name(address)
        if self.faulty("any-epoch"):
            for known in self.bindings:
                if known[:2] == name[:2]:
                    return self.bindings[known]
        binding = self.bindings.get(name)
        wrong_way = binding and binding.address != address
        return None if wrong_way and not self.faulty("any-direction") else binding

    def count(self, binding, place):
        """Takes a credit, and gives it back: everything is drained at once."""
        binding.received[place] += 1
        # What was told, not what has come back since.
        over = before(binding.told[place], binding.received[place])
        if over and not self.faulty("credit-unchecked"):
            raise Violation
        if not self.faulty("credit-kept"):
            binding.granted[place] += 1
            late = 0.6 if self.faulty("credit-late") else CREDIT_DELAY_S
            binding.tell_at = binding.tell_at or time.monotonic() + late

    def take_limits(self, binding, record):
        binding.peer_open = True
        for place, limit in enumerate(record.limits):
            if not before(limit, binding.limits[place]):
                binding.limits[place] = limit
        if record.announce:
            binding.tell, binding.announce = True, False

    def take_tlp(self, binding, record):
        largest = self.sizes.max_tlp
        if isinstance(record, SplitHeader):
            if record.total > wire.CARD_TLP and self.faulty("large-tlp-refused"):
                raise Violation
            if record.total > largest and not self.faulty("split-total-unchecked"):
                raise Violation
            self.split = [record, record.data, 0]
        elif len(record.tlp) > largest:
            raise Violation
        elif not record.crc_is_right and not self.faulty("any-tlp-crc"):
            binding.failed = True
        else:
            self.answer(binding, record)

    def join(self, binding, part):
        """More of a split TLP."""
        if self.split is None:
            raise Violation
        head, data, count = self.split
        fits = (part.offset == len(data) and part.tlp_class == head.tlp_class
                and part.part == count + 1 and len(data) + len(part.data) <= head.total)
        if not fits and not self.faulty("split-unchecked"):
            raise Violation
        data, count = data + part.data, count + 1
        self.split = [head, data, count]
        if count < head.parts:
            return
        self.split = None
        whole = Tlp(head.address, head.tlp_class, data, head.entry, crc=head.crc)
        if len(data) != head.total and not self.faulty("split-unchecked"):
            raise Violation
        if not whole.crc_is_right:
            binding.failed = True
        else:
            self.answer(binding, whole)

    def answer(self, binding, request):
        entry = (0, 0) if self.faulty("entry-forgotten") else request.entry
        for tlp in self.node.device.take(request.tlp):
            address = binding.address.turned()
            binding.queues[2].append(Tlp(address, wire.COMPLETION, tlp, entry))

    # --- time -------------------------------------------------------------------------------------

    def wait(self):
        """How long nothing is due, in seconds."""
        return 0.002 if self.flight or self.state == OPENING else 0.005

    def tick(self):
        """Does what is due, and sends what can be sent."""
        now = time.monotonic()
        if self.state == OPENING and now >= self.retry_at:
            if self.tries and self.faulty("asks-once"):
                return
            path = 0 if self.faulty("opens-by-one-path") else self.tries % self.paths
            self.retry_at, self.tries = now + self.retry, self.tries + 1
            self.retry = min(2 * self.retry, LONGEST_RETRY_S)
            self.send_open(path, self.new_token(), 0, self.told)
        if self.state != UP:
            return
        if self.is_given_up(now) and not self.faulty("never-gives-up"):
            return self.go_down(wire.GAVE_UP)
        silent = now > self.heard + KEEP_ALIVE_S and not self.flight
        if self.bindings and silent and not self.faulty("no-keep-alive"):
            self.control.append(wire.Nop())
        self.send_all(now)

    def is_given_up(self, now):
        return any(sent.times > 1 and now - sent.first > GIVE_UP_S for sent in self.flight.values())

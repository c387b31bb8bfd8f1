"""Sequence, acknowledgement, retransmission, and the end of patience (section 7)."""

import time

from .. import net, wire
from ..end import Failed
from ..lab import SETTLED_S
from ..wire import Ack, Nop, Tlp
from . import case

AT_ONCE_S = 0.1


def _acks(end, since):
    return [seen for seen in end.frames(wire.DATA, since) if seen.frame.ack]


def _waits_for_ack(lab, end, true, since):
    """Waits for a frame whose acknowledgement is as it has to be."""
    def found():
        return [seen for seen in _acks(end, since) if true(seen.frame.ack)]
    end.pump(found, lab.settings.patience)
    return found()


@case("ack.in-time", "7")
def ack_in_time(lab):
    """A record is acknowledged without being asked for again."""
    end = lab.bound()
    end.resends = False
    for _ in range(5):
        start, mark = time.monotonic(), len(end.seen)
        end.send(Nop())
        found = _waits_for_ack(lab, end, lambda ack: ack.next == end.sequence, mark)
        if not found:
            raise Failed("a NOP was not acknowledged")
        took = found[0].at - start
        if took > AT_ONCE_S:
            raise Failed(f"its acknowledgement took {took:.3f} s")


@case("ack.packet", "4.1")
def ack_packet(lab):
    """An acknowledgement names the largest packet that came, and how long ago it came."""
    end = lab.bound()
    end.resends = False
    for _ in range(5):
        mark = len(end.seen)
        frame = end.data(Nop())
        sent = time.monotonic()
        end.put(frame)
        # This end's own acknowledgements are packets too.
        found = _waits_for_ack(lab, end, lambda ack: ack.path == 0 and not wire.before(
            ack.packet, frame.packet), mark)
        if not found:
            raise Failed(f"no acknowledgement named packet {frame.packet} or one behind it")
        passed = (found[0].at - sent) * 1e6
        if found[0].frame.ack.delay_us > passed + 1000:
            raise Failed(f"the packet came {found[0].frame.ack.delay_us} us ago, says the "
                         f"acknowledgement that came {passed:.0f} us after it was sent")


@case("ack.duplicate", "7")
def duplicate(lab):
    """A record that came before is dropped and acknowledged at once."""
    end = lab.bound()
    at = end.sequence
    lab.ask(end, 1)
    end.pump(lambda: end.acked == end.sequence, 0.5)
    mark, start = len(end.seen), time.monotonic()
    end.send(lab.request(1), sequence=at)
    found = _waits_for_ack(lab, end, lambda ack: ack.next == end.sequence, mark)
    if not found or found[0].at - start > AT_ONCE_S:
        raise Failed("it was not acknowledged at once")
    end.pump(seconds=0.1)
    answers = [r for _, _, r, first in end.all_records(mark)
               if first and isinstance(r, Tlp) and r.entry == (1, 7)]
    if answers:
        raise Failed("the request was completed again")


@case("ack.same-frame-twice", "7")
def same_frame_twice(lab):
    """A frame that the network doubles is taken once."""
    end = lab.bound()
    frame = end.data(lab.request(1))
    end.put(frame)
    end.put(frame)
    lab.answered(end, 1)
    end.pump(seconds=0.1)
    if len(end.completions((1, 7))) != 1:
        raise Failed("the request was completed twice")
    lab.still_up(end)


@case("ack.ranges", "4.1")
def ranges(lab):
    """What came behind a gap is told as a range, and taken when the gap is filled."""
    end = lab.bound()
    end.resends = False
    base = end.sequence
    frames = [end.data(lab.request(number)) for number in range(1, 7)]
    mark = len(end.seen)
    for place in (1, 2, 4):
        end.put(frames[place])
    want = [(1, 2), (4, 1)]
    found = _waits_for_ack(lab, end, lambda a: a.next == base and a.ranges == want, mark)
    if not found:
        told = [(s.frame.ack.next, s.frame.ack.ranges) for s in _acks(end, mark)]
        raise Failed(f"acknowledgement {base} with ranges {want} is due; {told} came")
    # A completion may take longer than the acknowledgement.
    if end.pump(lambda: any(end.completions((number, 7)) for number in range(2, 7)), SETTLED_S):
        raise Failed("a request behind the gap was completed: records are taken in order")
    for place in (5, 3, 0):
        end.put(frames[place])
    for number in range(1, 7):
        lab.answered(end, number, "7")
    end.pump(lambda: end.acked == end.sequence, 0.5)
    if end.acked != end.sequence:
        raise Failed(f"acknowledged up to {end.acked} of {end.sequence}")


@case("ack.beyond-window", "7")
def beyond_window(lab):
    """A record beyond the window is neither acknowledged nor taken."""
    end = lab.bound()
    end.pump(lambda: end.acked == end.sequence, 0.5)
    far = wire.wrap(end.sequence + end.peer_open.window)
    end.send(lab.request(1), sequence=far)
    lab.ignored(end, 1)
    ack = end.last_ack
    if ack and ack.covers(far):
        raise Failed("it was acknowledged")
    lab.still_up(end)


@case("ack.never-sent", "10")
def never_sent(lab):
    """An acknowledgement of what was never sent closes the link."""
    for change in ({"next": 5000}, {"packet": 500000}, {"ranges": [(4000, 2)]}):
        end = lab.bound()
        end.pump(seconds=0.05)
        ack = Ack(**{**vars(end.acknowledgement()), **change})
        end.send(sequence=end.sequence, ack=ack)
        lab.closes(end, wire.PROTOCOL)


def _withheld(lab, number=1, **options):
    """A completion that is not acknowledged; gives its sequence and when it came."""
    end = lab.bound(**options)
    end.pump(seconds=0.05)
    end.acknowledges = False
    lab.ask(end, number)
    seen, sequence, _, _ = next(e for e in end.all_records()
                                if isinstance(e[2], Tlp) and e[2].entry == (number, 7))
    return end, sequence, seen.at


def _times(end, sequence):
    return [seen.at for seen, at, _, _ in end.all_records() if at == sequence]


@case("resend.timeout", "7")
def resend_timeout(lab):
    """What is not acknowledged is sent again under its sequence, ever later."""
    # By one path, where nothing but the timeout decides, and a sender may be early for once.
    end, sequence, _ = _withheld(lab, paths=1)
    end.pump(lambda: len(_times(end, sequence)) >= 5, min(0.8 * lab.settings.give_up, 2))
    times = _times(end, sequence)
    if len(times) < 3:
        raise Failed(f"the record was sent {len(times)} times")
    gaps = [b - a for a, b in zip(times, times[1:])]
    # Early is not before half of a timeout: one that does not grow makes no gap more than twice that. Where a
    # link is given up too soon for several timeouts the two cannot be told apart.
    least = 2.3 if lab.settings.give_up >= 0.5 else 1.3
    if gaps[-1] < least * gaps[0]:
        raise Failed(f"the timeout does not grow: {[round(gap, 4) for gap in gaps]} s")
    end.acknowledges = True
    end.acknowledge()
    end.pump(seconds=0.05)
    mark = len(end.seen)
    end.pump(seconds=0.3)
    if any(at == sequence for _, at, _, _ in end.all_records(mark)):
        raise Failed("it was sent again although it was acknowledged")
    lab.still_up(end)


@case("resend.lost", "7")
def resend_lost(lab):
    """A record that later packets have overtaken is sent again; those that came are not."""
    count = 16
    end = lab.bound(paths=1)
    end.pump(seconds=0.05)
    end.acknowledges = False
    # All at once, so that no timeout ends meanwhile; each is answered in a frame of its own or not.
    for number in range(1, count + 1):
        lab.ask(end, number)
    sequences = {record.entry[0]: sequence for sequence, record in end.records.items()
                 if isinstance(record, Tlp)}
    lost = sequences.pop(1)
    # As if the frame with the first had not come.
    end.records.pop(lost)
    end.next = lost
    mark = len(end.seen)
    end.put(end.header(wire.DATA, ack=end.acknowledgement()))
    end.pump(lambda: lost in end.records, lab.settings.patience)
    if lost not in end.records:
        raise Failed(f"record {lost} was not sent again")
    end.acknowledges = True
    end.acknowledge()
    end.pump(seconds=0.1)
    unneeded = {s for _, s, _, _ in end.all_records(mark) if s in sequences.values()}
    if unneeded:
        raise Failed(f"records {sorted(unneeded)} were sent again although the ranges told that "
                     "they came")
    lab.still_up(end)


@case("resend.window", "6")
def window(lab):
    """No more records are under way than the receiver's window."""
    end = lab.bound(window=4)
    end.pump(lambda: end.acked == end.sequence, 0.5)
    # What comes back of credit may be among what waits.
    count = min(20, end.limits[end.address.epoch][wire.NON_POSTED])
    end.acknowledges = False
    for number in range(1, count + 1):
        end.send(lab.request(number))
    end.pump(seconds=0.3)
    end.acknowledges = True
    end.acknowledge()
    for number in range(1, count + 1):
        lab.answered(end, number)


@case("give-up", "7")
def give_up(lab):
    """What is never acknowledged takes the link down, with reason 2."""
    end, _, since = _withheld(lab)
    bound = lab.settings.give_up
    end.pump(lambda: end.closed_with() is not None, 3 * bound + 1)
    if end.closed_with() is None:
        raise Failed(f"the link was not closed within {3 * bound + 1} s")
    if end.closed_with() != wire.GAVE_UP:
        raise Failed(f"it was closed with reason {end.closed_with()}, not 2")
    took = end.frames(wire.CLOSE)[0].at - since
    if took < 0.9 * bound:
        raise Failed(f"it gave up after {took:.3f} s; --give-up says {bound} s")


@case("give-up.goodbye-again", "6.1")
def goodbye_again(lab):
    """Data on a link that it took down is answered with the close frame, now and then."""
    end = lab.bound()
    end.resends = False
    end.send(bytes(4))
    lab.closes(end, wire.PROTOCOL)
    end.pump(seconds=0.1)
    mark = len(end.frames(wire.CLOSE))
    for _ in range(10):
        end.send(sequence=end.sequence)
        end.pump(seconds=0.06)
    again = len(end.frames(wire.CLOSE)) - mark
    if not 1 <= again <= 11 * lab.paths:
        raise Failed(f"10 data frames were answered with {again} close frames")


@case("keep-alive", "7")
def keep_alive(lab):
    """A silent peer is asked for a sign of life."""
    # By one path: with several, probes keep the link from being silent.
    end = lab.bound(paths=1)
    lab.ask(end, 1)
    end.pump(seconds=0.2)
    mark = len(end.seen)
    def nops():
        return [record for _, _, record, _ in end.all_records(mark) if isinstance(record, Nop)]
    bound = 2 * lab.settings.keep_alive + 0.5
    end.pump(nops, bound)
    if not nops():
        raise Failed(f"no NOP came in {bound} s, and nothing was said to it")


@case("keep-alive.dead-peer", "7")
def dead_peer(lab):
    """A peer that answers nothing any more is given up."""
    end = lab.bound()
    lab.ask(end, 1)
    end.pump(seconds=0.1)
    end.acknowledges = False
    bound = 3 * (lab.settings.keep_alive + lab.settings.give_up) + 1
    end.pump(lambda: end.closed_with() is not None, bound)
    if end.closed_with() != wire.GAVE_UP:
        raise Failed(f"within {bound} s the link was closed with reason {end.closed_with()}, not 2")


@case("reorder", "7")
def reorder(lab):
    """Frames in any order: every request is completed, and in the order of the sequence."""
    end = lab.bound()
    end.resends = False
    count = min(32, end.limits[end.address.epoch][wire.NON_POSTED])
    frames = [end.data(lab.request(number)) for number in range(1, count + 1)]
    for place in sorted(range(count), key=lambda place: place * 13 % 37):
        end.put(frames[place])
    for number in range(1, count + 1):
        lab.answered(end, number)
    order = [record.entry[0] for record in end.completions()]
    if order != sorted(order) and lab.role == "box":
        raise Failed(f"the completions' order is {order}")


@case("wrap.packets", "2")
def wrap_packets(lab):
    """Packet numbers wrap around, and a smaller one behind is no older packet's."""
    end = lab.bound()
    end.pump(seconds=0.05)
    for packet in (0x70000000, 0xE0000000, 0xFFFFFFFE, 0xFFFFFFFF, 0, 1):
        mark = len(end.seen)
        end.packets[0] = wire.wrap(packet + 1)
        end.send(Nop(), packet=packet)
        if not _waits_for_ack(lab, end, lambda ack, packet=packet: not wire.before(
                ack.packet, packet), mark):
            raise Failed(f"no acknowledgement named packet {packet:#x}")


@case("ecn", "3", udp=True)
def ecn(lab):
    """Frames that come with Congestion Experienced are counted in the acknowledgements."""
    end = lab.bound()
    end.pump(seconds=0.05)
    before = end.last_ack.ce
    for _ in range(3):
        end.send(Nop(), mark=net.CE)
        end.pump(lambda: end.acked == end.sequence, 0.5)
    end.send(Nop())
    end.pump(lambda: end.acked == end.sequence, 0.5)
    counted = end.last_ack.ce - before & 0xFFFF
    if counted != 3:
        raise Failed(f"3 frames were marked, {counted} were counted")

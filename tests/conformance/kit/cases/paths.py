"""Several paths (section 14)."""

import dataclasses
import time

from .. import wire
from ..end import Failed
from ..lab import Skip
from ..wire import Nop, Tlp
from . import case

# A round trip that software is made to believe in, how many times it is shown one, and how many of
# these make a path judged. Section 13 has its timeout between that and 0.1 s then.
ROUND_TRIP_S, LESSONS, ENOUGH = 0.06, 24, 8
# Of that, what a record has to wait at least before it is sent again: machines are late.
LEAST_WAIT = 0.7


@case("path.not-there", "14")
def not_there(lab):
    """Told of one port only, it has one path, and drops what comes by another."""
    end = lab.bound(paths=1)
    frame = end.data(lab.request(1))
    end.resends = False
    end.put(wire.Frame(**{**vars(frame), "path": 1}).encode())
    lab.ignored(end, 1)
    end.put(frame)
    lab.answered(end, 1)


@case("path.probe-answered", "7")
def probe_answered(lab):
    """A probe is answered at once, in an acknowledgement that speaks of its path."""
    end = lab.bound()
    end.pump(seconds=0.05)
    for path in range(lab.paths):
        for length in (0, 4, 300):
            mark, start = len(end.seen), time.monotonic()
            probe = end.header(wire.PROBE, path, body=bytes(length), ack=end.acknowledgement())
            end.put(probe)
            def answers(probe=probe, path=path, mark=mark):
                return [s for s in end.frames(wire.DATA, mark) if s.frame.ack
                        and (s.frame.ack.path, s.frame.ack.packet) == (path, probe.packet)]
            end.pump(answers, lab.settings.patience)
            if not answers():
                raise Failed(f"a probe of {length + 52} bytes on path {path} was not answered")
            if answers()[0].at - start > 0.1:
                raise Failed(f"the answer took {answers()[0].at - start:.3f} s")


@case("path.open-by-each", "14", paths=2)
def open_by_each(lab):
    """Open frames that are sent again take the paths in turn."""
    end = lab.fresh()
    end.answers_opens = False
    def paths():
        return {seen.path for seen in end.frames(wire.OPEN)}
    end.pump(lambda: len(paths()) == lab.paths, 2)
    if len(paths()) != lab.paths:
        raise Failed(f"open frames came by paths {sorted(paths())} of {lab.paths}")


@case("path.answer-by-the-same", "14", paths=2)
def answer_by_the_same(lab):
    """An open frame is answered by the path that it came by."""
    for path in range(lab.paths):
        end = lab.fresh()
        end.answers_opens = False
        end.pump(seconds=0.05)
        end.ask_open(path=path)
        def echoes():
            return [s for s in end.frames(wire.OPEN) if s.frame.open().echo in end.tokens]
        end.pump(echoes, lab.settings.patience)
        if not echoes() or echoes()[0].path != path:
            raise Failed(f"asked by path {path}, answered by {[s.path for s in echoes()]}")


@case("path.any-order", "14", paths=2)
def any_order(lab):
    """Records of one sequence may come by all paths, each with packet numbers of its own."""
    end = lab.bound()
    for number in range(1, 41):
        lab.queue(end, lab.request(number), path=number % lab.paths)
    for number in range(1, 41):
        lab.answered(end, number, "14")


@case("path.acknowledges-each", "7", paths=2)
def acknowledges_each(lab):
    """Packets of each path are acknowledged with that path's numbers."""
    end = lab.bound()
    end.pump(seconds=0.05)
    for path in list(range(lab.paths)) * 2:
        mark = len(end.seen)
        frame = end.data(Nop(), path=path)
        end.put(frame)
        def told(path=path, packet=frame.packet, mark=mark):
            return any(s.frame.ack and s.frame.ack.path == path and s.frame.ack.packet == packet
                       for s in end.frames(wire.DATA, mark))
        if not end.pump(told, lab.settings.patience):
            raise Failed(f"packet {frame.packet} of path {path} was not acknowledged")


@case("path.dead", "14", paths=2)
def dead(lab):
    """When one path carries nothing any more the others carry all, lost or doubled nothing."""
    for path in range(lab.paths):
        end = lab.bound()
        lab.ask(end, 1)
        end.deaf = {path}
        other = (path + 1) % lab.paths
        for number in range(2, 22):
            lab.queue(end, lab.request(number), path=other)
        for number in range(2, 22):
            lab.answered(end, number, "14")
        end.pump(seconds=0.1)
        for number in range(2, 22):
            if len(end.completions((number, 7))) != 1:
                raise Failed(f"request {number} has {len(end.completions((number, 7)))} completions")
        # Proven by loss, it is not used for records while the other is good.
        if lab.settings.give_up:
            lab.still_up(end)


@case("path.probes-a-suspect", "14", paths=2)
def probes_a_suspect(lab):
    """A path that nothing is acknowledged on is probed, and used again when it answers."""
    end = lab.bound()
    end.pump(seconds=0.05)
    # Everything by path 0 goes unread until it is suspect.
    end.deaf = {0}
    for number in range(1, 41):
        lab.queue(end, lab.request(number), path=1)
        end.pump(seconds=0.005)
    for number in range(1, 41):
        lab.answered(end, number, "14")
    end.pump(seconds=0.3)
    end.deaf = set()
    mark = len(end.seen)
    def probes():
        return [s for s in end.frames(wire.PROBE, mark) if s.path == 0]
    end.pump(probes, 2)
    if not probes() and not [e for e in end.all_records(mark) if e[0].path == 0]:
        raise Failed("the suspect path was neither probed nor used in 2 s")
    end.pump(seconds=0.3)
    mark = len(end.seen)
    for number in range(41, 121):
        lab.ask(end, number, path=number % 2)
        if number % 16 == 0:
            end.give(tuple(number + 64 for _ in range(4)))
        if any(e[0].path == 0 and isinstance(e[2], Tlp) for e in end.all_records(mark)):
            return
    end.pump(lambda: [s for s in end.frames(wire.PROBE, mark) if s.path == 0], 2)
    if not [s for s in end.seen[mark:] if s.path == 0]:
        raise Failed("the path that answers again carries nothing")


@case("doubt.taken-once", "14", paths=2)
def doubt_taken_once(lab):
    """What a peer in doubt of a path sends by another, too, is taken once, whichever comes first, and
    acknowledged in the words of both."""
    end = lab.bound()
    end.resends = False
    ways = [(doubted, other, late) for doubted in range(lab.paths) for other in range(lab.paths)
            if doubted != other for late in (False, True)]
    for number, (doubted, other, late) in enumerate(ways, 1):
        record = lab.request(number)
        end.pump(lambda record=record: end.may_send(record), lab.settings.patience)
        frame = end.data(record, path=doubted)
        copy = end.data(record, path=other, sequence=frame.sequence)
        mark = len(end.seen)
        for sent in (copy, frame) if late else (frame, copy):
            end.put(sent)
        lab.answered(end, number, "14")
        for sent in (frame, copy):
            def told(sent=sent, mark=mark):
                return any(s.frame.ack and s.frame.ack.path == sent.path
                           and not wire.before(s.frame.ack.packet, sent.packet)
                           for s in end.frames(wire.DATA, mark))
            if not end.pump(told, lab.settings.patience):
                raise Failed(f"packet {sent.packet} of path {sent.path}, with a record that came by "
                             "two paths, was not acknowledged")
    end.pump(seconds=0.1)
    for number in range(1, len(ways) + 1):
        if len(end.completions((number, 7))) != 1:
            raise Failed(f"request {number} came by two paths and has "
                         f"{len(end.completions((number, 7)))} completions")
    lab.still_up(end)


def _acknowledge_late(end, until, seconds, shown):
    """Takes frames, which are acknowledged a round trip after they came, as if by a slow network, until
    something is true. Counts by path, in `shown`, how often that was."""
    due, over = {}, time.monotonic() + seconds
    while not until() and time.monotonic() < over:
        end.pump(seconds=0.002)
        now = time.monotonic()
        for path in end.due:
            # Not of what comes by it meanwhile.
            due.setdefault(path, (now + ROUND_TRIP_S, end.came[path][0]))
        end.due = {}
        for path in [path for path, (at, _) in due.items() if at <= now]:
            _, packet = due.pop(path)
            ack = dataclasses.replace(end.acknowledgement(path), packet=packet, delay_us=0)
            end.send(sequence=end.sequence, ack=ack)
            shown[path] = shown.get(path, 0) + 1


@case("doubt.not-early", "14", paths=2)
def doubt_not_early(lab):
    """What was sent by a good path is not sent again, by any, before two round trips have passed, or a
    timeout, with nothing acknowledged."""
    if lab.settings.give_up < 0.5:
        raise Skip("its retransmission timeout is too short for it: section 13, card")
    end = lab.bound()
    end.acknowledges, shown = False, {}
    for number in range(1, LESSONS + 1):
        lab.queue(end, lab.request(number))
        def answered(number=number):
            return end.completions((number, 7)) and end.told == end.next
        _acknowledge_late(end, answered, lab.settings.patience, shown)
        end.give(tuple(number + 64 for _ in range(4)))
    if max(shown.values(), default=0) < ENOUGH:
        raise Failed(f"{LESSONS} requests were answered by paths {shown}, none of which was used often")
    judged = 0
    for number in range(LESSONS + 1, LESSONS + 25):
        # From here on nothing is acknowledged until it came again.
        mark = len(end.seen)
        lab.queue(end, lab.request(number), ack=None)
        def times(number=number, mark=mark):
            return [(seen.at, seen.path) for seen, _, record, _ in end.all_records(mark)
                    if isinstance(record, Tlp) and record.entry == (number, 7)]
        end.pump(lambda: len(times()) > 1, lab.settings.patience)
        if len(times()) < 2:
            raise Failed(f"the completion of request {number} came {len(times())} times, and was "
                         "never acknowledged")
        (first, one), (again, other) = times()[:2]
        judged += shown.get(one, 0) >= ENOUGH
        if shown.get(one, 0) >= ENOUGH and again - first < LEAST_WAIT * ROUND_TRIP_S:
            raise Failed(f"a record that was sent by path {one} came again by path {other} "
                         f"{again - first:.3f} s later; a round trip takes {ROUND_TRIP_S} s")
        if judged == 4:
            return
        _acknowledge_late(end, lambda: end.told == end.next, lab.settings.patience, shown)
        end.give(tuple(number + 64 for _ in range(4)))

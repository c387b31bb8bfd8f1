"""Opening and closing a link (section 6)."""

import time

from .. import wire
from ..end import Failed
from . import case

ANSWER_S = 0.25


def _quiet_opens(end):
    """Takes open frames without answering."""
    end.answers_opens = False


@case("open.asks", "6")
def asks(lab):
    """It asks by itself, again and again, with another token each time."""
    end = lab.fresh()
    _quiet_opens(end)
    end.pump(lambda: len(end.frames(wire.OPEN)) >= 6, 2.5)
    opens = end.frames(wire.OPEN)
    if len(opens) < 4:
        raise Failed(f"{len(opens)} open frames in 2.5 s; at least one in 250 ms is due")
    tokens = [seen.frame.open().token for seen in opens]
    if 0 in tokens or len(set(tokens)) != len(tokens):
        raise Failed(f"tokens are 0 or used twice: {[hex(token) for token in tokens]}")
    gaps = [b.at - a.at for a, b in zip(opens, opens[1:])]
    if max(gaps) > 0.25 + ANSWER_S:
        raise Failed(f"{max(gaps):.3f} s between two open frames; at most 250 ms")
    if any(seen.frame.session for seen in opens):
        raise Failed("the session in the header of an open frame is not 0")


@case("open.limits", "6")
def limits(lab):
    """What it says of itself is within bounds, and the same each time."""
    end = lab.up()
    bodies = [seen.frame.open() for seen in end.frames(wire.OPEN)]
    for body in bodies:
        if not (body.lowest <= 1 <= body.highest and 512 <= body.max_frame <= 9000
                and body.window >= 1 and body.max_tlp >= 12):
            raise Failed(f"limits out of bounds: {body}")
    same = {(b.session, b.max_frame, b.window, b.max_tlp) for b in bodies}
    if len(same) != 1:
        raise Failed(f"it says different things in one link: {same}")


@case("open.answers-at-once", "6")
def answers_at_once(lab):
    """An open frame with a token is answered at once with its echo."""
    end = lab.fresh()
    _quiet_opens(end)
    end.ask_open()
    (token,) = end.tokens
    start = time.monotonic()
    def echoes():
        return [s for s in end.frames(wire.OPEN) if s.frame.open().echo == token]
    end.pump(echoes, lab.settings.patience)
    if not echoes():
        raise Failed(f"no echo of token {token:#x}")
    answer = echoes()[0]
    if answer.at - start > ANSWER_S:
        raise Failed(f"the echo took {answer.at - start:.3f} s")
    if answer.frame.destination_incarnation != end.incarnation:
        raise Failed("the answer does not name our incarnation")
    if not answer.frame.open().token:
        raise Failed("the answer asks for nothing, but we have echoed no token yet")


@case("open.three-frames", "6")
def three_frames(lab):
    """Once its token was echoed it stops asking, and the first record has sequence 0."""
    end = lab.bound()
    lab.ask(end, 1)
    mark = len(end.seen)
    end.pump(seconds=0.6)
    asking = [s for s in end.frames(wire.OPEN, mark) if s.frame.open().token]
    if asking:
        raise Failed(f"the link is up, and it asked {len(asking)} times more")
    if 0 not in end.records:
        raise Failed(f"no record with sequence 0 came, but {sorted(end.records)}")


@case("open.packets-from-0", "6")
def packets_from_0(lab):
    """The first frame on a path has packet number 0."""
    end = lab.fresh()
    end.ask_open()
    end.pump(lambda: end.seen, lab.settings.patience)
    # A frame sent before this life of ours was awaited may be lost.
    if not end.seen or end.seen[0].frame.packet > 8:
        raise Failed(f"first packet: {end.seen and end.seen[0].frame.packet}")


def _its_token(lab, end):
    """The token that it asks us to echo, which we have not done."""
    _quiet_opens(end)
    end.pump(lambda: end.seen, lab.settings.patience)
    if not end.seen:
        raise Failed("no open frame came")
    return end.seen[-1].frame.open().token


@case("open.wrong-echo", "6")
def wrong_echo(lab):
    """An echo of a token that it never made proves nothing."""
    end = lab.fresh()
    token = _its_token(lab, end)
    end.send_open(echo=token ^ 0x5555555555555555)
    mark = len(end.seen)
    end.pump(lambda: len(end.frames(wire.OPEN, mark)) >= 3, 1.5)
    if len([s for s in end.frames(wire.OPEN, mark) if s.frame.open().token]) < 2:
        raise Failed("it stopped asking after an echo of a token that it did not make")


@case("open.echo-for-another-life", "6")
def echo_for_another_life(lab):
    """A right echo in a frame that does not name its incarnation proves nothing."""
    end = lab.fresh()
    token = _its_token(lab, end)
    end.send_open(echo=token, header={"destination_incarnation": None}.items())
    mark = len(end.seen)
    end.pump(lambda: len(end.frames(wire.OPEN, mark)) >= 3, 1.5)
    if len([s for s in end.frames(wire.OPEN, mark) if s.frame.open().token]) < 2:
        raise Failed("it stopped asking after an echo without its incarnation")


def _unanswered(lab, end, **header):
    """Sends an open frame with a token that must not be echoed."""
    _quiet_opens(end)
    before = set(end.tokens)
    end.ask_open(header=header.items())
    (token,) = end.tokens - before
    end.pump(seconds=0.4)
    if any(s.frame.open().echo == token for s in end.frames(wire.OPEN)):
        raise Failed(f"it echoed a token from an open frame with {header}")


@case("open.another-life-of-ours", "10", manager=True)
def another_life_of_ours(lab):
    """An open frame of an incarnation that the manager did not tell is dropped."""
    end = lab.fresh()
    _unanswered(lab, end, source_incarnation=end.incarnation + 77)


@case("open.another-life-of-its-own", "10")
def another_life_of_its_own(lab):
    """An open frame for another incarnation of the receiver is dropped."""
    end = lab.fresh()
    end.pump(lambda: end.seen, lab.settings.patience)
    if not end.seen:
        raise Failed("no open frame came")
    life = end.seen[0].frame.source_incarnation
    _unanswered(lab, end, destination_incarnation=life ^ 1)


def _with_versions(lab, lowest, highest):
    end = lab.fresh()
    end.open.lowest, end.open.highest = lowest, highest
    end.ask_open()
    end.pump(lambda: end.up and end.peer_tokens or end.closed_with(), lab.settings.patience)
    return end


@case("open.later-versions-too", "6")
def later_versions_too(lab):
    """A peer that speaks versions 1 to 200 gets a link of version 1."""
    end = _with_versions(lab, 1, 200)
    lab.open_binding(end)
    lab.ask(end, 1)


@case("open.no-version-in-common", "6")
def no_version_in_common(lab):
    """A peer that speaks versions 2 and 3 only gets a close frame with reason 4."""
    end = _with_versions(lab, 2, 3)
    lab.closes(end, wire.NO_VERSION)


@case("open.impossible-limits", "10")
def impossible_limits(lab):
    """Limits that cannot work close the link."""
    for limits in ({"window": 0}, {"max_frame": 511}, {"max_tlp": 8}):
        end = lab.fresh()
        for name, value in limits.items():
            setattr(end.open, name, value)
        end.ask_open()
        end.pump(lambda: end.closed_with() is not None, lab.settings.patience)
        if end.closed_with() != wire.PROTOCOL:
            raise Failed(f"open with {limits}: close with reason 3 is due, "
                         f"{end.closed_with()} was seen")


@case("open.again-while-up", "6")
def again_while_up(lab):
    """A token of the same link is echoed also while it is up."""
    end = lab.bound()
    mark = len(end.seen)
    before = set(end.tokens)
    end.ask_open()
    (token,) = end.tokens - before
    def echoes():
        return [s for s in end.frames(wire.OPEN, mark) if s.frame.open().echo == token]
    end.pump(echoes, lab.settings.patience)
    if not echoes():
        raise Failed("the token was not echoed")
    lab.still_up(end)


def _another_session(lab, end):
    """Asks as another session does; gives the answer."""
    end.answers_opens = False
    mark = len(end.seen)
    end.ask_open(session=end.session + 1)
    end.pump(lambda: end.frames(wire.OPEN, mark), lab.settings.patience)
    answers = end.frames(wire.OPEN, mark)
    if not answers:
        raise Failed("an open frame of another session while the link is up was not answered")
    return answers[0].frame.open()


@case("open.late-frame-of-another-session", "6")
def late_frame(lab):
    """An open frame of another session is answered with a token and no echo; the link stays."""
    end = lab.bound()
    answer = _another_session(lab, end)
    if answer.echo or not answer.token:
        raise Failed(f"the answer has token {answer.token:#x} and echo {answer.echo:#x}; "
                     "a token and no echo are due")
    lab.still_up(end)


@case("open.peer-restarted", "6")
def peer_restarted(lab):
    """Another session that echoes the challenge ends the link."""
    end = lab.bound()
    answer = _another_session(lab, end)
    end.send_open(echo=answer.token, session=end.session + 1)
    end.pump(seconds=0.1)
    end.resends = False
    end.send(lab.request(5))
    lab.ignored(end, 5, 0.4)


@case("close.ends-the-link", "6.1")
def close_ends_the_link(lab):
    """After a close frame nothing is answered."""
    for reason in (wire.REMOVED, 200):
        end = lab.bound()
        end.resends = False
        end.close(reason)
        end.pump(seconds=0.05)
        end.send(lab.request(5))
        lab.ignored(end, 5, 0.3)


@case("close.of-another-link", "6.1")
def close_of_another_link(lab):
    """A close frame of another session or life changes nothing."""
    end = lab.bound()
    end.close(session=end.peer_session ^ 1)
    end.close(source_incarnation=end.incarnation ^ 1)
    end.close(destination_incarnation=end.peer_life ^ 1)
    end.close(destination_incarnation=None)
    lab.still_up(end)

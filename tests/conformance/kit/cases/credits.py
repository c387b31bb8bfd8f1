"""Credits (section 8)."""

import time

from .. import wire
from ..end import PLENTY, Failed
from ..lab import Skip
from ..wire import Address, Credits, Nop, Sideband, Unbind
from . import case


@case("credit.announced", "8")
def announced(lab):
    """An end that opens a binding announces its limits; they are at least those guaranteed."""
    end = lab.bound()
    records = lab.credit_records(end, end.address.epoch)
    if not any(record.announce for record in records):
        raise Failed(f"no credit record announces: {records}")
    first = records[0]
    if any(limit < least for limit, least in zip(first.limits, lab.settings.credits)):
        raise Failed(f"limits {first.limits}; at least {lab.settings.credits} are guaranteed "
                     "(section 13: 16, 64, 32, 8 by software, 8, 16, 8, 8 by a card, of which the "
                     "kit is told with --credits 8,16,8,8)")
    if first.address != end.address.turned():
        raise Failed(f"the credit record is of {first.address}")


@case("credit.answered", "8")
def answered(lab):
    """Who has the binding open answers an announcement with its limits."""
    end = lab.bound()
    end.pump(lambda: end.acked == end.sequence, 0.5)
    mark = len(end.seen)
    end.give(PLENTY, announce=True)
    end.pump(lambda: any(isinstance(r, Credits) and first
                         for _, _, r, first in end.all_records(mark)), lab.settings.patience)
    answers = [r for _, _, r, _ in end.all_records(mark) if isinstance(r, Credits)]
    if not answers:
        raise Failed("the announcement was not answered")


@case("credit.unopened", "8")
def unopened(lab):
    """An announcement of a binding that is not open here is dropped, and not answered."""
    end = lab.bound()
    address = Address(**{**vars(end.address), "epoch": end.address.epoch + 9})
    end.give(PLENTY, announce=True, address=address)
    end.pump(lambda: end.acked == end.sequence, lab.settings.patience)
    end.pump(seconds=0.15)
    if lab.credit_records(end, address.epoch):
        raise Failed("it gave credits for a binding that it has not")
    lab.still_up(end)


@case("credit.of-a-closed-one", "8", manager=True)
def of_a_closed_one(lab):
    """An announcement of a binding that was closed here is answered with an unbind record."""
    end = lab.bound()
    lab.unbind()
    end.pump(seconds=0.2)
    mark = len(end.seen)
    end.give(PLENTY, announce=True)
    def unbinds():
        return [r for _, _, r, first in end.all_records(mark) if isinstance(r, Unbind) and first]
    end.pump(unbinds, lab.settings.patience)
    if not unbinds():
        raise Failed("no unbind record answered")


@case("credit.none", "8")
def none(lab):
    """Nothing is sent without credit, and everything once there is some."""
    end = lab.bound(credits=(64, 64, 0, 64))
    for number in range(1, 6):
        end.send(lab.request(number))
    end.pump(seconds=0.3)
    if end.completions():
        raise Failed("a completion came without credit")
    end.give((64, 64, 1, 64))
    end.pump(lambda: end.completions(), lab.settings.patience)
    end.pump(seconds=0.15)
    if len(end.completions()) != 1:
        raise Failed(f"one credit was given, and {len(end.completions())} completions came")
    end.give((64, 64, 5, 64))
    for number in range(1, 6):
        lab.answered(end, number, "8")


@case("credit.blocks-its-class-only", "8")
def blocks_its_class_only(lab):
    """A class without credit does not hold up the link: credits and acknowledgements go on."""
    end = lab.bound(credits=(64, 64, 0, 64))
    end.send(lab.request(1))
    end.pump(seconds=0.1)
    end.send(Nop())
    if not end.pump(lambda: end.acked == end.sequence, lab.settings.patience):
        raise Failed("a NOP behind a request that waits for credit was not acknowledged")
    end.give((64, 64, 1, 64))
    lab.answered(end, 1, "8")


@case("credit.wraps", "2")
def wraps(lab):
    """Limits that do not grow give nothing; the same again is no harm."""
    end = lab.bound(credits=(4, 4, 2, 4))
    for number in (1, 2):
        lab.ask(end, number)
    end.give((4, 4, 2, 4))
    end.send(lab.request(3))
    lab.ignored(end, 3, 0.2)
    end.give((4, 4, 3, 4))
    lab.answered(end, 3, "8")


@case("credit.returned", "8")
def returned(lab):
    """Credits come back when what they were for was drained, many times over."""
    end = lab.bound()
    total = 3 * end.limits[end.address.epoch][wire.NON_POSTED] + 5
    total = min(total, 400)
    for number in range(1, total + 1):
        def has_credit():
            return end.limits[end.address.epoch][wire.NON_POSTED] >= number
        if not end.pump(has_credit, lab.settings.patience):
            raise Failed(f"no credit for request {number}: limits {end.limits[end.address.epoch]}, "
                         f"{number - 1} requests were sent and all completed")
        if number % 16 == 0:
            end.give(tuple(number + n for n in PLENTY))
        end.send(lab.request(number))
        if number > 8:
            lab.answered(end, number - 8, "8")


@case("credit.told-in-time", "8")
def told_in_time(lab):
    """A limit that grew is told within the credit delay, also when nothing else is sent."""
    end = lab.bound()
    before = end.limits[end.address.epoch][3]
    end.send(Sideband(end.address, 78))
    start = time.monotonic()
    if not end.pump(lambda: end.limits[end.address.epoch][3] > before, lab.settings.patience):
        raise Failed(f"the credit of a sideband record did not come back: {end.limits}")
    if time.monotonic() - start > 0.25:
        raise Failed(f"it took {time.monotonic() - start:.3f} s")


@case("credit.exceeded", "10")
def exceeded(lab):
    """A record without credit closes the link."""
    end = lab.bound()
    limit = end.limits[end.address.epoch][3]
    if limit > 1000:
        raise Skip(f"it gives {limit} credits")
    # In one frame, so that none comes back meanwhile.
    lab.fit(end, 16 * (limit + 1))
    end.send(*(Sideband(end.address, 79) for _ in range(limit + 1)))
    lab.closes(end, wire.PROTOCOL)

"""Sets up what a case needs on the implementation that is tested: its peer, a binding, a link."""

import os
import struct
import subprocess
import time

from . import net, wire
from .control import FREE, SLOT_STATES, ControlError, Refused
from .end import PLENTY, End, Failed
from .wire import Address, Credits, Tlp

OWN_MTU = 9000
SETTLED_S = 0.15
# How long the reset of a device may take.
RESET_BOUND_S = 20


class Skip(Exception):
    """The case cannot be run here; the text says why."""


class Lab:
    """The implementation that is tested, and the kit's node beside it.

    `role` is the tested one's: a box's slot is lent to the kit, or the kit is a box and lends to
    the tested host.
    """

    def __init__(self, settings, ports, manager):
        self.settings, self.ports, self.manager = settings, ports, manager
        hello = manager.hello if manager else None
        self.role = hello.role if hello else settings.role
        self.peer = manager.node if manager else settings.node
        self.local = settings.own_node
        self.incarnation = int(time.time()) & 0x7FFFFFFF
        self.told = hello.incarnation if hello else settings.incarnation
        paths = hello.paths if hello else settings.peers
        for port, path in zip(ports, paths):
            port.connect(path)
        self.paths = min(len(ports), len(paths))
        self.slot, self.function, self.epoch = settings.slot, settings.function, settings.epoch
        self.peer_mtu = hello.mtu if hello else wire.LARGEST_FRAME
        self.bound_epoch = None
        self.end = None
        if manager and self.role == "box":
            self.epoch = max(self.epoch, self._highest_epoch())

    def _highest_epoch(self):
        for slot, function, _state, _model, highest in self.manager.inventory():
            if (slot, function) == (self.slot, self.function):
                return highest
        raise ControlError(f"it has no slot {self.slot} with function {self.function}")

    @property
    def heard(self):
        """Whether anything ever came from what is tested."""
        return any(port.heard for port in self.ports)

    def address(self, epoch=None):
        """Of records that the kit sends."""
        slots = (0, self.slot) if self.role == "box" else (self.slot, 0)
        return Address(*slots, self.function, epoch or self.epoch)

    # --- links ------------------------------------------------------------------------------------

    def fresh(self, bind=True, paths=None, **limits):
        """A new life of the kit's node, of which the tested one has been told. No frame was sent
        yet. With fewer `paths` than there are, the tested one is told of so many only."""
        count = paths or self.paths
        if not self.manager and count != self.paths:
            raise Skip("needs a manager, who tells of fewer paths than there are")
        self.finish()
        self.incarnation += 1
        if self.manager:
            self._release()
            told = [port.path for port in self.ports[:count]]
            self.manager.set_peer(self.local, self.incarnation, told, OWN_MTU)
            if bind:
                self.bind()
        elif self.settings.prepare:
            self.epoch += 1
            self._prepare()
        ports = self.ports[:count]
        self._drain_ports()
        if not self.manager:
            # Until it has ended the link before and asks for a new one.
            net.wait(ports, self.settings.patience)
        self.end = End(ports, self.local, self.peer, self.told, self.incarnation, self.address(),
                       **limits)
        return self.end

    def bind(self):
        """Lends the slot under the next epoch."""
        self.epoch += 1
        end = time.monotonic() + RESET_BOUND_S
        while True:
            try:
                self._bind()
                break
            except Refused as refused:
                # It may be at resetting the device for the binding before.
                if refused.name not in ("Busy", "NotReady", "InUse") or time.monotonic() > end:
                    raise
            time.sleep(0.02)
        self.bound_epoch = self.epoch

    def _bind(self):
        every = (1 << self.paths) - 1
        if self.role == "box":
            self.manager.bind_slot(self.slot, self.function, self.epoch, self.local, every)
        else:
            self.manager.bind_port(self.settings.port, self.local, self.slot, self.function,
                                   self.epoch, every)

    def unbind(self):
        """Takes the slot back."""
        epoch, self.bound_epoch = self.bound_epoch, None
        if self.role == "host":
            self.manager.unbind_port(self.settings.port, self.local, self.slot, epoch)
            return
        end = time.monotonic() + RESET_BOUND_S
        while (state := self.manager.unbind_slot(self.slot, self.function, epoch)) != FREE:
            if time.monotonic() > end:
                raise ControlError(f"slot {self.slot} is {SLOT_STATES[state]} after UnbindSlot")
            time.sleep(0.02)

    def _release(self):
        if self.bound_epoch is not None:
            self.unbind()

    def _prepare(self):
        values = {"NODE": self.local, "INCARNATION": self.incarnation, "EPOCH": self.epoch,
                  "SLOT": self.slot, "FUNCTION": self.function}
        environment = {**os.environ, **{f"KIT_{k}": str(v) for k, v in values.items()}}
        done = subprocess.run(self.settings.prepare, shell=True, env=environment,
                              capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise ControlError(f"the command of --prepare failed: {done.stderr.strip()}")

    def _drain_ports(self):
        for port in self.ports:
            while port.receive() is not None:
                pass

    def finish(self):
        """Ends the link of the case before this one."""
        # Also where only the other end may think that there is one.
        if self.end is not None and self.end.peer_open:
            self.end.close()
        self.end = None

    def up(self, **options):
        """A link that is up: both ends know each other."""
        end = self.fresh(**options)
        self.handshake(end)
        return end

    def handshake(self, end):
        """Opens the link."""
        patience = self.settings.patience
        tries = time.monotonic() + patience
        while not end.up and time.monotonic() < tries:
            end.ask_open()
            end.pump(lambda: end.up and end.peer_tokens, 0.3)
        if not end.up:
            raise Failed(f"section 6: no link within {patience} s: {self._heard(end)}")
        # Its own token is answered already, if it asked.
        end.pump(seconds=0.02)

    @staticmethod
    def _heard(end):
        if not end.seen:
            return "nothing came from it (addresses, node numbers, incarnation?)"
        return f"{len(end.seen)} frames came, but no right echo of our token"

    def bound(self, credits=PLENTY, **options):
        """A link that is up with the binding open at both ends."""
        end = self.up(**options)
        self.open_binding(end, credits)
        return end

    def open_binding(self, end, credits=PLENTY):
        """Announces, and waits for the limits of the other end."""
        epoch = end.address.epoch
        tries = time.monotonic() + self.settings.patience
        end.given[epoch] = tuple(credits)
        while True:
            end.give(credits, announce=True)
            if end.pump(lambda: epoch in end.limits, 0.3) or time.monotonic() > tries:
                break
        if epoch not in end.limits:
            raise Failed(f"section 8: it told no limits for binding {end.address} within "
                         f"{self.settings.patience} s")
        end.pump(lambda: not end.sent, 0.5)

    @property
    def largest(self):
        """The largest frame that can be sent by every port of the kit's."""
        return min(port.largest for port in self.ports)

    def fit(self, end, records):
        """Skips the case where so many bytes of records are too many for one frame: for what can be
        sent, or for the other end."""
        length = wire.SMALLEST_FRAME + 4 * wire.MOST_RANGES + records
        if length > self.largest:
            raise Skip(f"it needs a frame of {length} bytes; the kit's interface sends {self.largest}")
        if length > end.peer_open.max_frame:
            raise Skip(f"it needs a frame of {length} bytes; the other end takes "
                       f"{end.peer_open.max_frame}")

    # --- requests ---------------------------------------------------------------------------------

    def request(self, number, address=None, entry=None):
        """The record of a request that has to be completed: a configuration read of the device, or
        a device's read of the host's memory."""
        if self.role == "box":
            tlp = struct.pack(">III", 0x04000001, (number & 0xFF) << 8 | 0x0F,
                              0x01000000 | self.function << 16)
        else:
            tlp = struct.pack(">III", 0x00000001, 0x01000000 | (number & 0xFF) << 8 | 0x0F, 0x1000)
        return Tlp(address or self.address(), wire.NON_POSTED, tlp, entry or (number, 7))

    def long_request(self, number):
        """A request of 16 bytes whose header is 12: a configuration write of the cache line size,
        or a device's I/O write."""
        if self.role == "box":
            tlp = struct.pack(">III", 0x44000001, (number & 0xFF) << 8 | 0x01,
                              0x0100000C | self.function << 16)
        else:
            tlp = struct.pack(">III", 0x42000001, 0x01000000 | (number & 0xFF) << 8 | 0x0F, 0x1000)
        return Tlp(self.address(), wire.NON_POSTED, tlp + bytes(4), (number, 7))

    def queue(self, end, record, **fields):
        """Sends a TLP in the records that it takes, each in a frame of its own, when there is
        credit for it."""
        records = wire.records_of(record)
        if not end.pump(lambda: end.may_send(records[0]), self.settings.patience):
            raise Failed(f"section 8: no credit for {records[0]} within {self.settings.patience} s: "
                         f"{end.used} were sent, limits are {end.limits}")
        for record in records:
            end.send(record, **fields)

    def ask(self, end, number, **fields):
        """Sends a request and checks its completion."""
        self.queue(end, self.request(number), **fields)
        return self.answered(end, number)

    def answered(self, end, number, section="5.2"):
        """Waits for the one completion of a request and checks it against it."""
        entry = (number, 7)
        if not end.pump(lambda: end.completions(entry), self.settings.patience):
            reason = end.closed_with()
            what = f"it closed the link (reason {reason})" if reason else "none came"
            raise Failed(f"section {section}: no completion of the request with entry {entry}: {what}")
        (completion,) = end.completions(entry)[:1]
        head = completion.tlp
        if not completion.crc_is_right:
            raise Failed(f"section 5.2: the completion's TLP CRC is wrong: {completion}")
        if head[0] not in (0x0A, 0x4A):
            raise Failed(f"section 5.2: no completion in a completion record: {head.hex()}")
        return completion

    def ignored(self, end, number, seconds=None):
        """Makes sure that a request is not completed."""
        if end.pump(lambda: end.completions((number, 7)), seconds or SETTLED_S):
            raise Failed(f"the request with entry {(number, 7)} was completed, but it must not be")
        return True

    def still_up(self, end, number=900):
        """Makes sure that the link goes on, by a request that has to be answered."""
        reason = end.closed_with()
        if reason is not None:
            raise Failed(f"section 10: it closed the link (reason {reason})")
        self.ask(end, number)

    def closes(self, end, reason):
        """Makes sure that it closes the link with this reason."""
        end.resends = False
        end.pump(lambda: end.closed_with() is not None, self.settings.patience)
        if end.closed_with() is None:
            raise Failed(f"section 10: it did not close the link; reason {reason} is due")
        if end.closed_with() != reason:
            raise Failed(f"section 6.1: it closed the link with reason {end.closed_with()}, "
                         f"not {reason}")

    def credit_records(self, end, epoch):
        """The credit records that came for an epoch."""
        return [record for record in end.records.values()
                if isinstance(record, Credits) and record.address.epoch == epoch]

"""The reference's node: its conversation with the manager, and its ports."""

import os
import select
import socket
import sys
import time

from .. import net
from ..control import (BIND_PORT, BIND_SLOT, CONTROL_VERSION, HELLO, PING, PONG,
                       READ_COUNTERS, READ_INVENTORY, REFUSED, REMOVE_PEER, REQUEST, RESPONSE,
                       SET_PEER, UNBIND_PORT, UNBIND_SLOT, WELCOME, Stream, read_path, text, varint,
                       write_path)
from ..wire import Address
from .device import Device
from .link import Link

SLOT, FUNCTION = 1, 0
FREE = 2
# 4096 and 512 bytes.
PAYLOADS = {"software": 5, "card": 2}
STALE_EPOCH, UNKNOWN_PEER = 1, 8


class Node:
    """A proxy with one slot or port, and one peer at a time."""

    def __init__(self, role, manager, paths, mistake, sizes):
        self.role, self.mistake, self.sizes = role, mistake, sizes
        self.ports = [net.UdpPort("127.0.0.1") for _ in range(paths)]
        self.incarnation = int.from_bytes(os.urandom(4), "little") | 1
        self.link, self.binding, self.highest = None, None, 0
        self.device = Device(role, self.faulty, PAYLOADS[self.sizes])
        self.stream = Stream(socket.create_connection(manager))
        self.stream.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream.send(self.hello())
        self.number = None

    def faulty(self, mistake):
        """Whether this is the mistake that it makes."""
        return self.mistake == mistake

    def hello(self):
        role = 0 if self.role == "host" else 1
        return (varint(HELLO) + varint(CONTROL_VERSION) + text("reference") + varint(role) + b"\1"
                + varint(self.incarnation) + b"\0" + varint(len(self.ports))
                + b"".join(write_path(port.path) for port in self.ports) + varint(9000) + varint(0))

    def run(self):
        """Until the manager closes the connection."""
        control = self.stream.connection
        sockets = [control, *(port.socket for port in self.ports)]
        while True:
            wait = self.link.wait() if self.link else 1.0
            ready, _, _ = select.select(sockets, [], [], wait)
            if control in ready and not self.converse():
                return
            for path, port in enumerate(self.ports):
                while (got := port.receive()) is not None:
                    if self.link:
                        self.link.take(path, *got)
            if self.link:
                self.link.tick()

    # --- the manager ------------------------------------------------------------------------------

    def converse(self):
        """Takes what the manager sent; False when it is gone."""
        while True:
            reader = self.stream.receive()
            if reader is None:
                return False
            kind = reader.varint()
            if kind == WELCOME:
                reader.varint()
                self.number = reader.varint()
            elif kind == PING:
                self.stream.send(varint(PONG))
            elif kind == REQUEST:
                number, _term, what = reader.varint(), reader.varint(), reader.varint()
                self.stream.send(varint(RESPONSE) + varint(number) + self.obey(what, reader))
            elif kind == REFUSED:
                return False
            if len(self.stream.buffer) < 4:
                return True

    def obey(self, what, reader):
        """The result of a request."""
        done = b"\0\0"
        if what == SET_PEER:
            return self.set_peer(reader) or done
        if what == REMOVE_PEER:
            self.link = None
            return done
        if what == BIND_SLOT:
            slot, function, epoch = reader.u8(), reader.varint(), reader.varint()
            return self.bind(slot, function, epoch) or done
        if what == BIND_PORT:
            reader.u8()
            reader.varint()
            slot = reader.u8()
            (binding,) = reader.list(lambda: (reader.varint(), reader.varint()))
            return self.bind(slot, *binding) or done
        if what == UNBIND_SLOT:
            self.unbind()
            return b"\0" + varint(1) + varint(FREE)
        if what == UNBIND_PORT:
            self.unbind()
            return b"\0" + varint(2) + b"\1"
        if what == READ_INVENTORY:
            entry = (bytes([SLOT]) + varint(FUNCTION) + varint(FREE) + text("reference")
                     + varint(0) * 4 + varint(0) + b"\0" + varint(0) + varint(0) * 6
                     + varint(self.highest))
            return b"\0" + varint(5) + varint(1) + entry + b"\0"
        if what == READ_COUNTERS:
            return b"\0" + varint(6) + varint(0) + b"\0"
        return b"\1" + varint(2)

    def set_peer(self, reader):
        node, incarnation = reader.varint(), reader.varint()
        paths = reader.list(lambda: read_path(reader))
        for port, path in zip(self.ports, paths):
            port.connect(path)
        if self.link:
            self.unbind()
        self.link = Link(self, node, incarnation, min(len(paths), len(self.ports)))
        return None

    def bind(self, slot, function, epoch):
        if epoch <= self.highest:
            return b"\1" + varint(STALE_EPOCH) + varint(self.highest)
        if self.link is None:
            return b"\1" + varint(UNKNOWN_PEER) + varint(0)
        self.highest = epoch
        # As records that come from the peer have it.
        address = Address(0, slot, function, epoch)
        self.binding = address if self.role == "box" else address.turned()
        self.link.bind(self.binding)
        return None

    def unbind(self):
        if self.binding and self.link:
            self.link.unbind(self.binding)
            self.device.reset()
        self.binding = None


class ByHand(Node):
    """A proxy that no manager tells anything: its peer is set by hand, and so is its one binding."""

    # How long what comes for a link that is down is still answered.
    REST_S = 0.3

    def __init__(self, role, peers):
        self.role, self.mistake, self.sizes = role, None, "software"
        self.ports = [net.UdpPort("127.0.0.1") for _ in peers]
        for port, peer in zip(self.ports, peers):
            port.connect(net.parse_peer(peer))
        self.incarnation = int.from_bytes(os.urandom(4), "little") | 1
        self.device, self.number = Device(role, self.faulty, PAYLOADS[self.sizes]), 2
        print(*(f"udp:127.0.0.1:{port.path[2]}" for port in self.ports), flush=True)
        self.renew()

    def renew(self):
        """A new link, which takes any life of the peer, with the same binding."""
        self.link = Link(self, 1, None, len(self.ports))
        address = Address(0, SLOT, FUNCTION, 1)
        self.link.bind(address if self.role == "box" else address.turned())

    def run(self):
        sockets = [port.socket for port in self.ports]
        while True:
            select.select(sockets, [], [], self.link.wait())
            for path, port in enumerate(self.ports):
                while (got := port.receive()) is not None:
                    self.link.take(path, *got)
            self.link.tick()
            ended = self.link.ended
            if ended and time.monotonic() > ended + self.REST_S:
                self.renew()


def main():
    """`python -m kit.reference.node ROLE ADDRESS:PORT PATHS MISTAKE SIZES`, or with `by-hand` and its
    peer's ports behind the role."""
    role, manager, *rest = sys.argv[1:]
    if manager == "by-hand":
        ByHand(role, rest).run()
    address, _, port = manager.rpartition(":")
    paths, mistake, sizes = rest
    try:
        Node(role, (address, int(port)), int(paths), mistake, sizes).run()
    except (ConnectionError, KeyboardInterrupt):
        pass


if __name__ == "__main__":
    main()

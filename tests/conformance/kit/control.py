"""The control protocol (`proxy-fw/core/docs/control.md`), as far as a test of the wire needs it:
the messages, and a `Manager` that tells one proxy its peer and its bindings."""

import socket
import struct
import threading
import time

CONTROL_VERSION = 1
HELLO, RESPONSE, EVENT, PONG = range(4)
WELCOME, REFUSED, REQUEST, PING = range(4)
SET_PEER, REMOVE_PEER, BIND_SLOT, UNBIND_SLOT, BIND_PORT, UNBIND_PORT = range(6)
READ_INVENTORY, READ_COUNTERS = 8, 9
LARGEST_MESSAGE = 16384
ROLES = ("host", "box")
SLOT_STATES = ("Empty", "Probing", "Free", "Bound", "Releasing", "Quarantined")
FREE = 2
ERRORS = ("StaleTerm", "StaleEpoch", "WrongRole", "NoSuchPort", "NoSuchSlot", "SlotEmpty", "InUse",
          "Quarantined", "UnknownPeer", "Limit", "BadWindows", "CompletionTimeout", "Busy",
          "NotReady", "LinkDown")
PING_EVERY_S = 3
ANSWER_BOUND_S = 40


class ControlError(Exception):
    """The proxy broke the control protocol, refused a request, or is gone."""


class Refused(ControlError):
    """The proxy refuses a request; `name` is the error's."""

    def __init__(self, what, name):
        super().__init__(f"the proxy refuses request {what}: {name}")
        self.name = name


def varint(number):
    """A u16, u32 or u64."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def text(string):
    data = string.encode()
    return varint(len(data)) + data


class Reader:
    """Reads postcard."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise ControlError(f"a message ends after {len(self.data)} bytes: {self.data.hex()}")
        self.at += count
        return self.data[self.at - count:self.at]

    def u8(self):
        return self.take(1)[0]

    def varint(self):
        number, shift = 0, 0
        while True:
            byte = self.u8()
            number |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return number

    def text(self):
        return self.take(self.varint()).decode()

    def option(self, read):
        return read() if self.u8() else None

    def list(self, read):
        return [read() for _ in range(self.varint())]


def read_path(reader):
    """A `PathAddress`: ("eth", mac, vlan), or ("udp", address, port)."""
    kind = reader.varint()
    if kind == 0:
        return "eth", reader.take(6), reader.option(reader.varint)
    if kind > 2:
        raise ControlError(f"a path address of kind {kind}")
    family, size = ((socket.AF_INET, 4), (socket.AF_INET6, 16))[kind - 1]
    return "udp", socket.inet_ntop(family, reader.take(size)), reader.varint()


def write_path(path):
    """The bytes of a `PathAddress`."""
    kind, address, last = path
    if kind == "eth":
        return b"\0" + address + (b"\0" if last is None else b"\1" + varint(last))
    if ":" in address:
        return b"\2" + socket.inet_pton(socket.AF_INET6, address) + varint(last)
    return b"\1" + socket.inet_aton(address) + varint(last)


def key(slot, function, epoch):
    """The bytes of a `BindingKey`."""
    return bytes([slot]) + varint(function) + varint(epoch)


class Hello:
    """Who a proxy says it is."""

    def __init__(self, reader):
        self.version = reader.varint()
        self.name = reader.text()
        role = reader.varint()
        if role >= len(ROLES):
            raise ControlError(f"a Hello of role {role}; 0 is a host and 1 a box")
        self.role = ROLES[role]
        self.places = reader.u8()
        self.incarnation = reader.varint()
        self.node = reader.option(reader.varint)
        self.paths = reader.list(lambda: read_path(reader))
        self.mtu = reader.varint()
        self.term = reader.varint()


def framed(body):
    """A message with its length before it."""
    return struct.pack("<I", len(body)) + body


class Stream:
    """Messages over one connection."""

    def __init__(self, connection):
        self.connection, self.buffer, self.lock = connection, b"", threading.Lock()

    def send(self, body):
        with self.lock:
            self.connection.sendall(framed(body))

    def receive(self):
        """The next message, or None at the end."""
        while True:
            if len(self.buffer) >= 4:
                (length,) = struct.unpack_from("<I", self.buffer)
                if length > LARGEST_MESSAGE:
                    raise ControlError(f"a message of {length} bytes")
                if len(self.buffer) >= 4 + length:
                    body = self.buffer[4:4 + length]
                    self.buffer = self.buffer[4 + length:]
                    return Reader(body)
            data = self.connection.recv(65536)
            if not data:
                return None
            self.buffer += data


class Manager:
    """Waits for one proxy, and tells it what a manager would."""

    def __init__(self, address, node):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.listener = socket.create_server(address, family=family)
        self.node = node
        self.address = self.listener.getsockname()[:2]
        self.hello, self.stream, self.lost = None, None, None
        self.condition = threading.Condition()
        self.answers, self.events, self.next_id = {}, [], 1
        self.term = 1

    def wait_for_proxy(self, seconds):
        """Takes the proxy that dials. The kit's requests carry a term above what it has obeyed."""
        self.listener.settimeout(seconds)
        try:
            connection, _ = self.listener.accept()
        except TimeoutError:
            raise ControlError(f"no proxy dialled {self.address[0]}:{self.address[1]} "
                               f"within {seconds} s") from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(seconds)
        self.stream = Stream(connection)
        reader = self.stream.receive()
        if reader is None or reader.varint() != HELLO:
            raise ControlError("the proxy's first message is no Hello")
        self.hello = Hello(reader)
        if self.hello.version != CONTROL_VERSION:
            raise ControlError(f"the proxy speaks version {self.hello.version} of the control protocol")
        self.node = self.hello.node or self.node
        self.term = self.hello.term + 1
        self.stream.send(varint(WELCOME) + varint(CONTROL_VERSION) + varint(self.node)
                         + varint(self.term))
        connection.settimeout(None)
        for loop in (self._read, self._ping):
            threading.Thread(target=loop, daemon=True).start()

    def _ping(self):
        while self.lost is None:
            try:
                self.stream.send(varint(PING))
            except OSError:
                return
            time.sleep(PING_EVERY_S)

    def _read(self):
        lost = "the proxy closed its connection to the manager"
        try:
            while (reader := self.stream.receive()) is not None:
                self._take(reader)
        except (OSError, ControlError) as error:
            lost = str(error)
        with self.condition:
            self.lost = lost
            self.condition.notify_all()

    def _take(self, reader):
        kind = reader.varint()
        with self.condition:
            if kind == RESPONSE:
                self.answers[reader.varint()] = reader
            elif kind == EVENT:
                self.events.append(reader.data[reader.at:])
            elif kind != PONG:
                raise ControlError(f"a message of kind {kind} from the proxy")
            self.condition.notify_all()

    def ask(self, what, body):
        """Sends a request and gives what reads the `Reply` behind its number."""
        number, self.next_id = self.next_id, self.next_id + 1
        self.stream.send(varint(REQUEST) + varint(number) + varint(self.term) + varint(what) + body)
        with self.condition:
            self.condition.wait_for(lambda: number in self.answers or self.lost, ANSWER_BOUND_S)
            if self.lost:
                raise ControlError(self.lost)
            if number not in self.answers:
                raise ControlError(f"request {what} was not answered in {ANSWER_BOUND_S} s")
            reader = self.answers.pop(number)
        if reader.varint():
            error = reader.varint()
            name = ERRORS[error] if error < len(ERRORS) else f"error {error}"
            raise Refused(what, name)
        reader.varint()
        return reader

    def set_peer(self, node, incarnation, paths, mtu):
        """`SetPeer`: who is to be spoken to, and where."""
        self.ask(SET_PEER, varint(node) + varint(incarnation) + varint(len(paths))
                 + b"".join(write_path(path) for path in paths) + varint(mtu))

    def remove_peer(self, node):
        """`RemovePeer`."""
        self.ask(REMOVE_PEER, varint(node))

    def bind_slot(self, slot, function, epoch, host, paths):
        """`BindSlot`, with one window for everything."""
        window = (varint(0) + varint(2**64 - 1) + varint(host) + bytes([paths]) + varint(epoch)
                  + varint(0) + b"\1\1")
        share = b"\1\0\0"
        self.ask(BIND_SLOT, key(slot, function, epoch) + varint(host) + bytes([paths]) + share
                 + varint(1) + window)

    def unbind_slot(self, slot, function, epoch):
        """The function's state afterwards, as a number."""
        return self.ask(UNBIND_SLOT, key(slot, function, epoch)).varint()

    def bind_port(self, port, node, slot, function, epoch, paths):
        """`BindPort`, of one function."""
        share = b"\1\0\0"
        self.ask(BIND_PORT, bytes([port]) + varint(node) + bytes([slot]) + varint(1)
                 + varint(function) + varint(epoch) + bytes([paths]) + share)

    def unbind_port(self, port, node, slot, epoch):
        """`UnbindPort`, by force."""
        self.ask(UNBIND_PORT, bytes([port]) + varint(node) + bytes([slot]) + varint(epoch)
                 + varint(1))

    def inventory(self):
        """(slot, function, state, model, highest epoch) of each."""
        entries, start = [], 0
        while start is not None:
            reader = self.ask(READ_INVENTORY, varint(start))
            entries += reader.list(lambda: _inventory_entry(reader))
            start = reader.option(reader.varint)
        return entries

    def counters(self):
        """Every counter by its name."""
        counters, start = {}, 0
        while start is not None:
            reader = self.ask(READ_COUNTERS, varint(start))
            counters.update(reader.list(lambda: (reader.text(), reader.varint())))
            start = reader.option(reader.varint)
        return counters


def _inventory_entry(reader):
    slot, function, state, model = (reader.u8(), reader.varint(), reader.varint(), reader.text())
    for _ in range(4):
        reader.varint()
    reader.varint()
    reader.u8()
    reader.varint()
    for _ in range(6):
        reader.varint()
    return slot, function, state, model, reader.varint()

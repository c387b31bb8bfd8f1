"""Frames over UDP and over raw Ethernet: a port for each path."""

import fcntl
import ipaddress
import re
import select
import socket
import struct
import time

from .wire import ETHERTYPE

ECT0, CE = 2, 3
_SIOCGIFMTU, _SIOCGIFHWADDR = 0x8921, 0x8927


class UdpPort:
    """A path over UDP. `peer` is (address, port); `heard` says whether anything ever came; `largest`
    is the largest frame that can be sent. What is larger than a packet goes in several."""

    largest = 2**16 - 1 - 28

    def __init__(self, address, port=0):
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(self.family, socket.SOCK_DGRAM)
        self.socket.bind((address, port))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if self.family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            self.tos = (socket.IPPROTO_IP, socket.IP_TOS)
        else:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
            self.tos = (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
        self.peer = None
        self.mark = None
        self.heard = False

    @property
    def path(self):
        """As control messages have it."""
        return ("udp", *self.socket.getsockname()[:2])

    def connect(self, path):
        """Where frames go."""
        _, address, port = path
        self.peer = (address, port)

    def send(self, frame, mark=ECT0):
        """Sends a frame, with these ECN bits."""
        if mark != self.mark:
            self.socket.setsockopt(*self.tos, mark)
            self.mark = mark
        self.socket.sendto(frame, self.peer)

    def receive(self):
        """A frame and the ECN bits of its packet, when there is one."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(65536, 64, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionRefusedError):
            return None
        self.heard = True
        marks = [value[0] & 3 for _, _, value in ancillary if value]
        return data, marks[0] if marks else None

    def close(self):
        """Nothing comes and goes any more."""
        self.socket.close()


class EthernetPort:
    """A path over raw Ethernet (needs CAP_NET_RAW). `peer` is a MAC address; `heard` and `largest`
    are as over UDP."""

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        self.socket.bind((interface, ETHERTYPE))
        request = fcntl.ioctl(self.socket, _SIOCGIFHWADDR, struct.pack("16s16x", interface.encode()))
        self.mac = request[18:24]
        request = fcntl.ioctl(self.socket, _SIOCGIFMTU, struct.pack("16s16x", interface.encode()))
        (self.largest,) = struct.unpack_from("i", request, 16)
        self.peer = None
        self.heard = False

    @property
    def path(self):
        """As control messages have it."""
        return "eth", self.mac, None

    def connect(self, path):
        """Where frames go."""
        self.peer = path[1]

    def send(self, frame, mark=None):
        """Sends a frame; Ethernet has no ECN bits."""
        head = self.peer + self.mac + struct.pack(">H", ETHERTYPE)
        # The least that Ethernet carries; the frame's own length says where it ends.
        self.socket.send((head + frame).ljust(60, b"\0"))

    def receive(self):
        """A frame and no ECN bits, when there is one."""
        while True:
            try:
                data = self.socket.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if data[:6] == self.mac and data[12:14] == struct.pack(">H", ETHERTYPE):
                self.heard = True
                return data[14:], None

    def close(self):
        """Nothing comes and goes any more."""
        self.socket.close()


def parse_address(text, least=0):
    """`ADDRESS:PORT`, an IPv6 address in brackets or not, or a name, as (address, port)."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdecimal() or not least <= int(port) < 2**16:
        raise ValueError(f"{text!r}: ADDRESS:PORT, a port from {least} to 65535")
    address = address.strip("[]")
    try:
        return str(ipaddress.ip_address(address)), int(port)
    except ValueError:
        pass
    try:
        return socket.gethostbyname(address), int(port)
    except OSError as error:
        raise ValueError(f"{address!r}: {error.strerror}") from None


def parse_port(text):
    """`udp:ADDRESS:PORT` or `eth:INTERFACE`, as what opens it."""
    kind, _, rest = text.partition(":")
    if kind == "eth" and rest:
        return lambda: EthernetPort(rest)
    if kind == "udp":
        address, port = parse_address(rest)
        return lambda: UdpPort(address, port)
    raise ValueError(f"{text!r}: udp:ADDRESS:PORT or eth:INTERFACE")


def parse_peer(text):
    """Where the other end's port is: `udp:ADDRESS:PORT` or `eth:MAC`, as control messages have it."""
    kind, _, rest = text.partition(":")
    if kind == "eth" and re.fullmatch("([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", rest):
        return "eth", bytes.fromhex(rest.replace(":", "")), None
    if kind == "udp":
        return "udp", *parse_address(rest, least=1)
    raise ValueError(f"{text!r}: udp:ADDRESS:PORT or eth:MAC")


def wait(ports, seconds):
    """The next frame from any port as (index, frame, mark), or None when none comes in time."""
    end = time.monotonic() + seconds
    while True:
        for index, port in enumerate(ports):
            got = port.receive()
            if got is not None:
                return index, *got
        left = end - time.monotonic()
        if left <= 0:
            return None
        select.select([port.socket for port in ports], [], [], left)

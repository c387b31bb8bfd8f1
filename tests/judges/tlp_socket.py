"""A client of host-proxy's TLP socket (host-proxy/docs/tlp-socket.md), and the port through which
cocotbext-pcie's models see it."""

import select
import socket
import struct
import time

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.port import SimPort
from cocotbext.pcie.core.tlp import Tlp

TLP, RESET, LINK, POWER, HELLO, ERROR = 0, 1, 2, 3, 16, 17
VERSION = 1
HEADER = struct.Struct("<BBH")
# Prefixes, header, 4096 bytes of data, digest.
LONGEST_RECORD = 4 + 4136

# How long a completion may take before the host proxy counts as hung. It synthesises one itself
# after 2 s.
PATIENCE_S = 20.0


class TlpSocket:
    """One connection, from the hello on."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        try:
            self.greet()
        except BaseException:
            self.socket.close()
            raise

    def greet(self):
        """Exchanges hellos and waits for the link."""
        self.send(HELLO, struct.pack("<HHB", VERSION, 4096, 0))
        kind, body = self.receive(PATIENCE_S)
        if kind != HELLO:
            raise ConnectionError(f"the first record is not a hello but {kind}: {body!r}")
        version, self.largest_payload, self.ports = struct.unpack_from("<HHB", body)
        if version != VERSION:
            raise ConnectionError(f"the host proxy speaks version {version}")
        kind, body = self.receive(PATIENCE_S)
        if (kind, body[:1]) != (LINK, b"\x01"):
            raise ConnectionError(f"no link up after the hello, but {kind}: {body!r}")

    def send(self, kind, body):
        """Sends one record; waits while the socket is full."""
        self.socket.sendall(HEADER.pack(kind, 0, 0) + body)

    def receive(self, timeout):
        """The next record's type and body, or None if none comes in this many seconds."""
        if not select.select([self.socket], [], [], timeout)[0]:
            return None
        record = self.socket.recv(LONGEST_RECORD + 1)
        if not record:
            raise ConnectionError("the host proxy closed the connection")
        if len(record) > LONGEST_RECORD:
            raise ConnectionError("the host proxy sent a record that is longer than any TLP's")
        kind, _flags, _reserved = HEADER.unpack_from(record)
        body = record[HEADER.size:]
        if kind == ERROR:
            raise ConnectionError(f"the host proxy says: {body.decode()}")
        return kind, body

    def close(self):
        self.socket.close()


class SocketDevice:
    """What is below a root port, at the other end of a TLP socket.

    Simulated time stands still while a completion is due, so that the models' timeouts, which are
    meant for hardware, do not hit a software proxy.
    """

    def __init__(self, path):
        self.link = TlpSocket(path)
        self.port = SimPort(fc_init=[[64, 1024, 64, 64, 0, 0]] * 8)
        self.port.max_link_speed = 5
        self.port.max_link_width = 16
        self.port.rx_handler = self.to_proxy
        self.port.parent = self
        self.due = 0
        # Message TLPs, as bytes: the root complex's model takes none.
        self.messages = []
        cocotb.start_soon(self.poll())

    def connect(self, port):
        """Plugs it into a root port."""
        self.port.connect(port)

    async def to_proxy(self, tlp):
        """A TLP from the root port."""
        tlp.release_fc()
        if tlp.is_nonposted():
            self.due += 1
        self.link.send(TLP, bytes(tlp.pack()))

    async def poll(self):
        """Takes what the proxy sends, for as long as the test runs."""
        since = time.monotonic()
        while True:
            await Timer(20, "ns")
            if not self.due:
                since = time.monotonic()
            record = self.link.receive(0.1 if self.due else 0)
            if record is not None and record[0] == TLP:
                await self.from_proxy(record[1])
                since = time.monotonic()
            elif time.monotonic() - since > PATIENCE_S:
                raise TimeoutError(f"{self.due} requests were not completed in {PATIENCE_S} s")

    async def from_proxy(self, data):
        """A TLP from the proxy, for the root port."""
        # Type 10xxx: a message, by any routing.
        if data[0] & 0x18 == 0x10:
            self.messages.append(data)
            return
        tlp = Tlp.unpack(data)
        tlp.data = bytearray(tlp.data)
        if tlp.is_completion() and self.ends_request(tlp):
            self.due -= 1
        await self.port.send(tlp)

    @staticmethod
    def ends_request(cpl):
        """Whether no further completion of the same request follows this one."""
        if cpl.status.value != 0 or not cpl.data:
            return True
        return cpl.byte_count <= len(cpl.data) - (cpl.lower_address & 3)

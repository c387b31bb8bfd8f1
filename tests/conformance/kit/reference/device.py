"""What answers requests: a device with 64 KiB of memory in a box, or a host without Bus Master."""

import struct

COMMAND, CACHE_LINE, BAR, CAPABILITIES = 0x04, 0x0C, 0x10, 0x34
# The PCI Express capability: Device Capabilities and Device Control behind it.
EXPRESS = 0x40
IDS = 0x0C0A1234
SIZE = 65536
SUCCESS, UR = 0, 1


class Device:
    """Gives completions (as TLPs) for requests."""

    def __init__(self, role, faulty, payload):
        # The largest payload, as Device Capabilities has it.
        self.role, self.faulty, self.payload = role, faulty, payload
        self.memory = bytearray(SIZE)
        self.reset()

    def reset(self):
        self.registers = {0: IDS, CAPABILITIES: EXPRESS, EXPRESS: 0x00020010,
                          EXPRESS + 4: self.payload}

    def take(self, tlp):
        """The completions of a request; none of a posted one."""
        kind, words = tlp[0], struct.unpack_from(">H", tlp, 2)[0] & 0x3FF or 1024
        wide = kind & 0x20
        data = tlp[16 if wide else 12:]
        if kind & 0x1F == 0 and self.role == "box":
            address = struct.unpack_from(">Q" if wide else ">I", tlp, 8)[0]
            return self.at_memory(tlp, address, words, data if kind & 0x40 else None)
        if kind in (0x04, 0x44) and self.role == "box":
            return self.at_config(tlp, tlp[11] & 0xFC, data if kind & 0x40 else None)
        posted = kind & 0x40 and kind & 0x1F == 0 or kind & 0x18 == 0x10
        return [] if posted else [completion(tlp, UR)]

    def at_config(self, tlp, register, data):
        if data is None:
            return [completion(tlp, SUCCESS, struct.pack("<I", self.registers.get(register, 0)))]
        (new,) = struct.unpack("<I", data)
        if register == BAR:
            new &= ~(SIZE - 1)
        if register in (COMMAND, CACHE_LINE, BAR, EXPRESS + 8):
            self.registers[register] = new
        return [completion(tlp, SUCCESS)]

    def at_memory(self, tlp, address, words, data):
        at = address - self.registers.get(BAR, 0)
        enabled = self.registers.get(COMMAND, 0) & 2 or self.faulty("completes-nothing-wrong")
        mapped = enabled and 0 <= at and at + 4 * words <= SIZE
        if data is not None:
            if mapped:
                self.memory[at:at + 4 * words] = data
            return []
        if self.faulty("completes-nothing-wrong"):
            return [completion(tlp, SUCCESS, bytes(4 * words))]
        if not mapped:
            return [completion(tlp, UR)]
        return [completion(tlp, SUCCESS, bytes(self.memory[at:at + 4 * words]), address & 0x7F)]


def completion(request, status, data=b"", low=0):
    """A completion TLP for the whole of a request."""
    head = struct.pack(">IHHHBB", 0x4A000000 | len(data) // 4 & 0x3FF if data else 0x0A000000,
                       0x0100, status << 13 | (len(data) or 4) & 0xFFF,
                       struct.unpack_from(">H", request, 4)[0], request[6], low)
    return head + data

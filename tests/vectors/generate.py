#!/usr/bin/env python3
"""Makes cocotbext.json and captures.json: TLPs from sources that are not ours.

    python3 -m venv venv
    venv/bin/pip install cocotb==2.1.0 cocotbext-pcie==0.2.16
    venv/bin/python generate.py cocotbext
    venv/bin/python generate.py captures FOLDER

FOLDER holds the pcap files of the NetTLP project (Kuga et al., NSDI 2020; github.com/NetTLP,
repository "captured"). README.md says what the files are.

The bytes of cocotbext.json come from `cocotbext.pcie.core.tlp.Tlp.pack()`, and the fields beside
them from its `unpack()` of those bytes; of captures.json the bytes come from hardware. What that
class cannot do (messages, prefixes, DMWr, AT 11b, digests) is not asked of it here; hand.json
has it. Its `get_lower_address()` drops the byte offset, so lower addresses are not taken from it.
"""

import json
import pathlib
import random
import struct
import sys

from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpAt, TlpAttr, TlpTc, TlpType
from cocotbext.pcie.core.utils import PcieId

HERE = pathlib.Path(__file__).parent

NAMES = {
    TlpType.MEM_READ: "MRd",
    TlpType.MEM_READ_64: "MRd",
    TlpType.MEM_READ_LOCKED: "MRdLk",
    TlpType.MEM_READ_LOCKED_64: "MRdLk",
    TlpType.MEM_WRITE: "MWr",
    TlpType.MEM_WRITE_64: "MWr",
    TlpType.IO_READ: "IORd",
    TlpType.IO_WRITE: "IOWr",
    TlpType.CFG_READ_0: "CfgRd0",
    TlpType.CFG_WRITE_0: "CfgWr0",
    TlpType.CFG_READ_1: "CfgRd1",
    TlpType.CFG_WRITE_1: "CfgWr1",
    TlpType.CPL: "Cpl",
    TlpType.CPL_DATA: "CplD",
    TlpType.CPL_LOCKED: "CplLk",
    TlpType.CPL_LOCKED_DATA: "CplDLk",
    TlpType.FETCH_ADD: "FetchAdd",
    TlpType.FETCH_ADD_64: "FetchAdd",
    TlpType.SWAP: "Swap",
    TlpType.SWAP_64: "Swap",
    TlpType.CAS: "CAS",
    TlpType.CAS_64: "CAS",
}
WIDE = {t for t in NAMES if t.name.endswith("_64")}


def bdf(pcie_id):
    return f"{pcie_id.bus:02x}:{pcie_id.device:02x}.{pcie_id.function:x}"


def fields(tlp):
    """The fields of an unpacked TLP, named as the `tlp` command names them."""
    name = NAMES[tlp.fmt_type]
    out = {"type": name}
    if tlp.tc:
        out["tc"] = int(tlp.tc)
    for key, on in (
        ("ro", tlp.attr & TlpAttr.RO),
        ("ns", tlp.attr & TlpAttr.NS),
        ("ido", tlp.attr & TlpAttr.IDO),
        ("ln", tlp.ln),
        ("poisoned", tlp.ep),
    ):
        if on:
            out[key] = True
    if tlp.at != TlpAt.DEFAULT:
        out["at"] = {1: "translation-request", 2: "translated"}[int(tlp.at)]
    if name.startswith("Cpl"):
        out |= {
            "completer": bdf(tlp.completer_id),
            "requester": bdf(tlp.requester_id),
            "tag": tlp.tag,
            "status": CplStatus(tlp.status).name,
            "byte_count": tlp.byte_count,
            "lower_address": tlp.lower_address,
        }
        if tlp.bcm:
            out["bcm"] = True
    else:
        out |= {"requester": bdf(tlp.requester_id), "tag": tlp.tag}
        if name.startswith("Cfg"):
            out |= {"destination": bdf(tlp.completer_id), "register": hex(tlp.address)}
        else:
            out["address"] = hex(tlp.address)
        if name in ("MRd", "MRdLk"):
            out["length"] = tlp.length
        steered = tlp.th and name != "MWr"
        if not steered and name not in ("FetchAdd", "Swap", "CAS"):
            out["first_be"] = hex(tlp.first_be)
            if name in ("MRd", "MRdLk", "MWr"):
                out["last_be"] = hex(tlp.last_be)
        if tlp.th:
            out["ph"] = tlp.ph
            # The steering tag has no field of its own there: it is where it is on the wire.
            if name == "MWr":
                out["st"] = tlp.tag & 0xFF
                out["tag"] = tlp.tag & 0x300
            else:
                out["st"] = tlp.last_be << 4 | tlp.first_be
    if tlp.has_data():
        out["data"] = bytes(tlp.data).hex()
    return out


def vector(name, tlp):
    packed = bytes(tlp.pack())
    read = Tlp.unpack(packed)
    out = {"name": name, "hex": packed.hex(), "tlp": fields(read)}
    if out["tlp"]["type"] in ("MRd", "MRdLk") and not read.th and read.first_be:
        out["first_completion_byte_count"] = read.get_be_byte_count()
    return out


def make(fmt_type, **attributes):
    tlp = Tlp()
    tlp.fmt_type = fmt_type
    for name, value in attributes.items():
        setattr(tlp, name, value)
    return tlp


def random_id(rng):
    return PcieId(rng.randrange(256), rng.randrange(32), rng.randrange(8))


def random_tlp(rng, fmt_type):
    """A TLP of that type that keeps the rules."""
    name = NAMES[fmt_type]
    tlp = make(fmt_type, requester_id=random_id(rng), tag=rng.randrange(1024), ep=rng.random() < 0.1)
    top = 2**64 if fmt_type in WIDE else 2**32
    address = rng.randrange(top)
    if fmt_type in WIDE:
        address |= 1 << 32
    if name.startswith("Cfg") or name.startswith("IO"):
        tlp.completer_id = random_id(rng)
        size = rng.randrange(1, 5 - address % 4)
        address &= 0xFFF if name.startswith("Cfg") else 0xFFFFFFFF
        if name.endswith(("Wr", "Wr0", "Wr1")):
            tlp.set_addr_be_data(address, rng.randbytes(size))
        else:
            tlp.set_addr_be(address, size)
        return tlp
    tlp.tc = TlpTc(rng.randrange(8))
    tlp.attr = TlpAttr(rng.randrange(8))
    tlp.ln = rng.random() < 0.1
    if name.startswith("Cpl"):
        tlp.completer_id = random_id(rng)
        tlp.status = rng.choice(list(CplStatus))
        tlp.bcm = rng.random() < 0.1
        tlp.byte_count = rng.randrange(1, 4096)
        tlp.lower_address = rng.randrange(128)
        if tlp.has_data():
            touched = (tlp.lower_address % 4 + tlp.byte_count + 3) // 4
            tlp.set_data(rng.randbytes(4 * rng.randrange(1, min(touched, 32) + 1)))
        return tlp
    tlp.at = rng.choice(list(TlpAt))
    if name in ("FetchAdd", "Swap", "CAS"):
        operand = rng.choice((4, 8) if name != "CAS" else (4, 8, 16))
        data = rng.randbytes(operand * (2 if name == "CAS" else 1))
        tlp.set_addr_be_data(address - address % operand, data)
        tlp.first_be = tlp.last_be = 0
    else:
        size = min(rng.choice((1, 3, 4, 8, 64, 200)), 4096 - address % 4096)
        if name == "MWr":
            tlp.set_addr_be_data(address, rng.randbytes(size))
        else:
            tlp.set_addr_be(address, size)
    if rng.random() < 0.2:
        tlp.th, tlp.ph = True, rng.randrange(4)
        if name != "MWr":
            tag = rng.randrange(256)
            tlp.first_be, tlp.last_be = tag & 0xF, tag >> 4
    return tlp


def cocotbext():
    def aligned(fmt_type, address, length, **attributes):
        tlp = make(fmt_type, requester_id=PcieId(1, 2, 3), tag=0x55, **attributes)
        (tlp.set_addr_be if isinstance(length, int) else tlp.set_addr_be_data)(address, length)
        return tlp

    gaps = aligned(TlpType.MEM_READ, 0x1000, 8)
    gaps.first_be, gaps.last_be = 0b1010, 0b0101
    one_gap = aligned(TlpType.MEM_READ, 0x1004, 4)
    one_gap.first_be = 0b1001
    out = [
        vector("read of nothing", aligned(TlpType.MEM_READ, 0x2000, 0)),
        vector("read of 4096 bytes", aligned(TlpType.MEM_READ_64, 0x1_2345_6000, 4096)),
        vector("read of one byte", aligned(TlpType.MEM_READ, 0x1003, 1)),
        vector("read over two doublewords", aligned(TlpType.MEM_READ, 0x1003, 2)),
        vector("gaps in two aligned doublewords", gaps),
        vector("a gap in one doubleword", one_gap),
        vector("MSI", aligned(TlpType.MEM_WRITE, 0xFEE0_0000, b"\x21\x40\x00\x00")),
        vector("write of 4096 bytes", aligned(TlpType.MEM_WRITE_64, 2**40, bytes(range(256)) * 16)),
    ]
    request = aligned(TlpType.CFG_READ_0, 0, 4)
    for status in CplStatus:
        name = f"completion of a configuration read, {status.name}"
        completion = Tlp.create_completion_for_tlp(request, PcieId(5, 0, 0), False, status)
        completion.byte_count = 4
        out.append(vector(name, completion))
    full = make(TlpType.CPL_DATA, completer_id=PcieId(5, 0, 0), requester_id=PcieId(1, 2, 3))
    full.byte_count = 4096
    full.set_data(bytes(128))
    out.append(vector("first completion of a 4096-byte read", full))
    rng = random.Random("cocotbext")
    for fmt_type in NAMES:
        out += [vector(f"{fmt_type.name} {n}", random_tlp(rng, fmt_type)) for n in range(10)]
    return out


def packets(path):
    """The packets of a little-endian nanosecond pcap file."""
    data = path.read_bytes()
    magic, = struct.unpack_from("<I", data)
    assert magic == 0xA1B23C4D, f"{path}: not a nanosecond pcap"
    at = 24
    while at < len(data):
        kept, = struct.unpack_from("<I", data, at + 8)
        yield data[at + 16 : at + 16 + kept]
        at += 16 + kept


def captures(folder):
    out = []
    for path in sorted(folder.glob("*.pcap")):
        for number, packet in enumerate(packets(path), 1):
            ip = 18 if packet[12:14] == b"\x81\x00" else 14
            length, = struct.unpack_from(">H", packet, ip + 20 + 4)
            # Behind the UDP header: NetTLP's sequence number and time stamp, 6 bytes.
            kept = packet[ip + 28 + 6 : ip + 20 + length]
            tlp = Tlp.unpack_header(kept)
            want = tlp.get_header_size() + (4 * tlp.length if tlp.has_data() else 0)
            tlp.data = kept[tlp.get_header_size() : want]
            entry = {
                "name": f"{path.name} packet {number}",
                "hex": kept[:want].hex(),
                "tlp": fields(tlp),
            }
            if len(kept) < want:
                entry["cut_short_of"] = want
            out.append(entry)
    return out


def write(name, vectors):
    lines = ",\n".join(json.dumps(vector) for vector in vectors)
    (HERE / name).write_text(f"[\n{lines}\n]\n")
    print(f"{name}: {len(vectors)} vectors")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["cocotbext"]:
            write("cocotbext.json", cocotbext())
        case ["captures", folder]:
            write("captures.json", captures(pathlib.Path(folder)))
        case _:
            sys.exit(__doc__)

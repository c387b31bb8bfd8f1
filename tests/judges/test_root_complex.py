"""cocotbext-pcie's RootComplex as the host: does the virtual switch look like one to a model that
knows nothing of this project, and does a device behind it work?

Each test connects anew, which resets the switch as by PERST#, and enumerates anew. run.py starts
the daemons and lends the accelerator before the simulator starts.
"""

import json
import logging
import os
import random
import struct
import subprocess
import time
import zlib

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core import RootComplex
from cocotbext.pcie.core.caps import PciCapId

from tlp_socket import SocketDevice, TlpSocket

UPSTREAM, DOWNSTREAM, ENDPOINT = 5, 6, 0
# box-proxy/devices/docs/accelerator.md
ACCELERATOR = (0x1B36, 0xD0AC)
ID = 0x43415844
JOB, DOORBELL = 0x100, 0x1000
READ, WRITE, INTERRUPT = 0, 1, 0x100
DONE = 2
# What the model's memory reads raise, as a plain Exception, for any status but success.
UNSUCCESSFUL = "Unsuccessful completion"


class Host:
    """The root complex, enumerated, and what it found."""

    def __init__(self, rc, below):
        self.rc = rc
        self.below = below
        self.devices = list(walk(rc.host_bridge.bus))

    @classmethod
    async def boot(cls):
        """Connects and enumerates."""
        logging.getLogger("cocotb.pcie").setLevel(logging.ERROR)
        below = SocketDevice(os.environ["DXPU_TLP_SOCKET"])
        rc = RootComplex()
        rc.make_port().connect(below)
        await rc.enumerate()
        return cls(rc, below)

    def of_type(self, port_type):
        return [dev for dev in self.devices if dev.is_pcie() and dev.pcie_type() == port_type]

    async def accelerator(self):
        """The accelerator, switched on with the bridges above it."""
        found = [dev for dev in self.devices if (dev.vendor_id, dev.device_id) == ACCELERATOR]
        assert len(found) == 1, f"{len(found)} accelerators"
        await found[0].enable_device()
        await found[0].set_master()
        return found[0]

    async def until(self, true, seconds=30):
        """Lets time pass, simulated and real, until something is true."""
        bound = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < bound, "it did not happen in time"
            await Timer(200, "ns")

    def shut_down(self):
        self.below.link.close()


def walk(bus):
    for dev in bus.devices:
        yield dev
    for child in bus.children:
        yield from walk(child)


@cocotb.test()
async def enumerates_the_switch_and_the_device_behind_it(_dut):
    host = await Host.boot()
    upstream, downstream = host.of_type(UPSTREAM), host.of_type(DOWNSTREAM)
    assert len(upstream) == 1
    assert len(downstream) == host.below.link.ports, f"{len(downstream)} downstream ports"
    dev = await host.accelerator()
    assert dev.pcie_type() == ENDPOINT
    port = dev.bus.bridge
    assert port in downstream and port.bus.bridge is upstream[0]
    # Every bridge's bus numbers hold those below it.
    for bridge in upstream + downstream:
        primary, secondary, last = (await bridge.config_read_dword(0x18)).to_bytes(4, "little")[:3]
        assert primary == bridge.bus_num < secondary <= last
    # PCI Local Bus 3.0: a BAR is aligned to its size, which is a power of two.
    for address, size in zip(dev.bar_addr, dev.bar_size):
        if size:
            assert size & (size - 1) == 0 and address % size == 0
    host.shut_down()


@cocotb.test()
async def a_second_root_complex_is_told_why_it_is_refused(_dut):
    host = await Host.boot()
    try:
        TlpSocket(os.environ["DXPU_TLP_SOCKET"])
    except ConnectionError as error:
        assert "another root complex is connected" in str(error), error
    else:
        raise AssertionError("there were two root complexes")
    await host.accelerator()
    host.shut_down()


@cocotb.test()
async def the_slot_shows_its_device(_dut):
    host = await Host.boot()
    port = (await host.accelerator()).bus.bridge
    empty = [other for other in host.of_type(DOWNSTREAM) if other is not port]
    assert empty, "the test needs a port without a device"

    async def registers(which):
        flags = await which.capability_read_word(PciCapId.EXP, 0x02)
        link_status = await which.capability_read_word(PciCapId.EXP, 0x12)
        slot = await which.capability_read_dword(PciCapId.EXP, 0x14)
        status = await which.capability_read_word(PciCapId.EXP, 0x1A)
        return flags, link_status, slot, status

    flags, link_status, slot, status = await registers(port)
    assert flags & 0x100, "slot implemented"
    assert slot & 0x61 == 0x61, "attention button, surprise and hot-plug capable"
    assert slot >> 18 & 1, "no command completed support"
    assert status & 0x40, "presence detect state"
    assert link_status & 0x2000 and link_status >> 4 & 0x3F, "link active, with a width"
    assert not link_status & 0x0800, "not in training"
    flags, link_status, _slot, status = await registers(empty[0])
    assert flags & 0x100 and not status & 0x40 and not link_status & 0x2000
    # Below an empty port nothing answers: Unsupported Request, which reads as ones.
    assert await host.rc.config_read_dword((empty[0].subordinate.bus_num, 0, 0), 0) == 0xFFFFFFFF
    host.shut_down()


@cocotb.test()
async def registers_and_device_memory_read_back_what_was_written(_dut):
    host = await Host.boot()
    dev = await host.accelerator()
    registers, memory = dev.bar_addr[0], dev.bar_addr[2]
    assert await host.rc.mem_read_dword(registers) == ID
    await host.rc.mem_write_dword(registers + 0x18, 0x12345678)
    assert await host.rc.mem_read_dword(registers + 0x18) == 0x12345678
    rng = random.Random(2023)
    shadow = bytearray(await host.rc.mem_read(memory, 16384))
    for _ in range(150):
        length = rng.choice([1, 2, 3, 4, 5, 8, 13, 64, 255, 256, 1000, 4096])
        offset = rng.randrange(len(shadow) - length)
        if rng.random() < 0.5:
            data = rng.randbytes(length)
            shadow[offset:offset + length] = data
            await host.rc.mem_write(memory + offset, data)
        else:
            data = bytes(await host.rc.mem_read(memory + offset, length))
            assert data == shadow[offset:offset + length], f"{length} bytes at {offset:#x}"
    assert bytes(await host.rc.mem_read(memory, len(shadow))) == shadow
    # Many at a time: completions of different requests may pass each other.
    async def read(offset):
        return offset, bytes(await host.rc.mem_read(memory + offset, 256))
    tasks = [cocotb.start_soon(read(offset)) for offset in range(0, len(shadow), 256)]
    for task in tasks:
        offset, data = await task
        assert data == shadow[offset:offset + 256], f"at {offset:#x}"
    host.shut_down()


@cocotb.test()
async def addresses_that_nobody_owns_are_unsupported_requests(_dut):
    host = await Host.boot()
    dev = await host.accelerator()
    below = dev.bus.bridge
    # In the upstream port's windows, but in none of the downstream ports'.
    base = dev.bar_addr[0]
    await below.config_write_dword(0x20, 0x0000FFF0)
    try:
        await host.rc.mem_read(base, 4)
    except Exception as error:
        assert str(error) == UNSUCCESSFUL, error
    else:
        raise AssertionError("a read outside every window was answered")
    # The other window still leads to the device.
    await host.rc.mem_write(dev.bar_addr[2], b"still there")
    assert bytes(await host.rc.mem_read(dev.bar_addr[2], 11)) == b"still there"
    host.shut_down()


@cocotb.test()
async def the_device_moves_data_by_dma_and_interrupts(_dut):
    host = await Host.boot()
    dev = await host.accelerator()
    vectors = await dev.alloc_irq_vectors(1, 8)
    assert vectors >= 1
    registers, rc = dev.bar_addr[0], host.rc
    source, source_bytes = rc.alloc_region(16384)
    target, target_bytes = rc.alloc_region(16384)
    data = random.Random(16).randbytes(16384)
    source_bytes[0:16384] = data

    async def job(operation, address, number):
        done = dev.msi_vectors[0].event
        done.clear()
        await rc.mem_write(registers + JOB, struct.pack("<QQQQI", address, 0, 0, len(data), operation | INTERRUPT))
        await rc.mem_write_dword(registers + DOORBELL, number)
        await host.until(done.is_set)
        job_id, status, crc = await rc.mem_read_dwords(registers + JOB + 0x24, 3)
        assert (job_id, status) == (number, DONE), f"job {job_id}, status {status:#x}"
        assert crc == zlib.crc32(data), "the device saw other bytes"

    await job(READ, source, 1)
    assert bytes(await rc.mem_read(dev.bar_addr[2], len(data))) == data
    await job(WRITE, target, 2)
    # The interrupt is behind the data, so all of it is there.
    assert bytes(target_bytes[0:16384]) == data
    host.shut_down()


@cocotb.test()
async def a_device_that_is_released_is_gone(_dut):
    host = await Host.boot()
    dev = await host.accelerator()
    port, address = dev.bus.bridge, dev.bar_addr[2]
    released = subprocess.Popen(json.loads(os.environ["DXPU_RELEASE"]))
    # The root complex is no operating system: it does not heed the attention button, so the
    # manager's bound passes and the release is forced.
    present = True
    bound = time.monotonic() + 60
    while present and time.monotonic() < bound:
        await Timer(1, "us")
        present = await port.capability_read_word(PciCapId.EXP, 0x1A) & 0x40
    assert not present, "the slot still shows a device"
    assert released.wait(timeout=60) == 0, "the release failed"
    link_status = await port.capability_read_word(PciCapId.EXP, 0x12)
    assert not link_status & 0x2000, "the link of an empty slot is active"
    assert await dev.config_read_dword(0) == 0xFFFFFFFF
    try:
        await host.rc.mem_read(address, 4)
    except Exception as error:
        assert str(error) == UNSUCCESSFUL, error
    else:
        raise AssertionError("a device that is gone was read")
    host.shut_down()

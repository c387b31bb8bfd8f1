"""The kit against its own reference implementation: right, with a card's sizes, and with each of its
mistakes."""

import contextlib
import copy
import errno
import io
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from . import net
from .control import ControlError, Hello, Manager, Reader
from .end import End, Failed
from .lab import Lab
from .reference import MISTAKES
from .wire import Address, Nop, SplitData, Unbind

# Cases that are run without a manager too.
BY_HAND = ("open.asks", "open.three-frames", "open.another-life-of-its-own",
           "open.later-versions-too", "close.ends-the-link", "frame.crc", "record.once",
           "epoch.unknown", "ack.ranges", "credit.returned", "path.dead", "give-up.goodbye-again")

# Cases that send large frames.
LARGE = ("frame.random", "tlp.too-large", "credit.exceeded")

FOLDER = pathlib.Path(__file__).resolve().parent.parent


class NarrowPort(net.UdpPort):
    """A port that sends no more than an Ethernet interface usually does."""

    largest = 1500

    def send(self, frame, mark=net.ECT0):
        """Sends a frame, or fails as the interface would."""
        if len(frame) > self.largest:
            raise OSError(errno.EMSGSIZE, "Message too long")
        super().send(frame, mark)


def start(said, role, mistake="none", sizes="software", kind=net.UdpPort):
    """A lab with the reference as what is tested, and the reference's process."""
    paths = 2
    manager = Manager(("127.0.0.1", 0), said.node)
    host, port = manager.address
    command = [sys.executable, "-B", "-m", "kit.reference.node", role, f"{host}:{port}", str(paths),
               mistake, sizes]
    process = subprocess.Popen(command, cwd=FOLDER)
    try:
        manager.wait_for_proxy(said.wait)
    except ControlError:
        process.kill()
        raise
    said.slot = 1
    return Lab(said, [kind("127.0.0.1") for _ in range(paths)], manager), process


def stop(lab, process):
    """Ends both."""
    lab.manager.stream.connection.close()
    process.kill()
    process.wait()


def run(said, wanted, role, mistake="none", sizes="software", kind=net.UdpPort):
    """(case, outcome, text, seconds) of each case against a reference of its own."""
    from .main import OF_CONTROL, run_case
    lab, process = start(said, role, mistake, sizes, kind)
    try:
        for case in wanted:
            begin = time.monotonic()
            outcome, text = run_case(case, lab)
            if process.poll() is not None:
                outcome, text = "FAILED", f"{OF_CONTROL}the reference ended ({text or outcome})"
            yield case, outcome, text, time.monotonic() - begin
    finally:
        stop(lab, process)


def run_by_hand(said, wanted, role):
    """The same against a reference that is told its peer by hand."""
    from .main import run_case
    ports = [net.UdpPort("127.0.0.1") for _ in range(2)]
    own = [f"udp:127.0.0.1:{port.path[2]}" for port in ports]
    command = [sys.executable, "-B", "-m", "kit.reference.node", role, "by-hand", *own]
    process = subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE, text=True)
    try:
        said.role, said.slot = role, 1
        said.peers = [net.parse_peer(peer) for peer in process.stdout.readline().split()]
        lab = Lab(said, ports, None)
        for case in wanted:
            if case.name in BY_HAND:
                yield case, *run_case(case, lab)
    finally:
        process.kill()
        process.wait()


def line(name, good, text=""):
    """Prints how a check went; gives whether it went well."""
    print(f"test {name} ... {'ok' if good else 'FAILED'}", flush=True)
    if text and not good:
        print(f"    {text}")
    return good


def as_a_card(said, wanted, prefix):
    """How the checks went of a reference that stores what a card does. It passes every case when the
    kit is told so, and only then."""
    card = copy.copy(said)
    card.credits = (8, 16, 8, 8)
    results = []
    for case, outcome, text, _ in run(card, wanted, "box", sizes="card"):
        if outcome != "skipped":
            results.append(line(f"{prefix}card.{case.name}", outcome == "passed", text))
    announced = [case for case in wanted if case.name == "credit.announced"]
    for case, outcome, text, _ in run(said, announced, "box", sizes="card"):
        results.append(line(f"{prefix}card.fewer-credits-than-the-kit-was-told",
                            outcome == "FAILED" and "--credits 8,16,8,8" in text, text))
    return results


def narrow(said, wanted, prefix):
    """How the checks went through ports that send no large frames: what needs one is skipped."""
    results = []
    wanted = [case for case in wanted if case.name in LARGE]
    for case, outcome, text, _ in run(said, wanted, "box", kind=NarrowPort):
        if case.name == "tlp.too-large":
            results.append(line(f"{prefix}narrow.{case.name}.is-skipped",
                                outcome == "skipped" and "1500" in text, f"{outcome} {text}"))
        elif outcome != "skipped":
            results.append(line(f"{prefix}narrow.{case.name}", outcome == "passed", text))
    return results


def first_epoch(said, wanted, prefix):
    """How the check went of a generation's first epoch, below which there is none."""
    stale = [case for case in wanted if case.name == "epoch.stale"]
    of_generation = copy.copy(said)
    of_generation.epoch = 0x01000000
    return [line(f"{prefix}first-epoch.{case.name}.is-skipped", outcome == "skipped", text)
            for case, outcome, text, _ in run(of_generation, stale, "host")]


def rules(prefix):
    """How the checks went of rules that the reference does not come to."""
    def seen(known, record):
        end = End([], 1, 2, None, 3, Address())
        end.records[0] = known
        try:
            return end.take_record(0, 0, record) is False
        except Failed:
            return False
    part, other = (SplitData(Address(), 0, 1, 12, bytes([n] * 4)) for n in range(2))
    gone = all(seen(part, record) for record in (part, Nop(), Unbind(Address())))
    def refused(role):
        try:
            Hello(Reader(b"\1\4name" + bytes([role]) + bytes(20)))
        except ControlError as error:
            return f"role {role}" in str(error)
        return False
    return [line(f"{prefix}rule.a-role-is-known", refused(2) and not refused(1)),
            line(f"{prefix}rule.a-part-of-a-closed-binding-is-replaced", gone),
            line(f"{prefix}rule.a-part-stays-what-it-was", not seen(part, other))]


def statuses(wanted, prefix):
    """How the checks went of what the program's end says."""
    from .main import COULD_NOT, FAILED, PASSED, Report, arguments
    said = arguments(["--json"])
    ends = {"none-ran": ([], COULD_NOT), "all-skipped": (["skipped"], COULD_NOT),
            "some-skipped": (["skipped", "passed"], PASSED), "one-failed": (["passed", "FAILED"], FAILED)}
    results = []
    for name, (outcomes, status) in ends.items():
        report = Report(said, len(outcomes), None)
        for outcome in outcomes:
            report.add(wanted[0], outcome, "why", 0)
        with contextlib.redirect_stdout(io.StringIO()):
            ended = report.end()
        results.append(line(f"{prefix}status.{name}", ended == status, f"{ended}, not {status}"))
    return results


def judge(said, mistake, case):
    """Whether a case sees a mistake, and how it ended."""
    from .main import ELSEWHERE
    once = copy.copy(said)
    once.retry = 0
    # Here it is failing that has to come of one of the tries.
    for _ in range(said.retry + 1):
        ((_, outcome, text, _),) = run(once, [case], "box", mistake)
        # A kit or a reference that went wrong has seen nothing.
        if outcome == "FAILED" and not text.startswith(ELSEWHERE):
            return True, text
    return False, f"{outcome} {text or ''}"


def no_mistake(said, by_name, prefix):
    """How the checks went of what must not be taken for a mistake that was seen."""
    def breaks(_):
        raise KeyError("it breaks")
    def parts(lab):
        raise ControlError(f"the {lab.role} went away")
    results = []
    if case := by_name.get("frame.crc"):
        tries = {"none": case.run, "a-kit-that-breaks": breaks, "a-reference-that-is-gone": parts}
        for name, what in tries.items():
            case = copy.copy(case)
            case.run = what
            seen, text = judge(said, "none", case)
            results.append(line(f"{prefix}no-mistake.{name}", not seen, f"{case.name} sees one: {text}"))
    return results


def self_test(said, wanted):
    """Prints a line for each check; gives the exit status."""
    said.scratch, said.patience = True, min(said.patience, 1.5)
    results, prefix = [], said.prefix or ""
    for role in ("box", "host"):
        for case, outcome, text, _ in run(said, wanted, role):
            if outcome != "skipped":
                results.append(line(f"{prefix}{role}.{case.name}", outcome == "passed", text))
        for case, outcome, text in run_by_hand(said, wanted, role):
            results.append(line(f"{prefix}by-hand.{role}.{case.name}", outcome == "passed", text))
    results += as_a_card(said, wanted, prefix) + narrow(said, wanted, prefix)
    results += first_epoch(said, wanted, prefix) + rules(prefix) + statuses(wanted, prefix)
    by_name = {case.name: case for case in wanted}
    mistakes = [(mistake, by_name[name]) for mistake, name in MISTAKES.items() if name in by_name]
    # They mostly wait.
    with ThreadPoolExecutor(4) as pool:
        judged = pool.map(lambda planted: judge(said, *planted), mistakes)
        for (mistake, case), (seen, text) in zip(mistakes, judged):
            results.append(line(f"{prefix}mistake.{mistake}", seen,
                                f"{case.name} does not see it: {text}"))
    results += no_mistake(said, by_name, prefix)
    good = sum(results)
    verdict = "ok" if good == len(results) else "FAILED"
    print(f"test result: {verdict}. {good} passed; {len(results) - good} failed; 0 ignored")
    return 0 if good == len(results) else 1

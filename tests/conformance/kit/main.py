"""The command line of dxpu_conformance.py."""

import argparse
import json
import sys
import time
import traceback

from . import cases, net
from .control import ControlError, Manager
from .end import Failed
from .lab import Lab, Skip

PASSED, FAILED, COULD_NOT, USAGE = 0, 1, 3, 2

# How a failure begins that is not of what a case looks at.
ELSEWHERE = OF_CONTROL, OF_THE_KIT = "control protocol: ", "the kit itself: "


def whole(low, high):
    """What reads a whole number from `low` to `high`, decimal or 0x…"""
    def read(text):
        number = int(text, 0)
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text}: {low} to {high}")
        return number
    read.__name__ = "number"
    return read


def seconds(text):
    """A time: above 0, an hour at most."""
    number = float(text)
    if not 0 < number <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: above 0, and 3600 at most")
    return number


NODE, BYTE, HALF_WORD, WORD = (whole(1, 65534), whole(0, 255), whole(0, 2**16 - 1),
                               whole(0, 2**32 - 1))


def arguments(argv):
    """The command line, checked; ends the program where it is wrong."""
    parser = argparse.ArgumentParser(
        prog="dxpu_conformance.py",
        description="Checks another implementation of the wire between two DxPU proxies.",
        epilog="Exit status: 0 every case that ran passed, 1 the implementation failed one, or went "
               "away, 2 wrong arguments, 3 nothing could be tested: the implementation could not be "
               "reached, or no case was for it.")
    add = parser.add_argument
    add("--port", dest="specs", action="append", metavar="SPEC",
        help="a port of the kit's own, udp:ADDRESS:PORT or eth:INTERFACE; once for each path "
             "[udp:127.0.0.1:0, for as many paths as the implementation has]")
    add("--interface", metavar="NAME", help="the same as --port eth:NAME")
    add("--manager", default="127.0.0.1:7781", metavar="ADDRESS:PORT",
        help="where the kit is the manager that the implementation dials [%(default)s]")
    add("--no-manager", action="store_true",
        help="the implementation is told its peer by hand: needs --role, --node and --peer")
    add("--role", choices=("host", "box"), help="what the implementation is")
    add("--node", type=NODE, default=2, help="the implementation's node number [%(default)s]")
    add("--own-node", type=NODE, default=1, help="the kit's node number [%(default)s]")
    add("--incarnation", type=WORD, help="the implementation's incarnation, if it is known")
    add("--peer", action="append", default=[], metavar="SPEC",
        help="where the implementation is, udp:ADDRESS:PORT or eth:MAC; once for each path")
    add("--prepare", metavar="COMMAND",
        help="with --no-manager: run by the shell before each link, with KIT_NODE, "
             "KIT_INCARNATION, KIT_EPOCH, KIT_SLOT and KIT_FUNCTION")
    add("--slot", type=BYTE, default=1, help="[%(default)s]")
    add("--function", type=HALF_WORD, default=0, help="[%(default)s]")
    add("--downstream-port", dest="port", type=BYTE, default=0,
        help="of a host: the downstream port [%(default)s]")
    add("--epoch", type=WORD, default=1, help="the epoch, or the one before the first")
    add("--credits", default="16,64,32,8",
        help="guaranteed: posted, non-posted, completion, sideband; of a card 8,16,8,8 "
             "[%(default)s]")
    add("--give-up", type=seconds, default=1.0, metavar="S", help="its give-up time [%(default)s]")
    add("--keep-alive", type=seconds, default=0.5, metavar="S", help="[%(default)s]")
    add("--patience", type=seconds, default=3.0, metavar="S",
        help="longest that an answer is waited for [%(default)s]")
    add("--scratch", action="store_true", help="the largest BAR is memory that may be written")
    add("--wait", type=seconds, default=30, metavar="S",
        help="how long the implementation may take to dial [%(default)s]")
    add("--only", action="append", default=[], metavar="NAME",
        help="run these cases only, or those that begin with NAME followed by a dot")
    add("--skip", action="append", default=[], metavar="NAME", help="leave these out")
    add("--retry", type=whole(0, 1000), default=0, metavar="N",
        help="run a case that failed so many times more, on a machine that is busy with other "
             "things; it passes if it passes once [%(default)s]")
    add("--fail-fast", action="store_true", help="stop at the first case that fails")
    add("--list", action="store_true", help="name the cases, and end")
    add("--json", action="store_true", help="one JSON object instead of lines")
    add("--tap", action="store_true", help="Test Anything Protocol, version 13")
    add("--self-test", action="store_true",
        help="check the kit itself, against its own reference implementation, right and with each "
             "of its mistakes")
    add("--prefix", metavar="TEXT",
        help="print as Rust's tests do, each case's name behind this")
    add("--quiet", action="store_true", help="only what failed, and the count")
    said = parser.parse_args(argv)
    try:
        check(said)
    except ValueError as error:
        parser.error(str(error))
    return said


def check(said):
    """What the words of the command line mean, added to it; ValueError where they mean nothing."""
    parts = said.credits.split(",")
    if len(parts) != 4 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"argument --credits: {said.credits}: four numbers")
    said.credits = tuple(int(part) for part in parts)
    if said.no_manager and not (said.role and said.peer):
        raise ValueError("--no-manager needs --role and --peer")
    if said.interface:
        said.specs = (said.specs or []) + [f"eth:{said.interface}"]
    said.openers = named_as("--port", net.parse_port, said.specs or [])
    said.peers = named_as("--peer", net.parse_peer, said.peer)
    (said.manager_address,) = named_as("--manager", net.parse_address, [said.manager])
    if said.openers and said.no_manager and len(said.openers) != len(said.peers):
        raise ValueError("as many --port as --peer, in the order of the paths")


def named_as(option, read, texts):
    """What an option's values mean; the option is named where one means nothing."""
    try:
        return [read(text) for text in texts]
    except ValueError as error:
        raise ValueError(f"argument {option}: {error}") from None


def chosen(said, every):
    """The cases that were asked for."""
    def named(names, name):
        return any(name == n or name.startswith(n.rstrip(".") + ".") for n in names)
    unknown = [n for n in said.only + said.skip if not any(named([n], c.name) for c in every)]
    if unknown:
        raise ValueError(f"no case is named {', '.join(unknown)}; --list names them")
    return [c for c in every if (not said.only or named(said.only, c.name))
            and not named(said.skip, c.name)]


def reason_to_skip(case, lab):
    """Why a case has nothing to say about what is tested, or None."""
    if case.role not in (None, lab.role):
        return f"for a {case.role} only"
    if case.paths > lab.paths:
        return f"needs {case.paths} paths; there are {lab.paths}"
    if case.manager and not lab.manager:
        return "needs a manager"
    if case.udp and not isinstance(lab.ports[0], net.UdpPort):
        return "raw Ethernet has no such marks"
    return None


def run_case(case, lab):
    """(outcome, what was seen), of the first try that did not fail or of the last."""
    for _ in range(lab.settings.retry):
        outcome, text = run_once(case, lab)
        if outcome != "FAILED":
            return outcome, text
    return run_once(case, lab)


def run_once(case, lab):
    """(outcome, what was seen)"""
    reason = reason_to_skip(case, lab)
    if reason:
        return "skipped", reason
    try:
        case.run(lab)
    except Skip as skip:
        return "skipped", str(skip)
    except Failed as failed:
        return "FAILED", str(failed)
    except ControlError as error:
        return "FAILED", f"{OF_CONTROL}{error}"
    except Exception:
        return "FAILED", OF_THE_KIT + traceback.format_exc(limit=-3)
    return "passed", None


class Report:
    """Prints each outcome, and all of them at the end."""

    def __init__(self, said, count, role):
        self.said, self.count, self.role, self.done = said, count, role, []
        if said.tap:
            print(f"TAP version 13\n1..{count}")

    def add(self, case, outcome, text, seconds):
        """A case ended."""
        self.done.append({"case": case.name, "section": case.section, "about": case.about,
                          "outcome": outcome, "seen": text, "seconds": round(seconds, 3)})
        if self.said.json:
            return
        if self.said.tap:
            ok = "not ok" if outcome == "FAILED" else "ok"
            skip = f" # SKIP {text}" if outcome == "skipped" else ""
            print(f"{ok} {len(self.done)} - {case.name} (section {case.section}){skip}")
            for line in (text or "").splitlines() if outcome == "FAILED" else []:
                print(f"# {line}")
        elif self.said.prefix is not None:
            how = {"passed": "ok", "skipped": f"ignored, {text}"}.get(outcome, outcome)
            # A case of the other role is none.
            if case.role in (None, self.role):
                print(f"test {self.said.prefix}{case.name} ... {how}")
            for line in (text or "").splitlines() if outcome == "FAILED" else []:
                print(f"    {line}")
        elif not self.said.quiet or outcome == "FAILED":
            print(f"{case.name:32} {outcome:8} section {case.section:4} {seconds:6.2f} s"
                  + (f"  {text}" if outcome == "skipped" else ""))
            if outcome == "FAILED":
                print(f"    the rule: {case.about}")
                for line in text.splitlines():
                    print(f"    {line}")
        sys.stdout.flush()

    def end(self):
        """All of them ended; gives the exit status."""
        counts = {name: sum(d["outcome"] == name for d in self.done)
                  for name in ("passed", "FAILED", "skipped")}
        summary = {"passed": counts["passed"], "failed": counts["FAILED"],
                   "skipped": counts["skipped"]}
        if self.said.json:
            print(json.dumps({"cases": self.done, **summary}, indent=1))
        elif self.said.prefix is not None:
            verdict = "FAILED" if counts["FAILED"] else "ok"
            print(f"test result: {verdict}. {counts['passed']} passed; {counts['FAILED']} failed; "
                  f"{counts['skipped']} ignored")
        elif not self.said.tap:
            print(", ".join(f"{count} {name}" for name, count in summary.items()))
        if counts["FAILED"]:
            return FAILED
        # Nothing that passed is nothing that was shown.
        return PASSED if counts["passed"] else COULD_NOT


def port_name(path):
    """A port of the kit's own, as --port has it."""
    kind, address, port = path
    return f"eth {address.hex(':')}" if kind == "eth" else f"udp:{address}:{port}"


def list_cases(said, every):
    """Names the cases."""
    if said.json:
        print(json.dumps([{k: v for k, v in vars(c).items() if k != "run"} for c in every],
                         indent=1))
        return PASSED
    for c in every:
        print(f"{c.name:32} section {c.section:5} {c.about}")
    return PASSED


def open_lab(said):
    """The implementation, reached."""
    ports = [opener() for opener in said.openers]
    manager = None
    if not said.no_manager:
        manager = Manager(said.manager_address, said.node)
        if not said.json and not said.quiet:
            host, port = manager.address
            print(f"waiting for the implementation to dial its manager at {host}:{port}",
                  file=sys.stderr, flush=True)
        manager.wait_for_proxy(said.wait)
    paths = manager.hello.paths if manager else said.peers
    lab = Lab(said, ports or [net.UdpPort("127.0.0.1") for _ in paths], manager)
    if said.role and lab.role != said.role:
        raise ControlError(f"it says that it is a {lab.role}, not a {said.role}")
    return lab


def main(argv=None):
    """Runs what was asked for; gives the exit status."""
    said = arguments(argv)
    every = cases.load()
    try:
        wanted = chosen(said, every)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    if said.list:
        return list_cases(said, wanted)
    if said.self_test:
        from .self_test import self_test
        return self_test(said, wanted)
    try:
        lab = open_lab(said)
    except (ControlError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return COULD_NOT
    report = Report(said, len(wanted), lab.role)
    for case in wanted:
        start = time.monotonic()
        outcome, text = run_case(case, lab)
        report.add(case, outcome, text, time.monotonic() - start)
        if lab.manager and lab.manager.lost:
            print(f"error: {lab.manager.lost}", file=sys.stderr)
            report.end()
            return FAILED
        if outcome == "FAILED" and not (lab.manager or lab.heard):
            own = ", ".join(port_name(port.path) for port in lab.ports)
            peers = ", ".join(said.peer)
            print(f"error: nothing at all came from {peers} to {own}: is it running, and told where "
                  "the kit is, both node numbers and a binding?", file=sys.stderr)
            report.end()
            return COULD_NOT
        if outcome == "FAILED" and said.fail_fast:
            break
    return report.end()

"""Runs the kit against itself, and against box-proxy and host-proxy over UDP and, where there may be
a pair of interfaces for it, over raw Ethernet, all at a time.

    python3 run.py PROGRAMS WORK

PROGRAMS is the folder of the daemons, WORK one for logs. Prints what a Rust test program under
`cargo test` would: `test NAME ... ok` for each case, and a result. Exit status 1 if one failed, 2
if they could not be run.
"""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
KIT = [sys.executable, "-B", str(HERE / "dxpu_conformance.py")]
FABRIC = ["udp:127.0.0.1:0"] * 2
# What a daemon is told, and the kit of it.
ROLES = {"box": (["--slot", "1=accelerator"], ["--scratch"]),
         "host": (["--ports", "4"], ["--slot", "3"])}
BOUND_S = 600
# A machine that is busy with other things delays what has to come in time.
RETRY = ["--retry", "2"]


def free_port(stack):
    """A port that is given to nobody else, and that the kit may listen at all the same."""
    kept = stack.enter_context(socket.socket())
    # The kit's listener has this option, too: together they may have one port while only one listens.
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept.getsockname()[1]


def cable(stack, name):
    """Two interfaces with a cable between them: the kit's, and the daemon's."""
    ends = f"{name}-kit", f"{name}-proxy"

    def ip(*words):
        subprocess.run(["ip", "link", *words], check=True, capture_output=True, text=True)

    ip("add", ends[0], "mtu", "9000", "type", "veth", "peer", "name", ends[1], "mtu", "9000")
    stack.callback(ip, "delete", ends[0])
    for end in ends:
        ip("set", end, "up")
    return [f"eth:{end}" for end in ends]


def cables(stack):
    """Two for each daemon, as the kit's ends of both and the daemon's; or why there are none."""
    def both(role):
        return list(zip(*(cable(stack, f"{role[0]}{os.getpid()}{path}") for path in "ab")))

    try:
        return {role: both(role) for role in ROLES}, ""
    except FileNotFoundError:
        return {}, "it needs ip: install the package iproute2"
    except subprocess.CalledProcessError as error:
        return {}, f"it needs a pair of interfaces (veth): {error.stderr.strip()}"


def daemon(stack, work, programs, role, suffix, fabric, ports):
    """Starts a daemon that dials the kit; gives the kit's arguments for it."""
    manager = f"127.0.0.1:{free_port(stack)}"
    of_daemon, of_kit = ROLES[role]
    name = f"{role}{suffix}"
    command = [programs / f"{role}-proxy", "--name", name, "--manager", manager, "--fabric",
               ",".join(fabric), *of_daemon]
    if role == "host":
        tlp_socket = work / f"tlp{suffix}.sock"
        tlp_socket.unlink(missing_ok=True)
        command += ["--tlp-socket", tlp_socket]
    log = stack.enter_context(open(work / f"{name}.log", "w"))
    process = subprocess.Popen([str(word) for word in command], cwd=work, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return ["--manager", manager, "--role", role, *of_kit, *(f"--port={port}" for port in ports)]


def main():
    """Runs them; gives the exit status."""
    programs, work = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    work.mkdir(parents=True, exist_ok=True)
    print("Running the conformance kit of the wire (tests/conformance)", flush=True)
    with contextlib.ExitStack() as stack:
        runs = {"self-test": ["--self-test"]}
        pairs, why_none = cables(stack)
        for role in ROLES:
            runs[f"{role}-proxy"] = daemon(stack, work, programs, role, "", FABRIC, [])
            if pairs:
                ports, fabric = pairs[role]
                runs[f"{role}-proxy-ethernet"] = daemon(stack, work, programs, role, "-ethernet",
                                                        fabric, ports)
        if not pairs:
            print(f"test raw-ethernet ... ignored, {why_none}")
        started = {}
        for name, arguments in runs.items():
            output = stack.enter_context(open(work / f"{name}.txt", "w+"))
            command = [*KIT, *RETRY, "--prefix", f"{name}.", *arguments]
            started[name] = subprocess.Popen(command, stdout=output, stderr=output), output
        return judge(started, work, ignored=not pairs)


def vectors_are_written_anew(work):
    """Whether the vectors in the tree are what `vectors.py` writes."""
    written = work / "vectors"
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir()
    subprocess.run([sys.executable, "-B", HERE / "vectors.py", written], check=True,
                   stdout=subprocess.DEVNULL)
    kept = HERE.parent / "vectors"
    return all((kept / new.name).read_text() == new.read_text() for new in written.iterdir())


def judge(started, work, ignored):
    """Prints what the runs printed, and one result for all of them."""
    good = vectors_are_written_anew(work)
    print(f"test vectors.are_what_vectors.py_writes ... {'ok' if good else 'FAILED'}")
    passed, failed = int(good), int(not good)
    broken, failures = [], []
    for name, (process, output) in started.items():
        try:
            status = process.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = None
        output.seek(0)
        text = output.read()
        result = re.search(r"^test result: .* (\d+) passed; (\d+) failed", text, re.MULTILINE)
        for line in text.splitlines():
            if line.startswith("test ") and " ... " in line:
                print(line)
                ignored += " ... ignored, " in line
            if line.endswith("... FAILED") or line.startswith(" "):
                failures.append(line)
        if result is None or status not in (0, 1):
            broken.append(f"{name} ended with status {status}:\n{text[-2000:]}")
            continue
        passed, failed = passed + int(result[1]), failed + int(result[2])
    if failures:
        print("failures:\n" + "\n".join(failures))
    verdict = "FAILED" if failed else "ok"
    print(f"test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored")
    for why in broken:
        print(f"the kit could not be run: {why}", file=sys.stderr)
    return 2 if broken else 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

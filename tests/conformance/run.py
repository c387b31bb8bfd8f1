"""Runs the kit against itself, against box-proxy and against host-proxy, all at a time.

    python3 run.py PROGRAMS WORK

PROGRAMS is the folder of the daemons, WORK one for logs. Prints what a Rust test program under
`cargo test` would: `test NAME ... ok` for each case, and a result. Exit status 1 if one failed, 2
if they could not be run.
"""

import contextlib
import pathlib
import re
import shutil
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
KIT = [sys.executable, "-B", str(HERE / "dxpu_conformance.py")]
FABRIC = "udp:127.0.0.1:0,udp:127.0.0.1:0"
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


def daemon(stack, work, programs, name, *arguments):
    """Starts a daemon that dials the kit; gives where the kit has to listen."""
    manager = f"127.0.0.1:{free_port(stack)}"
    command = [programs / f"{name}-proxy", "--name", name, "--manager", manager, "--fabric", FABRIC,
               *arguments]
    log = stack.enter_context(open(work / f"{name}.log", "w"))
    process = subprocess.Popen([str(word) for word in command], cwd=work, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return manager


def main():
    """Runs them; gives the exit status."""
    programs, work = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    work.mkdir(parents=True, exist_ok=True)
    tlp_socket = work / "tlp.sock"
    tlp_socket.unlink(missing_ok=True)
    print("Running the conformance kit of the wire (tests/conformance)", flush=True)
    with contextlib.ExitStack() as stack:
        box = daemon(stack, work, programs, "box", "--slot", "1=accelerator")
        host = daemon(stack, work, programs, "host", "--ports", "4", "--tlp-socket", tlp_socket)
        runs = {"self-test": ["--self-test"],
                "box-proxy": ["--manager", box, "--role", "box", "--scratch"],
                "host-proxy": ["--manager", host, "--role", "host", "--slot", "3"]}
        started = {}
        for name, arguments in runs.items():
            output = stack.enter_context(open(work / f"{name}.txt", "w+"))
            command = [*KIT, *RETRY, "--prefix", f"{name}.", *arguments]
            started[name] = subprocess.Popen(command, stdout=output, stderr=output), output
        return judge(started, work)


def vectors_are_written_anew(work):
    """Whether the vectors in the tree are what `vectors.py` writes."""
    written = work / "vectors"
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir()
    subprocess.run([sys.executable, "-B", HERE / "vectors.py", written], check=True,
                   stdout=subprocess.DEVNULL)
    kept = HERE.parent / "vectors"
    return all((kept / new.name).read_text() == new.read_text() for new in written.iterdir())


def judge(started, work):
    """Prints what the runs printed, and one result for all of them."""
    good = vectors_are_written_anew(work)
    print(f"test vectors.are_what_vectors.py_writes ... {'ok' if good else 'FAILED'}")
    passed, failed = int(good), int(not good)
    ignored, broken, failures = 0, [], []
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

"""Starts a manager, a host proxy with its TLP socket and a box proxy with an accelerator, lends the
accelerator to the host, and has the tests in test_root_complex.py run in a simulator.

    python run.py PROGRAMS WORK

PROGRAMS is the folder of the daemons, WORK one for logs and the simulation. Prints what a Rust test
program under `cargo test` would: `test NAME ... ok` for each test, and a result. Exit status 1 if
one failed, 2 if they could not be run.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
APPEAR_S = 30
# How long the release waits for the operating system, which this root complex has not got.
RELEASE_BOUND_MS = 3000


class CannotRun(Exception):
    """The tests could not be run; the text says why."""


def wait_for(what, ask):
    """Asks until there is an answer."""
    bound = time.monotonic() + APPEAR_S
    while time.monotonic() < bound:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.05)
    raise CannotRun(f"waited {APPEAR_S} s in vain for {what}")


class Daemon:
    """A process that runs until the end of the `with` block that it was made for."""

    def __init__(self, stack, work, name, command):
        self.name, self.log = name, work / f"{name}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, cwd=work, stdout=log, stderr=log)
        stack.callback(self.stop)

    def check(self):
        """Fails with the end of its log if it has ended."""
        if self.process.poll() is not None:
            said = "\n".join(self.log.read_text().splitlines()[-10:])
            raise CannotRun(f"{self.name} ended with status {self.process.returncode}:\n{said}")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start(stack, programs, work):
    """The daemons, with the accelerator lent. Gives what the tests need in their environment."""
    ready, tlp_socket = work / "ready.json", work / "tlp.sock"
    for stale in (ready, work / "manager.redb", tlp_socket):
        stale.unlink(missing_ok=True)
    daemons = [Daemon(stack, work, "manager", [
        programs / "dxpu-manager", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0",
        "--store", "manager.redb", "--ready-file", ready])]

    def check(answer):
        for daemon in daemons:
            daemon.check()
        return answer

    wait_for("the manager to listen", lambda: check(ready.exists() and ready.stat().st_size))
    addresses = json.loads(ready.read_text())
    fabric = ["--manager", addresses["control"], "--fabric", "udp:127.0.0.1:0"]
    daemons.append(Daemon(stack, work, "host", [
        programs / "host-proxy", "--name", "host", "--tlp-socket", tlp_socket, "--ports", "4",
        *fabric]))
    daemons.append(Daemon(stack, work, "box", [
        programs / "box-proxy", "--name", "box", "--slot", "1=accelerator", *fabric]))

    def manager(*arguments):
        command = [programs / "dxpu-manager", "--server", f"http://{addresses['listen']}", *arguments]
        return [str(word) for word in command]

    def ask(*arguments):
        done = subprocess.run(manager(*arguments, "--json"), capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotRun(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    wait_for("a host and a box", lambda: check(len(ask("nodes")["items"]) == 2))
    wait_for("a free device", lambda: check(len(ask("list", "--free")["items"]) == 1))
    # The root complex comes later.
    lend = ("allocate", "--host", "host", "--model", "accelerator", "--keep-unenumerated")
    operation = ask(*lend)
    release = manager("release", operation["id"], "--within-ms", str(RELEASE_BOUND_MS))
    return {"DXPU_TLP_SOCKET": str(tlp_socket), "DXPU_RELEASE": json.dumps(release)}


def simulate(work, environment):
    """Runs the tests. Gives the results file."""
    from cocotb_tools.runner import get_runner
    os.environ.update(environment)
    runner = get_runner("icarus")
    build = work / "simulation"
    log = work / "simulation.log"
    runner.build(sources=[HERE / "top.v"], hdl_toplevel="top", build_dir=build, always=True,
                 log_file=work / "build.log", timescale=("1ns", "1ps"))
    results = runner.test(hdl_toplevel="top", test_module="test_root_complex", build_dir=build,
                          test_dir=HERE, results_xml=str(work / "results.xml"), log_file=log)
    return results, log


def report(results, log):
    """Prints a line for each test. Gives the number that failed."""
    passed = failed = 0
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        ok = problem is None
        passed, failed = passed + ok, failed + (not ok)
        print(f"test {case.get('name')} ... {'ok' if ok else 'FAILED'}")
    if passed + failed == 0:
        raise CannotRun(f"the simulator ran no tests; {log} says more")
    if failed:
        print("failures:\n" + log.read_text())
    result = "FAILED" if failed else "ok"
    print(f"test result: {result}. {passed} passed; {failed} failed; 0 ignored")
    return failed


def main():
    programs, work = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    work.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(HERE))
    print("Running cocotbext-pcie's root complex (tests/judges)", flush=True)
    try:
        with contextlib.ExitStack() as stack:
            results, log = simulate(work, start(stack, programs, work))
        return 1 if report(results, log) else 0
    except CannotRun as error:
        print(f"the judge could not be run: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

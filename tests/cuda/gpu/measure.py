"""Measures the performance model on a machine with an NVIDIA GPU and PyTorch.

    cargo build --release -p perf-model -p perf-shim
    python tests/cuda/gpu/measure.py --out DIR

Calibrates; traces the workloads of `workloads.py`; runs them as they are and under the shim with each
added round trip; predicts each from its trace, for the fabric and as the shim shows it; prints tables
(Markdown) and leaves them, a JSON file, the profile and the traces in DIR.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WORKLOADS = HERE / "workloads.py"
ROOT = HERE.parents[2]
ADDED = [3.7, 5.6, 18.8]
"""Added round trips, us: DxPU's two systems, and near the end of its Figure 4."""


def output(command):
    """What a command prints; the rest goes to standard error as it comes."""
    print("+", *command, file=sys.stderr, flush=True)
    command = [str(part) for part in command]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def lines(command):
    """Each workload's line."""
    rows = [json.loads(line) for line in output(command).splitlines() if line.startswith(b"{")]
    return {row["workload"]: row for row in rows}


def measure(options):
    """Everything, as one object, which is saved as it grows."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = {"machine": output(query).decode().strip(), "workloads": {}, "runs": {}}
    profile = options.out / "profile.toml"
    command = [options.perf, "calibrate", "--json", "--output", profile]
    found["calibration"] = json.loads(output(command))
    python = [sys.executable, WORKLOADS]

    traces = options.out / "traces"
    traces.mkdir(exist_ok=True)
    for name, row in lines([*python, "--traces", traces, *options.names]).items():
        found["workloads"][name] = {"traced_steps": row["traced_steps"]}
    python += ["--round", options.round, *options.names]
    for name, row in lines(python).items():
        found["workloads"][name]["alone"] = row
    save(options, found)

    native = found["calibration"]["read_rtt_ns"]
    for added in options.added:
        label = f"{added:g} us"
        rtt = ["--native-rtt", f"{native}ns", "--rtt", f"{native + round(added * 1000)}ns"]
        report = options.out / "report.json"
        command = [options.perf, "run", "--quiet", "--json", report, "--range", "profiler"]
        for name, row in lines([*command, "--profile", profile, *rtt, "--", *python]).items():
            found["workloads"][name][label] = {"injected": row}
        run = json.loads(report.read_text())
        delays = sum(process["delays_gpu"] for process in run["processes"])
        putting = round(run["putting_ns"] / max(delays, 1))
        found["runs"][label] = {"putting_each_ns": putting, "report": run}
        for name, row in found["workloads"].items():
            of_steps = row[label]["injected"]["outside_us"] * row["traced_steps"] * 1000
            command = [options.perf, "predict", traces / f"{name}.json.gz", "--json"]
            command += ["--profile", profile, *rtt, "--untraced", f"{of_steps:.0f}ns"]
            for what, more in (("fabric", []), ("shim", ["--putting", f"{putting}ns"])):
                row[label][what] = json.loads(output([*command, *more]))
        save(options, found)
    return found


def save(options, found):
    """Leaves what is known so far."""
    (options.out / "measured.json").write_text(json.dumps(found, indent=1))


def left(prediction):
    """The part of a program's speed that is left, in percent."""
    return prediction["trace"]["native_ns"] / prediction["prediction"]["predicted_ns"] * 100


def tables(found, added):
    """The tables in Markdown."""
    yield found["machine"]
    for each in added:
        label = f"{each:g} us"
        yield ""
        yield f"{label} added to a round trip:"
        yield ""
        head = ["workload", "step us", "injected %", "from", "to", "predicted %", "points"]
        head += ["over a fabric %"]
        yield "| " + " | ".join(head) + " |"
        yield "|---" + "|---:" * (len(head) - 1) + "|"
        for name, row in found["workloads"].items():
            injected, shim, fabric = (row[label][what] for what in ("injected", "shim", "fabric"))
            percent, predicted = injected["left_percent"], left(shim)
            cells = [name, f"{injected['outside_us']:.1f}", f"{percent:.1f}"]
            cells += [f"{injected[what]:.1f}" for what in ("least_percent", "most_percent")]
            cells += [f"{predicted:.1f}", f"{predicted - percent:+.1f}", f"{left(fabric):.1f}"]
            yield "| " + " | ".join(cells) + " |"


def main():
    """Measures, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="workloads; all of them without")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--perf", type=pathlib.Path, default=ROOT / "target/release/dxpu-perf")
    parser.add_argument("--round", default="0.1", metavar="SECONDS")
    parser.add_argument("--added", type=float, nargs="+", default=ADDED, metavar="US")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(tables(measure(options), options.added)) + "\n"
    (options.out / "tables.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()

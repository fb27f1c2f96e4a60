#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check.py with doctored files: it passes what is good and fails what is not.

usage: test_check.py DIRECTORY_OF_CHECK_PY
"""
import copy
import json
import os
import subprocess
import sys
import tempfile

directory = sys.argv[1]
sys.path.insert(0, directory)
sys.dont_write_bytecode = True
import check  # noqa: E402

failures = []


def good():
    """A full run with made-up figures: row n has ratio n + 1 and a noise of a tenth of it."""
    rows = []
    for n, key in enumerate(check.KEYS):
        less = not key.endswith("_pct")
        runs = [n + 1.0, (n + 1) * (1.1 if less else 0.9)]
        rows.append({"key": key, "what": "words", "unit": "", "better": "less" if less else "more",
                     "goal": n + 1.5 if less else n + 0.5, "ratio": n + 1.0,
                     "noise": max(runs) - min(runs), "met": True, "why": None, "runs": runs,
                     "values": [{"name": "a", "unit": "us", "value": 2, "low": 1, "high": 3}]})
    machine = {"cpu": "a CPU", "cpus": 2, "governor": "", "kernel": "a kernel", "client_cpu": 0,
               "worker_cpu": 1, "line_operation": "an instruction", "line_bytes": 64,
               "clean_ns": 3.0, "flush_ns": 3.0, "barrier_ns": 10.0}
    return {"version": 1, "short": False, "runs": 5, "rounds": 31, "seed": 1, "machine": machine,
            "rows": rows, "entry_sizes": [{"entry_bytes": 64, "daemon_us": 1.0}],
            "latency": [{"key": "a", "name": "a", "p50_ns": 1, "p90_ns": 2, "p99_ns": 3,
                         "p99_9_ns": 4, "max_ns": 5}]}


def row(document, key):
    return next(row for row in document["rows"] if row["key"] == key)


def no_number(row, why):
    row.update(ratio=None, noise=None, met=None, why=why, runs=[], values=[])


def run(expected, what, *arguments):
    result = subprocess.run([sys.executable, "-B", os.path.join(directory, "check.py"), *arguments],
                            capture_output=True, text=True)
    if (result.returncode == 0) != expected:
        failures.append(f"{what}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def move(document, key, by):
    """The whole row by so much of its noise, towards worse."""
    changed = row(document, key)
    change = changed["noise"] * by * (1 if changed["better"] == "less" else -1)
    changed["ratio"] += change
    changed["runs"] = [value + change for value in changed["runs"]]
    changed["goal"] = None
    changed["met"] = None


with tempfile.TemporaryDirectory() as work:
    def save(document):
        path = os.path.join(work, "compare.json")
        with open(path, "w") as file:
            json.dump(document, file)
        return path

    def doctored(change, expected, what, *, shape):
        document = copy.deepcopy(good())
        change(document)
        path = save(document)
        arguments = ("--shape", path) if shape else (path, baseline)
        return run(expected, what, *arguments)

    baseline = os.path.join(work, "baseline.json")
    run(True, "recording a good run", "--record", save(good()), baseline)
    doctored(lambda d: None, True, "the run that was recorded", shape=False)
    doctored(lambda d: None, True, "the shape of a good run", shape=True)

    for key in ("rtt_vs_pingpong", "sg4k_reduction_pct"):
        doctored(lambda d: move(d, key, 0.9), True, f"{key} worse within its noise", shape=False)
        doctored(lambda d: move(d, key, -5), True, f"{key} better", shape=False)
        said = doctored(lambda d: move(d, key, 1.1), False, f"{key} worse", shape=False)
        if key not in said:
            failures.append(f"{key} is worse, and this does not name it: {said}")
    doctored(lambda d: no_number(row(d, "rss_anon_mib"), "a reason"), False,
             "a recorded row without a number", shape=False)
    doctored(lambda d: d.update(short=True), False, "a short form compared", shape=False)
    doctored(lambda d: d["machine"].update(cpu="another"), True, "another machine", shape=False)

    # A floor under the noise: a row that never varied is not held to its last digit.
    flat = good()
    row(flat, "fairness_users").update(runs=[19.0, 19.0], noise=0.0)
    run(True, "recording a row without noise", "--record", save(flat), baseline)
    row(flat, "fairness_users").update(runs=[19.2, 19.2], ratio=19.2)
    run(True, "worse within the floor of the noise", save(flat), baseline)
    row(flat, "fairness_users").update(runs=[20.0, 20.0], ratio=20.0, met=False)
    run(False, "worse than the floor of the noise", save(flat), baseline)
    # Of a reduction of 97 % the floor is a part of the other 3 %.
    row(flat, "fairness_users").update(runs=[19.0, 19.0], ratio=19.0, met=True)
    reduction = row(flat, "sg4k_reduction_pct")
    reduction.update(unit="%", runs=[97.0, 97.0], ratio=97.0, noise=0.0)
    run(True, "recording a reduction", "--record", save(flat), baseline)
    reduction.update(runs=[96.95, 96.95], ratio=96.95)
    run(True, "a reduction worse within the floor", save(flat), baseline)
    reduction.update(runs=[96.8, 96.8], ratio=96.8)
    run(False, "a reduction worse than the floor", save(flat), baseline)
    # What must stay zero has no floor.
    row(flat, "fairness_users").update(runs=[19.0, 19.0], ratio=19.0, met=True)
    row(flat, "idle_wakeups").update(runs=[0.0, 0.0], ratio=0.0, noise=0.0)
    run(True, "recording a row of zero", "--record", save(flat), baseline)
    row(flat, "idle_wakeups").update(runs=[1.0, 1.0], ratio=1.0)
    run(False, "one wake-up where there was none", save(flat), baseline)

    for change, what in (
            (lambda d: d.update(short=True), "the short form"),
            (lambda d: d.update(runs=4), "four runs"),
            (lambda d: d.update(rounds=30), "thirty rounds")):
        document = good()
        change(document)
        run(False, "recording " + what, "--record", save(document), baseline)

    doctored(lambda d: no_number(row(d, "rss_anon_mib"), "a reason"), True,
             "a row with a reason", shape=True)
    for change, what in (
            (lambda d: no_number(row(d, "rss_anon_mib"), ""), "a row with no reason"),
            (lambda d: d["rows"].pop(), "a row less"),
            (lambda d: row(d, "rss_anon_mib").update(ratio=1.0), "a ratio that is not the best"),
            (lambda d: row(d, "rss_anon_mib").update(noise=0.0), "a noise that is not of the runs"),
            (lambda d: row(d, "rss_anon_mib").update(met=False), "a goal met and denied"),
            (lambda d: row(d, "rss_anon_mib").update(values=[]), "no absolute value"),
            (lambda d: row(d, "rss_anon_mib").pop("why"), "a member less"),
            (lambda d: d["machine"].update(clean_ns=0), "no cost of a line"),
            (lambda d: d["latency"][0].update(p90_ns=9), "percentiles that fall"),
            (lambda d: d.update(version=2), "another version")):
        doctored(change, False, what, shape=True)
    with open(os.path.join(work, "compare.json"), "w") as file:
        file.write("{")
    run(False, "half a file", "--shape", os.path.join(work, "compare.json"))

for failure in failures:
    print("FAILED:", failure)
sys.exit(1 if failures else 0)

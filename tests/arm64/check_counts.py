#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs issue_batches under user emulation and compares what it executed with what it had to.

check_counts.py PLUGIN PROGRAM EMULATOR
"""

import os
import subprocess
import sys
import tempfile

# What stands for a line cleaned, a line flushed, the opening fence and the completion barrier.
INSTRUCTIONS = ("DC CVAC", "DC CIVAC", "DMB ISH", "DSB SY")

# On long ranges: each line needs its operation and an addition, the rest is shared by sixteen.
MOST_PER_LINE = 2.2

# From the copy out of the ring to the barrier, apart from the four that each of its lines takes in
# the kernel's loop, and in ours where there are fewer than sixteen in a row.
MOST_PER_ENTRY = 60


def read_reports(text):
    """The plugin's reports as (mark, {name: executed})."""
    reports = []
    counts = {}
    mark = None
    for line in text.splitlines():
        if line.startswith("mark "):
            mark, counts = line[5:], {}
        elif line == "end":
            reports.append((mark, counts))
        elif mark is not None:
            name, user, executed, _, _ = line.rsplit(" ", 4)
            assert user == "user"
            if int(executed):  # else the kernel alone did
                counts[name] = int(executed)
    return reports


def main():
    plugin, program, emulator = sys.argv[1:]

    with tempfile.TemporaryDirectory() as directory:
        log = os.path.join(directory, "counts.txt")
        run = subprocess.run(
            [emulator, "-plugin", plugin + ",all=on", "-d", "plugin", "-D", log, program],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        # Debian 13's user emulators are linked statically and take none.
        if run.returncode != 0 and "unknown option 'plugin'" in run.stderr:
            print(f"skipped: {emulator} was built without plugins, so nothing can be counted")
            sys.exit(77)
        sys.stderr.write(run.stderr)
        if run.returncode != 0:
            sys.exit(f"{emulator} {program}: exit status {run.returncode}")
        with open(log, encoding="ascii") as file:
            reports = read_reports(file.read())

    cases = [line.split("\t") for line in run.stdout.splitlines()]
    # Between a mark 0 and the mark 1 after it lies one case.
    measured = [counts for mark, counts in reports if mark == "1"]
    if not cases or len(cases) != len(measured):
        sys.exit(f"{len(cases)} cases, {len(measured)} reports")

    failures = 0
    for (name, *numbers, per_line), counts in zip(cases, measured):
        # What is not named must not be executed, no other barrier or operation either.
        wanted = {what: int(number) for what, number in zip(INSTRUCTIONS, numbers) if int(number)}
        executed = dict(counts)
        total = executed.pop("INSTRUCTIONS", 0)
        good = executed == wanted and total > 0
        note = ""
        if per_line == "per-line":
            ratio = total / (int(numbers[0]) + int(numbers[1]))
            note = f", {ratio:.3f} instructions a line"
            good = good and ratio <= MOST_PER_LINE
        elif per_line == "kernel":
            ratio = total / int(numbers[0])
            note = f", {ratio:.3f} instructions a line"
            good = good and 4 <= ratio < 4.1
        elif per_line.startswith("per-entry-"):
            lines = int(numbers[0]) + int(numbers[1])
            ratio = (total - 4 * lines) / int(per_line[len("per-entry-"):])
            note = f", {ratio:.1f} instructions an entry"
            good = good and ratio <= MOST_PER_ENTRY
        shown = ", ".join(f"{number} {what}" for what, number in executed.items())
        print(f"{'ok' if good else 'FAILED'}: {name}: {shown}{note}")
        if not good:
            print(f"    expected: {wanted}, at most {MOST_PER_LINE} instructions a line, "
                  f"{MOST_PER_ENTRY} an entry")
            failures += 1
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

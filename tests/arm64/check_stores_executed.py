#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs write_blocks under user emulation, as each CPU, and compares what it executed.

check_stores_executed.py PLUGIN PROGRAM EMULATOR
check_stores_executed.py --ran COUNTS LOG yes|no

With --ran it ran before, in a virtual machine: the reports are in COUNTS, what it printed is among
the lines of LOG, and the CPU needs a barrier or not. Prints VM-RESULT lines then.
"""

import os
import subprocess
import sys
import tempfile

from check_counts import read_reports

OLYMPUS = "0x4e0f0100"
OTHERS = ("0x410fd0c1", "0x410fd034", "0x4e0f0040")  # Neoverse-N1, Cortex-A53 r0p4, Carmel


def behind(stores, barrier):
    """Plain stores; (barrier where the CPU needs one, what stands there where it does not)."""
    return lambda needed: dict(stores, **({barrier[0]: 1} if needed else
                                          {barrier[1]: 1} if barrier[1] else {}))


def always(counts):
    return lambda needed: counts


BARRIER = ("DMB OSH", None)
HINT = ("DMB OSH", "DGH")

# What each case executes, all of it: no other store, barrier or hint.
CASES = {
    "memset 4096": behind({"STR X": 512}, BARRIER),
    "memcpy_to 4096": behind({"STR X": 512}, BARRIER),
    "memcpy_to 4096, source unaligned": behind({"STR X": 512}, BARRIER),
    "write64_copy 512": behind({"STR X": 512}, HINT),
    "write32_copy 1024": behind({"STR W": 1024}, HINT),
    "memset 4096, each": always({"STLR X": 512}),
    "memcpy_to 4096, each": always({"STLR X": 512}),
    "write64_copy 512, each": always({"STLR X": 512}),
    "write32_copy 1024, each": always({"STLR W": 1024}),
    "memset 4096, each without ORDERED":
        lambda needed: {"STLR X": 512} if needed else {"STR X": 512},
    "memset 4096, ordered": always({"STR X": 512, "DMB OSH": 1}),
    "memset 4096, relaxed": always({"STR X": 512}),
    "memset 4096, flush": behind({"STR X": 512}, HINT),
    "write64_copy 512, relaxed": always({"STR X": 512, "DGH": 1}),
    "memset 33 at 3": behind({"STRB": 9, "STR X": 3}, BARRIER),
    "memcpy_to 33 at 3": behind({"STRB": 9, "STR X": 3}, BARRIER),
    "memset 33 at 3, each": always({"STLRB": 9, "STLR X": 3}),
    "memset 4 at 3": behind({"STRB": 4}, BARRIER),
    "memset 0": behind({}, BARRIER),
    "write8": lambda needed: {"DMB OSHST": 1, "STLRB" if needed else "STRB": 1},
    "write16": lambda needed: {"DMB OSHST": 1, "STLRH" if needed else "STRH": 1},
    "write32": lambda needed: {"DMB OSHST": 1, "STLR W" if needed else "STR W": 1},
    "write64": lambda needed: {"DMB OSHST": 1, "STLR X" if needed else "STR X": 1},
    "write32, ordered": always({"DMB OSHST": 1, "STR W": 1, "DMB OSH": 1}),
    "write32, relaxed": always({"DMB OSHST": 1, "STR W": 1}),
}


def compare(lines, reports, needed, label):
    """[(case, wanted, executed)]; exits where the cases are not those of the table."""
    wanted_line = "needs a barrier" if needed else "needs none"
    lines = lines[lines.index(wanted_line) + 1:] if wanted_line in lines else []
    if not lines:
        sys.exit(f"{label}: did not print \"{wanted_line}\"")
    names = [line for line in lines if line in CASES or line == "read_from 4096"]
    measured = [counts for mark, counts in reports if mark == "1"]
    if names != list(CASES) + ["read_from 4096"] or len(measured) != len(names):
        sys.exit(f"{label}: {len(names)} cases, {len(measured)} reports")
    compared = [(name, CASES[name](needed), counts)
                for name, counts in zip(names, measured) if name in CASES]
    # Where the words that were read go to is not device memory; but no barrier there.
    last = measured[-1]
    compared.append(("read_from 4096", {}, {name: number for name, number in last.items()
                                            if not name.startswith("ST")}))
    return compared


def run(plugin, program, emulator, midr):
    with tempfile.TemporaryDirectory() as directory:
        log = os.path.join(directory, "counts.txt")
        done = subprocess.run(
            [emulator, "-E", f"DMASYNC_IO_MIDR={midr}", "-plugin", plugin + ",stores=on", "-d",
             "plugin", "-D", log, program],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        # Debian 13's user emulators are linked statically and take none.
        if done.returncode != 0 and "unknown option 'plugin'" in done.stderr:
            print(f"skipped: {emulator} was built without plugins, so nothing can be counted")
            sys.exit(77)
        sys.stderr.write(done.stderr)
        if done.returncode != 0:
            sys.exit(f"{emulator} {program}: exit status {done.returncode}")
        with open(log, encoding="ascii") as file:
            return done.stdout.splitlines(), read_reports(file.read())


def main():
    failures = 0
    if sys.argv[1] == "--ran":
        counts, log, needed = sys.argv[2:]
        with open(counts, encoding="ascii") as file:
            reports = read_reports(file.read())
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        for name, wanted, executed in compare(lines, reports, needed == "yes", log):
            label = "stores-" + name.replace(",", "").replace(" ", "-")
            print(f"VM-RESULT {label} pass" if executed == wanted else
                  f"VM-RESULT {label} fail expected {wanted}, executed {executed}")
        return

    for midr in (OLYMPUS,) + OTHERS:
        lines, reports = run(*sys.argv[1:], midr)
        for name, wanted, executed in compare(lines, reports, midr == OLYMPUS, midr):
            shown = ", ".join(f"{number} {what}" for what, number in executed.items()) or "nothing"
            print(f"{'ok' if executed == wanted else 'FAILED'}: {midr}: {name}: {shown}")
            if executed != wanted:
                print(f"    expected: {wanted}")
                failures += 1
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

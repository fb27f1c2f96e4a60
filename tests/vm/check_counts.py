#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares what a guest executed with what count_batches said that it must: all equalities.

check_counts.py COUNTS LOG: the plugin's reports and the guest's output. Prints VM-RESULT and
VM-TABLE lines.
"""

import sys

# The columns of a VM-COUNT line.
COLUMNS = (("DC CVAC", "user"), ("DC CIVAC", "user"), ("DSB SY", "user"),
           ("DC CVAC", "kernel"), ("DC CIVAC", "kernel"), ("DC IVAC", "kernel"),
           ("DSB SY", "kernel"))
# No other DSB, and no other maintenance by address, is executed in user mode.
ABSENT = [kind + " " + domain for kind in ("DSB",)
          for domain in ("ST", "LD", "ISH", "ISHST", "ISHLD", "OSH", "OSHST", "OSHLD", "NSH",
                         "NSHST", "NSHLD", "OTHER")] + ["DC CVAU", "DC CVAP", "DC CVADP"]


def read_reports(path):
    """The reports between a mark 0 and the mark 1 after it: {(name, mode): executed}."""
    reports, mark, counts = [], None, {}
    with open(path, encoding="ascii") as file:
        for line in map(str.strip, file):
            if line.startswith("mark "):
                mark, counts = line[5:], {}
            elif line == "end":
                if mark == "1":
                    reports.append(counts)
                mark = None
            elif mark is not None:
                name, _, user, _, kernel = line.rsplit(" ", 4)
                counts[name, "user"], counts[name, "kernel"] = int(user), int(kernel)
    return reports


def main():
    with open(sys.argv[2], encoding="utf-8", errors="replace") as file:
        cases = [line.rstrip("\n").split("\t")[1:] for line in file
                 if line.startswith("VM-COUNT\t")]
    reports = read_reports(sys.argv[1])
    if not cases or len(cases) != len(reports):
        print(f"VM-RESULT counts fail {len(cases)} cases, {len(reports)} reports")
        return

    print(f"VM-TABLE {'':<62} {'user mode':^22} {'kernel':^29}")
    print("VM-TABLE {:<62} {:>6} {:>7} {:>7} {:>6} {:>7} {:>6} {:>7}".format(
        "executed", "cvac", "civac", "dsb sy", "cvac", "civac", "ivac", "dsb sy"))
    for number, ((name, *expected), counts) in enumerate(zip(cases, reports), 1):
        seen = [counts.get(column, 0) for column in COLUMNS]
        wrong = [f"{mode} {what} {is_} instead of {must}"
                 for (what, mode), is_, must in zip(COLUMNS, seen, expected)
                 if must != "-" and is_ != int(must)]
        wrong += [f"user {what} {counts[what, 'user']}" for what in ABSENT
                  if counts.get((what, "user"), 0)]
        shown = [str(is_) if must != "-" else "" for is_, must in zip(seen, expected)]
        print("VM-TABLE {:<62} {:>6} {:>7} {:>7} {:>6} {:>7} {:>6} {:>7}".format(name, *shown))
        print(f"VM-RESULT count-{number} {'fail' if wrong else 'pass'} {name}"
              + "".join("; " + text for text in wrong))


if __name__ == "__main__":
    main()

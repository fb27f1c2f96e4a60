#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that PROTOCOL.md and the headers say the same.

check_protocol.py ROWS_PROGRAM PROTOCOL.md [RING_ACCESS.h]

Every heading that ROWS_PROGRAM prints must stand in the page once, and the table under it must have
the printed rows, each as the start of one, in order and no other. Every function of ring_access.h
that orders something must be named in the page.
"""
import re
import subprocess
import sys


def tables(lines):
    """Rows of the first table under each '#### ' heading, without its head."""
    found, heading, rows, ended = {}, None, [], False
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("#"):
            heading, rows, ended = line, [], False
            if line.startswith("#### "):
                if line in found:
                    sys.exit(f"heading twice: {line}")
                found[line] = rows
        elif line.startswith("| ") and heading and not ended:
            rows.append(line)
        elif rows:
            ended = True
    return found


def main():
    program, page = sys.argv[1:3]
    text = open(page, encoding="utf-8").read()
    documented = tables(text.splitlines())
    wrong = 0
    printed = {}
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        if line.startswith("#### "):
            rows = printed.setdefault(line, [])
        else:
            rows.append(line)
    for heading, rows in printed.items():
        seen = documented.get(heading)
        if seen is None:
            print(f"missing: {heading}")
            wrong += 1
            continue
        seen = seen[2:]  # its head, and the dashes under it
        for index in range(max(len(rows), len(seen))):
            want = rows[index] if index < len(rows) else "no further row"
            have = seen[index] if index < len(seen) else "no further row"
            if not have.startswith(want):
                print(f"{heading}, row {index + 1}\n  the headers: {want}\n  the page:    {have}")
                wrong += 1
    for heading in documented.keys() - printed.keys():
        print(f"a table that nothing is checked against: {heading}")
        wrong += 1
    if len(sys.argv) > 3:
        access = open(sys.argv[3], encoding="utf-8").read()
        for body in re.split(r"^(?=static inline)", access, flags=re.M)[1:]:
            name = re.search(r"(\w+)\(", body).group(1)
            if re.search(r"RING_(LOAD_ACQUIRE|STORE_RELEASE|EXCHANGE|FENCE)", body):
                if f"`{name}`" not in text:
                    print(f"an ordering that the page does not explain: {name}")
                    wrong += 1
    rows = sum(len(rows) for rows in printed.values())
    print(f"{len(printed)} tables, {rows} rows, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

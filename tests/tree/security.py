#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# The table of promises in SECURITY.md: every test that it names is one of meson's, every case stands
# in that test's source, every case of tests/vm is there, and no hostile test is left out.
# usage: security.py SOURCE_ROOT BUILD_ROOT
import json
import pathlib
import re
import sys

root, build = map(pathlib.Path, sys.argv[1:])
tests = {}  # name: the sources of its programs
targets = {}
for target in json.loads((build / "meson-info" / "intro-targets.json").read_text()):
    files = [name for group in target["target_sources"] for name in group.get("sources", [])]
    for output in target["filename"]:
        targets[output] = files
for test in json.loads((build / "meson-info" / "intro-tests.json").read_text()):
    tests[test["name"]] = [file for word in test["cmd"] for file in targets.get(word, [])]

rows = []
section = (root / "SECURITY.md").read_text().split("## What is promised")[1].split("\n## ")[0]
for line in section.splitlines():
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if line.startswith("|") and len(cells) == 2 and not re.fullmatch(r"-+", cells[0]):
        rows.append(cells)
rows = rows[1:]
named, wrong = set(), []
recipes = "".join(file.read_text() for file in root.glob("**/meson.build"))

for promise, shown in rows:
    names = [name.strip() for name in shown.split(",")]
    if not all(names):
        wrong.append("no test shows: " + promise)
    for name in names:
        test, _, case = name.partition(":")
        if test == "vm":
            if not (root / "tests" / "vm" / "cases" / (case + ".conf")).exists():
                wrong.append(f"tests/vm has no case {case}")
            continue
        named.add(test)
        found = [other for other in tests if other == test or other.startswith(test + ",")]
        if not found and f"'{test}" in recipes:
            continue  # a test that this build has not, for want of a program
        if not found:
            wrong.append(f"meson has no test {test}")
        elif case and not any(
            re.search(r"\b" + re.escape(case) + r"\b", pathlib.Path(file).read_text())
            for file in tests[found[0]]
        ):
            wrong.append(f"{test} has no case {case}")

for test in tests:
    if test.startswith("hostile-") and not test.endswith("-epoll") and test not in named:
        wrong.append(f"SECURITY.md does not name {test}")
if len(rows) < 10:
    wrong.append(f"the table of promises has {len(rows)} rows: it is not read as it is written")
print("\n".join(wrong) or f"{len(rows)} promises, {len(named)} tests")
sys.exit(bool(wrong))

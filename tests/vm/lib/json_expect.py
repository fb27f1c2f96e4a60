#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: json_expect.py DOCUMENT < EXPECTATIONS

Checks members of a JSON document and prints a VM-RESULT line for each. An expectation is a line

    NAME PATH OPERATOR VALUE

PATH: members joined by dots; an element of an array is chosen by number ("cpus.0.midr") or by one of
its members ("drm[driver=virtio-pci].dma": the first one). OPERATOR: "is" (equal, as JSON writes it
without the quotes), "has" (contains), "above", "below" (numbers).
"""
import json
import re
import sys

STEP = re.compile(r"(\w+)(?:\[(\w+)=([^\]]*)\])?(?:\.|$)")


def find(value, path):
    at = 0
    while at < len(path):
        step = STEP.match(path, at)
        if not step:
            raise ValueError(f"no path: {path}")
        name, key, wanted = step.groups()
        value = value[int(name)] if isinstance(value, list) else value[name]
        if key:
            value = next(element for element in value if text(element[key]) == wanted)
        at = step.end()
    return value


def text(value):
    return value if isinstance(value, str) else json.dumps(value)


def holds(seen, operator, value):
    if operator == "is":
        return text(seen) == value
    if operator == "has":
        return value in text(seen)
    if operator == "above":
        return seen > float(value)
    if operator == "below":
        return seen < float(value)
    raise ValueError(f"no operator: {operator}")


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError) as error:
        print(f"VM-RESULT document fail {error}")
        return 1
    failures = 0
    for line in sys.stdin:
        if not line.strip():
            continue
        name, path, operator, value = line.strip().split(maxsplit=3)
        try:
            seen = find(document, path)
            good = holds(seen, operator, value)
        except (KeyError, IndexError, StopIteration):
            seen, good = "nothing", False
        failures += not good
        print(f"VM-RESULT {name} " + (f"pass {text(seen)}" if good else
                                      f"fail {path}: {text(seen)}, not {operator} {value}"))
    return failures > 0


sys.exit(main())

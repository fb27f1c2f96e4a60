#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks for the instructions that order the ring in ring_instances.c compiled for arm64.

check_disassembly.py [--wrong] OBJDUMP OBJECT

With --wrong the object was compiled with relaxed atomics, and every function must be found faulty.
x86 orders nearly all of it by itself: what is missing here would show on no machine of ours.
"""

import re
import subprocess
import sys

LINE = re.compile(r"^\s*[0-9a-f]+:\s+([a-z][a-z0-9.]*)\s*(.*?)(?:\s*//.*)?$")
FUNCTION = re.compile(r"^[0-9a-f]+ <([A-Za-z_0-9]+)>:$")
CALL = re.compile(r"R_AARCH64_(?:CALL|JUMP)26\s+(\w+)")

LOADS = re.compile(r"^(ld[apxu]*r[bh]?|ldp|ldur[bh]?|ldar[bh]?|ldapr[bh]?|ldaxr)$")
STORES = re.compile(r"^(str[bh]?|stp|stur[bh]?|stlr[bh]?|stlxr|stxr)$")


def disassemble(objdump, path):
    """{function: [(mnemonic, operands)]}; the operands of a call are the name called."""
    text = subprocess.run([objdump, "-dr", "--no-show-raw-insn", path], stdout=subprocess.PIPE,
                          text=True, check=True).stdout
    functions, body = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            body = functions.setdefault(match[1], [])
        elif (match := CALL.search(line)) and body:
            body[-1] = (body[-1][0], match[1])
        elif (match := LINE.match(line)) and body is not None:
            body.append((match[1], match[2]))
    return functions


def base(operands):
    """The register an address is made of."""
    match = re.search(r"\[(\w+)", operands)
    return match[1] if match else None


def positions(body, wanted):
    return [i for i, (mnemonic, operands) in enumerate(body) if wanted(mnemonic, operands)]


def is_load(mnemonic, operands):
    return bool(LOADS.match(mnemonic)) and base(operands) != "sp"


def is_store(mnemonic, operands):
    # A call is one too: a copy that the compiler left to memcpy().
    return (STORES.match(mnemonic) and base(operands) != "sp") or mnemonic == "bl"


def is_acquire(mnemonic, _):
    return mnemonic in ("ldar", "ldapr")


def is_fence(mnemonic, operands):
    return mnemonic == "dmb" and operands in ("ish", "sy")


def check_release(body, with_contents):
    """One stlr, everything that is stored before it."""
    releases = positions(body, lambda mnemonic, _: mnemonic == "stlr")
    stores = positions(body, is_store)
    if len(releases) != 1:
        return f"{len(releases)} stlr, not 1"
    if stores[-1] != releases[0]:
        return "a store after the stlr"
    if with_contents and len(stores) < 2:
        return "no contents stored before the stlr"
    return None


def check_acquire(body, with_contents):
    """An ldar or ldapr; before it only the ring's description is read, through the argument."""
    acquires = positions(body, is_acquire)
    if not acquires:
        return "no ldar or ldapr"
    x0_is_argument = True
    for mnemonic, operands in body[:acquires[0]]:
        if is_load(mnemonic, operands) and not (x0_is_argument and base(operands) == "x0"):
            return f"{mnemonic} {operands} before the {body[acquires[0]][0]}"
        if re.match("[xw]0,", operands) and not is_store(mnemonic, operands):
            x0_is_argument = False
    # The copy is made of pairs or vectors, or left to memcpy(); all else is a word.
    copies = [operands for mnemonic, operands in body[acquires[0]:]
              if mnemonic in ("ldp", "bl") or mnemonic.startswith("ld") and operands[0] == "q"]
    if with_contents and not copies:
        return "no contents read after the acquire"
    return None


def check_store_fence_load(body):
    fences = positions(body, is_fence)
    loads, stores = positions(body, is_load), positions(body, is_store)
    if len(fences) != 1:
        return f"{len(fences)} dmb ish, not 1"
    if not stores or not loads:
        return "no store or no load"
    if stores[-1] > fences[0] or loads[0] < fences[0]:
        return "the dmb ish does not stand between store and load"
    return None


def check_take(body):
    """dmb ish, a look, then a swap that is acquire and release."""
    fences, loads = positions(body, is_fence), positions(body, is_load)
    if not fences or not loads or loads[0] < fences[0]:
        return "no dmb ish before the look at the flag"
    mnemonics = [mnemonic for mnemonic, _ in body]
    calls = [operands for mnemonic, operands in body if mnemonic == "bl"]
    if "swpal" in mnemonics or {"ldaxr", "stlxr"} <= set(mnemonics):
        return None
    if calls == ["__aarch64_swp4_acq_rel"]:
        return None
    return "no swpal, no ldaxr with stlxr"


CHECKS = {
    "submit": lambda body: check_release(body, True),
    "fetch": lambda body: check_acquire(body, True),
    "publish": lambda body: check_release(body, True),
    "reap": lambda body: check_acquire(body, True),
    "consume": lambda body: check_release(body, False),
    "completions_read": lambda body: check_acquire(body, False),
    "announce_and_look": check_store_fence_load,
    "publish_and_look": check_store_fence_load,
    "take_sleeper": check_take,
}


def main():
    arguments = sys.argv[1:]
    wrong = arguments[0] == "--wrong"
    objdump, path = arguments[1:] if wrong else arguments
    functions = disassemble(objdump, path)

    failures = 0
    for name, check in CHECKS.items():
        body = functions.get(name)
        if not body:
            print(f"FAILED: {name}: not in {path}")
            failures += 1
            continue
        fault = check(body)
        if wrong:
            print(f"FAILED: {name}: relaxed, and no fault was found" if fault is None
                  else f"ok: {name} is refused: {fault}")
        else:
            print(f"ok: {name}" if fault is None else f"FAILED: {name}: {fault}")
        if (fault is None) == wrong:
            failures += 1
            print("\n".join(f"\t{mnemonic}\t{operands}" for mnemonic, operands in body))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Looks at the stores of client/iomem.c as a compiler made them, on x86-64 or arm64.

check_stores.py [--wrong] OBJDUMP OBJECT

Every call may store its stated widths and no other, by plain stores to a bare address: nothing
merged into vectors, pairs or string instructions, nothing left to memset() or memcpy(). With --wrong
the object is wrong_stores.c, the same calls as a C programmer might write them first, and each must
be found faulty.
"""

import re
import subprocess
import sys

LINE = re.compile(r"^\s*[0-9a-f]+:\s+([a-z][a-z0-9.]*)\s*(.*?)(?:\s*(?://|# ).*)?$")
FUNCTION = re.compile(r"^[0-9a-f]+ <([A-Za-z_0-9.]+)>:$")
CALL = re.compile(r"R_(?:AARCH64_(?:CALL|JUMP)26|X86_64_PL\w+|X86_64_PC32)\s+([\w.]+)")

# Bits of the stores of each call; each of them must be there.
WIDTHS = {
    "dmasync_io_memset": {8, 64},
    "dmasync_io_memcpy_to": {8, 64},
    "dmasync_io_write32_copy": {32},
    "dmasync_io_write64_copy": {64},
    "dmasync_io_write8": {8},
    "dmasync_io_write16": {16},
    "dmasync_io_write32": {32},
    "dmasync_io_write64": {64},
}
# What these may call: what asks for the flags and the CPU.
CALLS = {"form_of", "finish", "finish_copy", "dmasync_io_needs_barrier"}


def disassemble(objdump, path):
    """{function: [(mnemonic, operands)]}; the operands of a call are the name called."""
    text = subprocess.run([objdump, "-dr", "--no-show-raw-insn", path], stdout=subprocess.PIPE,
                          text=True, check=True).stdout
    functions, body = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            # What was split off ("f.cold", "f.part.0") belongs to it.
            body = functions.setdefault(match[1].split(".")[0], [])
        elif (match := CALL.search(line)) and body:
            body[-1] = (body[-1][0], match[1])
        elif (match := LINE.match(line)) and body is not None:
            body.append((match[1], match[2]))
    return text, functions


# ---- x86-64, AT&T ----

def x86_width(mnemonic, operands):
    """Bits, by the suffix or by the register stored."""
    source = operands.split(",")[0]
    if match := re.fullmatch(r"mov([bwlq])", mnemonic):
        return {"b": 8, "w": 16, "l": 32, "q": 64}[match[1]]
    name = source.lstrip("%")
    if re.fullmatch(r"[abcd][lh]|[sd]il|[sb]pl|r\d+b", name):
        return 8
    if re.fullmatch(r"[abcd]x|[sd]i|[sb]p|r\d+w", name):
        return 16
    if re.fullmatch(r"e..|r\d+d", name):
        return 32
    return 64


def x86_look(mnemonic, operands):
    """None, ("store", bits) or ("fault", words)."""
    if mnemonic in ("rep", "repz", "repnz") or re.match(r"(movs|stos)[bwlq]?$", mnemonic) and \
            "es:" in operands:
        return "fault", f"{mnemonic} {operands}"
    memory = re.search(r",\s*(?:%\w+:)?(-?\w*)\((%\w+)?[^)]*\)$", operands)
    if not memory or mnemonic.startswith(("lea", "cmp", "test")):
        return None
    # The stack; below %rbp it is a frame, otherwise a register like any other.
    if memory[2] == "%rsp" or memory[2] == "%rbp" and memory[1].startswith("-"):
        return None
    if mnemonic not in ("mov", "movb", "movw", "movl", "movq") or "%xmm" in operands or \
            "%ymm" in operands:
        return "fault", f"{mnemonic} {operands}"
    return "store", x86_width(mnemonic, operands)


# ---- arm64 ----

ARM64_STORE = {"strb": 8, "stlrb": 8, "strh": 16, "stlrh": 16}


def arm64_look(mnemonic, operands):
    if not re.match(r"st[rlpuxn]|cas|swp|ldadd|dc$", mnemonic):
        return None
    if "[sp" in operands or "[x29" in operands:
        return None
    register = operands.split(",")[0]
    if mnemonic in ARM64_STORE:
        bits = ARM64_STORE[mnemonic]
    elif mnemonic in ("str", "stlr") and register[0] in "wx":
        bits = 64 if register[0] == "x" else 32
    else:
        return "fault", f"{mnemonic} {operands}"
    # An address that is written back: a hypervisor could not emulate the access.
    if not re.search(r"\[x\d+\]$", operands):
        return "fault", f"{mnemonic} {operands}"
    return "store", bits


def check(look, body, widths):
    found = set()
    for mnemonic, operands in body:
        if mnemonic in ("call", "callq", "bl", "jmp", "b") and re.fullmatch(r"[A-Za-z_]\w*", operands):
            if operands not in CALLS and not operands.startswith(("dmasync_io_", ".text")):
                return f"calls {operands}"
        seen = look(mnemonic, operands)
        if seen and seen[0] == "fault":
            return seen[1]
        if seen:
            found.add(seen[1])
    if found != widths:
        return f"stores of {sorted(found)} bits, not {sorted(widths)}"
    return None


def main():
    arguments = sys.argv[1:]
    wrong = arguments[0] == "--wrong"
    objdump, path = arguments[1:] if wrong else arguments
    text, functions = disassemble(objdump, path)
    look = arm64_look if "aarch64" in text.splitlines()[1] else x86_look

    failures = 0
    for name, widths in WIDTHS.items():
        body = functions.get(name)
        if wrong and not body and not name.endswith(("memset", "memcpy_to", "_copy")):
            continue
        if not body:
            print(f"FAILED: {name}: not in {path}")
            failures += 1
            continue
        fault = check(look, body, widths)
        if wrong:
            print(f"FAILED: {name}: no fault was found" if fault is None
                  else f"ok: {name} is refused: {fault}")
        else:
            print(f"ok: {name}: stores of {sorted(widths)} bits" if fault is None
                  else f"FAILED: {name}: {fault}")
        if (fault is None) == wrong:
            failures += 1
            print("\n".join(f"\t{mnemonic}\t{operands}" for mnemonic, operands in body))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

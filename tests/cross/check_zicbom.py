#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads the words that riscv64.c became: they are written by number, which no assembler checks.

check_zicbom.py OBJDUMP OBJECT
"""

import re
import subprocess
import sys

WORD = re.compile(r"^\s*[0-9a-f]+:\s+([0-9a-f]{8})\s")
FUNCTION = re.compile(r"^[0-9a-f]+ <([A-Za-z_0-9]+)>:$")

# MISC-MEM with funct3 2 and rd 0: the immediate selects; rs1, masked out, is the address.
CBO = {0x0000200F: "cbo.inval", 0x0010200F: "cbo.clean", 0x0020200F: "cbo.flush",
       0x0040200F: "cbo.zero"}
FENCE_ALL = 0x0FF0000F

# What each function is made of, and nothing else of the kind.
EXPECTED = {
    "clean": {"cbo.clean"},
    "flush": {"cbo.flush"},
    "open_batch": {"fence iorw,iorw"},
    "complete": {"fence iorw,iorw"},
}


def main():
    objdump, path = sys.argv[1:]
    text = subprocess.run([objdump, "-d", path], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    found, name = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            name = match[1]
        elif match := WORD.match(line):
            word = int(match[1], 16)
            what = CBO.get(word & 0xFFF07FFF)
            if word == FENCE_ALL:
                what = "fence iorw,iorw"
            if what:
                found.setdefault(name, set()).add(what)
    good = found == EXPECTED
    print(f"{'ok' if good else 'FAILED'}: {found}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

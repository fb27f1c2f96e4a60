#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_bar.py FILE OFFSET: is what write_bar.c left at OFFSET of the BAR in the host's FILE?"""
import sys

BYTES = 4099

with open(sys.argv[1], "rb") as file:
    file.seek(int(sys.argv[2]))
    seen = file.read(BYTES)
wanted = bytes((i * 31 + i // 256 + 7) & 0xff for i in range(BYTES))
wrong = [i for i in range(BYTES) if i >= len(seen) or seen[i] != wanted[i]]
if wrong:
    print(f"{len(wrong)} of {BYTES} bytes are wrong, the first at {wrong[0]}")
sys.exit(bool(wrong))

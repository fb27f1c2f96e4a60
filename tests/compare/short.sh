#!/bin/sh
# SPDX-License-Identifier: MIT
# The short form of dmasync-compare runs, every row has a number or a reason, and the pictures can be
# drawn. usage: short.sh COMPARE SOURCE_DIRECTORY PYTHON WORK_DIRECTORY
set -eu

json=$4/compare-short.json
rm -f "$json" "$4/reduction.svg" "$4/latency.svg"
status=0
"$1" --short --json="$json" || status=$?
[ "$status" = 77 ] && exit 77
[ "$status" = 0 ] || exit 1
"$3" -B "$2/check.py" --shape "$json"
if command -v gnuplot >/dev/null; then
	"$3" -B "$2/draw.py" "$json" "$4" >"$4/drawn"
	while read -r picture; do
		case "$picture" in
		*.svg) grep -q '</svg>' "$picture" || { echo "$picture: no picture"; exit 1; } ;;
		esac
	done <"$4/drawn"
fi

#!/bin/sh
# SPDX-License-Identifier: MIT
# The short form of dmasync-compare runs, and every row has a number or a reason.
# usage: short.sh COMPARE CHECK_PY PYTHON JSON
set -eu

rm -f "$4"
status=0
"$1" --short --json="$4" || status=$?
[ "$status" = 77 ] && exit 77
[ "$status" = 0 ] || exit 1
exec "$3" -B "$2" --shape "$4"

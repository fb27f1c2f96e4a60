#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: check_verify.sh UNIT...
# systemd must understand every line of the units: its complaints are a failure even where it goes on.
command -v systemd-analyze >/dev/null || { echo "SKIP: no systemd-analyze"; exit 77; }
complaints=$(systemd-analyze verify --man=no "$@" 2>&1)
status=$?
[ -z "$complaints" ] || echo "$complaints"
# What other units of this machine do is not ours.
ours=$(echo "$complaints" | grep -c 'dmasyncd')
[ $status -eq 0 ] && [ "$ours" -eq 0 ]

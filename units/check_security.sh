#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: check_security.sh SERVICE LIMIT [DROP-IN]
# The exposure level of the service as it stands, without a running systemd: LIMIT at most.
command -v systemd-analyze >/dev/null || { echo "SKIP: no systemd-analyze"; exit 77; }
service=$1
if [ -n "$3" ]; then
	directory=$(mktemp -d) || exit 1
	trap 'rm -rf "$directory"' EXIT
	service=$directory/$(basename "$1")
	mkdir "$service.d" && cp "$1" "$service" && cp "$3" "$service.d" || exit 1
fi
report=$(systemd-analyze security --offline=true --no-pager "$service" 2>&1)
level=$(echo "$report" | sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p')
if [ -z "$level" ]; then
	echo "$report" | grep -q 'nrecognized option' &&
		{ echo "SKIP: systemd-analyze is older than 250"; exit 77; }
	echo "$report"
	exit 1
fi
echo "exposure level $level, allowed $2"
awk -v level="$level" -v limit="$2" 'BEGIN { exit !(level <= limit) }'

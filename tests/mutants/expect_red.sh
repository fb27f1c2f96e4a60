#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a test that must fail, and for the right reason.
#
#   expect_red.sh TEXT PROGRAM [ARGUMENT...]
#
# Exit status 0: the program failed by itself (status 1 to 76, no signal) and TEXT stands in its output.
set -u

text=$1
shift
output=$("$@" 2>&1)
status=$?

if [ "$status" -eq 0 ] || [ "$status" -ge 77 ]; then
	printf '%s\n' "$output"
	echo "ended with status $status, but the mutant should have turned it red" >&2
	exit 1
fi
case $output in
*"$text"*)
	printf 'red, as it should be: status %s, "%s"\n' "$status" "$text"
	;;
*)
	printf '%s\n' "$output"
	echo "red, but \"$text\" is not in its output: it failed for another reason" >&2
	exit 1
	;;
esac

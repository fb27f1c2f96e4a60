#!/bin/bash
# SPDX-License-Identifier: MIT
# usage: completion.sh COMPLETION DMASYNCCTL: what bash offers for the beginning of a command line.
set -u
source "$1"
program=$2
failed=0

expect()
{
	local expected=$1

	shift
	COMP_WORDS=("$program" "$@")
	COMP_CWORD=$#
	COMPREPLY=()
	_dmasyncctl
	if [[ ${COMPREPLY[*]} != "$expected" ]]; then
		echo "for \"$*\": \"${COMPREPLY[*]}\" instead of \"$expected\""
		failed=1
	fi
}

expect "stats clients users batches probe sync selftest bench" ""
expect "batches bench" b
expect "stats" --json --socket /nowhere st
expect "sg latency iomem" bench ""
expect "--last --follow --json --socket --help" batches --
expect "--for-device --for-cpu" sync --for
expect "--random" bench sg --r
expect "auto cma system udmabuf memfd simulated" bench sg --memory ""
expect "to_device" sync --direction t
expect "" frob --
exit $failed

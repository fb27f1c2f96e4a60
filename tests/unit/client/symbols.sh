#!/bin/sh
# SPDX-License-Identifier: MIT
# What libdmasync.so exports is what its headers declare, libdmasync.sym lists and the man pages
# name, no more, no less; and it installs no signal handler.
# usage: symbols.sh LIBRARY HEADERS SYMBOL-FILE MAN-PAGES
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$directory/exported"
# A declaration: the name, directly followed by its arguments, at the end of no comment line.
sed -e 's|/\*.*\*/||' -e '/^ \*/d' -e '/^\/\*/d' "$2"/*.h |
	grep -o 'dmasync_[a-z0-9_]*(' | tr -d '(' | sort -u >"$directory/declared"
sed -n 's/^[[:space:]]*\(dmasync_[a-z0-9_]*\);$/\1/p' "$3" | sort >"$directory/listed"
sed -n 's/^\.Nm \(dmasync_[a-z0-9_]*\).*/\1/p' "$4"/*.3 | sort -u >"$directory/named"
diff -u "$directory/declared" "$directory/exported"
diff -u "$directory/named" "$directory/exported"
diff -u "$directory/listed" "$directory/exported"
[ "$(wc -l <"$directory/exported")" -ge 28 ]
objdump -p "$1" | grep -q 'SONAME *libdmasync\.so\.0$'
# Inline mode must not bring signal handlers into the library.
! nm -D --undefined-only "$1" | grep -E ' (sigaction|signal|sigsetjmp|__sigsetjmp|siglongjmp)(@|$)'

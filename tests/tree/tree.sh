#!/bin/sh
# SPDX-License-Identifier: MIT
# Every committed file: no path or host of the machine it was written on, a licence line, no work
# left lying. usage: tree.sh SOURCE_ROOT
set -eu

cd "$1"
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1 || ! git ls-files | grep -q .; then
	echo "skipped: no git checkout, so it is not known which files are committed"
	exit 77
fi
found=$(mktemp)
trap 'rm -f "$found"' EXIT
failed=0

# complain SENTENCE: the lines on stdin are what is wrong, if there are any.
complain()
{
	cat >"$found"
	[ -s "$found" ] || return 0
	printf '%s:\n' "$1"
	cat "$found"
	return 1
}

# Bracketed so that this file does not match itself.
paths='(^|[^[:alnum:]_.-])/(work|home|Users|workspace|builds)/[[:alnum:]_.]'
hosts='deb[.]debian[.]org|(security|snapshot|ftp[.a-z]*)[.]debian[.]org|archive[.]ubuntu[.]com'
hosts="$hosts|npmj[s]|py[p]i|crate[s][.]io|proxy[.]golang|maven[.]org|rubygem[s]|nuget[.]or[g]"
addresses='(^|[^0-9.])(10|192[.]168|172[.](1[6-9]|2[0-9]|3[01]))([.][0-9]{1,3}){2,3}([^0-9.]|$)'
git grep -nIE "$paths" -- . | complain "paths of a machine" || failed=1
# A folder beside the tree may hold prebuilt kernels for tests/vm, and nothing else looks there.
git grep -nIE '[.][.]/shar[e]d' -- . ':!tests/vm' | complain "paths beside the tree" || failed=1
git grep -nIiE "$hosts" -- . | complain "hosts of package registries" || failed=1
git grep -nIE "$addresses" -- . | complain "addresses" || failed=1

# Where this very machine keeps the tree, and where its apt fetches from.
case "$PWD" in
/*/*) git grep -nIF "$PWD" -- . | complain "this checkout's own path" || failed=1 ;;
esac
for host in $(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
	sed -n 's|.*[a-z]*://\([^/:[:space:]]*\).*|\1|p' | sort -u); do
	git grep -nIF "$host" -- . | complain "the host of this machine's packages" || failed=1
done

git ls-files '*.c' '*.h' '*.sh' 'Makefile' '.ci/run' | while read -r file; do
	head -n 3 "$file" | grep -q 'SPDX-License-Identifier: MIT' || echo "$file"
done | complain "no licence line in the first three lines" || failed=1

git grep -nIE '\b(TOD[O]|FIXM[E]|XX[X])\b' -- . ':!*.md' | complain "work left lying" || failed=1

git ls-files '*.md' | while read -r file; do
	sed 's/](/\n](/g' "$file" | sed -n 's/^](\([^):# ]*\)[^):]*).*/\1/p' | while read -r target; do
		[ -z "$target" ] || [ -e "$(dirname "$file")/$target" ] || echo "$file: $target"
	done
done | complain "links to nothing" || failed=1

git ls-files | while read -r file; do
	[ -s "$file" ] && [ -n "$(tail -c 1 "$file" | tr -d '\n')" ] && echo "$file"
	:
done | complain "no newline at the end" || failed=1

exit $failed

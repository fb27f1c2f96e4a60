#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/install-deps.sh against stand-ins for dpkg-query, apt-get, sudo and id, which write down
# how they were called: nothing is installed. usage: install_deps.sh SCRIPT
set -eu

script=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
calls=$work/calls
unset INSTALL_DEPS

stand_in()
{
	cat >"$work/bin/$1"
	chmod +x "$work/bin/$1"
}

# Prints as installed what it was asked for, but $ABSENT.
stand_in dpkg-query <<'END'
#!/bin/sh
shift 3
for name; do
	case " $ABSENT " in
	*" $name "*) echo "no packages found matching $name" >&2 ;;
	*) echo "installed $name" ;;
	esac
done
END
stand_in apt-get <<END
#!/bin/sh
echo "apt-get \$*" >>"$calls"
case "\$*" in
*update*) exit "\${UPDATE_STATUS-0}" ;;
esac
END
stand_in sudo <<END
#!/bin/sh
echo "sudo" >>"$calls"
exec "\$@"
END
stand_in id <<'END'
#!/bin/sh
echo "$FAKE_UID"
END
PATH=$work/bin:$PATH
export PATH

# run UID ABSENT ARGUMENTS...: status in $status, output in $work/out, calls in $calls
run()
{
	FAKE_UID=$1 ABSENT=$2
	export FAKE_UID ABSENT
	shift 2
	: >"$calls"
	status=0
	"$script" "$@" >"$work/out" 2>&1 </dev/null || status=$?
}

fail()
{
	echo "$*"
	echo "status $status; output:"
	cat "$work/out"
	echo "calls:"
	cat "$calls"
	exit 1
}

run 1000 ""
[ "$status" = 0 ] && [ ! -s "$work/out" ] && [ ! -s "$calls" ] || fail "nothing missing: must be silent"

run 0 "meson gcc" build
[ "$status" = 0 ] || fail "root: must install"
grep -q 'apt-get .*update' "$calls" || fail "root: lists must be fetched first"
grep -q 'install --no-install-recommends gcc meson$' "$calls" || fail "root: must install what is missing alone"
grep -q sudo "$calls" && fail "root needs no sudo"

UPDATE_STATUS=100
export UPDATE_STATUS
run 0 "meson" build
grep -q 'install .*meson' "$calls" || fail "a failed update must not be the end"
unset UPDATE_STATUS

run 1000 "meson"
[ "$status" = 1 ] || fail "no root, no terminal: status must be 1"
[ ! -s "$calls" ] || fail "no root, no terminal: nothing may be called"
[ "$(grep -c 'apt-get install .*meson' "$work/out")" = 1 ] || fail "the one line must be printed"

INSTALL_DEPS=1
export INSTALL_DEPS
run 1000 "meson"
[ "$status" = 0 ] && grep -q sudo "$calls" && grep -q 'install .*meson' "$calls" ||
	fail "INSTALL_DEPS=1: must use sudo"
INSTALL_DEPS=0
run 0 "meson"
[ "$status" = 1 ] && [ ! -s "$calls" ] || fail "INSTALL_DEPS=0: must not install"
unset INSTALL_DEPS

run 1000 "libcmocka-dev" build
[ "$status" = 0 ] || fail "the demo does not need the tests' packages"
run 1000 "libcmocka-dev meson" --missing test
[ "$status" = 0 ] && [ "$(tr '\n' ' ' <"$work/out")" = "meson libcmocka-dev " ] || fail "--missing must list"
run 1000 "" everything
[ "$status" = 2 ] || fail "an unknown word must be refused"

# With a terminal: asked, and the answer counts.
if command -v script >/dev/null; then
	FAKE_UID=1000 ABSENT=meson
	export FAKE_UID ABSENT
	for answer in y n; do
		: >"$calls"
		status=0
		echo "$answer" | script -qec "$script" /dev/null >"$work/out" 2>&1 || status=$?
		case "$answer" in
		y) [ "$status" = 0 ] && grep -q 'install .*meson' "$calls" || fail "yes must install" ;;
		n) [ "$status" = 1 ] && [ ! -s "$calls" ] || fail "no must not install" ;;
		esac
		grep -q 'Install with sudo apt-get?' "$work/out" || fail "must ask"
	done
fi

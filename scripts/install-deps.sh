#!/bin/sh
# SPDX-License-Identifier: MIT
# The Debian packages that dmasync needs, and their installation. Debian 12 and newer.
#
#   install-deps.sh [build|test|compare|vm|vm-kernel]            install what is missing
#   install-deps.sh --missing [build|test|compare|vm|vm-kernel]  only print its names
#
# "build" is for building and for the demo, "test" (the default) adds what the tests need, "compare"
# what stands beside dmasync in make compare and draws it, "vm" what the tests in virtual machines
# need beyond the tests (tests/vm), "vm-kernel" what their kernel is built with. Missing packages are
# installed unasked for root and where INSTALL_DEPS=1, after a question on a terminal that has sudo;
# otherwise the command is printed and the exit status is 1.
set -eu

build_packages='
	gcc
	libc6-dev
	make
	meson
	ninja-build
	pkgconf
	libdrm-dev
	libinih-dev
	libjson-c-dev
	libsystemd-dev
	liburing-dev
'

# The second compiler with its sanitizers and libFuzzer (both in libclang-rt-dev); the cross compilers
# and the emulator for the line operations of other architectures; the checkers of man pages, units
# and format.
test_packages='
	clang
	clang-format
	g++
	gcc-aarch64-linux-gnu
	gcc-arm-linux-gnueabihf
	gcc-riscv64-linux-gnu
	libc6-dev-arm64-cross
	libc6-dev-armhf-cross
	libc6-dev-riscv64-cross
	libclang-rt-dev
	libcmocka-dev
	mandoc
	patch
	python3
	qemu-user
	systemd
	xz-utils
'

compare_packages='
	gnuplot-nox
	libpmem1
	python3
'

vm_packages='
	cpio
	device-tree-compiler
	kmod
	mmdebstrap
	e2fsprogs
	qemu-system-arm
	zstd
'

kernel_packages='
	bc
	bison
	flex
	libelf-dev
	libssl-dev
'

only_print=
if [ "${1-}" = --missing ]; then
	only_print=yes
	shift
fi
case "${1-test}" in
build) wanted=$build_packages ;;
test) wanted="$build_packages $test_packages" ;;
compare) wanted="$build_packages $compare_packages" ;;
vm) wanted="$build_packages $test_packages $vm_packages" ;;
vm-kernel) wanted="$build_packages $test_packages $vm_packages $kernel_packages" ;;
*)
	echo "usage: $0 [--missing] [build|test|compare|vm|vm-kernel]" >&2
	exit 2
	;;
esac

if ! command -v dpkg-query >/dev/null; then
	[ -n "$only_print" ] && exit 0
	echo "This is no Debian: nothing was checked. The packages are called there:" $wanted >&2
	exit 0
fi

# One process for all of them: this runs before every make demo and make check.
present=" $(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
	sed -n 's/^installed //p' | tr '\n' ' ') "
missing=
for package in $wanted; do
	case "$present" in
	*" $package "*) ;;
	*) missing="$missing $package" ;;
	esac
done
missing=${missing# }

if [ -n "$only_print" ]; then
	[ -z "$missing" ] || printf '%s\n' $missing
	exit 0
fi
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
	sudo=sudo
	if [ "${INSTALL_DEPS-}" != 1 ]; then
		if [ -t 0 ] && [ -t 2 ] && command -v sudo >/dev/null && [ "${INSTALL_DEPS-}" != 0 ]; then
			printf 'Missing: %s\nInstall with sudo apt-get? [y/N] ' "$missing" >&2
			read -r answer || answer=
		else
			answer=
		fi
		case "$answer" in
		[yY] | [yY][eE][sS]) ;;
		*)
			echo "Packages are missing. As root (or run make with INSTALL_DEPS=1, which uses sudo):" >&2
			echo "    apt-get install --no-install-recommends $missing" >&2
			exit 1
			;;
		esac
	fi
elif [ "${INSTALL_DEPS-}" = 0 ]; then
	echo "Packages are missing, and INSTALL_DEPS=0 forbids to install them:" >&2
	echo "    apt-get install --no-install-recommends $missing" >&2
	exit 1
fi

echo "Installing: $missing" >&2
# A fresh machine has no package lists. Old ones may do, so a failure here is not the end.
$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update ||
	echo "apt-get update failed; trying with the lists that are there" >&2
exec $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends \
	$missing

#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the library into a directory of its own and builds the README's example there as a
# reader would. usage: readme_example.sh README BUILD_DIRECTORY OUT_DIRECTORY
set -eu

readme=$1 build=$2 out=$3
meson install -C "$build" --no-rebuild --quiet --destdir "$out/root" >"$out/install.txt"
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$readme" >"$out/frame.c"
[ -s "$out/frame.c" ]

PKG_CONFIG_LIBDIR=$(dirname "$(find "$out/root" -name libdmasync.pc)")
PKG_CONFIG_SYSROOT_DIR=$out/root
export PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
# The flags of the README, and the warnings a strict user has; as C++ too.
flags=$(pkg-config --cflags libdmasync)
libs=$(pkg-config --libs libdmasync)
${CC-cc} -Wall -Wextra -Wpedantic -Werror "$out/frame.c" $flags $libs -o "$out/frame"
if command -v c++ >/dev/null; then
	c++ -x c++ -Wall -Wextra -Werror -fsyntax-only $flags "$out/frame.c"
fi
dirname "$(find "$out/root" -name 'libdmasync.so')"

#!/bin/sh
# SPDX-License-Identifier: MIT
# Each public header stands alone as installed, in C and in C++, without a warning.
# usage: header.sh SOURCE-ROOT C-COMPILER
set -eu
command -v c++ >/dev/null || exit 77
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mkdir -p "$directory/dmasync/proto"
cp "$1"/client/include/dmasync/*.h "$directory/dmasync/"
cp "$1"/proto/*.h "$directory/dmasync/proto/"
printf '#include <dmasync/dmasync.h>\nint main(void) { return dmasync_version() == nullptr; }\n' \
	>"$directory/test.cc"
printf '#include <dmasync/dmasync.h>\nint main(void) { return !dmasync_version(); }\n' \
	>"$directory/test.c"
printf '#include <dmasync/iomem.h>\nint main(void) { return dmasync_io_needs_barrier(); }\n' \
	>"$directory/iomem.c"
cp "$directory/iomem.c" "$directory/iomem.cc"
warnings='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only'
for standard in c++11 c++17 c++20; do
	c++ -std=$standard $warnings -I"$directory" "$directory/test.cc"
	c++ -std=$standard $warnings -I"$directory" "$directory/iomem.cc"
done
for standard in c99 c11 gnu17; do
	"$2" -std=$standard $warnings -I"$directory" "$directory/test.c"
	"$2" -std=$standard $warnings -I"$directory" "$directory/iomem.c"
done

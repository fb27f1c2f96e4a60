#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: install_config.sh SOURCE TARGET
# Installs the default configuration where there is none: one that was edited is never overwritten.
set -e
target="${DESTDIR:-}$2"
if [ -e "$target" ]; then
	echo "$target is kept"
	exit 0
fi
mkdir -p "$(dirname "$target")"
cp "$1" "$target"
chmod 644 "$target"

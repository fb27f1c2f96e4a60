#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make vm-kernel`: the lab kernel from the newest source package that Debian has, for where no
# prebuilt one is at hand. About ten minutes on two CPUs. --configure stops before the build.
set -eu
. "$(dirname "$0")/lib/env.sh"
. "$vm_dir/lib/foreign-apt.sh"
. "$vm_dir/lib/kernel.sh"

configure_only=
case ${1-} in
'') ;;
--configure) configure_only=yes ;;
*) say "build-kernel.sh [--configure]"; exit 2 ;;
esac

need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
need bc bc
need bison bison
need flex flex
need make make
need xz xz-utils
need depmod kmod

source_suite=sid
sources="$cache/kernel-source"
objects="$cache/kernel-build"

# Sets $tree: the unpacked source.
get_source() {
  local package
  foreign_update "$source_suite" arm64
  package=$(foreign_apt "$source_suite" arm64 apt-cache search --names-only '^linux-source-[0-9]+\.[0-9]+$' |
    awk '{ print $1 }' | sort -V | tail -1)
  [ -n "$package" ] || skip "no linux-source package in $source_suite"
  tree="$sources/$package"
  once "source-$package" unpack_source "$package"
}

unpack_source() {
  rm -rf "$sources"
  foreign_unpack_only "$source_suite" arm64 "$sources/package" "$1"
  mkdir -p "$sources"
  tar -xf "$sources/package/usr/src/$1.tar.xz" -C "$sources"
  rm -rf "$sources/package"
}

kmake() { make -C "$tree" O="$objects" ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- "$@"; }

configure() {
  local line option wanted missing=0
  mkdir -p "$objects"
  kmake tinyconfig > "$objects/configure.log" 2>&1
  (cd "$tree" && ARCH=arm64 scripts/kconfig/merge_config.sh -m -O "$objects" "$objects/.config" \
    "$vm_dir/lab.config" >> "$objects/configure.log" 2>&1)
  sed -i 's/^CONFIG_CC_OPTIMIZE_FOR_SIZE=y/# CONFIG_CC_OPTIMIZE_FOR_SIZE is not set/' "$objects/.config"
  kmake olddefconfig >> "$objects/configure.log" 2>&1
  # What a kernel no longer knows, or what depends on something else, is dropped in silence.
  while IFS='=' read -r option wanted; do
    case $option in CONFIG_*) ;; *) continue ;; esac
    [ "$wanted" = n ] && continue
    grep -qF "$option=$wanted" "$objects/.config" || {
      say "not in this kernel: $option=$wanted"
      missing=$((missing + 1))
    }
  done < "$vm_dir/lab.config"
  say "configured $(kmake -s kernelrelease): $missing options of lab.config not taken"
  for option in DMABUF_HEAPS_SYSTEM DMABUF_HEAPS_CMA UDMABUF DRM_VGEM IO_URING NET_9P_VIRTIO; do
    grep -q "^CONFIG_$option=y" "$objects/.config" || { say "without CONFIG_$option it is no lab kernel"; exit 1; }
  done
}

build() {
  local into="$cache/kernels/lab" labdev
  kmake -j"$(nproc)" Image modules > "$objects/build.log" 2>&1 || { tail -30 "$objects/build.log" >&2; exit 1; }
  rm -rf "$into.new"
  mkdir -p "$into.new"
  kmake INSTALL_MOD_PATH="$into.new/usr" INSTALL_MOD_STRIP=1 modules_install >> "$objects/build.log" 2>&1
  cp "$objects/arch/arm64/boot/Image" "$into.new/Image"
  labdev=$(find "$vm_dir" -name labdev.c | head -1)
  if [ -n "$labdev" ]; then
    mkdir -p "$objects/labdev"
    cp "${labdev%.c}".[ch] "$objects/labdev" 2>/dev/null || cp "$labdev" "$objects/labdev"
    echo 'obj-m := labdev.o' > "$objects/labdev/Kbuild"
    kmake M="$objects/labdev" modules >> "$objects/build.log" 2>&1 || { tail -30 "$objects/build.log" >&2; exit 1; }
    cp "$objects/labdev/labdev.ko" "$into.new/labdev.ko"
  fi
  index_modules "$into.new"
  rm -rf "$into"
  mv "$into.new" "$into"
  touch "$cache/stamps/kernel-lab"
  say "built $(kmake -s kernelrelease) in $into"
}

get_source
configure
[ -n "$configure_only" ] || build

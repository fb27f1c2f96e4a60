# SPDX-License-Identifier: MIT
# Kernels to run: each is a folder of the cache with Image and usr/lib/modules. Sourced after
# foreign-apt.sh.
#
#   lab		everything this project is about: dma-heaps, udmabuf, vgem, vkms, vivid, sw_sync.
#		Prebuilt where VM_PREBUILT has it, else built by `make vm-kernel`, else not there.
#   debian-5.10, debian-6.1, debian-6.12	Debian 11's, 12's and its backports': no dma-heap

prebuilt=${VM_PREBUILT:-$source_dir/../shared/vm/prebuilt}

lab_version=7.2.13-lab

unpack_prebuilt() {
  mkdir -p "$cache/kernels/lab"
  xz -dc "$prebuilt/Image-$lab_version.xz" > "$cache/kernels/lab/Image"
  tar -xf "$prebuilt/modules-$lab_version.tar.xz" -C "$cache/kernels/lab"
  xz -dc "$prebuilt/labdev.ko.xz" > "$cache/kernels/lab/labdev.ko"
  index_modules "$cache/kernels/lab"
}

# modprobe looks below /lib/modules, and Debian's packages leave the index to their scripts.
index_modules() {
  local release
  mkdir -p "$1/lib" "$1/usr/lib"
  [ -e "$1/lib/modules" ] || ln -s ../usr/lib/modules "$1/lib/modules"
  [ -e "$1/usr/lib/modules" ] || ln -s ../../lib/modules "$1/usr/lib/modules"
  release=$(ls "$1/lib/modules" | head -1)
  [ -e "$1/lib/modules/$release/modules.dep" ] || depmod -b "$1" "$release"
}

unpack_debian() { # NAME SUITE PACKAGE-PATTERN
  local into="$cache/kernels/$1" package
  foreign_update "$2" arm64
  package=$(foreign_apt "$2" arm64 apt-cache search --names-only "$3" | awk '{print $1}' | sort -V | tail -1)
  [ -n "$package" ] || skip "no kernel package like $3 in $2"
  rm -rf "$into"
  foreign_unpack_only "$2" arm64 "$into" "$package"
  cp "$into"/boot/vmlinuz-* "$into/Image"
  index_modules "$into"
}

# kernel_get NAME: 0 and the folder in $kernel, or 77 with a reason.
kernel_get() {
  kernel="$cache/kernels/$1"
  case $1 in
  lab)
    if [ -e "$prebuilt/Image-$lab_version.xz" ]; then
      once "kernel-lab" unpack_prebuilt
    elif [ ! -e "$kernel/Image" ]; then
      skip "no lab kernel: \`make vm-kernel\` builds it (about 10 minutes)"
    fi ;;
  debian-5.10) once "kernel-$1" unpack_debian "$1" bullseye '^linux-image-5\.10\.0-[0-9]+-arm64$' ;;
  debian-6.1) once "kernel-$1" unpack_debian "$1" bookworm '^linux-image-6\.1\.0-[0-9]+-arm64$' ;;
  debian-6.12) once "kernel-$1" unpack_debian "$1" bookworm-backports '^linux-image-6\.12.*deb12-arm64$' ;;
  *) say "no kernel named $1"; exit 1 ;;
  esac
}

# SPDX-License-Identifier: MIT
# An initramfs: busybox, the libraries of the sysroot, modules with what they depend on, guest/init.
# Sourced after kernel.sh and build.sh.

# initrd_make KERNEL-FOLDER OUT MODULE...
initrd_make() {
  local kernel=$1 out=$2 root release list file name
  shift 2
  release=$(ls "$kernel/usr/lib/modules" | head -1)
  root=$(mktemp -d "$cache/initrd.XXXXXX")
  mkdir -p "$root"/{bin,dev,proc,sys,run,tmp,mnt,etc,modules,lib/aarch64-linux-gnu,usr/lib}
  cp "$sysroot/bin/busybox" "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  for name in libc.so.6 libm.so.6 ld-linux-aarch64.so.1 libgcc_s.so.1 libresolv.so.2 \
    liburing.so.2 libsystemd.so.0 libinih.so.1 libjson-c.so.5 libdrm.so.2 libcmocka.so.0 \
    libcap.so.2 libgcrypt.so.20 liblz4.so.1 liblzma.so.5 libzstd.so.1 libgpg-error.so.0; do
    file=$(find "$sysroot/lib/aarch64-linux-gnu" "$sysroot/usr/lib/aarch64-linux-gnu" -name "$name" | head -1)
    [ -n "$file" ] || { say "library $name is not in the sysroot"; exit 1; }
    cp -L "$file" "$root/lib/aarch64-linux-gnu/$name"
  done
  ln -s aarch64-linux-gnu/ld-linux-aarch64.so.1 "$root/lib/ld-linux-aarch64.so.1"

  for name in "$@"; do
    modprobe -d "$(realpath "$kernel")" -S "$release" --show-depends "$name" 2>/dev/null |
      awk '$1 == "insmod" { print $2 }'
  done | awk '!seen[$0]++' > "$root/modules/list"
  while read -r file; do
    name=$(basename "$file")
    case $name in
    *.xz) name=${name%.xz}; xz -dc "$file" > "$root/modules/$name" ;;
    *.zst) name=${name%.zst}; zstd -qdc "$file" > "$root/modules/$name" ;;
    *) cp "$file" "$root/modules/$name" ;;
    esac
    echo "$name" >> "$root/modules/order"
  done < "$root/modules/list"
  [ -e "$kernel/labdev.ko" ] && cp "$kernel/labdev.ko" "$root/modules/labdev.ko"
  cp "$vm_dir/guest/init" "$root/init"
  chmod +x "$root/init"
  (cd "$root" && find . -print0 | sort -z | cpio -0 -o -H newc --quiet -R 0:0) > "$out.new"
  rm -rf "$root"
  mv "$out.new" "$out"
}

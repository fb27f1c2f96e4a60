# SPDX-License-Identifier: MIT
# A Debian root with systemd as PID 1, as an ext4 image. No foreign code runs on the host: packages
# are unpacked, and what their scripts would have done is done here. Sourced after foreign-apt.sh.

# systemd, the shell's usual company, and the libraries the project's programs are linked with.
root_packages="base-files base-passwd dash coreutils util-linux mount libc-bin libc6 systemd
  systemd-sysv udev kmod procps grep sed gzip mawk findutils debianutils hostname
  liburing2 libinih1 libjson-c5 libdrm2 libsystemd0"

# Nothing in such a guest needs them, and each costs time in emulation. The generators run again at
# every daemon-reload.
root_masked="getty.target getty@tty1.service console-getty.service serial-getty@ttyAMA0.service
  serial-getty@hvc0.service systemd-timesyncd.service systemd-networkd.service
  systemd-resolved.service systemd-pcrphase.service systemd-pcrphase-sysinit.service
  systemd-pcrmachine.service systemd-boot-random-seed.service systemd-random-seed.service
  systemd-hwdb-update.service systemd-journal-flush.service
  systemd-journal-catalog-update.service systemd-update-utmp.service systemd-update-done.service
  systemd-firstboot.service systemd-machine-id-commit.service ldconfig.service
  e2scrub_reap.service systemd-remount-fs.service systemd-udevd.service
  systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-udev-trigger.service
  systemd-modules-load.service systemd-sysctl.service kmod-static-nodes.service
  systemd-tmpfiles-setup-dev.service dev-hugepages.mount dev-mqueue.mount
  sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount
  sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount
  systemd-binfmt.service systemd-sysusers.service systemd-ask-password-console.path"

root_image= # set by root_get

root_unpack() { # DIRECTORY
  local mirror include
  mirror=$(debian_mirror) || return
  include=$(echo $root_packages | tr ' ' ',')
  # Only what is unpacked: no script of a package runs.
  mmdebstrap --quiet --architectures=arm64 --variant=extract --include="$include" \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    "$suite" "$1" "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" ||
    return
  rm -rf "$1"/var/lib/apt "$1"/var/cache/apt "$1"/usr/share/{locale,doc,man,i18n}
}

# What the scripts of base-passwd, dash, mawk and systemd would have left behind.
root_configure() { # DIRECTORY
  local unit
  mkdir -p "$1/mnt"
  cp "$1/usr/share/base-passwd/passwd.master" "$1/etc/passwd"
  cp "$1/usr/share/base-passwd/group.master" "$1/etc/group"
  sed 's/^\([^:]*\):.*/\1:*:19000:0:99999:7:::/' "$1/etc/passwd" > "$1/etc/shadow"
  chmod 640 "$1/etc/shadow"
  ln -sf dash "$1/usr/bin/sh"
  ln -sf mawk "$1/usr/bin/awk"
  echo vm > "$1/etc/hostname"
  echo 0123456789abcdef0123456789abcdef > "$1/etc/machine-id"
  : > "$1/etc/fstab"
  printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files\n' > "$1/etc/nsswitch.conf"
  for unit in $root_masked; do
    ln -sf /dev/null "$1/etc/systemd/system/$unit"
  done
  mkdir -p "$1/etc/systemd/system-generators"
  for unit in "$1"/usr/lib/systemd/system-generators/* "$1"/lib/systemd/system-generators/*; do
    ln -sf /dev/null "$1/etc/systemd/system-generators/$(basename "$unit")"
  done
}

# vm.target runs the case: vm-case.service mounts the host's folder and hands over to its script.
root_add_case() { # DIRECTORY
  cat > "$1/etc/systemd/system/vm.target" <<'EOF2'
[Unit]
Description=one case of tests/vm
Requires=systemd-journald.socket
Wants=vm-case.service
AllowIsolate=yes
EOF2
  cat > "$1/etc/systemd/system/vm-case.service" <<'EOF2'
[Unit]
DefaultDependencies=no
After=systemd-journald.socket sysinit.target
Wants=sysinit.target
FailureAction=poweroff-force
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
ExecStart=/bin/sh -c 'mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose share /mnt && exec /mnt/systemd-start'
EOF2
}

root_build() { # IMAGE
  local directory="$cache/root-$suite-arm64"
  rm -rf "$directory" "$directory"-*.ext4
  root_unpack "$directory" && root_configure "$directory" && root_add_case "$directory" &&
    mke2fs -q -t ext4 -O ^has_journal,^metadata_csum -E root_owner=0:0 -d "$directory" \
      "$1.new" "$(($(du -sm "$directory" | cut -f1) + 100))M" > /dev/null &&
    mv "$1.new" "$1" && rm -rf "$directory"
}

# The image in $root_image, made at first use and again when this file changes.
root_get() {
  (need mmdebstrap mmdebstrap && need mke2fs e2fsprogs) || return $?
  root_image="$cache/root-$suite-arm64-$(cksum < "$vm_dir/lib/root.sh" | cut -d' ' -f1).ext4"
  [ -e "$root_image" ] || root_build "$root_image"
}

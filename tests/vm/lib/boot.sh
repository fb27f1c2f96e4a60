# SPDX-License-Identifier: MIT
# Runs one guest. Sourced after build.sh.

# The share: binaries of the build (without objects), the case's script, the path it stands for.
make_share() { # FOLDER CASE-SCRIPT PROGRAMS
  mkdir -p "$1"
  cp -al "$3" "$1/build"
  cp "$2" "$1/case"
  cp "$vm_dir/guest/lib.sh" "$1/lib.sh"
  chmod +x "$1/case"
  echo "$arm64_build" > "$1/host-path"
  cp "$work/tests" "$1/tests"
  # What tests read of the source tree.
  echo "$source_dir" > "$1/source-path"
  mkdir -p "$1/source"
  (cd "$source_dir" && cp -r --parents tests/unit/proto/golden units "$1/source")
}

# For a guest with systemd: what `make install` would have put there, and what starts the case.
make_install_share() { # FOLDER
  rm -rf "$1/install"
  DESTDIR="$1/install" meson install -C "$arm64_build" --no-rebuild --quiet
  cp "$vm_dir/guest/systemd-start" "$vm_dir/guest/systemd-lib.sh" "$1"
  chmod +x "$1/systemd-start"
}

# What a guest needs of a build folder: programs, libraries, generated data; no objects.
copy_programs() {
  rm -rf "$2"
  mkdir -p "$2"
  (cd "$1" && find . \( -name '*.p' -o -name meson-private -o -name meson-logs -o -name meson-info \) -prune -o \
    \( -type f -o -type l \) ! -name '*.a' ! -name 'build.ninja' ! -name '.ninja*' ! -name compile_commands.json -print0 |
    cpio -0 -p -d -m --quiet "$2")
}

# boot KERNEL-FOLDER INITRD SHARE CPU LOG SECONDS KERNEL-PARAMETERS QEMU-ARGUMENTS...
# Without an INITRD (empty) the kernel itself mounts the root. Returns what the case's script
# returned; 99 where the guest never said.
boot() {
  local kernel=$1 initrd=$2 share=$3 cpu=$4 log=$5 seconds=$6 parameters=$7 status
  shift 7
  # It must not outlive this shell, which an interrupt may end.
  # shellcheck disable=SC2086
  setpriv --pdeathsig TERM timeout --kill-after=5 "$seconds" qemu-system-aarch64 -M virt -cpu "$cpu" -smp "${VM_SMP:-2}" -m "${VM_MEMORY:-1G}" \
    -nographic -no-reboot -nodefaults -serial stdio -kernel "$kernel/Image" ${initrd:+-initrd "$initrd"} \
    -append "console=ttyAMA0 panic=-1 quiet loglevel=3 $parameters" \
    -virtfs "local,path=$share,mount_tag=share,security_model=none,multidevs=remap" \
    "$@" < /dev/null 2>&1 | sed -u 's/\r//g' > "$log" || true
  status=$(sed -n 's/^VM-EXIT //p' "$log" | tail -1)
  return "${status:-99}"
}

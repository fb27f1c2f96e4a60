# SPDX-License-Identifier: MIT
# The project, built for arm64 against Debian's own arm64 libraries. Sourced after foreign-apt.sh.

sysroot="$cache/sysroot-$suite-arm64"
arm64_build=${VM_BUILD:-$source_dir/build-arm64}

make_sysroot() {
  need aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
  once "sysroot-$suite-arm64" foreign_unpack "$suite" arm64 "$sysroot" liburing-dev \
    libsystemd-dev libinih-dev libjson-c-dev libdrm-dev libcmocka-dev libc6 libgcc-s1 \
    busybox-static
}

# Beside tests/cross/aarch64-linux-gnu.ini: where the libraries are, which only this machine knows.
write_cross_file() {
  cat > "$cache/sysroot.ini" <<EOF
[properties]
pkg_config_libdir = '$sysroot/usr/lib/aarch64-linux-gnu/pkgconfig:$sysroot/usr/share/pkgconfig'
sys_root = '$sysroot'
needs_exe_wrapper = true
[binaries]
pkgconfig = 'pkg-config'
[built-in options]
c_args = ['--sysroot=$sysroot']
c_link_args = ['--sysroot=$sysroot']
EOF
}

build_arm64() {
  make_sysroot
  write_cross_file
  if [ ! -e "$arm64_build/build.ninja" ]; then
    meson setup "$arm64_build" "$source_dir" --cross-file "$source_dir/tests/cross/aarch64-linux-gnu.ini" \
      --cross-file "$cache/sysroot.ini" > "$cache/meson-arm64.log" || { tail -30 "$cache/meson-arm64.log" >&2; exit 1; }
  fi
  ninja -C "$arm64_build" > "$cache/ninja-arm64.log" || { tail -30 "$cache/ninja-arm64.log" >&2; exit 1; }
}

# The plugin that counts what QEMU executes, built for this host by the native build's rules.
build_plugin() {
  plugin="$cache/count_plugin.so"
  if [ ! -e "$plugin" ] || [ "$source_dir/tests/arm64/count_plugin.c" -nt "$plugin" ]; then
    cc -O2 -fPIC -shared -fvisibility=hidden -o "$plugin" "$source_dir/tests/arm64/count_plugin.c"
  fi
}

# The native tests as the guest runs them, from meson's own list: one line each of
# "suite name seconds command...". Scripts of the host's (python, qemu-user) stay out.
write_test_list() { # OUT
  meson introspect "$arm64_build" --tests | python3 -c '
import json, os, sys
build = sys.argv[1]
for test in json.load(sys.stdin):
    program = test["cmd"][0]
    if not program.startswith(build) or not os.path.exists(program):
        continue
    with open(program, "rb") as f:
        if f.read(20)[18:20] != b"\xb7\x00":  # ELF machine: AArch64
            continue
    suite = test["suite"][0].split(":")[-1] if test["suite"] else "none"
    environment = " ".join("%s=%s" % item for item in sorted(test["env"].items()) if item[0].startswith("DMASYNC"))
    print(suite, test["name"].replace(" ", "_"), test["timeout"], environment, *test["cmd"])
' "$arm64_build" > "$1"
}

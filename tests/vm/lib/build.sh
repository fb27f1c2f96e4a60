# SPDX-License-Identifier: MIT
# The project, cross-built against Debian's own libraries of that architecture: arm64 for the
# guests, others to see that they build. Sourced after foreign-apt.sh.

sysroot="$cache/sysroot-$suite-arm64"
arm64_build=${VM_BUILD:-$source_dir/build-arm64}

# target_set ARCH: what depends on the architecture. riscv64 is in Debian since 13.
target_set() {
  target_suite=$suite
  case $1 in
  arm64) target_triple=aarch64-linux-gnu ;;
  armhf) target_triple=arm-linux-gnueabihf ;;
  riscv64) target_triple=riscv64-linux-gnu target_suite=trixie ;;
  *) say "no architecture $1"; exit 1 ;;
  esac
  target_sysroot="$cache/sysroot-$target_suite-$1"
}

# Beside tests/cross/TRIPLE.ini: where the libraries are, which only this machine knows.
write_cross_file() { # OUT
  cat > "$1.new" <<END
[properties]
pkg_config_libdir = '$target_sysroot/usr/lib/$target_triple/pkgconfig:$target_sysroot/usr/share/pkgconfig'
sys_root = '$target_sysroot'
needs_exe_wrapper = true
[binaries]
pkgconfig = 'pkg-config'
[built-in options]
c_args = ['--sysroot=$target_sysroot']
# Before the cross compiler's own C library, which may be an older one.
c_link_args = ['--sysroot=$target_sysroot', '-L$target_sysroot/usr/lib/$target_triple', '-L$target_sysroot/lib/$target_triple']
END
  mv "$1.new" "$1"
}

make_sysroot() { # ARCH
  foreign_unpack "$target_suite" "$1" "$target_sysroot" liburing-dev libsystemd-dev libinih-dev \
    libjson-c-dev libdrm-dev libcmocka-dev libc6 libgcc-s1 busybox-static
  # Newer Debians' packages leave /lib to base-files.
  [ -e "$target_sysroot/lib" ] || ln -s usr/lib "$target_sysroot/lib"
}

# build_for ARCH BUILD MESON-OPTIONS...
build_for() {
  local arch=$1 build=$2
  shift 2
  target_set "$arch"
  need "$target_triple-gcc" "gcc-$target_triple libc6-dev-$arch-cross"
  once "sysroot-$target_suite-$arch" make_sysroot "$arch"
  write_cross_file "$target_sysroot.ini"
  if [ ! -e "$build/build.ninja" ]; then
    meson setup "$build" "$source_dir" --cross-file "$source_dir/tests/cross/$target_triple.ini" \
      --cross-file "$target_sysroot.ini" -Dwerror=true "$@" > "$cache/meson-$arch.log" ||
      { tail -30 "$cache/meson-$arch.log" >&2; exit 1; }
  fi
  ninja -C "$build" > "$cache/ninja-$arch.log" || { tail -30 "$cache/ninja-$arch.log" >&2; exit 1; }
}

# A case without a guest: the project builds for ARCH.
build_case() {
  local why status=0
  why=$(build_for "$1" "$source_dir/build-$1" -Dtests=false 2>&1) || status=$?
  case $status in
  0) echo "VM-RESULT build pass" ;;
  77) echo "VM-RESULT build skip ${why#skipped: }" ;;
  *) echo "$why"; echo "VM-RESULT build fail" ;;
  esac
}

# The plugin that counts what QEMU executes, built for this host.
build_plugin() {
  plugin="$cache/count_plugin.so"
  if [ ! -e "$plugin" ] || [ "$source_dir/tests/arm64/count_plugin.c" -nt "$plugin" ]; then
    cc -O2 -fPIC -shared -fvisibility=hidden -o "$plugin.$$" "$source_dir/tests/arm64/count_plugin.c"
    mv "$plugin.$$" "$plugin"
  fi
}

# The native tests as the guest runs them, from meson's own list: one line each of
# "suite name seconds command...". Scripts of the host's (python, qemu-user) stay out. $VM_TESTS: names
# of tests, of which only these are run. Those that run once more on epoll are a suite of their own.
write_test_list() { # OUT
  meson introspect "$arm64_build" --tests | python3 -c '
import json, os, sys
build = sys.argv[1]
only = os.environ.get("VM_TESTS", "").split()
for test in json.load(sys.stdin):
    if only and test["name"] not in only:
        continue
    program = test["cmd"][0]
    if not program.startswith(build) or not os.path.exists(program):
        continue
    with open(program, "rb") as f:
        if f.read(20)[18:20] != b"\xb7\x00":  # ELF machine: AArch64
            continue
    suites = [name.split(":")[-1] for name in test["suite"]] or ["none"]
    suite = "epoll" if "epoll" in suites else suites[0]
    environment = " ".join("%s=%s" % item for item in sorted(test["env"].items()) if item[0].startswith("DMASYNC"))
    print(suite, test["name"].replace(" ", "_"), test["timeout"], environment, *test["cmd"])
' "$arm64_build" > "$1"
}

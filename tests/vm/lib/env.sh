# SPDX-License-Identifier: MIT
# What every script of tests/vm shares: where things are kept, how a run says that it cannot run.
# Sourced by bash with `set -eu`.

vm_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source_dir=$(cd "$vm_dir/../.." && pwd)
cache=${VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dmasync-vm}
suite=bookworm
mkdir -p "$cache"
PATH=$PATH:/usr/sbin:/sbin # modprobe, depmod

say() { printf '%s\n' "$*" >&2; }

# 77 is "skipped" for meson and for everybody else here.
skip() { say "skipped: $*"; exit 77; }

# need PROGRAM PACKAGE: skips where the program is missing.
need() { command -v "$1" >/dev/null || skip "$1 is missing: apt-get install $2"; }

# once NAME COMMAND...: runs it unless it has succeeded before with this cache. Keyed by name: put
# into the name what the result depends on.
once() {
  local stamp="$cache/stamps/$1"
  shift
  [ -e "$stamp" ] && return 0
  mkdir -p "$cache/stamps"
  "$@"
  touch "$stamp"
}

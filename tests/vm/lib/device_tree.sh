# SPDX-License-Identifier: MIT
# QEMU's own device tree with some properties changed. Sourced after env.sh.

# device_tree_make OUT CPU SMP MEMORY EDITS: EDITS are lines of arguments of fdtput(1) without the
# file: "-d /pcie@10000000 dma-coherent" deletes, "/pcie@10000000 dma-noncoherent" adds.
device_tree_make() {
  local out=$1 edit
  need fdtput device-tree-compiler
  qemu-system-aarch64 -M "virt,dumpdtb=$out" -cpu "$2" -smp "$3" -m "$4" -nographic -nodefaults 2> /dev/null
  echo "$5" | while read -r edit; do
    case $edit in
    '') ;;
    # shellcheck disable=SC2086
    -d*) set -- $edit; fdtput -d "$out" "$2" "$3" ;;
    # shellcheck disable=SC2086
    *) fdtput "$out" $edit ;;
    esac
  done
}

#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All that is shown on running arm64 kernels: `make check-vm`. Builds for arm64, boots one guest for
# each case of cases/, and prints one table. `--all` runs also the cases that are not quick; names
# of cases run just these. Results also go to RESULTS (default build-arm64/vm-results.tsv).
set -eu
. "$(dirname "$0")/lib/env.sh"
. "$vm_dir/lib/foreign-apt.sh"
. "$vm_dir/lib/kernel.sh"
. "$vm_dir/lib/build.sh"
. "$vm_dir/lib/initrd.sh"
. "$vm_dir/lib/root.sh"
. "$vm_dir/lib/boot.sh"
. "$vm_dir/lib/device_tree.sh"

all= wanted=
for argument in "$@"; do
  case $argument in
  --all) all=yes ;;
  -*) say "check.sh [--all] [CASE...]; cases: $(cd "$vm_dir/cases" && ls | sed -n 's/\.conf$//p' | tr '\n' ' ')"; exit 2 ;;
  *) wanted="$wanted $argument" ;;
  esac
done

need qemu-system-aarch64 qemu-system-arm
need cpio cpio
need modprobe kmod
need xz xz-utils
started=$SECONDS
(build_for arm64 "$arm64_build") || exit $?
build_plugin
say "built for arm64 in $((SECONDS - started)) s"

results=${RESULTS:-$arm64_build/vm-results.tsv}
work=$(mktemp -d "$cache/run.XXXXXX")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 143' INT TERM HUP
copy_programs "$arm64_build" "$work/programs"
write_test_list "$work/tests"

# One guest keeps little more than one CPU busy.
at_once=${VM_JOBS:-$(nproc)}

# One case: its .conf names kernel, cpu, modules, parameters; its .guest runs inside; its .host, where
# there is one, looks at what the guest left (executed operations, content) and prints VM-RESULT lines.
run_case() {
  local name=$1 status=0
  kernel_name=lab cpu=neoverse-n1 modules= parameters= qemu= seconds=120 quick=yes smp=2 memory=1G count= device_tree= root=
  log="$work/$name.log" share="$work/$name.share" counts="$work/$name.counts"
  . "$vm_dir/cases/$name.conf"
  if [ "$kernel_name" = none ]; then
    run_host
    return
  fi
  # One at a time: cases share kernels and initramfs.
  exec 9> "$work/lock"
  flock 9
  (kernel_get "$kernel_name") 2> "$work/$name.why" || return $?
  kernel="$cache/kernels/$kernel_name"
  local initrd="$work/$kernel_name-$(echo "$modules" | tr ' ' '_').initrd"
  make_share "$share" "$vm_dir/cases/$name.guest" "$work/programs"
  if [ "$root" = systemd ]; then
    root_get 2> "$work/$name.why" || return $?
    make_install_share "$share" || return $?
    # A kernel with modules needs them to find the root: guest/init then changes over to it.
    [ -n "$modules" ] || initrd=
    parameters="root=/dev/vda rootfstype=ext4 rw systemd.unit=vm.target systemd.show_status=0 $parameters"
    qemu="-drive file=$root_image,format=raw,if=virtio,snapshot=on $qemu"
  fi
  # shellcheck disable=SC2086
  [ -z "$initrd" ] || [ -e "$initrd" ] || initrd_make "$kernel" "$initrd" $modules
  exec 9>&-

  if [ -n "$device_tree" ]; then
    (device_tree_make "$work/$name.dtb" "$cpu" "$smp" "$memory" "$device_tree") 2> "$work/$name.why" || return $?
    qemu="$qemu -dtb $work/$name.dtb"
  fi
  case $count in
  '') ;;
  stores) qemu="$qemu -plugin $plugin,stores=on -d plugin -D $counts" ;;
  *) qemu="$qemu -plugin $plugin -d plugin -D $counts" ;;
  esac
  began=$(date +%s)
  # shellcheck disable=SC2086
  VM_SMP=$smp VM_MEMORY=$memory boot "$kernel" "$initrd" "$share" "$cpu" "$log" "$seconds" "$parameters" $qemu || status=$?
  if [ -e "$vm_dir/cases/$name.host" ]; then
    run_host || status=1
  fi
  return $status
}

run_host() {
  (set -e; . "$vm_dir/cases/$name.host") >> "$log" 2>&1 9>&-
}

# Runs a case and leaves its results in NAME.results, its line of the table in NAME.row.
report_case() {
  local name=$1 status=0 p=0 f=0 s=0 took
  began=$(date +%s) log=
  run_case "$name" || status=$?
  took=$(($(date +%s) - began))
  if [ $status = 77 ]; then
    s=1
    printf '%s\tskip\t%s\t%s\n' "$name" "$name" "$(sed 's/^skipped: //' "$work/$name.why" | tail -1)" > "$work/$name.results"
  else
    p=$(grep -c '^VM-RESULT [^ ]* pass' "$log" || true)
    f=$(grep -c '^VM-RESULT [^ ]* fail' "$log" || true)
    s=$(grep -c '^VM-RESULT [^ ]* skip' "$log" || true)
    sed -n 's/^VM-RESULT \([^ ]*\) \([^ ]*\) \{0,1\}\(.*\)/'"$name"'\t\2\t\1\t\3/p' "$log" > "$work/$name.results"
    # A guest that died, hung or tested nothing is a failure of its own.
    if [ $status != 0 ] && [ "$f" = 0 ] || [ $((p + f + s)) = 0 ]; then
      f=$((f + 1))
      printf '%s\tfail\tguest\tended with %s\n' "$name" "$status" >> "$work/$name.results"
    fi
    if [ "$f" != 0 ]; then
      say "---- $name"
      grep -v '^VM-TABLE' "$log" | tail -60 >&2
    fi
  fi
  (flock 8; cat "$work/$name.results" >&8) 8>> "$results"
  printf '%-22s %-12s %-34s %5d %5d %5d %5d s\n' "$name" "$kernel_name" "$cpu" "$p" "$f" "$s" "$took" > "$work/$name.row"
  say "$(printf '%-22s %d passed, %d failed, %d skipped, %d s' "$name" "$p" "$f" "$s" "$took")"
}

names= slow= share=
for conf in "$vm_dir"/cases/*.conf; do
  name=$(basename "$conf" .conf)
  if [ -n "$wanted" ]; then
    case " $wanted " in *" $name "*) ;; *) continue ;; esac
  elif ! (quick=yes; . "$conf"; [ "$quick" = yes ]); then
    [ -z "$all" ] || slow="$slow $name"
    continue
  fi
  names="$names $name"
done
names="$names$slow"

# Whoever ends this early has the results of what was done.
: > "$results"
for name in $names; do
  while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n || true; done
  report_case "$name" &
done
wait || true

for name in $names; do
  [ -e "$work/$name.results" ] || printf '%s\tfail\tcase\tended early\n' "$name" >> "$results"
  if [ -e "$work/$name.log" ] && grep -q '^VM-TABLE' "$work/$name.log"; then
    printf '\n%s\n' "$name"
    sed -n 's/^VM-TABLE /  /p' "$work/$name.log"
  fi
done
printf '\n%-22s %-12s %-34s %5s %5s %5s %7s\n' case kernel cpu pass fail skip time
for name in $names; do cat "$work/$name.row" 2>/dev/null || true; done
awk -F'\t' '$2 == "skip" { printf "skipped: %s %s: %s\n", $1, $3, $4 }
  $2 == "fail" { printf "FAILED: %s %s: %s\n", $1, $3, $4 }' "$results"
outcomes() { cut -f 2 "$results" | grep -cx "$1" || true; }
passed=$(outcomes pass) failed=$(outcomes fail) skipped=$(outcomes skip)
printf '%d s in all\n%d passed, %d failed, %d skipped\n' $((SECONDS - started)) "$passed" "$failed" "$skipped"
[ "$failed" = 0 ] && [ $((passed + skipped)) -gt 0 ]

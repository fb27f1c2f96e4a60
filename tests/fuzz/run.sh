#!/bin/bash
# SPDX-License-Identifier: MIT
# Fuzzes each target for so many seconds, as many at once as there are CPUs. Builds them first, in
# build-fuzz, with clang, libFuzzer, ASan and UBSan; what was reached stays in build-fuzz/corpus.
#
#   tests/fuzz/run.sh [SECONDS [TARGET...]]
#
# Exit status: 1 where something was found or a target did not run, 77 where clang has no libFuzzer.
set -u
cd "$(dirname "$0")/../.." || exit 1

seconds=${1-60}
shift
build=${BUILD_FUZZ-build-fuzz}
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(batch client config control ring)

if ! echo 'int LLVMFuzzerTestOneInput(const char *d, long n){return d && n < 0;}' |
	clang -x c -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; then
	echo "skipped: no clang with libFuzzer here (Debian: clang, libclang-rt-dev)"
	exit 77
fi
mkdir -p "$build"
if [ ! -e "$build/build.ninja" ]; then
	CC=clang meson setup "$build" -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
		-Doptimization=1 >"$build/setup.log" 2>&1 || {
		cat "$build/setup.log"
		exit 1
	}
fi
ninja -C "$build" fuzz >"$build/compile.log" 2>&1 || {
	tail -n 60 "$build/compile.log"
	exit 1
}

fuzz() # TARGET
{
	local name=$1 dictionary=()

	mkdir -p "$build/corpus/$name" "$build/found"
	[ "$name" = control ] && dictionary=(-dict="$build/tests/fuzz/seeds/control.dict")
	"$build/tests/fuzz/fuzz-$name" -max_total_time="$seconds" -max_len=4096 -timeout=25 \
		-rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build/found/$name-" \
		"${dictionary[@]}" "$build/corpus/$name" "$build/tests/fuzz/seeds/$name" \
		>"$build/fuzz-$name.log" 2>&1
	echo $? >"$build/fuzz-$name.status"
}

for name in "${targets[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
		wait -n
	done
	rm -f "$build/fuzz-$name.status"
	fuzz "$name" &
done
wait

bad=0
printf '%-8s %12s %9s %16s %7s\n' target inputs per-s 'edges reached' corpus
for name in "${targets[@]}"; do
	log=$build/fuzz-$name.log
	status=$(cat "$build/fuzz-$name.status" 2>/dev/null || echo none)
	inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
	edges=$(sed -n 's/^INFO: Loaded 1 modules *(\([0-9]*\) .*/\1/p' "$log")
	reached=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
	printf '%-8s %12s %9s %16s %7s\n' "$name" "${inputs:-0}" "${speed:-0}" \
		"${reached:-0} of ${edges:-?}" "$(find "$build/corpus/$name" -type f | wc -l)"
	[ "$status" = 0 ] && [ "${inputs:-0}" -gt 0 ] && continue
	bad=1
	grep -m 3 -E 'not true|ERROR: |runtime error' "$log" || tail -n 20 "$log"
	file=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
	[ -n "$file" ] || continue
	echo "again:   $build/tests/fuzz/fuzz-$name $file"
	echo "to keep: mkdir -p tests/fuzz/found/$name"
	echo "         od -An -v -tx1 $file >tests/fuzz/found/$name/WHAT-IT-IS.hex"
done
exit $bad

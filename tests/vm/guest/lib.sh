# SPDX-License-Identifier: MIT
# For the scripts that run in a guest: results in one form, and a daemon to talk to. /bin/sh.

build=$(cat /mnt/host-path)
ctl="$build/client/ctl/dmasyncctl"
export DMASYNC_SOCKET=/tmp/dmasync.socket
failures=0

# result NAME pass|fail|skip [WORDS]: the host counts these lines.
result() {
	name=$1 outcome=$2
	shift 2
	echo "VM-RESULT $name $outcome $*"
	[ "$outcome" = fail ] && failures=$((failures + 1))
	return 0
}

# check NAME COMMAND...: passes where the command does; 77 is a skip. Its output is shown on failure.
check() {
	check_name=$1
	shift
	begun=$(cut -d. -f1 /proc/uptime)
	"$@" > "/tmp/out.$check_name" 2>&1
	status=$?
	took="$(($(cut -d. -f1 /proc/uptime) - begun)) s"
	case $status in
	0) result "$check_name" pass "$took" ;;
	77) result "$check_name" skip "$(tail -1 "/tmp/out.$check_name")" ;;
	*) sed "s/^/    /" "/tmp/out.$check_name" | tail -40
	   result "$check_name" fail "status $status after $took" ;;
	esac
}

# equal NAME EXPECTED SEEN
equal() {
	if [ "$2" = "$3" ]; then result "$1" pass "$3"; else result "$1" fail "expected $2, seen $3"; fi
}

# daemon_start [OPTION...]: with the configuration on standard input; returns when it is ready.
daemon_start() {
	cat > /tmp/dmasyncd.conf
	"$build/daemon/dmasyncd" --config /tmp/dmasyncd.conf --socket "$DMASYNC_SOCKET" "$@" 2> /tmp/daemon.log &
	daemon_pid=$!
	tries=0
	until "$ctl" stats > /dev/null 2>&1; do
		tries=$((tries + 1))
		if [ $tries -gt 100 ] || ! kill -0 "$daemon_pid" 2> /dev/null; then
			cat /tmp/daemon.log
			return 1
		fi
		usleep 50000
	done
}

daemon_stop() {
	kill -TERM "$daemon_pid" && wait "$daemon_pid"
}

# What probe says, for the case's .host script: the page in the log, the document in the share.
probe_machine() {
	"$ctl" probe
	"$ctl" probe --json > /mnt/probe.json
	result probe-runs $([ $? = 0 ] && echo pass || echo fail)
}

# bench_smoke MEMORY...: the benchmarks run on such buffers, few rounds of each; no figure is looked at.
bench_smoke() {
	for memory in "$@"; do
		check "bench-latency-$memory" "$ctl" bench latency --iterations 50 --cold-iterations 2 --memory "$memory"
		check "bench-sg-$memory" "$ctl" bench sg --iterations 2 --size 64K --memory "$memory"
	done
}

# Writes device memory by dmasync/iomem.h: counted, then a BAR of ivshmem-plain, then a UIO map.
iomem_writes() {
	"$build/tests/vm/write-blocks" || result write-blocks fail "status $?"
	device=$(grep -l 0x1110 /sys/bus/pci/devices/*/device | head -1)
	device=${device%/device}
	# Memory decoding off (PCI's command register): what is written would be lost.
	printf '\000\000' | dd of="$device/config" bs=1 seek=4 count=2 conv=notrunc 2> /dev/null
	"$build/tests/vm/write-bar" "$device/resource2" 0 2> /tmp/refused
	equal bar-not-enabled 1 $?
	check bar-not-enabled-says-so grep -q "echo 1 > $device/enable" /tmp/refused
	echo 1 > "$device/enable"
	check bar-uncached "$build/tests/vm/write-bar" "$device/resource2" 0
	check bar-write-combining "$build/tests/vm/write-bar" "$device/resource2_wc" 524288
	check bench-iomem-bar "$ctl" bench iomem --rounds 1 --map "$device/resource2_wc" --offset 256K
	"$build/tests/vm/write-bar" "$device/resource0_wc" 0 2> /tmp/refused
	check bar-not-prefetchable grep -q "not prefetchable" /tmp/refused
	check example-doorbell "$build/client/examples/dmasync-doorbell" "$device/resource2_wc" 786432
	check uio "$build/tests/vm/write-bar" /dev/uio0 0
	"$build/tests/vm/write-bar" /dev/uio0 131072 2> /tmp/refused
	check uio-range grep -q "map 0 has 131072 bytes" /tmp/refused
}

# What a kernel is: io_uring as the daemon's loop uses it, and whether it has dma-heaps and udmabuf.
# kernel_features SETUP-OF-IO_URING HEAPS UDMABUF (yes or no)
kernel_features() {
	equal io-uring-setup "$1" "$("$ctl" probe --json | sed -n 's/^ *"setup": *"\(.*\)",*$/\1/p')"
	equal dma-heaps "$2" "$([ -e /dev/dma_heap ] && echo yes || echo no)"
	equal udmabuf "$3" "$([ -e /dev/udmabuf ] && echo yes || echo no)"
	daemon_start < /dev/null || { result daemon-starts fail; return; }
	echo "VM-TABLE Linux $(uname -r): $("$ctl" probe | grep 'loop:\|line operations:' | tr -s '\n ' ' ')"
	equal ring-restricted "restricted to the operations it uses" \
		"$("$ctl" probe --json | sed -n 's/^ *"loop_text": *"\(.*\)",*$/\1/p')"
	bench_smoke memfd
	check daemon-stops daemon_stop
}

# At the end of every case's script.
finish() { exit "$((failures > 0))"; }

# The runner's own time limits; a model of weakly ordered memory; minutes of shaking the ring on real
# CPUs: none of them learns anything from an emulated CPU. And the guest has no compiler.
not_here="harness readme-example proto-simulator proto-sleep proto-sleep-no-fence"

# native SUITE...: the project's own tests of these suites, as meson lists them. $LEFT_OUT: names of
# tests that this case leaves out as well.
native() {
	export DMASYNC_TEST_ROUNDS="${ROUNDS:-20}" HARNESS_TIMEOUT_FACTOR=4
	for suite in "$@"; do
		while read -r listed name seconds command; do
			[ "$listed" = "$suite" ] || continue
			case " $not_here $LEFT_OUT " in *" $name "*) continue ;; esac
			check "$name" timeout $((seconds * 4)) env $command < /dev/null
		done < /mnt/tests
	done
}

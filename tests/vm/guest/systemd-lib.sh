# SPDX-License-Identifier: MIT
# For the scripts that run in a guest with systemd, after lib.sh. /bin/sh.

unset DMASYNC_SOCKET
config=/usr/local/etc/dmasync/dmasyncd.conf

# A user who may, one who may not. Heaps belong to root: on a board, a udev rule gives them away.
systemd-sysusers - <<'END'
g video - -
u camera - "uses dmasyncd"
m camera dmasync
m camera video
u stranger - "may not"
END
[ ! -e /dev/dma_heap ] || { chgrp video /dev/dma_heap/* && chmod 660 /dev/dma_heap/*; }

as() { # USER COMMAND...
	as_user=$1
	shift
	timeout 100 setpriv --reuid="$as_user" --regid="$as_user" --init-groups "$@"
}

# Again until it works. Emulation on a busy host may be slower than a client's patience.
patiently() {
	patience=$(($(cut -d. -f1 /proc/uptime) + 60))
	until "$@"; do
		[ "$(cut -d. -f1 /proc/uptime)" -lt $patience ] || return 1
		sleep 0.2
	done
}

main_pid() { systemctl show -P MainPID dmasyncd.service; }

# journal_says PATTERN: the daemon or systemd about it, within some seconds.
journal_says() {
	patiently sh -c 'journalctl -u dmasyncd.service --no-pager -o cat | grep -e "$1" > /dev/null' sh "$1"
}

stats() { as camera dmasyncctl stats; }

# batches MEMORY: one over 8 MiB after the other until told to stop; the lines of each.
batches() {
	while [ ! -e /tmp/enough ]; do
		lines=$(as camera dmasyncctl sync --scratch 8M --memory "$1" --backend direct --for-device --json |
			tr -d ' ' | sed -n 's/.*"lines":\([0-9]*\).*/\1/p' | head -1)
		echo "${lines:-none}"
	done
}

# More batches from now on.
more_batches() {
	enough=$(($(wc -l < /tmp/lines) + $1))
	while [ "$(wc -l < /tmp/lines)" -lt $enough ]; do sleep 0.1; done
}

# cpu_goes_and_comes MEMORY AWAY BACK: while batches run, commands take CPU 1 from the worker and
# give it back. Every batch completes, and whole; the journal says where the worker went.
cpu_goes_and_comes() {
	rm -f /tmp/enough
	: > /tmp/lines
	batches "$1" > /tmp/lines &
	more_batches 2
	eval "$2" || return 1
	more_batches 3
	journal_says 'worker 0 was moved off CPU 1.*goes on on CPU 0' || return 1
	eval "$3" || return 1
	journal_says 'CPU 1 is back, and worker 0 on it' || return 1
	more_batches 2
	touch /tmp/enough
	wait $!
	sort /tmp/lines | uniq -c
	[ "$(sort -u /tmp/lines)" = 131072 ]
}

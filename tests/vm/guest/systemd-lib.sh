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
chgrp video /dev/dma_heap/* && chmod 660 /dev/dma_heap/*

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

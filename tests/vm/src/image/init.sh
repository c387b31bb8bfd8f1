#!/bin/sh
# The first process of a guest: mounts, loads modules, takes commands on the second serial line and
# gives a shell on the first.
export PATH=/usr/sbin:/usr/bin HOME=/root TERM=linux

mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t debugfs debug /sys/kernel/debug
hostname -F /etc/hostname
ip link set lo up

while read -r module; do
    modprobe "$module" || echo "init: module $module is not loaded"
done < /etc/modules

while :; do
    setsid sh /etc/agent.sh
    sleep 1
done &

# What poweroff, halt and reboot send to the first process (busybox, init/halt.c).
trap 'sync; busybox poweroff -f' USR1 USR2
trap 'sync; busybox reboot -f' TERM

cd /root
while :; do
    # Waited for in this way, since a signal waits for the end of what runs in the foreground.
    setsid cttyhack sh -l < /dev/console > /dev/console 2>&1 &
    wait $!
    sleep 1
done

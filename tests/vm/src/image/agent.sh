#!/bin/sh
# Takes commands on the second serial line, runs each on its own, and sends back how it ended and
# what it said.
#
#   in   NUMBER COMMAND            the command in base64
#   out  MAGIC NUMBER STATUS SIZE  and then that many bytes
#   out  MAGIC ready 0 0           once, when commands are taken
line=/dev/ttyS1
work=/run/agent
magic=$(printf '\001\002dxpu')

exec < $line
stty 115200 raw -echo

# answer NUMBER STATUS FILE
answer() {
    until mkdir $work/lock 2>/dev/null; do usleep 2000; done
    size=$(stat -c %s "$3")
    {
        echo "$magic $1 $2 $size"
        # What the command left in the background may still write.
        head -c "$size" "$3"
    } > $line
    rmdir $work/lock
}

rm -rf $work
mkdir -p $work
: > $work/nothing
answer ready 0 $work/nothing

# The end of a command interrupts a shell's `read`, which forgets what it has got of a line: so the
# shell that reads the line is not the one that has the commands as children. What that one reads
# comes at once.
while read -r number command; do
    echo "$command" | base64 -d > "$work/$number.sh"
    echo "$number"
done |
while read -r number; do
    {
        cd /root
        sh "$work/$number.sh" < /dev/null > "$work/$number.out" 2>&1
        answer "$number" $? "$work/$number.out"
        rm -f "$work/$number.sh" "$work/$number.out"
    } &
done

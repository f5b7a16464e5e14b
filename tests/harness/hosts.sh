# hosts.sh -- several hosts for the script that sources it: network namespaces on a bridge.   SPDX-License-Identifier: MIT
#
# hosts_enter NAME..., before anything else: restarts the script in new namespaces, which nothing outlives; or
# prints why not and skips (exit 77). Needs root and iproute2.
# hosts_up: host I of the list gets 10.88.0.(I + 1), fd88::(I + 1), its name, and a name for it that all resolve; the script itself is
# on the "hub", 10.88.0.254. Needs $work. Files and processes are seen by all hosts.
# on_host I COMMAND...: runs it there; in the background, the shell becomes the command's process.
host_names=()
host_pids=()
skip_test() {
    echo "skipped: $1"
    exit 77
}
hosts_enter() {
    local new="unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc"
    host_names=("$@")
    [ -z "${TUTTI_TEST_INSIDE:-}" ] || { unset TUTTI_TEST_INSIDE && return; }
    [ "$(id -u)" = 0 ] || skip_test "hosts of one's own need root"
    command -v ip >/dev/null || skip_test "no ip (iproute2 of Debian)"
    $new true 2>/dev/null || skip_test "namespaces of one's own are forbidden here"
    TUTTI_TEST_INSIDE=yes exec $new bash "$0"
}
hosts_up() {
    local i pid
    hostname hub
    ip link set lo up
    { ip link add hub type bridge && ip addr add 10.88.0.254/24 dev hub && ip link set hub up; } 2>/dev/null ||
        skip_test "no bridge between namespaces here"
    printf '%s\n' "127.0.0.1 localhost" "10.88.0.254 hub" >"$work/hosts"
    for i in "${!host_names[@]}"; do
        echo "10.88.0.$((i + 1)) ${host_names[i]}" >>"$work/hosts"
        unshare --net --uts sleep infinity &
        pid=$!
        host_pids+=($pid)
        for _ in $(seq 3000); do
            [ "$(readlink /proc/$pid/ns/uts)" = "$(readlink /proc/self/ns/uts)" ] || break
            sleep 0.01
        done
        ip link add "port$i" type veth peer name eth0 netns $pid
        ip link set "port$i" master hub up
        on_host "$i" sh -ec 'hostname "$1"; ip link set lo up; ip addr add "10.88.0.$2/24" dev eth0
            ip -6 addr add "fd88::$2/64" dev eth0 nodad || true; ip link set eth0 up' sh "${host_names[i]%%.*}" $((i + 1))
    done
    mount --bind "$work/hosts" /etc/hosts
}
on_host() {
    local i=$1
    shift
    # In the background this is a subshell, which becomes the command.
    [ "$BASHPID" = $$ ] || exec nsenter --target "${host_pids[i]}" --net --uts "$@"
    nsenter --target "${host_pids[i]}" --net --uts "$@"
}

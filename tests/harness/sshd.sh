# sshd.sh -- an ssh server on each host of hosts.sh, and $SSH, the command that reaches them.   SPDX-License-Identifier: MIT
#
# sshd_needed, before hosts_enter; sshd_start, after hosts_up. All files are in $work.
. "${SOURCE_DIR:?is set by ctest}/tests/harness/hosts.sh"

sshd_needed() {
    [ -x /usr/sbin/sshd ] && command -v ssh >/dev/null || skip_test "no ssh server (openssh-server of Debian)"
}
sshd_start() {
    local dir=$work/sshd i
    mkdir -p "$dir"
    mount -t tmpfs none /run && mkdir -p /run/sshd # sshd's empty folder, visible only here
    # What a user's shell runs at each login may take long, or wait for what another login that was killed has left.
    for i in ~root/.bashrc ~root/.bash_profile ~root/.profile ~root/.ssh/rc; do
        [ ! -e "$i" ] || mount --bind /dev/null "$i"
    done
    ssh-keygen -q -t ed25519 -N "" -f "$dir/key"
    ssh-keygen -q -t ed25519 -N "" -f "$dir/host_key"
    printf '%s\n' "HostKey $dir/host_key" "AuthorizedKeysFile $dir/key.pub" "StrictModes no" "UsePAM no" \
        "PermitRootLogin yes" "PidFile none" >"$dir/server"
    printf '%s\n' "Host *" "IdentityFile $dir/key" "IdentitiesOnly yes" "BatchMode yes" "ConnectTimeout 10" \
        "StrictHostKeyChecking no" "UserKnownHostsFile /dev/null" "LogLevel ERROR" >"$dir/client"
    for i in "${!host_pids[@]}"; do
        on_host "$i" /usr/sbin/sshd -D -e -f "$dir/server" >"$dir/$i.out" 2>&1 &
    done
    SSH="ssh -F $dir/client"
    export SSH
    for i in "${host_names[@]}"; do
        for _ in $(seq 600); do
            $SSH "$i" true 2>"$dir/error" && continue 2
            sleep 0.05
        done
        skip_test "no ssh server of our own comes up: $(cat "$dir"/*.out "$dir/error" | tr '\n' ' ')"
    done
}

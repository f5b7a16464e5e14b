# progress.sh: sourced by long-running scripts. A command's output goes to a log; meanwhile one line shows its progress.
#
#   progress NAME SAY LOG COMMAND...    runs COMMAND with its output in LOG. "NAME: " and what SAY prints from LOG is shown every 2 s
#                                       in one line of a terminal, and elsewhere every 3 s in a line of its own

if [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then
    progress_every=2 progress_begin='\r\033[K' progress_end=''
else
    progress_every=3 progress_begin='' progress_end='\n'
fi

# The command runs in the foreground, so that Ctrl-C reaches it; the watcher exits with it, or with this shell.
progress() {
    progress_name=$1 progress_say=$2 progress_log=$3
    shift 3
    : >"$progress_log"
    progress_start=$(date +%s)
    (
        while sleep "$progress_every" >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
            printf "$progress_begin%s: %s (%d s)$progress_end" "$progress_name" "$($progress_say "$progress_log")" \
                $(($(date +%s) - progress_start))
        done
    ) &
    progress_watch=$!
    progress_status=0
    "$@" >"$progress_log" 2>&1 || progress_status=$?
    kill "$progress_watch" 2>/dev/null || :
    wait "$progress_watch" 2>/dev/null || :
    printf "$progress_begin"
    return $progress_status
}

/* child.c -- runs a check as a child with a time limit; helpers of checks.   SPDX-License-Identifier: MIT
 *
 * A finding goes through the pipe as its severity, subject and text, a remedy as 'R' and text, each text ended by NUL. */
#include "cli/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHECK_MS = 6000, TEXT_BYTES = 1024, PIPE_BYTES = 64 << 10 };

/* ---- In the child ---------------------------------------------------------------------------------------- */

void tutti__find(tutti__doctor *d, tutti__severity severity, const char *subject,
                 const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(d->out, "%c%s%c%s%c", "FNWP"[severity], subject, 0, text, 0);
}

void tutti__remedy(tutti__doctor *d, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(d->out, "R%s%c", text, 0);
}

/* Leads a process group, which can be killed as one, and dies with its parent. */
static void become_child(pid_t parent)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (int fd = 0; fd < 3 && null >= 0; fd++) /* only the parent writes to these */
        dup2(null, fd);
}

/* ---- Children in general --------------------------------------------------------------------------------- */

/* Reads until the end of the stream, `deadline`, or the buffer is full; ends the text with NUL. False at the deadline. */
static bool read_until(int fd, char *text, size_t bytes, double deadline, size_t *used_p)
{
    size_t used = 0;

    for (;;) {
        struct pollfd ready = {fd, POLLIN, 0};
        double left = deadline - tutti__now_ms();
        ssize_t n;

        text[used] = '\0';
        *used_p = used;
        if (left <= 0)
            return false;
        if (poll(&ready, 1, (int)left + 1) < 1)
            continue;
        n = read(fd, text + used, bytes - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return true;
        used += (size_t)n;
    }
}

/* Kills the child's whole group, and waits a moment: one that hangs in the kernel is left to init. Returns waitpid's status;
 * -1: it has not ended. */
static int end_child(pid_t child, double deadline)
{
    siginfo_t info = {0};
    int status = -1;

    for (int i = 0;; i++) {
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            break;
        if (i > 0 && tutti__now_ms() > deadline + 100)
            return -1;
        if (tutti__now_ms() > deadline)
            kill(-child, SIGKILL);
        poll(NULL, 0, 1);
    }
    kill(-child, SIGKILL); /* its descendants; until it is reaped the number is its own */
    waitpid(child, &status, 0);
    return status;
}

bool tutti__in_child(int (*body)(void *arg), void *arg, int ms)
{
    double deadline = tutti__now_ms() + ms;
    pid_t parent = getpid(), child = fork();
    int status;

    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() != parent ? 1 : body(arg));
    }
    if (child < 0)
        return false;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (tutti__now_ms() > deadline) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return false;
        }
        poll(NULL, 0, 1);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int tutti__run_program(const char *const *argv, char *text, size_t bytes, int ms)
{
    double deadline = tutti__now_ms() + ms;
    int ends[2], status;
    size_t used;
    bool whole;
    pid_t child, parent = getpid();

    *text = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    child = fork();
    if (child == 0) {
        become_child(parent);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    whole = child > 0 && read_until(ends[0], text, bytes, deadline, &used);
    close(ends[0]);
    if (child < 0)
        return -1;
    status = end_child(child, whole ? deadline : 0);
    return whole && status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- One check ------------------------------------------------------------------------------------------- */

static tutti_status add(tutti__findings *f, const tutti__check *check, tutti__severity severity,
                        const char *subject, const char *text)
{
    tutti__found *found;

    if (f->n == f->capacity) {
        size_t capacity = f->capacity * 2 + 32;
        tutti__found *more = realloc(f->list, capacity * sizeof *more);

        if (!more)
            return tutti__fail(TUTTI_ERR_MEMORY, "no memory for findings");
        f->list = more;
        f->capacity = capacity;
    }
    found = &f->list[f->n];
    *found =
        (tutti__found){severity, check->group, check->name, strdup(subject), strdup(text), NULL};
    if (!found->subject || !found->text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for findings");
    f->n++;
    return TUTTI_OK;
}

static tutti_status add_remedy(tutti__findings *f, const char *text)
{
    char **remedy = &f->list[f->n - 1].remedy;

    free(*remedy);
    *remedy = strdup(text);
    return *remedy ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for findings");
}

/* Parses the complete findings; ignores an incomplete one of a killed check. */
static tutti_status parse(const char *bytes, size_t n, const tutti__check *check,
                          tutti__findings *findings)
{
    const char *end = bytes + n, *next = bytes, *letters = "FNWP", *letter;

    while (next < end && memchr(next, 0, (size_t)(end - next))) {
        const char *first = next + 1, *second = first + strlen(first) + 1;

        if (*next == 'R') {
            TUTTI_TRY(add_remedy(findings, first));
            next = second;
            continue;
        }
        letter = memchr(letters, *next, strlen(letters));
        if (!letter || second >= end || !memchr(second, 0, (size_t)(end - second)))
            return TUTTI_OK;
        TUTTI_TRY(add(findings, check, (tutti__severity)(letter - letters), first, second));
        next = second + strlen(second) + 1;
    }
    return TUTTI_OK;
}

static tutti_status add_hung(const tutti__check *check, tutti__findings *findings)
{
    char text[128];

    snprintf(text, sizeof text, "unknown: no answer within %d s, abandoned", CHECK_MS / 1000);
    TUTTI_TRY(add(findings, check, TUTTI__PROBLEM, check->name, text));
    return add_remedy(
        findings, *check->if_hangs
                      ? check->if_hangs
                      : "if the machine is busy, try again when it is not; else look at `dmesg`");
}

static tutti_status add_died(const tutti__check *check, int status, tutti__findings *findings)
{
    char text[128];

    snprintf(text, sizeof text, "unknown: the check was killed by signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
    TUTTI_TRY(add(findings, check, TUTTI__WARNING, check->name, text));
    return add_remedy(findings, *check->if_hangs ? check->if_hangs
                                                 : "the limits of this shell (ulimit -a), or "
                                                   "the libraries involved, are broken");
}

static void run_child(const tutti__check *check, int ranks, int fd, pid_t parent)
{
    tutti__doctor d = {.ranks = ranks};

    fd = fcntl(fd, F_DUPFD_CLOEXEC, 3); /* above the standard streams, even if those were closed */
    become_child(parent);
    d.out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!d.out)
        _exit(1);
    check->run(&d);
    fflush(d.out);
    _exit(0);
}

tutti_status tutti__run_check(const tutti__check *check, int ranks, tutti__findings *findings)
{
    double deadline = tutti__now_ms() + CHECK_MS;
    tutti_status status = TUTTI_OK;
    char *bytes = malloc(PIPE_BYTES);
    pid_t child, parent = getpid();
    int ends[2], ended;
    size_t n = 0;
    bool whole;

    if (!bytes)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for findings");
    if (pipe2(ends, O_CLOEXEC) != 0) {
        free(bytes);
        return tutti__fail_errno(errno, "check %s: no pipe", check->name);
    }
    child = fork();
    if (child == 0)
        run_child(check, ranks, ends[1], parent);
    if (child < 0)
        status = tutti__fail_errno(errno, "check %s: no process (ulimit -u)", check->name);
    close(ends[1]);
    whole = child > 0 && read_until(ends[0], bytes, PIPE_BYTES, deadline, &n);
    close(ends[0]);
    ended = child > 0 ? end_child(child, whole ? deadline : 0) : 0;
    if (status == TUTTI_OK)
        status = parse(bytes, n, check, findings);
    if (status == TUTTI_OK && child > 0 && !whole)
        status = add_hung(check, findings);
    else if (status == TUTTI_OK && child > 0 && WIFSIGNALED(ended))
        status = add_died(check, ended, findings);
    free(bytes);
    return status;
}

void tutti__findings_free(tutti__findings *findings)
{
    for (size_t i = 0; i < findings->n; i++) {
        free(findings->list[i].subject);
        free(findings->list[i].text);
        free(findings->list[i].remedy);
    }
    free(findings->list);
    *findings = (tutti__findings){0};
}

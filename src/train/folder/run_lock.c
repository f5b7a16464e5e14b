/* run_lock.c -- an open-file-description lock, and a record of its owner.   SPDX-License-Identifier: MIT */
#include "train/folder/run_lock.h"

#include "checkpoint/json_text.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WAIT_MS = 1000,       /* for an owner that was just killed, or is ending */
    RESTARTED_MS = 15000, /* for an earlier start of the same job, which must end */
    LOOK_MS = 50          /* how often one that waits looks whether the owner has changed */
};

/* A record begins with it. The number has a fixed width, so that the rest does not change when it is overwritten. */
#define GENERATION "{\"generation\":"
enum { DIGITS = 10, OFFSET = sizeof GENERATION - 1 + DIGITS };

static tutti_status lock_path(const char *folder, char path[4096])
{
    if (snprintf(path, 4096, "%s/.lock", folder) >= 4096)
        return tutti__fail(TUTTI_ERR_ARG, "run_dir: the path %.60s... is too long", folder);
    return TUTTI_OK;
}

/* 0: locked; EAGAIN: locked by another; else the file system has no locks. */
static int lock_within(int fd, int ms)
{
    return tutti__lock_file(fd, F_WRLCK, TUTTI__WHOLE_FILE, ms);
}

/* NULL: not readable. */
static json_t *read_owner(int fd)
{
    char text[2048];
    ssize_t n = pread(fd, text, sizeof text, 0);

    return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

static const char *text_of(const json_t *owner, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(owner, key));

    return text ? text : otherwise;
}

static json_int_t generation_of(int fd)
{
    json_t *owner = read_owner(fd);
    const json_int_t generation = json_integer_value(json_object_get(owner, "generation"));

    json_decref(owner);
    return generation;
}

static bool has_token(int fd, const char *token)
{
    json_t *owner = read_owner(fd);
    bool has = strcmp(text_of(owner, "token", ""), token) == 0;

    json_decref(owner);
    return has;
}

/* Whether the file names this owner, or nobody: emptied by a user. */
static bool names_owner(int fd, const tutti__run_lock *lock)
{
    char text[2048];
    const ssize_t n = pread(fd, text, sizeof text < lock->n ? sizeof text : lock->n, OFFSET);
    struct stat st;

    return (n == (ssize_t)lock->n && tutti__hash64(text, lock->n) == lock->hash) ||
           (fstat(fd, &st) == 0 && st.st_size == 0);
}

static tutti_status refuse(int fd, const char *folder)
{
    json_t *owner = read_owner(fd);
    tutti_status status = tutti__fail(
        TUTTI_ERR_STATE,
        "the run folder %s is in use by process %lld on %s, since %s; end that job first, or "
        "choose another folder with --run-dir",
        folder, (long long)json_integer_value(json_object_get(owner, "pid")),
        text_of(owner, "host", "a host unknown"), text_of(owner, "since", "a time unknown"));

    json_decref(owner);
    return status;
}

static tutti_status write_owner(tutti__run_lock *lock, const char *path,
                                const tutti__train_job *job)
{
    char host[256] = "", since[64], *text, *record = NULL;
    size_t n = 0;
    off_t length;
    json_t *owner;
    tutti_status status;

    gethostname(host, sizeof host - 1);
    tutti__local_time(tutti__wall_seconds(), "%Y-%m-%d %H:%M:%S", since);
    owner = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s}", "pid", (json_int_t)getpid(), "host", host,
                      "since", since, "job", job->id, "slurm", job->slurm, "token", lock->token);
    text = tutti__json_text(owner, JSON_COMPACT);
    json_decref(owner);
    if (text)
        n = (size_t)asprintf(&record, GENERATION "%*u,%s", DIGITS, job->generation, text + 1);
    free(text);
    if (!record)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", path);
    lock->n = n - OFFSET;
    lock->hash = tutti__hash64(record + OFFSET, lock->n);
    length = lseek(lock->fd, 0, SEEK_END);
    if (lseek(lock->fd, 0, SEEK_SET) != 0)
        status = tutti__fail_errno(errno, "cannot write %s", path);
    else
        status = tutti__write_all(lock->fd, path, record, n);
    /* Overwrites the rest of a longer record with spaces: some file systems cannot truncate files. */
    for (; status == TUTTI_OK && (off_t)n < length; n++)
        status = tutti__write_all(lock->fd, path, " ", 1);
    if (status != TUTTI_OK) { /* a full disk: the file alone tells whose it is */
        lock->n = 0;
        lock->hash = tutti__hash64(record, 0);
    }
    free(record);
    return status;
}

static void read_earlier(tutti__run_lock *lock)
{
    json_t *owner = read_owner(lock->fd);
    struct stat st;

    lock->contested = false;
    lock->anew = fstat(lock->fd, &st) == 0 && st.st_size == 0;
    lock->earlier = (tutti__train_job){0};
    snprintf(lock->earlier.id, sizeof lock->earlier.id, "%s", text_of(owner, "job", ""));
    snprintf(lock->earlier.slurm, sizeof lock->earlier.slurm, "%s", text_of(owner, "slurm", ""));
    json_decref(owner);
}

/* A unique token for every start of a run. */
static void make_token(char token[33])
{
    char host[256] = "";
    struct {
        uint64_t wall, monotonic, pid, host;
    } parts = {0};

    gethostname(host, sizeof host - 1);
    parts.wall = tutti__wall_ns();
    parts.monotonic = tutti__now_ns();
    parts.pid = (uint64_t)getpid();
    parts.host = tutti__hash64(host, strlen(host));
    snprintf(token, 33, "%016llx", (unsigned long long)tutti__hash64(&parts, sizeof parts));
}

/* Opens and locks, as lock_within, the file that has the name after that. */
static tutti_status open_and_lock(tutti__run_lock *lock, const char *path, int ms, int *error_p)
{
    for (;;) {
        lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (lock->fd < 0)
            return tutti__fail_errno(errno, "cannot write %s", path);
        *error_p = lock_within(lock->fd, ms);
        if (*error_p || tutti__is_file(lock->fd, path))
            return TUTTI_OK;
        tutti__run_lock_release(lock);
    }
}

tutti_status tutti__run_lock_take(tutti__run_lock *lock, const char *folder,
                                  const tutti__train_job *job)
{
    char path[4096];
    tutti_status status;
    int error;

    TUTTI_TRY(lock_path(folder, path));
    TUTTI_TRY(open_and_lock(lock, path, job->restarted || job->requeued ? RESTARTED_MS : WAIT_MS,
                            &error));
    if (error == EAGAIN) {
        status = refuse(lock->fd, folder);
        tutti__run_lock_release(lock);
        return status;
    }
    if (error)
        tutti_log(
            TUTTI_LOG_WARN, "train",
            "%s: this file system has no locks (%s): another job in the same run folder would "
            "not be noticed",
            path, strerror(error));
    read_earlier(lock);
    make_token(lock->token);
    return write_owner(lock, path, job);
}

void tutti__run_lock_release(tutti__run_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}

bool tutti__run_lock_is_own(const tutti__run_lock *lock, const char *folder)
{
    char path[4096];

    return lock->fd >= 0 && lock_path(folder, path) == TUTTI_OK && tutti__is_file(lock->fd, path) &&
           names_owner(lock->fd, lock);
}

void tutti__run_lock_withdraw(tutti__run_lock *lock, const char *folder)
{
    char path[4096];

    if (lock->anew && tutti__run_lock_is_own(lock, folder) && lock_path(folder, path) == TUTTI_OK)
        (void)unlink(path);
    tutti__run_lock_release(lock);
}

/* Until the file is another, or names a later generation. */
static int lock_from_earlier(int fd, const char *path, const tutti__train_job *job, int ms)
{
    const double deadline = tutti__now_ms() + ms;
    int error;

    do
        error = lock_within(fd, ms < LOOK_MS ? ms : LOOK_MS);
    while (error == EAGAIN && tutti__now_ms() < deadline && tutti__is_file(fd, path) &&
           generation_of(fd) <= job->generation);
    return error;
}

/* What a host does not see of another's locks may still be held. */
static bool may_live(int fd, int error)
{
    json_t *owner = read_owner(fd);
    char host[256] = "";
    bool may;

    gethostname(host, sizeof host - 1);
    may = error != 0 || strcmp(text_of(owner, "host", ""), host) != 0;
    json_decref(owner);
    return may;
}

bool tutti__run_lock_inherit(tutti__run_lock *lock, const char *folder, const char *token,
                             const tutti__train_job *job, int ms)
{
    char path[4096];
    int error;

    if (lock_path(folder, path) != TUTTI_OK)
        return false;
    lock->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock->fd < 0) /* the folder is on another host */
        return false;
    error = lock_from_earlier(lock->fd, path, job, ms);
    if (error == EAGAIN || !tutti__is_file(lock->fd, path) || !has_token(lock->fd, token) ||
        generation_of(lock->fd) + (error != 0) > job->generation) {
        tutti__run_lock_release(lock);
        return false;
    }
    lock->contested = may_live(lock->fd, error);
    snprintf(lock->token, sizeof lock->token, "%s", token);
    if (write_owner(lock, path, job) != TUTTI_OK)
        tutti_log(TUTTI_LOG_INFO, "train", "%s", tutti_last_error());
    return true;
}

/* Gives a new file, of this owner, the name. */
static bool replace_file(tutti__run_lock *lock, const char *path, const tutti__train_job *job)
{
    char mine[4096 + 64], once[33];

    make_token(once);
    snprintf(mine, sizeof mine, "%s.%s.tmp", path, once);
    lock->fd = open(mine, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (lock->fd < 0)
        return false;
    if (lock_within(lock->fd, 0) != EAGAIN && write_owner(lock, mine, job) == TUTTI_OK &&
        rename(mine, path) == 0 && tutti__is_file(lock->fd, path))
        return true;
    (void)unlink(mine);
    tutti__run_lock_release(lock);
    return false;
}

bool tutti__run_lock_seize(tutti__run_lock *lock, const char *folder, const char *token,
                           const tutti__train_job *job)
{
    char path[4096];
    int old;
    bool may;

    if (lock_path(folder, path) != TUTTI_OK)
        return false;
    old = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    may = old >= 0 && has_token(old, token) && generation_of(old) < job->generation;
    if (old >= 0)
        close(old);
    if (!may)
        return false;
    snprintf(lock->token, sizeof lock->token, "%s", token);
    lock->contested = true;
    return replace_file(lock, path, job);
}

bool tutti__run_lock_has_later(const char *folder, const char *token, const tutti__train_job *job)
{
    char path[4096];
    int fd = -1;
    bool has;

    if (lock_path(folder, path) == TUTTI_OK)
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    has = has_token(fd, token) && generation_of(fd) >= job->generation;
    close(fd);
    return has;
}

void tutti__run_lock_renew(const tutti__run_lock *lock, const char *folder,
                           const tutti__train_job *job)
{
    char digits[DIGITS + 1];

    snprintf(digits, sizeof digits, "%*u", DIGITS, job->generation);
    if (tutti__run_lock_is_held(lock, folder) && has_token(lock->fd, lock->token) &&
        pwrite(lock->fd, digits, DIGITS, strlen(GENERATION)) != DIGITS)
        tutti_log(TUTTI_LOG_INFO, "train", "%s/.lock lacks the generation: %s", folder,
                  strerror(errno));
}

/* What the name leads to now. Opened anew, because a network file system then asks its server. */
static bool is_at(const tutti__run_lock *lock, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool is;

    if (fd < 0) /* also where the file is gone: writing will report it */
        return tutti__is_file(lock->fd, path) || access(path, F_OK) != 0;
    is = tutti__is_file(lock->fd, path) && names_owner(fd, lock);
    close(fd);
    return is;
}

bool tutti__run_lock_is_held(const tutti__run_lock *lock, const char *folder)
{
    char path[4096];

    return lock->fd >= 0 && lock_path(folder, path) == TUTTI_OK && is_at(lock, path);
}

bool tutti__run_lock_is_lost(const tutti__run_lock *lock, const char *folder)
{
    return lock->fd >= 0 && !tutti__run_lock_is_held(lock, folder) &&
           tutti__run_lock_has_later(folder, lock->token, &(tutti__train_job){.generation = 0});
}

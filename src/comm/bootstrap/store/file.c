/* file.c -- a store in a file, for processes of one host or with a shared file system.   SPDX-License-Identifier: MIT
 *
 *     MAGIC | record | record ...        a record: head (lengths, hash), key, value; "deleted" is a special length
 *
 * The file is a log: a process that changes a key appends its new value, and every process keeps a dictionary of what it
 * has read so far. Two kernel locks, which end with their owner, however that one ends: byte 0 is held while the log is
 * read or written, byte 1 by every process that has the store open. A writer that is killed leaves half a record, which
 * its hash reveals and the next writer truncates. A process that opens a file that no other has open empties it, and the
 * last to close it removes it: the next job finds nothing of this one, even if all of it was killed. */
#include "comm/bootstrap/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOG_BYTE, USE_BYTE, LOCK_MS = 10000, POLL_MS = 20 };

static const char MAGIC[16] = "tutti store 1\n";

static const uint32_t DELETED = UINT32_MAX; /* as value_bytes */

typedef struct record {
    uint64_t hash; /* of what follows */
    uint32_t key_bytes, value_bytes;
    char body[]; /* key, value */
} record;

typedef struct file_store {
    tutti_store store; /* first: a tutti_store * is a file_store * */
    char *path;
    int fd;
    /* Protects all below; the kernel's locks belong to the descriptor, so threads need one of their own. */
    pthread_mutex_t lock;
    tutti__dictionary dictionary;
    off_t end; /* what is before it is in the dictionary */
} file_store;

/* ---- Log ---------------------------------------------------------------------------------------------- */

static int read_at(int fd, void *p, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)p + done, bytes - done, at + (off_t)done);

        if (n == 0 || (n < 0 && errno != EINTR))
            return n < 0 ? errno : ENODATA;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_at(int fd, const void *p, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)p + done, bytes - done, at + (off_t)done);

        if (n < 0 && errno != EINTR)
            return errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static size_t record_bytes(const record *r)
{
    return sizeof *r + r->key_bytes + (r->value_bytes == DELETED ? 0 : r->value_bytes);
}

static uint64_t hash_of(const record *r)
{
    return tutti__hash64((const char *)r + sizeof r->hash, record_bytes(r) - sizeof r->hash);
}

/* Reads the record at f->end. *record_p stays NULL if there is none, or half of one. Returns 0 or an errno. */
static int read_record(const file_store *f, record **record_p)
{
    record head, *r;
    int error = read_at(f->fd, &head, sizeof head, f->end);

    *record_p = NULL;
    if (error || head.key_bytes == 0 || head.key_bytes > TUTTI__KEY_LIMIT ||
        (head.value_bytes > TUTTI__VALUE_LIMIT && head.value_bytes != DELETED))
        return error == ENODATA ? 0 : error;
    r = malloc(record_bytes(&head) + 1);
    if (!r)
        return ENOMEM;
    *r = head;
    error = read_at(f->fd, r->body, record_bytes(&head) - sizeof head, f->end + (off_t)sizeof head);
    if (!error && r->hash == hash_of(r) && !memchr(r->body, '\0', r->key_bytes))
        *record_p = r;
    else
        free(r);
    return error == ENODATA ? 0 : error;
}

/* Reads what others have appended. */
static int catch_up(file_store *f)
{
    record *r;
    int error;

    while ((error = read_record(f, &r)) == 0 && r) {
        char key[TUTTI__KEY_LIMIT + 1];

        memcpy(key, r->body, r->key_bytes);
        key[r->key_bytes] = '\0';
        if (r->value_bytes == DELETED)
            (void)tutti__dictionary_delete(&f->dictionary, key);
        else if (tutti__dictionary_set(&f->dictionary, key, r->body + r->key_bytes,
                                       r->value_bytes) != TUTTI_OK)
            error = ENOMEM;
        if (!error)
            f->end += (off_t)record_bytes(r);
        free(r);
        if (error)
            break;
    }
    return error;
}

/* Appends the key's value in the dictionary. If the write fails, the dictionary is read again. */
static int append(file_store *f, const char *key)
{
    const tutti__entry *entry = tutti__dictionary_find(&f->dictionary, key);
    size_t key_bytes = strlen(key), bytes = sizeof(record) + key_bytes + (entry ? entry->bytes : 0);
    record *r = malloc(bytes);
    int error = r ? 0 : ENOMEM;

    if (r) {
        r->key_bytes = (uint32_t)key_bytes;
        r->value_bytes = entry ? (uint32_t)entry->bytes : DELETED;
        memcpy(r->body, key, key_bytes);
        if (entry && entry->bytes)
            memcpy(r->body + key_bytes, entry->value, entry->bytes);
        r->hash = hash_of(r);
        error = ftruncate(f->fd, f->end) != 0 ? errno : write_at(f->fd, r, bytes, f->end);
        free(r);
    }
    if (!error) {
        f->end += (off_t)bytes;
        return 0;
    }
    (void)!ftruncate(f->fd, f->end);
    tutti__dictionary_destroy(&f->dictionary);
    f->end = sizeof MAGIC;
    return error;
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

static tutti_status fail_file(const file_store *f, int error, const char *key)
{
    if (error == EAGAIN)
        return tutti__fail(TUTTI_ERR_IO,
                           "%s has been locked by another process for %d s, while key \"%s\" was "
                           "asked for: that process is stopped, or the file system hangs",
                           f->store.where, LOCK_MS / 1000, key);
    return tutti__fail_errno(error, "%s, key \"%s\"", f->store.where, key);
}

/* One attempt, under the lock. */
static tutti_status ask_once(file_store *f, const tutti__request *request, tutti__reply *reply,
                             bool changes)
{
    tutti_status status;
    int error;

    pthread_mutex_lock(&f->lock);
    /* bounded: a holder that is stopped must not stop this rank too */
    error = tutti__lock_file(f->fd, changes ? F_WRLCK : F_RDLCK, LOG_BYTE, LOCK_MS);
    if (!error) {
        error = catch_up(f);
        status = error ? TUTTI_OK : tutti__dictionary_ask(&f->dictionary, request, reply);
        if (!error && status == TUTTI_OK && changes)
            error = append(f, request->key);
        tutti__lock_file(f->fd, F_UNLCK, LOG_BYTE, 0);
    }
    if (error)
        status = fail_file(f, error, request->key);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static tutti_status file_ask(tutti_store *store, const tutti__request *request, tutti__reply *reply)
{
    file_store *f = (file_store *)store;
    bool waits = request->op == TUTTI__GET || request->op == TUTTI__WAIT;
    bool changes = !waits && request->op != TUTTI__COUNT;
    double deadline = tutti__now_ms() + (waits ? (double)request->number : 0);
    size_t capacity = reply->bytes;

    for (int pause_ms = 1;;) {
        bool last = tutti__now_ms() >= deadline;
        tutti_status status;
        int left;

        reply->bytes = capacity;
        status = ask_once(f, request, reply, changes);
        if (status != TUTTI_ERR_TIMEOUT || last)
            return status;
        left = tutti__poll_ms(deadline);
        poll(NULL, 0, left < pause_ms ? left : pause_ms);
        pause_ms = pause_ms < POLL_MS ? 2 * pause_ms : POLL_MS;
    }
}

/* ---- Opening and closing ------------------------------------------------------------------------------ */

/* For the only user: empties what another job left. A file that is not a store is not touched. */
static tutti_status begin_anew(int fd, const char *path)
{
    char head[sizeof MAGIC] = "";
    struct stat info;
    int error = fstat(fd, &info) != 0 ? errno : 0;

    if (!error && info.st_size > 0)
        error = read_at(fd, head,
                        info.st_size < (off_t)sizeof head ? (size_t)info.st_size : sizeof head, 0);
    if (!error &&
        memcmp(head, MAGIC,
               info.st_size < (off_t)sizeof head ? (size_t)info.st_size : sizeof head) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is not a store of Tutti, but a file of %lld bytes that would be "
                           "lost; give a path where there is no file",
                           path, (long long)info.st_size);
    if (!error)
        error = ftruncate(fd, 0) != 0 ? errno : write_at(fd, MAGIC, sizeof MAGIC, 0);
    return error ? tutti__fail_errno(error, "cannot write the store file %s", path) : TUTTI_OK;
}

/* Takes this user's share of byte 1. *taken_p: false if the file was just being removed or emptied: try again. */
static tutti_status join_users(int fd, const char *path, bool *taken_p)
{
    int error = tutti__lock_file(fd, F_WRLCK, USE_BYTE, 0);
    bool alone = error == 0;

    if (error == EAGAIN)
        error = tutti__lock_file(fd, F_RDLCK, USE_BYTE, 0);
    *taken_p = error == 0 && tutti__is_file(fd, path);
    if (error && error != EAGAIN)
        return tutti__fail_errno(
            error, "cannot lock the store file %s: does its file system support locks?", path);
    if (!*taken_p || !alone)
        return TUTTI_OK;
    TUTTI_TRY(begin_anew(fd, path));
    (void)tutti__lock_file(fd, F_RDLCK, USE_BYTE, 0);
    return TUTTI_OK;
}

static tutti_status open_path(const char *path, int *fd_p)
{
    double deadline = tutti__now_ms() + LOCK_MS;
    bool taken = false;

    do {
        struct stat info;
        tutti_status status;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0)
            return tutti__fail_errno(errno, "cannot open the store file %s", path);
        if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
            close(fd);
            return tutti__fail(TUTTI_ERR_ARG,
                               "the store file %s is not owned by this user: another could answer "
                               "for the ranks of this job; give a path of your own",
                               path);
        }
        status = join_users(fd, path, &taken);
        if (status == TUTTI_OK && taken) {
            *fd_p = fd;
            return TUTTI_OK;
        }
        close(fd);
        TUTTI_TRY(status);
        poll(NULL, 0, 1);
    } while (tutti__now_ms() < deadline);
    return tutti__fail(TUTTI_ERR_TIMEOUT,
                       "the store file %s has been locked for %d s by a process that was just "
                       "opening or closing it: is it stopped?",
                       path, LOCK_MS / 1000);
}

static void file_free(tutti_store *store)
{
    file_store *f = (file_store *)store;

    if (tutti__lock_file(f->fd, F_WRLCK, USE_BYTE, 0) == 0 && tutti__is_file(f->fd, f->path))
        unlink(f->path); /* no other process has it open */
    close(f->fd);
    tutti__dictionary_destroy(&f->dictionary);
    pthread_mutex_destroy(&f->lock);
    free(f->path);
    free(f);
}

static tutti_status file_clone(tutti_store *store, tutti_store **clone_p)
{
    return tutti_store_file_open(clone_p, ((const file_store *)store)->path);
}

static const tutti__store_ops FILE_OPS = {.ask = file_ask, .clone = file_clone, .free = file_free};

tutti_status tutti_store_file_open(tutti_store **store_p, const char *path)
{
    file_store *f;
    char *copy;
    int fd = -1;

    *store_p = NULL;
    if (!path || !*path)
        return tutti__fail(TUTTI_ERR_ARG, "no path for the store file");
    TUTTI_TRY(open_path(path, &fd));
    f = tutti__alloc(sizeof *f);
    copy = strdup(path);
    if (!f || !copy) {
        free(f);
        free(copy);
        close(fd);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the store file %s", path);
    }
    f->store.ops = &FILE_OPS;
    snprintf(f->store.where, sizeof f->store.where, "the store file %.70s", path);
    f->path = copy;
    f->fd = fd;
    f->end = sizeof MAGIC;
    pthread_mutex_init(&f->lock, NULL);
    *store_p = &f->store;
    return TUTTI_OK;
}

/* checkpoint_folder.c -- writes checkpoints so that each is complete or absent.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_folder.h"

#include "base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 18, REMOVALS = 8 };
enum { LOCK_MS = 1000 };         /* for a process that was just killed, or is ending */
#define PREVIOUS ".previous.tmp" /* an older checkpoint while another takes its name */
#define LOCK     ".lock.tmp"

/* ---- Names ----------------------------------------------------------------------------------------------- */

static tutti_status join(char path[TUTTI__CHECKPOINT_PATH], const char *dir, const char *name)
{
    if (snprintf(path, TUTTI__CHECKPOINT_PATH, "%s/%s", dir, name) >= TUTTI__CHECKPOINT_PATH)
        return tutti__fail(TUTTI_ERR_ARG, "checkpoints: the path %.60s... is too long", dir);
    return TUTTI_OK;
}

static tutti_status step_path(const char *dir, uint64_t step, const char *end,
                              char path[TUTTI__CHECKPOINT_PATH])
{
    char name[64];

    snprintf(name, sizeof name, "step-%08" PRIu64 "%s", step, end);
    return join(path, dir, name);
}

tutti_status tutti__checkpoint_path(const char *dir, uint64_t step,
                                    char path[TUTTI__CHECKPOINT_PATH])
{
    return step_path(dir, step, "", path);
}

bool tutti__checkpoint_step(const char *path, uint64_t *step_p)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int64_t step;

    if (strncmp(name, "step-", 5) != 0 || strlen(name) < 13 ||
        name[5 + strspn(name + 5, "0123456789")] || !tutti__parse_int64(name + 5, &step))
        return false;
    *step_p = (uint64_t)step;
    return true;
}

bool tutti__folder_holds(const char *folder, const char *name)
{
    char path[TUTTI__CHECKPOINT_PATH + 32];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

bool tutti__is_checkpoint(const char *folder)
{
    return tutti__folder_holds(folder, "state.json") &&
           (tutti__folder_holds(folder, "model.safetensors") ||
            tutti__folder_holds(folder, "model.safetensors.index.json"));
}

static bool is_temporary(const char *name)
{
    size_t n = strlen(name);

    return (strncmp(name, "step-", 5) == 0 || strncmp(name, "latest", 6) == 0 ||
            strncmp(name, "best.", 5) == 0) &&
           n > 4 && strcmp(name + n - 4, ".tmp") == 0;
}

/* ---- Disk ------------------------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *place)
{
    (void)st;
    (void)type;
    (void)place;
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* Removes the folder and all in it, also what no checkpoint has, and what another rank adds meanwhile. Of a symbolic link it removes
 * only the link. */
static tutti_status remove_folder(const char *path)
{
    for (int i = 0; i < REMOVALS; i++) {
        if (nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0 || errno == ENOENT)
            return TUTTI_OK;
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
    }
    return tutti__fail_errno(errno, "cannot remove %s", path);
}

/* PATH + end */
static tutti_status with_end(char out[TUTTI__CHECKPOINT_PATH], const char *path, const char *end)
{
    if (snprintf(out, TUTTI__CHECKPOINT_PATH, "%s%s", path, end) >= TUTTI__CHECKPOINT_PATH)
        return tutti__fail(TUTTI_ERR_ARG, "checkpoints: the path %.60s... is too long", path);
    return TUTTI_OK;
}

/* The folder that contains `path`. */
static void parent_of(const char *path, char parent[TUTTI__CHECKPOINT_PATH])
{
    char copy[TUTTI__CHECKPOINT_PATH];

    snprintf(copy, sizeof copy, "%s", path);
    snprintf(parent, TUTTI__CHECKPOINT_PATH, "%s", dirname(copy));
}

static tutti_status remove_step(const char *dir, uint64_t step)
{
    char path[TUTTI__CHECKPOINT_PATH], gone[TUTTI__CHECKPOINT_PATH];

    TUTTI_TRY(step_path(dir, step, "", path));
    TUTTI_TRY(step_path(dir, step, ".old.tmp", gone));
    TUTTI_TRY(remove_folder(gone));
    if (rename(path, gone) != 0)
        return errno == ENOENT ? TUTTI_OK : tutti__fail_errno(errno, "cannot remove %s", path);
    return remove_folder(gone);
}

/* ---- One checkpoint ----------------------------------------------------------------------------------------

 * The order, and why it is enough. A folder of this name is no checkpoint while it ends in .tmp, so nothing before the rename
 * can do harm: a kill or a full disk leaves a folder that the next run removes, and the checkpoints before are not touched.
 * The rename must not outlast a loss of power where the contents do not: so before it each file is fsynced (its bytes and its
 * length), then the folder (their names). Files need no temporary names of their own in a folder that is temporary. Older
 * checkpoints must not go where the rename has not come to the disk: so the parent is fsynced before `latest` moves and before
 * anything is removed, which the caller does last. Between these points the order of calls is free: the disk is told to begin
 * with each file while the next is made, and reads all of them again while it makes the folder durable. */

static bool is_aside(const char *path, char previous[TUTTI__CHECKPOINT_PATH])
{
    return access(path, F_OK) != 0 && errno == ENOENT &&
           with_end(previous, path, PREVIOUS) == TUTTI_OK && access(previous, F_OK) == 0;
}

static void recover(const char *path)
{
    char previous[TUTTI__CHECKPOINT_PATH];

    if (is_aside(path, previous))
        (void)!rename(previous, path);
}

/* One process at a time writes PATH.tmp: two would leave a checkpoint of neither. The lock is a file beside PATH, and ends with
 * the process. Where the file system has no locks, another process is not noticed. */
static tutti_status lock(const char *path, int *fd_p)
{
    const double deadline = tutti__now_ms() + LOCK_MS;
    char name[TUTTI__CHECKPOINT_PATH];

    TUTTI_TRY(with_end(name, path, LOCK));
    for (;;) {
        int error;

        *fd_p = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (*fd_p < 0)
            return tutti__fail_errno(errno, "cannot make %s", name);
        error = tutti__lock_file(*fd_p, F_WRLCK, TUTTI__WHOLE_FILE, (int)tutti__ms_left(deadline));
        if (error == 0 ? tutti__is_file(*fd_p, name) /* else just removed */ : error != EAGAIN)
            return TUTTI_OK;
        close(*fd_p);
        *fd_p = -1;
        if (error)
            return tutti__fail(TUTTI_ERR_STATE,
                               "another program, or another thread, is saving to %s; each needs a "
                               "path of its own",
                               path);
    }
}

static void unlock(const char *path, int *fd_p)
{
    char name[TUTTI__CHECKPOINT_PATH];

    if (*fd_p < 0)
        return;
    if (with_end(name, path, LOCK) == TUTTI_OK)
        unlink(name);
    close(*fd_p);
    *fd_p = -1;
}

void tutti__checkpoint_recover(const char *path)
{
    char previous[TUTTI__CHECKPOINT_PATH];
    int fd;

    if (!is_aside(path, previous) || lock(path, &fd) != TUTTI_OK)
        return;
    recover(path); /* if it was not another process that is saving, and is done now */
    unlock(path, &fd);
}

static void init(tutti__draft *draft)
{
    draft->dir = NULL;
    draft->is_owner = NULL;
    draft->joined = false;
    draft->lock = draft->at = -1;
    draft->n = 0;
    draft->path[0] = draft->folder[0] = '\0';
}

/* Chooses names, and makes the folders above. */
static tutti_status prepare(tutti__draft *draft, const char *path)
{
    char parent[TUTTI__CHECKPOINT_PATH];

    TUTTI_TRY(with_end(draft->path, path, ""));
    parent_of(path, parent);
    return tutti__make_dirs(parent);
}

/* While this process was frozen or cut off, another may have taken over, and have begun a checkpoint of the same name. Where the
 * folder is gone, writing will report it. */
static bool is_own(const tutti__draft *draft)
{
    return (!draft->is_owner || draft->is_owner(draft->owner)) &&
           (draft->at < 0 || tutti__is_file(draft->at, draft->folder) ||
            access(draft->folder, F_OK) != 0);
}

static tutti_status check_owner(const tutti__draft *draft)
{
    if (is_own(draft))
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_STATE,
        "%s: another process has taken over the folder, so this checkpoint gets no name",
        draft->path);
}

static tutti_status make_folder(tutti__draft *draft)
{
    char folder[TUTTI__CHECKPOINT_PATH];

    TUTTI_TRY(check_owner(draft));
    recover(draft->path);
    TUTTI_TRY(with_end(folder, draft->path, ".tmp"));
    if (mkdir(folder, 0777) != 0) {
        if (errno != EEXIST)
            return tutti__fail_errno(errno, "cannot make folder %s", folder);
        TUTTI_TRY(remove_folder(folder));
        if (mkdir(folder, 0777) != 0)
            return tutti__fail_errno(errno, "cannot make folder %s", folder);
    }
    strcpy(draft->folder, folder);
    draft->at = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return draft->at >= 0 ? TUTTI_OK : tutti__fail_errno(errno, "cannot open folder %s", folder);
}

tutti_status tutti__checkpoint_begin_at(tutti__draft *draft, const char *path)
{
    init(draft);
    TUTTI_TRY(prepare(draft, path));
    TUTTI_TRY(lock(draft->path, &draft->lock));
    return make_folder(draft);
}

tutti_status tutti__checkpoint_begin(tutti__draft *draft, const char *dir, uint64_t step,
                                     bool (*is_owner)(const void *owner), const void *owner)
{
    char path[TUTTI__CHECKPOINT_PATH];

    init(draft);
    draft->is_owner = is_owner;
    draft->owner = owner;
    TUTTI_TRY(step_path(dir, step, "", path));
    TUTTI_TRY(prepare(draft, path));
    TUTTI_TRY(make_folder(draft));
    draft->dir = dir;
    draft->step = step;
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_join(tutti__draft *draft, const char *folder)
{
    init(draft);
    draft->joined = true;
    TUTTI_TRY(with_end(draft->path, folder, ""));
    TUTTI_TRY(with_end(draft->folder, folder, ""));
    draft->at = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return draft->at >= 0 ? TUTTI_OK : tutti__fail_errno(errno, "cannot open folder %s", folder);
}

tutti_status tutti__checkpoint_mark(const tutti__draft *draft, const char *mark, bool make)
{
    const int fd = make ? openat(draft->at, mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
                        : unlinkat(draft->at, mark, 0);

    if (fd < 0)
        return tutti__fail_errno(errno, "cannot %s %s/%s", make ? "write" : "remove", draft->folder,
                                 mark);
    if (make)
        close(fd);
    return TUTTI_OK;
}

static tutti_status file_path(const tutti__draft *draft, const tutti__draft_file *file,
                              char path[TUTTI__CHECKPOINT_PATH])
{
    return join(path, draft->folder, file->name);
}

/* The last file is complete: computes its digest, and starts writing it to disk without waiting. */
static void end_last(tutti__draft *draft)
{
    tutti__draft_file *file = draft->n > 0 ? &draft->files[draft->n - 1] : NULL;

    if (!file || !file->hash)
        return;
    tutti__hash128_end(file->hash, file->digest);
    file->hash = NULL;
    sync_file_range(file->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static tutti_status close_files(tutti__draft *draft)
{
    char path[TUTTI__CHECKPOINT_PATH];
    tutti_status status = TUTTI_OK;

    end_last(draft);
    for (size_t i = 0; i < draft->n; i++)
        if (close(draft->files[i].fd) != 0 && status == TUTTI_OK &&
            (status = file_path(draft, &draft->files[i], path)) == TUTTI_OK)
            status = tutti__fail_errno(errno, "cannot write %s", path);
    draft->n = 0;
    return status;
}

/* Checks that the file contains what was written to it. */
static tutti_status read_back(const tutti__draft_file *file, const char *path, char *room)
{
    tutti__hash128_state *hash = tutti__hash128_new();
    char digest[33];
    off_t at = 0;
    ssize_t n;

    if (!hash)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s back", path);
    while ((n = pread(file->fd, room, READ_BYTES, at)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        tutti__hash128_add(hash, room, (size_t)n);
        at += n;
    }
    tutti__hash128_end(hash, digest);
    if (n < 0)
        return tutti__fail_errno(errno, "cannot read %s back", path);
    if (strcmp(digest, file->digest) != 0)
        return tutti__fail(TUTTI_ERR_IO,
                           "%s is damaged: digest %s was written, but the disk returns %s", path,
                           file->digest, digest);
    return TUTTI_OK;
}

/* Syncs files and their names to disk, then reads the files back from disk, not from the page cache. */
static tutti_status make_durable(tutti__draft *draft)
{
    char path[TUTTI__CHECKPOINT_PATH], *room;
    tutti_status status = TUTTI_OK;

    end_last(draft);
    for (size_t i = 0; i < draft->n; i++) {
        TUTTI_TRY(file_path(draft, &draft->files[i], path));
        TUTTI_TRY(tutti__sync_file(draft->files[i].fd, path));
    }
    for (size_t i = 0; i < draft->n; i++) {
        posix_fadvise(draft->files[i].fd, 0, 0, POSIX_FADV_DONTNEED);
        posix_fadvise(draft->files[i].fd, 0, 0, POSIX_FADV_WILLNEED);
    }
    TUTTI_TRY(tutti__sync_folder(draft->folder));
    room = tutti__alloc_unset(READ_BYTES);
    if (!room)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory to read %s back", draft->folder);
    for (size_t i = 0; i < draft->n && status == TUTTI_OK; i++) {
        status = file_path(draft, &draft->files[i], path);
        if (status == TUTTI_OK)
            status = read_back(&draft->files[i], path, room);
    }
    free(room);
    return status == TUTTI_OK ? close_files(draft) : status;
}

tutti_status tutti__checkpoint_file(tutti__draft *draft, const char *name)
{
    tutti__draft_file *file;
    char path[TUTTI__CHECKPOINT_PATH];

    if (draft->n == TUTTI__DRAFT_FILES)
        TUTTI_TRY(make_durable(draft));
    end_last(draft);
    file = &draft->files[draft->n];
    snprintf(file->name, sizeof file->name, "%s", name);
    TUTTI_TRY(file_path(draft, file, path));
    TUTTI_TRY(check_owner(draft));
    /* in this process's folder, whatever has its name by now */
    file->fd = openat(draft->at, file->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0)
        return tutti__fail_errno(errno, "cannot write %s", path);
    draft->n++;
    file->hash = tutti__hash128_new();
    return file->hash ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory to write %s", path);
}

tutti_status tutti__checkpoint_write(void *user, const void *p, size_t bytes)
{
    tutti__draft *draft = user;
    tutti__draft_file *file = &draft->files[draft->n - 1];
    char path[TUTTI__CHECKPOINT_PATH];

    TUTTI_TRY(file_path(draft, file, path));
    TUTTI_TRY(tutti__write_all(file->fd, path, p, bytes));
    tutti__hash128_add(file->hash, p, bytes);
    return TUTTI_OK;
}

/* draft->folder is not, or no longer, the one that this process has made. */
static void forget_folder(tutti__draft *draft)
{
    if (draft->at >= 0)
        close(draft->at);
    draft->at = -1;
}

tutti_status tutti__checkpoint_settle(tutti__draft *draft)
{
    TUTTI_TRY(make_durable(draft));
    forget_folder(draft);
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_abandon(tutti__draft *draft, tutti_status status)
{
    char message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    close_files(draft);
    if (draft->folder[0] && !draft->joined && is_own(draft) &&
        remove_folder(draft->folder) != TUTTI_OK)
        tutti_log(TUTTI_LOG_INFO, "checkpoint", "%s", tutti_last_error());
    forget_folder(draft);
    unlock(draft->path, &draft->lock);
    return tutti__fail_again(status, message);
}

/* `latest` is for people and for --init. */
static tutti_status point_latest(const char *dir, uint64_t step)
{
    char path[TUTTI__CHECKPOINT_PATH], name[64];

    TUTTI_TRY(join(path, dir, "latest"));
    snprintf(name, sizeof name, "step-%08" PRIu64, step);
    return tutti__replace_link(name, path);
}

/* The step to which `best` points. */
static bool best_step(const char *dir, uint64_t *step_p)
{
    char path[TUTTI__CHECKPOINT_PATH], name[64];
    ssize_t n;

    if (join(path, dir, "best") != TUTTI_OK)
        return false;
    n = readlink(path, name, sizeof name - 1);
    if (n < 0)
        return false;
    name[n] = '\0';
    return tutti__checkpoint_step(name, step_p);
}

tutti_status tutti__checkpoint_point_best(const char *dir, uint64_t step)
{
    char path[TUTTI__CHECKPOINT_PATH], name[64];
    uint64_t found;

    TUTTI_TRY(join(path, dir, "best"));
    snprintf(name, sizeof name, "step-%08" PRIu64, step);
    TUTTI_TRY(tutti__replace_link(name, path));
    if (!best_step(dir, &found) || found != step)
        return tutti__fail(TUTTI_ERR_IO,
                           "cannot make the link %s: the file system has no symbolic links, which "
                           "checkpoint_best needs",
                           path);
    return tutti__sync_folder(dir);
}

/* Gives the draft its name; draft->folder then is the older one of that name, if there was one. The two are exchanged
 * atomically if the file system can. Else the older one moves aside for a moment, in which a kill leaves it to recover. */
static tutti_status take_name(tutti__draft *draft)
{
    char previous[TUTTI__CHECKPOINT_PATH];

    if (renameat2(AT_FDCWD, draft->folder, AT_FDCWD, draft->path, RENAME_EXCHANGE) == 0)
        return TUTTI_OK;
    if (rename(draft->folder, draft->path) == 0) /* there was none */
        return TUTTI_OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return tutti__fail_errno(errno, "cannot rename %s to %s", draft->folder, draft->path);
    TUTTI_TRY(with_end(previous, draft->path, PREVIOUS));
    TUTTI_TRY(remove_folder(previous));
    if (rename(draft->path, previous) != 0)
        return tutti__fail_errno(errno, "cannot rename %s to %s", draft->path, previous);
    if (rename(draft->folder, draft->path) != 0) {
        tutti_status status =
            tutti__fail_errno(errno, "cannot rename %s to %s", draft->folder, draft->path);

        recover(draft->path);
        return status;
    }
    strcpy(draft->folder, previous);
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_commit(tutti__draft *draft)
{
    char parent[TUTTI__CHECKPOINT_PATH];

    TUTTI_TRY(make_durable(draft));
    TUTTI_TRY(check_owner(draft));
    TUTTI_TRY(take_name(draft));
    forget_folder(draft);
    parent_of(draft->path, parent);
    TUTTI_TRY(tutti__sync_folder(parent));
    if (draft->dir)
        TUTTI_TRY(point_latest(draft->dir, draft->step));
    if (remove_folder(draft->folder) != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "checkpoint", "an older checkpoint was not removed: %s",
                  tutti_last_error());
    unlock(draft->path, &draft->lock);
    return TUTTI_OK;
}

/* ---- All of them --------------------------------------------------------------------------------------------- */

static int latest_first(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? 1 : *x > *y ? -1 : 0;
}

tutti_status tutti__checkpoint_list(const char *dir, uint64_t **steps_p, size_t *n_p)
{
    DIR *folder = opendir(dir);
    size_t capacity = 0;
    struct dirent *entry;
    uint64_t step;

    *steps_p = NULL;
    *n_p = 0;
    if (!folder)
        return errno == ENOENT ? TUTTI_OK : tutti__fail_errno(errno, "cannot read %s", dir);
    while ((entry = readdir(folder))) {
        if (!tutti__checkpoint_step(entry->d_name, &step))
            continue;
        if (*n_p == capacity) {
            uint64_t *more = realloc(*steps_p, (2 * capacity + 8) * sizeof *more);

            if (!more) {
                free(*steps_p);
                *steps_p = NULL;
                *n_p = 0;
                closedir(folder);
                return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the list of %s", dir);
            }
            capacity = 2 * capacity + 8;
            *steps_p = more;
        }
        (*steps_p)[(*n_p)++] = step;
    }
    closedir(folder);
    if (*n_p > 0)
        qsort(*steps_p, *n_p, sizeof **steps_p, latest_first);
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_keep(const char *dir, size_t n)
{
    uint64_t *steps, best;
    const bool has_best = best_step(dir, &best);
    size_t found;
    tutti_status status;

    if (n == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &found));
    status = TUTTI_OK;
    for (size_t i = n; i < found && status == TUTTI_OK; i++)
        if (!has_best || steps[i] != best)
            status = remove_step(dir, steps[i]);
    free(steps);
    return status;
}

void tutti__checkpoint_recover_all(const char *dir)
{
    const size_t end = strlen(PREVIOUS);
    DIR *folder = opendir(dir);
    char path[TUTTI__CHECKPOINT_PATH];
    struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        const size_t n = strlen(entry->d_name);

        if (n > end && strcmp(entry->d_name + n - end, PREVIOUS) == 0 &&
            join(path, dir, entry->d_name) == TUTTI_OK) {
            path[strlen(path) - end] = '\0';
            recover(path);
        }
    }
    if (folder)
        closedir(folder);
}

static tutti_status clean(const char *dir)
{
    static const char *const links[] = {"latest", "best"};
    DIR *folder = opendir(dir);
    char path[TUTTI__CHECKPOINT_PATH];
    struct dirent *entry;
    tutti_status status = TUTTI_OK;

    if (!folder)
        return TUTTI_OK;
    while (status == TUTTI_OK && (entry = readdir(folder)))
        if (is_temporary(entry->d_name)) {
            status = join(path, dir, entry->d_name);
            if (status == TUTTI_OK && unlink(path) != 0)
                status = remove_folder(path);
        }
    closedir(folder);
    for (size_t i = 0; i < TUTTI__COUNT_OF(links) && status == TUTTI_OK; i++)
        if (join(path, dir, links[i]) == TUTTI_OK && access(path, F_OK) != 0)
            unlink(path);
    return status;
}

tutti_status tutti__checkpoint_keep_until(const char *dir, uint64_t step)
{
    uint64_t *steps;
    size_t n, i = 0;
    tutti_status status;

    tutti__checkpoint_recover_all(dir);
    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &n));
    status = TUTTI_OK;
    for (; i < n && steps[i] > step && status == TUTTI_OK; i++)
        status = remove_step(dir, steps[i]);
    if (status == TUTTI_OK)
        status = clean(dir);
    if (status == TUTTI_OK && i < n) /* also if its writer was killed before it moved the link */
        status = point_latest(dir, steps[i]);
    free(steps);
    return status;
}

tutti_status tutti__checkpoint_remove_all(const char *dir)
{
    uint64_t *steps;
    size_t n;
    tutti_status status;

    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &n));
    status = TUTTI_OK;
    for (size_t i = 0; i < n && status == TUTTI_OK; i++)
        status = remove_step(dir, steps[i]);
    free(steps);
    if (status == TUTTI_OK)
        status = clean(dir);
    rmdir(dir);
    return status;
}

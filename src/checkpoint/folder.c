/* folder.c -- complete checkpoints, and only those, under their names.   SPDX-License-Identifier: MIT */
#include "checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static bool is_temporary(const char *name)
{
    size_t n = strlen(name);

    return (strncmp(name, "step-", 5) == 0 || strncmp(name, "latest", 6) == 0) && n > 4 &&
           strcmp(name + n - 4, ".tmp") == 0;
}

/* ---- Disk ------------------------------------------------------------------------------------------------- */

/* The folder and the files in it; not what lies in folders of folders, which are nobody's checkpoint. Of a link to a folder
 * elsewhere the link only. */
static tutti_status remove_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        if (errno == ENOENT || (errno == ENOTDIR && unlink(path) == 0))
            return TUTTI_OK;
        return tutti__fail_errno(errno, "cannot remove %s", path);
    }
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    if (rmdir(path) != 0 && errno != ENOENT)
        return tutti__fail_errno(errno, "cannot remove %s", path);
    return TUTTI_OK;
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

tutti_status tutti__checkpoint_text(const char *folder, const char *name, const char *text)
{
    char path[TUTTI__CHECKPOINT_PATH];
    tutti_status status;
    int fd;

    TUTTI_TRY(join(path, folder, name));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return tutti__fail_errno(errno, "cannot write %s", path);
    status = tutti__write_all(fd, path, text, strlen(text));
    if (status == TUTTI_OK)
        status = tutti__sync_file(fd, path);
    if (close(fd) != 0 && status == TUTTI_OK)
        status = tutti__fail_errno(errno, "cannot write %s", path);
    return status;
}

/* ---- One checkpoint ---------------------------------------------------------------------------------------- */

tutti_status tutti__checkpoint_begin(const char *dir, uint64_t step,
                                     char temporary[TUTTI__CHECKPOINT_PATH])
{
    TUTTI_TRY(step_path(dir, step, ".tmp", temporary));
    TUTTI_TRY(tutti__make_dirs(dir));
    TUTTI_TRY(remove_folder(temporary));
    if (mkdir(temporary, 0777) != 0)
        return tutti__fail_errno(errno, "cannot make folder %s", temporary);
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_abandon(const char *dir, uint64_t step, tutti_status status)
{
    char temporary[TUTTI__CHECKPOINT_PATH], message[2048];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (step_path(dir, step, ".tmp", temporary) != TUTTI_OK || remove_folder(temporary) != TUTTI_OK)
        tutti_log(TUTTI_LOG_INFO, "checkpoint", "%s", tutti_last_error());
    return tutti__fail_again(status, message);
}

/* `latest` is for people and for --init: where there are no symbolic links, it is not there. */
static tutti_status point_latest(const char *dir, uint64_t step)
{
    char path[TUTTI__CHECKPOINT_PATH], temporary[TUTTI__CHECKPOINT_PATH], name[64];

    TUTTI_TRY(join(path, dir, "latest"));
    TUTTI_TRY(join(temporary, dir, "latest.tmp"));
    snprintf(name, sizeof name, "step-%08" PRIu64, step);
    unlink(temporary);
    if (symlink(name, temporary) != 0) {
        if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)
            return TUTTI_OK;
        return tutti__fail_errno(errno, "cannot make the link %s", temporary);
    }
    if (rename(temporary, path) != 0)
        return tutti__fail_errno(errno, "cannot rename %s to %s", temporary, path);
    return TUTTI_OK;
}

tutti_status tutti__checkpoint_commit(const char *dir, uint64_t step)
{
    char path[TUTTI__CHECKPOINT_PATH], temporary[TUTTI__CHECKPOINT_PATH];

    TUTTI_TRY(step_path(dir, step, "", path));
    TUTTI_TRY(step_path(dir, step, ".tmp", temporary));
    TUTTI_TRY(tutti__sync_folder(temporary));
    /* Another of this step changes places with it at once, where the file system can; else it goes first. */
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE) != 0) {
        TUTTI_TRY(remove_step(dir, step));
        if (rename(temporary, path) != 0)
            return tutti__fail_errno(errno, "cannot rename %s to %s", temporary, path);
    }
    TUTTI_TRY(tutti__sync_folder(dir));
    TUTTI_TRY(point_latest(dir, step));
    if (remove_folder(temporary) != TUTTI_OK)
        tutti_log(TUTTI_LOG_WARN, "checkpoint", "an older checkpoint stays: %s",
                  tutti_last_error());
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
    uint64_t *steps;
    size_t found;
    tutti_status status;

    if (n == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &found));
    status = TUTTI_OK;
    for (size_t i = n; i < found && status == TUTTI_OK; i++)
        status = remove_step(dir, steps[i]);
    free(steps);
    return status;
}

static tutti_status clean(const char *dir)
{
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
    if (status == TUTTI_OK && join(path, dir, "latest") == TUTTI_OK && access(path, F_OK) != 0)
        unlink(path);
    return status;
}

tutti_status tutti__checkpoint_keep_until(const char *dir, uint64_t step)
{
    uint64_t *steps;
    size_t n;
    tutti_status status;

    TUTTI_TRY(tutti__checkpoint_list(dir, &steps, &n));
    status = TUTTI_OK;
    for (size_t i = 0; i < n && steps[i] > step && status == TUTTI_OK; i++)
        status = remove_step(dir, steps[i]);
    if (status == TUTTI_OK)
        status = clean(dir);
    if (status == TUTTI_OK && n > 0 && steps[0] > step && steps[n - 1] <= step)
        status = point_latest(dir, step);
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

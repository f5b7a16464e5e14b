/* job_files.c -- the files of a job: workers' logs and error files.
 * SPDX-License-Identifier: MIT
 *
 *     ROOT/ID/attempt_K/RANK/{stdout.log,stderr.log,error.json}     K: the round
 *
 * ROOT is --log-dir. Without it, a private folder in $TMPDIR or /tmp, which is removed with the job unless streams were
 * redirected into it. It is made before the agent is forked, so that either of the two removes it if the other is killed. If both
 * are, the next launcher does: both hold a lock on a file in it, and nobody does any more. */
#include "launch/process/job_files.h"

#include "base/terminal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* In a private folder that is to be removed; it contains the host's name: a file system may keep locks for each host. */
static const char LOCK[] = "launcher";

static bool wants_files(const tutti__launch_opts *opts)
{
    for (int i = 0; i < opts->n; i++)
        if (opts->redirect && opts->redirect[i])
            return true;
    return opts->filters[0] || opts->filters[1];
}

static bool make_private(tutti__job *job, const char *parent)
{
    snprintf(job->private_folder, sizeof job->private_folder, "%s/tutti-XXXXXX", parent);
    if (strlen(job->private_folder) + 1 < sizeof job->private_folder &&
        mkdtemp(job->private_folder))
        return true;
    *job->private_folder = '\0';
    return false;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    (void)remove(path); /* what cannot be removed keeps its folder */
    return 0;
}

static void remove_folder(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Whether the folder is of a launcher of this user and host that was killed, as was its agent. The lock is ours then: *fd_p. */
static bool is_left(const char *folder, int *fd_p)
{
    char path[PATH_MAX], host[2][HOST_NAME_MAX + 1] = {""};
    struct stat info;

    if (snprintf(path, sizeof path, "%s/%s", folder, LOCK) >= (int)sizeof path ||
        lstat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
        return false;
    *fd_p = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd_p < 0)
        return false;
    if (fstat(*fd_p, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
        gethostname(host[0], sizeof host[0] - 1) == 0 &&
        read(*fd_p, host[1], sizeof host[1] - 1) > 0 && strcmp(host[0], host[1]) == 0 &&
        flock(*fd_p, LOCK_EX | LOCK_NB) == 0)
        return true;
    close(*fd_p);
    return false;
}

static void remove_left(const char *parent)
{
    DIR *dir = opendir(parent);
    const struct dirent *entry;
    char folder[PATH_MAX];
    int fd;

    while (dir && (entry = readdir(dir))) {
        if (fnmatch("tutti-??????", entry->d_name, 0) != 0 ||
            snprintf(folder, sizeof folder, "%s/%s", parent, entry->d_name) >= (int)sizeof folder ||
            !is_left(folder, &fd))
            continue;
        remove_folder(folder);
        close(fd);
    }
    if (dir)
        closedir(dir);
}

/* It appears under its name when it is locked. Without it the folder is left if all are killed. */
static void lock_private(tutti__job *job)
{
    char early[PATH_MAX + 32], path[PATH_MAX + 32], host[HOST_NAME_MAX + 1] = "";
    int fd;

    snprintf(path, sizeof path, "%s/%s", job->private_folder, LOCK);
    snprintf(early, sizeof early, "%s/%s.new", job->private_folder, LOCK);
    fd = open(early, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (gethostname(host, sizeof host - 1) == 0 &&
        write(fd, host, strlen(host)) == (ssize_t)strlen(host) &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && rename(early, path) == 0)
        job->folder_lock = fd;
    else
        close(fd);
}

/* For the job in `parent`; also removes what earlier ones left there. */
static bool open_private(tutti__job *job, const char *parent)
{
    remove_left(parent);
    if (!make_private(job, parent))
        return false;
    if (!job->keeps_folder)
        lock_private(job);
    return true;
}

tutti_status tutti__files_open(tutti__job *job)
{
    const char *parent = getenv("TMPDIR");

    job->folder_lock = -1;
    if (job->opts.log_dir)
        return TUTTI_OK;
    job->keeps_folder = wants_files(&job->opts);
    if ((parent && *parent && open_private(job, parent)) || open_private(job, "/tmp")) {
        if (job->keeps_folder)
            tutti__print_line(stderr,
                              "%s: the files of this job are in %s (--log-dir names another place)",
                              job->opts.title, job->private_folder);
        return TUTTI_OK;
    }
    if (!job->keeps_folder)
        return TUTTI_OK; /* without it workers have no error files */
    return tutti__fail_errno(errno,
                             "no folder in %s for what --redirects and --duplicate-...-filters "
                             "write; name one with --log-dir",
                             parent && *parent ? parent : "/tmp");
}

void tutti__files_close(const tutti__job *job)
{
    if (*job->private_folder && !job->keeps_folder)
        remove_folder(job->private_folder);
    if (job->folder_lock >= 0)
        close(job->folder_lock);
}

/* --log-dir or the private folder; NULL: neither. */
static const char *files_root(const tutti__job *job)
{
    return job->opts.log_dir      ? job->opts.log_dir
           : *job->private_folder ? job->private_folder
                                  : NULL;
}

/* The id may come from another node, so it is checked. */
static const char *id_folder(const tutti__job *job)
{
    bool names_a_folder = *job->id && !strchr(job->id, '/') && strcmp(job->id, ".") != 0 &&
                          strcmp(job->id, "..") != 0;

    return names_a_folder ? job->id : "job";
}

/* Links LOG_DIR/latest to the newest run, for people who look at it while it runs. Anything else of that name stays. */
static void link_latest(const tutti__job *job, const char *root)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/latest", root) < (int)sizeof path &&
        strcmp(job->id, "latest") != 0)
        (void)tutti__replace_link(id_folder(job), path);
}

tutti_status tutti__files_folder(const tutti__job *job, int rank, char *path, size_t bytes)
{
    const char *root = files_root(job);

    if (snprintf(path, bytes, "%s/%s/attempt_%d/%d", root, id_folder(job), job->round.number,
                 rank) >= (int)bytes)
        return tutti__fail(TUTTI_ERR_ARG, "log folder %.60s...: the path is too long", root);
    TUTTI_TRY(tutti__make_dirs(path));
    if (rank == job->round.first_rank && !(*job->private_folder && !job->keeps_folder))
        link_latest(job, root);
    return TUTTI_OK;
}

bool tutti__error_file_path(const tutti__job *job, int rank, char *path, size_t bytes)
{
    const char *root = files_root(job);

    *path = '\0';
    if (root && snprintf(path, bytes, "%s/%s/attempt_%d/%d/error.json", root, id_folder(job),
                         job->round.number, rank) < (int)bytes)
        return true;
    *path = '\0';
    return false;
}

/* The error file of this folder, from the root. */
static tutti_status make_absolute(char *path, size_t bytes, const char *folder)
{
    char *real = realpath(folder, NULL);
    tutti_status status = TUTTI_OK;

    if (!real)
        status = tutti__fail_errno(errno, "cannot use folder %s", folder);
    else if (snprintf(path, bytes, "%s/error.json", real) >= (int)bytes)
        status = tutti__fail(TUTTI_ERR_ARG, "log folder %.60s...: the path is too long", real);
    free(real);
    return status;
}

tutti_status tutti__error_file_prepare(const tutti__job *job, int rank, char *path, size_t bytes)
{
    char folder[PATH_MAX];
    tutti_status status;

    if (!tutti__error_file_path(job, rank, path, bytes))
        return TUTTI_OK;
    status = tutti__files_folder(job, rank, folder, sizeof folder);
    if (status == TUTTI_OK && unlink(path) != 0 && errno != ENOENT) /* of an earlier job */
        status = tutti__fail_errno(errno, "cannot remove %s", path);
    if (status == TUTTI_OK && *path != '/') /* a worker may change its folder before it fails */
        status = make_absolute(path, bytes, folder);
    if (status == TUTTI_OK || job->opts.log_dir || job->keeps_folder)
        return status;
    *path = '\0'; /* files were not requested: a full disk at /tmp must not prevent the start */
    return TUTTI_OK;
}

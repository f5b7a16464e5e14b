/* check_storage.c -- this folder, the temporary one, and the secret.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB 1048576.0

typedef struct file_system {
    long magic;
    const char *name, *remark; /* remark NULL: none */
} file_system;

static const file_system file_systems[] = {
    {EXT4_SUPER_MAGIC, "ext4", NULL},
    {XFS_SUPER_MAGIC, "xfs", NULL},
    {BTRFS_SUPER_MAGIC, "btrfs", NULL},
    {0x2fc12fc1, "zfs", NULL},
    {F2FS_SUPER_MAGIC, "f2fs", NULL},
    {TMPFS_MAGIC, "tmpfs", "it is in memory, and is lost when the machine stops"},
    {RAMFS_MAGIC, "ramfs", "it is in memory, and is lost when the machine stops"},
    {OVERLAYFS_SUPER_MAGIC, "overlay",
     "it is removed with its container: keep run folders in a mounted volume"},
    {NFS_SUPER_MAGIC, "nfs",
     "shared by hosts; only rank 0 writes, other hosts see files a moment later"},
    {0xff534d42, "cifs", "shared by hosts; only rank 0 writes"},
    {0xfe534d42, "smb2", "shared by hosts; only rank 0 writes"},
    {0x0bd00bd0, "lustre", "shared by hosts"},
    {0x47504653, "gpfs", "shared by hosts"},
    {0x19830326, "beegfs", "shared by hosts"},
    {0x00c36400, "ceph", "shared by hosts"},
    {V9FS_MAGIC, "9p", "the virtual machine's host serves it"},
    {0x65735546, "fuse", "a user-space program serves it: its fsync may not be reliable"},
};

static const file_system *file_system_of(const char *path)
{
    struct statfs info;

    if (statfs(path, &info) != 0)
        return NULL;
    for (size_t i = 0; i < TUTTI__COUNT_OF(file_systems); i++)
        if ((unsigned long)file_systems[i].magic == ((unsigned long)info.f_type & 0xffffffffu))
            return &file_systems[i];
    return NULL;
}

/* Writes a file of 1 MiB there and syncs it. 0 or an errno. */
static int try_folder(const char *folder, double *ms_p)
{
    char path[PATH_MAX];
    void *block = calloc(1, 1 << 20);
    double begin;
    int fd, error = 0;

    snprintf(path, sizeof path, "%s/.tutti-doctor-XXXXXX", folder);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || !block) {
        error = errno;
        free(block);
        return error;
    }
    begin = tutti__now_ms();
    if (tutti__write_all(fd, path, block, 1 << 20) != TUTTI_OK || fsync(fd) != 0)
        error = errno ? errno : EIO;
    *ms_p = tutti__now_ms() - begin;
    close(fd);
    unlink(path);
    free(block);
    return error;
}

static void judge_space(tutti__doctor *d, const char *subject, const char *folder)
{
    struct statvfs info;
    tutti__size_text a, b;
    double left;

    if (statvfs(folder, &info) != 0)
        return;
    left = (double)info.f_bavail * (double)info.f_frsize;
    if (left >= 1024 * MIB && (info.f_files == 0 || info.f_favail > 1000)) {
        tutti__find(d, TUTTI__FINE, subject, "%s free of %s", tutti__size(&a, left),
                    tutti__size(&b, (double)info.f_blocks * (double)info.f_frsize));
        return;
    }
    tutti__find(d, left < 64 * MIB ? TUTTI__PROBLEM : TUTTI__WARNING, subject,
                "%s and %llu files left", tutti__size(&a, left), (unsigned long long)info.f_favail);
    tutti__remedy(
        d,
        "remove old run folders (du -s runs/* | sort -n), or set --run-dir to another file system");
}

void tutti__check_folder(tutti__doctor *d)
{
    char folder[PATH_MAX] = ".";
    const file_system *type;
    double ms = 0;
    int error;

    if (!getcwd(folder, sizeof folder)) {
        tutti__find(d, TUTTI__PROBLEM, "this folder", "%s: it may have been removed",
                    strerror(errno));
        tutti__remedy(d, "cd to a folder that exists");
        return;
    }
    type = file_system_of(".");
    tutti__find(d, TUTTI__FINE, "this folder", "%s, on %s%s%s", folder,
                type ? type->name : "a file system of another kind",
                type && type->remark ? ": " : "", type && type->remark ? type->remark : "");
    error = try_folder(".", &ms);
    if (error) {
        tutti__find(d, TUTTI__WARNING, "writing here", "%s: run folders cannot be made here",
                    strerror(error));
        tutti__remedy(d, "work in another folder, or set --run-dir to another file system");
        return;
    }
    judge_space(d, "space here", ".");
    tutti__find(d, ms > 1000 ? TUTTI__WARNING : TUTTI__FINE, "writing here",
                "1 MiB with fsync takes %.1f ms", ms);
    if (ms > 1000)
        tutti__remedy(d, "checkpoints will be slow: give --run-dir on a faster disk");
}

void tutti__check_temporary(tutti__doctor *d)
{
    const char *folder = getenv("TMPDIR");
    tutti__size_text a;
    struct statvfs info;
    double ms = 0, left;
    int error;

    folder = folder && *folder ? folder : "/tmp";
    error = try_folder(folder, &ms);
    if (error) {
        tutti__find(d, TUTTI__WARNING, "temporary folder", "%s: %s", folder, strerror(error));
        tutti__remedy(d, "set TMPDIR to a folder that can be written");
        return;
    }
    left = statvfs(folder, &info) == 0 ? (double)info.f_bavail * (double)info.f_frsize : 0;
    tutti__find(d, TUTTI__FINE, "temporary folder", "%s, %s free, writable", folder,
                tutti__size(&a, left));
}

/* ---- Secret --------------------------------------------------------------------------------------------- */

static void judge_secret(tutti__doctor *d, const char *path, const struct stat *info)
{
    unsigned mode = (unsigned)info->st_mode & 07777;

    if (!S_ISREG(info->st_mode) || (mode & 077) != 0) {
        tutti__find(d, TUTTI__PROBLEM, "secret",
                    "%s has mode %04o, and is refused unless it is a file of mode 0600: others "
                    "could join the job",
                    path, mode);
        tutti__remedy(d, "chmod 600 %s; and make a new one if others may have read it", path);
    } else if (info->st_uid != geteuid()) {
        tutti__find(d, TUTTI__WARNING, "secret", "%s belongs to user %u", path,
                    (unsigned)info->st_uid);
        tutti__remedy(d, "chown it to user %u", (unsigned)geteuid());
    } else {
        tutti__find(d, TUTTI__FINE, "secret", "%s, mode %04o", path, mode);
    }
}

void tutti__check_secret(tutti__doctor *d)
{
    const char *path = tutti__env_text(TUTTI__ENV_SECRET_FILE), *home = getenv("HOME");
    const char *config = getenv("XDG_CONFIG_HOME");
    char usual[PATH_MAX] = "";
    struct stat info;

    if (*path && stat(path, &info) != 0) {
        tutti__find(d, TUTTI__PROBLEM, "secret", "%s (TUTTI_SECRET_FILE): %s", path,
                    strerror(errno));
        tutti__remedy(d,
                      "(umask 077; openssl rand -hex 32 > %s), the same on every host; or unset "
                      "TUTTI_SECRET_FILE",
                      path);
    } else if (*path) {
        judge_secret(d, path, &info);
    }
    if (config && *config == '/')
        snprintf(usual, sizeof usual, "%s/tutti/secret", config);
    else if (home && *home)
        snprintf(usual, sizeof usual, "%s/.config/tutti/secret", home);
    if (*usual && stat(usual, &info) == 0)
        judge_secret(d, usual, &info);
    else if (!*path)
        tutti__find(d, TUTTI__NOTE, "secret",
                    "no file: tutti run makes one for each job; ranks that other launchers start "
                    "on several hosts "
                    "need TUTTI_SECRET_FILE");
}

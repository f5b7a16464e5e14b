/* run_weights.c -- the weights in a run folder: a file, or the parts of its last checkpoint.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/weights_parts.h"
#include "train/folder/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

#define ENDING      ".safetensors"
#define LINK_ENDING ".link.tmp"

static tutti_status weights_path(const tutti__run_folder *folder, const char *name, char path[4096])
{
    if (snprintf(path, 4096, "%s/%s", folder->path, name) >= 4096)
        return tutti__fail(TUTTI_ERR_ARG, "run_dir: the path %.60s... is too long", folder->path);
    return TUTTI_OK;
}

/* Calls each(arg, name) for the files in a folder that are wanted(name, stem). */
static tutti_status for_names(const char *folder, const char *stem,
                              bool (*wanted)(const char *name, const char *stem),
                              tutti_status (*each)(void *arg, const char *name), void *arg)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    tutti_status status = TUTTI_OK;

    if (!dir)
        return errno == ENOENT ? TUTTI_OK : tutti__fail_errno(errno, "cannot read %s", folder);
    while (status == TUTTI_OK && (entry = readdir(dir)))
        if (wanted(entry->d_name, stem))
            status = each(arg, entry->d_name);
    closedir(dir);
    return status;
}

/* The same for the parts, whose names begin with stem ("": of any). */
static tutti_status for_parts(const char *folder, const char *stem,
                              tutti_status (*each)(void *arg, const char *name), void *arg)
{
    return for_names(folder, stem, tutti__is_part_name, each, arg);
}

typedef struct two_folders {
    const char *from, *to;
} two_folders;

static tutti_status move_one(void *arg, const char *name)
{
    const two_folders *f = arg;
    char from[4096 + 256], to[4096 + 256];

    snprintf(from, sizeof from, "%s/%s", f->from, name);
    snprintf(to, sizeof to, "%s/%s", f->to, name);
    if (rename(from, to) == 0)
        return TUTTI_OK;
    return tutti__fail_errno(errno,
                             "cannot move %s of the earlier run to %s: choose another folder with "
                             "--run-dir",
                             from, to);
}

tutti_status tutti__run_folder_move_parts(const char *from_dir, const char *to_dir)
{
    two_folders f = {from_dir, to_dir};

    return for_parts(from_dir, "", move_one, &f);
}

static tutti_status remove_one(void *arg, const char *name)
{
    char path[4096 + 256];

    snprintf(path, sizeof path, "%s/%s", (const char *)arg, name);
    if (unlink(path) == 0 || errno == ENOENT)
        return TUTTI_OK;
    return tutti__fail_errno(errno, "cannot remove %s", path);
}

/* A part, or a link that a killed run had begun to make. */
static bool is_part_or_link(const char *name, const char *stem)
{
    return tutti__is_part_name(name, stem) ||
           (strncmp(name, stem, strlen(stem)) == 0 && tutti__ends_in(name, LINK_ENDING));
}

/* Removes the parts of `name` (model.safetensors) that an earlier run of another layout has left, the index first, and links that
 * are not complete. */
static tutti_status remove_parts(const tutti__run_folder *folder, const char *name)
{
    char path[4096], stem[64];

    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - strlen(ENDING)), name);
    TUTTI_TRY(weights_path(folder, "", path));
    if (snprintf(path, sizeof path, "%s/%s" TUTTI__PARTS_INDEX, folder->path, stem) <
        (int)sizeof path)
        unlink(path);
    return for_names(folder->path, stem, is_part_or_link, remove_one,
                     (void *)(uintptr_t)folder->path);
}

tutti_status tutti__run_folder_weights(const tutti__run_folder *folder, const char *name,
                                       const tutti_module *m)
{
    char path[4096];

    TUTTI_TRY(weights_path(folder, name, path));
    TUTTI_TRY(tutti_module_save(m, path));
    return remove_parts(folder, name);
}

/* DIR/name becomes the same file as CHECKPOINT/name. */
static tutti_status link_file(const char *dir, const char *checkpoint, const char *name)
{
    char path[4096 + 256], temporary[4096 + 300], file[TUTTI__CHECKPOINT_PATH + 256];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(temporary, sizeof temporary, "%s" LINK_ENDING, path);
    snprintf(file, sizeof file, "%s/%s", checkpoint, name);
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return tutti__fail(TUTTI_ERR_IO, "%s is not a regular file", path);
    unlink(temporary);
    if (link(file, temporary) != 0 || rename(temporary, path) != 0)
        return tutti__fail_errno(errno, "cannot make the link %s", path);
    return TUTTI_OK;
}

static tutti_status checkpoint_of(const tutti__run_folder *folder, uint64_t step,
                                  char checkpoint[TUTTI__CHECKPOINT_PATH])
{
    char dir[4096];

    TUTTI_TRY(weights_path(folder, "checkpoints", dir));
    return tutti__checkpoint_path(dir, step, checkpoint);
}

tutti_status tutti__run_folder_link_weights(const tutti__run_folder *folder, const char *name,
                                            uint64_t step)
{
    char checkpoint[TUTTI__CHECKPOINT_PATH];

    TUTTI_TRY(checkpoint_of(folder, step, checkpoint));
    TUTTI_TRY(link_file(folder->path, checkpoint, name));
    return remove_parts(folder, name);
}

static tutti_status link_one(void *arg, const char *name)
{
    const two_folders *f = arg;

    return link_file(f->to, f->from, name);
}

bool tutti__run_folder_has_parts(const tutti__run_folder *folder, const char *stem, uint64_t step)
{
    char checkpoint[TUTTI__CHECKPOINT_PATH], path[4096];

    return checkpoint_of(folder, step, checkpoint) == TUTTI_OK &&
           tutti__tensor_files_path(checkpoint, stem, path);
}

tutti_status tutti__run_folder_link_parts(const tutti__run_folder *folder, const char *stem,
                                          uint64_t step)
{
    char checkpoint[TUTTI__CHECKPOINT_PATH], name[64], path[4096];
    two_folders f = {checkpoint, folder->path};

    TUTTI_TRY(checkpoint_of(folder, step, checkpoint));
    snprintf(name, sizeof name, "%s" ENDING, stem);
    if (tutti__tensor_files_path(checkpoint, stem, path) && tutti__ends_in(path, ENDING))
        return tutti__run_folder_link_weights(folder, name, step);
    TUTTI_TRY(remove_parts(folder, name));
    TUTTI_TRY(for_parts(checkpoint, stem, link_one, &f));
    snprintf(name, sizeof name, "%s" TUTTI__PARTS_INDEX, stem);
    TUTTI_TRY(link_file(folder->path, checkpoint, name));
    snprintf(name, sizeof name, "%s" ENDING, stem);
    TUTTI_TRY(weights_path(folder, name, path));
    unlink(path); /* an earlier run's, of another layout */
    return TUTTI_OK;
}

/* run_folder.c -- config.json, metrics.jsonl, summary.json, weights.   SPDX-License-Identifier: MIT */
#include "train/folder/run_folder.h"

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/json_text.h"
#include "checkpoint/state.h"
#include "checkpoint/weights_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MAX_PENDING = 16 << 20 };
#define PARTIAL "earlier.tmp" /* an earlier run while it is moved aside */

static tutti_status file_path(const tutti__run_folder *folder, const char *name, char path[4096])
{
    if (snprintf(path, 4096, "%s/%s", folder->path, name) >= 4096)
        return tutti__fail(TUTTI_ERR_ARG, "run_dir: the path %.60s... is too long", folder->path);
    return TUTTI_OK;
}

/* runs/<data>-<model>-<the job's id, or the time>, with -2, -3, ... for further runs of the same id or second: for a restarted
 * job the last existing one, else the first free one. */
static tutti_status make_default(tutti__run_folder *folder, const tutti__train_config *config,
                                 const tutti__train_job *job)
{
    const bool restarted = job->restarted && job->id[0];
    char name[TUTTI__JOB_TEXT], last[TUTTI__CONFIG_TEXT] = "";

    folder->made = access("runs", F_OK) == 0 ? 0 : strlen("runs");
    TUTTI_TRY(tutti__make_dirs("runs"));
    tutti__local_time(tutti__wall_seconds(), "%Y%m%d-%H%M%S", name);
    if (job->id[0])
        snprintf(name, sizeof name, "%s", job->id);
    for (int i = 1; i < 1000; i++) {
        char suffix[8] = "";

        if (i > 1)
            snprintf(suffix, sizeof suffix, "-%d", i);
        snprintf(folder->path, sizeof folder->path, "runs/%.60s-%.60s-%s%s", config->data,
                 config->model, name, suffix);
        if (restarted && access(folder->path, F_OK) == 0) {
            strcpy(last, folder->path);
            continue;
        }
        if (last[0]) {
            strcpy(folder->path, last);
            return TUTTI_OK;
        }
        if (mkdir(folder->path, 0777) == 0) {
            folder->made = strlen(folder->path) - (folder->made ? 0 : strlen("runs"));
            return TUTTI_OK;
        }
        if (errno == ENOENT) /* another run has withdrawn, and with it runs/ */
            TUTTI_TRY(tutti__make_dirs("runs"));
        else if (errno != EEXIST)
            break;
    }
    return tutti__fail_errno(errno, "cannot make the run folder %s", folder->path);
}

static tutti_status check_space(const tutti__run_folder *folder, uint64_t bytes)
{
    struct statvfs fs;
    uint64_t free_bytes;

    if (statvfs(folder->path, &fs) != 0 || fs.f_blocks == 0)
        return TUTTI_OK; /* unknown; writing will show it */
    free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (free_bytes >= bytes)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_DISK,
        "the run folder %s has %.1f MiB free, and this run's files need %.1f MiB; make room "
        "there or choose another with --run-dir",
        folder->path, (double)free_bytes / 1048576, (double)bytes / 1048576);
}

static tutti_status write_config(const tutti__run_folder *folder, const tutti__train_config *config)
{
    char path[4096], *text;
    tutti_status status;

    TUTTI_TRY(file_path(folder, "config.json", path));
    text = tutti__config_json(config);
    if (!text)
        return TUTTI_ERR_MEMORY;
    status = tutti__write_file(path, text, strlen(text));
    free(text);
    return status;
}

/* ---- An earlier run, moved aside ---- */

/* All files of a run. */
static const char *const run_files[] = {"config.json",
                                        "metrics.jsonl",
                                        "summary.json",
                                        "model.safetensors",
                                        "ema.safetensors",
                                        "checkpoints",
                                        "trace",
                                        "tensorboard",
                                        "wandb",
                                        "metrics.prom",
                                        "report.html",
                                        "lr_find.json",
                                        "guard.jsonl",
                                        "tokenizer.json",
                                        "tokenizer.tiktoken",
                                        "vocab.json",
                                        "merges.txt",
                                        "model.safetensors.index.json",
                                        "ema.safetensors.index.json"};

static tutti_status move_files(const char *from_dir, const char *to_dir)
{
    char from[4096 + 64], to[4096 + 64];
    struct stat st;

    for (size_t i = 0; i < TUTTI__COUNT_OF(run_files); i++) {
        snprintf(from, sizeof from, "%s/%s", from_dir, run_files[i]);
        snprintf(to, sizeof to, "%s/%s", to_dir, run_files[i]);
        /* Other things than files and folders (a device) stay. */
        if (stat(from, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
            continue;
        if (rename(from, to) != 0 && errno != ENOENT)
            return tutti__fail_errno(errno,
                                     "cannot move %s of the earlier run to %s: choose another "
                                     "folder with --run-dir",
                                     from, to);
    }
    return tutti__run_folder_move_parts(from_dir, to_dir);
}

/* Moves it to earlier-1, or the first such name that is free, in one rename: until then everything is in earlier.tmp, by which
 * an interrupted move is detected. */
static tutti_status move_aside(tutti__run_folder *folder)
{
    char partial[4096];
    tutti_status status;

    TUTTI_TRY(file_path(folder, PARTIAL, partial));
    if (mkdir(partial, 0777) != 0)
        return tutti__fail_errno(errno, "cannot make folder %s for the earlier run", partial);
    TUTTI_TRY(move_files(folder->path, partial));
    for (int i = 1; i < 100000; i++) {
        snprintf(folder->aside, sizeof folder->aside, "%s/earlier-%d", folder->path, i);
        if (rename(partial, folder->aside) == 0) /* replaces nothing but an empty folder */
            return tutti__sync_folder(folder->path);
        if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR)
            break;
    }
    status = tutti__fail_errno(errno, "cannot rename %s to %s", partial, folder->aside);
    folder->aside[0] = '\0';
    return status;
}

/* A process killed while it moved an earlier run aside has begun nothing: moves that run back. */
static tutti_status undo_move(const tutti__run_folder *folder)
{
    char partial[4096];

    TUTTI_TRY(file_path(folder, PARTIAL, partial));
    if (access(partial, F_OK) != 0)
        return TUTTI_OK;
    TUTTI_TRY(move_files(partial, folder->path));
    if (rmdir(partial) != 0)
        return tutti__fail_errno(errno, "cannot remove %s", partial);
    return TUTTI_OK;
}

/* Removes the last component. False: there is no other. */
static bool cut(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return true;
}

/* How many bytes at the end of a path are missing. */
static size_t missing(const char *path)
{
    char part[TUTTI__CONFIG_TEXT];

    strcpy(part, path);
    while (access(part, F_OK) != 0)
        if (!cut(part))
            return strlen(path);
    return strlen(path) - strlen(part);
}

/* An owner that withdraws meanwhile takes the folder away. */
static tutti_status make_and_lock(tutti__run_folder *folder, const tutti__train_job *job)
{
    tutti_status status = TUTTI_ERR_NOT_FOUND;

    for (int tries = 0; status == TUTTI_ERR_NOT_FOUND && tries < 10; tries++) {
        if (access(folder->path, F_OK) != 0)
            folder->made = missing(folder->path);
        status = tutti__make_dirs(folder->path);
        if (status == TUTTI_OK)
            status = tutti__run_lock_take(&folder->lock, folder->path, job);
    }
    return status;
}

/* Whether it holds nothing but the lock. */
static bool is_blank(const tutti__run_folder *folder)
{
    DIR *dir = opendir(folder->path);
    struct dirent *entry;
    bool blank = dir;

    while (blank && (entry = readdir(dir)))
        blank = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                strcmp(entry->d_name, ".lock") == 0;
    if (dir)
        closedir(dir);
    return blank;
}

tutti_status tutti__run_folder_open(tutti__run_folder *folder, tutti__train_config *config,
                                    const tutti__train_job *job)
{
    char checkpoints[4096];

    folder->metrics = -1;
    folder->aside[0] = '\0';
    if (config->run_dir[0]) {
        struct stat st;

        strcpy(folder->path, config->run_dir);
        if (stat(folder->path, &st) == 0 && !S_ISDIR(st.st_mode))
            return tutti__fail(TUTTI_ERR_ARG, "run_dir: %s is a file; expected a folder",
                               folder->path);
    } else {
        TUTTI_TRY(make_default(folder, config, job));
        strcpy(config->run_dir, folder->path);
    }
    TUTTI_TRY(make_and_lock(folder, job));
    TUTTI_TRY(undo_move(folder));
    TUTTI_TRY(tutti__run_folder_checkpoints(folder, checkpoints));
    tutti__checkpoint_recover_all(checkpoints);
    folder->blank = is_blank(folder);
    return TUTTI_OK;
}

tutti_status tutti__run_folder_checkpoints(const tutti__run_folder *folder, char path[4096])
{
    return file_path(folder, "checkpoints", path);
}

bool tutti__run_folder_is_complete(const tutti__run_folder *folder)
{
    char path[4096];
    json_t *summary;
    const char *status;
    bool complete;

    if (file_path(folder, "summary.json", path) != TUTTI_OK)
        return false;
    summary = tutti__json_read(path, 0, NULL);
    status = json_string_value(json_object_get(summary, "status"));
    complete = status && strcmp(status, "completed") == 0;
    json_decref(summary);
    return complete;
}

static tutti_status remove_file(const tutti__run_folder *folder, const char *name)
{
    char path[4096];

    TUTTI_TRY(file_path(folder, name, path));
    if (unlink(path) != 0 && errno != ENOENT)
        return tutti__fail_errno(errno, "cannot remove %s", path);
    return TUTTI_OK;
}

/* A device or a pipe in its place stays. */
static tutti_status remove_summary(const tutti__run_folder *folder)
{
    char path[4096];
    struct stat st;

    TUTTI_TRY(file_path(folder, "summary.json", path));
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) ? TUTTI_OK
                                                        : remove_file(folder, "summary.json");
}

static bool begins_with(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* Removes what a run killed while writing has left. Links and devices are intentional, and stay. */
static tutti_status remove_leftovers(const tutti__run_folder *folder)
{
    DIR *dir = opendir(folder->path);
    tutti_status status = TUTTI_OK;
    struct dirent *entry;
    struct stat st;

    while (dir && status == TUTTI_OK && (entry = readdir(dir))) {
        const char *name = entry->d_name;
        const size_t n = strlen(name);

        if (n > 4 && strcmp(name + n - 4, ".tmp") == 0 &&
            (begins_with(name, "config.json.") || begins_with(name, "summary.json.") ||
             begins_with(name, "metrics.jsonl.") || begins_with(name, "model.safetensors.") ||
             begins_with(name, "ema.safetensors.") || begins_with(name, "lr_find.json.") ||
             begins_with(name, ".lock.")) &&
            fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            status = remove_file(folder, name);
    }
    if (dir)
        closedir(dir);
    return status;
}

static tutti_status open_metrics(tutti__run_folder *folder, int flags)
{
    char path[4096];

    TUTTI_TRY(file_path(folder, "metrics.jsonl", path));
    /* A pipe without a reader is an error and does not block; writes to one with a reader may block. */
    folder->metrics =
        open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags, 0666);
    if (folder->metrics < 0)
        return tutti__fail_open(errno, path);
    fcntl(folder->metrics, F_SETFL, O_WRONLY | O_APPEND);
    return TUTTI_OK;
}

/* ---- An earlier run ----------------------------------------------------------------------------------------- */

/* It has weights, or a checkpoint. */
static bool is_worth_keeping(const tutti__run_folder *folder)
{
    char path[4096];
    uint64_t *steps = NULL;
    struct stat st;
    size_t n = 0;

    if (tutti__tensor_files_path(folder->path, "model", path) && lstat(path, &st) == 0 &&
        (S_ISREG(st.st_mode) || (stat(path, &st) == 0 && S_ISREG(st.st_mode))))
        return true;
    if (tutti__run_folder_checkpoints(folder, path) == TUTTI_OK &&
        tutti__checkpoint_list(path, &steps, &n) != TUTTI_OK)
        n = 0;
    free(steps);
    return n > 0;
}

static tutti_status clear(tutti__run_folder *folder)
{
    char checkpoints[4096];

    if (is_worth_keeping(folder))
        TUTTI_TRY(move_aside(folder));
    TUTTI_TRY(tutti__run_folder_checkpoints(folder, checkpoints));
    TUTTI_TRY(tutti__checkpoint_remove_all(checkpoints));
    TUTTI_TRY(remove_leftovers(folder));
    TUTTI_TRY(remove_file(folder, "lr_find.json"));
    return remove_summary(folder);
}

tutti_status tutti__run_folder_begin(tutti__run_folder *folder, const tutti__train_config *config,
                                     uint64_t bytes)
{
    TUTTI_TRY(check_space(folder, bytes));
    TUTTI_TRY(clear(folder));
    TUTTI_TRY(write_config(folder, config));
    return open_metrics(folder, O_TRUNC);
}

/* Lines of metrics.jsonl, from its beginning. */
typedef struct extent {
    off_t bytes;
    tutti__logged last;
} extent;

/* Adds a line. False: it is not complete. */
static bool add_line(extent *lines, const char *line, size_t n)
{
    json_t *object = n > 0 && line[n - 1] == '\n' ? json_loadb(line, n, 0, NULL) : NULL;
    const json_t *after = json_object_get(object, "sample"), /* belongs to the evaluation */
        *eval = after ? after : json_object_get(object, "eval"),
                 *system = json_object_get(object, "system");
    const json_t *number = json_object_get(eval ? eval : system ? system : object, "step");
    uint64_t *step = eval ? &lines->last.eval : system ? &lines->last.system : &lines->last.step;
    const bool complete = json_is_object(object);

    if (complete && json_is_integer(number))
        *step = (uint64_t)json_integer_value(number);
    lines->bytes += complete ? (off_t)n : 0;
    json_decref(object);
    return complete;
}

static bool is_within(const tutti__logged *last, const tutti__logged *upto)
{
    return last->step <= upto->step && last->eval <= upto->eval && last->system <= upto->system;
}

/* Keeps the first `kept` bytes of a file by copying, for file systems that cannot truncate in place. */
static tutti_status copy_begin(const char *path, size_t kept)
{
    char *text = tutti__alloc(kept);
    FILE *file = fopen(path, "re");
    tutti_status status = text ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (text && (!file || fread(text, 1, kept, file) != kept))
        status = tutti__fail_errno(errno ? errno : EIO, "cannot read %s", path);
    if (file)
        fclose(file);
    if (status == TUTTI_OK)
        status = tutti__write_file(path, text, kept);
    free(text);
    return status;
}

/* *kept: its lines up to those steps. *all: all complete ones. Both are empty for what is no file. */
static tutti_status read_metrics(const tutti__run_folder *folder, const tutti__logged *upto,
                                 extent *kept, extent *all)
{
    char path[4096], *line = NULL;
    bool within = true;
    size_t room = 0;
    struct stat st;
    ssize_t n;
    FILE *file;

    *kept = *all = (extent){0};
    TUTTI_TRY(file_path(folder, "metrics.jsonl", path));
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return TUTTI_OK;
    file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? TUTTI_OK : tutti__fail_errno(errno, "cannot read %s", path);
    while ((n = getline(&line, &room, file)) > 0 && add_line(all, line, (size_t)n)) {
        within = within && is_within(&all->last, upto);
        if (within)
            *kept = *all;
    }
    free(line);
    fclose(file);
    return TUTTI_OK;
}

uint64_t tutti__run_folder_last_step(const tutti__run_folder *folder)
{
    const tutti__logged none = {0};
    extent kept, all;

    return read_metrics(folder, &none, &kept, &all) == TUTTI_OK ? all.last.step : 0;
}

/* apart: in a new file, because a former owner may still be writing to this one. */
static tutti_status cut_metrics(const tutti__run_folder *folder, const extent *kept, bool apart)
{
    char path[4096];
    struct stat st;

    TUTTI_TRY(file_path(folder, "metrics.jsonl", path));
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return TUTTI_OK; /* a device or a pipe cannot be truncated */
    if (!apart && truncate(path, kept->bytes) == 0)
        return TUTTI_OK;
    return copy_begin(path, (size_t)kept->bytes);
}

tutti_status tutti__run_folder_continue(tutti__run_folder *folder,
                                        const tutti__train_config *config, uint64_t step,
                                        uint64_t bytes)
{
    /* An evaluation after that step comes before its checkpoint. */
    const tutti__logged upto = {.step = step, .eval = step, .system = step};
    char checkpoints[4096];
    extent kept, all;

    TUTTI_TRY(tutti__run_folder_checkpoints(folder, checkpoints));
    TUTTI_TRY(tutti__checkpoint_keep_until(checkpoints, step));
    TUTTI_TRY(check_space(folder, bytes));
    TUTTI_TRY(remove_leftovers(folder));
    TUTTI_TRY(remove_summary(folder));
    TUTTI_TRY(read_metrics(folder, &upto, &kept, &all));
    TUTTI_TRY(cut_metrics(folder, &kept, false));
    TUTTI_TRY(write_config(folder, config));
    return open_metrics(folder, 0);
}

tutti_status tutti__run_folder_take_over(tutti__run_folder *folder, uint64_t step,
                                         tutti__logged *logged)
{
    char checkpoints[4096];
    extent kept, all;

    TUTTI_TRY(read_metrics(folder, logged, &kept, &all));
    /* One step further is the last rank 0's. More is another group's, which has gone on: its lines have the bits of this one's. */
    if (all.last.step > step + 1) {
        kept = all;
        step = all.last.step;
    }
    TUTTI_TRY(tutti__run_folder_checkpoints(folder, checkpoints));
    TUTTI_TRY(tutti__checkpoint_keep_until(checkpoints, step));
    TUTTI_TRY(remove_leftovers(folder));
    TUTTI_TRY(remove_summary(folder));
    TUTTI_TRY(cut_metrics(folder, &kept, folder->lock.contested));
    *logged = kept.last;
    return open_metrics(folder, 0);
}

void tutti__run_folder_close(tutti__run_folder *folder)
{
    if (folder->metrics >= 0)
        close(folder->metrics);
    folder->metrics = -1;
    free(folder->pending);
    folder->pending = NULL;
    folder->n_pending = 0;
    folder->made = 0;
    folder->blank = false;
    tutti__run_lock_release(&folder->lock);
}

/* Of a run that was begun: its files, if the folder had none before; an earlier run that was moved aside comes back. */
static void remove_begun(tutti__run_folder *folder)
{
    static const char *const begun[] = {"config.json", "metrics.jsonl", "summary.json"};
    char partial[4096];

    for (size_t i = 0; i < TUTTI__COUNT_OF(begun) && (folder->blank || folder->aside[0]); i++)
        (void)remove_file(folder, begun[i]);
    if (folder->aside[0] && file_path(folder, PARTIAL, partial) == TUTTI_OK &&
        rename(folder->aside, partial) == 0)
        folder->aside[0] = '\0';
    (void)undo_move(folder); /* else the next start does it */
}

void tutti__run_folder_withdraw(tutti__run_folder *folder)
{
    const size_t n = strlen(folder->path), kept = n - (folder->made < n ? folder->made : n);
    char path[TUTTI__CONFIG_TEXT];

    if (tutti__run_lock_is_own(&folder->lock, folder->path)) {
        remove_begun(folder);
        tutti__run_lock_withdraw(&folder->lock, folder->path);
    }
    tutti__run_folder_close(folder);
    strcpy(path, folder->path);
    while (strlen(path) > kept && (rmdir(path) == 0 || errno == ENOENT) && cut(path))
        ;
}

/* ---- metrics.jsonl ------------------------------------------------------------------------------------------- */

/* Removing or renaming it, perhaps with its folder, does not end the run. */
static tutti_status reopen_if_gone(tutti__run_folder *folder)
{
    char path[4096];

    TUTTI_TRY(file_path(folder, "metrics.jsonl", path));
    if (access(path, F_OK) == 0 || errno != ENOENT)
        return TUTTI_OK;
    tutti_log(TUTTI_LOG_WARN, "train", "%s/metrics.jsonl is gone: starting a new one",
              folder->path);
    close(folder->metrics);
    folder->metrics = -1;
    TUTTI_TRY(tutti__make_dirs(folder->path));
    return open_metrics(folder, 0);
}

tutti_status tutti__run_folder_flush(tutti__run_folder *folder)
{
    size_t done = 0;
    tutti_status status = folder->metrics >= 0 ? reopen_if_gone(folder) : open_metrics(folder, 0);

    while (status == TUTTI_OK && done < folder->n_pending) {
        ssize_t n = write(folder->metrics, folder->pending + done, folder->n_pending - done);

        if (n < 0 && errno != EINTR)
            status = tutti__fail_errno(errno, "cannot write %s/metrics.jsonl", folder->path);
        else if (n > 0)
            done += (size_t)n;
    }
    folder->n_pending -= done;
    if (done > 0)
        memmove(folder->pending, folder->pending + done, folder->n_pending);
    return status;
}

static tutti_status write_line(tutti__run_folder *folder, const char *line, size_t n)
{
    char *room = NULL;

    if (folder->n_pending + n <= MAX_PENDING)
        room = realloc(folder->pending, folder->n_pending + n);
    if (!room)
        return tutti__fail(TUTTI_ERR_MEMORY, "too many lines wait for %s/metrics.jsonl",
                           folder->path);
    folder->pending = room;
    memcpy(room + folder->n_pending, line, n);
    folder->n_pending += n;
    return tutti__run_folder_flush(folder);
}

void tutti__run_folder_text(tutti__run_folder *folder, const char *line, size_t n)
{
    const tutti_status status = line ? write_line(folder, line, n) : TUTTI_ERR_MEMORY;

    if (status != TUTTI_OK && !folder->torn)
        tutti_log(TUTTI_LOG_WARN, "train",
                  "%s; training continues, and its lines are kept until they can be written",
                  tutti_last_error());
    folder->torn = status != TUTTI_OK;
}

void tutti__run_folder_line(tutti__run_folder *folder, const char *name, tutti__metric_table table,
                            const void *record)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    if (out) {
        fputs("{", out);
        if (name)
            fprintf(out, "\"%s\": {", name);
        tutti__metrics_print(out, table, record, ", ");
        fputs(name ? "}}\n" : "}\n", out);
        fclose(out);
    }
    tutti__run_folder_text(folder, text, n);
    free(text);
}

tutti_status tutti__run_folder_summary(const tutti__run_folder *folder, const tutti__summary *s,
                                       const json_t *time, const json_t *confusion)
{
    char path[4096], *text = NULL, *times = tutti__json_text(time, JSON_REAL_PRECISION(6));
    char *matrix = confusion ? tutti__json_text(confusion, 0) : NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    tutti_status status = file_path(folder, "summary.json", path);

    if (out) {
        fputs("{\n  ", out);
        tutti__metrics_print(out, folder->tables ? folder->tables->summary : tutti__summary_table,
                             s, ",\n  ");
        fprintf(out, ",\n  \"time\": %s", times ? times : "null");
        if (matrix)
            fprintf(out, ",\n  \"confusion\": %s", matrix);
        fputs("\n}\n", out);
    }
    if (!out || fclose(out) != 0)
        status = tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", path);
    if (status == TUTTI_OK)
        status = tutti__write_file(path, text, n);
    free(text);
    free(times);
    free(matrix);
    return status;
}

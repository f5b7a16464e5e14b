/* run_folder.c -- config.json, metrics.jsonl, summary.json, weights.   SPDX-License-Identifier: MIT */
#include "train/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

static tutti_status file_path(const tutti__run_folder *folder, const char *name, char path[4096])
{
    if (snprintf(path, 4096, "%s/%s", folder->path, name) >= 4096)
        return tutti__fail(TUTTI_ERR_ARG, "run_dir: the path %.60s... is too long", folder->path);
    return TUTTI_OK;
}

/* runs/<data>-<model>-<time>, with -2, -3, ... for further runs of the same second. */
static tutti_status make_default(tutti__run_folder *folder, const tutti__train_config *config)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm tm;

    TUTTI_TRY(tutti__make_dirs("runs"));
    localtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm);
    for (int i = 1; i < 1000; i++) {
        char suffix[8] = "";

        if (i > 1)
            snprintf(suffix, sizeof suffix, "-%d", i);
        snprintf(folder->path, sizeof folder->path, "runs/%s-%s-%s%s", config->data, config->model,
                 stamp, suffix);
        if (mkdir(folder->path, 0777) == 0)
            return TUTTI_OK;
        if (errno != EEXIST)
            break;
    }
    return tutti__fail_errno(errno, "cannot make the run folder %s", folder->path);
}

static tutti_status check_space(const tutti__run_folder *folder, uint64_t bytes)
{
    struct statvfs fs;
    uint64_t free_bytes;

    if (statvfs(folder->path, &fs) != 0 || fs.f_blocks == 0)
        return TUTTI_OK; /* it does not say; writing will tell */
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

tutti_status tutti__run_folder_open(tutti__run_folder *folder, tutti__train_config *config,
                                    uint64_t bytes)
{
    char path[4096];

    folder->metrics = -1;
    folder->replaced = false;
    if (config->run_dir[0]) {
        strcpy(folder->path, config->run_dir);
        TUTTI_TRY(tutti__make_dirs(folder->path));
    } else {
        TUTTI_TRY(make_default(folder, config));
        strcpy(config->run_dir, folder->path);
    }
    TUTTI_TRY(check_space(folder, bytes));
    TUTTI_TRY(file_path(folder, "summary.json", path));
    folder->replaced = unlink(path) == 0; /* an earlier run's must not stand for this one */
    TUTTI_TRY(write_config(folder, config));
    TUTTI_TRY(file_path(folder, "metrics.jsonl", path));
    folder->metrics = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (folder->metrics < 0)
        return tutti__fail_errno(errno, "cannot write %s", path);
    return TUTTI_OK;
}

void tutti__run_folder_close(tutti__run_folder *folder)
{
    if (folder->metrics >= 0)
        close(folder->metrics);
    folder->metrics = -1;
}

static tutti_status write_line(tutti__run_folder *folder, const char *line, size_t n)
{
    while (n > 0) {
        ssize_t done = write(folder->metrics, line, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return tutti__fail_errno(errno, "cannot write %s/metrics.jsonl", folder->path);
        line += done;
        n -= (size_t)done;
    }
    return TUTTI_OK;
}

tutti_status tutti__run_folder_metrics(tutti__run_folder *folder, const tutti__metrics *m)
{
    char line[512];
    int n = snprintf(
        line, sizeof line,
        "{\"step\": %llu, \"epoch\": %lld, \"loss\": %.9g, \"lr\": %.9g, \"grad_norm\": %.9g, "
        "\"images_per_s\": %.6g, \"time_s\": %.6f}\n",
        (unsigned long long)m->step, (long long)m->epoch, m->loss, m->lr, m->grad_norm,
        m->images_per_s, m->time_s);

    return write_line(folder, line, (size_t)n);
}

tutti_status tutti__run_folder_eval(tutti__run_folder *folder, int64_t epoch, double loss,
                                    double accuracy)
{
    char line[256];
    int n = snprintf(line, sizeof line,
                     "{\"eval\": {\"epoch\": %lld, \"val_loss\": %.9g, \"val_accuracy\": %.9g}}\n",
                     (long long)epoch, loss, accuracy);

    return write_line(folder, line, (size_t)n);
}

/* A number of JSON, which has no NaN. */
static const char *number(double value, char text[32])
{
    if (isfinite(value))
        snprintf(text, 32, "%.9g", value);
    else
        snprintf(text, 32, "null");
    return text;
}

tutti_status tutti__run_folder_summary(const tutti__run_folder *folder, const tutti__summary *s)
{
    char path[4096], text[1024], a[32], b[32], c[32], d[32];
    int n = snprintf(
        text, sizeof text,
        "{\n  \"status\": \"%s\",\n  \"world_size\": %d,\n  \"steps\": %llu,\n  \"epochs\": %lld,\n"
        "  \"train_loss\": %s,\n  \"val_accuracy\": %s,\n  \"images_per_s\": %s,\n  \"seconds\": "
        "%s,\n"
        "  \"gradient_bytes\": %llu,\n  \"wire_bytes\": %llu,\n"
        "  \"parameters\": %lld,\n  \"parameter_digest\": %s%s%s\n}\n",
        s->status, s->world_size, (unsigned long long)s->steps, (long long)s->epochs,
        number(s->train_loss, a), number(s->val_accuracy, b), number(s->images_per_s, c),
        number(s->seconds, d), (unsigned long long)s->gradient_bytes,
        (unsigned long long)s->wire_bytes, (long long)s->parameters, s->digest[0] ? "\"" : "",
        s->digest[0] ? s->digest : "null", s->digest[0] ? "\"" : "");

    TUTTI_TRY(file_path(folder, "summary.json", path));
    return tutti__write_file(path, text, (size_t)n);
}

tutti_status tutti__run_folder_weights(const tutti__run_folder *folder, const tutti_module *m)
{
    char path[4096];

    TUTTI_TRY(file_path(folder, "model.safetensors", path));
    return tutti_module_save(m, path);
}

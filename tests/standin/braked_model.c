/* braked_model.c -- a model of `tutti train` for scripts that disturb a training: until the file $GO exists, each forward pass takes
 * $BRAKE_MS longer, and once $BRAKE_FILE, the run's metrics.jsonl, has step $BRAKE_AT the pass waits for it. So the training does not end before
 * the script acts, however slow that is.   SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

typedef struct {
    tutti_module base;
    tutti_linear fc1, fc2;
    float dropout;
} braked;

static void init(tutti_module *module, const tutti_model_opts *opts)
{
    braked *m = (braked *)module;

    m->dropout = (float)opts->dropout;
    tutti_linear_init(&m->fc1, module, "fc1", opts->channels * opts->height * opts->width, 64);
    tutti_linear_init(&m->fc2, module, "fc2", 64, opts->classes);
}

/* Whether the file's last whole line, of those of steps, is of the step, or a later one. */
static int has_reached(const char *path, long step)
{
    static const char key[] = "{\"step\": ";
    char tail[4097] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    long last = -1;

    if (fd < 0)
        return 0;
    if (lseek(fd, -4096, SEEK_END) < 0)
        (void)!lseek(fd, 0, SEEK_SET);
    if (read(fd, tail, sizeof tail - 1) > 0)
        for (const char *at = tail; (at = strstr(at, key)) != NULL; at += sizeof key)
            last = strchr(at, ',') ? atol(at + sizeof key - 1) : last;
    close(fd);
    return last >= step;
}

static tutti_tensor *forward(tutti_module *module, tutti_tensor *x)
{
    braked *m = (braked *)module;
    const char *go = getenv("GO"), *ms = getenv("BRAKE_MS"), *file = getenv("BRAKE_FILE"),
               *step = getenv("BRAKE_AT");

    if (go && ms && access(go, F_OK) != 0)
        do
            nanosleep(&(struct timespec){.tv_nsec = atol(ms) * 1000000}, NULL);
        while (file && step && access(go, F_OK) != 0 && has_reached(file, atol(step)));
    x = tutti_relu(tutti_linear_forward(&m->fc1, tutti_flatten(x)));
    return tutti_linear_forward(&m->fc2, tutti_dropout(x, m->dropout));
}

static const tutti_model_kind kind = {
    .name = "braked", .bytes = sizeof(braked), .init = init, .forward = forward};
TUTTI_SHARED_MODEL(kind);

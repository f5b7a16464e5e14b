/* verify.c -- reads files from disk and checks every digest.   SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_parts.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIES = 20 }; /* while a run removes what was found */

typedef struct verifier {
    tutti__verify_call *call;
    void *user;
    tutti__verify_counts *counts;
    const char *listed; /* a checkpoint found in a list or by a link; NULL: it was named */
} verifier;

/* A run that goes on removes older checkpoints: what of one is missing then is not damaged. */
static bool is_removed(const verifier *v)
{
    return v->listed && !tutti__is_folder(v->listed);
}

static void damaged(verifier *v, const char *file)
{
    if (is_removed(v))
        return;
    v->counts->damaged++;
    v->call(v->user, file, tutti_last_error());
}

/* ---- A file of tensors ------------------------------------------------------------------------------------------ */

typedef struct numbered {
    const char *name;
    size_t i;
} numbered;

/* The tensors sorted by name; free() them. */
static numbered *sort_names(const tutti__weights *file)
{
    const size_t n = tutti__weights_count(file);
    numbered *order = tutti__alloc((n + 1) * sizeof *order);

    for (size_t i = 0; order && i < n; i++)
        order[i] = (numbered){tutti__weights_at(file, i)->name, i};
    if (order && n > 0)
        qsort(order, n, sizeof *order, tutti__by_name);
    return order;
}

/* Reads tensor i, and adds it to the hash of the file; false: its digest does not match. */
static bool read_tensor(verifier *v, const tutti__weights *file, size_t i,
                        tutti__hash128_state *hash)
{
    const size_t bytes = (size_t)tutti__weights_at(file, i)->bytes;
    void *p = tutti__alloc(bytes);
    const bool good = p && tutti__weights_read(file, i, p) == TUTTI_OK;

    v->counts->tensors++;
    v->counts->bytes += bytes;
    v->counts->unchecked += !tutti__weights_has_digest(file, i);
    if (good)
        tutti__hash128_add(hash, p, bytes);
    else
        damaged(v, tutti__weights_path(file));
    free(p);
    return good;
}

/* Reads all tensors once, in the order of tutti_module_digest, which is in `digest` at the end, and reports those whose digests
 * do not match. True: all match. */
static bool read_tensors(verifier *v, const tutti__weights *file, char digest[33])
{
    tutti__hash128_state *hash = tutti__hash128_new();
    numbered *order = sort_names(file);
    bool good = hash && order;

    if (!good) {
        tutti__fail(TUTTI_ERR_MEMORY, "no memory to verify %s", tutti__weights_path(file));
        damaged(v, tutti__weights_path(file));
    }
    for (size_t i = 0; hash && order && i < tutti__weights_count(file); i++)
        good = read_tensor(v, file, order[i].i, hash) && good;
    if (hash)
        tutti__hash128_end(hash, digest);
    free(order);
    return good;
}

/* Drops the file from the page cache, so that it is read from disk. */
static void forget(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* `expected`: the digest of the whole file, or NULL. */
static void verify_file(verifier *v, const char *path, const char *expected)
{
    tutti__weights *file;
    char digest[33];
    bool whole;

    v->counts->files++;
    forget(path);
    if (tutti__weights_open(&file, path) != TUTTI_OK) {
        damaged(v, path);
        return;
    }
    whole = read_tensors(v, file, digest);
    if (whole && expected && strcmp(digest, expected) != 0) {
        tutti__fail(TUTTI_ERR_FORMAT,
                    "%s: its contents have digest %s, and state.json says %.40s: damaged", path,
                    digest, expected);
        damaged(v, path);
        whole = false;
    }
    if (whole)
        v->call(v->user, path, NULL);
    tutti__weights_close(file);
}

/* ---- Folders ---------------------------------------------------------------------------------------------------- */

/* Files of tensors that a checkpoint may have; of each the file, or an index of parts. */
static const char *const stems[] = {"model", "optimizer", "ema"};
enum { STEMS = 3 };

static bool is_of_stem(const char *name)
{
    for (size_t i = 0; i < STEMS; i++) {
        const size_t n = strlen(stems[i]);

        if (strncmp(name, stems[i], n) == 0 && (name[n] == '.' || name[n] == '-'))
            return true;
    }
    return false;
}

/* The other files of tensors: those of communication hooks. */
static void verify_others(verifier *v, const char *folder)
{
    DIR *dir = opendir(folder);
    char path[TUTTI__CHECKPOINT_PATH + 300];
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (tutti__ends_in(entry->d_name, ".safetensors") && !is_of_stem(entry->d_name)) {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            verify_file(v, path, NULL);
        }
    if (dir)
        closedir(dir);
}

/* needed: it must be there. */
static void verify_stem(verifier *v, const char *folder, const char *stem, bool needed,
                        const json_t *state, const char *digest)
{
    char path[TUTTI__CHECKPOINT_PATH];

    if (tutti__tensor_files_path(folder, stem, path)) {
        if (state && tutti__state_check_files(folder, stem, state) != TUTTI_OK) {
            v->counts->files++;
            damaged(v, path);
        } else
            verify_file(v, path, digest);
        return;
    }
    if (!needed)
        return;
    tutti__fail(TUTTI_ERR_NOT_FOUND, "%s is missing", path);
    damaged(v, path);
}

/* Else of a program's own loop, which needs fewer keys. */
static bool is_of_run(const json_t *state)
{
    return json_object_get(state, "config") || json_object_get(state, "sums");
}

static void verify_checkpoint(verifier *v, const char *folder)
{
    const tutti__verify_counts before = *v->counts;
    char path[TUTTI__CHECKPOINT_PATH + 32];
    json_t *state = NULL;

    snprintf(path, sizeof path, "%s/state.json", folder);
    v->counts->files++;
    forget(path);
    if (tutti__state_read(&state, folder) != TUTTI_OK ||
        (is_of_run(state) && tutti__state_check_run(state, folder) != TUTTI_OK))
        damaged(v, path);
    else
        v->call(v->user, path, NULL);
    verify_stem(v, folder, "model", true, state,
                json_string_value(json_object_get(state, "model_digest")));
    verify_stem(v, folder, "optimizer", !json_is_null(json_object_get(state, "optimizer")), state,
                NULL);
    verify_stem(v, folder, "ema", json_is_object(json_object_get(state, "ema")), state,
                json_string_value(json_object_get(state, "ema_digest")));
    verify_others(v, folder);
    json_decref(state);
    if (is_removed(v))
        *v->counts = before;
}

static void verify_listed(verifier *v, const char *folder)
{
    v->listed = folder;
    verify_checkpoint(v, folder);
    v->listed = NULL;
}

/* Verifies all checkpoints in a folder; returns how many there are. */
static size_t verify_checkpoints(verifier *v, const char *dir)
{
    char folder[TUTTI__CHECKPOINT_PATH];
    uint64_t *steps;
    size_t n;

    if (tutti__checkpoint_list(dir, &steps, &n) != TUTTI_OK)
        return 0;
    for (size_t i = n; i-- > 0;)
        if (tutti__checkpoint_path(dir, steps[i], folder) == TUTTI_OK)
            verify_listed(v, folder);
    free(steps);
    return n;
}

/* Where a link leads; false: it is none. */
static bool follow(const char *path, char target[TUTTI__CHECKPOINT_PATH])
{
    const char *name = strrchr(path, '/');
    const int before = name ? (int)(name + 1 - path) : 0;
    char link[TUTTI__CHECKPOINT_PATH];
    const ssize_t n = readlink(path, link, sizeof link - 1);

    if (n <= 0)
        return false;
    link[n] = '\0';
    return snprintf(target, TUTTI__CHECKPOINT_PATH, "%.*s%s", *link == '/' ? 0 : before, path,
                    link) < TUTTI__CHECKPOINT_PATH;
}

static void verify_folder(verifier *v, const char *path)
{
    char inside[TUTTI__CHECKPOINT_PATH + 32];
    uint64_t step;

    if (follow(path, inside) && tutti__checkpoint_step(inside, &step)) {
        verify_listed(v, inside); /* all files of one, though a run that goes on moves `latest` */
        return;
    }
    if (tutti__folder_holds(path, "state.json") || tutti__checkpoint_step(path, &step) ||
        tutti__tensor_files_path(path, "optimizer", inside)) {
        verify_checkpoint(v, path);
        return;
    }
    if (verify_checkpoints(v, path) > 0)
        return;
    snprintf(inside, sizeof inside, "%s/checkpoints", path);
    verify_checkpoints(v, inside);
    if (tutti__tensor_files_path(path, "model", inside))
        verify_file(v, inside, NULL);
    if (tutti__tensor_files_path(path, "ema", inside))
        verify_file(v, inside, NULL);
}

/* Again if all that was there has been removed meanwhile. */
static tutti_status verify_again(verifier *v, const char *path)
{
    for (int i = 0; i < TRIES && v->counts->files == 0; i++)
        verify_folder(v, path);
    if (v->counts->files > 0)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_NOT_FOUND,
        "%s holds nothing to verify; expected a .safetensors or .pt file, a checkpoint (a "
        "run's checkpoints/step-NNNNNNNN) or a run folder",
        path);
}

tutti_status tutti__verify(const char *path, tutti__verify_call *call, void *user,
                           tutti__verify_counts *counts)
{
    verifier v = {call, user, counts, NULL};

    *counts = (tutti__verify_counts){.files = 0};
    TUTTI_TRY(tutti__weights_check(path));
    if (tutti__is_folder(path))
        TUTTI_TRY(verify_again(&v, path));
    else
        verify_file(&v, path, NULL);
    if (counts->damaged == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT, "%zu damaged part%s in %zu file%s and %zu tensor%s",
                       counts->damaged, tutti__s(counts->damaged), counts->files,
                       tutti__s(counts->files), counts->tensors, tutti__s(counts->tensors));
}

/* pytorch_zip_read.c -- reads the tensors of a .pt file, and checks everything before using it.   SPDX-License-Identifier: MIT */
#include "checkpoint/pytorch.h"

#include "checkpoint/pickle.h"
#include "checkpoint/zip.h"

#include <stdlib.h>
#include <string.h>

/* Tied weights are in a file once and in its state_dict several times. The limit on repeats bounds the time of reading all. */
enum { MAX_PICKLE = 16 << 20, KEY_BYTES = 512, MAX_REPEATS = 64 };

/* A tensor, and the range of its elements in a storage. */
typedef struct tensor {
    tutti__safetensors_entry entry;
    const tutti__pickle_tensor *layout;
    const tutti__zip_entry *storage;
    uint64_t first, span; /* range of its elements, in bytes of the storage */
} tensor;

struct tutti__pytorch {
    tutti__zip *zip;
    tutti__pickle pickle;
    uint8_t *bytes; /* of the pickle, which texts point into */
    tensor *tensors;
    size_t n;
    uint64_t work; /* bytes to read for all tensors */
    bool *checked; /* by entry of the zip: its CRC-32 was checked */
    char prefix[KEY_BYTES], key[64];
    char path[];
};

static tutti_status malformed(const tutti__pytorch *file, const char *format, ...)
    TUTTI_PRINTF(2, 3);
static tutti_status malformed(const tutti__pytorch *file, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tutti__fail(TUTTI_ERR_FORMAT, "%s is not a valid PyTorch file: %s", file->path, text);
}

/* The file NAME/`name` of the archive, or NULL. */
static const tutti__zip_entry *find(const tutti__pytorch *file, const char *name)
{
    char path[2 * KEY_BYTES];

    snprintf(path, sizeof path, "%s/%s", file->prefix, name);
    return tutti__zip_find(file->zip, path);
}

/* ---- Which dictionary ------------------------------------------------------------------------------------------ */

/* The value under a key of a dictionary, if it is a dictionary with tensors. */
static const tutti__pickle_value *look_up(const tutti__pickle_value *dict, const char *key)
{
    for (size_t i = 0; i + 1 < dict->of.items.n; i += 2) {
        const tutti__pickle_value *k = dict->of.items.p[i];

        if (k->kind == TUTTI__PICKLE_TEXT && k->of.text.n == strlen(key) &&
            memcmp(k->of.text.p, key, k->of.text.n) == 0 && dict->of.items.p[i + 1]->holds_tensors)
            return dict->of.items.p[i + 1];
    }
    return NULL;
}

/* The state_dict: under a usual key, or the whole file, or the only dictionary with tensors. */
static const tutti__pickle_value *find_state(tutti__pytorch *file)
{
    static const char *const KEYS[] = {"model",       "state_dict", "model_state_dict",
                                       "model_state", "module",     "net",
                                       "network",     "weights",    "params"};
    const tutti__pickle_value *root = file->pickle.root, *found = NULL;
    size_t n = 0;

    if (root->kind != TUTTI__PICKLE_DICT)
        return NULL;
    for (size_t i = 0; i < TUTTI__COUNT_OF(KEYS); i++)
        if ((found = look_up(root, KEYS[i]))) {
            snprintf(file->key, sizeof file->key, "%s", KEYS[i]);
            return found;
        }
    if (root->holds_tensors)
        return root;
    for (size_t i = 0; i + 1 < root->of.items.n; i += 2)
        if (root->of.items.p[i + 1]->holds_tensors) {
            const tutti__pickle_value *k = root->of.items.p[i];

            found = root->of.items.p[i + 1];
            n++;
            if (k->kind == TUTTI__PICKLE_TEXT)
                snprintf(file->key, sizeof file->key, "%.*s",
                         (int)(k->of.text.n < 60 ? k->of.text.n : 60), k->of.text.p);
        }
    return n == 1 ? found : NULL;
}

/* The keys of the file's dictionary, for the message that none of them holds weights. */
static tutti_status no_state(const tutti__pytorch *file)
{
    const tutti__pickle_value *root = file->pickle.root;
    char keys[300] = "";
    size_t used = 0;

    for (size_t i = 0; root->kind == TUTTI__PICKLE_DICT && i + 1 < root->of.items.n; i += 2) {
        const tutti__pickle_value *k = root->of.items.p[i];

        if (k->kind == TUTTI__PICKLE_TEXT && used < sizeof keys)
            used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%.*s", used ? ", " : "",
                                     (int)(k->of.text.n < 40 ? k->of.text.n : 40), k->of.text.p);
    }
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "%s does not hold a dictionary of tensors by name (%s%s); save only the "
                       "weights in Python: torch.save(model.state_dict(), FILE)",
                       file->path, used ? "its keys: " : "it is not a dictionary", keys);
}

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

/* Sets first, span and bytes; FORMAT if some elements are outside the storage. */
static tutti_status place(tutti__pytorch *file, tensor *t, uint64_t element)
{
    const tutti__pickle_tensor *layout = t->layout;
    int64_t count = 1, last = layout->offset;
    bool overflow = false;
    uint64_t end;

    for (int i = 0; i < layout->n_dims; i++) {
        int64_t reach = 0;

        overflow |= __builtin_mul_overflow(count, layout->size[i], &count);
        if (layout->size[i] > 0)
            overflow |= __builtin_mul_overflow(layout->size[i] - 1, layout->stride[i], &reach);
        overflow |= __builtin_add_overflow(last, reach, &last);
    }
    if (count == 0 && !overflow)
        return TUTTI_OK;
    overflow |= __builtin_mul_overflow((uint64_t)last + 1, element, &end);
    overflow |= __builtin_mul_overflow((uint64_t)count, element, &t->entry.bytes);
    if (overflow || end > t->storage->bytes)
        return malformed(file, "tensor \"%.100s\" reaches beyond its storage of %llu bytes",
                         t->entry.name, (unsigned long long)t->storage->bytes);
    if (t->entry.bytes > tutti__zip_file_bytes(file->zip))
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "%s: tensor \"%.100s\" is a view that repeats its elements, larger than the "
            "file; save it as .contiguous()",
            file->path, t->entry.name);
    t->first = (uint64_t)layout->offset * element;
    t->span = end - t->first;
    file->work += t->span > t->entry.bytes ? t->span : t->entry.bytes;
    if (file->work / MAX_REPEATS > tutti__zip_file_bytes(file->zip))
        return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                           "%s: its tensors are views of the same bytes, more than %d times the "
                           "file; save them each as .clone()",
                           file->path, MAX_REPEATS);
    return TUTTI_OK;
}

/* Its name was checked. */
static tutti_status add_tensor(tutti__pytorch *file, const tutti__pickle_text *name,
                               const tutti__pickle_tensor *layout)
{
    const tutti__pickle_value *storage = layout->storage;
    const tutti__torch_dtype *type = storage->of.storage.type;
    const tutti__pickle_text *key = &storage->of.storage.key;
    tensor *t = &file->tensors[file->n++];
    char *copy = tutti__arena_alloc(&file->pickle.arena, name->n + 1), path[KEY_BYTES];
    uint64_t bytes;

    if (!copy)
        return TUTTI_ERR_MEMORY;
    memcpy(copy, name->p, name->n);
    copy[name->n] = '\0';
    *t = (tensor){.entry = {.name = copy, .dtype_text = type->text, .readable = type->dtype >= 0},
                  .layout = layout};
    t->entry.dtype = type->dtype >= 0 ? (tutti_dtype)type->dtype : TUTTI_U8;
    if (memchr(name->p, '\0', name->n))
        return malformed(file, "a tensor's name holds a NUL");
    if (layout->n_dims > TUTTI_MAX_DIMS)
        return malformed(file, "tensor \"%.100s\" has %d dimensions, at most %d are supported",
                         copy, layout->n_dims, TUTTI_MAX_DIMS);
    t->entry.shape.n = layout->n_dims;
    memcpy(t->entry.shape.d, layout->size, (size_t)layout->n_dims * sizeof *layout->size);
    if (key->n >= 256 || memchr(key->p, '\0', key->n))
        return malformed(file, "the storage of tensor \"%.100s\" has a broken key", copy);
    snprintf(path, sizeof path, "data/%.*s", (int)key->n, key->p);
    t->storage = find(file, path);
    if (!t->storage)
        return malformed(file, "the storage of tensor \"%.100s\", %s, is missing", copy, path);
    if (__builtin_mul_overflow((uint64_t)storage->of.storage.count, (uint64_t)type->bytes,
                               &bytes) ||
        bytes > t->storage->bytes)
        return malformed(file, "the storage of tensor \"%.100s\", %s, is smaller than it says",
                         copy, path);
    return place(file, t, type->bytes);
}

/* Other values than tensors in a state_dict (extra state, None) are skipped. */
static bool is_tensor(tutti__pickle_value *const pair[2])
{
    return pair[0]->kind == TUTTI__PICKLE_TEXT && pair[1]->kind == TUTTI__PICKLE_TENSOR;
}

static int by_text(const void *a, const void *b)
{
    const tutti__pickle_text *x = *(const tutti__pickle_text *const *)a;
    const tutti__pickle_text *y = *(const tutti__pickle_text *const *)b;
    const int order = x->p == y->p ? 0 : memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Sets the tensors' number in a state_dict. FORMAT for a name that is too long or there twice: the memo repeats a name in a few
 * bytes, but different names are different bytes of the pickle, so that their copies are no larger than it. */
static tutti_status check_names(const tutti__pytorch *file, const tutti__pickle_value *state,
                                size_t *n_p)
{
    const tutti__pickle_items *items = &state->of.items;
    const tutti__pickle_text **names = tutti__alloc((items->n / 2 + 1) * sizeof *names);
    tutti_status status = names ? TUTTI_OK : TUTTI_ERR_MEMORY;
    size_t n = 0;

    for (size_t i = 0; status == TUTTI_OK && i + 1 < items->n; i += 2)
        if (is_tensor(items->p + i)) {
            names[n] = &items->p[i]->of.text;
            status = tutti__check_tensor_name(file->path, names[n]->p, names[n]->n);
            n++;
        }
    if (status == TUTTI_OK && n > 0)
        qsort(names, n, sizeof *names, by_text);
    for (size_t i = 1; i < n && status == TUTTI_OK; i++)
        if (by_text(&names[i], &names[i - 1]) == 0)
            status = malformed(file, "there are two tensors \"%.*s\"",
                               (int)(names[i]->n < 100 ? names[i]->n : 100), names[i]->p);
    free(names);
    *n_p = n;
    return status;
}

static tutti_status list_tensors(tutti__pytorch *file)
{
    const tutti__pickle_value *state = find_state(file);
    size_t n = 0;

    if (!state)
        return no_state(file);
    TUTTI_TRY(check_names(file, state, &n));
    file->tensors = tutti__alloc((n + 1) * sizeof *file->tensors);
    if (!file->tensors)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i + 1 < state->of.items.n; i += 2) {
        tutti__pickle_value *const *pair = state->of.items.p + i;

        if (is_tensor(pair))
            TUTTI_TRY(add_tensor(file, &pair[0]->of.text, pair[1]->of.tensor));
    }
    return TUTTI_OK;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

bool tutti__pytorch_is(const unsigned char head[8])
{
    return memcmp(head, "PK\3\4", 4) == 0 ||
           (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && head[7]);
}

/* PyTorch uses the folder of the first entry as the archive's name. */
static tutti_status find_prefix(tutti__pytorch *file)
{
    const tutti__zip_entry *first = tutti__zip_at(file->zip, 0);
    size_t n = first ? strcspn(first->name, "/") : 0;

    if (!first || !first->name[n] || n >= sizeof file->prefix)
        return malformed(file, "its first entry is not in a folder");
    memcpy(file->prefix, first->name, n);
    return TUTTI_OK;
}

static tutti_status check_byteorder(const tutti__pytorch *file)
{
    const tutti__zip_entry *e = find(file, "byteorder");
    char text[8] = "";

    if (!e)
        return TUTTI_OK; /* files before PyTorch 2.1 */
    TUTTI_TRY(tutti__zip_read(file->zip, e, text, e->bytes < 6 ? e->bytes : 6, 0));
    if (strcmp(text, "little") == 0)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_UNSUPPORTED,
        "%s was written on a big-endian machine; save it again on this one in Python: "
        "torch.save(torch.load(FILE), NEW)",
        file->path);
}

static tutti_status read_pickle(tutti__pytorch *file)
{
    const tutti__zip_entry *e = find(file, "data.pkl");

    if (!e || !find(file, "version"))
        return malformed(file, "%s/%s is missing: it is another kind of zip file", file->prefix,
                         e ? "version" : "data.pkl");
    if (e->bytes > MAX_PICKLE)
        return malformed(file, "data.pkl has %llu bytes, at most %d are read",
                         (unsigned long long)e->bytes, MAX_PICKLE);
    TUTTI_TRY(check_byteorder(file));
    TUTTI_TRY(tutti__zip_check(file->zip, e));
    file->bytes = tutti__alloc((size_t)e->bytes + 1);
    if (!file->bytes)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(tutti__zip_read(file->zip, e, file->bytes, e->bytes, 0));
    return tutti__pickle_read(&file->pickle, file->bytes, (size_t)e->bytes, file->path);
}

static bool is_old(const char *path)
{
    unsigned char head[8] = "";
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(head, 1, sizeof head, file) : 0;

    if (file)
        fclose(file);
    return n == sizeof head && head[0] == 0x80;
}

static tutti_status read_file(tutti__pytorch *file)
{
    if (is_old(file->path))
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "%s was saved by PyTorch before 1.6 (or with _use_new_zipfile_serialization="
            "False); save it again in Python: torch.save(torch.load(FILE), NEW)",
            file->path);
    TUTTI_TRY(tutti__zip_open(&file->zip, file->path));
    file->checked = tutti__alloc(tutti__zip_count(file->zip) + 1);
    if (!file->checked)
        return TUTTI_ERR_MEMORY;
    TUTTI_TRY(find_prefix(file));
    TUTTI_TRY(read_pickle(file));
    return list_tensors(file);
}

tutti_status tutti__pytorch_open(tutti__pytorch **file_p, const char *path)
{
    tutti__pytorch *file = tutti__alloc(sizeof *file + strlen(path) + 1);
    tutti_status status;

    *file_p = NULL;
    if (!file)
        return TUTTI_ERR_MEMORY;
    strcpy(file->path, path);
    status = read_file(file);
    if (status == TUTTI_OK)
        *file_p = file;
    else
        tutti__pytorch_close(file);
    return status;
}

void tutti__pytorch_close(tutti__pytorch *file)
{
    if (!file)
        return;
    tutti__zip_close(file->zip);
    tutti__pickle_free(&file->pickle);
    free(file->bytes);
    free(file->tensors);
    free(file->checked);
    free(file);
}

size_t tutti__pytorch_count(const tutti__pytorch *file)
{
    return file->n;
}

const tutti__safetensors_entry *tutti__pytorch_at(const tutti__pytorch *file, size_t i)
{
    return i < file->n ? &file->tensors[i].entry : NULL;
}

static bool is_same(const tensor *a, const tensor *b)
{
    const tutti__pickle_tensor *x = a->layout, *y = b->layout;

    return a->storage == b->storage && a->entry.bytes > 0 && a->entry.bytes == b->entry.bytes &&
           a->first == b->first && a->entry.dtype == b->entry.dtype && x->n_dims == y->n_dims &&
           memcmp(x->size, y->size, sizeof x->size) == 0 &&
           memcmp(x->stride, y->stride, sizeof x->stride) == 0;
}

size_t tutti__pytorch_first(const tutti__pytorch *file, size_t i)
{
    size_t k = 0;

    while (k < i && !is_same(&file->tensors[k], &file->tensors[i]))
        k++;
    return k;
}

const char *tutti__pytorch_key(const tutti__pytorch *file)
{
    return file->key;
}

/* Whether its elements are row-major and contiguous. */
static bool is_contiguous(const tensor *t)
{
    int64_t step = 1;

    for (int i = t->layout->n_dims; i-- > 0; step *= t->layout->size[i])
        if (t->layout->size[i] != 1 && t->layout->stride[i] != step)
            return false;
    return true;
}

/* Copies elements of `element` bytes from their strided places to contiguous memory. What is added to `offset` past a row's end
 * is subtracted again, and may have wrapped in between. */
static void gather(const tensor *t, size_t element, const char *from, char *to)
{
    const tutti__pickle_tensor *layout = t->layout;
    int64_t at[TUTTI_MAX_DIMS] = {0};
    uint64_t offset = 0;

    for (uint64_t left = t->entry.bytes / element; left > 0; left--) {
        memcpy(to, from + offset * element, element);
        to += element;
        for (int i = layout->n_dims - 1; i >= 0; i--) {
            offset += (uint64_t)layout->stride[i];
            if (++at[i] < layout->size[i])
                break;
            offset -= (uint64_t)layout->stride[i] * (uint64_t)layout->size[i];
            at[i] = 0;
        }
    }
}

tutti_status tutti__pytorch_read(const tutti__pytorch *file, size_t i, void *dst)
{
    const tensor *t = &file->tensors[i];
    const size_t element = t->layout->storage->of.storage.type->bytes;
    bool *checked = &file->checked[t->storage - tutti__zip_at(file->zip, 0)];
    tutti_status status;
    char *span;

    if (!*checked)
        TUTTI_TRY(tutti__zip_check(file->zip, t->storage));
    *checked = true;
    if (t->entry.bytes == 0)
        return TUTTI_OK;
    if (is_contiguous(t))
        return tutti__zip_read(file->zip, t->storage, dst, t->entry.bytes, t->first);
    span = tutti__alloc_unset((size_t)t->span);
    if (!span)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %llu bytes of %s",
                           (unsigned long long)t->span, file->path);
    status = tutti__zip_read(file->zip, t->storage, span, t->span, t->first);
    if (status == TUTTI_OK)
        gather(t, element, span, dst);
    free(span);
    return status;
}

/* module_load.c -- loads a file's weights into a module, by PyTorch's names: all of them, or a selection.
 * SPDX-License-Identifier: MIT
 *
 * First matches every tensor of the module with one in the file, then reads all, then writes all. */
#include "checkpoint/adapter.h"
#include "checkpoint/convert.h"
#include "checkpoint/module_load.h"
#include "checkpoint/read_part.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/weights.h"
#include "comm/comm.h"
#include "nn/nn.h"
#include <tutti/checkpoint.h>

#include <stdlib.h>
#include <string.h>

enum { LISTED = 12, NONE = -1 }; /* names of one kind in a message; the rest is counted */

/* ---- Lists of names for messages -------------------------------------------------------------------------------- */

typedef struct name_list {
    char text[700];
    size_t n;
} name_list;

static void list_add(name_list *list, const char *format, ...) TUTTI_PRINTF(2, 3);
static void list_add(name_list *list, const char *format, ...)
{
    size_t used = strlen(list->text);
    va_list args;

    if (list->n++ >= LISTED)
        return;
    used += (size_t)snprintf(list->text + used, sizeof list->text - used, "%s", used ? ", " : "");
    if (used >= sizeof list->text)
        return;
    va_start(args, format);
    vsnprintf(list->text + used, sizeof list->text - used, format, args);
    va_end(args);
}

static void say(char *text, size_t size, const char *what, const name_list *list)
{
    const size_t used = strlen(text);
    char more[40] = "";

    if (list->n == 0 || used >= size)
        return;
    if (list->n > LISTED)
        snprintf(more, sizeof more, " and %zu more", list->n - LISTED);
    snprintf(text + used, size - used, "; %s: %s%s", what, list->text, more);
}

/* ---- Which tensor goes where ------------------------------------------------------------------------------------ */

/* A further name of a tensor in the file. */
typedef struct tied_pair {
    const char *name, *to;
} tied_pair;

typedef struct plan {
    tutti_module *m;
    const tutti_module *whole; /* with all names of the model of which m is a part, or m */
    tutti__weights *file;
    const tutti_load_opts *opts;
    size_t prefix; /* length of the prefix of all names in the file */
    char added
        [64]; /* what they lack in front: the file holds the model without its head; "": nothing */
    int64_t *source;     /* index in the file of each tensor of the module; NONE */
    size_t n, taken;     /* tensors of the module; those that are loaded */
    bool base;           /* the file has nothing of the module's adapters, whose values stay */
    bool keeps_adapters; /* whatever it has of them */
    bool reads_whole;    /* tensors are read whole, of which ranks have pieces */
    tied_pair *tied;
    size_t n_tied;
    name_list missing, unexpected, different, kept, converted, cut;
} plan;

static const char *file_name(const plan *p, size_t i)
{
    return tutti__weights_at(p->file, i)->name + p->prefix;
}

/* Whether tensor i of the file is the model's of this name. */
static bool is_named(const plan *p, size_t i, const char *name)
{
    const size_t n = strlen(p->added);

    return strcmp(file_name(p, i), name) == 0 ||
           (n > 0 && strncmp(name, p->added, n) == 0 && strcmp(file_name(p, i), name + n) == 0);
}

/* Whether the model has tensor i of the file, if its name lacks `added`. */
static bool has_with(const plan *p, size_t i, const char *added)
{
    char name[4096 + 64];

    snprintf(name, sizeof name, "%s%s", added, file_name(p, i));
    return tutti_module_find(p->whole, name);
}

static bool is_wanted(const plan *p, const char *name)
{
    const tutti_tensor *t = tutti_module_find(p->whole, name);
    const char *only = p->opts->only;

    return !only || !*only ||
           (t ? tutti__tensor_selected(t, only) : tutti__name_selected(name, only));
}

static bool begins_all(const plan *p, const char *prefix)
{
    const size_t n = strlen(prefix);
    const tutti_tensor *t;

    for (size_t i = 0; (t = tutti_module_state(p->whole, i)) != NULL; i++)
        if (strncmp(t->name, prefix, n) == 0)
            return false;
    for (size_t i = 0; i < tutti__weights_count(p->file); i++)
        if (strncmp(file_name(p, i), prefix, n) != 0)
            return false;
    return tutti__weights_count(p->file) > 0;
}

/* DDP's "module." and torch.compile's "_orig_mod.", in either order. */
static void find_prefix(plan *p)
{
    static const char *const prefixes[] = {"module.", "_orig_mod."};

    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < TUTTI__COUNT_OF(prefixes); i++)
            if (begins_all(p, prefixes[i])) {
                p->prefix += strlen(prefixes[i]);
                found = true;
            }
    }
}

/* Hugging Face's language models are a part ("transformer", "model") and a head; files of the part alone lack its name. */
static void find_added(plan *p)
{
    const char *first = p->n ? tutti_tensor_name(tutti_module_state(p->whole, 0)) : "";
    const size_t n = strcspn(first, ".") + 1;
    size_t with = 0, without = 0;
    char added[64] = "";

    if (n < sizeof added && n < strlen(first))
        snprintf(added, sizeof added, "%.*s", (int)n, first);
    for (size_t i = 0; *added && i < tutti__weights_count(p->file); i++) {
        with += has_with(p, i, added);
        without += has_with(p, i, "");
    }
    if (with > without)
        strcpy(p->added, added);
}

/* Masks and angles of attention that older files of Hugging Face's models hold. */
static bool is_constant(const tutti__safetensors_entry *e)
{
    return (tutti__ends_in(e->name, ".attn.bias") && e->shape.n == 4) ||
           (tutti__ends_in(e->name, ".attn.masked_bias") && e->shape.n == 0) ||
           tutti__ends_in(e->name, ".rotary_emb.inv_freq");
}

static bool may_be_missing(const char *name)
{
    static const char last[] = "num_batches_tracked";
    size_t n = strlen(name), k = sizeof last - 1;

    return n >= k && strcmp(name + n - k, last) == 0;
}

static int64_t find(const plan *p, const char *name)
{
    for (size_t i = 0; i < tutti__weights_count(p->file); i++)
        if (is_named(p, i, name))
            return (int64_t)i;
    for (size_t i = 0; i < p->n_tied; i++)
        if (strcmp(p->tied[i].name, name) == 0 && strcmp(p->tied[i].to, name) != 0)
            return find(p, p->tied[i].to);
    return NONE;
}

/* The first of t's names that is in the file from *name_p on; *name_p becomes the next one. */
static int64_t find_any(const plan *p, const tutti_tensor *t, const tutti__state **name_p)
{
    int64_t found = NONE;

    if (!t->parameter) {
        *name_p = NULL;
        return find(p, t->name);
    }
    for (; *name_p && found == NONE; *name_p = (*name_p)->next_tied)
        found = find(p, (*name_p)->parameter.name);
    return found;
}

/* Whether t, or the whole tensor of which it is a part, is the first rows of what the file has. */
static bool is_cut(const tutti_tensor *t, tutti_shape shape)
{
    const tutti_shape is = tutti__whole_shape(t);
    const bool longer =
        t->parameter && t->parameter->leading_rows && shape.n == is.n && shape.d[0] > is.d[0];

    shape.d[0] = is.d[0];
    return longer && tutti_shape_equal(shape, is);
}

static void match(plan *p, size_t i)
{
    tutti_tensor *t = tutti_module_state(p->m, i);
    const char *name = tutti_tensor_name(t);
    const tutti__state *names = t->parameter ? tutti__state_of(t) : NULL;
    const tutti__safetensors_entry *e;

    p->source[i] = is_wanted(p, name) && !(p->keeps_adapters && tutti__is_of_adapter(t))
                       ? find_any(p, t, &names)
                       : NONE;
    if (p->source[i] == NONE && (p->base || p->keeps_adapters) && tutti__is_of_adapter(t))
        return;
    if (p->source[i] == NONE) {
        list_add(&p->kept, "%s", name);
        if (is_wanted(p, name) && !may_be_missing(name))
            list_add(&p->missing, "%s", name);
        return;
    }
    e = tutti__weights_at(p->file, (size_t)p->source[i]);
    if (e->readable && tutti__can_convert(e->dtype, tutti_tensor_dtype(t)) &&
        (tutti_shape_equal(e->shape, tutti__whole_shape(t)) || is_cut(t, e->shape))) {
        p->taken++;
        if (is_cut(t, e->shape))
            list_add(&p->cut, "%s (the first %lld of %lld rows)", name,
                     (long long)tutti__whole_shape(t).d[0], (long long)e->shape.d[0]);
        if (e->dtype != tutti_tensor_dtype(t) && !strstr(p->converted.text, e->dtype_text))
            list_add(&p->converted, "%s as %s", e->dtype_text,
                     tutti_dtype_name(tutti_tensor_dtype(t)));
        return;
    }
    p->source[i] = NONE;
    list_add(&p->kept, "%s", name);
    list_add(&p->different, "%s (%s %s, expected %s %s)", name, e->dtype_text,
             tutti__shape_text(e->shape), tutti_dtype_name(tutti_tensor_dtype(t)),
             tutti__shape_text(tutti__whole_shape(t)));
}

static tutti_status find_tied(plan *p)
{
    const char *name, *to;

    while (tutti__weights_tied(p->file, p->n_tied, &to))
        p->n_tied++;
    p->tied = tutti__alloc((p->n_tied + 1) * sizeof *p->tied);
    if (!p->tied)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; (name = tutti__weights_tied(p->file, i, &to)) != NULL; i++)
        if (strlen(name) > p->prefix && strlen(to) > p->prefix)
            p->tied[i] = (tied_pair){name + p->prefix, to + p->prefix};
        else
            p->tied[i] = (tied_pair){"", ""};
    return TUTTI_OK;
}

static tutti_status make_plan(plan *p)
{
    find_prefix(p);
    find_added(p);
    TUTTI_TRY(find_tied(p));
    if (p->opts->only)
        TUTTI_TRY(tutti__check_selection(p->m, p->opts->only, false, "only"));
    p->source = tutti__alloc((p->n + 1) * sizeof *p->source);
    if (!p->source)
        return TUTTI_ERR_MEMORY;
    p->base = true;
    for (size_t i = 0; i < p->n && p->base; i++) {
        const tutti_tensor *t = tutti_module_state(p->m, i);

        p->base = !tutti__is_of_adapter(t) || find(p, t->name) == NONE;
    }
    for (size_t i = 0; i < p->n; i++)
        match(p, i);
    for (size_t i = 0; i < tutti__weights_count(p->file); i++)
        if (is_wanted(p, file_name(p, i)) && !has_with(p, i, "") && !has_with(p, i, p->added) &&
            !is_constant(tutti__weights_at(p->file, i)))
            list_add(&p->unexpected, "%.100s", file_name(p, i));
    return TUTTI_OK;
}

static tutti_status check_plan(const plan *p)
{
    const bool some = p->opts->partial && p->taken > 0;
    char text[2400] = "";

    if (some || p->missing.n + p->unexpected.n + p->different.n == 0)
        return TUTTI_OK;
    say(text, sizeof text, "missing", &p->missing);
    say(text, sizeof text, "unexpected", &p->unexpected);
    say(text, sizeof text, "of another shape or dtype", &p->different);
    return tutti__fail(TUTTI_ERR_FORMAT, "%s does not hold the weights of this model%s%s",
                       tutti__weights_path(p->file),
                       tutti__weights_metadata(p->file, TUTTI__ADAPTERS_KEY) &&
                               p->m->root->lora.rank == 0
                           ? "; it has adapters: give its lora_rank, or merge them by tutti "
                             "checkpoint export"
                           : "",
                       text);
}

static void say_plan(const plan *p, char *said, size_t size)
{
    const char *first = tutti__weights_count(p->file) ? tutti__weights_at(p->file, 0)->name : "";
    char text[3200], prefix[80] = "";

    if (p->prefix > 0)
        snprintf(prefix, sizeof prefix, "; \"%.*s\" removed from their names",
                 (int)(p->prefix < 40 ? p->prefix : 40), first);
    snprintf(text, sizeof text, "%zu of %zu tensor%s from %.1000s (%s)%s", p->taken, p->n,
             tutti__s(p->n), tutti__weights_path(p->file), tutti__weights_kind(p->file), prefix);
    say(text, sizeof text, "read", &p->converted);
    say(text, sizeof text, "shortened", &p->cut);
    say(text, sizeof text, "left as they were", &p->kept);
    say(text, sizeof text, "of another shape or dtype", &p->different);
    say(text, sizeof text, "not in the model", &p->unexpected);
    tutti__printable(text, said, size);
}

/* ---- Loading --------------------------------------------------------------------------------------------------- */

/* Of what is read of t. */
static size_t bytes_of(const plan *p, const tutti_tensor *t)
{
    const tutti_shape shape = p->reads_whole ? tutti__whole_shape(t) : t->shape;

    return (size_t)tutti_shape_count(shape) * tutti_dtype_size(t->dtype);
}

/* Whether tensor k of the file has t's values, which are at `values`; into: room for as many. */
static tutti_status check_same(const plan *p, const tutti_tensor *t, const char *name, size_t k,
                               const void *values, void *into)
{
    const tutti__safetensors_entry *e = tutti__weights_at(p->file, k);
    const bool fits = tutti_shape_equal(e->shape, tutti__whole_shape(t));

    if (fits)
        TUTTI_TRY(tutti__read_part(p->file, k, t, p->reads_whole, into));
    if (fits && memcmp(values, into, bytes_of(p, t)) == 0)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_FORMAT,
        "%s holds different values for %s and %s, which are one tensor in this model: it is "
        "of another model, or one of them was changed",
        tutti__weights_path(p->file), t->name, name);
}

/* That what the file holds under further names of t is the same as at `values`. */
static tutti_status check_tied(const plan *p, size_t i, const void *values)
{
    const tutti_tensor *t = tutti_module_state(p->m, i);
    const tutti__state *names = t->parameter ? tutti__state_of(t) : NULL;
    tutti_status status = TUTTI_OK;
    void *into;

    if (!names || !names->next_tied)
        return TUTTI_OK;
    into = tutti__alloc(bytes_of(p, t));
    if (!into)
        return TUTTI_ERR_MEMORY;
    for (; names && status == TUTTI_OK; names = names->next_tied) {
        const int64_t k = find(p, names->parameter.name);

        if (k != NONE && k != p->source[i])
            status = check_same(p, t, names->parameter.name, (size_t)k, values, into);
    }
    free(into);
    return status;
}

static tutti_status read_one(const plan *p, size_t i, void *dst)
{
    tutti_tensor *t = tutti_module_state(p->m, i);
    const tutti_dtype dtype = tutti_tensor_dtype(t);
    const size_t n = bytes_of(p, t) / tutti_dtype_size(dtype);
    size_t bad;

    TUTTI_TRY(tutti__read_part(p->file, (size_t)p->source[i], t, p->reads_whole, dst));
    TUTTI_TRY(check_tied(p, i, dst));
    bad = p->opts->finite ? tutti__find_nonfinite(dst, dtype, n) : n;
    if (bad == n)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s holds NaN or infinity in %s (the first at element %zu of %zu): the "
                       "training that wrote it has diverged; use an earlier checkpoint",
                       tutti__weights_path(p->file), tutti_tensor_name(t), bad, n);
}

static tutti_status read_all(const plan *p, const tutti__snapshot *into)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->source[i] != NONE)
            TUTTI_TRY(read_one(p, i, (void *)(uintptr_t)into->sources[i].array.p));
    return TUTTI_OK;
}

/* Reads all before it changes the module. */
static tutti_status carry_out(const plan *p)
{
    tutti__snapshot values = {.n = 0};
    tutti_status status = tutti__snapshot_new(&values, p->m);

    if (status == TUTTI_OK)
        status = read_all(p, &values);
    for (size_t i = 0; i < p->n && status == TUTTI_OK; i++)
        if (p->source[i] != NONE)
            status = tutti_tensor_write(tutti_module_state(p->m, i), values.sources[i].array.p);
    tutti__snapshot_free(&values);
    return status;
}

static tutti_status open_plan(plan *p, const char *path)
{
    TUTTI_TRY(tutti__weights_open(&p->file, path));
    TUTTI_TRY(make_plan(p));
    return check_plan(p);
}

/* into NULL: the module itself. */
static tutti_status load(plan *p, const char *path, const tutti__snapshot *into)
{
    TUTTI_TRY(open_plan(p, path));
    return into ? read_all(p, into) : carry_out(p);
}

static const tutti_load_opts whole = {.only = NULL};

static plan *plan_new(tutti_module *m, const tutti_load_opts *opts)
{
    plan *p = tutti__alloc(sizeof *p);

    if (p)
        *p = (plan){.m = m,
                    .whole = m && m->root ? tutti__whole_of(m) : m,
                    .opts = opts ? opts : &whole,
                    .n = tutti_module_n_state(m)};
    return p;
}

static void plan_free(plan *p)
{
    free(p->source);
    free(p->tied);
    tutti__weights_close(p->file);
    free(p);
}

tutti_status tutti_module_load_with(tutti_module *m, const char *path, const tutti_load_opts *opts,
                                    char *said, size_t size)
{
    tutti_status status;
    plan *p;

    TUTTI_TRY(tutti_module_status(m));
    TUTTI_TRY(TUTTI__NOT_NULL(path));
    TUTTI_TRY(TUTTI__CHECK_RESERVED(tutti_load_opts, opts));
    p = plan_new(m, opts);
    if (!p)
        return TUTTI_ERR_MEMORY;
    status = load(p, path, NULL);
    if (status == TUTTI_OK && said && size > 0)
        say_plan(p, said, size);
    plan_free(p);
    return status;
}

tutti_status tutti__snapshot_read(tutti__snapshot *s, tutti_module *m, const char *path)
{
    plan *p = plan_new(m, NULL);
    tutti_status status;

    if (!p)
        return TUTTI_ERR_MEMORY;
    status = load(p, path, s);
    if (status == TUTTI_OK && p->taken < p->n)
        status = tutti__fail(TUTTI_ERR_FORMAT, "%s holds %zu of the model's %zu tensors", path,
                             p->taken, p->n);
    plan_free(p);
    return status;
}

/* ---- A module of which ranks have pieces ---------------------------------------------------------------------- */

/* By the number of a tensor in the module's state: whether rank 0 reads it. */
typedef struct reading {
    const plan *p; /* made on rank 0 only */
    uint8_t *taken;
} reading;

static size_t index_of(const reading *r, const char *name)
{
    size_t i = 0;

    while (i < r->p->n && strcmp(tutti_module_state(r->p->m, i)->name, name) != 0)
        i++;
    return i;
}

static bool is_taken(const void *arg, const char *name)
{
    const reading *r = arg;
    const size_t i = index_of(r, name);

    return i < r->p->n && r->taken[i];
}

static tutti_status read_whole(const void *arg, const char *name, void *room)
{
    const reading *r = arg;

    return read_one(r->p, index_of(r, name), room);
}

static tutti_status read_pieces(plan *p, tutti_group *group)
{
    const size_t size = (size_t)tutti_group_size(group);
    bool *may = tutti__alloc(size * sizeof *may);
    reading r = {p, tutti__alloc(p->n + 1)};
    tutti__divided_source source = {
        .group = group, .may = may, .has = is_taken, .read = read_whole, .arg = &r};
    tutti__pieces mine = {.n = 0};
    tutti_status status = may && r.taken ? TUTTI_OK : TUTTI_ERR_MEMORY;

    for (size_t i = 0; status == TUTTI_OK && p->source && i < p->n; i++)
        r.taken[i] = p->source[i] != NONE;
    if (status == TUTTI_OK) {
        may[0] = true;
        status = tutti__divided_pieces(&mine, p->m, NULL);
    }
    status = tutti__group_agree(group, status);
    if (status == TUTTI_OK)
        status = tutti_broadcast(group, TUTTI_BUF(r.taken, p->n, TUTTI_U8), 0, NULL);
    if (status == TUTTI_OK)
        status = tutti__divided_read(&source, &mine, p->m->cx->stream, NULL, false, false);
    tutti__pieces_free(&mine);
    free(r.taken);
    tutti__divided_close(&source);
    return status;
}

tutti_status tutti__module_load_pieces(tutti_module *m, tutti_group *group, const char *path,
                                       const tutti_load_opts *opts, bool keeps_adapters, char *said,
                                       size_t size)
{
    const bool first = tutti_group_rank(group) == 0;
    plan *p = plan_new(m, opts);
    tutti_status status = p ? TUTTI_OK : TUTTI_ERR_MEMORY;

    if (p) {
        p->reads_whole = true;
        p->keeps_adapters = keeps_adapters;
    }
    if (p && first)
        status = open_plan(p, path);
    status = tutti__group_agree(group, status);
    if (status == TUTTI_OK)
        status = read_pieces(p, group);
    if (status == TUTTI_OK && first)
        say_plan(p, said, size);
    if (p)
        plan_free(p);
    return status;
}

tutti_status tutti_module_load(tutti_module *m, const char *path)
{
    return tutti_module_load_with(m, path, NULL, NULL, 0);
}

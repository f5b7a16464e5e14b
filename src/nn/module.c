/* module.c -- the tree of modules, and its parameters and buffers.   SPDX-License-Identifier: MIT
 *
 * Everything below a module is found by filtering the root's list by owner, so that it is in PyTorch's order at every level of
 * the tree. Walks over the i-th, i = 0, 1, 2 ..., continue from a cursor, and names are found by a hash table: a model may have
 * tens of thousands of parameters. */
#include "nn/nn.h"
#include "nn/part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INIT_STREAM 0x696e6974u /* "init": separates these random numbers from dropout's */

/* ---- The tree ---------------------------------------------------------------------------------------- */

void tutti__module_fail(tutti_module *m, tutti_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tutti__vfail(status, format, args);
    va_end(args);
    if (m->root && m->root->status == TUTTI_OK) {
        m->root->status = status;
        snprintf(m->root->text, sizeof m->root->text, "%s", tutti_last_error());
    }
}

tutti_status tutti_module_status(const tutti_module *m)
{
    if (!m)
        return tutti__fail(TUTTI_ERR_ARG, "the module is NULL");
    if (!m->root && m->cx)
        return tutti__fail(TUTTI_ERR_MEMORY, "module '%s': there was no memory to initialise it",
                           m->name);
    if (!m->root)
        return tutti__fail(TUTTI_ERR_STATE,
                           "module '%s': not initialised; call tutti_module_init with a context, "
                           "or tutti_module_init_child with an initialised parent",
                           m->name);
    return m->root->status == TUTTI_OK ? TUTTI_OK
                                       : tutti__fail_again(m->root->status, m->root->text);
}

void tutti_module_init(tutti_module *m, tutti_ctx *cx)
{
    *m = (tutti_module){.cx = cx};
    if (!cx)
        return;
    m->root = tutti__alloc(sizeof *m->root);
    if (m->root) {
        m->root->module = m;
        m->root->round = 1;
    }
}

static bool good_name(const char *name)
{
    return name && *name && !strchr(name, '.') && strlen(name) < sizeof((tutti_module *)0)->name;
}

static int n_children(const tutti_module *m)
{
    int n = 0;

    for (const tutti_module *child = m->first_child; child; child = child->next)
        n++;
    return n;
}

void tutti_module_init_child(tutti_module *m, tutti_module *parent, const char *name)
{
    char number[16];

    *m = (tutti_module){0};
    if (!parent)
        return;
    m->cx = parent->cx;
    m->root = parent->root;
    if (m->root) /* a cursor may belong to an earlier module at this address */
        memset(m->root->cursors, 0, sizeof m->root->cursors);
    m->parent = parent;
    m->peers = parent->peers;
    if (!name) {
        snprintf(number, sizeof number, "%d", n_children(parent));
        name = number;
    }
    if (!good_name(name)) {
        tutti__module_fail(
            m, TUTTI_ERR_ARG,
            "%s: a child cannot be named '%s'; expected 1 to %zu characters without a dot",
            tutti__module_path(parent), name ? name : "(null)", sizeof m->name - 1);
        name = "?";
    }
    snprintf(m->name, sizeof m->name, "%s", name);
    if (parent->last_child)
        parent->last_child->next = m;
    else
        parent->first_child = m;
    parent->last_child = m;
}

static void state_free(const struct tutti_root *root, tutti__state *state)
{
    root->module->cx->device_ops->free(root->module->cx->device, state->memory);
    free(state->tensor);
    free(state->parameter.touched);
    free(state);
}

void tutti_module_destroy(tutti_module *m)
{
    struct tutti_root *root = m ? m->root : NULL;

    if (!root || root->module != m)
        return;
    for (tutti__optim_entry *entry = root->optims; entry; entry = entry->next)
        entry->link = NULL;
    tutti__flat_destroy(root);
    for (size_t i = 0; i < root->state.n; i++)
        state_free(root, root->state.p[i]);
    for (size_t i = 0; i < root->tied.n; i++)
        state_free(root, root->tied.p[i]);
    free(root->state.p);
    free(root->tied.p);
    free(root->parameters.p);
    free(root->names.p);
    tutti__parallel_free(root->parallel);
    while (root->allocated) {
        void **next = *root->allocated;

        free(root->allocated);
        root->allocated = next;
    }
    free(root);
    *m = (tutti_module){0};
}

void *tutti_module_alloc(tutti_module *m, size_t bytes)
{
    const size_t head = 64; /* the list's link, keeping the alignment */
    void **p;

    if (!m || tutti_module_status(m) != TUTTI_OK)
        return NULL;
    p = tutti__alloc(head + bytes);
    if (!p) {
        tutti__module_fail(m, TUTTI_ERR_MEMORY, "%s: %s", tutti__module_path(m),
                           tutti_last_error());
        return NULL;
    }
    *p = m->root->allocated;
    m->root->allocated = p;
    return (char *)p + head;
}

void tutti_module_set_peers(tutti_module *m, const tutti_peers *peers)
{
    if (!m)
        return;
    if (TUTTI__CHECK_RESERVED(tutti_peers, peers) != TUTTI_OK) {
        tutti__module_fail(m, TUTTI_ERR_ARG, "%s", tutti_last_error());
        return;
    }
    m->peers = peers ? *peers : (tutti_peers){0};
    for (tutti_module *child = m->first_child; child; child = child->next)
        tutti_module_set_peers(child, peers);
}

tutti_ctx *tutti_module_ctx(const tutti_module *m)
{
    return m ? m->cx : NULL;
}

tutti_module *tutti_module_child(const tutti_module *m, const char *name)
{
    tutti_module *child = NULL;

    while (m && name) {
        const size_t n = strcspn(name, ".");

        child = m->first_child;
        while (child && (strncmp(child->name, name, n) != 0 || child->name[n] != '\0'))
            child = child->next;
        m = child;
        name = name[n] ? name + n + 1 : NULL;
    }
    return name ? NULL : child;
}

bool tutti__module_below(const tutti_module *owner, const tutti_module *m)
{
    while (owner && owner != m)
        owner = owner->parent;
    return owner;
}

/* Writes "a.b." for the module a.b; returns the number of characters, as snprintf does. */
static size_t write_prefix(const tutti_module *m, char *text, size_t bytes)
{
    size_t n;

    if (!m->parent)
        return 0;
    n = write_prefix(m->parent, text, bytes);
    return n +
           (size_t)snprintf(n < bytes ? text + n : NULL, n < bytes ? bytes - n : 0, "%s.", m->name);
}

const char *tutti__module_path(const tutti_module *m)
{
    static _Thread_local char texts[4][128];
    static _Thread_local unsigned next;
    char *text = texts[next++ % 4];
    size_t n = write_prefix(m, text, sizeof texts[0]);

    if (n == 0)
        return "the module";
    text[(n < sizeof texts[0] ? n : sizeof texts[0]) - 1] = 0;
    return text;
}

/* ---- Parameters and buffers ---------------------------------------------------------------------------- */

bool tutti__state_list_reserve(tutti__state_list *list)
{
    size_t capacity = list->capacity ? 2 * list->capacity : 16;
    tutti__state **p;

    if (list->n < list->capacity)
        return true;
    p = realloc(list->p, capacity * sizeof *p);
    if (!p) {
        tutti__fail(TUTTI_ERR_MEMORY, "module: no memory for another parameter");
        return false;
    }
    list->p = p;
    list->capacity = capacity;
    return true;
}

/* ---- Names: open addressing, at most half full ------------------------------------------------------------ */

/* The slot of a name in the table, or a free one for it. */
static tutti__state **name_slot(const tutti__name_table *table, const char *name)
{
    size_t i = (size_t)tutti__hash64(name, strlen(name)) & (table->capacity - 1);

    while (table->p[i] && strcmp(table->p[i]->parameter.name, name) != 0)
        i = (i + 1) & (table->capacity - 1);
    return &table->p[i];
}

static bool names_reserve(struct tutti_root *root)
{
    tutti__name_table larger = {.capacity = root->names.capacity ? 2 * root->names.capacity : 32};

    if (2 * (root->state.n + root->tied.n + 1) <= root->names.capacity)
        return true;
    larger.p = tutti__alloc(larger.capacity * sizeof(tutti__state *));
    if (!larger.p)
        return false;
    for (size_t i = 0; i < root->state.n; i++)
        *name_slot(&larger, root->state.p[i]->parameter.name) = root->state.p[i];
    for (size_t i = 0; i < root->tied.n; i++)
        *name_slot(&larger, root->tied.p[i]->parameter.name) = root->tied.p[i];
    free(root->names.p);
    root->names = larger;
    return true;
}

/* ---- Initial values --------------------------------------------------------------------------------------- */

enum { BLOCK = 1024 }; /* elements drawn at once */

/* n elements of a parameter from `first` on: odd multiples of 2^-24 * bound, symmetric, both ends excluded. */
TUTTI__CLONES static void draw_uniform(float *values, int64_t first, int n, float bound,
                                       uint64_t seed, size_t index)
{
    const float unit = bound * 0x1p-24f;
    const int before = (int)(first % 4); /* in the first block of four */
    uint32_t words[BLOCK + 4];

    tutti__philox_fill(
        seed, (tutti__philox_counter){{(uint32_t)(first / 4), (uint32_t)index, INIT_STREAM, 0}}, 0,
        words, (size_t)(before + n));
    for (int i = 0; i < n; i++)
        values[i] = (float)((int32_t)(words[before + i] >> 8) * 2 + 1 - (1 << 24)) * unit;
}

static void draw_normal(float *values, int64_t first, int n, float deviation, uint64_t seed,
                        size_t index)
{
    uint32_t words[4 * BLOCK];

    tutti__philox_fill(seed,
                       (tutti__philox_counter){{(uint32_t)first, (uint32_t)index, INIT_STREAM,
                                                (uint32_t)(first >> 32) + 1}},
                       0, words, 4 * (size_t)n);
    tutti__normal_fill(words, (double)deviation, values, (size_t)n);
}

typedef struct drawing {
    void *values; /* in host memory */
    tutti_dtype dtype;
    tutti_init init;
    float bound;
    uint64_t seed;
    size_t index;      /* of the parameter */
    tutti_shape shape; /* of the whole */
} drawing;

/* n elements of a weight from `first` on: those of the first filters become 0, or 1 in the middle of their channel. */
static void draw_identity(float *values, int64_t first, int n, tutti_shape shape)
{
    const int64_t pixels = shape.d[2] * shape.d[3], per_filter = shape.d[1] * pixels;
    const int64_t middle = shape.d[2] / 2 * shape.d[3] + shape.d[3] / 2;

    for (int64_t i = first; i < first + n && i / per_filter < shape.d[1]; i++)
        values[i - first] = i % per_filter == i / per_filter * pixels + middle;
}

/* n values from `at` on, those of the whole from `first` on. */
static void draw_run(void *arg, int64_t first, int64_t n, int64_t at)
{
    const drawing *d = arg;
    float *f32 = (float *)d->values + at;
    int64_t *i64 = (int64_t *)d->values + at;

    for (int64_t i = 0; i < n; i += BLOCK) {
        const int count = (int)(n - i < BLOCK ? n - i : BLOCK);

        for (int64_t k = i; d->init == TUTTI_INIT_ONES && k < i + count; k++)
            if (d->dtype == TUTTI_F32)
                f32[k] = 1;
            else
                i64[k] = 1;
        if (d->init == TUTTI_INIT_NORMAL)
            draw_normal(f32 + i, first + i, count, d->bound, d->seed, d->index);
        if (d->init == TUTTI_INIT_UNIFORM || d->init == TUTTI_INIT_DIRAC)
            draw_uniform(f32 + i, first + i, count, d->bound, d->seed, d->index);
        if (d->init == TUTTI_INIT_DIRAC)
            draw_identity(f32 + i, first + i, count, d->shape);
    }
}

/* In place if the host can write there; else by one copy, because many small ones to a device are slow. */
tutti_status tutti__draw_later(const tutti__state *state, void *values)
{
    const tutti_ctx *cx = state->owner->cx;
    const size_t bytes = tutti__tensor_bytes(state->tensor);
    void *here = values;
    tutti_status status = TUTTI_OK;

    if (state->later.init == TUTTI_INIT_ZEROS || state->owner->root->no_values ||
        cx->device_ops->plans)
        return TUTTI_OK; /* memory is zeroed already */
    if (!cx->device_ops->is_host)
        here = tutti__alloc(bytes);
    if (!here)
        return TUTTI_ERR_MEMORY;
    tutti__split_runs(state, draw_run,
                      &(drawing){here, state->tensor->dtype, state->later.init, state->later.bound,
                                 cx->seed, state->later.drawn, state->tensor->shape});
    if (here != values) {
        status = tutti__copy_in(cx->stream, values, here, bytes);
        free(here);
    }
    return status;
}

/* Memory and values for a parameter that is used before it is laid out. */
static tutti_status draw_now(tutti_tensor *t, bool first, tutti_dtype as)
{
    tutti__state *state = tutti__state_of(t);
    const tutti_ctx *cx = t->cx;
    void *p = cx->device_ops->alloc(cx->device, tutti__tensor_bytes(t), true);
    tutti_status status = p ? tutti__draw_later(state, p) : TUTTI_ERR_MEMORY;

    (void)first;
    (void)as;
    if (status != TUTTI_OK) {
        cx->device_ops->free(cx->device, p);
        return status;
    }
    t->data = state->memory = p;
    t->parameter->store = NULL;
    return TUTTI_OK;
}

static tutti_status check_shape(const char *name, tutti_shape shape)
{
    int64_t count = 1;

    if (shape.n < 0 || shape.n > TUTTI_MAX_DIMS)
        return tutti__fail(TUTTI_ERR_ARG, "%s: has %d dimensions, expected 0 to %d", name, shape.n,
                           TUTTI_MAX_DIMS);
    for (int i = 0; i < shape.n; i++)
        if (shape.d[i] < 1 || __builtin_mul_overflow(count, shape.d[i], &count) ||
            count > INT64_C(1) << 40)
            return tutti__fail(
                TUTTI_ERR_ARG,
                "%s: the shape is %s, expected dimensions of at least 1 and at most 2^40 elements",
                name, tutti__shape_text(shape));
    return TUTTI_OK;
}

/* The full name, checked: it is the key in checkpoints. */
static tutti_status name_state(tutti__state *state, const tutti_module *m, const char *name)
{
    char *text = state->parameter.name;
    size_t bytes = sizeof state->parameter.name, n = write_prefix(m, text, bytes);

    if (!good_name(name))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: a parameter or buffer cannot be named '%s'; expected 1 to %zu "
                           "characters without a dot",
                           tutti__module_path(m), name ? name : "(null)", sizeof m->name - 1);
    if (n + strlen(name) >= bytes)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s: the full name of '%s' has more than %zu characters; shorten the names",
            tutti__module_path(m), name, bytes - 1);
    strcpy(text + n, name);
    if (*name_slot(&m->root->names, text))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: the name is taken; each parameter and buffer of a module needs "
                           "its own",
                           text);
    return TUTTI_OK;
}

/* What is known of a new parameter or buffer. */
typedef struct making {
    tutti__adaptable adaptable;
    const tutti__division *given; /* how it is divided; NULL: by rules */
    bool later;                   /* its memory and values are needed later */
} making;

static tutti_status state_fill_in(tutti__state *state, tutti_module *m, const char *name,
                                  tutti_shape shape, tutti_dtype dtype, const making *how)
{
    TUTTI_TRY(name_state(state, m, name));
    TUTTI_TRY(check_shape(state->parameter.name, shape));
    TUTTI_TRY(tutti__divide(m, state, how->given, &shape));
    state->owner = m;
    state->tensor = tutti__tensor_persistent(m->cx, shape, dtype);
    if (!state->tensor)
        return TUTTI_ERR_MEMORY;
    state->tensor->name = state->parameter.name;
    if (how->later)
        return TUTTI_OK;
    state->memory =
        m->cx->device_ops->alloc(m->cx->device, tutti__tensor_bytes(state->tensor), true);
    state->tensor->data = state->memory;
    return state->memory ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* A new entry, not in a list yet; NULL with the root's error set. */
static tutti__state *state_new(tutti_module *m, const char *name, tutti_shape shape,
                               tutti_dtype dtype, const making *how)
{
    tutti__state *state;
    tutti_status status = TUTTI_ERR_MEMORY;

    if (tutti_module_status(m) != TUTTI_OK)
        return NULL;
    state = tutti__alloc(sizeof *state);
    if (state)
        state->adaptable = how->adaptable;
    if (state && tutti__state_list_reserve(&m->root->state) &&
        tutti__state_list_reserve(&m->root->parameters) && names_reserve(m->root))
        status = state_fill_in(state, m, name, shape, dtype, how);
    if (status == TUTTI_OK)
        return state;
    tutti__module_fail(m, status, "%s", tutti_last_error());
    if (state)
        state_free(m->root, state);
    return NULL;
}

static tutti_tensor *state_add(tutti_module *m, tutti__state *state, tutti_init init, float bound)
{
    struct tutti_root *root = m->root;
    static const tutti__store later = {.need = draw_now};
    tutti_status status = TUTTI_OK;

    state->later.init = init;
    state->later.bound = bound;
    state->later.drawn = root->n_drawn;
    if (state->memory)
        status = tutti__draw_later(state, state->tensor->data);
    else
        state->parameter.store = &later;
    if (status != TUTTI_OK) {
        tutti__module_fail(m, status, "%s: %s", state->parameter.name, tutti_last_error());
        state_free(root, state);
        return NULL;
    }
    if (state->tensor->parameter)
        root->parameters.p[root->parameters.n++] = state;
    root->n_drawn += state->tensor->parameter != NULL;
    root->state.p[root->state.n++] = state;
    *name_slot(&root->names, state->parameter.name) = state;
    return state->tensor;
}

tutti_tensor *tutti_parameter_new(tutti_module *m, const char *name, tutti_shape shape,
                                  tutti_init init, float bound)
{
    return tutti__parameter_make(m, name, shape, init, bound, TUTTI__NOT_ADAPTABLE, NULL);
}

tutti_tensor *tutti__parameter_make(tutti_module *m, const char *name, tutti_shape shape,
                                    tutti_init init, float bound, tutti__adaptable adaptable,
                                    const tutti__division *given)
{
    const making how = {adaptable, given, m && m->cx && m->cx->defers_parameters};
    const bool left_out = tutti__is_left_out(m, name);
    tutti__state *state = left_out ? NULL : state_new(m, name, shape, TUTTI_F32, &how);
    struct tutti_root *root = m ? m->root : NULL;

    if (left_out)
        root->n_drawn++;
    if (!state)
        return NULL;
    state->parameter.index = root->parameters.n;
    state->parameter.requires_grad = true;
    state->parameter.round = &root->round;
    state->parameter.prepare = tutti__flat_prepare;
    state->parameter.owner = root;
    state->tensor->parameter = &state->parameter;
    state->tensor->needs_grad = true;
    if (root->flat_parameters)
        tutti__module_fail(
            m, TUTTI_ERR_STATE,
            "%s: made after the parameters were laid out; make all before the first backward, "
            "optimizer or DDP",
            state->parameter.name);
    else if (init == TUTTI_INIT_DIRAC && shape.n != 4)
        tutti__module_fail(m, TUTTI_ERR_ARG,
                           "%s: the shape is %s; expected [out,in,kh,kw] for TUTTI_INIT_DIRAC",
                           state->parameter.name, tutti__shape_text(shape));
    else if (init != TUTTI_INIT_ZEROS && init != TUTTI_INIT_ONES && !(bound > 0 && isfinite(bound)))
        tutti__module_fail(m, TUTTI_ERR_ARG,
                           "%s: the bound of its initial values is %g, expected > 0",
                           state->parameter.name, (double)bound);
    else
        return state_add(m, state, init, bound);
    state_free(root, state);
    return NULL;
}

tutti_tensor *tutti_buffer_new(tutti_module *m, const char *name, tutti_shape shape,
                               tutti_dtype dtype, tutti_init init)
{
    const tutti__division whole = {0};
    tutti__state *state = tutti__is_left_out(m, name)
                              ? NULL
                              : state_new(m, name, shape, dtype, &(making){.given = &whole});

    if (!state)
        return NULL;
    if (init == TUTTI_INIT_ZEROS
            ? tutti_dtype_size(dtype) > 0
            : init == TUTTI_INIT_ONES && (dtype == TUTTI_F32 || dtype == TUTTI_I64))
        return state_add(m, state, init, 0);
    tutti__module_fail(m, TUTTI_ERR_ARG,
                       "%s: a buffer of %s cannot begin so; expected zeros, or ones of F32 or I64",
                       state->parameter.name, tutti_dtype_name(dtype));
    state_free(m->root, state);
    return NULL;
}

/* ---- Lists --------------------------------------------------------------------------------------------- */

typedef enum kind { PARAMETERS, BUFFERS, STATE } kind;

static bool is_of(const tutti__state *state, kind what)
{
    return what == STATE || (state->tensor->parameter != NULL) == (what == PARAMETERS);
}

bool tutti__state_below(const tutti__state *state, const tutti_module *m)
{
    while (state && !tutti__module_below(state->owner, m))
        state = state->next_tied;
    return state;
}

/* The first one below m from index *k of the root's list on; *k becomes the index after it. NULL: no more. */
static tutti_tensor *next_below(const tutti_module *m, kind what, size_t *k)
{
    while (m && m->root && *k < m->root->state.n) {
        const tutti__state *state = m->root->state.p[(*k)++];

        if (is_of(state, what) && tutti__state_below(state, m))
            return state->tensor;
    }
    return NULL;
}

static tutti_tensor *nth(const tutti_module *m, kind what, size_t i)
{
    struct tutti_root *root = m ? m->root : NULL;
    tutti__cursor *cursor;

    if (root && root->module == m && what != BUFFERS) { /* the root has these lists */
        const tutti__state_list *list = what == STATE ? &root->state : &root->parameters;

        return i < list->n ? list->p[i]->tensor : NULL;
    }
    if (!root)
        return NULL;
    cursor = &root->cursors[what];
    if (cursor->module != m || cursor->n > i + 1)
        *cursor = (tutti__cursor){.module = m};
    while (cursor->n <= i) {
        tutti_tensor *t = next_below(m, what, &cursor->k);

        if (!t)
            return NULL;
        cursor->last = t;
        cursor->n++;
    }
    return cursor->last;
}

static size_t count(const tutti_module *m, kind what)
{
    size_t n = 0;

    if (m && m->root && m->root->module == m)
        return what == STATE        ? m->root->state.n
               : what == PARAMETERS ? m->root->parameters.n
                                    : m->root->state.n - m->root->parameters.n;
    for (size_t k = 0; next_below(m, what, &k);)
        n++;
    return n;
}

size_t tutti_module_n_parameters(const tutti_module *m)
{
    return count(m, PARAMETERS);
}

tutti_tensor *tutti_module_parameter(const tutti_module *m, size_t i)
{
    return nth(m, PARAMETERS, i);
}

size_t tutti_module_n_buffers(const tutti_module *m)
{
    return count(m, BUFFERS);
}

tutti_tensor *tutti_module_buffer(const tutti_module *m, size_t i)
{
    return nth(m, BUFFERS, i);
}

size_t tutti_module_n_state(const tutti_module *m)
{
    return count(m, STATE);
}

tutti_tensor *tutti_module_state(const tutti_module *m, size_t i)
{
    return nth(m, STATE, i);
}

tutti_tensor *tutti_module_find(const tutti_module *m, const char *name)
{
    const tutti__state *state =
        m && name && m->root && m->root->names.p ? *name_slot(&m->root->names, name) : NULL;

    if (!state || !tutti__module_below(state->owner, m))
        return NULL;
    return state->tied_to ? state->tied_to->tensor : state->tensor;
}

int64_t tutti_module_count(const tutti_module *m)
{
    tutti_tensor *t;
    int64_t n = 0;

    for (size_t k = 0; (t = next_below(m, PARAMETERS, &k));)
        n += tutti__whole_count(tutti__state_of(t));
    return n;
}

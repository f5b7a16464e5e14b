/* pickle.c -- an interpreter of pickles that can only build data.   SPDX-License-Identifier: MIT
 *
 * Protocol 2, with the operations that torch.save writes. Each value is checked where it is used: only rows of GLOBALS can be
 * called, keys are only set in dictionaries and items only appended to lists, memo and stack have no more entries than the
 * pickle has bytes, and values take at most a multiple of those, however often the memo repeats them. */
#include "checkpoint/pickle.h"

#include <stdlib.h>
#include <string.h>

typedef tutti__pickle_value value;

/* Of the arena, for a pickle of n bytes. An operation of one byte makes at most a value and its items, of 64 bytes each; what
 * torch.save writes needs a tenth of that. */
static size_t max_bytes(size_t n)
{
    return (n < ((size_t)4 << 20) ? 128 * n : (size_t)512 << 20) + 4096;
}

typedef struct machine {
    tutti__pickle *pickle;
    const uint8_t *p;
    size_t n, at;
    const char *path;
    tutti__pickle_items stack, memo; /* from malloc */
    bool done;
} machine;

/* ---- What a pickle may name ------------------------------------------------------------------------------- */

typedef tutti_status builder(machine *m, const value *arguments, value **result_p);

struct tutti__pickle_global {
    const char *module, *name;
    builder *build;                 /* NULL: cannot be called */
    const tutti__torch_dtype *type; /* of a storage */
};

static builder build_dict, build_tensor, build_parameter, build_from_type, build_tuple, build_other;

static const tutti__torch_dtype TYPES[] = {
    {"FloatStorage", "F32", 4, TUTTI_F32}, {"DoubleStorage", "F64", 8, TUTTI_F64},
    {"HalfStorage", "F16", 2, TUTTI_F16},  {"BFloat16Storage", "BF16", 2, TUTTI_BF16},
    {"CharStorage", "I8", 1, TUTTI_I8},    {"ByteStorage", "U8", 1, TUTTI_U8},
    {"IntStorage", "I32", 4, TUTTI_I32},   {"LongStorage", "I64", 8, TUTTI_I64},
    {"ShortStorage", "I16", 2, TUTTI_I16}, {"BoolStorage", "BOOL", 1, -1},
    {"ComplexFloatStorage", "C64", 8, -1}, {"ComplexDoubleStorage", "C128", 16, -1},
};

static const struct tutti__pickle_global GLOBALS[] = {
    {"collections", "OrderedDict", build_dict, NULL},
    {"collections", "Counter", build_other, NULL},
    {"torch._utils", "_rebuild_tensor_v2", build_tensor, NULL},
    {"torch._utils", "_rebuild_tensor", build_tensor, NULL},
    {"torch._utils", "_rebuild_parameter", build_parameter, NULL},
    {"torch._utils", "_rebuild_parameter_with_state", build_parameter, NULL},
    {"torch._tensor", "_rebuild_from_type_v2", build_from_type, NULL},
    {"torch.nn.parameter", "Parameter", NULL, NULL},
    {"torch", "Tensor", NULL, NULL},
    {"torch", "Size", build_tuple, NULL},
    {"torch", "device", build_other, NULL},
#define DTYPE(name)                                                                                \
    {                                                                                              \
        "torch", #name, NULL, NULL                                                                 \
    }
    DTYPE(float32),
    DTYPE(float64),
    DTYPE(float16),
    DTYPE(bfloat16),
    DTYPE(int8),
    DTYPE(uint8),
    DTYPE(int16),
    DTYPE(int32),
    DTYPE(int64),
    DTYPE(bool),
#undef DTYPE
#define STORAGE(i)                                                                                 \
    {                                                                                              \
        "torch", NULL, NULL, &TYPES[i]                                                             \
    }
    STORAGE(0),
    STORAGE(1),
    STORAGE(2),
    STORAGE(3),
    STORAGE(4),
    STORAGE(5),
    STORAGE(6),
    STORAGE(7),
    STORAGE(8),
    STORAGE(9),
    STORAGE(10),
    STORAGE(11),
#undef STORAGE
};

/* ---- Errors, reading, values ----------------------------------------------------------------------------- */

static tutti_status malformed(const machine *m, const char *what)
{
    return tutti__fail(TUTTI_ERR_FORMAT,
                       "%s is not a valid PyTorch file: data.pkl, at byte %zu: %s", m->path, m->at,
                       what);
}

static tutti_status take(machine *m, size_t n, const uint8_t **p_p)
{
    if (n > m->n - m->at)
        return malformed(m, "it ends too early");
    *p_p = m->p + m->at;
    m->at += n;
    return TUTTI_OK;
}

/* A little-endian number of up to 8 bytes. */
static tutti_status take_number(machine *m, size_t n, uint64_t *number_p)
{
    const uint8_t *p = NULL;

    TUTTI_TRY(take(m, n, &p));
    *number_p = 0;
    for (size_t i = n; i-- > 0;)
        *number_p = *number_p << 8 | p[i];
    return TUTTI_OK;
}

static tutti_status grow(machine *m, tutti__pickle_items *items, size_t room)
{
    value **more = realloc(items->p, room * sizeof(value *));

    if (!more)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the pickle of %s", m->path);
    memset(more + items->room, 0, (room - items->room) * sizeof(value *));
    items->p = more;
    items->room = room;
    return TUTTI_OK;
}

static tutti_status push(machine *m, value *v)
{
    if (m->stack.n == m->stack.room)
        TUTTI_TRY(grow(m, &m->stack, 2 * m->stack.room + 64));
    m->stack.p[m->stack.n++] = v;
    return TUTTI_OK;
}

static tutti_status make(machine *m, tutti__pickle_kind kind, value **v_p)
{
    *v_p = tutti__arena_alloc(&m->pickle->arena, sizeof **v_p);
    if (!*v_p)
        return TUTTI_ERR_MEMORY;
    **v_p = (value){.kind = kind};
    return TUTTI_OK;
}

static tutti_status push_new(machine *m, value like)
{
    value *v = NULL;

    TUTTI_TRY(make(m, like.kind, &v));
    *v = like;
    return push(m, v);
}

static tutti_status pop(machine *m, value **v_p)
{
    if (m->stack.n == 0 || m->stack.p[m->stack.n - 1]->kind == TUTTI__PICKLE_MARK)
        return malformed(m, "the stack is empty");
    *v_p = m->stack.p[--m->stack.n];
    return TUTTI_OK;
}

static tutti_status top(machine *m, value **v_p)
{
    TUTTI_TRY(pop(m, v_p));
    m->stack.n++;
    return TUTTI_OK;
}

/* Pops the last mark and all above it; the values remain valid until the next push. */
static tutti_status pop_to_mark(machine *m, value ***p_p, size_t *n_p)
{
    size_t i = m->stack.n;

    while (i > 0 && m->stack.p[i - 1]->kind != TUTTI__PICKLE_MARK)
        i--;
    if (i == 0)
        return malformed(m, "there is no mark");
    *p_p = m->stack.p + i;
    *n_p = m->stack.n - i;
    m->stack.n = i - 1;
    return TUTTI_OK;
}

/* Appends items, doubling the array in the arena: the old copies waste at most as much again. */
static tutti_status add_items(machine *m, tutti__pickle_items *items, value *const *p, size_t n)
{
    if (items->n + n > items->room) {
        size_t room = items->n + n > 2 * items->room ? items->n + n : 2 * items->room;
        value **more = tutti__arena_alloc(&m->pickle->arena, room * sizeof(value *));

        if (!more)
            return TUTTI_ERR_MEMORY;
        if (items->n > 0)
            memcpy(more, items->p, items->n * sizeof(value *));
        items->p = more;
        items->room = room;
    }
    if (n > 0)
        memcpy(items->p + items->n, p, n * sizeof(value *));
    items->n += n;
    return TUTTI_OK;
}

static tutti_status add_pairs(machine *m, value *dict, value *const *p, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        dict->holds_tensors |=
            p[i]->kind == TUTTI__PICKLE_TEXT && p[i + 1]->kind == TUTTI__PICKLE_TENSOR;
    return add_items(m, &dict->of.items, p, n);
}

static tutti_status push_tuple(machine *m, value *const *p, size_t n)
{
    value *tuple = NULL;

    TUTTI_TRY(make(m, TUTTI__PICKLE_TUPLE, &tuple));
    TUTTI_TRY(add_items(m, &tuple->of.items, p, n));
    return push(m, tuple);
}

/* ---- What may be called ----------------------------------------------------------------------------------- */

static value *argument(const value *arguments, size_t i, tutti__pickle_kind kind)
{
    value *v = i < arguments->of.items.n ? arguments->of.items.p[i] : NULL;

    return v && v->kind == kind ? v : NULL;
}

static tutti_status build_other(machine *m, const value *arguments, value **result_p)
{
    (void)arguments;
    return make(m, TUTTI__PICKLE_OTHER, result_p);
}

static tutti_status build_tuple(machine *m, const value *arguments, value **result_p)
{
    *result_p = argument(arguments, 0, TUTTI__PICKLE_TUPLE);
    return *result_p ? TUTTI_OK : malformed(m, "a torch.Size is not made of a tuple");
}

/* OrderedDict() or OrderedDict([(key, value), ...]) */
static tutti_status build_dict(machine *m, const value *arguments, value **result_p)
{
    const value *pairs = argument(arguments, 0, TUTTI__PICKLE_LIST);

    TUTTI_TRY(make(m, TUTTI__PICKLE_DICT, result_p));
    if (arguments->of.items.n > (pairs ? 1u : 0u))
        return malformed(m, "an OrderedDict is not made of a list");
    for (size_t i = 0; pairs && i < pairs->of.items.n; i++) {
        const value *pair = pairs->of.items.p[i];

        if ((pair->kind != TUTTI__PICKLE_TUPLE && pair->kind != TUTTI__PICKLE_LIST) ||
            pair->of.items.n != 2)
            return malformed(m, "an OrderedDict is not made of pairs");
        TUTTI_TRY(add_pairs(m, *result_p, pair->of.items.p, 2));
    }
    return TUTTI_OK;
}

static tutti_status copy_numbers(machine *m, const value *tuple, int64_t to[TUTTI_MAX_DIMS])
{
    for (size_t i = 0; i < tuple->of.items.n; i++) {
        const value *v = tuple->of.items.p[i];

        if (v->kind != TUTTI__PICKLE_INT || v->of.integer < 0)
            return malformed(m, "a tensor's size or stride is not a natural number");
        if (i < TUTTI_MAX_DIMS)
            to[i] = v->of.integer;
    }
    return TUTTI_OK;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, ...) */
static tutti_status build_tensor(machine *m, const value *arguments, value **result_p)
{
    const value *storage = argument(arguments, 0, TUTTI__PICKLE_STORAGE);
    const value *offset = argument(arguments, 1, TUTTI__PICKLE_INT);
    const value *size = argument(arguments, 2, TUTTI__PICKLE_TUPLE);
    const value *stride = argument(arguments, 3, TUTTI__PICKLE_TUPLE);
    tutti__pickle_tensor *t;

    if (!storage || !offset || !size || !stride || offset->of.integer < 0 ||
        size->of.items.n != stride->of.items.n || size->of.items.n > 64)
        return malformed(m, "a tensor is not made of a storage, an offset, sizes and strides");
    TUTTI_TRY(make(m, TUTTI__PICKLE_TENSOR, result_p));
    t = (*result_p)->of.tensor = tutti__arena_alloc(&m->pickle->arena, sizeof *t);
    if (!t)
        return TUTTI_ERR_MEMORY;
    *t = (tutti__pickle_tensor){.n_dims = (int)size->of.items.n};
    t->storage = storage;
    t->offset = offset->of.integer;
    TUTTI_TRY(copy_numbers(m, size, t->size));
    return copy_numbers(m, stride, t->stride);
}

/* _rebuild_parameter(tensor, requires_grad, hooks) */
static tutti_status build_parameter(machine *m, const value *arguments, value **result_p)
{
    *result_p = argument(arguments, 0, TUTTI__PICKLE_TENSOR);
    return *result_p ? TUTTI_OK : malformed(m, "a parameter is not made of a tensor");
}

/* _rebuild_from_type_v2(function, type, arguments, attributes): a tensor with attributes of Python's. */
static tutti_status build_from_type(machine *m, const value *arguments, value **result_p)
{
    const value *function = argument(arguments, 0, TUTTI__PICKLE_GLOBAL);
    const value *inner = argument(arguments, 2, TUTTI__PICKLE_TUPLE);
    builder *build = function ? function->of.global->build : NULL;

    if (!inner || (build != build_tensor && build != build_parameter))
        return malformed(m, "an object is not made of a tensor");
    return build(m, inner, result_p);
}

/* ---- Longer operations ---------------------------------------------------------------- */

static tutti_status take_line(machine *m, tutti__pickle_text *line)
{
    const uint8_t *end = memchr(m->p + m->at, '\n', m->n - m->at);

    if (!end)
        return malformed(m, "a name does not end");
    line->p = (const char *)m->p + m->at;
    line->n = (size_t)(end - (m->p + m->at));
    m->at += line->n + 1;
    return TUTTI_OK;
}

static bool is(tutti__pickle_text text, const char *expected)
{
    return text.n == strlen(expected) && memcmp(text.p, expected, text.n) == 0;
}

static tutti_status read_global(machine *m, size_t unused)
{
    tutti__pickle_text module = {0}, name = {0};

    (void)unused;
    TUTTI_TRY(take_line(m, &module));
    TUTTI_TRY(take_line(m, &name));
    for (size_t i = 0; i < TUTTI__COUNT_OF(GLOBALS); i++) {
        const struct tutti__pickle_global *g = &GLOBALS[i];

        if (is(module, g->module) && is(name, g->type ? g->type->storage : g->name))
            return push_new(m, (value){.kind = TUTTI__PICKLE_GLOBAL, .of.global = g});
    }
    return tutti__fail(
        TUTTI_ERR_UNSUPPORTED,
        "%s holds a %.*s.%.*s, which is not part of plain weights (nothing in it was executed); "
        "save only the weights in Python: torch.save(model.state_dict(), FILE)",
        m->path, (int)(module.n < 60 ? module.n : 60), module.p, (int)(name.n < 60 ? name.n : 60),
        name.p);
}

static tutti_status call(machine *m, size_t unused)
{
    value *arguments = NULL, *function = NULL, *result = NULL;

    (void)unused;
    TUTTI_TRY(pop(m, &arguments));
    TUTTI_TRY(pop(m, &function));
    if (function->kind != TUTTI__PICKLE_GLOBAL || !function->of.global->build ||
        arguments->kind != TUTTI__PICKLE_TUPLE)
        return malformed(m, "it calls something that is not a function");
    TUTTI_TRY(function->of.global->build(m, arguments, &result));
    return push(m, result);
}

/* BUILD sets attributes: a state_dict's _metadata, or attributes of a tensor. They are ignored. */
static tutti_status set_attributes(machine *m, size_t unused)
{
    value *attributes = NULL, *object = NULL;

    (void)unused;
    TUTTI_TRY(pop(m, &attributes));
    TUTTI_TRY(top(m, &object));
    if (object->kind != TUTTI__PICKLE_DICT && object->kind != TUTTI__PICKLE_TENSOR &&
        object->kind != TUTTI__PICKLE_OTHER)
        return malformed(m, "it gives attributes to what has none");
    return TUTTI_OK;
}

/* ('storage', torch.FloatStorage, key, location, count) */
static tutti_status read_storage(machine *m, size_t unused)
{
    value *id = NULL, *v = NULL;
    const value *word, *type, *key, *count;

    (void)unused;
    TUTTI_TRY(pop(m, &id));
    if (id->kind != TUTTI__PICKLE_TUPLE)
        return malformed(m, "a storage is not named by a tuple");
    word = argument(id, 0, TUTTI__PICKLE_TEXT);
    type = argument(id, 1, TUTTI__PICKLE_GLOBAL);
    key = argument(id, 2, TUTTI__PICKLE_TEXT);
    count = argument(id, 4, TUTTI__PICKLE_INT);
    if (!word || !is(word->of.text, "storage") || !type || !type->of.global->type || !key ||
        !count || count->of.integer < 0)
        return malformed(m, "a storage is not named by type, key and size");
    TUTTI_TRY(make(m, TUTTI__PICKLE_STORAGE, &v));
    v->of.storage.type = type->of.global->type;
    v->of.storage.key = key->of.text;
    v->of.storage.count = count->of.integer;
    return push(m, v);
}

enum { ONE = 0, MANY = 1, LIST = 2 };

/* LIST: appends values, else sets pairs in a dictionary; MANY: all above the mark, else one. */
static tutti_status add(machine *m, size_t how)
{
    const bool list = how & LIST;
    const size_t each = list ? 1 : 2;
    value **p = NULL, *object = NULL;
    size_t n = each;

    if (how & MANY)
        TUTTI_TRY(pop_to_mark(m, &p, &n));
    else {
        value *ignored;

        for (size_t i = 0; i < each; i++)
            TUTTI_TRY(pop(m, &ignored));
        p = m->stack.p + m->stack.n;
    }
    TUTTI_TRY(top(m, &object));
    if (object->kind == TUTTI__PICKLE_OTHER)
        return TUTTI_OK;
    if (object->kind != (list ? TUTTI__PICKLE_LIST : TUTTI__PICKLE_DICT) || n % each != 0)
        return malformed(m, list ? "it appends to something that is not a list"
                                 : "it sets a key of something that is not a dictionary");
    return list ? add_items(m, &object->of.items, p, n) : add_pairs(m, object, p, n);
}

static tutti_status read_text(machine *m, size_t length_bytes)
{
    value v = {.kind = TUTTI__PICKLE_TEXT};
    const uint8_t *p = NULL;
    uint64_t n = 0;

    TUTTI_TRY(take_number(m, length_bytes, &n));
    TUTTI_TRY(take(m, (size_t)n, &p));
    v.of.text = (tutti__pickle_text){(const char *)p, (size_t)n};
    return push_new(m, v);
}

/* LONG1: up to 8 bytes, with a sign. Longer ones (such as seeds) are not needed. */
static tutti_status read_long(machine *m, size_t bytes)
{
    value v = {.kind = TUTTI__PICKLE_INT};
    const uint8_t *p = NULL;
    uint64_t n = 0, bits = 0;

    TUTTI_TRY(take_number(m, bytes, &n));
    TUTTI_TRY(take(m, (size_t)n, &p));
    if (n > 8)
        v.kind = TUTTI__PICKLE_OTHER;
    for (size_t i = 0; i < n && n <= 8; i++)
        bits |= (uint64_t)p[i] << (8 * i);
    if (n > 0 && n < 8 && p[n - 1] & 0x80)
        bits |= ~UINT64_C(0) << (8 * n);
    if (n <= 8)
        v.of.integer = (int64_t)bits;
    return push_new(m, v);
}

static tutti_status read_integer(machine *m, size_t bytes)
{
    uint64_t number = 0;

    TUTTI_TRY(take_number(m, bytes, &number));
    return push_new(
        m, (value){.kind = TUTTI__PICKLE_INT,
                   .of.integer = bytes == 4 ? (int32_t)(uint32_t)number : (int64_t)number});
}

/* Big-endian, unlike the rest. */
static tutti_status read_real(machine *m, size_t n)
{
    value v = {.kind = TUTTI__PICKLE_REAL};
    const uint8_t *p = NULL;
    uint64_t bits = 0;

    TUTTI_TRY(take(m, n, &p));
    for (size_t i = 0; i < n; i++)
        bits = bits << 8 | p[i];
    memcpy(&v.of.real, &bits, sizeof bits);
    return push_new(m, v);
}

/* Memo numbers must increase by one, so that a malicious pickle cannot request more memory than its length allows. */
static tutti_status put(machine *m, size_t bytes)
{
    uint64_t i = 0;
    value *v = NULL;

    TUTTI_TRY(take_number(m, bytes, &i));
    TUTTI_TRY(top(m, &v));
    if (i >= m->n)
        return malformed(m, "the memo has no such place");
    if (i >= m->memo.room)
        TUTTI_TRY(grow(m, &m->memo, (size_t)i * 2 + 64));
    m->memo.p[i] = v;
    return TUTTI_OK;
}

static tutti_status get(machine *m, size_t bytes)
{
    uint64_t i = 0;

    TUTTI_TRY(take_number(m, bytes, &i));
    if (i >= m->memo.room || !m->memo.p[i])
        return malformed(m, "the memo is empty there");
    return push(m, m->memo.p[i]);
}

static tutti_status push_few(machine *m, size_t n)
{
    value *ignored;

    for (size_t i = 0; i < n; i++)
        TUTTI_TRY(pop(m, &ignored));
    return push_tuple(m, m->stack.p + m->stack.n, n);
}

static tutti_status push_marked(machine *m, size_t unused)
{
    value **p = NULL;
    size_t n = 0;

    (void)unused;
    TUTTI_TRY(pop_to_mark(m, &p, &n));
    return push_tuple(m, p, n);
}

static tutti_status check_protocol(machine *m, size_t n)
{
    uint64_t protocol = 0;
    char text[160];

    TUTTI_TRY(take_number(m, n, &protocol));
    if (protocol == 2)
        return TUTTI_OK;
    snprintf(text, sizeof text,
             "it is of protocol %llu, expected 2; save it again without pickle_protocol",
             (unsigned long long)protocol);
    return malformed(m, text);
}

static tutti_status unknown(machine *m, int op)
{
    char text[80];

    snprintf(text, sizeof text, "operation 0x%02x is not one that saved weights need", op);
    return malformed(m, text);
}

/* The stack must contain exactly one value. */
static tutti_status stop(machine *m, size_t unused)
{
    (void)unused;
    TUTTI_TRY(pop(m, &m->pickle->root));
    m->done = true;
    return m->stack.n == 0 ? TUTTI_OK : malformed(m, "values are left over");
}

typedef tutti_status operation(machine *m, size_t n);

enum { NONE, MARK, TRUE, FALSE, EMPTY };

static tutti_status push_constant(machine *m, size_t n)
{
    static value constants[] = {
        [NONE] = {.kind = TUTTI__PICKLE_NONE},
        [MARK] = {.kind = TUTTI__PICKLE_MARK},
        [TRUE] = {.kind = TUTTI__PICKLE_BOOL, .of.integer = 1},
        [FALSE] = {.kind = TUTTI__PICKLE_BOOL},
        [EMPTY] = {.kind = TUTTI__PICKLE_TUPLE},
    };

    return push(m, &constants[n]);
}

static tutti_status push_kind(machine *m, size_t n)
{
    return push_new(m, (value){.kind = (tutti__pickle_kind)n});
}

/* By their code; 0x81 is NEWOBJ: a class and its arguments. */
static const struct {
    operation *run;
    size_t n;
} OPERATIONS[256] = {
    [0x80] = {check_protocol, 1},
    ['('] = {push_constant, MARK},
    ['N'] = {push_constant, NONE},
    [0x88] = {push_constant, TRUE},
    [0x89] = {push_constant, FALSE},
    [')'] = {push_constant, EMPTY},
    ['}'] = {push_kind, TUTTI__PICKLE_DICT},
    [']'] = {push_kind, TUTTI__PICKLE_LIST},
    [0x8f] = {push_kind, TUTTI__PICKLE_OTHER}, /* a set */
    ['X'] = {read_text, 4},
    ['U'] = {read_text, 1},
    ['J'] = {read_integer, 4},
    ['K'] = {read_integer, 1},
    ['M'] = {read_integer, 2},
    [0x8a] = {read_long, 1},
    ['G'] = {read_real, 8},
    ['c'] = {read_global, 0},
    ['Q'] = {read_storage, 0},
    ['R'] = {call, 0},
    [0x81] = {call, 0},
    ['b'] = {set_attributes, 0},
    ['t'] = {push_marked, 0},
    [0x85] = {push_few, 1},
    [0x86] = {push_few, 2},
    [0x87] = {push_few, 3},
    ['a'] = {add, LIST | ONE},
    ['e'] = {add, LIST | MANY},
    ['s'] = {add, ONE},
    ['u'] = {add, MANY},
    ['q'] = {put, 1},
    ['r'] = {put, 4},
    ['h'] = {get, 1},
    ['j'] = {get, 4},
    ['.'] = {stop, 0},
};

static tutti_status step(machine *m)
{
    const uint8_t *op = NULL;

    TUTTI_TRY(take(m, 1, &op));
    return OPERATIONS[*op].run ? OPERATIONS[*op].run(m, OPERATIONS[*op].n) : unknown(m, *op);
}

tutti_status tutti__pickle_read(tutti__pickle *pickle, const uint8_t *p, size_t n, const char *path)
{
    machine m = {.pickle = pickle, .p = p, .n = n, .path = path};
    tutti_status status = TUTTI_OK;

    *pickle = (tutti__pickle){.root = NULL};
    while (status == TUTTI_OK && !m.done) {
        status = step(&m);
        if (status == TUTTI_OK && pickle->arena.used > max_bytes(n))
            status = malformed(&m, "what it builds is out of proportion to its length");
    }
    free(m.stack.p);
    free(m.memo.p);
    return status;
}

void tutti__pickle_free(tutti__pickle *pickle)
{
    tutti__arena_destroy(&pickle->arena);
    pickle->root = NULL;
}

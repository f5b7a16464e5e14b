/* digests.c -- a rank's record of a step.   SPDX-License-Identifier: MIT
 *
 * auto, 2%: the distance of recorded steps is a power of two, which doubles when the record would take more than its share of the time;
 * with auto also after each DENSE of them. So records of ranks and of runs have steps in common, whatever their speed. Measured after
 * the first one, which costs more. */
#include "train/session/digests.h"

#include "checkpoint/json_text.h"
#include "data/sampler.h"
#include "optim/optim.h"
#include "tensor/kernel.h"
#include "tensor/tensor_fingerprint.h"
#include "train/output/digest_file.h"

#include <stdlib.h>
#include <string.h>

enum { DENSE = 32 };

/* A module has returned y. */
typedef struct output {
    const tutti_tensor *y;
    uint64_t serial; /* of its step: memory of tensors is used again */
    const tutti_module *module;
    const char *with; /* as in tutti__step_observer */
    int64_t micro_batch;
    tutti__fingerprint forward;
} output;

typedef struct tutti__digests {
    const tutti__session *s;
    tutti__step_observer observer;
    int rank, size;          /* of the last header; -1: there is none */
    bool on;                 /* the current step is recorded */
    bool ended;              /* by a failure, which was reported */
    int shard;               /* of the current line; -1: none */
    int64_t batches, losses; /* micro-batches of the current line so far; of a pipeline, losses */
    uint64_t samples[2];
    tutti__digest_text entries; /* of the current line */
    tutti__digest_text lines;   /* of the step, before it */
    /* before those: of the process, and as another rank; written after a step, since a run may fail in its first */
    tutti__digest_text first;
    output *outputs; /* of the step */
    size_t n_outputs, capacity;
    /* auto, 2%: the distance of recorded steps, how many were recorded with it, and times: the end of the first record, what records took
     * since then, and what the current and the last one took */
    uint64_t every, dense, since_ns, taken_ns, taking_ns, last_ns;
} tutti__digests;

/* ---- Lines and entries ---- */

static void stop_recording(tutti__digests *d)
{
    d->on = false;
    d->s->cx->observer = NULL;
}

/* The record ends with a failure. */
static void check(tutti__digests *d, tutti_status status)
{
    if (status == TUTTI_OK || d->ended)
        return;
    tutti_log(TUTTI_LOG_WARN, "train",
              "trace_digests: %s; training continues without the rest of the record",
              tutti_last_error());
    d->ended = true;
    stop_recording(d);
}

static void check_made(tutti__digests *d, bool made)
{
    if (!made)
        check(d, tutti__fail(TUTTI_ERR_MEMORY, "no memory for digests"));
}

static void add_entry(tutti__digests *d, const char *kind, const char *name,
                      const tutti__fingerprint *f, int64_t micro_batch)
{
    const bool several = d->s->config->grad_accumulation > 1;

    tutti__digest_entry(&d->entries, kind, name, f, several ? micro_batch : -1);
}

static void begin_line(tutti__digests *d, int shard)
{
    d->shard = shard;
    d->batches = d->losses = 0;
    d->samples[0] = d->samples[1] = 0;
}

/* [RATE, NAME, ...] of the parameters whose learning rate is not the optimizer's. NULL: out of memory. */
static json_t *own_rates(const tutti__digests *d)
{
    const struct tutti_root *root = d->s->module->root;
    json_t *lists = json_array();
    int failed = 0;

    for (size_t i = 0; i < root->parameters.n; i++) {
        const double rate = tutti__optim_rate(d->s->optim, i);
        const tutti_tensor *t = root->parameters.p[i]->tensor;
        json_t *list = NULL;

        if (rate == tutti__optim_decimal(tutti_optim_lr(d->s->optim)) ||
            !t->parameter->requires_grad)
            continue;
        for (size_t k = 0; k < json_array_size(lists) && !list; k++)
            if (json_real_value(json_array_get(json_array_get(lists, k), 0)) == rate)
                list = json_array_get(lists, k);
        if (!list)
            failed |= json_array_append_new(lists, list = json_pack("[f]", rate));
        failed |= json_array_append_new(list, json_string(t->name));
    }
    return tutti__json_complete(lists, failed);
}

/* Ends the current line, if it has any entries: of `step`. */
static void end_line(tutti__digests *d, uint64_t step, bool updated)
{
    json_t *line;
    char digits[33];
    int failed = 0;

    if (d->entries.n > 0) {
        line = json_pack("{s:I,s:i}", "step", (json_int_t)step, "rank", d->s->rank);
        tutti__samples_digest_text(d->samples, digits);
        if (d->shard >= 0)
            failed |= json_object_set_new(line, "shard", json_integer(d->shard));
        if (updated) {
            failed |= json_object_set_new(line, "lr", json_real(tutti_optim_lr(d->s->optim)));
            failed |= json_object_set_new(line, "lrs", own_rates(d));
        }
        if (d->batches > 0)
            failed |= json_object_set_new(line, "samples", json_string(digits));
        tutti__digest_line(&d->lines, tutti__json_complete(line, failed), &d->entries);
        d->entries.n = 0;
    }
    begin_line(d, -1);
}

/* Forgets the step's last try. */
static void clear(tutti__digests *d)
{
    d->entries.n = d->lines.n = 0;
    d->n_outputs = 0;
    begin_line(d, -1);
}

/* With auto a host on which the run has no folder, since it is another's, gets none for the record. */
static bool has_place(const tutti__digests *d)
{
    return d->s->config->trace_digests != TUTTI__STEPS_AUTO ||
           tutti__is_folder(d->s->config->run_dir);
}

static void add_lines(tutti__digests *d)
{
    tutti__digest_text_add(&d->first, d->lines.p, d->lines.n);
    d->lines.n = 0;
    check_made(d, !d->first.failed && !d->lines.failed && !d->entries.failed);
}

static void write_lines(tutti__digests *d)
{
    add_lines(d);
    if (d->first.n > 0 && !has_place(d)) {
        d->ended = true;
        stop_recording(d);
    }
    if (!d->ended && d->first.n > 0)
        check(d, tutti__digest_file_append(d->s->config->run_dir, d->s->rank, &d->first));
    d->first.n = 0;
    clear(d);
}

/* ---- What a step makes ---- */

/* Counts time since begin_ns that the record took. */
static void took(tutti__digests *d, uint64_t begin_ns)
{
    d->taking_ns += tutti__now_ns() - begin_ns;
}

/* The module's name, and what its layer has computed besides, as in "b1+relu". */
static void name_output(const tutti_module *m, const char *with, char name[160])
{
    snprintf(name, 160, "%s%s%s", m->parent ? tutti__module_path(m) : "", with ? "+" : "",
             with ? with : "");
}

/* Stages compute several micro-batches at a time, each of them in order. */
static int64_t micro_batch_of(const tutti__digests *d, const tutti_module *m)
{
    int64_t n = 0;

    if (!d->s->pipeline)
        return d->batches - 1;
    for (size_t i = 0; i < d->n_outputs; i++)
        n += d->outputs[i].module == m;
    return n;
}

static output *new_output(tutti__digests *d)
{
    const size_t capacity = d->capacity ? 2 * d->capacity : 256;
    output *p;

    if (d->n_outputs == d->capacity) {
        p = realloc(d->outputs, capacity * sizeof *p);
        check_made(d, p);
        if (!p)
            return NULL;
        d->outputs = p;
        d->capacity = capacity;
    }
    return &d->outputs[d->n_outputs++];
}

/* The last module that has returned y; NULL: none. */
static const output *find(const tutti__digests *d, const tutti_tensor *y)
{
    for (size_t i = d->n_outputs; i-- > 0;)
        if (d->outputs[i].y == y && d->outputs[i].serial == y->serial)
            return &d->outputs[i];
    return NULL;
}

/* A container returns what the last of its modules has. */
static void on_forward(void *self, const tutti_module *m, const char *with, tutti_tensor *y)
{
    tutti__digests *d = self;
    const uint64_t begin_ns = tutti__now_ns();
    const int64_t micro_batch = micro_batch_of(d, m);
    const output *same = find(d, y);
    tutti__fingerprint f;
    bool known = same;
    char name[160];
    output *o;

    if (same)
        f = same->forward;
    else
        check(d, tutti__tensor_fingerprint(&f, y, &known));
    if (d->ended || !known || !(o = new_output(d)))
        return;
    *o = (output){y, y->serial, m, with, micro_batch, f};
    name_output(m, with, name);
    add_entry(d, "forward", name, &f, micro_batch);
    took(d, begin_ns);
}

static void on_backward(void *self, tutti_tensor *y)
{
    const uint64_t begin_ns = tutti__now_ns();
    tutti__digests *d = self;
    tutti__fingerprint f;
    bool known = false;
    char name[160];

    if (!find(d, y))
        return;
    check(d, tutti__tensor_fingerprint(&f, y->grad, &known));
    for (size_t i = d->n_outputs; i-- > 0 && known && !d->ended;) {
        const output *o = &d->outputs[i];

        name_output(o->module, o->with, name);
        if (o->y == y && o->serial == y->serial)
            add_entry(d, "backward", name, &f, o->micro_batch);
    }
    took(d, begin_ns);
}

/* ---- Memory of parameters ---- */

/* n elements, the first of which is element `first` of a parameter or its state of n_all; fewer have their place as a name. */
typedef struct piece {
    tutti_stream *stream;
    const void *p;
    size_t n, first, n_all;
    tutti_dtype dtype;
} piece;

static void add_piece(tutti__digests *d, const char *kind, const char *name, const piece *of)
{
    tutti__fingerprint f;
    char text[256];

    if (d->ended)
        return;
    check(d, tutti__fingerprint_of(&f, of->stream, of->p, of->n, of->dtype, of->first));
    if (of->n == of->n_all)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "%s[%zu:%zu]", name, of->first, of->first + of->n);
    if (!d->ended)
        add_entry(d, kind, text, &f, -1);
}

/* Flat memory of all parameters, or (packed) of the ranges of a sharding alone. */
typedef struct flat {
    tutti_stream *stream;
    const float *p;
    const tutti__sharding *sharding; /* NULL: all of it is here */
    bool packed, in_host;            /* in_host: ranges may have theirs in host memory */
} flat;

static void add_range(tutti__digests *d, const char *kind, const char *name, const piece *whole,
                      const flat *m, const tutti__range *range, size_t begin)
{
    piece of = {.stream = m->stream, .n_all = whole->n_all, .dtype = TUTTI_F32};
    size_t low, high;

    if (!tutti__range_meets(range, whole->first, whole->first + whole->n_all, &low, &high) ||
        range->copy || (m->packed && range->bare))
        return;
    of.first = low - whole->first;
    of.n = high - low;
    of.p = m->packed ? m->p + begin + (low - range->begin) : m->p + low;
    if (m->in_host && range->host) {
        of.stream = &tutti__cpu_stream;
        of.p = range->host + (low - range->begin);
    }
    add_piece(d, kind, name, &of);
}

/* What this rank has of parameter t. */
static void add_flat(tutti__digests *d, const char *kind, const char *name, const tutti_tensor *t,
                     const flat *m)
{
    const struct tutti_root *root = d->s->module->root;
    const size_t at = root->offsets[t->parameter->index];
    const piece whole = {.first = at, .n_all = (size_t)tutti_shape_count(t->shape)};
    const tutti__range all = {.begin = at, .end = at + whole.n_all};
    size_t begin = 0;

    if (!m->sharding)
        add_range(d, kind, name, &whole, m, &all, at);
    for (size_t i = 0; m->sharding && i < m->sharding->n; i++) {
        const tutti__range *range = &m->sharding->ranges[i];

        add_range(d, kind, name, &whole, m, range, begin);
        begin += tutti__range_state(range);
    }
}

static void on_gradient(void *self, tutti_tensor *t)
{
    const size_t n = (size_t)tutti_shape_count(t->shape);
    const uint64_t begin_ns = tutti__now_ns();
    tutti__digests *d = self;

    add_piece(d, "gradient", t->name,
              &(piece){.stream = t->cx->stream,
                       .p = t->parameter->grad,
                       .n = n,
                       .n_all = n,
                       .dtype = TUTTI_F32});
    took(d, begin_ns);
}

void tutti__digests_gradients(const tutti__session *s, const char *kind)
{
    tutti__digests *d = s->digests;
    const struct tutti_root *root = s->module->root;
    const tutti__sharding *sharding = root->sharding;
    const flat gradients = {.stream = s->cx->stream,
                            .p = root->flat_gradients,
                            .sharding = sharding && !sharding->whole_gradients ? sharding : NULL};
    uint64_t begin_ns;

    if (!d || !d->on)
        return;
    begin_ns = tutti__now_ns();
    if (d->shard >= 0)
        end_line(d, s->step.number, false);
    if (gradients.sharding)
        check(d, sharding->prepare(sharding->self));
    for (size_t i = 0; i < root->parameters.n && !d->ended; i++) {
        const tutti_tensor *t = root->parameters.p[i]->tensor;

        if (tutti__has_gradient(t->parameter))
            add_flat(d, kind, t->name, t, &gradients);
    }
    took(d, begin_ns);
}

/* Of parameters that are not laid out yet, too. */
static void add_parameter(tutti__digests *d, const char *kind, tutti_tensor *t)
{
    const struct tutti_root *root = d->s->module->root;
    const size_t n = (size_t)tutti_shape_count(t->shape);
    const flat shares = {.stream = t->cx->stream,
                         .p = root->flat_parameters,
                         .sharding = root->sharding,
                         .in_host = true};

    if (t->parameter && root->reserved && root->sharding) {
        add_flat(d, kind, t->name, t, &shares);
        return;
    }
    check(d, tutti__tensor_need(t, true, TUTTI_F32));
    add_piece(
        d, kind, t->name,
        &(piece){.stream = t->cx->stream, .p = t->data, .n = n, .n_all = n, .dtype = t->dtype});
}

static void add_buffers(tutti__digests *d, const char *kind)
{
    const tutti_module *m = d->s->module;

    for (size_t i = 0; i < tutti_module_n_buffers(m); i++)
        add_parameter(d, kind, tutti_module_buffer(m, i));
}

static void add_state(tutti__digests *d, const tutti_tensor *t)
{
    const tutti_optim *optim = d->s->optim;
    char name[256];

    for (size_t k = 0; tutti_optim_state_name(optim, k); k++) {
        if (!optim->state[k])
            continue;
        snprintf(name, sizeof name, "%s.%s", t->name, tutti_optim_state_name(optim, k));
        add_flat(d, "state", name, t,
                 &(flat){.stream = tutti__optim_stream(optim),
                         .p = optim->state[k],
                         .sharding = optim->sharding,
                         .packed = optim->sharding != NULL});
    }
}

/* ---- A step ---- */

/* This process's first line, and the first as another rank. */
static void add_header(tutti__digests *d)
{
    const tutti__session *s = d->s;
    const tutti__kernels *kernels = s->cx->kernels;
    char isa[128] = "";
    json_t *header;

    if (kernels->bits)
        kernels->bits(s->cx, isa, sizeof isa);
    header = json_pack("{s:i,s:s,s:I,s:i,s:i,s:s,s:s,s:s}", "format", 2, "version", TUTTI_VERSION,
                       "step", (json_int_t)s->step.number - 1, "rank", s->rank, "world_size",
                       s->size, "isa", isa, "kernels", kernels->name, "framework", "tutti");
    tutti__digest_line(&d->lines, header, NULL);
}

static void add_initial(tutti__digests *d)
{
    const struct tutti_root *root = d->s->module->root;

    for (size_t i = 0; i < root->parameters.n; i++)
        add_parameter(d, "initial", root->parameters.p[i]->tensor);
    add_buffers(d, "initial");
    end_line(d, d->s->step.number - 1, false);
}

/* Steps 1, 2, 4, 8, ... until the distance is that of the key. */
static bool is_due_by_key(uint64_t step, uint64_t every)
{
    return step % every == 0 || (step < every && (step & (step - 1)) == 0);
}

/* With at most this share of the time. thin: ever more seldom, so that the files grow with the logarithm of the steps. */
static bool is_due_by_time(tutti__digests *d, uint64_t step, double share, bool thin)
{
    double passed;

    if (d->since_ns == 0) /* the process's first */
        return true;
    if (step % d->every != 0) /* without a look at the clock */
        return false;
    passed = (double)(tutti__now_ns() - d->since_ns);
    while (step % d->every == 0 &&
           ((thin && d->dense == DENSE) || (double)(d->taken_ns + d->last_ns) > share * passed)) {
        d->every *= 2;
        d->dense = 0;
    }
    return step % d->every == 0;
}

static bool is_due(tutti__digests *d)
{
    const uint64_t step = d->s->step.number;

    switch (d->s->config->trace_digests) {
    case TUTTI__STEPS_AUTO:
        return is_due_by_time(d, step, 0.005, true);
    case TUTTI__STEPS_WORD:
        return is_due_by_time(d, step, 0.02, false);
    default:
        return is_due_by_key(step, (uint64_t)d->s->config->trace_digests);
    }
}

/* Counts the time of the record that ends. */
static void count_time(tutti__digests *d)
{
    if (d->since_ns == 0)
        d->since_ns = tutti__now_ns();
    else
        d->taken_ns += d->taking_ns;
    d->last_ns = d->taking_ns;
    d->dense++;
    tutti_log(TUTTI_LOG_DEBUG, "train", "digests of step %llu took %.3f ms",
              (unsigned long long)d->s->step.number, (double)d->taking_ns * 1e-6);
}

void tutti__digests_begin(tutti__session *s)
{
    tutti__digests *d = s->digests;

    if (!d || d->ended)
        return;
    clear(d);
    stop_recording(d);
    if (d->rank != s->rank || d->size != s->size) {
        add_header(d);
        if (d->rank < 0)
            add_initial(d);
        d->rank = s->rank;
        d->size = s->size;
        add_lines(d);
    }
    d->on = !d->ended && is_due(d);
    d->taking_ns = 0;
    if (d->on)
        s->cx->observer = &d->observer;
}

void tutti__digests_shard(const tutti__session *s)
{
    tutti__digests *d = s->digests;

    if (!d || !d->on)
        return;
    end_line(d, s->step.number, false);
    begin_line(d, s->step.shard);
}

void tutti__digests_batch(const tutti__session *s, const tutti_batch *batch)
{
    tutti__digests *d = s->digests;
    uint64_t begin_ns;

    if (!d || !d->on)
        return;
    begin_ns = tutti__now_ns();
    d->batches++;
    tutti__samples_digest_add(d->samples, s->step.number, batch->samples, batch->n);
    for (size_t i = 0; i < batch->n_arrays && !d->ended; i++) {
        const tutti_array *a = &batch->arrays[i].array;
        tutti__fingerprint f;

        check(d, tutti__fingerprint_of(&f, &tutti__cpu_stream, a->p,
                                       (size_t)tutti_shape_count(a->shape), a->dtype, 0));
        if (!d->ended)
            add_entry(d, "input", batch->arrays[i].name, &f, d->batches - 1);
    }
    took(d, begin_ns);
}

void tutti__digests_loss(const tutti__session *s, tutti_tensor *loss)
{
    tutti__digests *d = s->digests;
    tutti__fingerprint f;
    bool known = false;

    if (!d || !d->on || !loss || loss->poison != TUTTI_OK)
        return;
    check(d, tutti__tensor_fingerprint(&f, loss, &known));
    if (!d->ended && known)
        add_entry(d, "loss", "", &f, s->pipeline ? d->losses++ : d->batches - 1);
}

static void add_update(tutti__digests *d)
{
    const struct tutti_root *root = d->s->module->root;

    for (size_t i = 0; i < root->parameters.n && !d->ended; i++)
        if (root->parameters.p[i]->parameter.requires_grad)
            add_state(d, root->parameters.p[i]->tensor);
    for (size_t i = 0; i < root->parameters.n && !d->ended; i++)
        add_parameter(d, "parameter", root->parameters.p[i]->tensor);
    add_buffers(d, "buffer");
    end_line(d, d->s->step.number, true);
}

void tutti__digests_end(const tutti__session *s)
{
    tutti__digests *d = s->digests;
    const uint64_t begin_ns = d && d->on ? tutti__now_ns() : 0;

    if (!d)
        return;
    if (d->on)
        add_update(d);
    write_lines(d);
    if (!d->on)
        return;
    stop_recording(d);
    took(d, begin_ns);
    count_time(d);
}

/* ---- The record ---- */

tutti_status tutti__digests_open(tutti__session *s)
{
    tutti__digests *d;

    if (s->config->trace_digests == 0 || s->config->lr_find)
        return TUTTI_OK;
    d = s->digests = tutti__alloc(sizeof *d);
    if (!d)
        return TUTTI_ERR_MEMORY;
    d->s = s;
    d->rank = d->shard = -1;
    d->every = 1;
    d->observer = (tutti__step_observer){
        .self = d, .forward = on_forward, .backward = on_backward, .gradient = on_gradient};
    return TUTTI_OK;
}

void tutti__digests_close(tutti__session *s)
{
    tutti__digests *d = s->digests;

    if (!d)
        return;
    /* It failed: what it has computed may tell why. A run that fails in its first step leaves nothing, nor does
     * a worker of shards, whose step the others repeat. */
    if (d->on && !d->ended && s->shards == 0 && d->first.n == 0 &&
        (d->entries.n > 0 || d->lines.n > 0)) {
        end_line(d, s->step.number, false);
        write_lines(d);
    }
    if (s->cx)
        s->cx->observer = NULL;
    free(d->entries.p);
    free(d->lines.p);
    free(d->first.p);
    free(d->outputs);
    free(d);
    s->digests = NULL;
}

/* tuner.c -- which algorithm runs a call.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/tuner.h"

#include <ctype.h>
#include <stdlib.h>

enum { LINE = 256, FILE_BYTES = 1 << 20 };

/* ---- Names --------------------------------------------------------------------------------------------------------- */

static tutti__op_kind op_of(const char *name)
{
    for (size_t i = 0; i < tutti__coll_n_algorithms; i++)
        if (strcmp(tutti__op_name(tutti__coll_algorithms[i]->op), name) == 0)
            return tutti__coll_algorithms[i]->op;
    return TUTTI__N_OPS;
}

/* "direct, ring" of an operation; of TUTTI__N_OPS the operations. */
static void list_names(tutti__op_kind op, char *text, size_t capacity)
{
    size_t used = 0;

    *text = '\0';
    for (size_t i = 0; i < tutti__coll_n_algorithms && used < capacity; i++) {
        const tutti__coll_algorithm *a = tutti__coll_algorithms[i];
        bool first = i == 0 || tutti__coll_algorithms[i - 1]->op != a->op;

        if (op == TUTTI__N_OPS ? !first : a->op != op)
            continue;
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", used ? ", " : "",
                                 op == TUTTI__N_OPS ? tutti__op_name(a->op) : a->name);
    }
}

/* `where`: the variable, or the file's line. */
static tutti_status find(const char *where, const char *op, const char *name,
                         const tutti__coll_algorithm **algorithm_p)
{
    char names[512];
    tutti__op_kind kind = op_of(op);

    list_names(kind, names, sizeof names);
    if (kind == TUTTI__N_OPS)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: \"%s\" is no operation with algorithms; these are: %s", where, op,
                           names);
    *algorithm_p = tutti__coll_find(kind, name);
    return *algorithm_p ? TUTTI_OK
                        : tutti__fail(TUTTI_ERR_ARG, "%s: %s has no algorithm \"%s\", but: %s",
                                      where, op, name, names);
}

tutti_status tutti__tuner_force(tutti__tuner *tuner, tutti__op_kind op, const char *name)
{
    const tutti__coll_algorithm *algorithm = NULL;

    if (name)
        TUTTI_TRY(find("algorithm", tutti__op_name(op), name, &algorithm));
    tuner->forced[op] = algorithm;
    return TUTTI_OK;
}

/* all_reduce:ring,broadcast:binomial */
static tutti_status read_forced(tutti__tuner *tuner, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, ",");
        char item[LINE], *colon;
        const tutti__coll_algorithm *algorithm;

        if (n >= sizeof item)
            return tutti__fail(TUTTI_ERR_ARG, "TUTTI_ALGORITHM: \"%.40s...\" is too long", text);
        memcpy(item, text, n);
        item[n] = '\0';
        text += n + (text[n] == ',');
        colon = strchr(item, ':');
        if (!colon)
            return tutti__fail(TUTTI_ERR_ARG,
                               "TUTTI_ALGORITHM: \"%s\", expected OPERATION:ALGORITHM, as in "
                               "all_reduce:ring,broadcast:binomial",
                               item);
        *colon = '\0';
        TUTTI_TRY(find("TUTTI_ALGORITHM", item, colon + 1, &algorithm));
        tuner->forced[algorithm->op] = algorithm;
    }
    return TUTTI_OK;
}

/* ---- The file ------------------------------------------------------------------------------------------------------ */

static tutti_status add_rule(tutti__tuner *tuner, const tutti__tuner_rule *rule)
{
    tutti__tuner_rule *rules = realloc(tuner->rules, (tuner->n_rules + 1) * sizeof *rules);

    if (!rules)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for a tuner file of %zu lines",
                           tuner->n_rules);
    tuner->rules = rules;
    rules[tuner->n_rules++] = *rule;
    return TUTTI_OK;
}

enum { LINE_VALUES = 5 };

static bool is_cost(const unsigned long long v[4])
{
    return v[0] < 1000000000000 && v[1] < 1000000000000 && v[2] < 1000000000 && v[3] < 1000000000;
}

static void set_level(tutti__coll_links *links, int level, const unsigned long long v[4])
{
    links->level[level] = (tutti__coll_link){v[0], v[1], v[2]};
    links->reduce_ps = v[3];
}

/* "links 20000 3000 400 100" for all levels, "links 1 20000 3000 400 100" for one. */
static bool read_link(tutti__coll_links *links, const char *line)
{
    unsigned long long v[LINE_VALUES];
    int n = sscanf(line, "links %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4]);

    if (n == LINE_VALUES && v[0] <= TUTTI__COLL_LEVELS && is_cost(v + 1)) {
        set_level(links, (int)v[0], v + 1);
        return true;
    }
    for (int i = 0; i <= TUTTI__COLL_LEVELS && n == LINE_VALUES - 1 && is_cost(v); i++)
        set_level(links, i, v);
    return n == LINE_VALUES - 1 && is_cost(v);
}

/* "all_reduce 16 4096 ring", "links 20000 3000 400 100", a comment, or nothing. */
static tutti_status read_line(tutti__tuner *tuner, const char *where, const char *line)
{
    char op[64], name[64];
    unsigned long long bytes;
    int ranks;
    tutti__tuner_rule rule;

    while (isspace((unsigned char)*line))
        line++;
    if (!*line || *line == '#')
        return TUTTI_OK;
    if (read_link(&tuner->links, line)) {
        tuner->has_links = tuner->given = true;
        return TUTTI_OK;
    }
    if (sscanf(line, "%63s %d %llu %63s", op, &ranks, &bytes, name) != 4 || ranks < 2)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: \"%.60s\", expected OPERATION RANKS BYTES ALGORITHM, or links "
                           "[LEVEL] LATENCY_NS MESSAGE_NS BYTE_PS REDUCE_PS",
                           where, line);
    rule = (tutti__tuner_rule){.ranks = ranks, .bytes = bytes};
    TUTTI_TRY(find(where, op, name, &rule.algorithm));
    return add_rule(tuner, &rule);
}

/* Overwrites the text. */
static tutti_status read_lines(tutti__tuner *tuner, const char *path, char *text)
{
    tutti_status status = TUTTI_OK;
    int number = 0;

    while (status == TUTTI_OK && *text) {
        char *line = text, where[LINE];

        text += strcspn(text, "\n");
        if (*text)
            *text++ = '\0';
        snprintf(where, sizeof where, "%.200s:%d", path, ++number);
        status = read_line(tuner, where, line);
    }
    return status;
}

static tutti_status read_file(tutti__tuner *tuner, const char *path)
{
    tutti_status status;
    char *text;

    TUTTI_TRY(tutti__read_text("TUTTI_TUNER_FILE: ", path, "", FILE_BYTES, &text));
    tuner->digest = tuner->digest * 31 + tutti__hash64(text, strlen(text));
    status = read_lines(tuner, path, text);
    free(text);
    return status;
}

tutti_status tutti__tuner_open(tutti__tuner *tuner, size_t chunk_bytes)
{
    const char *forced = tutti__env_text(TUTTI__ENV_ALGORITHM),
               *path = tutti__env_text(TUTTI__ENV_TUNER_FILE);
    tutti_status status;

    *tuner = (tutti__tuner){.chunk_bytes = chunk_bytes,
                            .digest = *forced ? tutti__hash64(forced, strlen(forced)) : 0};
    status = read_forced(tuner, forced);
    if (status == TUTTI_OK && *path)
        status = read_file(tuner, path);
    if (status != TUTTI_OK)
        tutti__tuner_close(tuner);
    return status;
}

void tutti__tuner_close(tutti__tuner *tuner)
{
    free(tuner->rules);
    tuner->rules = NULL;
    tuner->n_rules = 0;
}

tutti_status tutti__tuner_read_links(const char *path, char *text, tutti__coll_links *links)
{
    tutti__tuner tuner = {0};
    tutti_status status = read_lines(&tuner, path, text);

    if (status == TUTTI_OK && !tuner.has_links)
        status = tutti__fail(TUTTI_ERR_NOT_FOUND,
                             "%s has no line \"links ...\", as tutti bench --tune writes it", path);
    *links = tuner.links;
    tutti__tuner_close(&tuner);
    return status;
}

tutti_status tutti__tuner_digest(uint64_t *digest_p)
{
    tutti__tuner tuner;

    TUTTI_TRY(tutti__tuner_open(&tuner, 1)); /* refuses what is wrong */
    *digest_p = tuner.digest;
    tutti__tuner_close(&tuner);
    return TUTTI_OK;
}

/* ---- Choosing ------------------------------------------------------------------------------------------------------ */

tutti__coll tutti__coll_of(const tutti__signature *signature, int size)
{
    const tutti__op_traits *t = &tutti__op_table[signature->op];
    tutti__coll call = {.op = (tutti__op_kind)signature->op,
                        .dtype = (tutti_dtype)signature->dtype,
                        .redop = (tutti_redop)signature->redop,
                        .size = size,
                        .root = t->from_root || t->to_root ? (int)signature->root : 0,
                        .count = (size_t)signature->count,
                        .chunk = 1};

    if (call.op == TUTTI__OP_BARRIER) {
        call.dtype = TUTTI_U8;
        call.count = 1;
    }
    return call;
}

uint64_t tutti__coll_bytes(const tutti__coll *call)
{
    const tutti__op_traits *t = &tutti__op_table[call->op];

    if (call->op == TUTTI__OP_BARRIER)
        return 0;
    return (uint64_t)call->count * tutti__element(call->dtype) *
           (t->scatters || t->gathers ? (uint64_t)call->size : 1);
}

void tutti__tuner_set_shape(tutti__tuner *tuner, int which, const tutti__comm *comm,
                            const tutti__places *places, const int *ranks, int n)
{
    char why[160];

    if (tutti__shape_of(places, ranks, n, &tuner->shapes[which], why, sizeof why) ||
        comm->rank != 0 || !*tutti__env_text(TUTTI__ENV_TOPOLOGY) ||
        (which == 0 && tuner->shapes[1].size > 0))
        return;
    tutti_log(TUTTI_LOG_WARN, "comm",
              "group \"%s\" does not use the levels of TUTTI_TOPOLOGY in calls among %d %s: %s; "
              "start ranks below one switch after another",
              comm->name, n, n == comm->size ? "ranks" : "hosts", why);
}

void tutti__tuner_set_links(tutti__tuner *tuner, const tutti__coll_links *links)
{
    tuner->links = *links;
    memset(tuner->chosen, 0, sizeof tuner->chosen);
    tuner->has_links = true;
}

/* NULL: the size is of no shape. */
static const tutti__shape *shape_of(const tutti__tuner *tuner, int size)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(tuner->shapes); i++)
        if (tuner->shapes[i].size == size)
            return &tuner->shapes[i];
    return NULL;
}

void tutti__tuner_place(const tutti__tuner *tuner, tutti__coll *call)
{
    const tutti__shape *shape = shape_of(tuner, call->size);

    if (shape)
        memcpy(call->block, shape->block, sizeof call->block);
}

uint64_t tutti__tuner_estimate(const tutti__tuner *tuner, const tutti__coll_algorithm *algorithm,
                               const tutti__coll *call)
{
    const tutti__shape *shape = shape_of(tuner, call->size);
    tutti__coll_links links = tuner->links;

    for (int i = 1; i <= TUTTI__COLL_LEVELS && tuner->given && shape; i++)
        links.level[i].byte_ps *= (uint64_t)shape->share;
    if (shape) /* those above the blocks count as the farthest */
        links.level[tutti__shape_levels(shape)] = links.level[shape->farthest];
    return tutti__coll_estimate(algorithm, call, &links);
}

/* The line with the fewest bytes that are enough, or else with the most; NULL: none for groups of this size. */
static const tutti__coll_algorithm *by_rules(const tutti__tuner *tuner, const tutti__coll *call)
{
    const tutti__tuner_rule *best = NULL;
    uint64_t bytes = tutti__coll_bytes(call);

    for (size_t i = 0; i < tuner->n_rules; i++) {
        const tutti__tuner_rule *rule = &tuner->rules[i];
        bool enough = rule->bytes >= bytes;

        if (rule->algorithm->op != call->op || rule->ranks != call->size)
            continue;
        if (!best || (enough && (best->bytes < bytes || rule->bytes < best->bytes)) ||
            (!enough && best->bytes < bytes && rule->bytes > best->bytes))
            best = rule;
    }
    return best ? best->algorithm : NULL;
}

/* The least estimate. What links cost differs from run to run, and what is chosen with the size: neither may change a sum. */
static const tutti__coll_algorithm *estimate_all(const tutti__tuner *tuner, const tutti__coll *call)
{
    const tutti__coll_algorithm *best = NULL;
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < tutti__coll_n_algorithms; i++) {
        const tutti__coll_algorithm *a = tutti__coll_algorithms[i];
        uint64_t ns = tutti__coll_fits(a, call) && tutti__coll_keeps_order(a)
                          ? tutti__tuner_estimate(tuner, a, call)
                          : UINT64_MAX;

        if (ns < least) {
            least = ns;
            best = a;
        }
    }
    return best;
}

/* Calls of a class (a power of two of bytes) have that of the first of them: ranks make the same calls, so it is the same on all. */
static const tutti__coll_algorithm *by_estimate(tutti__tuner *tuner, const tutti__coll *call)
{
    size_t k = tutti__coll_log_up(tutti__coll_bytes(call) + 1), wide = tutti__coll_is_wide(call);
    tutti__coll any_root = *call;

    k = k < TUTTI__TUNER_SIZES ? k : TUTTI__TUNER_SIZES - 1;
    any_root.root = 0;
    if (tuner->chosen[call->op][wide][k].ranks != call->size) {
        tuner->chosen[call->op][wide][k].algorithm = estimate_all(tuner, &any_root);
        tuner->chosen[call->op][wide][k].ranks = call->size;
    }
    return tuner->chosen[call->op][wide][k].algorithm;
}

const tutti__coll_algorithm *tutti__tuner_choose(tutti__tuner *tuner, tutti__coll *call)
{
    const tutti__coll_algorithm *direct = tutti__coll_find(call->op, "direct"),
                                *chosen = tuner->forced[call->op];
    size_t element = tutti__coll_element(call, TUTTI__COLL_WORK);

    call->chunk = tuner->chunk_bytes > element ? tuner->chunk_bytes / element : 1;
    tutti__tuner_place(tuner, call);
    tuner->last[call->op] = *call;
    if (!direct)
        return NULL;
    if (!chosen)
        chosen = by_rules(tuner, call);
    if (!chosen && call->size > TUTTI__TUNER_DIRECT && tuner->has_links)
        chosen = by_estimate(tuner, call);
    if (chosen && tutti__coll_fits(chosen, call))
        return chosen;
    if (tuner->forced[call->op] && !tuner->told[call->op])
        tutti_log(
            TUTTI_LOG_WARN, "comm",
            "TUTTI_ALGORITHM: %s does not fit a call of %d ranks that this group makes; those "
            "go by direct",
            tuner->forced[call->op]->name, call->size);
    tuner->told[call->op] = true;
    return direct;
}

tutti__tuner_reason tutti__tuner_why(const tutti__tuner *tuner, const tutti__coll *call)
{
    if (tuner->forced[call->op] && tutti__coll_fits(tuner->forced[call->op], call))
        return TUTTI__TUNER_FORCED;
    if (by_rules(tuner, call))
        return TUTTI__TUNER_RULE;
    return call->size > TUTTI__TUNER_DIRECT && tuner->has_links ? TUTTI__TUNER_ESTIMATE
                                                                : TUTTI__TUNER_FEW;
}

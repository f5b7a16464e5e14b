/* flags_nodes.c -- the meaning of `tutti run`'s flags about nodes.   SPDX-License-Identifier: MIT
 *
 * One node needs no rendezvous: its endpoint is parsed and checked, and at most sets MASTER_ADDR and MASTER_PORT of the
 * workers. */
#include "launch/front/flags_nodes.h"
#include "comm/bootstrap/slurm.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef tutti__flag_text given;
#define BAD TUTTI__BAD_FLAG

enum { NATIVE_PORT = 29400, STATIC_PORT = 29500 }; /* torchrun's ports */

/* ---- How many, and by which backend ----------------------------------------------------------------- */

/* "4", "1:4" */
static tutti_status read_nnodes(const given *g, tutti__nodes *nodes)
{
    const char *colon = g->text ? strchr(g->text, ':') : NULL;
    char low[16] = "";
    int64_t min, max;

    nodes->min = nodes->max = 1;
    if (!g->text)
        return TUTTI_OK;
    snprintf(low, sizeof low, "%.*s", colon ? (int)(colon - g->text) : 15, g->text);
    if (!tutti__parse_int64(low, &min) || !tutti__parse_int64(colon ? colon + 1 : g->text, &max) ||
        min < 1 || max < min || max > TUTTI__MOST_WORKERS)
        return BAD(g, "N or MIN:MAX, as in 2 or 1:4, with 1 <= MIN <= MAX <= %d",
                   TUTTI__MOST_WORKERS);
    nodes->min = (int)min;
    nodes->max = (int)max;
    return TUTTI_OK;
}

/* A range of nodes without given numbers needs the native backend. */
static tutti_status read_backend(const tutti__flag_texts *t, tutti__nodes *nodes)
{
    const given *g = &t->of[TUTTI__FLAG_RDZV_BACKEND];

    if (!g->text)
        nodes->native = nodes->min < nodes->max && !t->of[TUTTI__FLAG_NODE_RANK].text;
    else if (strcmp(g->text, "native") == 0 || strcmp(g->text, "c10d") == 0)
        nodes->native = true;
    else if (strncmp(g->text, "etcd", 4) == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s %s is not in this version: the launchers meet without a server of "
                           "etcd; give --rdzv-backend c10d and an endpoint on one of the nodes",
                           g->source, g->text);
    else if (strcmp(g->text, "static") != 0)
        return tutti__fail_choice(g->source, g->text,
                                  (const char *const[]){"static", "native", "c10d"}, 3);
    if (!nodes->native)
        nodes->min = nodes->max; /* all of them, as torchrun */
    return TUTTI_OK;
}

static tutti_status read_node_rank(const given *g, const given *nnodes, tutti__nodes *nodes)
{
    int rank = 0;

    TUTTI_TRY(tutti__flag_read_count(g, 0, TUTTI__MOST_WORKERS, &rank));
    if (nodes->native)
        return TUTTI_OK; /* nodes are numbered in the order of joining, as in torchrun */
    if (rank >= nodes->max)
        return BAD(g, "a number below %d (--nnodes)", nodes->max);
    if (!g->text && nodes->max > 1)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s is \"%s\", but which of them is this? Give --node-rank K, from 0 to %d; or "
            "--rdzv-backend c10d, which numbers the nodes as they come",
            nnodes->source, nnodes->text, nodes->max - 1);
    nodes->has_node_rank = g->text != NULL;
    nodes->node_rank = rank;
    return TUTTI_OK;
}

/* ---- The endpoint -------------------------------------------------------------------------------- */

/* "host", "host:5972", "[::1]:5972", "[::1]". *port_p is unchanged without a port. */
static tutti_status read_endpoint(const given *g, char *host, size_t bytes, int *port_p)
{
    const char *begin = g->text, *end, *colon;
    int64_t port;

    while (isspace((unsigned char)*begin))
        begin++;
    if (*begin == '[') {
        end = strchr(++begin, ']');
        colon = end ? end + 1 : "]";
    } else {
        end = colon = begin + strcspn(begin, ":");
    }
    if (end == begin || (*colon && *colon != ':') || (size_t)(end - begin) >= bytes)
        return BAD(g, "HOST or HOST:PORT, an IPv6 address in brackets, as in %s", "[::1]:29400");
    for (const char *p = begin; p < end; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._:%-", *p))
            return BAD(g, "a host name or address without '%c'", *p);
    if (*colon == ':') {
        if (strchr(colon + 1, ':'))
            return BAD(g, "an IPv6 address in brackets, as in %s", "[::1]:29400");
        if (!tutti__parse_int64(colon + 1, &port) || port < 0 || port > 65535)
            return BAD(g, "a port from 0 to %d after the ':'", 65535);
        *port_p = (int)port;
    }
    snprintf(host, bytes, "%.*s", (int)(end - begin), begin);
    return TUTTI_OK;
}

/* An address without a port; IPv6 with or without brackets. */
static tutti_status read_address(const given *g, char *host, size_t bytes)
{
    size_t n = strlen(g->text);
    bool brackets = n > 2 && g->text[0] == '[' && g->text[n - 1] == ']';

    if (n == 0 || n >= bytes || strspn(g->text, " \t/") > 0)
        return BAD(g, "a host name or an address of at most %zu characters", bytes - 1);
    snprintf(host, bytes, "%.*s", (int)(brackets ? n - 2 : n), g->text + brackets);
    return TUTTI_OK;
}

/* Some clusters (Kubernetes' PyTorchJob) only set MASTER_ADDR and MASTER_PORT in the environment. */
static given or_environment(const given *g, const char *name)
{
    const char *value = getenv(name);
    given found = *g;

    if (!g->text && value && *value) {
        found.text = value;
        snprintf(found.source, sizeof found.source, "%s", name);
    }
    return found;
}

/* For several nodes. */
static tutti_status read_meeting_place(const tutti__flag_texts *t, tutti__launch_opts *opts,
                                       tutti__node_names *names)
{
    const given *endpoint = &t->of[TUTTI__FLAG_RDZV_ENDPOINT], *nnodes = &t->of[TUTTI__FLAG_NNODES];
    given addr = or_environment(&t->of[TUTTI__FLAG_MASTER_ADDR], "MASTER_ADDR");
    given port = or_environment(&t->of[TUTTI__FLAG_MASTER_PORT], "MASTER_PORT");
    tutti__nodes *nodes = &opts->nodes;
    bool is_endpoint = endpoint->text && *endpoint->text;

    nodes->port = -1;
    if (is_endpoint) {
        TUTTI_TRY(read_endpoint(endpoint, names->host, sizeof names->host, &nodes->port));
    } else if (addr.text) {
        TUTTI_TRY(read_address(&addr, names->host, sizeof names->host));
        nodes->port = nodes->native ? NATIVE_PORT : STATIC_PORT;
    } else {
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is \"%s\", but where do the nodes meet? Give --rdzv-endpoint "
                           "HOST:PORT, or --master-addr and --master-port",
                           nnodes->source, nnodes->text);
    }
    nodes->host = names->host;
    if (!is_endpoint || (nodes->port < 0 && !nodes->native))
        TUTTI_TRY(tutti__flag_read_port(&port, &nodes->port));
    if (nodes->port < 0 && nodes->native)
        nodes->port = NATIVE_PORT;
    if (nodes->port < 0)
        return BAD(endpoint, "%s: the port is missing; or add --master-port", "HOST:PORT");
    if (nodes->port == 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "the nodes meet at port 0 of %s: expected a port that all of them know",
                           nodes->host);
    return TUTTI_OK;
}

/* For one node: the workers' MASTER_ADDR and MASTER_PORT. */
static tutti_status read_master(const tutti__flag_texts *t, tutti__launch_opts *opts,
                                tutti__node_names *names)
{
    const given *addr = &t->of[TUTTI__FLAG_MASTER_ADDR], *g = &t->of[TUTTI__FLAG_RDZV_ENDPOINT];
    int port = 0;

    if (g->text && *g->text) { /* checked even if ignored: another backend's endpoint */
        TUTTI_TRY(read_endpoint(g, names->host, sizeof names->host, &port));
        if (!opts->nodes.native) {
            opts->master_addr = names->host;
            opts->master_port = port;
        }
    }
    if (addr->text && !opts->master_addr) {
        TUTTI_TRY(read_address(addr, names->master_addr, sizeof names->master_addr));
        opts->master_addr = names->master_addr;
    }
    if (opts->master_port)
        return TUTTI_OK;
    return tutti__flag_read_port(&t->of[TUTTI__FLAG_MASTER_PORT], &opts->master_port);
}

/* `srun tutti run`, with one task per node, is one job: the Slurm step determines the number of nodes, this node's number, and
 * the first node's address, unless flags or MASTER_ADDR and MASTER_PORT do. */
static tutti_status read_slurm(const tutti__flag_texts *t, tutti__launch_opts *opts,
                               tutti__node_names *names, bool *found_p)
{
    const given *addr = &t->of[TUTTI__FLAG_MASTER_ADDR];
    given master = or_environment(addr, "MASTER_ADDR");
    given port = or_environment(&t->of[TUTTI__FLAG_MASTER_PORT], "MASTER_PORT");
    tutti__nodes *nodes = &opts->nodes;
    tutti__slurm_step step;

    *found_p = false;
    if (!tutti__slurm_is_task() || t->of[TUTTI__FLAG_NNODES].text ||
        t->of[TUTTI__FLAG_RDZV_ENDPOINT].text || t->of[TUTTI__FLAG_NODE_RANK].text ||
        t->of[TUTTI__FLAG_STANDALONE].text)
        return TUTTI_OK;
    TUTTI_TRY(tutti__slurm_step_read(&step));
    if (step.n_tasks <= 1)
        return TUTTI_OK;
    *found_p = true;
    nodes->min = nodes->max = step.n_tasks;
    nodes->has_node_rank = true;
    nodes->node_rank = step.rank;
    nodes->port = step.port;
    if (master.text)
        TUTTI_TRY(read_address(&master, names->host, sizeof names->host));
    else
        snprintf(names->host, sizeof names->host, "%s", step.first_host);
    TUTTI_TRY(tutti__flag_read_port(&port, &nodes->port));
    nodes->host = names->host;
    nodes->local_addr = t->of[TUTTI__FLAG_LOCAL_ADDR].text;
    if (!opts->id) {
        snprintf(names->id, sizeof names->id, "%s", step.name);
        opts->id = names->id;
    }
    return TUTTI_OK;
}

/* ---- --rdzv-conf ------------------------------------------------------------------------------------ */

typedef enum kind { SECONDS, SECONDS_OR_NONE, INTERVAL, COUNT, TRUTH, UNREAD } kind;

static const struct conf {
    const char *name;
    kind kind;
    size_t offset; /* in tutti__nodes */
} confs[] = {
    {"join_timeout", SECONDS, offsetof(tutti__nodes, join_timeout_s)},
    {"timeout", SECONDS, offsetof(tutti__nodes, join_timeout_s)}, /* of the static backend */
    {"last_call_timeout", SECONDS_OR_NONE, offsetof(tutti__nodes, last_call_s)},
    {"keep_alive_interval", INTERVAL, offsetof(tutti__nodes, keep_alive_s)},
    {"keep_alive_max_attempt", COUNT, offsetof(tutti__nodes, keep_alive_misses)},
    {"is_host", TRUTH, offsetof(tutti__nodes, hosts)},
    {"merge_output", TRUTH, offsetof(tutti__nodes, merges)},
    {"close_timeout", UNREAD, 0},           /* a job that ends tells the others at once */
    {"heartbeat_timeout", UNREAD, 0},       /* keep_alive_interval x keep_alive_max_attempt */
    {"read_timeout", UNREAD, 0},            /* a lost connection is detected immediately */
    {"store_type", UNREAD, 0},              /* only its value is checked */
    {"cas_backoff_max_seconds", UNREAD, 0}, /* nodes do not compete for a key */
    {"rank", UNREAD, 0},                    /* torchrun overwrites it by --node-rank */
};

static tutti_status unknown_conf(const given *g, const char *key)
{
    const char *names[TUTTI__COUNT_OF(confs)], *nearest;

    for (size_t i = 0; i < TUTTI__COUNT_OF(confs); i++)
        names[i] = confs[i].name;
    nearest = tutti__nearest(key, names, TUTTI__COUNT_OF(confs));
    if (nearest)
        return tutti__fail(TUTTI_ERR_ARG, "%s knows no %s; did you mean %s?", g->source, key,
                           nearest);
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s knows no %s; it knows join_timeout, last_call_timeout, "
                       "keep_alive_interval, keep_alive_max_attempt, is_host and merge_output",
                       g->source, key);
}

static int truth(const char *text)
{
    static const char *const yes[] = {"1", "true", "t", "yes", "y"};
    static const char *const no[] = {"0", "false", "f", "no", "n"};

    for (size_t i = 0; i < TUTTI__COUNT_OF(yes); i++)
        if (strcasecmp(text, yes[i]) == 0)
            return 1;
        else if (strcasecmp(text, no[i]) == 0)
            return -1;
    return 0;
}

static tutti_status set_conf(const given *g, const struct conf *c, const char *text,
                             tutti__nodes *nodes)
{
    char *field = (char *)nodes + c->offset;
    given value = {.text = text};
    double seconds;

    snprintf(value.source, sizeof value.source, "%.28s of %.30s", c->name, g->source);
    if (c->kind == COUNT)
        return tutti__flag_read_count(&value, 1, 1000000, (int *)(void *)field);
    if (c->kind == TRUTH) {
        if (!truth(text))
            return BAD(&value, "true or %s", "false");
        *(int *)(void *)field = truth(text);
    } else if (c->kind != UNREAD) {
        /* shorter intervals than that are missed by a busy machine */
        const char *least = c->kind == INTERVAL ? "0.05" : c->kind == SECONDS ? "1e-9" : "0";

        if (!tutti__parse_double(text, &seconds) ||
            !(seconds >= strtod(least, NULL) && seconds <= 1e9))
            return BAD(&value, "seconds from %s to 1e9", least);
        *(double *)(void *)field = seconds > 0 ? seconds : -1; /* zero would mean the default */
    } else if (strcmp(c->name, "store_type") == 0 && strcmp(text, "tcp") != 0) {
        return BAD(&value, "%s: the nodes meet over TCP", "tcp");
    }
    return TUTTI_OK;
}

/* "join_timeout=60,is_host=1" */
static tutti_status read_conf(const given *g, tutti__nodes *nodes)
{
    char copy[1024], *rest = copy, *word;

    if (!g->text)
        return TUTTI_OK;
    if (snprintf(copy, sizeof copy, "%s", g->text) >= (int)sizeof copy)
        return BAD(g, "at most %zu characters", sizeof copy - 1);
    while ((word = strsep(&rest, ",")) != NULL) {
        char *key = word + strspn(word, " "), *equals = strchr(key, '=');
        size_t i, n = strcspn(key, " =");

        if (!*key && !rest && key == copy)
            return TUTTI_OK;
        if (n == 0 || !equals || !equals[1 + strspn(equals + 1, " ")])
            return BAD(g, "KEY=VALUE,..., as in %s", "join_timeout=60,last_call_timeout=5");
        key[n] = '\0';
        for (i = 0; i < TUTTI__COUNT_OF(confs) && strcmp(confs[i].name, key) != 0; i++)
            continue;
        if (i == TUTTI__COUNT_OF(confs))
            return unknown_conf(g, key);
        word = equals + 1 + strspn(equals + 1, " ");
        word[strcspn(word, " ")] = '\0';
        TUTTI_TRY(set_conf(g, &confs[i], word, nodes));
    }
    return TUTTI_OK;
}

/* ---- All ---------------------------------------------------------------------------------------------- */

tutti_status tutti__flags_read_nodes(const tutti__flag_texts *texts, tutti__launch_opts *opts,
                                     tutti__node_names *names)
{
    const given *nnodes = &texts->of[TUTTI__FLAG_NNODES];
    tutti__nodes *nodes = &opts->nodes;
    bool slurm;

    TUTTI_TRY(read_nnodes(nnodes, nodes));
    TUTTI_TRY(read_conf(&texts->of[TUTTI__FLAG_RDZV_CONF], nodes));
    TUTTI_TRY(read_slurm(texts, opts, names, &slurm));
    if (slurm)
        return TUTTI_OK;
    if (texts->of[TUTTI__FLAG_STANDALONE].text) {
        tutti__flag_texts alone = *texts;

        if (nodes->min > 1)
            return BAD(nnodes, "%d with --standalone, which is a job of this node alone", 1);
        nodes->min = nodes->max = 1;
        alone.of[TUTTI__FLAG_RDZV_ENDPOINT].text = NULL;
        return read_master(&alone, opts, names);
    }
    TUTTI_TRY(read_backend(texts, nodes));
    TUTTI_TRY(read_node_rank(&texts->of[TUTTI__FLAG_NODE_RANK], nnodes, nodes));
    nodes->local_addr = texts->of[TUTTI__FLAG_LOCAL_ADDR].text;
    if (nodes->max == 1)
        return read_master(texts, opts, names);
    TUTTI_TRY(read_meeting_place(texts, opts, names));
    if (!nodes->native) {
        opts->master_addr = nodes->host;
        opts->master_port = nodes->port;
    }
    return TUTTI_OK;
}

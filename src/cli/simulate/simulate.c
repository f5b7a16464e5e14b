/* simulate.c -- `tutti simulate`: reads the flags.   SPDX-License-Identifier: MIT */
#include "cli/simulate/simulate.h"

#include "base/flag.h"
#include "checkpoint/output.h"
#include "cli/cli.h"
#include "comm/algorithm/tuner.h"
#include "simulate/history.h"
#include "train/config/agreement.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "A collective of many ranks in virtual time, by the algorithms that Tutti runs, on machines "
    "that "
    "need not exist;\n"
    "or random histories of a job, by the machines that decide about its nodes. One process, no "
    "threads; the same\n"
    "command line gives the same result, event by event.\n"
    "\n"
    "usage: tutti simulate --ranks LIST [--hosts H] [--op NAME] [--size LIST] [--FLAG VALUE]...\n"
    "       tutti simulate --histories N [--seed S] [--nodes N] [--workers N] [--verbose]\n"
    "\n"
    "  tutti simulate --ranks 4096 --hosts 512 --op all_reduce --size 25M\n"
    "  tutti simulate --ranks 16,256,4096 --size 4K,25M --algorithm all --links cluster.json\n"
    "  tutti simulate --ranks 64 --kill 7@100us --loss 0.001 --seed 3\n"
    "  tutti simulate --histories 100000 --seed 1\n"
    "\n"
    "  --ranks LIST             ranks of a call, up to 16384; a row for each, size and algorithm\n"
    "  --hosts H                on so many hosts, equally many on each but for the last\n"
    "  --ranks-per-host N       instead (default 8)\n"
    "  --links FILE             what messages cost: a file of tutti bench --tune, or a JSON "
    "object; without it, or\n"
    "                           what it leaves out:\n"
    "        {\"core\": {\"latency_us\": 0.3, \"gbps\": 10, \"message_us\": 0.2, \"memory_gbps\": "
    "160, "
    "\"reduce_gbps\": 10},\n"
    "         \"host\": {\"latency_us\": 10, \"gbps\": 12.5, \"message_us\": 2, \"retransmit_us\": "
    "200000, "
    "\"heartbeat_us\": 5e6},\n"
    "         \"switch\": {\"latency_us\": 1, \"gbps\": 400, \"message_us\": 2, \"hosts\": 32}}\n"
    "                           core: between ranks of a host; host: between hosts of a switch, "
    "whose link all its\n"
    "                           ranks share; switch: between switches, in addition. gbps: 1e9 "
    "bytes a second;\n"
    "                           message_us: of a core, for each message at either end\n"
    "  --op NAME                all_reduce, reduce, reduce_scatter, broadcast, scatter, gather, "
    "all_gather,\n"
    "                           all_to_all or barrier (default all_reduce); sums of f32\n"
    "  --size LIST              bytes of the larger buffer, with K, M, G of 1024 (default 25M); "
    "8-1M: 8, 16, ...\n"
    "  --root RANK              for broadcast, reduce, scatter and gather (default 0)\n"
    "  --algorithm NAME         auto: as ranks choose that know these links (TUTTI_ALGORITHM and "
    "TUTTI_TUNER_FILE\n"
    "                           apply); all: a row for each; or its name (default auto)\n"
    "  --chunk SIZE             of what is pipelined (default 128K)\n"
    "  --data KIND              real: each rank has its bytes; sampled: 16 elements are followed "
    "from place to\n"
    "                           place; none; auto (default): real up to 256 MiB in all\n"
    "  --seed S                 of all that is random (default 1)\n"
    "  --jitter US              the mean of what is added to a message's latency (default 0)\n"
    "  --loss P                 the probability that a message between hosts is sent again "
    "(default "
    "0)\n"
    "  --slow RANK:FACTOR,...   the rank's core takes FACTOR times as long; any: a rank by the "
    "seed\n"
    "  --kill RANK@TIME,...     the rank dies: at 100us, 2ms, 0.5s\n"
    "  --partition HOSTS@TIME+DURATION,...\n"
    "                           these hosts (4, 4-7 or any) are cut from the others; without +, "
    "for "
    "good\n"
    "  --histories N            random histories of a job on several nodes: nodes, workers and "
    "coordinators that come\n"
    "                           and die, networks that are cut, slow and mended; the rules of "
    "elastic jobs are checked\n"
    "                           after each event. Seeds --seed, --seed + 1, ...\n"
    "  --nodes N, --workers N   of a history: nodes, 2 to 16 (default 5), and workers of each, 1 "
    "to "
    "8 (default 2)\n"
    "  --verbose                print the events\n"
    "  --json FILE              also write the results to FILE; -: to standard output, the table "
    "to standard error\n"
    "  -h, --help               this text\n"
    "\n"
    "The last line is the result, of several rows the last: \"result: \" and NAME=VALUE with "
    "spaces "
    "between: status (ok,\n"
    "peer_lost, wrong), time_us, bound_us, ratio, messages_max, core_bytes, host_busiest, wrong, "
    "...; of histories:\n"
    "histories, broken, cpu_s, ... Exit code 1 if an element was wrong, or a rule was broken; a "
    "rank's death that was\n"
    "asked for is a result. bound: alpha-beta, the latency of log2 steps at each level, and the "
    "time of the busiest link.\n";

/* ---- Flags ------------------------------------------------------------------------------------------------------------- */

typedef enum flag_id {
    RANKS,
    HOSTS,
    RANKS_PER_HOST,
    LINKS,
    OP,
    SIZE,
    ROOT,
    ALGORITHM,
    CHUNK,
    DATA,
    JITTER,
    LOSS,
    SLOW,
    KILL,
    PARTITION,
    HISTORIES,
    NODES,
    WORKERS,
    SEED,
    VERBOSE,
    JSON,
    N_FLAGS
} flag_id;

static const char *const flag_names[N_FLAGS] = {
    "--ranks",     "--hosts",     "--ranks-per-host", "--links",   "--op",   "--size",    "--root",
    "--algorithm", "--chunk",     "--data",           "--jitter",  "--loss", "--slow",    "--kill",
    "--partition", "--histories", "--nodes",          "--workers", "--seed", "--verbose", "--json"};

typedef struct line {
    const char *of[N_FLAGS]; /* NULL: not given */
} line;

static tutti_status read_texts(line *l, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        int id = 0;

        while (id < N_FLAGS && !tutti__flag_is(arg, flag_names[id]))
            id++;
        if (id == N_FLAGS)
            return tutti__fail_unknown(arg[0] == '-' ? "flag" : "argument", "tutti simulate", arg,
                                       flag_names, N_FLAGS);
        if (id == VERBOSE && strchr(arg, '='))
            return tutti__fail_value("--verbose", strchr(arg, '=') + 1);
        l->of[id] = id == VERBOSE      ? ""
                    : strchr(arg, '=') ? strchr(arg, '=') + 1
                    : i + 1 < argc     ? argv[++i]
                                       : NULL;
        if (!l->of[id])
            return tutti__fail(TUTTI_ERR_ARG, "%.60s needs a value; see tutti simulate --help",
                               arg);
    }
    return TUTTI_OK;
}

static tutti_status read_whole(const line *l, flag_id id, int64_t low, int64_t high,
                               int64_t *number_p)
{
    if (!l->of[id])
        return TUTTI_OK;
    if (!tutti__parse_int64(l->of[id], number_p) || *number_p < low || *number_p > high)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s is \"%.60s\", expected a whole number from %lld to %lld",
                           flag_names[id], l->of[id], (long long)low, (long long)high);
    return TUTTI_OK;
}

static tutti_status read_real(const line *l, flag_id id, double high, double *number_p)
{
    if (!l->of[id])
        return TUTTI_OK;
    if (!tutti__parse_double(l->of[id], number_p) || !(*number_p >= 0 && *number_p <= high))
        return tutti__fail(TUTTI_ERR_ARG, "%s is \"%.60s\", expected a number from 0 to %g",
                           flag_names[id], l->of[id], high);
    return TUTTI_OK;
}

/* "16,64,256" */
static tutti_status read_ranks(const char *text, tutti__simulate_calls *c)
{
    for (const char *next = text;; next++) {
        const size_t length = strcspn(next, ",");
        char number[24];
        int64_t n = 0;

        snprintf(number, sizeof number, "%.*s", length < 20 ? (int)length : 20, next);
        if (!tutti__parse_int64(number, &n) || n < 2 || n > 16384 ||
            c->n_ranks == TUTTI__SIMULATE_LIST)
            return tutti__fail(TUTTI_ERR_ARG,
                               "--ranks is \"%.60s\", expected up to %d numbers from 2 to 16384, "
                               "such as 16,256,4096",
                               text, TUTTI__SIMULATE_LIST);
        c->ranks[c->n_ranks++] = (int)n;
        next += length;
        if (!*next)
            return TUTTI_OK;
    }
}

static tutti_status read_op(const line *l, tutti__simulate_calls *c)
{
    static const tutti__op_kind kinds[] = {
        TUTTI__OP_ALL_REDUCE, TUTTI__OP_REDUCE,     TUTTI__OP_REDUCE_SCATTER,
        TUTTI__OP_BROADCAST,  TUTTI__OP_SCATTER,    TUTTI__OP_GATHER,
        TUTTI__OP_ALL_GATHER, TUTTI__OP_ALL_TO_ALL, TUTTI__OP_BARRIER};
    const char *names[TUTTI__COUNT_OF(kinds)], *text = l->of[OP] ? l->of[OP] : "all_reduce";
    const tutti__op_traits *t;
    size_t k = TUTTI__COUNT_OF(kinds);

    for (size_t i = 0; i < TUTTI__COUNT_OF(kinds); i++) {
        names[i] = tutti__op_name(kinds[i]);
        k = tutti__flag_is(text, names[i]) ? i : k;
    }
    if (k == TUTTI__COUNT_OF(kinds))
        return tutti__fail_choice("--op", text, names, TUTTI__COUNT_OF(kinds));
    c->op = kinds[k];
    t = &tutti__op_table[c->op];
    if (l->of[ROOT] && !t->from_root && !t->to_root)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--root is for broadcast, reduce, scatter and gather; %s has none",
                           names[k]);
    if (l->of[SIZE] && c->op == TUTTI__OP_BARRIER)
        return tutti__fail(TUTTI_ERR_ARG, "--size says what is moved; barrier moves nothing");
    return TUTTI_OK;
}

static tutti_status read_data(const line *l, tutti__simulate_calls *c)
{
    static const char *const names[] = {"auto", "real", "sampled", "none"};

    for (int i = 0; l->of[DATA] && i < (int)TUTTI__COUNT_OF(names); i++)
        if (strcmp(l->of[DATA], names[i]) == 0) {
            c->data = i;
            return TUTTI_OK;
        }
    return l->of[DATA] ? tutti__fail_choice("--data", l->of[DATA], names, TUTTI__COUNT_OF(names))
                       : TUTTI_OK;
}

/* Rejects flags of the other kind of simulation, instead of ignoring them. */
static tutti_status check_kind(const line *l)
{
    const bool histories = l->of[HISTORIES] != NULL;

    if (!histories && !l->of[RANKS])
        return tutti__fail(TUTTI_ERR_ARG,
                           "what to simulate? --ranks N: a collective of N ranks; --histories N: "
                           "histories of a job; see tutti simulate --help");
    for (int id = 0; id < SEED; id++)
        if (l->of[id] && (id >= HISTORIES) != histories)
            return tutti__fail(TUTTI_ERR_ARG, "%s is for %s", flag_names[id],
                               histories ? "collectives, not for --histories"
                                         : "--histories, not for collectives");
    if (l->of[HOSTS] && l->of[RANKS_PER_HOST])
        return tutti__fail(TUTTI_ERR_ARG, "--hosts and --ranks-per-host say the same: give one");
    return TUTTI_OK;
}

static tutti_status read_calls(const line *l, tutti__simulate_calls *c)
{
    int64_t hosts = 0, per_host = 0, root = 0, seed = 1;

    TUTTI_TRY(read_ranks(l->of[RANKS], c));
    TUTTI_TRY(read_whole(l, HOSTS, 1, 16384, &hosts));
    TUTTI_TRY(read_whole(l, RANKS_PER_HOST, 1, 16384, &per_host));
    TUTTI_TRY(read_op(l, c));
    TUTTI_TRY(read_whole(l, ROOT, 0, 16383, &root));
    TUTTI_TRY(read_whole(l, SEED, 0, INT64_MAX, &seed));
    TUTTI_TRY(tutti__sizes_read(&c->sizes, "--size",
                                c->op == TUTTI__OP_BARRIER ? "1"
                                : l->of[SIZE]              ? l->of[SIZE]
                                                           : "25M",
                                "--op barrier moves no data"));
    if (l->of[CHUNK] &&
        (!tutti__parse_size(l->of[CHUNK], strlen(l->of[CHUNK]), &c->chunk) || c->chunk < 4))
        return tutti__fail(TUTTI_ERR_ARG, "--chunk is \"%.60s\", expected bytes, as in 64K",
                           l->of[CHUNK]);
    TUTTI_TRY(read_data(l, c));
    TUTTI_TRY(read_real(l, JITTER, 1e9, &c->jitter_us));
    TUTTI_TRY(read_real(l, LOSS, 0.9, &c->loss));
    tutti__sim_links_default(&c->links);
    if (l->of[LINKS])
        TUTTI_TRY(tutti__sim_links_read(&c->links, l->of[LINKS]));
    c->hosts = (int)hosts;
    c->per_host = (int)per_host;
    c->root = (int)root;
    c->seed = (uint64_t)seed;
    c->algorithm = l->of[ALGORITHM] ? l->of[ALGORITHM] : "auto";
    c->kill = l->of[KILL];
    c->slow = l->of[SLOW];
    c->partition = l->of[PARTITION];
    return TUTTI_OK;
}

static tutti_status read_histories(const line *l, tutti__simulate_histories *h)
{
    int64_t n = 0, seed = 1, nodes = 5, workers = 2;

    TUTTI_TRY(read_whole(l, HISTORIES, 1, INT64_MAX / 2, &n));
    TUTTI_TRY(read_whole(l, SEED, 0, INT64_MAX / 2, &seed));
    TUTTI_TRY(read_whole(l, NODES, 2, TUTTI__HISTORY_NODES, &nodes));
    TUTTI_TRY(read_whole(l, WORKERS, 1, TUTTI__HISTORY_WORKERS, &workers));
    *h = (tutti__simulate_histories){
        .n = (uint64_t)n, .seed = (uint64_t)seed, .nodes = (int)nodes, .workers = (int)workers};
    return TUTTI_OK;
}

/* ---- The command ----------------------------------------------------------------------------------------------------------- */

static tutti_status simulate(const line *l, uint64_t *bad_p)
{
    tutti__simulate_histories h = {0};
    tutti__simulate_calls c = {.chunk = TUTTI__TUNER_CHUNK_BYTES};

    TUTTI_TRY(check_kind(l));
    if (l->of[HISTORIES])
        TUTTI_TRY(read_histories(l, &h));
    else
        TUTTI_TRY(read_calls(l, &c));
    if (l->of[JSON]) {
        TUTTI_TRY(tutti__output_check("--json", l->of[JSON]));
        TUTTI_TRY(tutti__output_try(l->of[JSON]));
    }
    h.json = c.json = l->of[JSON];
    h.verbose = c.verbose = l->of[VERBOSE] != NULL;
    return l->of[HISTORIES] ? tutti__simulate_histories_run(&h, bad_p)
                            : tutti__simulate_calls_run(&c, bad_p);
}

int tutti__cli_simulate(int argc, char **argv)
{
    line l = {0};
    uint64_t bad = 0;
    tutti_status status;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    status = read_texts(&l, argc, argv);
    if (status == TUTTI_OK)
        status = simulate(&l, &bad);
    if (status != TUTTI_OK)
        return tutti__report_usage("tutti simulate", status);
    return bad > 0;
}

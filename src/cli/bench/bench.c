/* bench.c -- `tutti bench`: reads the flags, and measures in this process or in N workers.   SPDX-License-Identifier: MIT */
#include "cli/bench/bench.h"
#include "cli/bench/reproduce.h"

#include "base/flag.h"
#include "checkpoint/output.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "cli/nproc.h"
#include "launch/front/launch.h"
#include "train/config/config_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char HELP[] =
    "Measures collectives and messages between ranks, a training step, or the loader of a data "
    "set, and checks\n"
    "the results.\n"
    "\n"
    "usage: tutti bench BENCHMARK [-n N] [--FLAG VALUE]...\n"
    "\n"
    "  all_reduce, reduce, reduce_scatter, broadcast, scatter, gather, all_gather, all_gather_v,\n"
    "  all_to_all, all_to_all_v, barrier\n"
    "              collectives (_v: with pieces of unequal size)\n"
    "  send_recv   each rank sends to the next and receives from the previous one at once\n"
    "  ping_pong   between rank r and rank r + n/2; time is half of a round trip\n"
    "  step        optimizer steps as tutti train takes them, on synthetic images\n"
    "  loader      batches of a data set, read as training reads them\n"
    "  reproduce   figures of bench/RECORDS.md, measured again; its flags: tutti bench reproduce "
    "--help\n"
    "\n"
    "  tutti bench all_reduce -n 2\n"
    "  tutti bench broadcast -n 4 --sizes 4,64K,25M --json broadcast.json\n"
    "  tutti run -n 2 tutti bench all_gather     the same; also under torchrun, srun, mpirun\n"
    "  tutti run --nnodes 16 -n 1 tutti bench --tune cluster.tuner\n"
    "  tutti bench step -n 2 --model mini_resnet --amp bf16\n"
    "  tutti bench loader --data folder --data-dir pictures --image-size 224 --workers 1,2,4\n"
    "\n"
    "  -n, --nproc-per-node N   workers on this machine (default: this process, alone or as a "
    "rank)\n"
    "  --sizes LIST             bytes of the larger buffer, with K, M, G of 1024 (default "
    "4,4K,64K,1M,25M);\n"
    "                           8-1M: 8, 16, 32, ... up to 1M\n"
    "  --dtype TYPE             f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32 or u64 "
    "(default f32)\n"
    "  --op OP                  sum, avg, product, min, max, band, bor or bxor (default sum), of "
    "reductions\n"
    "  --root RANK              for broadcast, reduce, scatter and gather (default 0)\n"
    "  --memory KIND            group or plain (default group); group: from tutti_group_alloc, "
    "which peers\n"
    "                           read in place\n"
    "  --backend KIND           auto, native, mpi or nccl (default auto); mpi: the site's MPI, "
    "under mpirun or\n"
    "                           srun; nccl: only step, between GPUs\n"
    "  --in-flight K            time K asynchronous calls at once, each on its own memory, and "
    "divide by K\n"
    "                           (default: one synchronous call at a time)\n"
    "  --iterations N           timed calls per size (default: 3 to 1000, by size, and for about a "
    "second)\n"
    "  --warmup N               calls before them, at least the one that checks every element "
    "(default 5)\n"
    "  --json FILE              also write the rows to FILE, as an array of objects; -: to "
    "standard output, the\n"
    "                           table to standard error\n"
    "  --algorithms             over TCP and between hosts: a row for each algorithm of the "
    "collective, "
    "beside\n"
    "                           what it is estimated to take\n"
    "  --explain                only say which algorithm is chosen for each size, and why\n"
    "  --tune FILE              measure all algorithms, and write FILE for TUTTI_TUNER_FILE: the "
    "fastest by\n"
    "                           size; without BENCHMARK of all collectives\n"
    "  -h, --help               this text\n"
    "\n"
    "For step, besides -n, --iterations (default 20), --warmup, --backend and --json:\n"
    "  --model NAME, --device KIND, --batch-size N, --amp KIND, --threads N, --optimizer NAME,\n"
    "  --bucket-mb X, --first-bucket-mb X, --comm-hook KIND, --zero 0|1, --sync-bn BOOL,\n"
    "  --shards V, --wire-bits 64|32\n"
    "                           as in tutti train --help\n"
    "  --layers BOOL            true or false (default false); also show each operation of each "
    "layer\n"
    "\n"
    "For loader, besides -n and --json:\n"
    "  --data NAME, --data-dir DIR, --image-size N\n"
    "                           as in tutti train --help\n"
    "  --split NAME             train or test (default train): the part of the data set\n"
    "  --batch-size N           images per batch (default 32)\n"
    "  --workers LIST           loader threads, one row per number; 0: the caller reads "
    "(default 1)\n"
    "  --prefetch N             batches read ahead; 0: two per worker (default 0)\n"
    "  --augment BOOL           true or false (default true); as in training\n"
    "  --seconds S              time of a row (default 3)\n"
    "\n"
    "The columns are those of nccl-tests: count is that of one rank's piece; time is the median "
    "over iterations\n"
    "of the mean over ranks; algbw is size / time; busbw is algbw times 2(n-1)/n for all_reduce, "
    "1 for broadcast,\n"
    "reduce and messages, (n-1)/n for the others; GB/s are 1e9 bytes a second. Exit code 1 if any "
    "element was wrong\n"
    "(of step: if the ranks' parameters differ at the end).\n";

typedef enum flag_id {
    N,
    SIZES,
    DTYPE,
    OP,
    ROOT,
    MEMORY,
    BACKEND,
    IN_FLIGHT,
    ITERATIONS,
    WARMUP,
    JSON,
    ALGORITHMS,
    EXPLAIN,
    TUNE,
    DATA,
    DATA_DIR,
    SPLIT,
    IMAGE_SIZE,
    BATCH_SIZE,
    WORKERS,
    PREFETCH,
    AUGMENT,
    SECONDS,
    MODEL,
    DEVICE,
    AMP,
    OPTIMIZER,
    THREADS,
    BUCKET_MB,
    FIRST_BUCKET_MB,
    COMM_HOOK,
    ZERO,
    SYNC_BN,
    SHARDS,
    WIRE_BITS,
    LAYERS,
    N_FLAGS
} flag_id;

static const char *const flag_names[N_FLAGS] = {"--nproc-per-node", "--sizes",
                                                "--dtype",          "--op",
                                                "--root",           "--memory",
                                                "--backend",        "--in-flight",
                                                "--iterations",     "--warmup",
                                                "--json",           "--algorithms",
                                                "--explain",        "--tune",
                                                "--data",           "--data-dir",
                                                "--split",          "--image-size",
                                                "--batch-size",     "--workers",
                                                "--prefetch",       "--augment",
                                                "--seconds",        "--model",
                                                "--device",         "--amp",
                                                "--optimizer",      "--threads",
                                                "--bucket-mb",      "--first-bucket-mb",
                                                "--comm-hook",      "--zero",
                                                "--sync-bn",        "--shards",
                                                "--wire-bits",      "--layers"};

/* The benchmarks that a flag applies to. */
enum { MESSAGES = 1, LOADER = 2, STEPS = 4 };

static unsigned users_of(flag_id id)
{
    if (id == N || id == JSON)
        return MESSAGES | LOADER | STEPS;
    if (id == BACKEND || id == ITERATIONS || id == WARMUP)
        return MESSAGES | STEPS;
    if (id == BATCH_SIZE)
        return LOADER | STEPS;
    return id >= MODEL ? STEPS : id >= DATA ? LOADER : MESSAGES;
}

typedef struct benchmark {
    const char *name;
    tutti__op_kind kind;
    tutti__benchmark *run;
} benchmark;

static const benchmark benchmarks[] = {
    {"all_reduce", TUTTI__OP_ALL_REDUCE, tutti__bench_collective},
    {"reduce", TUTTI__OP_REDUCE, tutti__bench_collective},
    {"reduce_scatter", TUTTI__OP_REDUCE_SCATTER, tutti__bench_collective},
    {"broadcast", TUTTI__OP_BROADCAST, tutti__bench_collective},
    {"scatter", TUTTI__OP_SCATTER, tutti__bench_collective},
    {"gather", TUTTI__OP_GATHER, tutti__bench_collective},
    {"all_gather", TUTTI__OP_ALL_GATHER, tutti__bench_collective},
    {"all_gather_v", TUTTI__OP_ALL_GATHER_V, tutti__bench_collective},
    {"all_to_all", TUTTI__OP_ALL_TO_ALL, tutti__bench_collective},
    {"all_to_all_v", TUTTI__OP_ALL_TO_ALL_V, tutti__bench_collective},
    {"send_recv", TUTTI__OP_SEND, tutti__bench_collective},
    {"ping_pong", TUTTI__OP_SEND, tutti__bench_ping_pong},
    {"barrier", TUTTI__OP_BARRIER, tutti__bench_collective},
    {"step", TUTTI__OP_BARRIER, tutti__bench_step},
    {"loader", TUTTI__OP_BARRIER, tutti__bench_loader}};

enum { FLOATS = 4 }; /* of the types below, the first */
static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16", "i8",  "i16",
                                          "i32", "i64", "u8",  "u16",  "u32", "u64"};
static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F64, TUTTI_F16, TUTTI_BF16,
                                     TUTTI_I8,  TUTTI_I16, TUTTI_I32, TUTTI_I64,
                                     TUTTI_U8,  TUTTI_U16, TUTTI_U32, TUTTI_U64};
static const char *const redop_names[] = {"sum", "avg",  "product", "min",
                                          "max", "band", "bor",     "bxor"};
static const tutti_redop redops[] = {TUTTI_SUM, TUTTI_AVG,  TUTTI_PRODUCT, TUTTI_MIN,
                                     TUTTI_MAX, TUTTI_BAND, TUTTI_BOR,     TUTTI_BXOR};
static const char *const memory_names[] = {"group", "plain"};
static const char *const backend_names[] = {"auto", "native", "mpi", "nccl"};

typedef struct line {
    const char *kind, *of[N_FLAGS]; /* texts; NULL: not given */
} line;

/* ---- Texts ---------------------------------------------------------------------------------------------- */

/* The flag, and its value if that is in the same argument. */
static flag_id find_flag(const char *arg, const char **text_p)
{
    size_t bytes = strcspn(arg, "=");

    *text_p = arg[bytes] ? arg + bytes + 1 : NULL;
    if (arg[1] == 'n') { /* -n 2, -n=2, -n2 */
        if (bytes > 2)
            *text_p = arg + 2;
        return N;
    }
    for (int id = 0; id < N_FLAGS; id++)
        if (tutti__flag_is(arg, flag_names[id]))
            return (flag_id)id;
    return N_FLAGS;
}

static bool is_bool(const char *text)
{
    return strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
}

static tutti_status read_texts(line *l, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *text;
        flag_id id;

        if (arg[0] != '-') {
            if (l->kind)
                return tutti__fail(TUTTI_ERR_ARG,
                                   "measures one thing, but there are \"%.60s\" "
                                   "and \"%.60s\"",
                                   l->kind, arg);
            l->kind = arg;
            continue;
        }
        id = find_flag(arg, &text);
        if (id == N_FLAGS)
            return tutti__fail_unknown("flag", "tutti bench", arg, flag_names, N_FLAGS);
        if (!text && (id == ALGORITHMS || id == EXPLAIN) &&
            !is_bool(i + 1 < argc ? argv[i + 1] : ""))
            text = "true";
        if (!text && ++i < argc)
            text = argv[i];
        if (!text)
            return tutti__fail(TUTTI_ERR_ARG, "%.60s needs a value; see tutti bench --help", arg);
        l->of[id] = text;
    }
    return TUTTI_OK;
}

/* ---- Values ------------------------------------------------------------------------------------------- */

static tutti_status read_choice(const line *l, flag_id id, const char *const *names, size_t n,
                                size_t *choice_p)
{
    for (size_t i = 0; i < n; i++)
        if (!l->of[id] || strcasecmp(l->of[id], names[i]) == 0) {
            *choice_p = i; /* the first is the default */
            return TUTTI_OK;
        }
    return tutti__fail_choice(flag_names[id], l->of[id], names, n);
}

static tutti_status read_number(const line *l, flag_id id, int64_t low, int64_t high,
                                int64_t *number_p)
{
    if (!l->of[id])
        return TUTTI_OK;
    if (!tutti__parse_int64(l->of[id], number_p) || *number_p < low || *number_p > high)
        return tutti__fail(TUTTI_ERR_ARG, "%s is \"%.60s\", expected a number from %lld to %lld",
                           flag_names[id], l->of[id], (long long)low, (long long)high);
    return TUTTI_OK;
}

static tutti_status read_kind(const char *text, tutti__bench *b)
{
    const char *names[TUTTI__COUNT_OF(benchmarks)];

    if (!text && b->tune) {
        b->name = "collectives";
        b->kind = TUTTI__OP_ALL_REDUCE;
        b->run = tutti__bench_tune;
        b->tune_all = true;
        return TUTTI_OK;
    }
    if (!text)
        return tutti__fail(TUTTI_ERR_ARG,
                           "what to measure? all_reduce, all_gather, broadcast, ...; see tutti "
                           "bench --help");
    for (size_t i = 0; i < TUTTI__COUNT_OF(benchmarks); i++) {
        names[i] = benchmarks[i].name;
        if (tutti__flag_is(text, names[i])) {
            b->name = names[i];
            b->kind = benchmarks[i].kind;
            b->run = benchmarks[i].run;
            return TUTTI_OK;
        }
    }
    return tutti__fail_unknown("benchmark", "tutti bench", text, names, TUTTI__COUNT_OF(names));
}

/* Rejects flags of another kind of benchmark. */
static tutti_status check_kind_of_flags(const line *l, const tutti__bench *b)
{
    static const char *const names[] = {[MESSAGES] = "what ranks send",
                                        [LOADER] = "loader",
                                        [STEPS] = "step",
                                        [MESSAGES | STEPS] = "what ranks send, and step",
                                        [LOADER | STEPS] = "loader and step"};
    const unsigned kind = b->run == tutti__bench_loader ? LOADER
                          : b->run == tutti__bench_step ? STEPS
                                                        : MESSAGES;

    for (int id = 0; id < N_FLAGS; id++)
        if (l->of[id] && !(users_of((flag_id)id) & kind))
            return tutti__fail(TUTTI_ERR_ARG, "%s is for %s, not for %s", flag_names[id],
                               names[users_of((flag_id)id)], b->name);
    return TUTTI_OK;
}

/* Rejects flags that this collective does not use, instead of ignoring them. */
static tutti_status check_uses(const line *l, const tutti__bench *b, const tutti__op_traits *traits)
{
    if (l->of[OP] && !traits->reduces)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--op is for all_reduce, reduce and reduce_scatter; %s reduces nothing",
                           b->name);
    if (l->of[ROOT] && !traits->from_root && !traits->to_root)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--root is for broadcast, reduce, scatter and gather; %s has none",
                           b->name);
    if (l->of[IN_FLIGHT] && b->run == tutti__bench_ping_pong)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--in-flight is for calls at once; in %s one waits for another; see "
                           "send_recv",
                           b->name);
    if (b->kind == TUTTI__OP_BARRIER && (l->of[SIZES] || l->of[DTYPE] || l->of[MEMORY]))
        return tutti__fail(TUTTI_ERR_ARG,
                           "--sizes, --dtype and --memory say what is moved; barrier moves "
                           "nothing");
    return TUTTI_OK;
}

static tutti_status check_redop(const tutti__bench *b, bool real)
{
    if (b->redop == TUTTI_AVG && !real)
        return tutti__fail(TUTTI_ERR_ARG, "--op avg is for f32, f64, f16 and bf16, not %s",
                           b->dtype_name);
    if (b->redop >= TUTTI_BAND && real)
        return tutti__fail(TUTTI_ERR_ARG, "--op %s is for i8 to i64 and u8 to u64, not %s",
                           b->redop_name, b->dtype_name);
    return TUTTI_OK;
}

/* "1,2,4" */
static tutti_status read_workers(const char *text, tutti__bench_data *data)
{
    for (const char *next = text;; next++) {
        size_t length = strcspn(next, ",");
        char number[24];
        int64_t n = -1;

        snprintf(number, sizeof number, "%.*s", length < 20 ? (int)length : 20, next);
        if (!tutti__parse_int64(number, &n) || n < 0 || n > 256 ||
            data->n_workers == TUTTI__BENCH_WORKERS)
            return tutti__fail(TUTTI_ERR_ARG,
                               "--workers is \"%.60s\", expected up to %d numbers from 0 to 256, "
                               "such as 1,2,4",
                               text, TUTTI__BENCH_WORKERS);
        data->workers[data->n_workers++] = (int)n;
        next += length;
        if (!*next)
            return TUTTI_OK;
    }
}

static tutti_status read_bool(const line *l, flag_id id, bool *value_p)
{
    static const char *const names[] = {"true", "false", "on", "off", "1", "0"};
    size_t choice;

    if (!l->of[id])
        return TUTTI_OK;
    TUTTI_TRY(read_choice(l, id, names, TUTTI__COUNT_OF(names), &choice));
    *value_p = choice % 2 == 0;
    return TUTTI_OK;
}

static tutti_status read_data(const line *l, tutti__bench_data *data)
{
    int64_t image_size = 0, batch = 32, prefetch = 0;

    TUTTI_TRY(read_number(l, IMAGE_SIZE, 0, 8192, &image_size));
    TUTTI_TRY(read_number(l, BATCH_SIZE, 1, 1000000, &batch));
    TUTTI_TRY(read_number(l, PREFETCH, 0, 1024, &prefetch));
    TUTTI_TRY(read_workers(l->of[WORKERS] ? l->of[WORKERS] : "1", data));
    data->name = l->of[DATA] ? l->of[DATA] : "digits";
    data->dir = l->of[DATA_DIR] ? l->of[DATA_DIR] : "";
    data->split = l->of[SPLIT] ? l->of[SPLIT] : "train";
    data->image_size = (int)image_size;
    data->batch = (int)batch;
    data->prefetch = (int)prefetch;
    data->augment = true;
    TUTTI_TRY(read_bool(l, AUGMENT, &data->augment));
    data->seconds = 3;
    if (l->of[SECONDS] && (!tutti__parse_double(l->of[SECONDS], &data->seconds) ||
                           !(data->seconds > 0 && data->seconds <= 86400)))
        return tutti__fail(TUTTI_ERR_ARG, "--seconds is \"%.60s\", expected above 0, up to 86400",
                           l->of[SECONDS]);
    return TUTTI_OK;
}

/* What `tutti train` says of these keys. */
static tutti_status check_data(const line *l, tutti__bench *b)
{
    static const flag_id keys[] = {DATA, DATA_DIR, IMAGE_SIZE};
    char *argv[2 * TUTTI__COUNT_OF(keys)];
    int argc = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(keys); i++)
        if (l->of[keys[i]]) {
            argv[argc++] = (char *)(uintptr_t)flag_names[keys[i]];
            argv[argc++] = (char *)(uintptr_t)l->of[keys[i]];
        }
    return tutti__config_read(&b->config, &b->parts, argc, argv);
}

/* Keys of `tutti train`, with other defaults that make steps comparable: no files, no evaluation. */
static tutti_status read_step(const line *l, tutti__bench *b)
{
    static const char *const fixed[] = {"--data",          "synthetic", "--augment",    "off",
                                        "--workers",       "0",         "--eval-every", "0",
                                        "--schedule",      "constant",  "--epochs",     "1000000",
                                        "--warmup-epochs", "0"};
    char *argv[TUTTI__COUNT_OF(fixed) + 2 * N_FLAGS];
    int argc = 0;

    for (size_t i = 0; i < TUTTI__COUNT_OF(fixed); i++)
        argv[argc++] = (char *)(uintptr_t)fixed[i];
    for (int id = BATCH_SIZE; id < LAYERS; id++)
        if (l->of[id]) {
            argv[argc++] = (char *)(uintptr_t)flag_names[id];
            argv[argc++] = (char *)(uintptr_t)l->of[id];
        }
    TUTTI_TRY(read_bool(l, LAYERS, &b->layers));
    return tutti__config_read(&b->config, &b->parts, argc, argv);
}

/* Of collectives: whether their algorithms are compared, explained, or tuned. */
static tutti_status read_algorithms(const line *l, tutti__bench *b)
{
    TUTTI_TRY(read_bool(l, ALGORITHMS, &b->algorithms));
    TUTTI_TRY(read_bool(l, EXPLAIN, &b->explain));
    if (!b->algorithms && !b->explain && !b->tune)
        return TUTTI_OK;
    if (b->run != tutti__bench_collective && b->run != tutti__bench_tune)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--algorithms, --explain and --tune are for collectives, not for %s",
                           b->name);
    if (b->algorithms + b->explain + (b->tune != NULL) > 1 || (b->tune && l->of[IN_FLIGHT]))
        return tutti__fail(TUTTI_ERR_ARG,
                           "--algorithms, --explain and --tune exclude each other, and "
                           "--tune measures one call at a time");
    b->run = b->tune ? tutti__bench_tune : tutti__bench_algorithms;
    if (!b->tune)
        return TUTTI_OK;
    if (!l->of[ITERATIONS])
        b->iterations = 20;
    return tutti__output_check("--tune", b->tune);
}

static tutti_status read_line(line *l, tutti__bench *b, int64_t *n_p)
{
    size_t dtype = 0, redop = 0, memory = 0, backend = 0;
    const tutti__op_traits *traits;
    const char *sizes = l->of[SIZES]  ? l->of[SIZES]
                        : l->of[TUNE] ? "4,64,1K,4K,16K,64K,256K,1M,4M"
                                      : "4,4K,64K,1M,25M";
    int64_t root = 0;

    b->tune = l->of[TUNE];
    TUTTI_TRY(read_kind(l->kind, b));
    TUTTI_TRY(check_kind_of_flags(l, b));
    traits = tutti__op_traits_of(&(tutti__operation){.signature.op = (uint8_t)b->kind});
    TUTTI_TRY(check_uses(l, b, traits));
    if (l->of[N])
        TUTTI_TRY(tutti__nproc_parse(l->of[N], n_p));
    TUTTI_TRY(tutti__sizes_read(&b->sizes, "--sizes", b->kind == TUTTI__OP_BARRIER ? "1" : sizes,
                                "tutti bench barrier measures a call without data"));
    TUTTI_TRY(read_choice(l, DTYPE, dtype_names, TUTTI__COUNT_OF(dtype_names), &dtype));
    TUTTI_TRY(read_choice(l, OP, redop_names, TUTTI__COUNT_OF(redop_names), &redop));
    TUTTI_TRY(read_choice(l, MEMORY, memory_names, TUTTI__COUNT_OF(memory_names), &memory));
    TUTTI_TRY(read_choice(l, BACKEND, backend_names, TUTTI__COUNT_OF(backend_names), &backend));
    TUTTI_TRY(read_number(l, ROOT, 0, *n_p > 0 ? *n_p - 1 : INT32_MAX, &root));
    TUTTI_TRY(read_number(l, IN_FLIGHT, 1, 100000, &b->in_flight));
    TUTTI_TRY(read_number(l, ITERATIONS, 1, 100000000, &b->iterations));
    TUTTI_TRY(read_number(l, WARMUP, 1, 100000000, &b->warmup));
    b->dtype = dtypes[dtype];
    b->dtype_name = dtype_names[dtype];
    b->redop = redops[redop];
    b->redop_name = traits->reduces ? redop_names[redop] : "none";
    b->root = (int)root;
    b->group_memory = memory == 0;
    tutti__backend_parse(backend_names[backend], &b->backend);
    if (b->backend == TUTTI_BACKEND_MPI && *n_p > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--backend mpi needs mpirun, which -n does not start: mpirun -n %lld "
                           "tutti bench %s --backend mpi",
                           (long long)*n_p, b->name);
    if (b->backend == TUTTI_BACKEND_NCCL && b->run != tutti__bench_step)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--backend nccl is for step: the buffers of %s are the host's, which "
                           "NCCL does not move",
                           b->name);
    TUTTI_TRY(read_algorithms(l, b));
    if (b->run == tutti__bench_loader) {
        TUTTI_TRY(read_data(l, &b->data));
        TUTTI_TRY(check_data(l, b));
    }
    if (b->run == tutti__bench_step)
        TUTTI_TRY(read_step(l, b));
    b->json = l->of[JSON];
    if (b->json)
        TUTTI_TRY(tutti__output_check("--json", b->json));
    return check_redop(b, dtype < FLOATS);
}

/* ---- Running -------------------------------------------------------------------------------------------- */

static int launch(const line *l, const tutti__bench *b, int64_t n)
{
    char *argv[3 + 2 * N_FLAGS + 1] = {(char[]){"tutti"}, (char[]){"bench"}, (char *)l->kind};
    tutti_status status = b->json ? tutti__output_try(b->json) : TUTTI_OK;
    int argc = l->kind ? 3 : 2;

    if (status == TUTTI_OK && b->tune)
        status = tutti__output_try(b->tune);
    if (status != TUTTI_OK) {
        fprintf(stderr, "tutti bench: %s\n", tutti_last_error());
        return tutti_status_exit_code(status);
    }
    for (int id = N + 1; id < N_FLAGS; id++)
        if (l->of[id]) {
            argv[argc++] = (char *)flag_names[id];
            argv[argc++] = (char *)l->of[id];
        }
    return tutti__launch(&(tutti__launch_opts){
        .title = "tutti bench", .argv = argv, .n = (int)n, .rank0_direct = true});
}

/* All ranks of a host have the same error; only one prints it. */
static bool speaks(void)
{
    return tutti__launcher_find().first_on_host;
}

static tutti_status check_launcher(const line *l, int64_t n)
{
    char title[64];

    snprintf(title, sizeof title, "tutti bench %s", l->kind);
    return tutti__nproc_check(title, n);
}

/* In the group that the environment describes. */
static tutti_status run(const tutti__bench *b, int64_t *wrong_p)
{
    tutti__bench_table table;
    tutti_group *group;
    tutti_status status;

    TUTTI_TRY(tutti_group_init(&group, &(tutti_group_opts){.backend = b->backend}));
    status = tutti__group_agree(group, tutti__bench_table_open(&table, b, group));
    if (status == TUTTI_OK)
        status = b->run(&table, wrong_p);
    status = tutti__bench_table_close(&table, status);
    tutti_group_free(group);
    return status;
}

static int measure(const tutti__bench *b)
{
    int64_t wrong = 0;
    tutti_status status = run(b, &wrong);

    if (status != TUTTI_OK) {
        fprintf(stderr, "tutti bench: %s\n", tutti_last_error());
        tutti__error_file_write(tutti_status_scope(status) != TUTTI_SCOPE_GROUP,
                                tutti_last_error());
        return tutti_status_exit_code(status);
    }
    if (wrong == 0)
        return 0;
    tutti__fail(TUTTI_ERR_INTERNAL, "%lld %s wrong: a defect of Tutti, or of this machine",
                (long long)wrong,
                b->run == tutti__bench_step ? "ranks' parameters were" : "elements were");
    tutti__error_file_write(true, tutti_last_error());
    if (speaks())
        fprintf(stderr, "tutti bench: %s\n", tutti_last_error());
    return 1;
}

int tutti__cli_bench(int argc, char **argv)
{
    tutti__bench b = {.warmup = 5};
    line l = {0};
    int64_t n = 0;

    if (argc > 1 && strcmp(argv[1], "reproduce") == 0)
        return tutti__bench_reproduce(argc - 1, argv + 1);
    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    if (read_texts(&l, argc, argv) != TUTTI_OK || read_line(&l, &b, &n) != TUTTI_OK ||
        check_launcher(&l, n) != TUTTI_OK) {
        if (speaks())
            fprintf(stderr, "tutti bench: %s\n", tutti_last_error());
        tutti__error_file_write_usage(true, tutti_last_error());
        return 2;
    }
    return n > 0 ? launch(&l, &b, n) : measure(&b);
}

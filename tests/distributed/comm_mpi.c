/* comm: backend mpi, under each installed mpirun: results of every collective; making and freeing groups; failures.
 * SPDX-License-Identifier: MIT
 * timeout: 300 (a quarter of a minute alone; beside other programs a minute or two, since MPICH spins while it waits)
 *
 * With the name of a case the program is a rank; without, it starts itself under mpirun. */
#include "base/half.h"
#include "harness/emulator.h"
#include "harness/ranks.h"
#include "harness/values.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { CHUNK = 1024 }; /* bytes */

/* ---- Values: small numbers of both signs, whose sums are exact except for thirds -------------------------- */

static double get(tutti_dtype dtype, const void *p, size_t i)
{
    switch (dtype) {
    case TUTTI_F32:
        return (double)((const float *)p)[i];
    case TUTTI_F64:
        return ((const double *)p)[i];
    case TUTTI_F16:
        return (double)tutti__f32_of_f16(((const uint16_t *)p)[i]);
    case TUTTI_BF16:
        return (double)tutti__f32_of_bf16(((const uint16_t *)p)[i]);
    case TUTTI_I8:
        return ((const int8_t *)p)[i];
    case TUTTI_U8:
        return ((const uint8_t *)p)[i];
    case TUTTI_I16:
        return ((const int16_t *)p)[i];
    case TUTTI_U16:
        return ((const uint16_t *)p)[i];
    case TUTTI_U32:
        return ((const uint32_t *)p)[i];
    case TUTTI_U64:
        return (double)((const uint64_t *)p)[i];
    case TUTTI_I32:
        return ((const int32_t *)p)[i];
    case TUTTI_I64:
        return (double)((const int64_t *)p)[i];
    }
    return NAN;
}

static double fold(tutti_redop op, double a, double x)
{
    switch (op) {
    case TUTTI_PRODUCT:
        return a * x;
    case TUTTI_MIN:
        return x < a ? x : a;
    case TUTTI_MAX:
        return x > a ? x : a;
    case TUTTI_BAND:
        return (double)((int64_t)a & (int64_t)x);
    case TUTTI_BOR:
        return (double)((int64_t)a | (int64_t)x);
    case TUTTI_BXOR:
        return (double)((int64_t)a ^ (int64_t)x);
    default:
        return a + x;
    }
}

static double reduced(tutti_dtype dtype, tutti_redop op, int size, size_t i)
{
    char stored[8] = {0};
    double a = test_value(dtype, 0, i);

    for (int r = 1; r < size; r++)
        a = fold(op, a, test_value(dtype, r, i));
    test_put(dtype, stored, 0, op == TUTTI_AVG ? a / size : a);
    return get(dtype, stored, 0);
}

static bool is_float(tutti_dtype dtype)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

/* ---- Collectives ------------------------------------------------------------------------------------------------ */

typedef struct stand {
    tutti_group *group;
    int rank, size;
    tutti_dtype dtype;
    size_t n;         /* elements of a piece */
    char *part, *all; /* of a piece; of one of each rank */
    bool same;        /* the part is at its place in `all` */
} stand;

static tutti_buf part(const stand *s)
{
    return TUTTI_BUF(s->same ? s->all + (size_t)s->rank * s->n * tutti_dtype_size(s->dtype)
                             : s->part,
                     s->n, s->dtype);
}

static tutti_buf all(const stand *s)
{
    return TUTTI_BUF(s->all, s->n * (size_t)s->size, s->dtype);
}

static void fill(tutti_buf buf, int rank, size_t first)
{
    for (size_t i = 0; i < buf.count; i++)
        test_put(buf.dtype, buf.p, i, test_value(buf.dtype, rank, first + i));
}

static bool holds(tutti_buf buf, int rank, size_t first)
{
    for (size_t i = 0; i < buf.count; i++)
        if (get(buf.dtype, buf.p, i) != test_value(buf.dtype, rank, first + i))
            return false;
    return true;
}

static tutti_buf piece(const stand *s, int r)
{
    return TUTTI_BUF(s->all + (size_t)r * s->n * tutti_dtype_size(s->dtype), s->n, s->dtype);
}

static int reductions(const stand *s, tutti_redop op)
{
    int root = s->size - 1;
    size_t first = (size_t)s->rank * s->n;

    fill(part(s), s->rank, 0);
    CHECK(tutti_all_reduce(s->group, part(s), op, NULL) == TUTTI_OK);
    for (size_t i = 0; i < s->n; i++)
        CHECK(get(s->dtype, part(s).p, i) == reduced(s->dtype, op, s->size, i));
    fill(part(s), s->rank, 0);
    CHECK(tutti_reduce(s->group, part(s), op, root, NULL) == TUTTI_OK);
    for (size_t i = 0; i < s->n && s->rank == root; i++)
        CHECK(get(s->dtype, part(s).p, i) == reduced(s->dtype, op, s->size, i));
    fill(piece(s, 0), s->rank, 0); /* from memory that stays as it is */
    CHECK(tutti_all_reduce_from(s->group, tutti_buf_const(piece(s, 0)), part(s), op, NULL) ==
          TUTTI_OK);
    for (size_t i = 0; i < s->n; i++)
        CHECK(get(s->dtype, part(s).p, i) == reduced(s->dtype, op, s->size, i));
    fill(part(s), s->rank, 0);
    CHECK(tutti_reduce_from(s->group, tutti_buf_const(piece(s, 0)),
                            s->rank == root ? part(s) : (tutti_buf){0}, op, root,
                            NULL) == TUTTI_OK);
    for (size_t i = 0; i < s->n && s->rank == root; i++)
        CHECK(get(s->dtype, part(s).p, i) == reduced(s->dtype, op, s->size, i));
    CHECK(holds(piece(s, 0), s->rank, 0));
    fill(all(s), s->rank, 0);
    CHECK(tutti_reduce_scatter(s->group, tutti_buf_const(all(s)), part(s), op, NULL) == TUTTI_OK);
    for (size_t i = 0; i < s->n; i++)
        CHECK(get(s->dtype, part(s).p, i) == reduced(s->dtype, op, s->size, first + i));
    return 0;
}

/* Each rank's own factor, of sums that are exact. */
static int factors(const stand *s)
{
    tutti_call call = {.kind = TUTTI_CALL_ALL_REDUCE, .dst = part(s), .scale = 0.5 * (s->rank + 1)};

    for (int kind = TUTTI_CALL_ALL_REDUCE; is_float(s->dtype) && kind <= TUTTI_CALL_REDUCE_SCATTER;
         kind++) {
        bool scatters = kind == TUTTI_CALL_REDUCE_SCATTER;
        size_t first = scatters ? (size_t)s->rank * s->n : 0;

        fill(scatters ? all(s) : part(s), s->rank, 0);
        call.kind = (tutti_call_kind)kind;
        call.src = scatters ? tutti_buf_const(all(s)) : (tutti_const_buf){0};
        CHECK(tutti_group_call(s->group, &call, NULL) == TUTTI_OK);
        if (kind == TUTTI_CALL_REDUCE && s->rank != 0)
            CHECK(holds(part(s), s->rank, 0));
        for (size_t i = 0; i < s->n && (kind != TUTTI_CALL_REDUCE || s->rank == 0); i++) {
            double sum = 0;

            for (int r = 0; r < s->size; r++)
                sum += 0.5 * (r + 1) * test_value(s->dtype, r, first + i);
            CHECK(get(s->dtype, part(s).p, i) == sum);
        }
    }
    return 0;
}

static int moves(const stand *s)
{
    const tutti_buf none = {NULL, 0, s->dtype, NULL};
    int root = s->size / 2;

    fill(part(s), s->rank, 0);
    CHECK(tutti_broadcast(s->group, part(s), root, NULL) == TUTTI_OK);
    CHECK(holds(part(s), root, 0));
    memset(s->all, 0, all(s).count * tutti_dtype_size(s->dtype));
    fill(part(s), s->rank, 0);
    CHECK(tutti_all_gather(s->group, tutti_buf_const(part(s)), all(s), NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++)
        CHECK(holds(piece(s, r), r, 0));
    memset(s->all, 0, all(s).count * tutti_dtype_size(s->dtype));
    fill(part(s), s->rank, 0);
    CHECK(tutti_gather(s->group, tutti_buf_const(part(s)), s->rank == root ? all(s) : none, root,
                       NULL) == TUTTI_OK);
    for (int r = 0; r < s->size && s->rank == root; r++)
        CHECK(holds(piece(s, r), r, 0));
    fill(all(s), root, 0);
    CHECK(tutti_scatter(s->group, tutti_buf_const(s->rank == root ? all(s) : none), part(s), root,
                        NULL) == TUTTI_OK);
    CHECK(holds(part(s), root, (size_t)s->rank * s->n));
    return 0;
}

static int exchanges(const stand *s)
{
    size_t element = tutti_dtype_size(s->dtype), src_counts[16], dst_counts[16], at = 0, in = 0;
    char *other = calloc(all(s).count + 64, element);
    tutti_buf src = {other, all(s).count, s->dtype, NULL};

    CHECK(other);
    fill(src, s->rank, 0);
    CHECK(tutti_all_to_all(s->group, tutti_buf_const(src), all(s), NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++)
        CHECK(holds(piece(s, r), r, (size_t)s->rank * s->n));
    /* Rank a sends rank b (a + b) modulo 3 elements less than n. */
    src.count = 0;
    for (int r = 0; r < s->size; r++) {
        size_t less = (size_t)(s->rank + r) % 3 % (s->n + 1);

        src_counts[r] = dst_counts[r] = s->n - less;
        src.count += src_counts[r];
    }
    CHECK(tutti_all_to_all_v(s->group, tutti_buf_const(src), src_counts,
                             TUTTI_BUF(s->all, src.count, s->dtype), dst_counts, NULL) == TUTTI_OK);
    for (int r = 0; r < s->size; r++) {
        tutti_buf got = {s->all + at * element, dst_counts[r], s->dtype, NULL};
        size_t first = 0;

        for (int b = 0; b < s->rank; b++)
            first += s->n - (size_t)(r + b) % 3 % (s->n + 1);
        CHECK(holds(got, r, first));
        at += got.count;
    }
    for (int r = 0; r < s->size; r++)
        in += dst_counts[r] = (size_t)r % (s->n + 1);
    src.count = dst_counts[s->rank];
    CHECK(tutti_all_gather_v(s->group, tutti_buf_const(src), TUTTI_BUF(s->all, in, s->dtype),
                             dst_counts, NULL) == TUTTI_OK);
    at = 0;
    for (int r = 0; r < s->size; r++) {
        CHECK(holds(TUTTI_BUF(s->all + at * element, dst_counts[r], s->dtype), r, 0));
        at += dst_counts[r];
    }
    free(other);
    return 0;
}

static int collectives(tutti_group *group)
{
    stand s = {.group = group, .rank = tutti_group_rank(group), .size = tutti_group_size(group)};
    size_t n = (size_t)s.size;
    /* what is added, and how, is not MPI's */
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_U8, TUTTI_I64};
    const size_t counts[] = {0, 1, n - 1, n, 7, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3};

    CHECK(tutti_group_alloc(group, 8 * counts[8], (void **)&s.part) == TUTTI_OK);
    s.all = malloc(8 * n * counts[8]);
    CHECK(s.all);
    for (size_t k = 0; k < TUTTI__COUNT_OF(counts); k++)
        for (size_t d = 0; d < TUTTI__COUNT_OF(dtypes); d++) {
            s.n = counts[k];
            s.dtype = dtypes[d];
            s.same = (k + d) % 2 == 0;
            CHECK(reductions(&s, TUTTI_SUM) == 0);
            CHECK(reductions(&s, is_float(s.dtype) ? TUTTI_AVG : TUTTI_BXOR) == 0);
            CHECK(factors(&s) == 0);
            CHECK(moves(&s) == 0);
            CHECK(exchanges(&s) == 0);
            CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        }
    tutti_group_release(group, s.part);
    free(s.all);
    return 0;
}

/* A NaN of any rank reaches all, in every reduction. */
static int nan_wins(tutti_group *group)
{
    for (int op = TUTTI_SUM; op <= TUTTI_MAX; op++) {
        double x[2] = {1, tutti_group_rank(group) == 1 ? NAN : -1};
        uint16_t half[2] = {tutti__bf16_of_f32(1), tutti__bf16_of_f32((float)x[1])};

        CHECK(tutti_all_reduce(group, TUTTI_BUF(x, 2, TUTTI_F64), (tutti_redop)op, NULL) ==
              TUTTI_OK);
        CHECK(!isnan(x[0]) && isnan(x[1]));
        CHECK(tutti_all_reduce(group, TUTTI_BUF(half, 2, TUTTI_BF16), (tutti_redop)op, NULL) ==
              TUTTI_OK);
        CHECK(isnan(tutti__f32_of_bf16(half[1])));
    }
    return 0;
}

/* Over the control channel, beside collectives in flight: small (eager), and large (rendezvous). */
static int messages(tutti_group *group)
{
    enum { N = 1 << 18 };
    static int32_t sent[N], received[N], summed[33];
    const int size = tutti_group_size(group), rank = tutti_group_rank(group);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    tutti_work *work, *reduced;

    for (size_t n = 1; n <= N; n *= N) {
        for (size_t k = 0; k < n; k++)
            sent[k] = (int32_t)k + rank;
        CHECK(tutti_all_reduce(group, TUTTI_BUF(summed, 33, TUTTI_I32), TUTTI_SUM, &reduced) ==
              TUTTI_OK);
        CHECK(tutti_recv(group, TUTTI_BUF(received, n, TUTTI_I32), TUTTI_ANY_RANK, 7, &work) ==
              TUTTI_OK);
        CHECK(tutti_send(group, TUTTI_CONST_BUF(sent, n, TUTTI_I32), next, 7, NULL) == TUTTI_OK);
        CHECK(tutti_work_source(work) == previous);
        CHECK(tutti_work_wait(work) == TUTTI_OK);
        for (size_t k = 0; k < n; k++)
            CHECK(received[k] == (int32_t)k + previous);
        CHECK(tutti_work_wait(reduced) == TUTTI_OK);
        CHECK(tutti_monitored_barrier(group, 0, true) == TUTTI_OK);
    }
    return 0;
}

/* ---- Groups ------------------------------------------------------------------------------------------------------- */

enum { IN_FLIGHT = 300 };

static int many_in_flight(tutti_group *a, tutti_group *b)
{
    static float x[2][IN_FLIGHT][33];
    tutti_work *work[2][IN_FLIGHT];
    int size = tutti_group_size(a);

    for (int i = 0; i < IN_FLIGHT; i++)
        for (int g = 0; g < 2; g++) {
            for (int k = 0; k < 33; k++)
                x[g][i][k] = (float)(i + k + g);
            CHECK(tutti_all_reduce(g ? b : a, TUTTI_BUF(x[g][i], 33, TUTTI_F32), TUTTI_SUM,
                                   &work[g][i]) == TUTTI_OK);
        }
    for (int i = 0; i < IN_FLIGHT; i++)
        for (int g = 1; g >= 0; g--) {
            CHECK(tutti_work_wait(work[g][i]) == TUTTI_OK);
            for (int k = 0; k < 33; k++)
                CHECK(x[g][i][k] == (float)(size * (i + k + g)));
        }
    return 0;
}

static bool on_hosts; /* two ranks each */

static int host_of_this(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    rank = rank ? rank : getenv("PMI_RANK");
    return rank && on_hosts ? 1 + atoi(rank) / 2 : 0;
}

static int group_of(tutti_group **group, const char *name, int timeout_ms)
{
    const tutti_group_opts opts = {
        .name = name, .timeout_ms = timeout_ms, .backend = TUTTI_BACKEND_MPI};

    CHECK(tutti__group_init(group, &opts,
                            &(tutti__tuning){.chunk_bytes = CHUNK, .host = host_of_this()}) ==
          TUTTI_OK);
    CHECK(strcmp(tutti_group_transport_name(*group), on_hosts ? "shared memory + mpi" : "mpi") ==
          0);
    return 0;
}

static int groups(tutti_group *group)
{
    int size = tutti_group_size(group), rank = tutti_group_rank(group), backwards[16];

    for (int r = 0; r < size; r++)
        backwards[r] = size - 1 - r;
    for (int i = 0; i < 4; i++) {
        tutti_group *again, *turned, *pair = NULL;
        int64_t x = rank;

        CHECK(group_of(&again, "again", 0) == 0);
        CHECK(tutti_group_split(again, backwards, size, "turned", &turned) == TUTTI_OK);
        CHECK(tutti_group_rank(turned) == size - 1 - rank);
        CHECK(many_in_flight(again, turned) == 0);
        CHECK(tutti_group_split(turned, (int[]){0, size - 1}, 2, "pair", &pair) == TUTTI_OK);
        CHECK((pair != NULL) == (rank == 0 || rank == size - 1));
        if (pair) {
            CHECK(tutti_broadcast(pair, TUTTI_BUF(&x, 1, TUTTI_I64), 0, NULL) == TUTTI_OK);
            CHECK(x == size - 1);
        }
        if (i % 2)
            tutti_group_free(again);
        tutti_group_free(pair);
        tutti_group_free(turned);
        if (i % 2 == 0)
            tutti_group_free(again);
    }
    return many_in_flight(group, group);
}

/* ---- Failures: the group dies, all ranks get the cause, and another group can be made ----------------------------------------------- */

static int goes_on(void)
{
    tutti_group *group;
    int size;

    CHECK(group_of(&group, "afterwards", 0) == 0);
    size = tutti_group_size(group);
    CHECK(many_in_flight(group, group) == 0 && size > 1);
    tutti_group_free(group);
    return 0;
}

/* *flag becomes whether it is set on any rank. */
static int any_rank(int32_t *flag)
{
    tutti_group *group;

    CHECK(group_of(&group, "flags", 0) == 0);
    CHECK(tutti_all_reduce(group, TUTTI_BUF(flag, 1, TUTTI_I32), TUTTI_MAX, NULL) == TUTTI_OK);
    tutti_group_free(group);
    return 0;
}

static bool says(tutti_status status, tutti_status expected, const char *text)
{
    if (status == expected && strstr(tutti_last_error(), text))
        return true;
    fprintf(stderr, "%s \"%s\" instead of \"%s\"\n", tutti_status_name(status), tutti_last_error(),
            text);
    return false;
}

static int mismatch(tutti_group *group)
{
    float x[8] = {0};
    bool odd = tutti_group_rank(group) == 1;

    CHECK(says(tutti_all_reduce(group, TUTTI_BUF(x, odd ? 5 : 8, TUTTI_F32), TUTTI_SUM, NULL),
               TUTTI_ERR_MISMATCH, "rank 1 called all_reduce #1 (F32 x 5"));
    CHECK(strstr(tutti_last_error(), "called all_reduce #1 (F32 x 8"));
    CHECK(tutti_barrier(group, NULL) == TUTTI_ERR_MISMATCH);
    tutti_group_free(group);
    return goes_on();
}

static int wrong_counts(tutti_group *group)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    size_t give[16], take[16];
    float src[64] = {0}, dst[64];
    tutti_status status;

    for (int r = 0; r < size; r++)
        give[r] = take[r] = 2;
    if (rank == 2)
        take[1] = 3;
    /* only rank 2 cannot complete it: the others hear of it in that call or the next */
    status =
        tutti_all_to_all_v(group, TUTTI_CONST_BUF(src, 2 * (size_t)size, TUTTI_F32), give,
                           TUTTI_BUF(dst, 2 * (size_t)size + (rank == 2), TUTTI_F32), take, NULL);
    CHECK(rank != 2 || status != TUTTI_OK);
    if (status == TUTTI_OK)
        status = tutti_barrier(group, NULL);
    CHECK(says(status, TUTTI_ERR_MISMATCH, "rank 1 sends rank 2 2 elements, but rank 2 expects 3"));
    tutti_group_free(group);
    return goes_on();
}

static int aborted(tutti_group *group)
{
    double begin = tutti__now_ms();

    if (tutti_group_rank(group) == 1)
        tutti_group_abort(group, "the disk %s", "burns");
    CHECK(says(tutti_barrier(group, NULL), TUTTI_ERR_ABORTED, "said: the disk burns"));
    CHECK(tutti__now_ms() - begin < TUTTI_LATE_MS);
    tutti_group_free(group);
    return goes_on();
}

/* When rank 1 leaves, a slow rank may be in the call before, which then returns it. */
static int has_left(tutti_group *group)
{
    double begin = tutti__now_ms();
    tutti_status status = tutti_barrier(group, NULL);

    if (tutti_group_rank(group) == 1) {
        CHECK(status == TUTTI_OK);
        tutti_group_free(group);
        return goes_on();
    }
    if (status == TUTTI_OK)
        status = tutti_barrier(group, NULL);
    CHECK(says(status, TUTTI_ERR_PEER, "has left the group"));
    CHECK(tutti__now_ms() - begin < TUTTI_LATE_MS);
    tutti_group_free(group);
    return goes_on();
}

static int late(tutti_group *group)
{
    float x[CHUNK] = {0};
    double begin = tutti__now_ms();

    CHECK(tutti_barrier(group, NULL) == TUTTI_OK); /* the limit is not for setup */
    CHECK(tutti_group_set_timeout(group, 500) == TUTTI_OK);
    if (tutti_group_rank(group) == 1)
        while (tutti_group_status(group) == TUTTI_OK && tutti__now_ms() - begin < TUTTI_LATE_MS)
            usleep(1000); /* until the others have timed out */
    CHECK(says(tutti_all_reduce(group, TUTTI_BUF(x, CHUNK, TUTTI_F32), TUTTI_SUM, NULL),
               TUTTI_ERR_TIMEOUT, " 0.5 s waiting for rank 1 ("));
    CHECK(tutti__now_ms() - begin < TUTTI_LATE_MS);
    tutti_group_free(group);
    return goes_on();
}

/* ---- A rank that is stopped in the middle of an operation: the others' buffers are not accessed after their call has failed ---- */

enum { LARGE = 8 << 20, POISON = 0x5a }; /* floats; a byte */

typedef struct interruption {
    bool gathers;    /* else reduces */
    bool from_group; /* memory of tutti_group_alloc */
    bool unmaps;     /* after the failure; else poisons */
} interruption;

static tutti_status begin_large(tutti_group *group, bool gathers, float *p, tutti_work **work)
{
    size_t n = LARGE / (size_t)tutti_group_size(group);

    if (gathers)
        return tutti_all_gather(
            group, TUTTI_CONST_BUF(p + n * (size_t)tutti_group_rank(group), n, TUTTI_F32),
            TUTTI_BUF(p, n * (size_t)tutti_group_size(group), TUTTI_F32), work);
    return tutti_all_reduce(group, TUTTI_BUF(p, LARGE, TUTTI_F32), TUTTI_SUM, work);
}

static bool is_stopped(int pid)
{
    char path[64], state = '?';
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    f = fopen(path, "r");
    if (f) {
        if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
            state = '?';
        fclose(f);
    }
    return state == 'T';
}

/* Rank 1 stops itself once it sees the first data of others, until rank 0 continues it. *late_p: this rank's call was done
 * before. */
static int be_interrupted(tutti_group *group, const interruption *how, float *p, int32_t *late_p)
{
    volatile float *first = p;
    double begin = tutti__now_ms();
    int32_t pids[16], pid = getpid();
    tutti_work *work;

    CHECK(tutti_all_gather(group, TUTTI_CONST_BUF(&pid, 1, TUTTI_I32),
                           TUTTI_BUF(pids, (size_t)tutti_group_size(group), TUTTI_I32),
                           NULL) == TUTTI_OK);
    CHECK(tutti_group_set_timeout(group, 500) == TUTTI_OK);
    CHECK(begin_large(group, how->gathers, p, &work) == TUTTI_OK);
    if (tutti_group_rank(group) == 1) {
        while (*first == 1 && tutti__now_ms() - begin < 20000)
            ;
        CHECK(*first != 1);
        kill(pid, SIGSTOP);
    }
    *late_p = tutti_work_wait(work) == TUTTI_OK;
    if (how->unmaps)
        CHECK(mmap(p, LARGE * sizeof *p, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == (void *)p);
    else
        memset(p, POISON, LARGE * sizeof *p);
    if (tutti_group_rank(group) == 0) {
        while (!is_stopped(pids[1]) && tutti__now_ms() - begin < 30000)
            sched_yield();
        CHECK(kill(pids[1], SIGCONT) == 0);
    }
    return 0;
}

/* *late_p: the stop came when the call of some rank was done already. */
static int interrupt(const interruption *how, int32_t *late_p)
{
    tutti_group *group;
    void *p = NULL;

    CHECK(tutti_group_init(&group, &(tutti_group_opts){.name = "interrupted",
                                                       .backend = TUTTI_BACKEND_MPI}) == TUTTI_OK);
    if (how->from_group)
        CHECK(tutti_group_alloc(group, LARGE * sizeof(float), &p) == TUTTI_OK);
    else
        p = mmap(NULL, LARGE * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                 -1, 0);
    CHECK(p && p != MAP_FAILED);
    for (size_t i = 0; i < LARGE; i++)
        ((float *)p)[i] = tutti_group_rank(group) == 0 ? 2 : 1;
    CHECK(be_interrupted(group, how, p, late_p) == 0);
    CHECK(goes_on() == 0);
    CHECK(any_rank(late_p) == 0);
    for (size_t i = 0; i < LARGE * sizeof(float) && !how->unmaps; i++)
        CHECK(((char *)p)[i] == POISON);
    if (!how->from_group)
        munmap(p, LARGE * sizeof(float));
    tutti_group_free(group);
    return 0;
}

static int interrupted(tutti_group *group)
{
    static const interruption ways[] = {
        {false, false, false}, {false, true, false}, {true, false, true}};

    tutti_group_free(group);
    for (size_t i = 0; i < TUTTI__COUNT_OF(ways); i++) {
        int32_t late = 1;

        for (int attempt = 0; attempt < 5 && late; attempt++)
            CHECK(interrupt(&ways[i], &late) == 0);
        CHECK(!late);
    }
    return goes_on();
}

static void *continue_later(void *arg)
{
    usleep(500000);
    kill(*(const int32_t *)arg, SIGCONT);
    return NULL;
}

/* Rank 2 stops in the last call when the others may already complete it: one that does and leaves is not missed by one that still
 * waits for rank 2. */
static int slow_in_the_last_call(tutti_group *group)
{
    const int rank = tutti_group_rank(group);
    const double begin = tutti__now_ms();
    int32_t pids[16], pid = getpid();
    pthread_t thread;

    CHECK(tutti_all_gather(group, TUTTI_CONST_BUF(&pid, 1, TUTTI_I32),
                           TUTTI_BUF(pids, (size_t)tutti_group_size(group), TUTTI_I32),
                           NULL) == TUTTI_OK);
    if (rank == 2) {
        const uint64_t calls = tutti_group_sequence(group);
        tutti_work *work;

        CHECK(tutti_barrier(group, &work) == TUTTI_OK);
        while (tutti_group_sequence(group) == calls)
            usleep(100);
        usleep(50000); /* usually it has sent its part then; the outcome does not depend on it */
        raise(SIGSTOP);
        CHECK(tutti_work_wait(work) == TUTTI_OK);
    } else {
        while (!is_stopped(pids[2]) && tutti__now_ms() - begin < 20000)
            usleep(1000);
        if (rank == 0)
            CHECK(pthread_create(&thread, NULL, continue_later, &pids[2]) == 0);
        CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
        if (rank == 0)
            pthread_join(thread, NULL);
    }
    tutti_group_free(group);
    return goes_on();
}

static int killed(tutti_group *group)
{
    CHECK(tutti_barrier(group, NULL) == TUTTI_OK);
    if (tutti_group_rank(group) == 1)
        raise(SIGKILL);
    (void)!tutti_barrier(group, NULL);
    pause(); /* until mpirun ends it */
    return 0;
}

/* Exits without freeing its group: exit must not wait for the others. */
static int gone(tutti_group *group)
{
    if (tutti_group_rank(group) == 1)
        exit(7);
    CHECK(tutti_barrier(group, NULL) != TUTTI_OK);
    tutti_group_free(group);
    exit(3); /* like a program that has lost a peer */
}

typedef struct test_case {
    const char *name;
    int (*body)(tutti_group *group);
    int code; /* of mpirun; -1: any but 0 */
    bool frees;
} test_case;

static const test_case CASES[] = {
    {"collectives", collectives, 0, false},
    {"hosts", collectives, 0, false},
    {"nan", nan_wins, 0, false},
    {"groups", groups, 0, false},
    {"messages", messages, 0, false},
    {"mismatch", mismatch, 0, true},
    {"counts", wrong_counts, 0, true},
    {"abort", aborted, 0, true},
    {"left", has_left, 0, true},
    {"late", late, 0, true},
    {"interrupted", interrupted, 0, true},
    {"slow", slow_in_the_last_call, 0, true},
    {"killed", killed, -1, false},
    {"gone", gone, -1, false},
};

/* Ranks; the others have three. */
static bool has_four(const char *name)
{
    return strcmp(name, "hosts") == 0 || strcmp(name, "slow") == 0;
}

static int be_rank(const char *name)
{
    tutti_group *group;
    int result;

    if (strcmp(name, "probe") == 0) { /* checks that there is a module for this mpirun */
        tutti_status status =
            tutti_group_init(&group, &(tutti_group_opts){.backend = TUTTI_BACKEND_MPI});

        if (status == TUTTI_OK)
            tutti_group_free(group);
        else
            fprintf(stderr, "%s\n", tutti_last_error());
        return status == TUTTI_ERR_UNSUPPORTED ? 77 : status != TUTTI_OK;
    }

    on_hosts = strcmp(name, "hosts") == 0;
    if (on_hosts)
        unsetenv("TUTTI_TRANSPORT");
    for (size_t i = 0; i < TUTTI__COUNT_OF(CASES); i++)
        if (strcmp(CASES[i].name, name) == 0) {
            CHECK(group_of(&group, "world", 0) == 0);
            result = CASES[i].body(group);
            if (!CASES[i].frees)
                tutti_group_free(group);
            return result;
        }
    return 99;
}

/* ---- mpirun ------------------------------------------------------------------------------------------------------- */

/* Its exit code, or 128 + the signal that ended it; its output goes to a file. */
static int mpirun(const char *program, int n, const char *name, const char *output)
{
    char ranks[8], *argv[] = {(char *)(uintptr_t)program, (char[]){"-n"},          ranks,
                              (char[]){"/proc/self/exe"}, (char *)(uintptr_t)name, NULL};
    char self[1024] = "";
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status = 0;

    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 98;
    argv[3] = self;
    snprintf(ranks, sizeof ranks, "%d", n);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (posix_spawnp(&pid, program, &files, NULL, argv, environ) != 0)
        return 97;
    posix_spawn_file_actions_destroy(&files);
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int run_case(const char *program, const test_case *c, int n)
{
    char output[] = "/tmp/comm_mpi-XXXXXX", command[64];
    int fd = mkstemp(output), code, failed;
    double begin = tutti__now_ms(), ms;

    close(fd);
    code = mpirun(program, n, c->name, output);
    ms = tutti__now_ms() - begin;
    failed = (c->code < 0 ? code == 0 : code != c->code) || ms > 240000;
    printf("%s -n %d %s: exit code %d after %.2f s%s\n", program, n, c->name, code, ms / 1e3,
           failed ? "  FAILED" : "");
    fflush(stdout);
    snprintf(command, sizeof command, "cat %s", output);
    if (failed && system(command) != 0)
        failed++;
    unlink(output);
    return failed;
}

/* Whether it can be run, and Tutti has a module for its MPI. */
static bool is_here(const char *program)
{
    char command[64];
    int code;

    snprintf(command, sizeof command, "command -v %s >/dev/null", program);
    if (system(command) != 0)
        return false;
    code = mpirun(program, 2, "probe", "/dev/null");
    if (code == 77)
        printf("%s: no module for it in this build\n", program);
    return code != 77;
}

int main(int argc, char **argv)
{
    static const char *const programs[] = {"mpirun.openmpi", "mpirun.mpich"};
    int failed = 0, ran = 0;

#ifdef __SANITIZE_THREAD__
    printf(
        "skipped: the MPIs are not built for ThreadSanitizer, which takes their ways for races\n");
    return 77;
#endif
    if (argc > 1)
        return be_rank(argv[1]);
    if (test_emulated("mpirun starts no program of another processor")) {
        printf("skipped: needs MPI's own processor\n");
        return 77;
    }
    /* More ranks than cores, as root, without tying them to cores. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI libraries have leaks of their own */
    setenv("TUTTI_TRANSPORT", "tcp", 1); /* no shared memory: by MPI also within this host */
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    for (size_t p = 0; p < TUTTI__COUNT_OF(programs); p++) {
        if (!is_here(programs[p]))
            continue;
        ran++;
        for (size_t i = 0; i < TUTTI__COUNT_OF(CASES); i++)
            failed += run_case(programs[p], &CASES[i], has_four(CASES[i].name) ? 4 : 3);
    }
    if (ran == 0) {
        printf("skipped: no mpirun.openmpi or mpirun.mpich, or no module for it in this build\n");
        return 77;
    }
    return failed > 0;
}

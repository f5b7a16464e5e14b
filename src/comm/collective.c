/* collective.c -- the public collectives: arguments checked, then an operation.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

#include <stdio.h>
#include <string.h>

/* Buffers are passed by value: a check that is not inlined would copy them by wide loads, which wait for the narrow stores
 * that have just written them. */
#define CHECK static inline __attribute__((always_inline)) tutti_status

CHECK check_group(const char *call, const tutti_group *group)
{
    return group && !tutti__group_is_parents(group) ? TUTTI_OK : tutti__refuse_group(call, group);
}

static tutti_status refuse_buf(const char *call, const char *name, tutti_const_buf buf)
{
    if (tutti__element(buf.dtype) == 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s has the unknown dtype %d", call, name,
                           (int)buf.dtype);
    if (!buf.p && buf.count > 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is NULL with %zu elements", call, name,
                           buf.count);
    return tutti__fail(TUTTI_ERR_ARG, "%s: %s has %zu elements, more than memory holds", call, name,
                       buf.count);
}

CHECK check_buf(const char *call, const char *name, tutti_const_buf buf)
{
    size_t bytes;

    if (tutti__element(buf.dtype) == 0 || (!buf.p && buf.count > 0) ||
        __builtin_mul_overflow(buf.count, 2 * tutti__element(buf.dtype), &bytes))
        return refuse_buf(call, name, buf);
    return TUTTI_OK;
}

tutti_status tutti__check_buf(const char *call, const char *name, tutti_const_buf buf)
{
    return check_buf(call, name, buf);
}

static inline bool is_real(tutti_dtype dtype)
{
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

CHECK check_redop(const char *call, tutti_redop op, tutti_dtype dtype)
{
    bool real = is_real(dtype);

    if ((unsigned)op > TUTTI_BXOR)
        return tutti__fail(TUTTI_ERR_ARG, "%s: reduction %d is unknown", call, (int)op);
    if (op == TUTTI_AVG && !real)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s: the average of %s is not an integer; use TUTTI_SUM and divide, or a float type",
            call, tutti_dtype_name(dtype));
    if ((op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_BXOR) && real)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: bitwise reductions are for integers (I8 to I64, U8 to U64), not %s",
                           call, tutti_dtype_name(dtype));
    return TUTTI_OK;
}

CHECK check_root(const char *call, const tutti_group *group, int root)
{
    if (root < 0 || root >= group->comm.size)
        return tutti__fail(TUTTI_ERR_ARG, "%s: root is %d, expected a rank from 0 to %d", call,
                           root, group->comm.size - 1);
    return TUTTI_OK;
}

/* Only root may give this buffer: another rank that does expects a result that never comes. */
CHECK check_unused(const char *call, const char *name, tutti_const_buf buf, int root)
{
    if (buf.p || buf.count > 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: %s is given, but only root, rank %d, uses it; give {0} elsewhere",
                           call, name, root);
    return TUTTI_OK;
}

CHECK check_apart(const char *call, tutti_const_buf src, tutti_buf dst)
{
    size_t element = tutti__element(src.dtype);
    const char *s = src.p, *d = dst.p;

    if (src.dtype != dst.dtype)
        return tutti__fail(TUTTI_ERR_ARG, "%s: src is %s but dst is %s", call,
                           tutti_dtype_name(src.dtype), tutti_dtype_name(dst.dtype));
    if (src.count > 0 && dst.count > 0 && s + src.count * element > d &&
        s < d + dst.count * element)
        return tutti__fail(TUTTI_ERR_ARG, "%s: src overlaps dst", call);
    return TUTTI_OK;
}

/* The counts must add up to the buffer. */
static tutti_status check_counts(const char *call, const tutti_group *group, const char *name,
                                 tutti_const_buf buf, const size_t *counts)
{
    size_t sum = 0;

    TUTTI_TRY(check_buf(call, name, buf));
    if (!counts)
        return tutti__fail(TUTTI_ERR_ARG, "%s: the counts of %s are NULL, expected %d", call, name,
                           group->comm.size);
    for (int r = 0; r < group->comm.size; r++) {
        if (counts[r] > buf.count - sum)
            return tutti__fail(TUTTI_ERR_ARG,
                               "%s: %s has %zu elements, but its counts up to rank %d need %zu "
                               "more than the %zu before it",
                               call, name, buf.count, r, counts[r], sum);
        sum += counts[r];
    }
    if (sum != buf.count)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s has %zu elements, but its counts add up to %zu",
                           call, name, buf.count, sum);
    return TUTTI_OK;
}

/* The larger buffer must be `size` times the smaller, of one dtype; they may overlap only in this rank's piece. */
CHECK check_pair(const char *call, const tutti_group *group, tutti_const_buf part,
                 const char *part_name, tutti_const_buf whole, const char *whole_name)
{
    size_t bytes = part.count * tutti__element(part.dtype), n = (size_t)group->comm.size;
    const char *p = part.p, *w = whole.p;

    TUTTI_TRY(check_buf(call, part_name, part));
    TUTTI_TRY(check_buf(call, whole_name, whole));
    if (part.dtype != whole.dtype)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is %s but %s is %s", call, part_name,
                           tutti_dtype_name(part.dtype), whole_name, tutti_dtype_name(whole.dtype));
    if (whole.count / n != part.count || whole.count % n != 0)
        return tutti__fail(
            TUTTI_ERR_ARG, "%s: %s has %zu elements, expected %zu (%d ranks x %zu of %s)", call,
            whole_name, whole.count, n * part.count, group->comm.size, part.count, part_name);
    if (bytes > 0 && p != w + (size_t)group->comm.rank * bytes && p + bytes > w &&
        p < w + n * bytes)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s overlaps %s outside this rank's own place in it",
                           call, part_name, whole_name);
    return TUTTI_OK;
}

/* "memory of the host", "on cuda:0" */
static void place_text(const tutti_stream *stream, char *text, size_t capacity)
{
    if (stream)
        snprintf(text, capacity, "on %s:%d", stream->ops->name, stream->device.index);
    else
        snprintf(text, capacity, "memory of the host");
}

/* Sets the memory of the buffers: both on one device or on the host, unless this rank does not use one of them. */
CHECK put(const char *call, tutti__operation *op, tutti_const_buf src, tutti_const_buf dst)
{
    tutti_stream *from = tutti__on_host(src.stream) ? NULL : src.stream,
                 *to = tutti__on_host(dst.stream) ? NULL : dst.stream;
    char src_text[64], dst_text[64];

    if (!src.p && src.count == 0 && !from)
        from = to;
    if (!dst.p && dst.count == 0 && !to)
        to = from;
    op->stream = from;
    if (from == to)
        return TUTTI_OK;
    place_text(from, src_text, sizeof src_text);
    place_text(to, dst_text, sizeof dst_text);
    return tutti__fail(
        TUTTI_ERR_ARG,
        "%s: src is %s, but dst %s%s; the buffers of a call must have the same stream", call,
        src_text, dst_text, strcmp(src_text, dst_text) == 0 ? ", in another stream" : "");
}

/* `buf`: one piece. */
static inline __attribute__((always_inline)) tutti__operation make_op(tutti__op_kind kind,
                                                                      tutti_const_buf buf,
                                                                      const void *src, void *dst,
                                                                      tutti_work **work_p)
{
    tutti__operation op = {.src = src, .dst = dst};

    if (work_p)
        *work_p = NULL; /* also if the call is refused */
    op.signature.op = (uint8_t)kind;
    op.signature.count = buf.count;
    op.signature.dtype = (uint8_t)buf.dtype;
    return op;
}

/* src reduced into dst: the same memory, or disjoint. */
CHECK check_from(const char *call, tutti_const_buf src, tutti_buf dst)
{
    TUTTI_TRY(check_buf(call, "src", src));
    TUTTI_TRY(check_buf(call, "dst", tutti_buf_const(dst)));
    if (src.count != dst.count)
        return tutti__fail(TUTTI_ERR_ARG, "%s: src has %zu elements but dst %zu", call, src.count,
                           dst.count);
    return src.p == dst.p && src.dtype == dst.dtype ? TUTTI_OK : check_apart(call, src, dst);
}

/* The options of a call that is described by a structure. */
static tutti_status add_options(tutti__operation *op, const tutti_call *with)
{
    const char *call = tutti__op_name((tutti__op_kind)op->signature.op);
    tutti_dtype dtype = (tutti_dtype)op->signature.dtype;

    op->timeout_ms = with->timeout_ms;
    if (with->scale == 0)
        return TUTTI_OK;
    if (!tutti__op_traits_of(op)->reduces || op->signature.redop != TUTTI_SUM)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: a scale of %g, but only a reduction by TUTTI_SUM multiplies; "
                           "leave it 0",
                           call, with->scale);
    if (!is_real(dtype))
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: a scale of %g, of which %s would keep only whole numbers; use a "
                           "float type",
                           call, with->scale, tutti_dtype_name(dtype));
    op->signature.scaled = 1;
    op->scales = true;
    op->scale = tutti__or(with->scale, 1);
    return TUTTI_OK;
}

/* with: NULL, or where the options are. */
CHECK submit(tutti_group *group, tutti__operation *op, const tutti_call *with, tutti_work **work_p)
{
    if (with)
        TUTTI_TRY(add_options(op, with));
    return tutti__submit_or_record(group, op, work_p);
}

CHECK all_reduce(tutti_group *group, tutti_buf buf, tutti_redop redop, const tutti_call *with,
                 tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_ALL_REDUCE, tutti_buf_const(buf), buf.p, buf.p, work_p);

    TUTTI_TRY(check_group("all_reduce", group));
    TUTTI_TRY(check_buf("all_reduce", "buf", tutti_buf_const(buf)));
    TUTTI_TRY(check_redop("all_reduce", redop, buf.dtype));
    op.signature.redop = (uint8_t)redop;
    TUTTI_TRY(put("all_reduce", &op, tutti_buf_const(buf), tutti_buf_const(buf)));
    return submit(group, &op, with, work_p);
}

CHECK all_reduce_from(tutti_group *group, tutti_const_buf src, tutti_buf dst, tutti_redop redop,
                      const tutti_call *with, tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_ALL_REDUCE, src, src.p, dst.p, work_p);

    TUTTI_TRY(check_group("all_reduce_from", group));
    TUTTI_TRY(check_from("all_reduce_from", src, dst));
    TUTTI_TRY(check_redop("all_reduce_from", redop, src.dtype));
    op.signature.redop = (uint8_t)redop;
    TUTTI_TRY(put("all_reduce_from", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK broadcast(tutti_group *group, tutti_buf buf, int root, const tutti_call *with,
                tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_BROADCAST, tutti_buf_const(buf), buf.p, buf.p, work_p);

    TUTTI_TRY(check_group("broadcast", group));
    TUTTI_TRY(check_buf("broadcast", "buf", tutti_buf_const(buf)));
    TUTTI_TRY(check_root("broadcast", group, root));
    op.signature.root = (uint32_t)root;
    TUTTI_TRY(put("broadcast", &op, tutti_buf_const(buf), tutti_buf_const(buf)));
    return submit(group, &op, with, work_p);
}

CHECK reduce(tutti_group *group, tutti_buf buf, tutti_redop redop, int root, const tutti_call *with,
             tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_REDUCE, tutti_buf_const(buf), buf.p, buf.p, work_p);

    TUTTI_TRY(check_group("reduce", group));
    TUTTI_TRY(check_buf("reduce", "buf", tutti_buf_const(buf)));
    TUTTI_TRY(check_redop("reduce", redop, buf.dtype));
    TUTTI_TRY(check_root("reduce", group, root));
    op.signature.redop = (uint8_t)redop;
    op.signature.root = (uint32_t)root;
    TUTTI_TRY(put("reduce", &op, tutti_buf_const(buf), tutti_buf_const(buf)));
    return submit(group, &op, with, work_p);
}

CHECK reduce_from(tutti_group *group, tutti_const_buf src, tutti_buf dst, tutti_redop redop,
                  int root, const tutti_call *with, tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_REDUCE, src, src.p, dst.p, work_p);

    TUTTI_TRY(check_group("reduce_from", group));
    TUTTI_TRY(check_root("reduce_from", group, root));
    if (group->comm.rank == root) {
        TUTTI_TRY(check_from("reduce_from", src, dst));
    } else {
        TUTTI_TRY(check_buf("reduce_from", "src", src));
        TUTTI_TRY(check_unused("reduce_from", "dst", tutti_buf_const(dst), root));
        op.dst = (void *)(uintptr_t)src.p; /* it is not written */
    }
    TUTTI_TRY(check_redop("reduce_from", redop, src.dtype));
    op.signature.redop = (uint8_t)redop;
    op.signature.root = (uint32_t)root;
    TUTTI_TRY(put("reduce_from", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK scatter(tutti_group *group, tutti_const_buf src, tutti_buf dst, int root,
              const tutti_call *with, tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_SCATTER, tutti_buf_const(dst), src.p, dst.p, work_p);

    TUTTI_TRY(check_group("scatter", group));
    TUTTI_TRY(check_root("scatter", group, root));
    if (group->comm.rank == root) {
        TUTTI_TRY(check_pair("scatter", group, tutti_buf_const(dst), "dst", src, "src"));
    } else {
        TUTTI_TRY(check_buf("scatter", "dst", tutti_buf_const(dst)));
        TUTTI_TRY(check_unused("scatter", "src", src, root));
    }
    op.signature.root = (uint32_t)root;
    TUTTI_TRY(put("scatter", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK gather(tutti_group *group, tutti_const_buf src, tutti_buf dst, int root,
             const tutti_call *with, tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_GATHER, src, src.p, dst.p, work_p);

    TUTTI_TRY(check_group("gather", group));
    TUTTI_TRY(check_root("gather", group, root));
    if (group->comm.rank == root) {
        TUTTI_TRY(check_pair("gather", group, src, "src", tutti_buf_const(dst), "dst"));
    } else {
        TUTTI_TRY(check_buf("gather", "src", src));
        TUTTI_TRY(check_unused("gather", "dst", tutti_buf_const(dst), root));
    }
    op.signature.root = (uint32_t)root;
    TUTTI_TRY(put("gather", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK all_gather(tutti_group *group, tutti_const_buf src, tutti_buf dst, const tutti_call *with,
                 tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_ALL_GATHER, src, src.p, dst.p, work_p);

    TUTTI_TRY(check_group("all_gather", group));
    TUTTI_TRY(check_pair("all_gather", group, src, "src", tutti_buf_const(dst), "dst"));
    TUTTI_TRY(put("all_gather", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK all_gather_v(tutti_group *group, tutti_const_buf src, tutti_buf dst, const size_t *counts,
                   const tutti_call *with, tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_ALL_GATHER_V, src, src.p, dst.p, work_p);
    size_t at;

    TUTTI_TRY(check_group("all_gather_v", group));
    TUTTI_TRY(check_buf("all_gather_v", "src", src));
    TUTTI_TRY(check_counts("all_gather_v", group, "dst", tutti_buf_const(dst), counts));
    if (src.count != counts[group->comm.rank])
        return tutti__fail(TUTTI_ERR_ARG,
                           "all_gather_v: src has %zu elements, but counts[%d], of this rank, is "
                           "%zu",
                           src.count, group->comm.rank, counts[group->comm.rank]);
    op.signature.count = 0;
    op.dst_counts = counts;
    at = tutti__piece_in(group->comm.rank, &op, group->comm.rank).at * tutti__element(dst.dtype);
    if (src.p != (char *)dst.p + at || src.dtype != dst.dtype)
        TUTTI_TRY(check_apart("all_gather_v", src, dst));
    TUTTI_TRY(put("all_gather_v", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK all_to_all(tutti_group *group, tutti_const_buf src, tutti_buf dst, const tutti_call *with,
                 tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_ALL_TO_ALL, src, src.p, dst.p, work_p);
    size_t n;

    TUTTI_TRY(check_group("all_to_all", group));
    n = (size_t)group->comm.size;
    TUTTI_TRY(check_buf("all_to_all", "src", src));
    TUTTI_TRY(check_buf("all_to_all", "dst", tutti_buf_const(dst)));
    if (src.count != dst.count || src.count % n != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "all_to_all: src has %zu elements and dst %zu, expected the same "
                           "multiple of %d ranks; for pieces that differ use tutti_all_to_all_v",
                           src.count, dst.count, group->comm.size);
    TUTTI_TRY(check_apart("all_to_all", src, dst));
    op.signature.count = src.count / n;
    TUTTI_TRY(put("all_to_all", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK all_to_all_v(tutti_group *group, tutti_const_buf src, const size_t *src_counts, tutti_buf dst,
                   const size_t *dst_counts, const tutti_call *with, tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_ALL_TO_ALL_V, src, src.p, dst.p, work_p);

    TUTTI_TRY(check_group("all_to_all_v", group));
    TUTTI_TRY(check_counts("all_to_all_v", group, "src", src, src_counts));
    TUTTI_TRY(check_counts("all_to_all_v", group, "dst", tutti_buf_const(dst), dst_counts));
    TUTTI_TRY(check_apart("all_to_all_v", src, dst));
    op.signature.count = 0;
    op.src_counts = src_counts;
    op.dst_counts = dst_counts;
    TUTTI_TRY(put("all_to_all_v", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK reduce_scatter(tutti_group *group, tutti_const_buf src, tutti_buf dst, tutti_redop redop,
                     const tutti_call *with, tutti_work **work_p)
{
    tutti__operation op =
        make_op(TUTTI__OP_REDUCE_SCATTER, tutti_buf_const(dst), src.p, dst.p, work_p);

    TUTTI_TRY(check_group("reduce_scatter", group));
    TUTTI_TRY(check_pair("reduce_scatter", group, tutti_buf_const(dst), "dst", src, "src"));
    TUTTI_TRY(check_redop("reduce_scatter", redop, src.dtype));
    op.signature.redop = (uint8_t)redop;
    TUTTI_TRY(put("reduce_scatter", &op, src, tutti_buf_const(dst)));
    return submit(group, &op, with, work_p);
}

CHECK barrier(tutti_group *group, const tutti_call *with, tutti_work **work_p)
{
    tutti__operation op = make_op(TUTTI__OP_BARRIER, (tutti_const_buf){0}, NULL, NULL, work_p);

    TUTTI_TRY(check_group("barrier", group));
    return submit(group, &op, with, work_p);
}

/* ---- The calls of group.h ------------------------------------------------------------------------------------ */

tutti_status tutti_all_reduce(tutti_group *group, tutti_buf buf, tutti_redop redop,
                              tutti_work **work_p)
{
    return all_reduce(group, buf, redop, NULL, work_p);
}

tutti_status tutti_all_reduce_from(tutti_group *group, tutti_const_buf src, tutti_buf dst,
                                   tutti_redop redop, tutti_work **work_p)
{
    return all_reduce_from(group, src, dst, redop, NULL, work_p);
}

tutti_status tutti_broadcast(tutti_group *group, tutti_buf buf, int root, tutti_work **work_p)
{
    return broadcast(group, buf, root, NULL, work_p);
}

tutti_status tutti_reduce(tutti_group *group, tutti_buf buf, tutti_redop redop, int root,
                          tutti_work **work_p)
{
    return reduce(group, buf, redop, root, NULL, work_p);
}

tutti_status tutti_reduce_from(tutti_group *group, tutti_const_buf src, tutti_buf dst,
                               tutti_redop redop, int root, tutti_work **work_p)
{
    return reduce_from(group, src, dst, redop, root, NULL, work_p);
}

tutti_status tutti_scatter(tutti_group *group, tutti_const_buf src, tutti_buf dst, int root,
                           tutti_work **work_p)
{
    return scatter(group, src, dst, root, NULL, work_p);
}

tutti_status tutti_gather(tutti_group *group, tutti_const_buf src, tutti_buf dst, int root,
                          tutti_work **work_p)
{
    return gather(group, src, dst, root, NULL, work_p);
}

tutti_status tutti_all_gather(tutti_group *group, tutti_const_buf src, tutti_buf dst,
                              tutti_work **work_p)
{
    return all_gather(group, src, dst, NULL, work_p);
}

tutti_status tutti_all_gather_v(tutti_group *group, tutti_const_buf src, tutti_buf dst,
                                const size_t *counts, tutti_work **work_p)
{
    return all_gather_v(group, src, dst, counts, NULL, work_p);
}

tutti_status tutti_all_to_all(tutti_group *group, tutti_const_buf src, tutti_buf dst,
                              tutti_work **work_p)
{
    return all_to_all(group, src, dst, NULL, work_p);
}

tutti_status tutti_all_to_all_v(tutti_group *group, tutti_const_buf src, const size_t *src_counts,
                                tutti_buf dst, const size_t *dst_counts, tutti_work **work_p)
{
    return all_to_all_v(group, src, src_counts, dst, dst_counts, NULL, work_p);
}

tutti_status tutti_reduce_scatter(tutti_group *group, tutti_const_buf src, tutti_buf dst,
                                  tutti_redop redop, tutti_work **work_p)
{
    return reduce_scatter(group, src, dst, redop, NULL, work_p);
}

tutti_status tutti_barrier(tutti_group *group, tutti_work **work_p)
{
    return barrier(group, NULL, work_p);
}

/* ---- By a structure ---------------------------------------------------------------------------------------- */

static bool is_absent(tutti_const_buf buf)
{
    return !buf.p && buf.count == 0;
}

static tutti_status call_reduction(tutti_group *group, const tutti_call *c, tutti_work **work_p)
{
    if (c->kind == TUTTI_CALL_REDUCE_SCATTER)
        return reduce_scatter(group, c->src, c->dst, c->op, c, work_p);
    if (c->kind == TUTTI_CALL_ALL_REDUCE)
        return is_absent(c->src) ? all_reduce(group, c->dst, c->op, c, work_p)
                                 : all_reduce_from(group, c->src, c->dst, c->op, c, work_p);
    return is_absent(c->src) ? reduce(group, c->dst, c->op, c->rank, c, work_p)
                             : reduce_from(group, c->src, c->dst, c->op, c->rank, c, work_p);
}

tutti_status tutti__call_collective(tutti_group *group, const tutti_call *c, tutti_work **work_p)
{
    switch (c->kind) {
    case TUTTI_CALL_BROADCAST:
        return broadcast(group, c->dst, c->rank, c, work_p);
    case TUTTI_CALL_SCATTER:
        return scatter(group, c->src, c->dst, c->rank, c, work_p);
    case TUTTI_CALL_GATHER:
        return gather(group, c->src, c->dst, c->rank, c, work_p);
    case TUTTI_CALL_ALL_GATHER:
        return all_gather(group, c->src, c->dst, c, work_p);
    case TUTTI_CALL_ALL_GATHER_V:
        return all_gather_v(group, c->src, c->dst, c->dst_counts, c, work_p);
    case TUTTI_CALL_ALL_TO_ALL:
        return all_to_all(group, c->src, c->dst, c, work_p);
    case TUTTI_CALL_ALL_TO_ALL_V:
        return all_to_all_v(group, c->src, c->src_counts, c->dst, c->dst_counts, c, work_p);
    case TUTTI_CALL_BARRIER:
        return barrier(group, c, work_p);
    default:
        return call_reduction(group, c, work_p);
    }
}

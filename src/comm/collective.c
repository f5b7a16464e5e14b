/* collective.c -- the public collectives: arguments checked, then an operation.   SPDX-License-Identifier: MIT */
#include "comm/group.h"

#include <string.h>

static bool known_dtype(tutti_dtype dtype)
{
    return tutti_dtype_size(dtype) > 0;
}

static tutti_status check_buf(const char *call, const char *name, tutti_buf buf)
{
    if (!known_dtype(buf.dtype))
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s has the unknown dtype %d", call, name,
                           (int)buf.dtype);
    if (!buf.p && buf.count > 0)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is NULL with %zu elements", call, name,
                           buf.count);
    if (buf.count > SIZE_MAX / 2 / tutti_dtype_size(buf.dtype))
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s has %zu elements, more than memory holds", call,
                           name, buf.count);
    return TUTTI_OK;
}

static tutti_status check_redop(const char *call, tutti_redop op, tutti_dtype dtype)
{
    if (op != TUTTI_SUM && op != TUTTI_AVG && op != TUTTI_PRODUCT && op != TUTTI_MIN &&
        op != TUTTI_MAX)
        return tutti__fail(TUTTI_ERR_ARG, "%s: reduction %d is unknown", call, (int)op);
    if (op == TUTTI_AVG && dtype != TUTTI_F32 && dtype != TUTTI_F64 && dtype != TUTTI_F16 &&
        dtype != TUTTI_BF16)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s: the average of %s is not an integer; use TUTTI_SUM and divide, or a float type",
            call, tutti_dtype_name(dtype));
    return TUTTI_OK;
}

/* The larger side is `size` times the smaller, of one dtype, and the buffers overlap at most in this rank's place. */
static tutti_status check_pair(const char *call, const tutti_group *group, tutti_buf part,
                               const char *part_name, tutti_buf whole, const char *whole_name)
{
    size_t bytes = part.count * tutti_dtype_size(part.dtype), n = (size_t)group->size;
    const char *p = part.p, *w = whole.p;

    TUTTI_TRY(check_buf(call, part_name, part));
    TUTTI_TRY(check_buf(call, whole_name, whole));
    if (part.dtype != whole.dtype)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s is %s but %s is %s", call, part_name,
                           tutti_dtype_name(part.dtype), whole_name, tutti_dtype_name(whole.dtype));
    if (whole.count / n != part.count || whole.count % n != 0)
        return tutti__fail(
            TUTTI_ERR_ARG, "%s: %s has %zu elements, expected %zu (%d ranks x %zu of %s)", call,
            whole_name, whole.count, n * part.count, group->size, part.count, part_name);
    if (bytes > 0 && p != w + (size_t)group->rank * bytes && p + bytes > w && p < w + n * bytes)
        return tutti__fail(TUTTI_ERR_ARG, "%s: %s overlaps %s outside this rank's own place in it",
                           call, part_name, whole_name);
    return TUTTI_OK;
}

static tutti__op make_op(tutti__op_kind kind, tutti_buf buf, const void *src, void *dst,
                         tutti_work **work_p)
{
    tutti__op op = {.src = src, .dst = dst};

    if (work_p)
        *work_p = NULL; /* also where the call is refused */
    op.print.op = (uint8_t)kind;
    op.print.count = buf.count;
    op.print.dtype = (uint8_t)buf.dtype;
    return op;
}

tutti_status tutti_all_reduce(tutti_group *group, tutti_buf buf, tutti_redop redop,
                              tutti_work **work_p)
{
    tutti__op op = make_op(TUTTI__OP_ALL_REDUCE, buf, buf.p, buf.p, work_p);

    TUTTI_TRY(check_buf("all_reduce", "buf", buf));
    TUTTI_TRY(check_redop("all_reduce", redop, buf.dtype));
    op.print.redop = (uint8_t)redop;
    return tutti__submit(group, &op, work_p);
}

tutti_status tutti_broadcast(tutti_group *group, tutti_buf buf, int root, tutti_work **work_p)
{
    tutti__op op = make_op(TUTTI__OP_BROADCAST, buf, buf.p, buf.p, work_p);

    TUTTI_TRY(check_buf("broadcast", "buf", buf));
    if (root < 0 || root >= group->size)
        return tutti__fail(TUTTI_ERR_ARG, "broadcast: root is %d, expected a rank from 0 to %d",
                           root, group->size - 1);
    op.print.root = (uint32_t)root;
    return tutti__submit(group, &op, work_p);
}

tutti_status tutti_all_gather(tutti_group *group, tutti_buf src, tutti_buf dst, tutti_work **work_p)
{
    tutti__op op = make_op(TUTTI__OP_ALL_GATHER, src, src.p, dst.p, work_p);

    TUTTI_TRY(check_pair("all_gather", group, src, "src", dst, "dst"));
    return tutti__submit(group, &op, work_p);
}

tutti_status tutti_reduce_scatter(tutti_group *group, tutti_buf src, tutti_buf dst,
                                  tutti_redop redop, tutti_work **work_p)
{
    tutti__op op = make_op(TUTTI__OP_REDUCE_SCATTER, dst, src.p, dst.p, work_p);

    TUTTI_TRY(check_pair("reduce_scatter", group, dst, "dst", src, "src"));
    TUTTI_TRY(check_redop("reduce_scatter", redop, src.dtype));
    op.print.redop = (uint8_t)redop;
    return tutti__submit(group, &op, work_p);
}

tutti_status tutti_barrier(tutti_group *group, tutti_work **work_p)
{
    tutti__op op = make_op(TUTTI__OP_BARRIER, (tutti_buf){0}, NULL, NULL, work_p);

    return tutti__submit(group, &op, work_p);
}

tutti_status tutti_group_alloc(tutti_group *group, size_t bytes, void **p)
{
    tutti__op op = make_op(TUTTI__OP_ALLOC, (tutti_buf){NULL, bytes, TUTTI_U8}, NULL, p, NULL);

    *p = NULL;
    if (bytes > SIZE_MAX / 4 / (size_t)group->size)
        return tutti__fail(TUTTI_ERR_ARG,
                           "alloc: %zu bytes for each of %d ranks is more than memory holds", bytes,
                           group->size);
    return tutti__submit(group, &op, NULL);
}

void tutti_group_release(tutti_group *group, void *p)
{
    if (p)
        group->transport->release(group, p);
}

/* open_mesh.c -- how the ranks of a run are divided: by stages of the model, by samples, by parts of its layers.
 * SPDX-License-Identifier: MIT */
#include "comm/comm.h"
#include "train/config/agreement.h"
#include "train/session/session.h"

#include <stdio.h>

static const char *const NAMES[] = {"pipeline", "data", "tensor"};

/* "1, 2 or 4": what `--KEY` could be instead, where the other key divides the ranks by `other`. */
static void list_fitting(char *text, size_t capacity, int ranks, int64_t other)
{
    int fitting[32], count = 0;
    size_t n = 0;

    for (int i = 1; i <= ranks && count < (int)TUTTI__COUNT_OF(fitting); i++)
        if (ranks % (i * other) == 0)
            fitting[count++] = i;
    text[0] = '\0';
    for (int i = 0; i < count && n < capacity; i++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%d",
                              i == 0           ? ""
                              : i + 1 == count ? " or "
                                               : ", ",
                              fitting[i]);
}

/* The layout of every rank is the same, so all of them say the same. */
static tutti_status check(const tutti__session *s)
{
    const int64_t tensor = s->config->tensor, pipeline = s->config->pipeline;
    const bool of_both = pipeline > 1 && s->size % pipeline == 0;
    const int64_t other = of_both ? pipeline : 1;
    char text[160];

    if (s->size % (tensor * pipeline) == 0)
        return TUTTI_OK;
    if (s->size == 1)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s %lld divides a model among ranks, and there is one; expected %lld "
                           "ranks, or a multiple: -n %lld",
                           tensor > 1 && pipeline > 1 ? "--tensor and --pipeline, together"
                           : tensor > 1               ? "--tensor"
                                                      : "--pipeline",
                           (long long)(tensor * pipeline), (long long)(tensor * pipeline),
                           (long long)(tensor * pipeline));
    if (s->size % pipeline != 0) {
        list_fitting(text, sizeof text, s->size, 1);
        return tutti__fail(TUTTI_ERR_ARG,
                           "--pipeline %lld on %d rank%s: %d is not a multiple of %lld; "
                           "--pipeline %s",
                           (long long)pipeline, s->size, tutti__s((uint64_t)s->size), s->size,
                           (long long)pipeline, text);
    }
    list_fitting(text, sizeof text, s->size, other);
    if (of_both)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--tensor %lld --pipeline %lld on %d rank%s: %d is not a multiple of "
                           "%lld x %lld; with --pipeline %lld, --tensor %s",
                           (long long)tensor, (long long)pipeline, s->size,
                           tutti__s((uint64_t)s->size), s->size, (long long)tensor,
                           (long long)pipeline, (long long)pipeline, text);
    return tutti__fail(
        TUTTI_ERR_ARG, "--tensor %lld on %d rank%s: %d is not a multiple of %lld; --tensor %s",
        (long long)tensor, s->size, tutti__s((uint64_t)s->size), s->size, (long long)tensor, text);
}

/* zero_ranks, of the ranks that have samples of their own. */
static tutti_status check_zero_ranks(const tutti__session *s)
{
    const long long ranks = s->config->zero_ranks;
    const int data = (int)(s->size / (s->config->tensor * s->config->pipeline));
    char text[160];

    if (ranks == 0 || data % ranks == 0)
        return TUTTI_OK;
    list_fitting(text, sizeof text, data, 1);
    return tutti__fail(TUTTI_ERR_ARG,
                       "--zero-ranks %lld on %d %srank%s: %d is not a multiple of %lld; "
                       "--zero-ranks %s",
                       ranks, data, data < s->size ? "data " : "", tutti__s((uint64_t)data), data,
                       ranks, text);
}

tutti_status tutti__session_open_mesh(tutti__session *s)
{
    const tutti_mesh_dimension dimensions[] = {{.name = NAMES[0], .size = (int)s->config->pipeline},
                                               {.name = NAMES[1]},
                                               {.name = NAMES[2], .size = (int)s->config->tensor}};

    TUTTI_TRY(check(s));
    TUTTI_TRY(check_zero_ranks(s));
    if (s->config->tensor == 1 && s->config->pipeline == 1 && s->config->tensor_parts == 0)
        return TUTTI_OK;
    return tutti_mesh_new(&s->mesh, s->group, dimensions, TUTTI__COUNT_OF(dimensions));
}

tutti_status tutti__session_fail_alone(tutti__session *s, tutti_status status)
{
    char message[2048];

    if (s->mesh && tutti_status_scope(status) != TUTTI_SCOPE_GROUP) {
        snprintf(message, sizeof message, "%s", tutti_last_error());
        for (size_t i = 0; i < TUTTI__COUNT_OF(NAMES); i++)
            tutti__group_abort_with(tutti_mesh_group(s->mesh, NAMES[i]), status, message);
        tutti__fail_again(status, message);
    }
    return tutti__fail_alone(s->group, status);
}

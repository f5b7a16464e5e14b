/* agreement.c -- one status for all ranks.   SPDX-License-Identifier: MIT */
#include "train/config/agreement.h"

#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE 2048

static _Thread_local const char *title = "tutti train";

void tutti__report_as(const char *command)
{
    title = command ? command : "tutti train";
}

int tutti__report_usage(const char *command, tutti_status status)
{
    if (status == TUTTI_ERR_MEMORY || tutti__launcher_find().first_on_host)
        fprintf(stderr, "%s: %s\n", command, tutti_last_error());
    if (status != TUTTI_ERR_MEMORY) {
        tutti__error_file_write_usage(true, tutti_last_error());
        return 2;
    }
    tutti__error_file_write(true, tutti_last_error());
    return tutti_status_exit_code(status);
}

void tutti__report_error(int rank, int size)
{
    const char *message = tutti_last_error();
    char line[MESSAGE + 64];
    int n;

    if (size > 1 && !tutti__names_rank(message))
        n = snprintf(line, sizeof line, "%s: rank %d: %s\n", title, rank, message);
    else
        n = snprintf(line, sizeof line, "%s: %s\n", title, message);
    if (write(STDERR_FILENO, line, (size_t)n) < 0) /* one write, so that ranks' lines do not mix */
        return;
}

tutti_status tutti__report_no_memory(void)
{
    tutti__error_file_write(true, tutti_last_error());
    tutti__report_error(0, 1);
    tutti__report_as(NULL);
    return TUTTI_ERR_MEMORY;
}

/* What ranks exchange: status, and a hash of the message. */
typedef struct verdict {
    int64_t status, hash;
} verdict;

static void report_once(const verdict *all, int rank, int size)
{
    int same = 0;

    for (int i = 0; i < size; i++)
        same += all[i].status != TUTTI_OK && all[i].hash == all[rank].hash;
    for (int i = 0; i < rank; i++)
        if (all[i].status != TUTTI_OK && all[i].hash == all[rank].hash)
            return;
    tutti__report_error(rank, same == size ? 1 : size);
}

static tutti_status share_failure(tutti_group *group, const verdict *all, int first)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group);
    /* a mismatch would recur; each rank says so, because the launcher may hear of any of them first */
    void (*const write)(bool own, const char *text) = all[first].status == TUTTI_ERR_MISMATCH
                                                          ? tutti__error_file_write_usage
                                                          : tutti__error_file_write;
    char message[MESSAGE];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (all[rank].status != TUTTI_OK) {
        write(true, message);
        report_once(all, rank, size);
    }
    TUTTI_TRY(tutti_broadcast(group, TUTTI_BUF(message, sizeof message, TUTTI_U8), first, NULL));
    message[sizeof message - 1] = '\0';
    write(false, message);
    return tutti__fail_again((tutti_status)all[first].status, message);
}

bool tutti__is_lost(tutti_status status)
{
    return tutti_status_scope(status) == TUTTI_SCOPE_GROUP && status != TUTTI_ERR_MISMATCH;
}

/* Whether it has ended the group already, over which nothing can be told then. */
static bool ended_group(tutti_group *group, tutti_status status)
{
    char message[MESSAGE];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (status == TUTTI_OK || tutti_group_status(group) == TUTTI_OK)
        return false;
    tutti__fail_again(status, message);
    return true;
}

tutti_status tutti__fail_together_or_lose(tutti_group *group, tutti_status status)
{
    int rank = tutti_group_rank(group), size = tutti_group_size(group), first = size;
    verdict few[64] = {0}; /* what is told may be that there is no memory */
    const bool fits = size <= (int)TUTTI__COUNT_OF(few);
    verdict *all = few;

    if (tutti__is_lost(status))
        return status;
    if (ended_group(group, status))
        return tutti__fail_alone(group, status);
    if (!fits)
        all = tutti__alloc((size_t)size * sizeof *all);
    if (!all) /* the others wait for this rank */
        return tutti__fail_alone(group, TUTTI_ERR_MEMORY);
    all[rank].status = status;
    if (status != TUTTI_OK)
        all[rank].hash = (int64_t)tutti__hash64(tutti_last_error(), strlen(tutti_last_error()));
    status = tutti_all_gather(group, TUTTI_CONST_BUF(&all[rank], 2, TUTTI_I64),
                              TUTTI_BUF(all, (size_t)size * 2, TUTTI_I64), NULL);
    if (status != TUTTI_OK && !tutti__is_lost(status)) {
        tutti__error_file_write(false, tutti_last_error());
        tutti__report_error(rank, size);
    }
    for (int i = size - 1; i >= 0 && status == TUTTI_OK; i--)
        if (all[i].status != TUTTI_OK)
            first = i;
    if (status == TUTTI_OK && first < size)
        status = share_failure(group, all, first);
    if (!fits)
        free(all);
    return status;
}

tutti_status tutti__fail_together(tutti_group *group, tutti_status status)
{
    return tutti__report_loss(group, tutti__fail_together_or_lose(group, status));
}

tutti_status tutti__report_loss(tutti_group *group, tutti_status status)
{
    if (tutti__is_lost(status)) {
        tutti__error_file_write(false, tutti_last_error());
        tutti__report_error(tutti_group_rank(group), tutti_group_size(group));
    }
    return status;
}

/* Whether another rank has failed with the same message first, and prints it. Ranks that share memory agree on the first; others
 * may each take another for it, but the lowest of them prints. */
static bool is_reported(tutti_group *group, const char *message)
{
    const int rank = tutti_group_rank(group);
    const char *cause;
    int first;

    tutti__group_cause(group, &first, &cause);
    return first >= 0 && first != rank && tutti__ends_in(cause, message) &&
           (first < rank || strcmp(tutti_group_transport_name(group), "shared memory") == 0);
}

tutti_status tutti__fail_alone(tutti_group *group, tutti_status status)
{
    const bool own = tutti_status_scope(status) != TUTTI_SCOPE_GROUP;
    char message[MESSAGE];

    snprintf(message, sizeof message, "%s", tutti_last_error());
    if (own)
        tutti__group_abort_with(group, status, message);
    tutti__error_file_write(own, message);
    tutti__fail_again(status, message);
    if (!own || !is_reported(group, message))
        tutti__report_error(tutti_group_rank(group), tutti_group_size(group));
    return status;
}

/* group_agree.c -- one status for all ranks of a group.   SPDX-License-Identifier: MIT */
#include "comm/comm.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct failure {
    int32_t status;
    char text[2044];
} failure;

bool tutti__names_rank(const char *message)
{
    return strncmp(message, "rank ", 5) == 0 && isdigit((unsigned char)message[5]);
}

tutti_status tutti__group_share_failure(tutti_group *group, tutti_status local, int from)
{
    failure f = {.status = local};

    if (tutti_group_size(group) == 1)
        return local;
    if (tutti_group_rank(group) == from)
        snprintf(f.text, sizeof f.text, "%s", tutti_last_error());
    TUTTI_TRY(tutti_broadcast(group, TUTTI_BUF(&f, sizeof f, TUTTI_U8), from, NULL));
    f.text[sizeof f.text - 1] = '\0';
    if (tutti__names_rank(f.text)) /* of a group within this one */
        return tutti__fail_again((tutti_status)f.status, f.text);
    return tutti__fail((tutti_status)f.status, "rank %d: %s", tutti_group_global_rank(group, from),
                       f.text);
}

tutti_status tutti__group_agree_all(tutti_group *group, tutti_status local, bool mine, bool *all_p)
{
    int size = tutti_group_size(group);
    int64_t reduced = 2 * (int64_t)(local == TUTTI_OK ? size : tutti_group_rank(group)) + mine;

    *all_p = mine;
    if (size == 1)
        return local;
    TUTTI_TRY(tutti_all_reduce(group, TUTTI_BUF(&reduced, 1, TUTTI_I64), TUTTI_MIN, NULL));
    *all_p = reduced & 1;
    return reduced / 2 == size ? TUTTI_OK
                               : tutti__group_share_failure(group, local, (int)(reduced / 2));
}

tutti_status tutti__group_agree(tutti_group *group, tutti_status local)
{
    bool all;

    return tutti__group_agree_all(group, local, true, &all);
}

/* shared_draft.c -- a checkpoint into whose folder several ranks write.   SPDX-License-Identifier: MIT */
#include "checkpoint/shared_draft.h"

#include "comm/comm.h"
#include "ddp/pieces.h"
#include <tutti/call.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a rank says of its files, and rank 0 of the checkpoint. */
typedef struct report {
    int64_t status;
    uint64_t headers[TUTTI__SHARED_FILES];
    char why[1024];
} report;

/* What rank 0 says of the folder it has made. */
typedef struct place {
    char folder[TUTTI__CHECKPOINT_PATH];
    char mark[40];
} place;

/* ---- Messages --------------------------------------------------------------------------------------------- */

static report report_of(tutti_status status, const uint64_t *headers)
{
    report r = {.status = status};

    if (headers)
        memcpy(r.headers, headers, sizeof r.headers);
    if (status != TUTTI_OK)
        snprintf(r.why, sizeof r.why, "%s", tutti_last_error());
    return r;
}

static tutti_status tell(const tutti__shared_draft *s, int to, const report *r)
{
    return tutti_send(s->group, TUTTI_CONST_BUF(r, sizeof *r, TUTTI_U8), to, TUTTI__TAG_SHARED,
                      NULL);
}

/* Without a time limit: a disk may be slow, and a rank that is lost ends the group. */
static tutti_status hear(const tutti__shared_draft *s, int from, report *r)
{
    const tutti_call call = {.kind = TUTTI_CALL_RECV,
                             .rank = from,
                             .tag = TUTTI__TAG_SHARED,
                             .timeout_ms = INT_MAX,
                             .dst = TUTTI_BUF(r, sizeof *r, TUTTI_U8)};

    return tutti_group_call(s->group, &call, NULL);
}

/* ---- Beginning ---------------------------------------------------------------------------------------------- */

/* The others look for the folder, and for the mark in it. MEMORY: of files that may be open there are too many to look. */
static tutti_status look(tutti__shared_draft *s, const place *at, uint8_t *sees_p)
{
    tutti_status status;

    *sees_p = s->rank == 0;
    if (s->rank == 0)
        return TUTTI_OK;
    status = tutti__checkpoint_join(&s->draft, at->folder);
    *sees_p = status == TUTTI_OK && faccessat(s->draft.at, at->mark, F_OK, 0) == 0;
    return status == TUTTI_ERR_MEMORY ? status : TUTTI_OK;
}

static void warn(const tutti__shared_draft *s, const char *folder)
{
    static _Atomic bool warned;
    int n = 0, first = 0;

    for (int r = s->size - 1; r > 0; r--)
        if (!s->may[r]) {
            first = r;
            n++;
        }
    if (n == 0 || atomic_exchange(&warned, true))
        return;
    tutti_log(TUTTI_LOG_WARN, "checkpoint",
              "%d of %d ranks (rank %d is the first) do not see %s, so their parts of checkpoints "
              "are sent to the others, and written there; a run folder on a file system that all "
              "hosts share avoids that",
              n, s->size, first, folder);
}

static tutti_status find_writers(tutti__shared_draft *s)
{
    place at = {.folder = ""};
    tutti_status status = TUTTI_OK;
    uint8_t mine = 0, *all = tutti__alloc((size_t)s->size);

    s->may = tutti__alloc((size_t)s->size * sizeof *s->may);
    s->headers = tutti__alloc((size_t)s->size * TUTTI__SHARED_FILES * sizeof *s->headers);
    if (!all || !s->may || !s->headers)
        status = TUTTI_ERR_MEMORY;
    if (s->rank == 0 && status == TUTTI_OK) {
        snprintf(at.folder, sizeof at.folder, "%s", s->draft.folder);
        snprintf(at.mark, sizeof at.mark, ".seen-%016llx-%d", (unsigned long long)tutti__now_ns(),
                 (int)getpid());
        status = tutti__checkpoint_mark(&s->draft, at.mark, true);
    }
    status = tutti__group_agree(s->group, status);
    if (status == TUTTI_OK)
        status = tutti_broadcast(s->group, TUTTI_BUF(&at, sizeof at, TUTTI_U8), 0, NULL);
    if (status == TUTTI_OK)
        status = tutti__group_agree(s->group, look(s, &at, &mine));
    if (status == TUTTI_OK)
        status = tutti_all_gather(s->group, TUTTI_CONST_BUF(&mine, 1, TUTTI_U8),
                                  TUTTI_BUF(all, (size_t)s->size, TUTTI_U8), NULL);
    for (int r = 0; status == TUTTI_OK && r < s->size; r++)
        s->may[r] = all[r] != 0;
    free(all);
    TUTTI_TRY(status);
    if (s->rank == 0) {
        status = tutti__checkpoint_mark(&s->draft, at.mark, false);
        warn(s, at.folder);
    }
    return tutti__group_agree(s->group, status);
}

static tutti_status begin(tutti__shared_draft *s, tutti_status begun)
{
    tutti_status status = tutti__group_agree(s->group, begun);

    if (status == TUTTI_OK)
        status = find_writers(s);
    if (status != TUTTI_OK)
        tutti__shared_drop(s);
    return status;
}

void tutti__shared_drop(tutti__shared_draft *s)
{
    (void)!tutti__checkpoint_abandon(&s->draft, tutti__last_status());
    free(s->may);
    free(s->headers);
    s->may = NULL;
    s->headers = NULL;
}

static void init(tutti__shared_draft *s, tutti_group *group)
{
    *s = (tutti__shared_draft){.group = group,
                               .rank = tutti_group_rank(group),
                               .size = tutti_group_size(group),
                               .draft = {.at = -1, .lock = -1, .joined = true}};
}

tutti_status tutti__shared_begin(tutti__shared_draft *shared, tutti_group *group, const char *dir,
                                 uint64_t step, bool (*is_owner)(const void *owner),
                                 const void *owner)
{
    init(shared, group);
    return begin(shared, shared->rank == 0
                             ? tutti__checkpoint_begin(&shared->draft, dir, step, is_owner, owner)
                             : TUTTI_OK);
}

tutti_status tutti__shared_begin_at(tutti__shared_draft *shared, tutti_group *group,
                                    const char *path)
{
    init(shared, group);
    return begin(shared,
                 shared->rank == 0 ? tutti__checkpoint_begin_at(&shared->draft, path) : TUTTI_OK);
}

/* ---- The end ------------------------------------------------------------------------------------------------ */

/* Another rank's files are on the disk, or it has none. */
static tutti_status settle(tutti__shared_draft *s, tutti_status status)
{
    if (status == TUTTI_OK && s->may[s->rank])
        status = tutti__checkpoint_settle(&s->draft);
    return status == TUTTI_OK && s->may[s->rank] ? TUTTI_OK
                                                 : tutti__checkpoint_abandon(&s->draft, status);
}

tutti_status tutti__shared_meet(tutti__shared_draft *s, tutti_status status,
                                const uint64_t headers[TUTTI__SHARED_FILES])
{
    char why[1100];
    report r;

    if (s->rank != 0) {
        status = settle(s, status);
        r = report_of(status, headers);
        TUTTI_TRY(tell(s, 0, &r));
        return status;
    }
    for (int k = 0; k < TUTTI__SHARED_FILES; k++)
        s->headers[k * s->size] = headers[k];
    snprintf(why, sizeof why, "%s", status == TUTTI_OK ? "" : tutti_last_error());
    for (int rank = 1; rank < s->size; rank++) { /* all of them, for none may write any longer */
        TUTTI_TRY(hear(s, rank, &r));
        for (int k = 0; k < TUTTI__SHARED_FILES; k++)
            s->headers[k * s->size + rank] = r.headers[k];
        if (status != TUTTI_OK || r.status == TUTTI_OK)
            continue;
        status = (tutti_status)r.status;
        if (tutti__names_rank(r.why))
            snprintf(why, sizeof why, "%.1000s", r.why);
        else
            snprintf(why, sizeof why, "rank %d: %.1000s", rank, r.why);
    }
    return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, why);
}

tutti_status tutti__shared_close(tutti__shared_draft *s, tutti_status status)
{
    report r = report_of(status, NULL);
    tutti_status sent = TUTTI_OK;

    for (int rank = 1; s->rank == 0 && rank < s->size && sent == TUTTI_OK; rank++)
        sent = tell(s, rank, &r);
    if (s->rank != 0)
        sent = hear(s, 0, &r);
    free(s->may);
    free(s->headers);
    s->may = NULL;
    s->headers = NULL;
    if (s->rank == 0)
        return status == TUTTI_OK ? TUTTI_OK : tutti__fail_again(status, r.why);
    TUTTI_TRY(sent);
    return r.status == TUTTI_OK ? TUTTI_OK : tutti__fail_again((tutti_status)r.status, r.why);
}

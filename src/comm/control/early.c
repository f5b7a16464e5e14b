/* early.c -- frames of a group that this rank has yet to make.   SPDX-License-Identifier: MIT
 *
 * Ranks make a group without waiting for each other first, so one may send another its memory, or the reason for which it
 * failed, before that one has begun. All other frames follow the group's first barrier. What comes for a group that was made
 * and freed is of ranks that have passed that barrier too, and is not kept. */
#include "comm/control/control_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More only pile up if ranks do not make a group that others have tried to make. */
enum { MOST_EARLY = 1024 };

static void drop(tutti__links *links, tutti__early **place)
{
    tutti__early *early = *place;

    *place = early->next;
    links->n_early--;
    if (early->fd >= 0)
        close(early->fd);
    free(early);
}

void tutti__early_keep(tutti__links *links, int at)
{
    tutti__link *link = &links->at[at];
    const tutti__frame *head = &link->head.frame;
    bool is_cause = head->kind == TUTTI__FRAME_CAUSE;
    tutti__early *early, **place = &links->early;

    if (head->kind != TUTTI__FRAME_HANDLE && !(is_cause && head->count > 0))
        return;
    early = calloc(1, sizeof *early + head->bytes); /* there was perhaps no memory for the text */
    if (!early) {
        tutti_log(TUTTI_LOG_ERROR, "comm", "no memory for a message of rank %d", at);
        return;
    }
    *early = (tutti__early){.link = at, .fd = link->came, .head = link->head};
    link->came = -1;
    if (is_cause && link->text)
        memcpy(early->text, link->text, head->bytes);
    if (links->n_early++ >= MOST_EARLY)
        drop(links, place);
    while (*place)
        place = &(*place)->next;
    *place = early;
}

void tutti__early_deliver(tutti__control *control)
{
    tutti__links *links = control->links;

    for (tutti__early **place = &links->early; *place;) {
        tutti__early *early = *place;
        const tutti__frame *head = &early->head.frame;
        int rank = control->rank_at[early->link];

        if (early->head.group != control->comm->id) {
            place = &early->next;
            continue;
        }
        if (rank >= 0 && head->kind == TUTTI__FRAME_CAUSE) {
            tutti__control_judge_cause(control, head, early->text);
        } else if (rank >= 0) {
            tutti__control_keep_handle(control, rank, early->fd, head);
            early->fd = -1;
        }
        drop(links, place);
    }
}

void tutti__early_drop_all(tutti__links *links)
{
    while (links->early)
        drop(links, &links->early);
}

/* roster.c -- which of a round's nodes may continue.   SPDX-License-Identifier: MIT */
#include "launch/decide/roster.h"

#include <stddef.h>
#include <string.h>

void tutti__roster_copy(tutti__roster *to, const tutti__roster *from)
{
    memcpy(to, from, offsetof(tutti__roster, list) + (size_t)from->n * sizeof *from->list);
}

bool tutti__roster_fits(const tutti__roster *r)
{
    const size_t numbers = sizeof "[2147483647,\"\",65535,65536],";
    size_t bytes = 0;

    for (int i = 0; i < r->n; i++)
        bytes += strlen(r->list[i].address) + numbers;
    return bytes <= TUTTI__ROSTER_BYTES;
}

int tutti__roster_index(const tutti__roster *r, int id)
{
    for (int i = 0; i < r->n; i++)
        if (r->list[i].id == id)
            return i;
    return -1;
}

tutti__roster_node *tutti__roster_find(tutti__roster *r, int id)
{
    int i = tutti__roster_index(r, id);

    return i < 0 ? NULL : &r->list[i];
}

/* The coordinator, then the others in the order in which they came, which is that of their ids. */
bool tutti__roster_precedes(const tutti__roster *r, int id, int other)
{
    const int first = r->n > 0 ? r->list[0].id : 0;

    return id != other && (id == first || (other != first && id < other));
}

bool tutti__roster_is_newer(const tutti__roster *r, const tutti__roster *than)
{
    return r->term != than->term ? r->term > than->term : r->version > than->version;
}

bool tutti__roster_suffices(const tutti__roster *r, bool (*here)(void *context, int id),
                            void *context)
{
    int living = 0, present = 0;
    bool has_first = false;

    for (int i = 0; i < r->n; i++) {
        bool is_here = here(context, r->list[i].id);

        if (!is_here && r->list[i].dead)
            continue;
        has_first |= living++ == 0 && is_here;
        present += is_here;
    }
    return r->n == 0 || 2 * present > living || (2 * present == living && has_first);
}

bool tutti__roster_all_here(const tutti__roster *r, bool (*here)(void *context, int id),
                            void *context)
{
    for (int i = 0; i < r->n; i++)
        if (!r->list[i].dead && !here(context, r->list[i].id))
            return false;
    return true;
}

/* succession.c -- the next coordinator of an elastic round.   SPDX-License-Identifier: MIT */
#include "launch/decide/succession.h"

enum {
    PASS_MS = 100, /* between two passes over the list */
    AGAIN_MS = 10, /* before asking again one that disconnected */
    DISCONNECTS = 10
};

bool tutti__succession_listed(tutti__succession *s, const tutti__roster *roster, int id)
{
    if (!tutti__roster_is_newer(roster, &s->roster))
        return false;
    tutti__roster_copy(&s->roster, roster);
    s->id = id;
    return true;
}

void tutti__succession_forget(tutti__succession *s)
{
    s->roster.term = s->roster.version = 0;
    s->roster.n = s->id = 0;
    s->uncertain = false;
}

bool tutti__succession_has_others(const tutti__succession *s)
{
    return s->id > 0 && s->roster.n > (tutti__roster_index(&s->roster, s->id) >= 0);
}

static void next_in_list(tutti__succession *s)
{
    s->disconnects = s->port = 0;
    s->redirected = false;
    s->at++;
}

void tutti__succession_begin(tutti__succession *s, bool ended)
{
    s->uncertain = !ended;
    s->at = -1;
    next_in_list(s);
    s->predecessor = false;
    s->next_ms = 0;
}

/* The next node to ask, from `at` on; NULL: none. A coordinator asks all that are missing, others those before them. */
static const tutti__roster_node *find_target(tutti__succession *s, const tutti__rounds *own)
{
    if (own)
        return tutti__rounds_missing(own, &s->at);
    for (; s->at < s->roster.n; s->at++) {
        const tutti__roster_node *node = &s->roster.list[s->at];

        if (s->may_coordinate && !tutti__roster_precedes(&s->roster, node->id, s->id))
            break;
        if (node->id != s->id && !node->dead && node->port > 0)
            return node;
    }
    return NULL;
}

tutti__succession_act tutti__succession_next(tutti__succession *s, uint64_t now_ms,
                                             const tutti__rounds *own, const char **address_p,
                                             int *port_p)
{
    const tutti__roster_node *target;
    bool takes_over;

    if (now_ms < s->next_ms)
        return TUTTI__SUCCESSION_WAIT;
    if (s->port > 0) {
        *address_p = s->address;
        *port_p = s->port;
        s->port = 0;
        return TUTTI__SUCCESSION_ASK;
    }
    target = find_target(s, own);
    if (target) {
        s->redirected = false;
        s->asked = target->id;
        *address_p = target->address;
        *port_p = target->port;
        return TUTTI__SUCCESSION_ASK;
    }
    takes_over = !own && !s->predecessor && s->may_coordinate;
    s->at = 0;
    s->predecessor = false;
    s->next_ms = takes_over ? 0 : now_ms + PASS_MS;
    return takes_over ? TUTTI__SUCCESSION_TAKE_OVER : TUTTI__SUCCESSION_WAIT;
}

void tutti__succession_refused(tutti__succession *s, tutti__rounds *own)
{
    tutti__roster_node *node = tutti__roster_find(&s->roster, s->asked);

    if (!s->redirected && node)
        node->dead = true;
    if (!s->redirected && own)
        tutti__rounds_is_dead(own, s->asked);
    next_in_list(s);
}

void tutti__succession_unanswered(tutti__succession *s, uint64_t now_ms, bool disconnected)
{
    if (disconnected && s->disconnects++ < DISCONNECTS) {
        s->next_ms = now_ms + AGAIN_MS;
        return;
    }
    s->uncertain |= s->at == 0;
    next_in_list(s);
}

void tutti__succession_redirected(tutti__succession *s, tutti__rounds *own, int64_t term,
                                  const char *address, int port, bool unrelated)
{
    if (unrelated && !s->redirected) {
        tutti__succession_refused(s, own);
        return;
    }
    s->predecessor = true;
    if (term <= s->roster.term || s->redirected) {
        next_in_list(s);
        return;
    }
    s->redirected = true;
    snprintf(s->address, sizeof s->address, "%s", address);
    s->port = port;
}

void tutti__succession_accepted(tutti__succession *s)
{
    s->uncertain = false;
}

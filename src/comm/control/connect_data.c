/* connect_data.c -- connections for data: made when a schedule first has the peer, by the higher of the two ranks.   SPDX-License-Identifier: MIT
 *
 * Whoever needs several makes them at the same time (tutti__data_connecting); on the other side the control thread accepts them, and they wait
 * in a list until they are taken. One of a group that is not here, because this rank has left it or never made it, is closed when that group
 * could have been made. */
#include "comm/control/control_state.h"

#include "comm/core/failure.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct tutti__data_connecting {
    const tutti__links *links;
    tutti__address address;
    tutti__connector connector;
    tutti__connector_opts opts;
    tutti__claim theirs;
    char who[96];
    double again_ms,
        full_ms; /* again: when to try next; 0: it is being tried. full: since when the peer has no descriptor */
};

/* ---- This rank connects -------------------------------------------------------------------------------------------- */

bool tutti__control_connects(const tutti__control *control, int rank)
{
    return control->links->rank > control->members[rank].link;
}

tutti__address tutti__control_data_address(const tutti__control *control, int rank)
{
    return tutti__address_unpack(
        &control->links->directory->places[control->members[rank].link].data);
}

tutti__data_connecting *tutti__data_begin(const tutti__control *control, int rank, int channel,
                                          double deadline)
{
    const tutti__links *links = control->links;
    const int at = control->members[rank].link;
    tutti__data_connecting *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    d->links = links;
    d->address = tutti__control_data_address(control, rank);
    d->opts.deadline = deadline;
    tutti__link_describe(&d->opts, &d->theirs, d->who, sizeof d->who, links, at);
    d->opts.claim =
        tutti__group_claim(&links->secret, control->comm->id, links->rank, (uint32_t)channel);
    tutti__connector_begin(&d->connector, &d->address, &d->opts);
    return d;
}

static int fail(tutti__data_connecting *d)
{
    const tutti__connector *c = &d->connector;
    const int pause = tutti__link_again(c, &d->full_ms, d->opts.deadline);

    if (pause > 0) {
        d->again_ms = tutti__now_ms() + pause;
        return EINPROGRESS;
    }
    return c->error ? c->error : c->status == TUTTI_ERR_TIMEOUT ? ETIME : EPROTO;
}

int tutti__data_advance(tutti__data_connecting *d, int *fd_p)
{
    tutti__connector *c = &d->connector;

    if (d->again_ms > tutti__now_ms())
        return EINPROGRESS;
    if (d->again_ms > 0) {
        tutti__connector_close(c);
        tutti__connector_begin(c, &d->address, &d->opts);
        d->again_ms = 0;
    }
    if (!tutti__connector_advance(c))
        return EINPROGRESS;
    if (c->state != TUTTI__CONNECTOR_OPEN)
        return fail(d);
    *fd_p = tutti__connector_take(c);
    return 0;
}

int tutti__data_fd(const tutti__data_connecting *d, short *events_p)
{
    return d->again_ms > 0 ? -1 : tutti__connector_fd(&d->connector, events_p);
}

double tutti__data_next(const tutti__data_connecting *d)
{
    return d->again_ms > 0 ? d->again_ms : d->connector.deadline;
}

void tutti__data_drop(tutti__data_connecting *d)
{
    if (d)
        tutti__connector_close(&d->connector);
    free(d);
}

/* ---- The other connects -------------------------------------------------------------------------------------------- */

static const tutti__control *find_group(const tutti__links *links, uint64_t id)
{
    const tutti__control *c = links->controls;

    while (c && c->comm->id != id)
        c = c->next;
    return c;
}

char tutti__data_decide(tutti__links *links, const tutti__claim *claim)
{
    char verdict;

    pthread_mutex_lock(&links->lock);
    verdict = tutti__early_data_decide(links->data, claim, links->rank);
    pthread_mutex_unlock(&links->lock);
    return verdict;
}

void tutti__data_welcome(tutti__links *links, int fd, const tutti__claim *claim)
{
    const tutti__control *c = find_group(links, claim->group);

    pthread_mutex_lock(&links->lock);
    tutti__early_data_keep(&links->data, fd, claim);
    if (c && c->data.came)
        c->data.came(c->data.self);
    pthread_mutex_unlock(&links->lock);
}

int tutti__control_take_data(tutti__control *control, int rank, int channel)
{
    tutti__links *links = control->links;
    int fd;

    pthread_mutex_lock(&links->lock);
    fd = tutti__early_data_take(&links->data, control->comm->id, control->members[rank].link,
                                channel);
    pthread_mutex_unlock(&links->lock);
    return fd;
}

/* Of a group that is not here. */
static double expiry_of(const tutti__links *links, const tutti__early_data *e)
{
    return find_group(links, e->group) ? 1e300 : e->came_ms + links->connect_ms;
}

double tutti__data_expiry(tutti__links *links)
{
    double first = 1e300;

    pthread_mutex_lock(&links->lock);
    for (const tutti__early_data *e = links->data; e; e = e->next)
        first = expiry_of(links, e) < first ? expiry_of(links, e) : first;
    pthread_mutex_unlock(&links->lock);
    return first;
}

void tutti__data_expire(tutti__links *links, double now)
{
    pthread_mutex_lock(&links->lock);
    for (tutti__early_data **place = &links->data; *place;)
        if (now >= expiry_of(links, *place))
            tutti__early_data_drop(place);
        else
            place = &(*place)->next;
    pthread_mutex_unlock(&links->lock);
}

void tutti__control_on_data(tutti__control *control, const tutti__data_events *events)
{
    pthread_mutex_lock(&control->links->lock);
    control->data = events ? *events : (tutti__data_events){0};
    pthread_mutex_unlock(&control->links->lock);
}

void tutti__control_drop_data(tutti__control *control)
{
    tutti__links *links = control->links;

    for (tutti__early_data **place = &links->data; *place;)
        if ((*place)->group == control->comm->id)
            tutti__early_data_drop(place);
        else
            place = &(*place)->next;
}

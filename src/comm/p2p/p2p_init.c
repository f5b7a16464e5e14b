/* p2p_init.c -- point to point: init and teardown, and what the group's failure or a peer's leaving does to it.
 * SPDX-License-Identifier: MIT */
#include "comm/p2p/p2p_state.h"

#include "base/thread.h"
#include "comm/core/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS = 1000, LOOKS_CROWDED = 20, YIELDS = 8, SHARE = 16, PATIENCE_NS = 8000 };
/* Lines of a ring: MOST_LINES between FEW ranks of a host, RING_LINES up to MANY. */
enum { RING_LINES = 1024, MANY = 64, FEW = 4, MOST_LINES = 4096 };
enum { PARTNERS = 16 }; /* to which a rank sends messages, as a rule */

/* ---- For the control channel -------------------------------------------------------------------------------- */

static void enter(void *self)
{
    tutti__p2p_enter(self);
}

static void leave(void *self)
{
    tutti__p2p_leave(self);
}

static char *begin(void *self, int rank, const tutti__frame *head)
{
    return tutti__p2p_frame_begin(self, rank, head);
}

static void end(void *self, int rank, const tutti__frame *head)
{
    if (head->kind == TUTTI__FRAME_DOORBELL)
        (void)tutti__p2p_progress(self);
    else
        tutti__p2p_frame_end(self, rank, head);
}

static const char *next(void *self, int rank, tutti__frame *head)
{
    tutti__p2p *p2p = self;
    tutti__p2p_peer *peer = &p2p->peers[rank];
    const char *body;

    if (peer->streamed)
        tutti__p2p_part_sent(p2p, rank);
    body = tutti__p2p_next_part(p2p, rank, head);
    peer->streamed = body != NULL;
    return body;
}

static bool work(void *self)
{
    tutti__p2p *p2p = self;
    bool more;

    if (p2p->comm->size == 1 || !tutti__p2p_try_enter(p2p))
        return false; /* the thread that holds it makes progress */
    more = p2p->pollers == 0 && tutti__p2p_copy_on(p2p) && p2p->copying.first;
    tutti__p2p_leave(p2p);
    return more;
}

static void tick(void *self)
{
    tutti__p2p_expire_watched(self);
    tutti__p2p_watch_peers(self);
}

tutti__frame_handler tutti__p2p_handler(tutti__p2p *p2p)
{
    return (tutti__frame_handler){.self = p2p,
                                  .enter = enter,
                                  .leave = leave,
                                  .valid = tutti__p2p_frame_valid,
                                  .begin = begin,
                                  .end = end,
                                  .next = next,
                                  .work = work,
                                  .tick = tick};
}

/* ---- Ends ----------------------------------------------------------------------------------------------------- */

/* The group is dead: requests' memory must no longer be accessed. */
static void forget_peer(tutti__p2p_peer *peer)
{
    const tutti__p2p_list none = {NULL, NULL};

    peer->rts_sent = peer->receiving = peer->streams = none;
    peer->streamed = false;
    peer->coming = NULL;
    if (peer->arriving)
        peer->arriving->receive = NULL;
    for (tutti__unexpected *u = peer->first_unexpected; u; u = u->next)
        u->own = NULL;
}

static void fail_requests(void *self, bool first)
{
    tutti__p2p *p2p = self;
    tutti__p2p_request *request, *following;

    if (!first)
        return;
    tutti__p2p_enter(p2p);
    (void)tutti__p2p_progress(p2p); /* receives complete messages */
    p2p->failed = true;
    if (p2p->control)
        tutti__control_forget(p2p->control);
    p2p->posted = (tutti__p2p_list){NULL, NULL};
    tutti__p2p_drop_copying(p2p);
    tutti__p2p_drop_pending(p2p);
    for (int r = 0; r < p2p->comm->size; r++)
        forget_peer(&p2p->peers[r]);
    for (request = p2p->open; request; request = following) {
        following = request->next_open;
        /* A request whose memory a thread is just reading ends when that has finished, or learns of the failure: see reap. */
        if (request->signature.op != TUTTI__OP_SEND || tutti__p2p_revoke(p2p, request))
            tutti__p2p_finish(p2p, request, tutti__comm_status(p2p->comm));
    }
    tutti__p2p_leave(p2p);
}

/* This rank will send and take no more messages. */
static void rank_left(void *self, int rank)
{
    tutti__p2p *p2p = self;

    tutti__p2p_enter(p2p);
    (void)tutti__p2p_progress(p2p); /* what it sent before */
    tutti__p2p_judge_orphans(p2p, rank);
    tutti__p2p_leave(p2p);
}

/* ---- Init, teardown --------------------------------------------------------------------------------------- */

/* The polling of a waiting rank, with n ranks on this host: if each has a core, yielding gains nothing. */
static void set_patience(tutti__p2p *p2p, int n)
{
    int spin = p2p->comm->tuning.spin;
    bool crowded = tutti__cores() < n;

    p2p->most_looks = spin < 0 ? 1 : crowded ? LOOKS_CROWDED : LOOKS;
    p2p->least_looks = spin < 0 || crowded ? p2p->most_looks : LOOKS / SHARE;
    atomic_store(&p2p->looks, p2p->most_looks);
    p2p->patience_ns = spin < 0 || crowded ? 0 : PATIENCE_NS;
    p2p->yields = spin < 0 ? 0 : spin > 0 ? spin : crowded ? YIELDS : 0;
}

tutti_status tutti__p2p_new(tutti__p2p **p2p_p, tutti__comm *comm)
{
    size_t n = (size_t)comm->size;
    tutti__p2p *p2p = tutti__alloc(sizeof *p2p + n * sizeof p2p->peers[0]);

    *p2p_p = p2p;
    if (!p2p)
        return TUTTI_ERR_MEMORY;
    p2p->comm = comm;
    p2p->doorbell = &p2p->own;
    atomic_store(&p2p->looks, 1); /* nothing to poll yet */
    p2p->most_looks = p2p->least_looks = 1;
    pthread_mutex_init(&p2p->lock, NULL);
    for (size_t r = 0; r < n; r++) {
        p2p->peers[r].credit = TUTTI__CREDIT_BYTES;
        p2p->peers[r].eager_bytes = TUTTI__EAGER_BYTES;
        p2p->peers[r].part_bytes = TUTTI__DATA_BYTES;
    }
    return TUTTI_OK;
}

void tutti__p2p_attach(tutti__p2p *p2p, tutti__control *control)
{
    tutti__p2p_enter(p2p);
    p2p->control = control;
    tutti__p2p_leave(p2p);
    tutti__comm_observe(
        p2p->comm, &(tutti__observer){.self = p2p, .failed = fail_requests, .left = rank_left});
}

void tutti__p2p_set_memory(tutti__p2p *p2p, const tutti__p2p_memory *memory)
{
    tutti__p2p_enter(p2p);
    p2p->memory = *memory;
    tutti__p2p_leave(p2p);
}

/* Words of a rank's bits of senders: whole cache lines. */
static size_t sender_words(size_t n)
{
    return (n + TUTTI__SENDERS * 8 - 1) / (TUTTI__SENDERS * 8) * 8;
}

/* In the region: a doorbell a rank, the senders to each, a ring for each ordered pair. */
static _Atomic uint64_t *senders_of(const tutti__p2p *p2p, size_t n, size_t to)
{
    return (_Atomic uint64_t *)(void *)((tutti__doorbell *)p2p->region.p + n) +
           to * sender_words(n);
}

static tutti__ring *ring_of(const tutti__p2p *p2p, size_t n, size_t n_lines, size_t from, size_t to)
{
    char *rings = (char *)(uintptr_t)senders_of(p2p, n, n);

    return (tutti__ring *)(void *)(rings + (from * n + to) * tutti__ring_bytes(n_lines));
}

/* Sets the addresses in the region: this rank is ranks[self]. */
static void take_places(tutti__p2p *p2p, const int *ranks, size_t n, size_t self, size_t n_lines)
{
    tutti__doorbell *doorbells = p2p->region.p;
    const uint64_t unique[] = {tutti__now_ns(), (uint64_t)getpid(), (uint64_t)(uintptr_t)p2p};

    p2p->token = tutti__hash64(unique, sizeof unique);
    p2p->doorbell = &doorbells[self];
    p2p->doorbell->pid = (int64_t)getpid();
    p2p->doorbell->token = p2p->token;
    p2p->doorbell->token_at = (uint64_t)(uintptr_t)&p2p->token;
    p2p->senders = senders_of(p2p, n, self);
    p2p->own_sender = UINT64_C(1) << self % TUTTI__SENDERS;
    p2p->n_local = (int)n - 1;
    for (size_t i = 0; i < n; i++) {
        tutti__p2p_peer *peer = &p2p->peers[ranks[i]];

        p2p->local_ranks[i] = ranks[i];
        if (i == self)
            continue;
        peer->doorbell = &doorbells[i];
        peer->senders = senders_of(p2p, n, i) + self / TUTTI__SENDERS;
        peer->out = (tutti__ring_writer){ring_of(p2p, n, n_lines, self, i), n_lines, 0, 0};
        peer->in = (tutti__ring_reader){ring_of(p2p, n, n_lines, i, self), n_lines, 0, 0};
        peer->part_bytes = n_lines * TUTTI__RING_LINE / 4;
        peer->eager_bytes = n_lines >= RING_LINES ? TUTTI__EAGER_BYTES : TUTTI__EAGER_BYTES / 4;
    }
    set_patience(p2p, (int)n);
}

/* Of a ring, a power of two: large messages that go through fewer, larger parts wait less often. */
static size_t lines_for(int n)
{
    if (n > MANY)
        return RING_LINES / 4;
    return n <= FEW ? MOST_LINES : n <= 2 * FEW ? MOST_LINES / 2 : RING_LINES;
}

tutti_status tutti__p2p_share(tutti__p2p *p2p, const int *ranks, int n, bool one_process,
                              double deadline)
{
    size_t n_lines = lines_for(n), places = (size_t)n, self = 0;
    size_t first = places * (sizeof(tutti__doorbell) + sender_words(places) * sizeof(uint64_t)),
           of_ring = tutti__ring_bytes(n_lines), bytes = first + places * places * of_ring,
           used = first + places * (places < PARTNERS ? places : PARTNERS) * of_ring;
    tutti__handed handed = {0};
    tutti__region region = {0};
    int error = 0;

    while (ranks[self] != p2p->comm->rank)
        self++;
    if (self == 0)
        tutti__region_make(p2p->control, ranks, n, one_process, bytes, used, &region);
    else
        error = tutti__region_take(p2p->control, ranks, n, (int)self, one_process, deadline,
                                   &handed, &region);
    if (!error && !region.p) { /* the same on all ranks */
        tutti_log(TUTTI_LOG_INFO, "comm", "no shared memory for messages between %d ranks", n);
        return TUTTI_OK;
    }
    if (error == ECONNRESET && self > 0) /* the rank that was to send it */
        (void)tutti__comm_fail_lost(p2p->comm, ranks[tutti__tree_parent((int)self)]);
    if (error && error == handed.error)
        (void)tutti__control_fail_without(p2p->control, &handed, "messages' shared memory");
    if (error)
        return tutti__comm_failed(p2p->comm)
                   ? tutti__comm_error(p2p->comm, NULL)
                   : tutti__fail_errno(error, "cannot share %zu bytes for messages", bytes);
    tutti__p2p_enter(p2p);
    p2p->known_senders = tutti__alloc(sender_words(places) * sizeof *p2p->known_senders +
                                      2 * places * sizeof *p2p->local_ranks);
    p2p->region = region;
    p2p->one_process = one_process;
    if (p2p->known_senders) {
        p2p->local_ranks = (int *)(void *)(p2p->known_senders + sender_words(places));
        p2p->used_ranks = p2p->local_ranks + places;
        take_places(p2p, ranks, places, self, n_lines);
    }
    tutti__p2p_leave(p2p);
    return p2p->known_senders ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

void tutti__p2p_free(tutti__p2p *p2p)
{
    if (!p2p)
        return;
    tutti__p2p_drop_pending(p2p);
    tutti__p2p_drop_windows(p2p);
    for (int r = 0; r < p2p->comm->size; r++) {
        tutti__p2p_peer *peer = &p2p->peers[r];

        if (peer->arriving && peer->arriving->claimed)
            free(peer->arriving);
        while (peer->first_unexpected) {
            tutti__unexpected *unexpected = peer->first_unexpected;

            peer->first_unexpected = unexpected->next;
            free(unexpected);
        }
    }
    tutti__region_drop(&p2p->region);
    free(p2p->known_senders);
    pthread_mutex_destroy(&p2p->lock);
    free(p2p);
}

/* queue.c -- operations in order: queued for the communication thread, or run by the caller.   SPDX-License-Identifier: MIT
 *
 * The thread starts with the first asynchronous call. A synchronous call runs in the caller when nothing is queued or
 * running, which saves two thread switches; otherwise it is queued like the others, so the order is always that of the
 * calls. "The turn" is the right to run the next operation. A function may be queued too: the collectives that it calls
 * run at once, in its place in the order. Held work (tutti__queue_hold) is queued without waking the thread: its waiter
 * runs it. */
#include "comm/engine/queue.h"
#include "comm/engine/queue_state.h"

#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The queue whose function this thread is running, that function's time limit, and the labels of its calls. */
static _Thread_local struct {
    const tutti__queue *inside, *labelled, *holds;
    int timeout_ms;         /* 0: the group's */
    tutti__signature label; /* reducer, bucket and tag */
} here;

void tutti__queue_label(const tutti__queue *queue, unsigned reducer, size_t bucket, uint64_t step)
{
    here.labelled = reducer ? queue : NULL;
    here.label.reducer = (uint16_t)reducer;
    here.label.bucket = (uint16_t)bucket;
    here.label.tag = (int32_t)(step & INT32_MAX);
}

void tutti__queue_hold(const tutti__queue *queue, bool held)
{
    here.holds = held ? queue : NULL;
}

static void add_label(tutti__signature *signature)
{
    signature->reducer = here.label.reducer;
    signature->bucket = here.label.bucket;
    signature->tag ^= here.label.tag; /* before: 0, or a digest */
}

/* For a call that cannot begin: otherwise the other ranks would wait in it, or find this rank in the next one. */
static tutti_status give_up(tutti__queue *q, tutti_status status)
{
    char why[1024];

    snprintf(why, sizeof why, "%s", tutti_last_error());
    (void)tutti__devices_fail(q->comm);
    return tutti__fail_again(status, why);
}

/* On a device, where a profiler shows the bucket. */
static tutti_status run_on_device(tutti__queue *q, tutti__operation *op)
{
    const tutti__signature *s = &op->signature;
    char name[64];
    tutti_status status;

    if (s->bucket)
        snprintf(name, sizeof name, "%s bucket %d", tutti__op_name((tutti__op_kind)s->op),
                 s->bucket - 1);
    else
        snprintf(name, sizeof name, "%s", tutti__op_name((tutti__op_kind)s->op));
    tutti__range_begin(op->stream, name);
    status = tutti__devices_run(q->devices, op);
    tutti__range_end(op->stream);
    return status;
}

/* Only the thread that has the turn writes, so no atomic addition is needed. */
static uint64_t count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, before + more, memory_order_relaxed);
    return before;
}

/* The caller has the turn. Operations are numbered as they run, in the same order on every rank. */
static tutti_status run_now(tutti__queue *q, tutti__operation *op)
{
    const bool failed = tutti__comm_failed(q->comm);
    uint64_t begin, ticket;
    tutti_status status;

    if (op->stream)
        tutti__devices_claim(q->devices, op);
    op->signature.sequence = count(&q->sequence, 1);
    if (!failed && !op->stream && q->engine->ops->publish)
        q->engine->ops->publish(q->engine, op);
    /* To a few milliseconds: the exact time would take a large part of a small collective. */
    begin = tutti__now_coarse_ns();
    op->deadline = (double)begin * 1e-6 + TUTTI__TICK_MS + op->timeout_ms;
    ticket = tutti__flight_begin(q->flight, &op->signature, begin);
    if (failed)
        return tutti__comm_error(q->comm, &op->signature);
    (void)count(&q->bytes, tutti__op_given(q->comm->rank, q->comm->size, op) *
                               tutti__element(op->signature.dtype));
    status = op->stream ? run_on_device(q, op) : q->engine->ops->run(q->engine, op);
    if (status != TUTTI_OK) /* of this call only, with its message set, or of the group */
        return tutti__comm_failed(q->comm) ? tutti__comm_error(q->comm, &op->signature) : status;
    tutti__flight_end(q->flight, ticket, begin);
    return TUTTI_OK;
}

/* On host memory, what this rank gives is multiplied first, before others can see it. */
static tutti_status run(tutti__queue *q, tutti__operation *op)
{
    void *copy = NULL;
    tutti_status status;

    if (!op->scales || op->stream)
        return run_now(q, op);
    status = tutti__op_scale(q->comm->rank, q->comm->size, op, &copy);
    status = status == TUTTI_OK ? run_now(q, op) : give_up(q, status);
    free(copy);
    return status;
}

static void let_go(tutti__queue *q, const tutti__task *todo)
{
    tutti__devices_release_event(q->devices, todo->event);
    if (todo->drop)
        todo->drop(todo->arg);
}

static tutti_status run_call(tutti__queue *q, const tutti__task *todo)
{
    /* a queued function may queue another, which runs at once */
    const tutti__queue *outer = here.inside;
    const int outer_ms = here.timeout_ms;
    tutti_status status;

    if (tutti__comm_failed(q->comm))
        return tutti__comm_error(q->comm, NULL);
    here.inside = q;
    if (todo->op.timeout_ms || outer != q)
        here.timeout_ms = todo->op.timeout_ms;
    status = todo->call(todo->arg);
    here.inside = outer;
    here.timeout_ms = outer_ms;
    return status;
}

static tutti_status run_task(tutti__queue *q, tutti__task *todo)
{
    tutti_status status = todo->call ? run_call(q, todo) : run(q, &todo->op);

    let_go(q, todo);
    return status;
}

static void run_work(tutti_work *work)
{
    work->begin_ns = tutti__now_ns();
    work->status = run_task(work->queue, &work->task);
    work->end_ns = tutti__now_ns();
    if (work->status != TUTTI_OK)
        work->message = strdup(tutti_last_error());
    tutti__work_set_done(work);
}

/* True if the caller now has the turn. */
static bool take_running(tutti__queue *q)
{
    bool running = false;

    return atomic_compare_exchange_strong(&q->running, &running, true);
}

static void *comm_main(void *arg)
{
    tutti__queue *q = arg;

    tutti__log_set_rank(q->comm->rank);
    pthread_mutex_lock(&q->lock);
    for (;;) {
        tutti_work *work = q->first;

        if (work && take_running(q)) {
            q->first = work->next;
            pthread_mutex_unlock(&q->lock);
            run_work(work);
            pthread_mutex_lock(&q->lock);
            q->running = false;
        } else if (q->stopping && !work) {
            break;
        } else {
            pthread_cond_wait(&q->changed, &q->lock);
        }
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static size_t list_queued(void *self, tutti__signature *signatures, size_t n)
{
    tutti__queue *q = self;
    uint64_t sequence;
    size_t count = 0;

    pthread_mutex_lock(&q->lock);
    sequence = atomic_load(&q->sequence);
    for (const tutti_work *work = q->first; work; work = work->next) {
        if (work->task.call)
            continue;
        if (count < n) {
            signatures[count] = work->task.op.signature;
            signatures[count].sequence = sequence + count;
        }
        count++;
    }
    pthread_mutex_unlock(&q->lock);
    return count;
}

tutti_status tutti__queue_new(tutti__queue **queue_p, tutti__comm *comm, tutti__flight *flight,
                              tutti__devices *devices)
{
    tutti__queue *q = tutti__alloc(sizeof *q);

    *queue_p = q;
    if (!q)
        return TUTTI_ERR_MEMORY;
    q->comm = comm;
    q->flight = flight;
    q->devices = devices;
    atomic_init(&q->timeout_ms, comm->timeout_ms);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    flight->queued = list_queued;
    flight->queue = q;
    return TUTTI_OK;
}

void tutti__queue_set_engine(tutti__queue *queue, tutti__engine *engine)
{
    queue->engine = engine;
    tutti__devices_set_engine(queue->devices, engine);
}

void tutti__queue_set_timeout(tutti__queue *queue, int timeout_ms)
{
    atomic_store(&queue->timeout_ms, timeout_ms);
}

int tutti__queue_timeout(const tutti__queue *queue)
{
    if (here.inside == queue && here.timeout_ms)
        return here.timeout_ms;
    return atomic_load_explicit(&queue->timeout_ms, memory_order_relaxed);
}

uint64_t tutti__queue_sequence(const tutti__queue *queue)
{
    return atomic_load(&queue->sequence);
}

uint64_t tutti__queue_bytes(const tutti__queue *queue)
{
    return atomic_load(&queue->bytes);
}

/* Copies the counts, which are borrowed only until the call returns. */
static tutti_work *work_new(tutti__queue *q, const tutti__task *todo)
{
    const tutti__operation *op = &todo->op;
    size_t n = (size_t)q->comm->size, bytes = n * sizeof *op->src_counts;
    /* not tutti__alloc: aligned memory takes the C library several times as long as what it keeps ready for this size */
    tutti_work *work = malloc(sizeof *work + (op->dst_counts ? 2 * bytes : 0));

    if (!work) {
        (void)tutti__fail(TUTTI_ERR_MEMORY, "no memory for the handle of a call");
        return NULL;
    }
    *work = (tutti_work){.task = *todo, .queue = q, .references = 1};
    if (op->src_counts)
        work->task.op.src_counts = memcpy(work->counts, op->src_counts, bytes);
    if (op->dst_counts)
        work->task.op.dst_counts = memcpy(work->counts + n, op->dst_counts, bytes);
    return work;
}

tutti_status tutti__submit_p2p(tutti__queue *q, tutti__p2p *p2p, const tutti__signature *signature,
                               void *p, int timeout_ms, tutti__bounce *bounce, tutti_work **work_p)
{
    tutti_work *work = work_new(q, &(tutti__task){.op = {.signature = *signature}});

    *work_p = work;
    if (!work) {
        (void)!tutti__bounce_close(bounce, false);
        return give_up(q, TUTTI_ERR_MEMORY);
    }
    work->is_p2p = true;
    work->has_bounce = bounce->stream != NULL;
    work->bounce = *bounce;
    tutti__p2p_start(p2p, &work->request, signature, p, timeout_ms, false);
    return TUTTI_OK;
}

/* The caller still gets a handle. */
static void run_at_once(tutti__queue *q, tutti_work *work)
{
    void (*at_once)(tutti__engine * engine, int more) = q->engine->ops->at_once;

    if (at_once)
        at_once(q->engine, 1);
    run_work(work);
    if (at_once)
        at_once(q->engine, -1);
}

static tutti_status enqueue(tutti__queue *q, const tutti__task *todo, tutti_work **work_p)
{
    tutti_work *work = work_new(q, todo);
    int error = 0;
    bool held;

    if (!work) {
        let_go(q, todo);
        return give_up(q, TUTTI_ERR_MEMORY);
    }
    atomic_store_explicit(&work->references, 2, memory_order_relaxed);
    if (here.inside == q || q->engine->ops->at_once) {
        run_at_once(q, work);
        *work_p = work;
        return TUTTI_OK;
    }
    held = here.holds == q && !todo->call && !todo->op.stream;
    work->held = held;
    pthread_mutex_lock(&q->lock);
    if (!q->has_thread) {
        error = tutti__thread_start(&q->thread, comm_main, q);
        q->has_thread = error == 0;
    }
    if (!error) {
        if (q->first)
            q->last->next = work;
        else
            q->first = work;
        q->last = work;
    }
    pthread_mutex_unlock(&q->lock);
    /* after unlocking, so that the thread does not wake only to wait for the lock */
    if (!error && !held)
        pthread_cond_broadcast(&q->changed);
    if (error) {
        free(work);
        let_go(q, todo);
        return give_up(q, tutti__fail_errno(error,
                                            "cannot start the communication thread of group \"%s\"",
                                            q->comm->name));
    }
    *work_p = work;
    return TUTTI_OK;
}

/* True if the caller may run its operation now. Work is taken from the queue only by the thread that has the turn, so if
 * the queue is empty and the turn is free, all queued work has run. */
static bool take_turn(tutti__queue *q)
{
    return !q->first && take_running(q);
}

/* Wakes the thread for work that it saw queued while the turn was taken. The thread reads the queue first and then the
 * turn; this writes the turn first and then reads the queue (all sequentially consistent), so one of the two sees the
 * other. */
static void end_turn(tutti__queue *q)
{
    const tutti_work *work;

    q->running = false;
    if (!q->first)
        return;
    pthread_mutex_lock(&q->lock);
    for (work = q->first; work && work->held; work = work->next)
        continue;
    if (work || q->stopping) /* else the thread has nothing to do */
        pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

/* Runs it now if it may, else queues it. */
static tutti_status submit(tutti__queue *q, tutti__task *todo, tutti_work **work_p)
{
    tutti_work *work;
    tutti_status status;

    if (work_p)
        return enqueue(q, todo, work_p);
    if (here.inside == q)
        return run_task(q, todo);
    if (take_turn(q)) {
        status = run_task(q, todo);
        end_turn(q);
        return status;
    }
    TUTTI_TRY(enqueue(q, todo, &work));
    if (work->held)
        tutti__queue_release(work, true);
    (void)tutti__work_sleep(work, 0);
    status = tutti__work_status(work);
    tutti__work_let_go(work);
    return status;
}

/* An operation that cannot run now, or has device buffers. */
static tutti_status submit_op(tutti__queue *q, const tutti__operation *op, tutti_work **work_p)
{
    tutti__task todo = {.op = *op};

    if (op->stream && !op->after) {
        const tutti_status status = tutti__devices_record(q->devices, op->stream, &todo.event);

        if (status != TUTTI_OK)
            return give_up(q, status);
        todo.op.after = todo.event;
    }
    return submit(q, &todo, work_p);
}

tutti_status tutti__submit(tutti__queue *q, tutti__operation *op, tutti_work **work_p)
{
    bool inside = here.inside == q;
    tutti_status status;

    if (work_p)
        *work_p = NULL;
    op->signature.group = q->comm->id;
    /* for messages; run() counts */
    op->signature.sequence = atomic_load_explicit(&q->sequence, memory_order_relaxed);
    if (here.labelled == q)
        add_label(&op->signature);
    if (op->timeout_ms == 0)
        op->timeout_ms = tutti__queue_timeout(q);
    if (tutti__comm_failed(q->comm)) {
        (void)tutti__flight_begin(q->flight, &op->signature,
                                  /* show in the report that the call was made */
                                  tutti__now_ns());
        return tutti__comm_error(q->comm, &op->signature);
    }
    if (work_p || op->stream || !(inside || take_turn(q)))
        return submit_op(q, op, work_p);
    status = run(q, op);
    if (!inside)
        end_turn(q);
    return status;
}

tutti_status tutti__submit_call(tutti__queue *q, tutti_status (*call)(void *arg),
                                void (*drop)(void *arg), void *arg, int timeout_ms,
                                tutti_work **work_p)
{
    tutti__task todo = {.op = {.timeout_ms = timeout_ms}, .call = call, .drop = drop, .arg = arg};

    if (work_p)
        *work_p = NULL;
    if (tutti__comm_failed(q->comm))
        return run_task(q, &todo); /* returns the group's failure */
    return submit(q, &todo, work_p);
}

void tutti__queue_free(tutti__queue *q)
{

    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stopping = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (q->has_thread)
        pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    q->flight->queue = NULL;
    free(q);
}

/* Takes the next operation for a waiter to run; NULL: none, the thread is running one, or only the thread may run it. */
static tutti_work *take_next(tutti__queue *q)
{
    tutti_work *next;

    pthread_mutex_lock(&q->lock);
    next = q->first;
    if (next && (next->task.call || next->task.op.stream || !take_running(q)))
        next = NULL;
    if (next)
        q->first = next->next;
    pthread_mutex_unlock(&q->lock);
    return next;
}

void tutti__queue_release(tutti_work *work, bool run)
{
    tutti__queue *q = work->queue;
    tutti_work *next;

    while (run && atomic_load(&work->state) != TUTTI__DONE && (next = take_next(q))) {
        run_work(next);
        end_turn(q);
    }
    if (atomic_load(&work->state) == TUTTI__DONE)
        return;
    pthread_mutex_lock(&q->lock);
    work->held = false;
    pthread_mutex_unlock(&q->lock);
    pthread_cond_broadcast(&q->changed);
}

/* history_parts.h -- the model of a job on several nodes: history.c, history_agent.c, history_host.c, history_network.c, history_workers.c.
 * SPDX-License-Identifier: MIT
 *
 * An agent does what src/launch/agent does with the machines' actions, as far as nodes and workers are concerned. Messages of a
 * connection arrive in order, after 1 to 3 ms, or more if the two nodes' connections are slow; those of others may overtake them. Those to
 * a node that is cut off wait, as in TCP, until it is back or one side has closed the connection. A worker is in at most one group.
 * Members that are all there and reach each other commit a step every STEP_MS; else those that see a peer gone leave.
 *
 * Of what each function is a model, in src/launch; who changes one there changes the other:
 *
 *     act                        act (host/coordinator.c), tutti__round_message (coordinator_messages.c)
 *     note_generation            nothing: the checks
 *     host, unhost               tutti__membership_host (agent/host_rendezvous.c), tutti__coordinator_free
 *     on_join, hear_node         on_join; on_message, on_node and on_worker (host/coordinator.c)
 *     answer                     on_question (agent/find_coordinator.c)
 *     keeps_running              keeps_running (agent/agent_lost.c)
 *     is_at_work                 tutti__elastic_is_at_work (agent/elastic_workers.c)
 *     start_agent, kill_agent    tutti__agent_run (agent/agent_run.c), and the end of its process
 *     end_agent                  tutti__agent_fail, and what on_end (agent/agent_round.c) and exit_code do
 *     send_join                  tutti__membership_join (agent/host_rendezvous.c)
 *     tell_all                   tutti__elastic_report_all (agent/elastic_workers.c)
 *     begin_round, on_end, obey  begin_round, on_end, tutti__agent_execute (agent/agent_round.c)
 *     on_order, on_verdict       tutti__elastic_execute, execute_verdict (agent/elastic_workers.c)
 *     drop_main                  tutti__connection_close, in tutti__membership_take (agent/membership.c)
 *     on_lost                    tutti__membership_take, tutti__agent_lost_coordinator (agent/agent_lost.c)
 *     search_is_on, search       tutti__search_is_on, tutti__search_advance (agent/find_coordinator.c)
 *     dial                       dial, on_refused (agent/find_coordinator.c)
 *     on_answer                  on_accepted, on_redirected, on_no_answer (agent/find_coordinator.c)
 *     find_rendezvous            tutti__agent_look_for_rendezvous (agent/agent_lost.c), tutti__membership_try
 *     on_redirect                follow (agent/membership.c)
 *     tell, say, say_ready       report_message (agent/elastic_workers.c)
 *     end_worker, start_worker   report_end (agent/elastic_workers.c), tutti__workers_replace
 *     stop_workers, fail_round   tutti__workers_stop, tutti__agent_report_failure
 *     take_turn                  the loop's turn (agent/agent_run.c) */
#ifndef TUTTI_SIMULATE_HISTORY_PARTS_H
#define TUTTI_SIMULATE_HISTORY_PARTS_H

#include "launch/decide/succession.h"
#include "simulate/history.h"

enum {
    TUTTI__HISTORY_STEP_MS = 20,
    TUTTI__HISTORY_SILENCE_MS = 300, /* after which a worker considers an unreachable peer dead */
    TUTTI__HISTORY_KEEP_ALIVE_MS = 300,
    TUTTI__HISTORY_LOST_MS = 900, /* after which a connection's ends consider the other lost */
    TUTTI__HISTORY_DIAL_MS = 1000,
    TUTTI__HISTORY_JOIN_TIMEOUT_MS = 6000,
    TUTTI__HISTORY_LINGER_MS =
        5000, /* in which nodes that come back to a job that has ended are told so */
    TUTTI__HISTORY_ENDPOINT = 1, /* the port of the rendezvous, on node 0 */
    TUTTI__HISTORY_GROUPS = 256,
    TUTTI__HISTORY_CONNECTIONS = 16 * TUTTI__HISTORY_NODES,
    TUTTI__HISTORY_MEMBERS = TUTTI__HISTORY_NODES * TUTTI__HISTORY_WORKERS
};

typedef enum tutti__history_kind {
    /* to the coordinator */
    TUTTI__HISTORY_JOIN,
    TUTTI__HISTORY_FAILED,
    TUTTI__HISTORY_OVER,
    TUTTI__HISTORY_LEAVE,
    TUTTI__HISTORY_APART,
    TUTTI__HISTORY_HERE,
    TUTTI__HISTORY_ACKED,
    TUTTI__HISTORY_SAID,
    TUTTI__HISTORY_EXITED,
    TUTTI__HISTORY_RESUMED,
    /* to a node */
    TUTTI__HISTORY_ACTION,
    /* either */
    TUTTI__HISTORY_CLOSED
} tutti__history_kind;

typedef struct tutti__history_message {
    struct tutti__history_message *next;
    tutti__roster *list; /* owned: only its entries in use are there */
    uint64_t at;         /* when it arrives, if it can */
    tutti__history_kind kind;
    int number, code; /* number: of the round */
    int64_t version;
    tutti__worker_id id;
    tutti__worker_message_kind said;
    int64_t step;
    int lost; /* the rank that a worker misses; -1: none */
    uint32_t generation;
    int rank;
    /* Of a node that joins. */
    int listens, rounds, restarts, n_nodes;
    bool running;
    tutti__round_action action;
    tutti__action worker;
    int n_restarts, group_rank, first_rank, node_id, job;
    bool elastic, excluded;
    int64_t term;
    int port;
} tutti__history_message;

typedef struct tutti__history_pipe {
    tutti__history_message *first, **end;
} tutti__history_pipe;

/* From an agent to a process that may coordinate. Free when both ends are closed. */
typedef struct tutti__history_connection {
    bool agent_open, host_open;
    int agent, host; /* nodes */
    int agent_process, host_process;
    tutti__history_pipe up, down;
    uint64_t silent_since;      /* 0: the network carries it */
    uint64_t agent_ms, host_ms; /* silence after which either end closes it */
    tutti__round_node node;
    bool known; /* to the coordinator's rounds */
} tutti__history_connection;

typedef struct tutti__history_worker {
    bool runs;
    int start;
    bool waits;          /* said READY */
    uint32_t generation; /* the last it was told; 0: none */
    int host_process;    /* that told it: each coordinator numbers its own */
    int rank;
    int64_t step;
    bool in; /* that generation */
    bool regroup, leave;
    bool awaits; /* the verdict about its end */
    bool finished;
    int code, sig;
    uint64_t ready_at; /* STARTING: when it says READY */
} tutti__history_worker;

typedef enum tutti__history_phase {
    TUTTI__HISTORY_IDLE,
    TUTTI__HISTORY_RUNNING,
    TUTTI__HISTORY_STOPPING
} tutti__history_phase;

typedef struct tutti__history_agent {
    bool alive;  /* its process */
    int process; /* unique; 0: never started */
    int port;    /* where it listens; 0: not yet */
    int id, job;
    tutti__history_connection *main, *dial; /* NULL: none */
    bool hosts;
    uint32_t last_generation; /* of its coordinators */
    tutti__rounds rounds;
    tutti__succession succession;
    uint64_t dial_until;
    uint64_t next_try, since; /* of looking for the rendezvous */
    int n_rounds, restarts;   /* known to it */
    int number, n_nodes, group_rank, first_rank, world_size;
    tutti__history_phase phase;
    uint64_t idle_at; /* STOPPING: when its workers have ended */
    bool elastic, finished, failed;
    bool lost;                     /* its coordinator, since its last round began */
    bool ended, stopped;           /* stopped: told to end, by a signal */
    int code, ended_by;            /* of its end; the process that told it; 0: none */
    uint64_t since_work, whole_at; /* of a plain round */
    bool whole;
    uint64_t tick_at;
    bool killed, gone, excluded;
    uint64_t
        in_reach; /* how long it has reached, without a break, one that knows how the job has ended */
    bool could_ask; /* that was long enough once */
    tutti__history_worker w[TUTTI__HISTORY_WORKERS];
} tutti__history_agent;

typedef struct tutti__history_group {
    uint32_t generation;
    int host_process, round;
    int size, told;
    bool formed, fresh;
    uint64_t next, formed_at, committed_at;
    struct {
        int node, process, local_rank, start;
    } member[TUTTI__HISTORY_MEMBERS];
} tutti__history_group;

typedef enum tutti__history_faults {
    TUTTI__HISTORY_DEATHS,
    TUTTI__HISTORY_CUTS,
    TUTTI__HISTORY_BOTH
} tutti__history_faults;

struct tutti__history {
    tutti__history_opts opts;
    int nodes, local; /* local: workers of a node */
    /* Zero at the beginning of each history: */
    uint64_t now, next, random; /* next: when something happens, as far as is known */
    int n_pool, n_groups;       /* connections that have been used; n_groups: the newest ones */
    uint64_t groups_made;
    int last_process, last_job;
    /* of the job */
    int min, max, max_restarts, steps;
    bool elastic;
    tutti__history_faults kind;
    bool calm;    /* no more faults */
    bool ended;   /* a coordinator has ended the job */
    bool gave_up; /* a node has ended before */
    bool dark;    /* a machine has lost power */
    bool no_memory;
    const char *broken; /* an invariant that does not hold */
    char what[256];
    uint64_t n_messages;
    bool cut[TUTTI__HISTORY_NODES][TUTTI__HISTORY_NODES];
    uint64_t cut_at[TUTTI__HISTORY_NODES][TUTTI__HISTORY_NODES];
    int slow_ms[TUTTI__HISTORY_NODES][TUTTI__HISTORY_NODES]; /* of messages, at most */
    bool off[TUTTI__HISTORY_NODES];                          /* the machine: no packet leaves it */
    uint64_t start[TUTTI__HISTORY_NODES];                    /* when nodes come; 0: they have */
    uint64_t fault, faults_end;                              /* the next one; the last */
    /* Not so: */
    tutti__history_agent a[TUTTI__HISTORY_NODES];
    tutti__history_connection pool[TUTTI__HISTORY_CONNECTIONS];
    tutti__history_group groups[TUTTI__HISTORY_GROUPS];
    tutti__history_message *spare;
    tutti__history_message lost; /* for want of memory */
    tutti__worker_message said;  /* what does not differ between messages */
};

/* ---- Chance, and what went wrong (history_network.c) ------------------------------------------------------------------ */

uint64_t tutti__history_chance(tutti__history *c, uint64_t n); /* below n */
void tutti__history_broken(tutti__history *c, const char *what, int node);
void tutti__history_trace(const tutti__history *c, int node, const char *format, ...)
    TUTTI_PRINTF(3, 4);
/* Something happens at that time, or, if it is over, now. */
static inline void tutti__history_due(tutti__history *c, uint64_t at)
{
    if (at < c->next)
        c->next = at > c->now ? at : c->now + 1;
}

/* ---- Messages and connections (history_network.c) ----------------------------------------------------------------------- */

static inline bool tutti__history_reach(const tutti__history *c, int i, int k)
{
    return i == k || (!c->off[i] && !c->off[k] && !c->cut[i][k]);
}
static inline int tutti__history_node_of(const tutti__history *c, const tutti__history_agent *a)
{
    return (int)(a - c->a);
}
void tutti__history_set_cut(tutti__history *c, int i, int k, bool cut);
/* Never NULL. */
tutti__history_message *tutti__history_new_message(tutti__history *c, tutti__history_kind what);
void tutti__history_drop(tutti__history *c, tutti__history_message *m);
void tutti__history_drop_all(tutti__history *c, tutti__history_pipe *p);
void tutti__history_put(tutti__history *c, const tutti__history_connection *x,
                        tutti__history_pipe *p, tutti__history_message *m);
/* To the coordinator, if there is one. */
void tutti__history_send_up(tutti__history *c, tutti__history_agent *a, tutti__history_message *m);
/* NULL: no memory, noted. */
tutti__roster *tutti__history_copy_list(tutti__history *c, const tutti__roster *r);
tutti__history_connection *tutti__history_connect_to(tutti__history *c,
                                                     const tutti__history_agent *a, int host);
void tutti__history_close_host_end(tutti__history *c, tutti__history_connection *x, bool ended,
                                   const char *why);
void tutti__history_close_agent_end(tutti__history *c, tutti__history_connection *x);
/* Of a process that was asked: it must not take this for our death. */
void tutti__history_hang_up(tutti__history *c, tutti__history_connection *x);
void tutti__history_advance_network(tutti__history *c);
void tutti__history_network_due(tutti__history *c);

/* ---- Workers (history_workers.c) ------------------------------------------------------------------------------------------ */

void tutti__history_tell(tutti__history *c, tutti__history_agent *a, int i,
                         tutti__history_message *m);
void tutti__history_say(tutti__history *c, tutti__history_agent *a, int i,
                        tutti__worker_message_kind what, int lost);
void tutti__history_say_ready(tutti__history *c, tutti__history_agent *a, int i, int lost);
void tutti__history_end_worker(tutti__history *c, tutti__history_agent *a, int i, int code,
                               int sig);
void tutti__history_start_worker(tutti__history *c, tutti__history_agent *a, int i, int start);
bool tutti__history_all_over(const tutti__history *c, const tutti__history_agent *a);
/* Ends all workers of this node, which takes a moment. */
void tutti__history_stop_workers(tutti__history *c, tutti__history_agent *a);
void tutti__history_fail_round(tutti__history *c, tutti__history_agent *a, int code);
void tutti__history_advance_group(tutti__history *c, tutti__history_group *g);
void tutti__history_advance_plain(tutti__history *c, tutti__history_agent *a);
void tutti__history_workers_due(tutti__history *c, const tutti__history_agent *a);

/* ---- Coordinators (history_host.c) ------------------------------------------------------------------------------------------ */

void tutti__history_host(tutti__history *c, tutti__history_agent *a, const tutti__roster *list);
void tutti__history_unhost(tutti__history *c, tutti__history_agent *a);
/* A message arrives at a process that coordinates; at one that does not, which names the coordinator that it knows. */
void tutti__history_hear_node(tutti__history *c, tutti__history_connection *x,
                              const tutti__history_message *m);
void tutti__history_answer(tutti__history *c, tutti__history_connection *x,
                           const tutti__history_message *m);

/* ---- Agents (history_agent.c) ------------------------------------------------------------------------------------------------ */

static inline bool tutti__history_keeps_running(const tutti__history_agent *a)
{
    return a->elastic && a->phase == TUTTI__HISTORY_RUNNING;
}
/* When the agent does something by itself. */
void tutti__history_agent_due(tutti__history *c, const tutti__history_agent *a);
void tutti__history_start_agent(tutti__history *c, int node);
/* The process ends, and with it its workers. Its machine's kernel closes its connections. */
void tutti__history_kill_agent(tutti__history *c, tutti__history_agent *a);
void tutti__history_obey(tutti__history *c, tutti__history_agent *a,
                         const tutti__history_message *m);
/* The connection to the coordinator was lost; ended: by its end, or its kernel. */
void tutti__history_on_lost(tutti__history *c, tutti__history_agent *a, bool ended);
/* A process that was asked has answered. */
void tutti__history_on_answer(tutti__history *c, tutti__history_agent *a,
                              tutti__history_connection *x, tutti__history_message *m);
/* The job continues elsewhere, says one that does not coordinate, before a round has begun. */
void tutti__history_on_redirect(tutti__history *c, tutti__history_agent *a);
bool tutti__history_search_is_on(const tutti__history_agent *a);
void tutti__history_search(tutti__history *c, tutti__history_agent *a);
/* Looks for the rendezvous at its endpoint, on node 0. */
void tutti__history_find_rendezvous(tutti__history *c, tutti__history_agent *a);

#endif

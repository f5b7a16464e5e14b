/* agent_parts.h -- shared by the agent's files.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_AGENT_PARTS_H
#define TUTTI_LAUNCH_AGENT_PARTS_H

#include "launch/agent/agent.h"
#include "launch/agent/membership.h"
#include "launch/agent/poll_loop.h"
#include "launch/chaos/chaos.h"
#include "launch/process/node_workers.h"

typedef struct tutti__agent {
    tutti__job *job;
    int control, signals; /* descriptors */
    tutti__console console,
        held; /* held: of jobs that merge their output, a report not shown yet */
    tutti__membership membership;
    tutti__workers workers;
    tutti__chaos chaos;
    tutti__poll_loop loop;
    bool reported_failure; /* this round's, to the coordinator */
    bool printed_why;      /* the reason for this round's end */
    bool ended;            /* the job has ended, with end_code */
    int end_code;
    bool abandoned; /* queued output is dropped */
    /* the workers are paused since paused_ms, because it is unknown whether the coordinator is alive */
    bool paused;
    double paused_ms;
    bool leaving; /* workers are leaving the elastic round, at the latest by leave_ns */
    uint64_t leave_ns;
    int stop_signal;  /* the first one received; 0: none */
    uint64_t stop_ns; /* time of that */
    bool interrupted; /* it was Ctrl-C, while there were workers */
    int code;         /* exit code of the agent's own failure; 0: none */
} tutti__agent;

/* agent_failure.c: tells the coordinator that this node leaves; `final`: that the job ends with it. */
void tutti__agent_leave(tutti__agent *a, bool final, int code, const char *why);
/* A failure of this agent (tutti_last_error) fails the job. */
void tutti__agent_fail(tutti__agent *a, tutti_status status);
/* Reports a worker's failure to the coordinator, once per round. */
void tutti__agent_report_failure(tutti__agent *a);

/* agent_signals.c: ends this node's part, or the job, for this signal; the callbacks of the loop for signals. */
void tutti__agent_stop(tutti__agent *a, int sig);
void tutti__agent_read_signals(void *agent, void *unused);
void tutti__agent_read_control(void *agent, void *unused);

/* agent_output.c: whether this node says what concerns all nodes: where one would do, the coordinator's does. */
bool tutti__agent_speaks(const tutti__agent *a);
/* Shows the report of a failure that was held back, or drops it. */
void tutti__agent_show_held(tutti__agent *a, bool shown);
/* Has the coordinator show what workers of other nodes may say too. */
void tutti__agent_merge_output(tutti__agent *a);

/* agent_round.c: executes a message of the coordinator; ends the round when no process of it is left on this node. */
void tutti__agent_execute(tutti__agent *a, const json_t *message);
void tutti__agent_finish_round(tutti__agent *a);

/* agent_lost.c: the connection to the coordinator was lost. */
void tutti__agent_lost_coordinator(tutti__agent *a);
/* Whether one is needed and searched for; does so. */
bool tutti__agent_lacks_rendezvous(const tutti__agent *a);
void tutti__agent_look_for_rendezvous(tutti__agent *a);

#endif

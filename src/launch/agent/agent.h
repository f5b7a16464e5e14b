/* agent.h -- shared by the launcher's files.
 * SPDX-License-Identifier: MIT
 *
 * tutti__launch forks an agent, which forks the workers; both are subreapers, so that orphaned processes become their children
 * and are found. If the agent is killed, the front ends the remaining processes. If the front is killed, the agent sees its
 * control pipe close and ends everything. */
#ifndef TUTTI_LAUNCH_AGENT_H
#define TUTTI_LAUNCH_AGENT_H

#include "base/base.h"
#include "elastic/agent_messages.h"
#include "launch/front/launch.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <tutti/group.h>

/* ---- Job: opts with the defaults filled in, and the workers' environment ------------------------- */

/* One start of all workers. */
typedef struct tutti__round {
    int number;              /* number of starts before it */
    int restarts;            /* after failures so far */
    int group_rank, n_nodes; /* this node's number; number of nodes */
    int first_rank;          /* the first rank on this node */
    int world_size;
    char master_addr[256], store[280]; /* store: host:port */
    int master_port;
} tutti__round;

typedef struct tutti__job {
    tutti__launch_opts opts;
    char id[128], program[PATH_MAX], host[64]; /* host: this node's name */
    int signals[NSIG];                         /* forwarded signals, 0-terminated */
    const char *omp_threads; /* OMP_NUM_THREADS: from the environment, or omp_text */
    char omp_text[16], secret[65];
    tutti_store *store;      /* hosted here; NULL: by another node */
    char store_address[280]; /* host:port of our store */
    tutti__round round;
    struct rlimit descriptors;     /* the workers' limit */
    char private_folder[PATH_MAX]; /* see files.c; "": none */
    bool keeps_folder;             /* keep it when the job ends: it contains the user's output */
} tutti__job;

/* rendezvous.c: a port for MASTER_PORT, either --master-port or a free one; a random secret; the store, which sets
 * store_address. */
tutti_status tutti__job_choose_port(const tutti__job *job, int *port_p);
tutti_status tutti__job_make_secret(tutti__job *job);
tutti_status tutti__job_host_store(tutti__job *job, const char *bind_to, const char *address);

/* ---- Console: queues whole lines for standard output and error --------------------------------------
 * One queue for both, so that lines stay in order and do not mix. Writing never blocks: a terminal that is not read must not
 * block the agent. */

typedef struct tutti__console_part {
    int fd;
    size_t bytes;
} tutti__console_part;

/* A line of Tutti's that other ranks may print too. */
typedef struct tutti__repeat {
    uint64_t hash, at_ns; /* at_ns: when it was last printed; 0: none */
    int rank;             /* the rank whose line was shown */
    int *ranks;           /* [n], other ranks with this line, not reported yet */
    size_t n, capacity;
    char line[80]; /* its beginning */
} tutti__repeat;

typedef struct tutti__console {
    char *bytes;
    size_t begin, end, capacity;
    tutti__console_part *parts;
    size_t first, n_parts, parts_capacity;
    /* [1], [2]: non-blocking duplicates of descriptors 1 and 2; 0: none, uses the descriptor itself */
    int own[3];
    int error;   /* errno of a failed write or allocation: later output is dropped */
    int streams; /* open streams that have had output */
    tutti__repeat repeats[8];
} tutti__console;

void tutti__console_open(tutti__console *console);
/* Queues text for descriptor 1 or 2. */
void tutti__console_add(tutti__console *console, int fd, const char *text, size_t bytes);
void tutti__console_print(tutti__console *console, const char *format, ...) TUTTI_PRINTF(2, 3);
/* A line and its end, as tutti__printable shows it: with names from outside. */
void tutti__console_say(tutti__console *console, const char *format, ...) TUTTI_PRINTF(2, 3);
static inline bool tutti__console_empty(const tutti__console *console)
{
    return console->begin == console->end;
}
/* repeats.c: true if the line repeats one of another rank that was shown a moment ago, so it is not shown. The second function
 * prints the ranks whose lines were dropped, at the latest when the last stream has ended. */
bool tutti__console_repeats(tutti__console *console, int rank, const char *line, size_t bytes);
void tutti__console_tell_repeats(tutti__console *console);
/* Hash of what this rank says, with '*' for its own number, after "rank " or '['. At most 8 KiB count. */
uint64_t tutti__hash_without_rank(const char *text, size_t bytes, int rank);
/* The descriptor to poll for writing, or -1. */
int tutti__console_fd(const tutti__console *console);
void tutti__console_write(tutti__console *console);
void tutti__console_free(tutti__console *console);

/* ---- Log pipe: reads one stream of one worker, for the console and a file ------------------------ */

typedef struct tutti__log_pipe {
    int fd;         /* read end; -1: none, or end of file */
    int file;       /* receives the unchanged bytes; -1: none */
    char *path;     /* of the file, owned; NULL: none */
    off_t begin;    /* of this stream in the file, after that of an earlier job */
    int console_fd; /* 1, 2; -1: not shown */
    int rank;       /* of the worker */
    char prefix[256];
    /* lines with one of these words are copied to `filtered`; NULL: none */
    const char *const *filters;
    int filtered; /* 0: none */
    bool heard;   /* there was output */
    char *line;   /* the incomplete last line */
    size_t used, capacity, scanned;
    char tail[2048]; /* last bytes of the stream, for the report */
    size_t tail_bytes;
} tutti__log_pipe;

/* Reads once, and returns how many bytes; 0: none available now, or the stream has ended (fd is -1 then). */
size_t tutti__log_pipe_read(tutti__log_pipe *pipe, tutti__console *console);
/* Reads what is in the pipe now, not what is written meanwhile: at most the pipe's capacity. */
void tutti__log_pipe_drain(tutti__log_pipe *pipe, tutti__console *console);
void tutti__log_pipe_close(tutti__log_pipe *pipe, tutti__console *console);

/* ---- Workers ----------------------------------------------------------------------------------------- */

/* The last messages from and to an elastic worker (elastic_workers.h). */
typedef struct tutti__voice {
    int fd; /* our end of the socket pair; -1: none */
    bool spoke;
    bool waits;           /* sent READY, and was assigned no generation since */
    bool finished, fails; /* sent FINISHED, FAILS */
    tutti__worker_message ready;
    uint32_t generation; /* the last one sent to it; 0: none */
    int rank;            /* its rank there */
    int64_t step;        /* committed, as far as known; -1: none */
    int64_t told_step;   /* reported to the coordinator, for told_generation, at told_ns */
    uint32_t step_generation, told_generation;
    uint64_t told_ns;
    bool told_stopped;
} tutti__voice;

typedef struct tutti__worker {
    const tutti__job *job;
    int rank, local_rank;
    int start; /* number of earlier starts in this place, in this round */
    tutti__voice voice;
    bool excused; /* its end does not fail the round */
    bool fails;   /* the coordinator decided: it does */
    bool awaits;  /* it has ended, and the coordinator has not decided yet whether to replace it */
    bool rests;   /* the decision was: not yet */
    pid_t pid;    /* also its session's and process group's; 0: not started */
    bool running;
    uint64_t stopped_ns; /* since when it is stopped (SIGSTOP, a debugger); 0: not stopped */
    bool told_stopped;
    bool slowed; /* by --chaos: only stopped for moments */
    int status;  /* from waitpid, after its end */
    uint64_t started_ns, ended_ns;
    tutti__log_pipe out, err;
} tutti__worker;

/* Starts the worker with its streams. It inherits `mask` and `sigpipe`. */
tutti_status tutti__worker_start(tutti__worker *worker, const tutti__job *job, const sigset_t *mask,
                                 const struct sigaction *sigpipe);
/* Stopped by SIGSTOP or a debugger, according to /proc. */
bool tutti__worker_is_stopped(const tutti__worker *worker);
/* Signals its whole process group. */
void tutti__worker_signal(const tutti__worker *worker, int sig);
/* ended with a non-zero exit code, and not excused */
bool tutti__worker_failed(const tutti__worker *worker);
int tutti__worker_exit_code(const tutti__worker *worker); /* 128 + n for a signal */
/* "exit code 7", "killed by SIGSEGV (Segmentation fault)" */
void tutti__worker_describe(const tutti__worker *worker, char *text, size_t bytes);
/* The variables that workers get, as rows of a Markdown table. */
void tutti__worker_print_env(FILE *file);

/* ---- The workers of this node, from their start to the end of their last descendant ------------------------------ */

typedef enum tutti__phase {
    TUTTI__IDLE, /* no worker left */
    TUTTI__RUNNING,
    TUTTI__FAILING,  /* a worker has failed, the others get a moment to notice it and end */
    TUTTI__STOPPING, /* workers were told to end, and have the shutdown timeout to do so */
    TUTTI__SWEEPING, /* only descendants of workers run; they were told to end */
    TUTTI__KILLING
} tutti__phase;

typedef struct tutti__workers {
    tutti__job *job;
    tutti__console *console;
    tutti__worker *list; /* [job->opts.n] */
    int n_running;
    tutti__phase phase; /* never goes back within a round */
    uint64_t deadline_ns, failing_ns, killing_ns;
    bool childless;              /* no descendant is left */
    bool abandoned;              /* remaining processes do not end, not even by SIGKILL */
    bool blind;                  /* /proc cannot be read */
    bool suspended;              /* by us, with Ctrl-Z */
    const tutti__worker *blamed; /* the first to fail; NULL: none yet */
    /* usually the same; or a stopped rank that the others considered lost */
    const tutti__worker *cause;
    long oom_kills; /* count when they were started */
    bool elastic;   /* workers of this round that die may be replaced */
    bool finished;  /* a worker has reported that the job's work is done */
} tutti__workers;

tutti_status tutti__workers_new(tutti__workers *workers, tutti__job *job, tutti__console *console);
/* Starts all, for the job's round. They inherit `mask` and `sigpipe`. */
tutti_status tutti__workers_start(tutti__workers *workers, const sigset_t *mask,
                                  const struct sigaction *sigpipe);
/* Starts a replacement of one that has ended, whose remaining processes are ended. */
tutti_status tutti__workers_replace(tutti__workers *workers, tutti__worker *worker,
                                    const sigset_t *mask, const struct sigaction *sigpipe);
/* It has ended without replacement: ends its remaining processes. */
void tutti__workers_sweep_after(tutti__workers *workers, tutti__worker *worker);
void tutti__workers_signal(tutti__workers *workers, int sig);
/* Tells them to end; reports an earlier failure first. */
void tutti__workers_stop(tutti__workers *workers, int sig);
void tutti__workers_kill(tutti__workers *workers);
/* Handles workers that have ended or were stopped, and enters the next phase when it is due. */
void tutti__workers_reap(tutti__workers *workers);
void tutti__workers_advance(tutti__workers *workers);
/* When the next phase begins (tutti__now_ns); UINT64_MAX: at the next event. */
uint64_t tutti__workers_deadline(const tutti__workers *workers);
/* Stream i of 2 n. */
tutti__log_pipe *tutti__workers_stream(const tutti__workers *workers, int i);
/* Whether no process and no open stream is left. */
bool tutti__workers_over(const tutti__workers *workers);
/* 0 if all ended with 0; else an exit code of one's own choice (not 3), or -1. */
int tutti__workers_chosen_code(const tutti__workers *workers);
/* Closes all streams: no process is left that could write to them. */
void tutti__workers_close(tutti__workers *workers);
void tutti__workers_free(tutti__workers *workers);

/* ---- Reports of failures ------------------------------------------------------------------------ */

typedef struct tutti__report {
    tutti__job *job;
    tutti__worker *workers; /* [job->opts.n] */
    tutti__console *console;
    long oom_kills; /* count when the workers were started */
} tutti__report;

/* The failed worker that is the cause; NULL: none has failed. */
const tutti__worker *tutti__first_failed(const tutti__worker *workers, int n);
/* False: all that have failed say that another did first, which has not failed yet. */
bool tutti__cause_is_known(const tutti__report *report);
/* Reports what all ranks were doing when a group of theirs died, if one did; only on the node with the store. said: message
 * already in the report, or "". */
void tutti__report_flights(const tutti__report *report, const char *said);
/* Reports the failure, once, when the first one is known. Returns the cause, which may be another worker that still runs. */
const tutti__worker *tutti__report_failure(const tutti__report *report, const tutti__worker *first);
/* For the other nodes: 'rank 3 on b failed first: exit code 1 (process 7, after 2.000 s), with the error: no data'. */
void tutti__describe_failure(const tutti__worker *first, char *text, size_t bytes);
/* "0-3, 5", of n sorted ranks, truncated with "..." if necessary. */
void tutti__list_ranks(const int *ranks, size_t n, char *text, size_t bytes);

/* ---- Processes --------------------------------------------------------------------------------------- */

/* Signals every descendant that is not a zombie, except the `spared` children and their descendants. Returns how many
 * it found; -1: /proc cannot be read. */
int tutti__signal_descendants(int sig, const pid_t *spared, size_t n_spared);
/* Up to `capacity` children of this process; returns how many. */
size_t tutti__list_children(pid_t *children, size_t capacity);
/* The same for a process group. */
size_t tutti__list_group(pid_t group, pid_t *members, size_t capacity);
/* Number of OOM kills in our cgroup, or else on this machine; -1: unknown. */
long tutti__oom_kills(void);

/* Runs the job; returns the exit code. Signals arrive as bytes from `control`; its end means that the front has ended.
 * Signals of job->signals and SIGCHLD are blocked; workers get `mask`. */
int tutti__agent(tutti__job *job, int control, const sigset_t *mask);

#endif

/* agent.h -- the parts of the launcher, seen by each other only.
 * SPDX-License-Identifier: MIT
 *
 * tutti__launch forks an agent, which forks the workers; both are subreapers, so a process whose parent dies comes to
 * one of them and is found again. Agent killed: the front ends what it left. Front killed: the agent sees its control
 * pipe close and ends everything. */
#ifndef TUTTI_LAUNCH_AGENT_H
#define TUTTI_LAUNCH_AGENT_H

#include "base/base.h"
#include "elastic/agent_words.h"
#include "launch/launch.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <tutti/group.h>

/* ---- Job: opts with the defaults filled in, and what the workers are told ------------------------- */

/* One start of all workers. */
typedef struct tutti__round {
    int number;              /* of the starts before it */
    int restarts;            /* after failures so far */
    int group_rank, n_nodes; /* this node's number, of how many */
    int first_rank;          /* of this node's */
    int world_size;
    char master_addr[256], store[280]; /* store: host:port */
    int master_port;
} tutti__round;

typedef struct tutti__job {
    tutti__launch_opts opts;
    char id[128], program[PATH_MAX], host[64]; /* host: this node's name */
    int signals[NSIG];                         /* that are passed on, 0-terminated */
    const char *omp_threads;                   /* of the environment, or omp_text */
    char omp_text[16], secret[65];
    tutti_store *store;      /* that we host; NULL: another node does */
    char store_address[280]; /* host:port of ours */
    tutti__round round;
    struct rlimit descriptors;     /* the workers' limit */
    char private_folder[PATH_MAX]; /* of files.c; "": none */
    bool keeps_folder;             /* when the job ends: the user's output is in it */
} tutti__job;

/* Fills in the defaults and finds the program. Returns 0 or the exit code; the message is tutti_last_error(). */
int tutti__job_init(tutti__job *job, const tutti__launch_opts *opts);
/* rendezvous.c: a port for MASTER_PORT, --master-port or one that is free; a random secret; the store, in which
 * store_address is filled in. */
tutti_status tutti__job_choose_port(const tutti__job *job, int *port_p);
tutti_status tutti__job_make_secret(tutti__job *job);
tutti_status tutti__job_host_store(tutti__job *job, const char *bind_to, const char *address);

/* ---- Console: whole lines on their way to our standard output and error ----------------------------
 * One queue for both, so that lines stay in order and never mix. Writing never blocks: a terminal that nobody reads
 * must not keep the agent from its duties. */

typedef struct tutti__console_part {
    int fd;
    size_t bytes;
} tutti__console_part;

/* A line of Tutti's that other ranks may say too. */
typedef struct tutti__repeat {
    uint64_t hash, at_ns; /* when it came last; 0: none */
    int rank;             /* whose line was shown */
    int *ranks;           /* [n], the others that are yet to be told */
    size_t n, capacity;
    char line[80]; /* its beginning */
} tutti__repeat;

typedef struct tutti__console {
    char *bytes;
    size_t begin, end, capacity;
    tutti__console_part *parts;
    size_t first, n_parts, parts_capacity;
    int own
        [3]; /* [1], [2]: non-blocking doubles of descriptors 1 and 2; 0: none, the descriptor itself is used */
    int error; /* errno of the write that failed, of memory that ran out: what is queued later is dropped */
    int streams; /* that have said something, and are open */
    tutti__repeat repeats[8];
} tutti__console;

void tutti__console_open(tutti__console *console);
/* To descriptor 1 or 2. */
void tutti__console_add(tutti__console *console, int fd, const char *text, size_t bytes);
void tutti__console_print(tutti__console *console, const char *format, ...) TUTTI_PRINTF(2, 3);
static inline bool tutti__console_empty(const tutti__console *console)
{
    return console->begin == console->end;
}
/* repeats.c: true if another rank's line, shown a moment ago, says this too, so that it need not be shown. Whose lines
 * were left out is told by the second, at the latest when the last stream has ended. */
bool tutti__console_repeats(tutti__console *console, int rank, const char *line, size_t bytes);
void tutti__console_tell_repeats(tutti__console *console);
/* The descriptor to poll for writing, or -1. */
int tutti__console_fd(const tutti__console *console);
void tutti__console_write(tutti__console *console);
void tutti__console_free(tutti__console *console);

/* ---- Log pipe: one stream of one worker, on its way to the console and a file ------------------------ */

typedef struct tutti__log_pipe {
    int fd;         /* read end; -1: none, or at its end */
    int file;       /* gets the bytes as they are; -1: none */
    char *path;     /* the file's, owned; NULL: none */
    int console_fd; /* 1, 2; -1: not shown */
    int rank;       /* of the worker */
    char prefix[256];
    const char *const *filters; /* lines with one of these words go to `filtered`; NULL: none */
    int filtered;               /* 0: none */
    bool heard;                 /* something has come */
    char *line;                 /* what has come of the line that is not whole yet */
    size_t used, capacity, scanned;
    char tail[2048]; /* the last bytes, for the report */
    size_t tail_bytes;
} tutti__log_pipe;

/* Reads once, and returns how many bytes; 0: nothing is there now, or the stream has ended (fd is -1 then). */
size_t tutti__log_pipe_read(tutti__log_pipe *pipe, tutti__console *console);
/* Reads what lies in the pipe now, and not what is written meanwhile: at most the pipe's capacity. */
void tutti__log_pipe_drain(tutti__log_pipe *pipe, tutti__console *console);
void tutti__log_pipe_close(tutti__log_pipe *pipe, tutti__console *console);

/* ---- Workers ----------------------------------------------------------------------------------------- */

/* What an elastic worker has said, and was told last (elastic_workers.h). */
typedef struct tutti__voice {
    int fd; /* our end of the sockets; -1: none */
    bool spoke;
    bool waits;    /* READY, and was told of no generation since */
    bool finished; /* FINISHED */
    tutti__worker_word ready;
    uint32_t generation; /* it was told last; 0: none */
    int rank;            /* there */
    int64_t step;        /* committed, as far as we know; -1: none */
    int64_t told_step;   /* to the coordinator, for told_generation, at told_ns */
    uint32_t step_generation, told_generation;
    uint64_t told_ns;
    bool told_stopped;
} tutti__voice;

typedef struct tutti__worker {
    const tutti__job *job;
    int rank, local_rank;
    int start; /* of those before it in this place, in this round */
    tutti__voice voice;
    bool excused; /* its end is no failure of the round */
    bool fails;   /* it was judged: it is */
    bool awaits;  /* it has ended, and the coordinator has yet to say whether it is replaced */
    bool rests;   /* it has said: not yet */
    pid_t pid;    /* also its session's and process group's; 0: not started */
    bool running;
    uint64_t stopped_ns; /* since when it is stopped (SIGSTOP, a debugger); 0: it is not */
    bool told_stopped;
    bool slowed; /* on purpose: it is stopped for moments only */
    int status;  /* of waitpid, once it has ended */
    uint64_t started_ns, ended_ns;
    tutti__log_pipe out, err;
} tutti__worker;

/* Starts the worker with its streams. `mask` and `sigpipe` are what it inherits. */
tutti_status tutti__worker_start(tutti__worker *worker, const tutti__job *job, const sigset_t *mask,
                                 const struct sigaction *sigpipe);
/* By SIGSTOP or a debugger, as /proc tells. */
bool tutti__worker_is_stopped(const tutti__worker *worker);
/* To its whole process group. */
void tutti__worker_signal(const tutti__worker *worker, int sig);
bool tutti__worker_failed(
    const tutti__worker *worker); /* ended, not with exit code 0, and is not excused */
int tutti__worker_exit_code(const tutti__worker *worker); /* 128 + n for a signal */
/* "exit code 7", "killed by SIGSEGV (Segmentation fault)" */
void tutti__worker_describe(const tutti__worker *worker, char *text, size_t bytes);
/* The variables that workers get, as rows of a Markdown table. */
void tutti__worker_print_env(FILE *file);

/* ---- The workers of this node, from their start to the last trace of them ------------------------------ */

typedef enum tutti__phase {
    TUTTI__IDLE, /* none is left */
    TUTTI__RUNNING,
    TUTTI__FAILING,  /* a worker has failed, the others have a moment to see it */
    TUTTI__STOPPING, /* workers were told to end, they have the shutdown timeout */
    TUTTI__SWEEPING, /* no worker runs, descendants of theirs do; they were told to end */
    TUTTI__KILLING
} tutti__phase;

typedef struct tutti__workers {
    tutti__job *job;
    tutti__console *console;
    tutti__worker *list; /* [job->opts.n] */
    int n_running;
    tutti__phase phase; /* goes one way only, in a round */
    uint64_t deadline_ns, killing_ns;
    bool childless;              /* no descendant is left */
    bool abandoned;              /* what is left does not end, not even by SIGKILL */
    bool blind;                  /* /proc cannot be read */
    bool suspended;              /* by us, with Ctrl-Z */
    const tutti__worker *blamed; /* the first failure; NULL: none yet */
    const tutti__worker
        *cause;     /* mostly the same; a rank that is stopped, which the others took for lost */
    long oom_kills; /* when they were started */
    bool elastic;   /* who dies may be replaced, in this round */
    bool finished;  /* one has said that the job's work is done */
} tutti__workers;

tutti_status tutti__workers_new(tutti__workers *workers, tutti__job *job, tutti__console *console);
/* Starts all, in the round of the job. `mask` and `sigpipe` are what they inherit. */
tutti_status tutti__workers_start(tutti__workers *workers, const sigset_t *mask,
                                  const struct sigaction *sigpipe);
/* Another in the place of one that has ended; what that left behind is ended. */
tutti_status tutti__workers_replace(tutti__workers *workers, tutti__worker *worker,
                                    const sigset_t *mask, const struct sigaction *sigpipe);
/* It has ended, and nobody takes its place: ends what it left behind. */
void tutti__workers_sweep_after(tutti__workers *workers, tutti__worker *worker);
void tutti__workers_signal(tutti__workers *workers, int sig);
/* Tells them to end; what has failed before is reported first. */
void tutti__workers_stop(tutti__workers *workers, int sig);
void tutti__workers_kill(tutti__workers *workers);
/* Sees who has ended or was stopped; then goes on to the next phase when it is time. */
void tutti__workers_reap(tutti__workers *workers);
void tutti__workers_advance(tutti__workers *workers);
/* When the next phase begins (tutti__now_ns); UINT64_MAX: when something happens. */
uint64_t tutti__workers_deadline(const tutti__workers *workers);
/* Stream i of 2 n. */
tutti__log_pipe *tutti__workers_stream(const tutti__workers *workers, int i);
/* No process and no open stream is left. */
bool tutti__workers_over(const tutti__workers *workers);
/* 0 if all ended with 0; else a code that one chose (3 excepted), or -1. */
int tutti__workers_chosen_code(const tutti__workers *workers);
/* All streams: no process is left that could write to them. */
void tutti__workers_close(tutti__workers *workers);
void tutti__workers_free(tutti__workers *workers);

/* ---- What is said of a failure ------------------------------------------------------------------------ */

typedef struct tutti__report {
    tutti__job *job;
    tutti__worker *workers; /* [job->opts.n] */
    tutti__console *console;
    long oom_kills; /* when the workers were started */
} tutti__report;

/* Of the workers that have failed the one with the cause; NULL: none has. */
const tutti__worker *tutti__first_failed(const tutti__worker *workers, int n);
/* What all ranks were doing when a group of theirs died, if one did; only where the store is. said: words that the report has
 * had, "" for none. */
void tutti__report_flights(const tutti__report *report, const char *said);
/* Once, when it is known who was first. Returns the cause, which may be another that still runs. */
const tutti__worker *tutti__report_failure(const tutti__report *report, const tutti__worker *first);
/* For the other nodes: 'rank 3 on b failed first: exit code 1 (process 7, after 2.000 s), with the error: no data'. */
void tutti__describe_failure(const tutti__worker *first, char *text, size_t bytes);
/* "0-3, 5", of n ranks in order, "..." where there is no room for more. */
void tutti__list_ranks(const int *ranks, size_t n, char *text, size_t bytes);

/* ---- Processes --------------------------------------------------------------------------------------- */

/* Signals every descendant that is not a zombie, except the `spared` children and what is below them. Returns how many
 * it found; -1: /proc cannot be read. */
int tutti__signal_descendants(int sig, const pid_t *spared, size_t n_spared);
/* Up to `capacity` children of this process; returns how many. */
size_t tutti__list_children(pid_t *children, size_t capacity);
/* The same of a process group. */
size_t tutti__list_group(pid_t group, pid_t *members, size_t capacity);
/* How many processes of our cgroup, or else of this machine, the out-of-memory killer has ended; -1: unknown. */
long tutti__oom_kills(void);

/* Runs the job; returns the exit code. Signals come as bytes from `control`; its end means that the front is gone.
 * Signals of job->signals and SIGCHLD are blocked; `mask` is what workers get. */
int tutti__agent(tutti__job *job, int control, const sigset_t *mask);

#endif

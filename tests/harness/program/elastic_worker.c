/* elastic_worker.c -- a worker that exchanges messages with its agent as src/elastic does, without training: for tests of the launcher.
 * SPDX-License-Identifier: MIT
 *
 *     elastic_worker FOLDER STEPS STEP_MS SHARDS [WHAT=HOW ...]
 *
 * A group is a file of the folder, mapped by its members; a step is complete when all members have reached it, and changes the
 * state, eight bytes that depend on all earlier steps. Rank 0 saves a checkpoint every tenth step. At the end all meet once
 * more, and each prints the state.
 *     die=RANK:STEP:CODE   the worker of this RANK ends with this code before that step, once; CODE 128 + n: by signal n
 *     die=RANK:start:CODE, die=RANK:joined:CODE   before READY; in a group; always
 *     die=RANK:end:CODE    after FINISHED, before it writes the result; once
 *     build=TEXT, build@RANK=TEXT   of this rank only
 *     alone=RANK           it can form no generation
 *     brake=STEP           from there on a step takes 200 ms until FOLDER/go exists, and the last one waits for it: so the work
 *                          does not end before the test
 *     finish=no            ends with 0 without FINISHED */
#include "elastic/agent_messages.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MEMBERS = 64, FORM_MS = 3000, BRAKED_MS = 200 };

typedef struct shared {            /* shared by a generation */
    _Atomic int64_t came[MEMBERS]; /* 1 + the step that a rank has reached; 1: it has joined */
    _Atomic int64_t step, state;   /* of rank 0, when it joined */
} shared;

static const char *folder;
static int agent, rank, step_ms;
static int64_t steps, step = -1, state, brake = INT64_MAX;
static bool leaves;              /* told LEAVE */
static bool alone;               /* reaches nobody */
static tutti__agent_message now; /* the generation */
static shared *group;
static tutti__worker_message said = {.protocol = TUTTI__AGENT_PROTOCOL, .build = "test 1"};

static void say(tutti__worker_message_kind kind, const char *why)
{
    said.kind = (uint32_t)kind;
    said.step = step;
    snprintf(said.why, sizeof said.why, "%s", why);
    if (send(agent, &said, tutti__worker_message_bytes(&said), MSG_NOSIGNAL) < 0)
        exit(4);
}

static void end_by(int code)
{
    fflush(NULL);
    if (code > 128) {
        signal(code - 128, SIG_DFL); /* sanitizers take some */
        raise(code - 128);
    }
    _exit(code);
}

/* Ends if an argument die=RANK:WHEN:CODE applies now. */
static void may_die(char **args, const char *when)
{
    char prefix[64], path[PATH_MAX];

    snprintf(prefix, sizeof prefix, "die=%d:%s:", rank, when);
    for (; *args; args++) {
        if (strncmp(*args, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, *args);
        if (strcmp(when, "start") == 0 || strcmp(when, "joined") == 0 ||
            open(path, O_CREAT | O_EXCL, 0600) >= 0)
            end_by(atoi(*args + strlen(prefix)));
    }
}

/* Receives a message within `ms` milliseconds (-1: no limit). */
static bool hear(tutti__agent_message *message, int ms)
{
    struct pollfd p = {agent, POLLIN, 0};

    while (poll(&p, 1, ms) < 0 && errno == EINTR)
        continue;
    if (!p.revents)
        return false;
    if (recv(agent, message, sizeof *message, 0) != (ssize_t)sizeof *message)
        end_by(3); /* the agent has ended */
    return true;
}

static int64_t load_checkpoint(void)
{
    char path[PATH_MAX];
    FILE *file;
    long long s = 0, v = 0;

    snprintf(path, sizeof path, "%s/checkpoint", folder);
    file = fopen(path, "r");
    if (file && fscanf(file, "%lld %lld", &s, &v) != 2)
        s = v = 0;
    if (file)
        fclose(file);
    state = v;
    return s;
}

static void save_checkpoint(void)
{
    char path[PATH_MAX], temporary[PATH_MAX + 8];
    FILE *file;

    if (now.rank != 0 || step % 10 != 0)
        return;
    snprintf(path, sizeof path, "%s/checkpoint", folder);
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    file = fopen(temporary, "w");
    if (!file || fprintf(file, "%lld %lld", (long long)step, (long long)state) < 0 ||
        fclose(file) != 0 || rename(temporary, path) != 0)
        end_by(4);
}

static void map_group(void)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/generation-%u", folder, now.generation);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *group) != 0)
        end_by(4);
    group = mmap(NULL, sizeof *group, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (group == MAP_FAILED)
        end_by(4);
}

/* Reaches `where` and waits for the others. False: the generation ended first. */
static bool meet(int64_t where)
{
    struct timespec end, t;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += FORM_MS / 1000;
    group->came[now.rank] = where;
    for (;;) {
        tutti__agent_message message;
        bool all = true;

        for (int i = 0; i < now.size; i++)
            all = all && group->came[i] >= where;
        if (all)
            return true;
        clock_gettime(CLOCK_MONOTONIC, &t);
        if (t.tv_sec > end.tv_sec)
            return false;
        if (!hear(&message, 1))
            continue;
        leaves |= message.kind == TUTTI__AGENT_LEAVE;
        if (message.kind == TUTTI__AGENT_REGROUP && message.generation == now.generation)
            return false;
    }
}

/* All have committed the last step, else none would have reached the end. */
static void end_well(void)
{
    printf("finished at step %lld with %lld\n", (long long)step, (long long)state);
    end_by(0);
}

/* Waits for a generation, and forms it. */
static bool form(char **args)
{
    say(TUTTI__WORKER_READY, alone && said.generation > 0 ? "cannot connect" : "");
    do {
        hear(&now, -1);
        if (now.kind == TUTTI__AGENT_LEAVE || now.kind == TUTTI__AGENT_REFUSED) {
            if (now.kind == TUTTI__AGENT_REFUSED)
                fprintf(stderr, "refused: %s\n", now.why);
            say(TUTTI__WORKER_LEAVES, "");
            /* the others have finished, and this one was told of a newcomer first */
            if (step >= steps)
                end_well();
            end_by(now.kind == TUTTI__AGENT_REFUSED ? 2 : 0);
        }
    } while (now.kind != TUTTI__AGENT_GENERATION);
    said.generation = now.generation;
    if (alone)
        return false;
    map_group();
    if (now.rank == 0) {
        if (now.fresh && step < 0)
            step = load_checkpoint();
        if (now.fresh)
            printf("fresh at step %lld%s\n", (long long)step,
                   now.committed ? ", after all died" : "");
        group->step = step;
        group->state = state;
        printf("generation %u of %d\n", now.generation, now.size);
        fflush(stdout);
    }
    if (!meet(1))
        return false;
    step = group->step;
    state = group->state;
    may_die(args, "joined");
    return true;
}

static bool is_braked(void)
{
    char go[PATH_MAX];

    snprintf(go, sizeof go, "%s/go", folder);
    return step >= brake && access(go, F_OK) != 0;
}

static void work(void)
{
    int ms = is_braked() ? BRAKED_MS : step_ms;

    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* Before the last step, while braked: a group can change there. */
static bool holds(void)
{
    return step == steps - 1 && is_braked();
}

/* Hears what the agent says within `ms`. False: the generation has ended. */
static bool listen_for(int ms)
{
    tutti__agent_message message;
    bool goes_on = true;

    while (hear(&message, ms)) {
        goes_on &= message.kind != TUTTI__AGENT_REGROUP || message.generation != now.generation;
        leaves |= message.kind == TUTTI__AGENT_LEAVE;
    }
    return goes_on;
}

static void leave(void)
{
    say(TUTTI__WORKER_LEAVES, "");
    printf("leaves at step %lld\n", (long long)step);
    end_by(0);
}

/* False: the generation has ended. */
static bool advance(char **args)
{
    bool goes_on;
    char when[32];

    while (holds()) {
        if (!listen_for(10))
            return false;
        if (leaves)
            leave();
    }
    snprintf(when, sizeof when, "%lld", (long long)step);
    may_die(args, when);
    work();
    if (!meet(step + 2))
        return false;
    state = (int64_t)((uint64_t)state * 6364136223846793005u + (uint64_t)step + 1);
    step++;
    save_checkpoint();
    say(TUTTI__WORKER_COMMITTED, "");
    goes_on = listen_for(0);
    if (leaves)
        leave();
    return goes_on;
}

static void read_options(char **args)
{
    char mine[32], none[32];

    snprintf(mine, sizeof mine, "build@%d=", rank);
    snprintf(none, sizeof none, "alone=%d", rank);
    for (; *args; args++)
        if (strcmp(*args, none) == 0)
            alone = true;
        else if (strncmp(*args, "brake=", 6) == 0)
            brake = atoll(*args + 6);
        else if (strncmp(*args, "build=", 6) == 0)
            snprintf(said.build, sizeof said.build, "%s", *args + 6);
        else if (strncmp(*args, mine, strlen(mine)) == 0)
            snprintf(said.build, sizeof said.build, "%s", *args + strlen(mine));
}

int main(int argc, char **argv)
{
    const char *fd = getenv("TUTTI_AGENT_FD"), *name = getenv("RANK");
    char path[PATH_MAX];
    FILE *file;
    bool tells = true;

    if (argc < 5 || !fd || !name)
        return 2;
    folder = argv[1];
    steps = atoll(argv[2]);
    step_ms = atoi(argv[3]);
    said.shards = atoi(argv[4]);
    agent = atoi(fd);
    rank = atoi(name);
    read_options(argv + 5);
    for (char **a = argv + 5; *a; a++)
        tells = tells && strcmp(*a, "finish=no") != 0;
    snprintf(path, sizeof path, "%s/pid.%d", folder, rank);
    if (!(file = fopen(path, "w")) || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file) != 0)
        return 4;
    may_die(argv + 5, "start");
    for (bool done = false; !done;) {
        if (!form(argv + 5))
            continue;
        while (step < steps && advance(argv + 5))
            continue;
        done = step >= steps && meet(steps + 2);
        munmap(group, sizeof *group);
    }
    if (tells)
        say(TUTTI__WORKER_FINISHED, "");
    may_die(argv + 5, "end");
    end_well();
}

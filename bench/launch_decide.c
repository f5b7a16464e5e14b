/* What deciding costs the coordinator of an elastic job with one worker a node, in CPU milliseconds and messages to nodes: the nodes
 * join and their workers form a group; all report a commit; one worker dies and all regroup; one node is lost. No connections.
 *
 *     bench_launch_decide [NODES...]                                  SPDX-License-Identifier: MIT */
#include "launch/decide/rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct job {
    tutti__rounds rounds;
    tutti__round_node *nodes;
    int n, generations; /* members told of one since this was 0 */
    uint32_t generation;
    int *ranks; /* [n] of each node's worker */
    long messages, entries;
} job;

static void act(void *context, const tutti__round_action *a)
{
    job *j = context;

    if (!a->node)
        return;
    j->messages++;
    if (a->act == TUTTI__ROUND_LIST) {
        j->entries += j->rounds.roster.n;
        tutti__rounds_acked(a->node, j->rounds.roster.version);
    }
    if (a->act == TUTTI__ROUND_WORKER && a->worker->act == TUTTI__ACT_GENERATION) {
        j->generations++;
        j->generation = a->worker->generation;
        j->ranks[a->node - j->nodes] = a->worker->rank;
    }
}

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void said(job *j, int i, int start, uint32_t kind, int64_t step, int lost)
{
    const tutti__round_node *n = &j->nodes[i];
    tutti__worker_message m = {.protocol = TUTTI__AGENT_PROTOCOL,
                               .kind = kind,
                               .generation = j->generation,
                               .shards = j->n,
                               .step = step,
                               .n_lost = lost >= 0,
                               .lost = {lost},
                               .build = "one"};
    tutti__generations *g = tutti__rounds_workers(&j->rounds, 1, n, 0);

    if (g)
        tutti__generations_said(g, 1, (tutti__worker_id){n->id, 0, start}, &m);
    tutti__rounds_tick(&j->rounds, 1);
}

static void tell(job *j, const char *what, double since)
{
    printf("%6d nodes, %-28s %9.1f ms CPU, %7ld messages, %9ld entries of lists\n", j->n, what,
           cpu_ms() - since, j->messages, j->entries);
    j->messages = j->entries = 0;
    j->generations = 0;
}

static void run(int n)
{
    job *j = calloc(1, sizeof *j); /* large for a stack */
    double since = cpu_ms();
    int victim = n / 2, lost = n - 1;
    tutti__generations *g;

    j->n = n;
    j->nodes = calloc((size_t)n, sizeof *j->nodes);
    j->ranks = calloc((size_t)n, sizeof *j->ranks);
    tutti__rounds_init(
        &j->rounds, 0,
        &(tutti__rounds_opts){
            .min = n, .max = n, .native = true, .quiet = true, .act = act, .context = j});
    for (int i = 0; i < n; i++) {
        tutti__join says = {
            .local = i == 0, .workers = 1, .port = 1, .wanted_rank = -1, .listens = 1, .pid = i};

        tutti__rounds_connected(&j->rounds, 0, &j->nodes[i]);
        (void)tutti__rounds_joined(&j->rounds, 0, &j->nodes[i], &says);
        tutti__rounds_tick(&j->rounds, 0);
    }
    tell(j, "a round begins:", since);
    since = cpu_ms();
    for (int i = 0; i < n; i++)
        said(j, i, 0, TUTTI__WORKER_READY, -1, -1);
    tell(j, "all are ready:", since);
    since = cpu_ms();
    for (int i = 0; i < n; i++)
        said(j, i, 0, TUTTI__WORKER_COMMITTED, 1, -1);
    tell(j, "all have committed:", since);
    since = cpu_ms();
    g = tutti__rounds_workers(&j->rounds, 1, &j->nodes[victim], 0);
    tutti__generations_ended(g, 1, (tutti__worker_id){j->nodes[victim].id, 0, 0}, 0, 9);
    for (int i = 0, rank = j->ranks[victim]; i < n; i++)
        if (i != victim)
            said(j, i, 0, TUTTI__WORKER_READY, 1, rank);
    tell(j, "one died, all are ready:", since);
    since = cpu_ms();
    tutti__rounds_lost(&j->rounds, 1, &j->nodes[lost], true, "lost");
    tutti__rounds_tick(&j->rounds, 1);
    tutti__rounds_tick(&j->rounds, 1);
    tell(j, "a node was lost:", since);
    tutti__rounds_free(&j->rounds);
    free(j->nodes);
    free(j->ranks);
    free(j);
}

int main(int argc, char **argv)
{
    static const int NODES[] = {100, 1000, 4000};

    for (int i = 1; i < argc; i++)
        run(atoi(argv[i]));
    for (size_t i = 0; argc < 2 && i < sizeof NODES / sizeof *NODES; i++)
        run(NODES[i]);
    return 0;
}

/* slurm.c -- Slurm's variables for this process.   SPDX-License-Identifier: MIT
 *
 * The step's variables, not the job's: srun may use a part of the job's nodes, and several steps may run at once. Host
 * lists are expanded here, since containers have no scontrol. */
#include "comm/bootstrap/slurm.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_HOSTS = 1 << 20, MOST_DIGITS = 9, MOST_TASKS = 1 << 24 };

/* ---- Host lists ---------------------------------------------------------------------------------------- */

typedef struct range { /* "07-12", or "3" */
    int first, n, width;
} range;

static bool read_number(const char **text, int *value, int *width)
{
    char digits[MOST_DIGITS + 1];

    *width = (int)strspn(*text, "0123456789");
    if (*width < 1 || *width > MOST_DIGITS)
        return false;
    memcpy(digits, *text, (size_t)*width);
    digits[*width] = '\0';
    *value = (int)strtol(digits, NULL, 10);
    *text += *width;
    return true;
}

/* Moves *text past the range and its separator. False: malformed. */
static bool read_range(const char **text, range *r)
{
    int last, width;

    if (!read_number(text, &r->first, &r->width))
        return false;
    last = r->first;
    if (**text == '-') {
        ++*text;
        if (!read_number(text, &last, &width))
            return false;
    }
    r->n = last - r->first + 1;
    return r->n > 0 && (**text == ',' || **text == ']') && ++*text;
}

/* The number of hosts in the bracket whose contents begin at *text, which moves past it; 0: malformed. Writes the host
 * with number `index` to *r, as a range of one, unless r is NULL. */
static int read_bracket(const char **text, int index, range *r)
{
    range next;
    int n = 0;

    do {
        if (!read_range(text, &next) || next.n > MOST_HOSTS - n)
            return 0;
        if (r && index >= n && index < n + next.n)
            *r = (range){next.first + (index - n), 1, next.width};
        n += next.n;
    } while ((*text)[-1] == ',');
    return n;
}

/* The number of hosts in the list's item at *text, which moves to its end: a comma or the list's end; 0: malformed. */
static int read_item(const char **text)
{
    int64_t n = 1;

    if (**text == ',' || !**text)
        return 0;
    while (**text && **text != ',')
        if (*(*text)++ == '[') {
            n *= read_bracket(text, 0, NULL);
            if (n < 1 || n > MOST_HOSTS)
                return 0;
        } else if (strchr("] \t\n", (*text)[-1]))
            return 0;
    return (int)n;
}

static tutti_status malformed(const char *list)
{
    return tutti__fail(TUTTI_ERR_ARG,
                       "host list \"%.60s\" is malformed, or has more than %d hosts: expected e.g. "
                       "node[01-04,7],login",
                       list, MOST_HOSTS);
}

tutti_status tutti__host_list_count(const char *list, int *n_p)
{
    const char *text = list;
    int n = 0;

    for (;;) {
        int more = read_item(&text);

        if (more == 0 || more > MOST_HOSTS - n)
            return malformed(list);
        n += more;
        if (!*text++)
            break;
    }
    *n_p = n;
    return TUTTI_OK;
}

/* Writes host `index` of the n hosts of a well-formed item. False: it does not fit. */
static bool write_host(const char *item, int index, int n, char *host, size_t capacity)
{
    size_t used = 0;

    while (*item && *item != ',') {
        if (*item != '[') {
            if (used + 1 >= capacity)
                return false;
            host[used++] = *item++;
            continue;
        }
        const char *inside = ++item;
        range one = {0, 1, 1};
        int written;

        n /= read_bracket(&item, 0, NULL); /* hosts for each number of this bracket */
        read_bracket(&inside, index / n, &one);
        index %= n;
        written = snprintf(host + used, capacity - used, "%0*d", one.width, one.first);
        if (written < 0 || (size_t)written >= capacity - used)
            return false;
        used += (size_t)written;
    }
    host[used] = '\0';
    return true;
}

tutti_status tutti__host_list_get(const char *list, int index, char *host, size_t capacity)
{
    const char *text = list;
    int left = index, n = 0;

    TUTTI_TRY(tutti__host_list_count(list, &n));
    if (index < 0 || index >= n)
        return tutti__fail(TUTTI_ERR_ARG, "host list \"%.60s\" has %d hosts, and none of number %d",
                           list, n, index);
    for (;;) {
        const char *item = text;

        n = read_item(&text);
        if (left < n) {
            if (!write_host(item, left, n, host, capacity))
                return tutti__fail(TUTTI_ERR_ARG,
                                   "a host of \"%.60s\" has a name longer than %zu characters",
                                   list, capacity - 1);
            return TUTTI_OK;
        }
        left -= n;
        text++;
    }
}

tutti_status tutti__tasks_on_node(const char *list, int node, int *tasks_p)
{
    const char *next = list;
    int left = node;

    while (*next) {
        int tasks, times = 1, width;

        if (!read_number(&next, &tasks, &width) || tasks < 1)
            break;
        if (strncmp(next, "(x", 2) == 0) {
            next += 2;
            if (!read_number(&next, &times, &width) || times < 1 || *next++ != ')')
                break;
        }
        if (*next && *next != ',')
            break;
        if (left < times) {
            *tasks_p = tasks;
            return TUTTI_OK;
        }
        left -= times;
        next += *next == ',';
    }
    return tutti__fail(TUTTI_ERR_ARG,
                       "SLURM_STEP_TASKS_PER_NODE is \"%.60s\", which has no entry for node %d: "
                       "expected e.g. 2(x3),1",
                       list, node);
}

/* ---- Steps ----------------------------------------------------------------------------------------------- */

int tutti__derived_port(const char *job, const char *step)
{
    char text[256];
    int n = snprintf(text, sizeof text, "%s/%s", job, step);

    return 10000 + (int)(tutti__hash64(text, n < 255 ? (size_t)n : 255) % 20000);
}

static const char *get(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

/* Whether it descends from the shell of `srun --pty bash`: srun gave that task a terminal and so a session. */
static bool below_a_terminal(void)
{
    int64_t task;

    return get("SLURM_PTY_PORT") && get("SLURM_TASK_PID") &&
           tutti__parse_int64(get("SLURM_TASK_PID"), &task) && task == getsid(0) &&
           task != getpid();
}

/* SLURM_STEP_ID is that of a step of srun; Slurm's own, of the shells of salloc and sbatch, have the highest numbers. */
static bool in_a_step_of_srun(void)
{
    int64_t step;

    return get("SLURM_STEP_ID") && tutti__parse_int64(get("SLURM_STEP_ID"), &step) &&
           step <= INT_MAX;
}

/* A task that lacks variables of its step, which a container may not have passed on: alone it would be a group of one.
 * sbatch's shell has SLURM_PROCID 0, too, but no step. */
static bool lacks_its_step(void)
{
    const char *rank = get("SLURM_PROCID");

    return rank && (strcmp(rank, "0") != 0 || in_a_step_of_srun());
}

bool tutti__slurm_is_task(void)
{
    if (get("SLURM_STEP_ID") && !in_a_step_of_srun())
        return false;
    if (!get("SLURM_STEP_NUM_TASKS") && !lacks_its_step())
        return false;
    /* mpirun starts one daemon a node by srun, whose variables the ranks inherit. */
    if (get("OMPI_COMM_WORLD_RANK") || (get("PMI_RANK") && get("MPI_LOCALRANKID")))
        return false;
    return !below_a_terminal();
}

static tutti_status text_of(const char *name, const char **text_p)
{
    *text_p = get(name);
    return *text_p
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_ARG,
                             "%s is not set, although %s is: a task of Slurm has "
                             "both; " TUTTI__SLURM_REMEDY,
                             name,
                             get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_PROCID");
}

static tutti_status number_of(const char *name, int low, int high, int *value_p)
{
    const char *text;
    long value;

    TUTTI_TRY(text_of(name, &text));
    TUTTI_TRY(tutti__parse_variable(name, text, low, high, &value));
    *value_p = (int)value;
    return TUTTI_OK;
}

static tutti_status read_places(tutti__slurm_step *step)
{
    const char *tasks;

    TUTTI_TRY(number_of("SLURM_STEP_NUM_TASKS", 1, MOST_TASKS, &step->n_tasks));
    TUTTI_TRY(number_of("SLURM_PROCID", 0, step->n_tasks - 1, &step->rank));
    TUTTI_TRY(number_of("SLURM_STEP_NUM_NODES", 1, MOST_HOSTS, &step->n_nodes));
    TUTTI_TRY(number_of("SLURM_NODEID", 0, step->n_nodes - 1, &step->node));
    TUTTI_TRY(text_of("SLURM_STEP_TASKS_PER_NODE", &tasks));
    TUTTI_TRY(tutti__tasks_on_node(tasks, step->node, &step->local_tasks));
    return number_of("SLURM_LOCALID", 0, step->local_tasks - 1, &step->local_rank);
}

tutti_status tutti__slurm_step_read(tutti__slurm_step *step)
{
    const char *nodes, *job, *number;

    *step = (tutti__slurm_step){0};
    if (!tutti__slurm_is_task())
        return TUTTI_OK;
    TUTTI_TRY(read_places(step));
    TUTTI_TRY(text_of("SLURM_STEP_NODELIST", &nodes));
    TUTTI_TRY(tutti__host_list_get(nodes, 0, step->first_host, sizeof step->first_host));
    TUTTI_TRY(text_of("SLURM_JOB_ID", &job));
    TUTTI_TRY(text_of("SLURM_STEP_ID", &number));
    if (get("SLURM_RESTART_COUNT"))
        TUTTI_TRY(number_of("SLURM_RESTART_COUNT", 0, INT_MAX, &step->restarts));
    step->port = tutti__derived_port(job, number);
    snprintf(step->name, sizeof step->name, "%s.%s", job, number);
    step->task = true;
    return TUTTI_OK;
}

/* links.c -- the costs of links: those that are assumed, and those of a file.   SPDX-License-Identifier: MIT */
#include "simulate/links.h"

#include "base/flag.h"
#include "comm/algorithm/tuner.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 1 << 20 };

const char *const tutti__level_names[TUTTI__LEVELS] = {"core", "host", "switch"};

/* A number of the file. path: "core.latency_us". */
typedef struct link_key {
    const char *path;
    double least, most, value; /* value: the default */
    size_t offset;             /* in tutti__sim_links */
} link_key;

#define AT(member) offsetof(tutti__sim_links, member)
/* Sockets over an Ethernet of 100 Gbit/s, and cores that share some eight channels of memory. */
static const link_key keys[] = {
    {"core.latency_us", 0, 1e9, 0.3, AT(level[TUTTI__LEVEL_CORE].latency_us)},
    {"core.gbps", 1e-6, 1e6, 10, AT(level[TUTTI__LEVEL_CORE].gbps)},
    {"core.message_us", 0, 1e9, 0.2, AT(level[TUTTI__LEVEL_CORE].message_us)},
    {"core.memory_gbps", 1e-6, 1e6, 160, AT(memory_gbps)},
    {"core.reduce_gbps", 1e-6, 1e6, 10, AT(reduce_gbps)},
    {"host.latency_us", 0, 1e9, 10, AT(level[TUTTI__LEVEL_HOST].latency_us)},
    {"host.gbps", 1e-6, 1e6, 12.5, AT(level[TUTTI__LEVEL_HOST].gbps)},
    {"host.message_us", 0, 1e9, 2, AT(level[TUTTI__LEVEL_HOST].message_us)},
    {"host.retransmit_us", 0, 1e9, 200000, AT(retransmit_us)},
    {"host.heartbeat_us", 0, 1e12, 5e6, AT(heartbeat_us)},
    {"switch.latency_us", 0, 1e9, 1, AT(level[TUTTI__LEVEL_SWITCH].latency_us)},
    {"switch.gbps", 1e-6, 1e6, 400, AT(level[TUTTI__LEVEL_SWITCH].gbps)},
    {"switch.message_us", 0, 1e9, 2, AT(level[TUTTI__LEVEL_SWITCH].message_us)},
    {"switch.hosts", 1, 1e6, 32, AT(hosts_per_switch)},
};

static double *place(tutti__sim_links *links, const link_key *key)
{
    return (double *)(void *)((char *)links + key->offset);
}

void tutti__sim_links_default(tutti__sim_links *links)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(keys); i++)
        *place(links, &keys[i]) = keys[i].value;
}

static tutti_status set(tutti__sim_links *links, const char *file, const char *path,
                        const json_t *value)
{
    const char *names[TUTTI__COUNT_OF(keys)];
    char text[512];

    for (size_t i = 0; i < TUTTI__COUNT_OF(keys); i++) {
        const link_key *key = &keys[i];
        const double number = json_number_value(value);

        names[i] = key->path;
        if (strcmp(key->path, path) != 0)
            continue;
        if (!json_is_number(value) || !(number >= key->least && number <= key->most))
            return tutti__fail(TUTTI_ERR_ARG, "%s: %s is not a number from %g to %g", file, path,
                               key->least, key->most);
        if (key->offset == AT(hosts_per_switch) && number != floor(number))
            return tutti__fail(TUTTI_ERR_ARG, "%s: %s is %g, expected a whole number", file, path,
                               number);
        *place(links, key) = number;
        return TUTTI_OK;
    }
    return tutti__fail(TUTTI_ERR_ARG, "%s: there is no \"%.60s\"; expected %s", file, path,
                       tutti__choice_text(path, names, TUTTI__COUNT_OF(names), text, sizeof text));
}

static tutti_status set_level(tutti__sim_links *links, const char *file, const char *name,
                              json_t *level)
{
    const char *key;
    json_t *value;

    char text[256];
    int i = 0;

    while (i < TUTTI__LEVELS && strcmp(tutti__level_names[i], name) != 0)
        i++;
    if (i == TUTTI__LEVELS)
        return tutti__fail(
            TUTTI_ERR_ARG, "%s: there is no \"%.60s\"; expected %s", file, name,
            tutti__choice_text(name, tutti__level_names, TUTTI__LEVELS, text, sizeof text));
    if (!json_is_object(level))
        return tutti__fail(TUTTI_ERR_ARG, "%s: \"%.60s\" is not an object of numbers", file, name);
    json_object_foreach(level, key, value)
    {
        char path[96];

        snprintf(path, sizeof path, "%.40s.%.40s", name, key);
        TUTTI_TRY(set(links, file, path, value));
    }
    return TUTTI_OK;
}

/* Whether it does not begin as JSON, but as a file of tutti bench --tune. */
static bool is_lines(const char *text)
{
    const char c = text[strspn(text, " \t\r\n")];

    return c == '#' || (c >= 'a' && c <= 'z');
}

/* What tutti bench --tune has measured. All of a host's ranks use its link together, as do all hosts of a switch. */
static tutti_status read_measured(tutti__sim_links *links, const char *path, char *text)
{
    tutti__level_costs *core = &links->level[TUTTI__LEVEL_CORE],
                       *host = &links->level[TUTTI__LEVEL_HOST],
                       *up = &links->level[TUTTI__LEVEL_SWITCH];
    tutti__coll_links measured;

    TUTTI_TRY(tutti__tuner_read_links(path, text, &measured));
    for (int i = 0; i < TUTTI__LEVELS; i++) {
        const tutti__coll_link *l = &measured.level[i];

        if (l->latency_ns == 0 && l->message_ns == 0 && l->byte_ps == 0)
            continue; /* there was no such level */
        links->level[i].latency_us = (double)l->latency_ns * 1e-3;
        links->level[i].message_us = (double)l->message_ns * 1e-3;
        links->level[i].gbps = l->byte_ps > 0 ? 1e3 / (double)l->byte_ps : 1e6;
    }
    if (measured.level[TUTTI__LEVEL_SWITCH].latency_ns > 0) {
        up->latency_us = fmax(up->latency_us - host->latency_us, 0);
        up->gbps *= links->hosts_per_switch;
    }
    if (measured.reduce_ps > 0)
        links->reduce_gbps = 1e3 / (double)measured.reduce_ps;
    links->memory_gbps = fmax(links->memory_gbps, core->gbps);
    return TUTTI_OK;
}

static tutti_status read_object(tutti__sim_links *links, const char *path, const char *text)
{
    tutti_status status = TUTTI_OK;
    json_error_t error;
    const char *name;
    json_t *root, *level;

    root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(root))
        status = tutti__fail(TUTTI_ERR_ARG, "%s, line %d: %s", path, root ? 1 : error.line,
                             root ? "expected an object: {\"host\": {\"gbps\": 25}}" : error.text);
    if (status == TUTTI_OK)
        json_object_foreach(root, name, level)
        {
            status = set_level(links, path, name, level);
            if (status != TUTTI_OK)
                break;
        }
    json_decref(root);
    return status;
}

tutti_status tutti__sim_links_read(tutti__sim_links *links, const char *path)
{
    char *text = malloc(FILE_BYTES);
    FILE *file = text ? fopen(path, "re") : NULL; /* may be a pipe */
    const int problem = errno;
    size_t n = 0;
    tutti_status status;

    if (!file) {
        free(text);
        return tutti__fail_errno(text ? problem : ENOMEM, "cannot read %s", path);
    }
    n = fread(text, 1, FILE_BYTES - 1, file);
    text[n] = '\0';
    fclose(file);
    status = is_lines(text) ? read_measured(links, path, text) : read_object(links, path, text);
    free(text);
    return status;
}

/* ---- Places -------------------------------------------------------------------------------------------------------- */

tutti__machines tutti__machines_of(const tutti__sim_links *links, int ranks, int hosts)
{
    const int per_host = (ranks + hosts - 1) / hosts,
              per_switch = links->hosts_per_switch < hosts ? (int)links->hosts_per_switch : hosts;
    const int used = (ranks + per_host - 1) / per_host;

    return (tutti__machines){.ranks = ranks,
                             .hosts = used,
                             .per_host = per_host,
                             .per_switch = per_switch,
                             .switches = (used + per_switch - 1) / per_switch};
}

tutti__level tutti__level_between(const tutti__machines *m, int rank, int other)
{
    const int a = tutti__host_of(m, rank), b = tutti__host_of(m, other);

    return a == b                                   ? TUTTI__LEVEL_CORE
           : a / m->per_switch == b / m->per_switch ? TUTTI__LEVEL_HOST
                                                    : TUTTI__LEVEL_SWITCH;
}

/* topology.c -- the switches above this host.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/topology.h"

#include "comm/bootstrap/slurm.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FILE_BYTES = 4 << 20, NAME = 256, MOST_SWITCHES = 1 << 16 };

/* A line of the file. */
typedef struct tutti__switch {
    const char *name, *nodes, *below; /* lists; NULL: it has none */
    int line;
} tutti__switch;

typedef struct topology {
    const char *path;
    tutti__switch *list;
    int n;
} topology;

/* ---- The file -------------------------------------------------------------------------------------------------------- */

static tutti_status complain(const topology *t, int line, const char *format, ...)
    TUTTI_PRINTF(3, 4);
static tutti_status complain(const topology *t, int line, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tutti__fail(TUTTI_ERR_ARG, "TUTTI_TOPOLOGY: %.200s:%d: %s", t->path, line, text);
}

static tutti_status check_list(const topology *t, int line, const char *key, const char *list)
{
    int n;

    if (tutti__host_list_count(list, &n) == TUTTI_OK)
        return TUTTI_OK;
    return complain(t, line, "%s=%.60s is no list of names: expected e.g. node[01-04,7],login", key,
                    list);
}

/* Sets the member of "Nodes=node[01-16]"; what Slurm knows besides is ignored. */
static tutti_status read_word(const topology *t, tutti__switch *s, char *word)
{
    static const char *const keys[] = {"SwitchName", "Nodes",     "Switches",
                                       "LinkSpeed",  "BlockName", "BlockSizes"};
    const char **members[] = {&s->name, &s->nodes, &s->below};
    char *value = strchr(word, '=');
    size_t k = 0;
    char names[256];

    if (!value || !value[1])
        return complain(t, s->line, "\"%.60s\", expected KEY=VALUE", word);
    *value++ = '\0';
    while (k < TUTTI__COUNT_OF(keys) && strcasecmp(keys[k], word) != 0)
        k++;
    if (k == TUTTI__COUNT_OF(keys))
        return complain(t, s->line, "there is no key \"%.60s\"; expected %s", word,
                        tutti__choice_text(word, keys, 4, names, sizeof names));
    if (k > 3)
        return complain(t, s->line,
                        "%s is of Slurm's plugin topology/block; a tree of switches is "
                        "expected: SwitchName=leaf Nodes=node[1-4]",
                        keys[k]);
    if (k == 3)
        return TUTTI_OK;
    if (*members[k])
        return complain(t, s->line, "%s stands twice", keys[k]);
    *members[k] = value;
    return k == 0 ? TUTTI_OK : check_list(t, s->line, keys[k], value);
}

static tutti_status check_switch(const topology *t, const tutti__switch *s)
{
    if (!s->name)
        return complain(t, s->line,
                        "a line without SwitchName: expected SwitchName=NAME "
                        "Nodes=LIST or SwitchName=NAME Switches=LIST");
    if (!s->nodes == !s->below)
        return complain(t, s->line, "switch %.60s has %s: expected one of the two", s->name,
                        s->nodes ? "both Nodes and Switches" : "neither Nodes nor Switches");
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->list[i].name, s->name) == 0)
            return complain(t, s->line, "switch %.60s stands in line %d already", s->name,
                            t->list[i].line);
    return TUTTI_OK;
}

static tutti_status read_switch(topology *t, char *line, int number)
{
    tutti__switch s = {.line = number};
    char *rest = line;

    line[strcspn(line, "#")] = '\0';
    for (char *word; (word = strtok_r(rest, " \t\r", &rest));)
        TUTTI_TRY(read_word(t, &s, word));
    if (!s.name && !s.nodes && !s.below)
        return TUTTI_OK;
    TUTTI_TRY(check_switch(t, &s));
    if (t->n == MOST_SWITCHES)
        return complain(t, number, "more than %d switches", MOST_SWITCHES);
    t->list[t->n++] = s;
    return TUTTI_OK;
}

static tutti_status read_lines(topology *t, char *text)
{
    int number = 0;

    while (*text) {
        char *line = text;

        text += strcspn(text, "\n");
        if (*text)
            *text++ = '\0';
        TUTTI_TRY(read_switch(t, line, ++number));
    }
    return TUTTI_OK;
}

/* ---- Finding --------------------------------------------------------------------------------------------------------- */

/* The list is well-formed. */
static bool is_in(const char *list, const char *name)
{
    int n = 0;

    if (!list || tutti__host_list_count(list, &n) != TUTTI_OK)
        return false;
    for (int i = 0; i < n; i++) {
        char one[NAME];

        if (tutti__host_list_get(list, i, one, sizeof one) == TUTTI_OK && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

/* The switch directly above a host, or a switch; -1: none. */
static tutti_status above(const topology *t, bool host, const char *name, int *found_p)
{
    *found_p = -1;
    for (int i = 0; i < t->n; i++) {
        if (!is_in(host ? t->list[i].nodes : t->list[i].below, name))
            continue;
        if (*found_p >= 0)
            return complain(t, t->list[i].line,
                            "%s %.60s is below switch %.60s here, and below %.60s in "
                            "line %d: expected a tree",
                            host ? "node" : "switch", name, t->list[i].name, t->list[*found_p].name,
                            t->list[*found_p].line);
        *found_p = i;
    }
    return TUTTI_OK;
}

/* Every switch that is named below another has a line. */
static tutti_status check_names(const topology *t)
{
    for (int i = 0; i < t->n; i++) {
        int n = 0;

        if (t->list[i].below)
            TUTTI_TRY(tutti__host_list_count(t->list[i].below, &n));
        for (int k = 0; k < n; k++) {
            char name[NAME];
            int at = 0;

            TUTTI_TRY(tutti__host_list_get(t->list[i].below, k, name, sizeof name));
            while (at < t->n && strcmp(t->list[at].name, name) != 0)
                at++;
            if (at == t->n)
                return complain(t, t->list[i].line, "switch %.60s has no line SwitchName=%.60s",
                                name, name);
        }
    }
    return TUTTI_OK;
}

/* A host's whole name, or the part before its domain. */
static tutti_status find_host(const topology *t, const char *host, int *at_p)
{
    char brief[NAME];

    TUTTI_TRY(above(t, true, host, at_p));
    if (*at_p >= 0 || !strchr(host, '.'))
        return TUTTI_OK;
    snprintf(brief, sizeof brief, "%.*s", (int)strcspn(host, "."), host);
    return above(t, true, brief, at_p);
}

static tutti_status climb(const topology *t, const char *host, tutti__switches *switches)
{
    int at;

    TUTTI_TRY(check_names(t));
    TUTTI_TRY(find_host(t, host, &at));
    if (at < 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "TUTTI_TOPOLOGY: %.200s: this host, %.60s, is below no switch: expected "
                           "a line SwitchName=NAME Nodes=...,%.60s",
                           t->path, host, host);
    for (int i = 0; at >= 0; i++) {
        if (i > t->n)
            return complain(t, t->list[at].line, "switch %.60s is above itself", t->list[at].name);
        if (i < TUTTI__SWITCHES)
            switches->id[i] = tutti__hash64(t->list[at].name, strlen(t->list[at].name));
        TUTTI_TRY(above(t, false, t->list[at].name, &at));
    }
    return TUTTI_OK;
}

tutti_status tutti__topology_read(const char *path, char *text, const char *host,
                                  tutti__switches *switches)
{
    topology t = {.path = path, .list = tutti__alloc(MOST_SWITCHES * sizeof *t.list)};
    tutti_status status = t.list ? read_lines(&t, text) : TUTTI_ERR_MEMORY;

    *switches = (tutti__switches){0};
    if (status == TUTTI_OK)
        status = climb(&t, host, switches);
    free(t.list);
    return status;
}

/* ---- Slurm's address ----------------------------------------------------------------------------------------------- */

tutti_status tutti__topology_of_address(const char *address, const char *pattern,
                                        tutti__switches *switches)
{
    const char *end = strrchr(address, '.');
    int n = 0;

    *switches = (tutti__switches){0};
    /* "node": Slurm's default, without switches */
    if (strcmp(pattern, "node") == 0)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "TUTTI_TOPOLOGY is slurm, but this cluster has no switches: "
            "SLURM_TOPOLOGY_ADDR_PATTERN is \"node\" (TopologyPlugin in slurm.conf); "
            "unset it, or name a file");
    for (const char *p = pattern; *p; p += strcspn(p, ".") + (p[strcspn(p, ".")] == '.'))
        n += strncmp(p, "switch", 6) == 0;
    for (int i = 0; i < n && end; i++) {
        const char *begin = end;

        while (begin > address && begin[-1] != '.')
            begin--;
        /* A switch may be several, in brackets, where nodes have more than one above them: a name like any other. */
        if (i < TUTTI__SWITCHES)
            switches->id[i] = tutti__hash64(begin, (size_t)(end - begin));
        end = begin > address ? begin - 1 : NULL;
    }
    if (n > 0 && switches->id[0])
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "TUTTI_TOPOLOGY is slurm, but SLURM_TOPOLOGY_ADDR \"%.60s\" with the pattern "
        "\"%.60s\" names no switch",
        address, pattern);
}

/* ---- The variable ---------------------------------------------------------------------------------------------------- */

static tutti_status read_file(const char *path, char **text_p)
{
    return tutti__read_text("TUTTI_TOPOLOGY: ", path,
                            "; expected a file like Slurm's topology.conf, or \"slurm\"",
                            FILE_BYTES, text_p);
}

static tutti_status find_by_slurm(tutti__switches *switches)
{
    const char *address = getenv("SLURM_TOPOLOGY_ADDR"),
               *pattern = getenv("SLURM_TOPOLOGY_ADDR_PATTERN");

    if (!address || !pattern)
        return tutti__fail(TUTTI_ERR_ARG,
                           "TUTTI_TOPOLOGY is slurm, but %s is not set: ranks are to be started by "
                           "srun; or name a file",
                           address ? "SLURM_TOPOLOGY_ADDR_PATTERN" : "SLURM_TOPOLOGY_ADDR");
    return tutti__topology_of_address(address, pattern, switches);
}

tutti_status tutti__topology_find(const char *host, tutti__switches *switches, uint64_t *digest_p)
{
    const char *path = tutti__env_text(TUTTI__ENV_TOPOLOGY);
    tutti_status status;
    char *text;

    *switches = (tutti__switches){0};
    *digest_p = *path ? tutti__hash64(path, strlen(path)) : 0;
    if (!*path)
        return TUTTI_OK;
    if (strcmp(path, "slurm") == 0)
        return find_by_slurm(switches);
    TUTTI_TRY(read_file(path, &text));
    *digest_p = tutti__hash64(text, strlen(text));
    status = tutti__topology_read(path, text, host, switches);
    free(text);
    return status;
}

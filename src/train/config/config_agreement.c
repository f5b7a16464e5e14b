/* config_agreement.c -- whether all ranks have the same configuration.   SPDX-License-Identifier: MIT */
#include "train/config/agreement.h"

#include <stdlib.h>
#include <string.h>

/* Keys that may differ: the paths of a rank's files, and the use of its host. */
static bool is_local(int key)
{
    switch (key) {
    case TUTTI__KEY_OF_model_file:
    case TUTTI__KEY_OF_data_file:
    case TUTTI__KEY_OF_data_dir:
    case TUTTI__KEY_OF_init:
    case TUTTI__KEY_OF_run_dir:
    case TUTTI__KEY_OF_threads:
    case TUTTI__KEY_OF_workers:
    case TUTTI__KEY_OF_prefetch:
    case TUTTI__KEY_OF_device:
        return true;
    default:
        return false;
    }
}

/* Compares two configurations' JSON line by line: one line per key, in the table's order, after the line "{". */
static tutti_status compare_lines(const char *here, const char *there)
{
    for (int i = -1; i < TUTTI__N_KEYS; i++) {
        int n = (int)strcspn(here, "\n"), m = (int)strcspn(there, "\n");

        if (i >= 0 && !is_local(i) && (n != m || memcmp(here, there, (size_t)n) != 0)) {
            /* two spaces, quotes, colon, space */
            int skip = (int)strlen(tutti__key_table[i].name) + 6;

            return tutti__fail(
                TUTTI_ERR_MISMATCH,
                "%s: this rank has %.*s and rank 0 has %.*s; start all ranks with the "
                "same configuration",
                tutti__key_table[i].name, n - skip - (here[n - 1] == ','), here + skip,
                m - skip - (there[m - 1] == ','), there + skip);
        }
        here += n + 1;
        there += m + 1;
    }
    return TUTTI_OK;
}

char *tutti__config_settings(const tutti__train_config *config)
{
    char *json = tutti__config_json(config), *text = json ? strdup(json) : NULL, *end = text;
    const char *line = json;

    for (int i = -1; text && i < TUTTI__N_KEYS; i++) {
        const int n = (int)strcspn(line, "\n");
        const int name = i < 0 ? 0 : (int)strlen(tutti__key_table[i].name);

        if (i >= 0 && !is_local(i)) /* two spaces, the name in quotes, colon, space */
            end += sprintf(end, "%s: %.*s;", tutti__key_table[i].name,
                           n - name - 6 - (line[n - 1] == ','), line + name + 6);
        line += n + 1;
    }
    if (text)
        *end = '\0';
    free(json);
    return text;
}

tutti_status tutti__same_config(tutti_group *group, const tutti__train_config *config)
{
    tutti__train_config *first = tutti__alloc(sizeof *first);
    char *here = NULL, *there = NULL;
    tutti_status status;

    if (!first)
        return TUTTI_ERR_MEMORY;
    *first = *config;
    status = tutti_broadcast(group, TUTTI_BUF(first, sizeof *first, TUTTI_U8), 0, NULL);
    if (status == TUTTI_OK) {
        here = tutti__config_json(config);
        there = tutti__config_json(first);
        status = here && there ? compare_lines(here, there) : TUTTI_ERR_MEMORY;
    }
    free(here);
    free(there);
    free(first);
    return status;
}

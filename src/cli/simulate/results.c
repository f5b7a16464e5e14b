/* results.c -- where the results of simulations go.   SPDX-License-Identifier: MIT */
#include "cli/simulate/simulate.h"

#include "checkpoint/json_text.h"

#include <stdlib.h>
#include <string.h>

tutti_status tutti__simulate_write(const char *path, json_t *root)
{
    char *text = tutti__json_text(root, JSON_INDENT(2));
    tutti_status status = TUTTI_OK;

    json_decref(root);
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the JSON of the results");
    if (strcmp(path, "-") == 0)
        puts(text);
    else
        status = tutti__write_file(path, text, strlen(text));
    free(text);
    return status;
}

FILE *tutti__simulate_out(const char *json)
{
    return json && strcmp(json, "-") == 0 ? stderr : stdout;
}

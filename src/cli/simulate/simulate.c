/* simulate.c -- `tutti simulate`: reads the flags.   SPDX-License-Identifier: MIT */
#include "cli/simulate/simulate.h"

#include "base/flag.h"
#include "checkpoint/json_text.h"
#include "checkpoint/output.h"
#include "cli/cli.h"
#include "train/config/agreement.h"


#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELP[] = "usage: tutti simulate\n";

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

int tutti__cli_simulate(int argc, char **argv)
{
    uint64_t broken = 0;
    tutti__simulate_histories h = {.n = 1, .seed = 1, .nodes = 5, .workers = 2};
    tutti_status status;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    h.n = strtoull(argv[1], NULL, 10);
    h.seed = strtoull(argv[2], NULL, 10);
    h.verbose = argc > 3;
    status = tutti__simulate_histories_run(&h, &broken);
    if (status != TUTTI_OK)
        return tutti__report_usage("tutti simulate", status);
    return broken > 0;
}

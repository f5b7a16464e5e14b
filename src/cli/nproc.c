/* nproc.c -- -n N: runs a command in this process or in N workers.   SPDX-License-Identifier: MIT */
#include "cli/nproc.h"

#include "comm/comm.h"
#include "launch/front/launch.h"

#include <stdlib.h>
#include <string.h>

tutti_status tutti__nproc_parse(const char *text, int64_t *n_p)
{
    if (tutti__parse_int64(text, n_p) && *n_p >= 1 && *n_p <= TUTTI__MOST_WORKERS)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG, "-n is \"%.40s\", expected a number of workers from 1 to %d",
                       text, TUTTI__MOST_WORKERS);
}

tutti_status tutti__nproc_take(int *argc, char **argv, int64_t *n_p)
{
    static const char *const names[] = {"-n", "--nproc-per-node", "--nproc_per_node"};
    int kept = 1;

    *n_p = 0;
    for (int i = 1; i < *argc; i++) {
        const char *text = NULL;

        for (size_t k = 0; k < TUTTI__COUNT_OF(names) && !text; k++) {
            size_t length = strlen(names[k]);

            if (strcmp(argv[i], names[k]) == 0) {
                if (++i >= *argc)
                    return tutti__fail(TUTTI_ERR_ARG, "-n needs a value, the number of workers");
                text = argv[i];
            } else if (strncmp(argv[i], names[k], length) == 0 && argv[i][length] == '=')
                text = argv[i] + length + 1;
        }
        if (!text && argv[i][0] == '-' && argv[i][1] == 'n' && argv[i][2])
            text = argv[i] + 2; /* -n2 */
        if (!text)
            argv[kept++] = argv[i];
        else
            TUTTI_TRY(tutti__nproc_parse(text, n_p));
    }
    argv[kept] = NULL;
    *argc = kept;
    return TUTTI_OK;
}

tutti_status tutti__nproc_check(const char *title, int64_t n)
{
    const tutti__launcher outer = tutti__launcher_find();
    char flag[32];

    snprintf(flag, sizeof flag, "-n %lld", (long long)n);
    return n > 0 ? tutti__launcher_refuse(&outer, title, flag) : TUTTI_OK;
}

int tutti__nproc_run(const tutti__nproc *w)
{
    char name[] = "tutti";
    char **whole;
    int code;

    if (w->n == 0)
        return w->work(w->user);
    whole = calloc((size_t)w->argc + 2, sizeof *whole);
    if (!whole) {
        fprintf(stderr, "%s: no memory\n", w->title);
        return 4;
    }
    whole[0] = name;
    memcpy(whole + 1, w->argv, (size_t)w->argc * sizeof *whole);
    code = tutti__launch(&(tutti__launch_opts){
        .title = w->title, .argv = whole, .n = (int)w->n, .rank0_direct = true, .quiet = w->quiet});
    free(whole);
    return code;
}

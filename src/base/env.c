/* env.c -- the table of env.def.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

const tutti__env_row tutti__env_table[TUTTI__N_ENV] = {
#define ENV(name, type, value, help) {"TUTTI_" #name, type, value, help},
#include "base/env.def"
#undef ENV
};

const tutti__env_prefix tutti__env_prefixes[TUTTI__N_ENV_PREFIXES] = {
    {"TUTTI_TORCH_", "the Python package tutti_torch (docs/pytorch.md)"},
    {"TUTTI_EXT_", "bindings and programs of others: TUTTI_EXT_NAME_..., with a name of their own"},
    {"TUTTI_TEST_", "the project's tests"}};

const char *tutti__env_text(tutti__env_id id)
{
    const char *text = getenv(tutti__env_table[id].name);

    return text && *text ? text : tutti__env_table[id].value;
}

tutti_status tutti__env_int(tutti__env_id id, long low, long high, long *value_p)
{
    return tutti__parse_variable(tutti__env_table[id].name, tutti__env_text(id), low, high,
                                 value_p);
}

tutti_status tutti__env_choice(tutti__env_id id, const char *const *names, size_t n,
                               size_t *choice_p)
{
    const char *text = tutti__env_text(id);

    for (size_t i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0) {
            *choice_p = i;
            return TUTTI_OK;
        }
    return tutti__fail_choice(tutti__env_table[id].name, text, names, n);
}

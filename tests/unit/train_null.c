/* NULL crashes no public function of the library: null.def has a row for each, and is compared with the recorded list of exported
 * names (tools/exports); operations have their rows in tensor/op/ops.def.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include <tutti/tutti.h>

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Where results would go. */
static tutti_device device;
static tutti_stream *stream;
static tutti_store *store;
static tutti_pool *pool;
static tutti_group *group;
static tutti_mesh *mesh;
static tutti_pipeline *pipeline;
static tutti_pipeline_table *table;
static tutti_tensor *tensor;
static tutti_model *model;
static tutti_trainer *trainer;
static tutti_optim *optim;
static tutti_ema *ema;
static tutti_reducer *reducer;
static tutti_elastic *elastic;
static tutti_ddp *ddp;
static tutti_join *join;
static tutti_dataset *dataset;
static tutti_tokenizer *tokenizer;
static int64_t *tokens;
static char *chars;
static tutti_loader *loader;
static tutti_comm_hook hook;
static tutti_scaler *scaler;
static tutti_ctx *cx;
static tutti_module module;
static tutti_linear linear;
static tutti_conv_transpose2d conv_transpose;
static tutti_norm norm;
static tutti_recurrent recurrent;
static tutti_activation activation;
static tutti_dropout_layer dropout;
static tutti_embedding embedding;
static tutti_conv2d conv2d;
static tutti_batch_norm2d batch_norm;
static tutti_flat flat;
static tutti_batch batch;
static tutti_buf buf;
static void *p;
static char bytes[64];
static size_t n = sizeof bytes;
static int64_t number;
static double error;

static void refused(const char *call, tutti_status status)
{
    if (tutti_status_scope(status) != TUTTI_SCOPE_CALL || !*tutti_last_error())
        fail_msg("%s: %s, \"%s\"", call, tutti_status_name(status), tutti_last_error());
    tutti__fail(TUTTI_OK, "%s", ""); /* clears the message */
}

static void poisoned(const char *call, const tutti_tensor *t)
{
    if (t || !*tutti_last_error())
        fail_msg("%s: %p, \"%s\"", call, (const void *)t, tutti_last_error());
    tutti__fail(TUTTI_OK, "%s", "");
}

#define NOTHING(call)    call
#define IS(call, number) assert_int_equal(call, number)
#define TEXT(call, text) assert_string_equal(call, text)
#define NaN(call)        assert_true(isnan(call))
#define REFUSED(call)    refused(#call, call)
#define POISONED(call)   poisoned(#call, call)
#define MADE(call, free)                                                                           \
    assert_int_equal(call, TUTTI_OK);                                                              \
    free
#define CALL(name, check)                                                                          \
    static void check_##name(void **state)                                                         \
    {                                                                                              \
        (void)state;                                                                               \
        check;                                                                                     \
    }
#include "null.def"

static tutti_tensor *in[TUTTI_OP_MAX_SOURCES]; /* the sources of operations: NULL */
#define OP(name, call, ...) CALL(tutti_##name, POISONED(call))
#include "tensor/op/ops.def"
#undef CALL

#define CALL(name, check) {#name, check_##name, NULL, NULL, NULL},
static const struct CMUnitTest rows[] = {
#include "null.def"
};
static const struct CMUnitTest operations[] = {
#include "tensor/op/ops.def"
};
#undef OP
#undef CALL

static bool has_row(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return true;
    return false;
}

static void every_exported_function_has_a_row(void **state)
{
    const char *source = getenv("SOURCE_DIR");
    char pattern[4096], line[256];
    size_t n_lines = 0;
    glob_t files;

    (void)state;
    snprintf(pattern, sizeof pattern, "%s/tools/exports/*.txt", source ? source : ".");
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        FILE *file = fopen(files.gl_pathv[i], "r");

        assert_non_null(file);
        for (; fgets(line, sizeof line, file); n_lines++) {
            line[strcspn(line, " \n")] = 0; /* name, version */
            if (!has_row(line))
                fail_msg("%s is exported, but tests/unit/null.def does not call it", line);
        }
        fclose(file);
    }
    globfree(&files);
    assert_true(n_lines >= sizeof rows / sizeof *rows); /* the lists are complete */
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(every_exported_function_has_a_row)};

    return cmocka_run_group_tests(all, NULL, NULL) + cmocka_run_group_tests(rows, NULL, NULL) +
           cmocka_run_group_tests(operations, NULL, NULL);
}

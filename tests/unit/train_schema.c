/* train: metrics.jsonl and summary.json read back by another library: each field of the table, with one type from the first line to
 * the last. */
#include "train/metrics/ledger.h"
#include "train/output/logs.h"
#include "train/config/config_read.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { LINES = 600 };

static char place[] = "/tmp/tutti-schema-XXXXXX";

static void begin(tutti__run_folder *folder, tutti__train_config *config, const char *name)
{
    char path[TUTTI__CONFIG_TEXT + 20];

    snprintf(folder->path, sizeof folder->path, "%s/%s", place, name);
    assert_int_equal(tutti__make_dirs(folder->path), TUTTI_OK);
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder->path);
    folder->metrics = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    assert_true(folder->metrics >= 0);
    assert_int_equal(tutti__config_read(config, &(tutti__parts){.title = NULL}, 0, NULL), TUTTI_OK);
    snprintf(config->prometheus, sizeof config->prometheus, "%s/%s.prom", place, name);
    strcpy(config->wandb, "offline");
    config->tensorboard = config->system_metrics = true;
    config->world_size = 2;
}

/* An object has the fields of the table and no other; each of its type, or null where that is allowed. */
static void expect_fields(const json_t *object, tutti__metric_table table, size_t others)
{
    assert_true(json_is_object(object));
    assert_int_equal(json_object_size(object), table.n + others);
    for (size_t i = 0; i < table.n; i++) {
        const json_t *value = json_object_get(object, table.rows[i].name);
        const tutti__metric_type type = table.rows[i].type;
        const bool right = type == TUTTI__METRIC_INT ? json_is_integer(value)
                           : type == TUTTI__METRIC_TEXT
                               ? json_is_string(value) || json_is_null(value)
                               : json_is_real(value) || json_is_null(value);

        if (!right)
            fail_msg("%s is of another type", table.rows[i].name);
    }
}

static void expect_line(const json_t *line, size_t counts[3])
{
    const json_t *eval = json_object_get(line, "eval"), *system = json_object_get(line, "system");

    if (eval)
        expect_fields(eval, tutti__eval_table, 0);
    else if (system) {
        const json_t *gpus = json_object_get(system, "gpus");

        expect_fields(system, tutti__system_table, 1);
        assert_true(json_is_array(gpus));
        for (size_t i = 0; i < json_array_size(gpus); i++)
            expect_fields(json_array_get(gpus, i), tutti__gpu_table, 0);
    } else
        expect_fields(line, tutti__step_table, 0);
    counts[eval ? 0 : system ? 1 : 2]++;
}

/* Integers where reals are expected, and unknown values: the worst case for a reader that guesses types. */
static void all_logs_keep_their_types(void **state)
{
    static tutti__train_config config;
    tutti__run_folder folder = {.metrics = -1};
    tutti__logs logs;
    const tutti__summary summary = {.status = "completed", .val_loss = NAN, .seconds = 2};
    char path[TUTTI__CONFIG_TEXT + 20];
    size_t counts[3] = {0};
    json_t *line;
    FILE *file;

    (void)state;
    begin(&folder, &config, "all");
    tutti__logs_begin(&logs, &folder, &config, "test", &(tutti__gpus){.n_here = 0}, 0);
    assert_non_null(logs.open);
    for (int i = 0; i < LINES; i++)
        tutti__logs_step(&logs, &(tutti__step_metrics){.step = i + 1,
                                                       .epoch = 1,
                                                       .loss = i % 3 ? 2 : 0.1,
                                                       .lr = i % 2 ? 1 : (double)0.1f,
                                                       .grad_norm = i % 5 ? i : (double)NAN,
                                                       .images_per_s = 1e6,
                                                       .time_s = i});
    tutti__logs_eval(&logs, &(tutti__eval_metrics){.epoch = 1, .val_accuracy = 1, .step = LINES});
    tutti__logs_end(&logs, &summary);
    assert_null(logs.open);
    close(folder.metrics);
    free(folder.pending); /* room for lines */

    snprintf(path, sizeof path, "%s/metrics.jsonl", folder.path);
    file = fopen(path, "r");
    assert_non_null(file);
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL))) {
        expect_line(line, counts);
        json_decref(line);
    }
    assert_int_equal(getc(file), EOF);
    fclose(file);
    assert_int_equal(counts[0], 1);
    assert_true(counts[1] >= 1);
    assert_int_equal(counts[2], LINES);
}

static void a_summary_has_its_fields(void **state)
{
    tutti__run_folder folder = {.metrics = -1};
    const tutti__summary summary = {
        .status = "failed", .train_loss = 1, .val_loss = NAN, .reason = "a \"reason\"\n"};
    tutti__ledger ledger;
    json_t *time, *read;
    char path[TUTTI__CONFIG_TEXT + 20];

    (void)state;
    snprintf(folder.path, sizeof folder.path, "%s", place);
    assert_int_equal(tutti__ledger_open(&ledger, 2, 10), TUTTI_OK);
    time = tutti__ledger_json(&ledger);
    assert_int_equal(tutti__run_folder_summary(&folder, &summary, time, NULL), TUTTI_OK);
    json_decref(time);
    tutti__ledger_close(&ledger);
    snprintf(path, sizeof path, "%s/summary.json", place);
    read = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    expect_fields(read, tutti__summary_table, 1);
    assert_true(json_is_object(json_object_get(read, "time")));
    assert_true(json_is_null(json_object_get(read, "val_loss")));
    assert_string_equal(json_string_value(json_object_get(read, "reason")), "a \"reason\"\n");
    json_decref(read);
}

/* Logs that are not configured do not exist. */
static void what_is_off_opens_nothing(void **state)
{
    static tutti__train_config config;
    tutti__run_folder folder = {.metrics = -1};
    tutti__logs logs;
    char path[TUTTI__CONFIG_TEXT + 20];

    (void)state;
    begin(&folder, &config, "off");
    config.prometheus[0] = '\0';
    strcpy(config.wandb, "off");
    config.tensorboard = config.system_metrics = false;
    tutti__logs_begin(&logs, &folder, &config, "test", &(tutti__gpus){.n_here = 0}, 0);
    assert_null(logs.open);
    tutti__logs_step(&logs, &(tutti__step_metrics){.step = 1});
    tutti__logs_end(&logs, &(tutti__summary){.status = "completed"});
    close(folder.metrics);
    free(folder.pending); /* room for lines */
    snprintf(path, sizeof path, "%s/tensorboard", folder.path);
    assert_int_not_equal(access(path, F_OK), 0);
}

static int make_place(void **state)
{
    (void)state;
    return mkdtemp(place) ? 0 : -1;
}

static int remove_place(void **state)
{
    char command[80];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", place);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_logs_keep_their_types),
                                       cmocka_unit_test(a_summary_has_its_fields),
                                       cmocka_unit_test(what_is_off_opens_nothing)};

    return cmocka_run_group_tests(tests, make_place, remove_place);
}

/* The configuration of `tutti train`: flags, files, and what is refused.   SPDX-License-Identifier: MIT */
#include "train/config/config_read.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <tutti/trainer.h>

#define N_ARGUMENTS 12

static tutti_status read_arguments(tutti__train_config *config, const char *const *list)
{
    char text[N_ARGUMENTS][128], *argv[N_ARGUMENTS + 1];
    int n = 0;

    for (; list[n]; n++) {
        snprintf(text[n], sizeof text[n], "%s", list[n]);
        argv[n] = text[n];
    }
    argv[n] = NULL;
    return tutti__config_read(config, &(tutti__parts){.title = NULL}, n, argv);
}
#define READ(config, ...) read_arguments(config, (const char *const[]){__VA_ARGS__, NULL})

static void expect_refused(const char *const *list, const char *part, const char *also)
{
    tutti__train_config c;

    assert_int_equal(read_arguments(&c, list), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), part) || !strstr(tutti_last_error(), also))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", tutti_last_error(), part, also);
}
#define REFUSED(part, also, ...)                                                                   \
    expect_refused((const char *const[]){__VA_ARGS__, NULL}, part, also)

static void flags_are_read_in_every_spelling(void **state)
{
    tutti__train_config c;

    (void)state;
    assert_int_equal(
        READ(&c, "--batch-size", "16", "--batch_size=8", "--model=mlp", "--lr", "1e-3"), TUTTI_OK);
    assert_int_equal(c.batch_size, 8);
    assert_string_equal(c.model, "mlp");
    assert_true(c.lr == 1e-3);
    assert_int_equal(READ(&c, "--nesterov", "--no-augment", "--seed", "7"), TUTTI_OK);
    assert_true(c.nesterov);
    assert_false(c.augment);
    assert_int_equal(c.seed, 7);
    assert_int_equal(READ(&c, "--nesterov", "off", "--augment", "1", "--sync_bn=false"), TUTTI_OK);
    assert_false(c.nesterov);
    assert_true(c.augment);
}

static void an_empty_command_line_gives_the_defaults(void **state)
{
    tutti__train_config c;

    (void)state;
    assert_int_equal(tutti__config_read(&c, &(tutti__parts){.title = NULL}, 0, NULL), TUTTI_OK);
    assert_string_equal(c.model, "mini_resnet");
    assert_string_equal(c.data, "digits");
    assert_string_equal(c.resume, "no");
    assert_int_equal(c.batch_size, 32);
    assert_true(c.momentum == 0.9);
}

static void the_rate_follows_the_optimizer_unless_it_is_given(void **state)
{
    tutti__train_config c;

    (void)state;
    assert_int_equal(READ(&c, "--optimizer", "adam"), TUTTI_OK);
    assert_true(c.lr == 0.001);
    assert_int_equal(READ(&c, "--optimizer", "adam", "--lr", "0.05"), TUTTI_OK);
    assert_true(c.lr == 0.05);
}

static void a_short_run_warms_up_shortly_unless_told_otherwise(void **state)
{
    tutti__train_config c;

    (void)state;
    assert_int_equal(READ(&c, "--epochs", "2"), TUTTI_OK);
    assert_true(c.warmup_epochs == 0.25);
    assert_int_equal(READ(&c, "--epochs", "20"), TUTTI_OK);
    assert_true(c.warmup_epochs == 1);
    assert_int_equal(READ(&c, "--epochs", "2", "--warmup-epochs", "1"), TUTTI_OK);
    assert_true(c.warmup_epochs == 1);
}

static void language_models_have_defaults_of_their_own(void **state)
{
    tutti__train_config c;

    (void)state;
    assert_int_equal(READ(&c, "--model", "gpt2", "--data", "shakespeare"), TUTTI_OK);
    assert_int_equal(c.layers * 100000 + c.heads * 10000 + c.width, 440128);
    assert_int_equal(c.context, 64);
    assert_int_equal(c.batch_size, 12);
    assert_int_equal(c.max_steps, 2000);
    assert_int_equal(c.warmup_steps, 100);
    assert_string_equal(c.optimizer, "adamw");
    assert_true(c.lr == 1e-3 && c.final_lr == 1e-4 && c.beta2 == 0.99 && c.weight_decay == 0.1);
    assert_true(c.warmup_epochs == 0 && c.clip_grad_norm == 1 && !c.decay_biases);
    assert_int_equal(READ(&c, "--model", "gpt2", "--data", "shakespeare", "--layers", "12", "--lr",
                          "0.5", "--warmup-epochs", "2"),
                     TUTTI_OK);
    assert_int_equal(c.layers, 12);
    assert_int_equal(c.heads, 4);
    assert_true(c.lr == 0.5 && c.final_lr == 1e-4 && c.warmup_epochs == 2 && c.warmup_steps == 0);
    /* of other text, the model's own sizes */
    assert_int_equal(READ(&c, "--model", "gpt2", "--data", "text", "--data-dir", "x"), TUTTI_OK);
    assert_int_equal(c.layers + c.heads + c.width, 0);
    assert_int_equal(c.context, 1024);
    assert_int_equal(c.max_steps, 0);
    assert_true(c.lr == 6e-4 && c.final_lr == c.lr / 10 && c.beta2 == 0.95);
    assert_int_equal(READ(&c, "--model", "gpt2-xl", "--data", "shakespeare", "--optimizer", "sgd"),
                     TUTTI_OK);
    assert_int_equal(c.layers + c.heads + c.width, 0);
    assert_true(c.lr == 0.02 && c.beta2 == 0.999 && c.weight_decay == 0.0005);
    REFUSED("warmup_steps: warmup_epochs is given, too", "use one", "--warmup-epochs", "1",
            "--warmup-steps", "3");
    REFUSED("warmup_steps: schedule=onecycle", "leave warmup_steps out", "--schedule", "onecycle",
            "--warmup-steps", "3");
    REFUSED("beta2: it is for optimizer=adam, adamw, lamb", "sgd", "--beta2", "0.9");
    REFUSED("norm_eps: it is for model=llama", "gpt2", "--model", "gpt2", "--norm-eps", "1e-6");
}

static void wrong_values_name_key_value_and_what_was_expected(void **state)
{
    (void)state;
    REFUSED("batch_size: \"abc\" is not an integer", "1 to 1000000", "--batch-size", "abc");
    REFUSED("batch_size: 0 is out of range", "1 to 1000000", "--batch_size=0");
    REFUSED("batch_size: \"3.5\"", "integer", "--batch_size", "3.5");
    REFUSED("batch_size: \"99999999999999999999\"", "integer", "--batch_size",
            "99999999999999999999");
    REFUSED("lr: \"fast\" is not a number", "0 to 1000", "--lr", "fast");
    REFUSED("lr: -1 is out of range", "0 to 1000", "--lr", "-1");
    REFUSED("lr: nan", "out of range", "--lr", "nan");
    REFUSED("model: \"resnet\"", "expected mini_resnet, mlp", "--model", "resnet");
    REFUSED("augment: \"maybe\"", "true", "--augment=maybe");
    REFUSED("--lr needs a value", "", "--lr");
    REFUSED("--run-dir needs a value", "--run-dir=VALUE", "--run-dir", "--lr", "1");
    REFUSED("unexpected argument \"digits\"", "", "digits");
    REFUSED("unexpected argument \"-x\"", "", "-x");
    REFUSED("unexpected argument \"--\"", "", "--");
}

static void unknown_keys_name_the_nearest(void **state)
{
    (void)state;
    REFUSED("unknown key \"batchsize\"", "\"batch_size\"", "--batchsize", "3");
    REFUSED("unknown key \"learning-speed-of-all\"", "--help", "--learning-speed-of-all", "3");
    REFUSED("unknown key \"no-batch-size\"", "", "--no-batch-size");
    REFUSED("unknown key \"conf\"", "config", "--conf", "3");
}

static void what_is_off_may_be_said(void **state)
{
    tutti__train_config c;

    (void)state;
    assert_int_equal(READ(&c, "--amp", "off", "--backend=native", "--zero=0", "--sync-bn=off",
                          "--device=cpu", "--resume", "no", "--no-tensorboard"),
                     TUTTI_OK);
}

static void a_device_may_have_a_number(void **state)
{
    static const char *const wrong[] = {
        "cuda:",   "cuda:N",  "cuda:x",
        "cuda:-1", "cuda:1x", "cpu:1",
        "gpu:0",   ":0",      "cuda:00000000000000000000000000000000001"};
    tutti__train_config c;

    (void)state;
    assert_int_equal(READ(&c, "--device", "cuda"), TUTTI_OK);
    assert_int_equal(READ(&c, "--device", "cuda:12"), TUTTI_OK);
    assert_string_equal(c.device, "cuda:12");
    for (size_t i = 0; i < TUTTI__COUNT_OF(wrong); i++)
        REFUSED("device: \"", "cuda:N", "--device", wrong[i]);
}

static void keys_that_need_each_other_say_so(void **state)
{
    (void)state;
    REFUSED("init_only: selects tensors of init", "--init FILE", "--init-only", "fc");
    REFUSED("init_partial: selects tensors of init", "--init FILE", "--init-partial");
    REFUSED("nesterov", "momentum", "--nesterov", "--momentum", "0");
    REFUSED("data_dir", "--data-dir", "--data", "cifar10");
    REFUSED("profile: \"3\"", "1:5", "--profile", "3");
    REFUSED("profile: \"0:2\"", "1:5", "--profile", "0:2");
    REFUSED("profile: \"4:2\"", "1:5", "--profile", "4:2");
}

static void write_config(char path[64], const char *text)
{
    int fd;

    strcpy(path, "/tmp/tutti-config-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void histograms_are_tensorboard_s(void **state)
{
    tutti__train_config c;

    (void)state;
    REFUSED("histograms", "--tensorboard", "--histograms", "10");
    assert_int_equal(READ(&c, "--histograms", "10", "--tensorboard"), TUTTI_OK);
}

static void steps_can_be_a_flag(void **state)
{
    tutti__train_config c;
    char path[64];

    (void)state;
    assert_int_equal(READ(&c, "--lr", "1"), TUTTI_OK);
    assert_int_equal(c.trace_digests, TUTTI__STEPS_AUTO);
    assert_int_equal(READ(&c, "--trace-digests"), TUTTI_OK);
    assert_int_equal(c.trace_digests, TUTTI__STEPS_WORD);
    assert_int_equal(READ(&c, "--trace-digests", "--lr", "1"), TUTTI_OK);
    assert_int_equal(c.trace_digests, TUTTI__STEPS_WORD);
    assert_int_equal(READ(&c, "--trace-digests", "2%"), TUTTI_OK);
    assert_int_equal(c.trace_digests, TUTTI__STEPS_WORD);
    assert_int_equal(READ(&c, "--guard"), TUTTI_OK);
    assert_int_equal(c.guard, 1);
    assert_int_equal(READ(&c, "--trace-digests", "off"), TUTTI_OK);
    assert_int_equal(c.trace_digests, 0);
    assert_int_equal(READ(&c, "--no-trace-digests"), TUTTI_OK);
    assert_int_equal(c.trace_digests, 0);
    assert_int_equal(READ(&c, "--trace-digests=64"), TUTTI_OK);
    assert_int_equal(c.trace_digests, 64);
    REFUSED("guard: \"2%\" is not an integer", "expected 0 to", "--guard", "2%");
    REFUSED("trace_digests: -1 is out of range", "expected 0 to", "--trace-digests=-1");
    REFUSED("trace_digests: \"now\" is not an integer", "expected 0 to", "--trace-digests", "now");
    write_config(path, "{\"trace_digests\": \"auto\"}");
    assert_int_equal(READ(&c, "--config", path), TUTTI_OK);
    assert_int_equal(c.trace_digests, TUTTI__STEPS_AUTO);
    unlink(path);
    write_config(path, "{\"trace_digests\": true}");
    assert_int_equal(READ(&c, "--config", path), TUTTI_OK);
    assert_int_equal(c.trace_digests, TUTTI__STEPS_WORD);
    unlink(path);
}

static void a_file_gives_values_and_flags_override_it(void **state)
{
    tutti__train_config c;
    char path[64];

    (void)state;
    write_config(path, "{\"batch_size\": 4, \"lr\": 0.25, \"augment\": false, \"model\": \"mlp\", "
                       "\"weight-decay\": 1}");
    assert_int_equal(READ(&c, "--batch-size", "5", "--config", path), TUTTI_OK);
    assert_int_equal(c.batch_size, 5);
    assert_true(c.lr == 0.25);
    assert_false(c.augment);
    assert_string_equal(c.model, "mlp");
    assert_true(c.weight_decay == 1);
    unlink(path);
}

static void a_bad_file_is_refused_by_name(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"batchsize\": 4}", "\"batch_size\""},
        {"{\"batch_size\": \"x\"}", "batch_size: \"x\""},
        {"{\"batch_size\": null}", "batch_size:"},
        {"{\"batch_size\": 4.5}", "not an integer"},
        {"{\"batch_size\": [4]}", "batch_size:"},
        {"[]", "not a JSON object"},
        {"{", "not a JSON object"},
        {"", "not a JSON object"},
        {"{\"lr\": 1, \"lr\": 2}", "duplicate"},
        {"{\"device\": \"gpu\"}",
         "not one of its values; expected auto, cpu, cuda, cuda:N or strict"},
    };
    char path[64];

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(cases); i++) {
        write_config(path, cases[i].text);
        REFUSED(path, cases[i].says, "--config", path);
        unlink(path);
    }
    tutti__train_config c;
    assert_int_equal(READ(&c, "--config", "/nowhere/at/all.json"), TUTTI_ERR_NOT_FOUND);
}

static void the_json_repeats_the_run(void **state)
{
    tutti__train_config a, b;
    char path[64], *text;

    (void)state;
    assert_int_equal(READ(&a, "--lr", "0.1", "--run-dir", "a \"b\"", "--nesterov", "--seed=123"),
                     TUTTI_OK);
    text = tutti__config_json(&a);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"lr\": 0.1,"));
    write_config(path, text);
    free(text);
    assert_int_equal(READ(&b, "--config", path), TUTTI_OK);
    assert_memory_equal(&a, &b, sizeof a);
    unlink(path);

    a.world_size = 3; /* in a run's own file, but not a key */
    text = tutti__config_json(&a);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"world_size\": 3\n}"));
    write_config(path, text);
    free(text);
    assert_int_equal(READ(&b, "--config", path), TUTTI_OK);
    assert_string_equal(b.run_dir, ""); /* a repeated run has its own */
    strcpy(b.run_dir, a.run_dir);
    assert_memory_equal(&a, &b, sizeof a);
    unlink(path);
    REFUSED("world-size", "unknown", "--world-size", "3");
}

/* ---- A program's own parts ------------------------------------------------------------------------------------ */

static void init_nothing(tutti_module *m, const tutti_model_opts *opts)
{
    (void)m, (void)opts;
}

static tutti_tensor *same(tutti_module *m, tutti_tensor *x)
{
    (void)m;
    return x;
}

static tutti_status open_nothing(void **self_p, const tutti_dataset_source *source,
                                 tutti_dataset_info *info)
{
    (void)self_p, (void)source, (void)info;
    return TUTTI_OK;
}

static void expect_incomplete(const tutti_trainer_opts *opts, const char *message)
{
    char *argv[] = {"program", NULL};
    tutti_trainer *trainer;

    assert_int_equal(tutti_trainer_new(&trainer, 1, argv, opts), TUTTI_ERR_ARG);
    assert_null(trainer);
    if (!strstr(tutti_last_error(), message))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), message);
}

static void an_incomplete_model_or_format_is_refused_before_the_run(void **state)
{
    const tutti_model_kind whole = {
        .name = "net", .bytes = sizeof(tutti_module), .init = init_nothing, .forward = same};
    tutti_model_kind model = whole;
    tutti_dataset_format format = {.name = "halves", .open = open_nothing};
    const tutti_trainer_opts by_model = {.model = &model}, by_format = {.format = &format};

    (void)state;
    model.forward = NULL;
    expect_incomplete(&by_model, "model \"net\": forward is NULL in its tutti_model_kind");
    model = whole;
    model.init = NULL;
    expect_incomplete(&by_model, "model \"net\": init is NULL");
    model = whole;
    model.bytes = sizeof(tutti_module) - 1;
    expect_incomplete(&by_model, "model \"net\": bytes is less than a tutti_module's");
    expect_incomplete(&by_format, "data format \"halves\": read is NULL");
    format.name = NULL;
    expect_incomplete(&by_format, "data: the name \"\" is not one of 1 to 60");
}

static void add_nothing(void *self, tutti_array output, tutti_array target, double *sums)
{
    (void)self, (void)output, (void)target, (void)sums;
}

static void wrong_metrics_are_refused(void **state)
{
    tutti_metric list[TUTTI_MAX_METRICS + 2] = {{.name = "Recall", .add = add_nothing}};
    const tutti_trainer_opts opts = {.metrics = list};

    (void)state;
    expect_incomplete(&opts, "metric 0 has the name \"Recall\"; expected 1 to 31 of a-z");
    list[0].name = "val_f1";
    expect_incomplete(&opts, "metric val_f1 has the name of one that a run has already");
    list[0].name = "recall";
    list[0].add = NULL;
    expect_incomplete(&opts, "metric recall has add NULL and 0 sums");
    list[0].add = add_nothing;
    list[0].n_sums = TUTTI_MAX_METRIC_SUMS + 1;
    expect_incomplete(&opts, "metric recall has add given and 17 sums");
    list[0].n_sums = 0;
    list[1] = list[0];
    expect_incomplete(&opts, "two metrics have the name recall");
    for (int i = 0; i <= TUTTI_MAX_METRICS; i++) {
        static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};

        list[i] = (tutti_metric){.name = names[i], .add = add_nothing};
    }
    expect_incomplete(&opts, "more than 8 metrics");
}

static void augment_of_own_data_is_off_and_refused_for_what_are_no_images_of_bytes(void **state)
{
    static const float x[2 * 4], y[2];
    static const uint8_t bytes[2 * 4];
    tutti_samples samples = {
        .count = 2, .shape = TUTTI_SHAPE(4), .dtype = TUTTI_F32, .targets = 1, .x = x, .y = y};
    char given[] = "--augment", *argv[] = {given, NULL};
    tutti__train_config c;
    tutti__parts parts = {.title = NULL};
    tutti_dataset *data;

    (void)state;
    for (int i = 0; i < 3; i++) {
        static const char *const messages[] = {"samples of data=memory are F32 rows of 4;",
                                               "are F32 images of 1x2x2;", NULL};

        if (i > 0)
            samples.shape = TUTTI_SHAPE(1, 2, 2);
        if (i == 2) {
            samples.dtype = TUTTI_U8;
            samples.x = bytes;
        }
        assert_int_equal(tutti_dataset_new(&data, &samples), TUTTI_OK);
        parts.own.train = data;
        assert_int_equal(tutti__config_read(&c, &parts, 0, NULL), TUTTI_OK);
        assert_false(c.augment); /* labels may depend on positions */
        assert_int_equal(tutti__config_read(&c, &parts, 1, argv),
                         messages[i] ? TUTTI_ERR_ARG : TUTTI_OK);
        assert_true(messages[i] || c.augment);
        if (messages[i] && (!strstr(tutti_last_error(), messages[i]) ||
                            !strstr(tutti_last_error(), "augment: crops and flips")))
            fail_msg("\"%s\"", tutti_last_error());
        tutti_dataset_free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_are_read_in_every_spelling),
        cmocka_unit_test(an_empty_command_line_gives_the_defaults),
        cmocka_unit_test(the_rate_follows_the_optimizer_unless_it_is_given),
        cmocka_unit_test(a_short_run_warms_up_shortly_unless_told_otherwise),
        cmocka_unit_test(language_models_have_defaults_of_their_own),
        cmocka_unit_test(wrong_values_name_key_value_and_what_was_expected),
        cmocka_unit_test(unknown_keys_name_the_nearest),
        cmocka_unit_test(what_is_off_may_be_said),
        cmocka_unit_test(a_device_may_have_a_number),
        cmocka_unit_test(keys_that_need_each_other_say_so),
        cmocka_unit_test(augment_of_own_data_is_off_and_refused_for_what_are_no_images_of_bytes),
        cmocka_unit_test(wrong_metrics_are_refused),
        cmocka_unit_test(an_incomplete_model_or_format_is_refused_before_the_run),
        cmocka_unit_test(histograms_are_tensorboard_s),
        cmocka_unit_test(steps_can_be_a_flag),
        cmocka_unit_test(a_file_gives_values_and_flags_override_it),
        cmocka_unit_test(a_bad_file_is_refused_by_name),
        cmocka_unit_test(the_json_repeats_the_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

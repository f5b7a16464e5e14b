/* Tables: columns by name, quotes, the scale and classes of the training rows, splits, and errors with row and column.
 * SPDX-License-Identifier: MIT */
#include "data_support.h"

#include "data/dataset.h"

#include <math.h>

static const char TRAIN[] = "age,\"weight, kg\",kind,price\r\n"
                            "1,10,cat,0.5\r\n"
                            " 2 ,20,\"a \"\"dog\"\"\",1.5\r\n"
                            "\r\n"
                            "3,30,cat,2.5\r\n";
static const char TEST[] = "kind,price,\"weight, kg\",age\n\"a \"\"dog\"\"\",4,40,4";

static tutti_dataset *open_table(const char *spec, const tutti_table_opts *table, const char *fit)
{
    tutti_dataset *dataset;

    if (tutti_dataset_open_with(&dataset, spec,
                                &(tutti_dataset_opts){.table = table, .fit = fit}) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return dataset;
}

/* All rows of t/train.csv. */
static tutti_dataset *open_all(const char *task)
{
    return open_table("csv:t/train", &(tutti_table_opts){.task = task, .test_fraction = TUTTI_ZERO},
                      NULL);
}

static void read_at(const tutti_dataset *dataset, size_t i, float *x, void *y)
{
    assert_int_equal(tutti__dataset_read(dataset, i, NULL, (void *const[]){x, y}), TUTTI_OK);
}

static void is_near(float a, double b)
{
    assert_true(fabs((double)a - b) < 1e-6);
}

static void columns_are_found_by_name_and_scaled_by_training(void **state)
{
    const tutti_table_opts table = {.target = "price", .features = "age,weight, kg"};
    const tutti_table_opts good = {.target = "price", .features = "age"};
    const double std = sqrt(2.0 / 3);
    tutti_dataset *dataset;
    tutti_dataset_info info;
    float x[2], y;

    (void)state;
    put_text("t/train.csv", TRAIN);
    put_text("t/test.csv", TEST);
    assert_int_equal(
        tutti_dataset_open_with(&dataset, "csv:t/train", &(tutti_dataset_opts){.table = &table}),
        TUTTI_ERR_FORMAT); /* a name with a comma cannot be listed */
    dataset = open_table("csv:t/train", &good, NULL);
    info = tutti_dataset_describe(dataset);
    assert_int_equal(info.count, 3);
    assert_int_equal(info.classes, 0);
    assert_int_equal(info.targets, 1);
    read_at(dataset, 1, x, &y);
    is_near(x[0], 0);
    is_near(y, 1.5);
    tutti_dataset_free(dataset);
    dataset = open_table("csv:t/test", &good, NULL);
    read_at(dataset, 0, x, &y);
    is_near(x[0], 2 / std);
    is_near(y, 4);
    tutti_dataset_free(dataset);
}

static void texts_are_classes_in_sorted_order(void **state)
{
    const tutti_table_opts table = {.target = "kind", .raw = true};
    tutti_dataset *dataset;
    tutti_dataset_info info;
    float x[3];
    int64_t label;

    (void)state;
    put_text("t/train.csv", TRAIN);
    put_text("t/test.csv", TEST);
    dataset = open_table("csv:t/train", &table, NULL);
    info = tutti_dataset_describe(dataset);
    assert_int_equal(info.classes, 2);
    assert_string_equal(info.class_names[0], "a \"dog\"");
    assert_string_equal(info.class_names[1], "cat");
    read_at(dataset, 2, x, &label);
    assert_int_equal(label, 1);
    assert_true(x[0] == 3 && x[1] == 30 && x[2] == 2.5f);
    tutti_dataset_free(dataset);
    dataset = open_table("csv:t/test", &table, NULL); /* its columns have another order */
    read_at(dataset, 0, x, &label);
    assert_int_equal(label, 0);
    assert_true(x[0] == 4 && x[1] == 40 && x[2] == 4);
    tutti_dataset_free(dataset);
}

static void numbers_are_classes_if_the_task_says_so(void **state)
{
    tutti_dataset *dataset;
    tutti_dataset_info info;

    (void)state;
    put_text("t/train.csv", "x,y\n1,10\n2,9\n3,10\n4,2\n");
    dataset = open_all("classification");
    info = tutti_dataset_describe(dataset);
    assert_int_equal(info.classes, 3);
    assert_string_equal(info.class_names[0], "2");
    assert_string_equal(info.class_names[1], "9");
    assert_string_equal(info.class_names[2], "10");
    tutti_dataset_free(dataset);
    dataset = open_all(NULL);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 0);
    tutti_dataset_free(dataset);
}

/* As in files with a space after each comma. */
static void blanks_around_numbers_do_not_make_them_texts(void **state)
{
    tutti_dataset *dataset;
    tutti_dataset_info info;
    float x, y;

    (void)state;
    put_text("t/train.csv", "x, y\n1, 10\n2, 9.5 \n3,\t2\n");
    dataset = open_all(NULL);
    assert_int_equal(tutti_dataset_describe(dataset).classes, 0);
    read_at(dataset, 1, &x, &y);
    is_near(y, 9.5f);
    tutti_dataset_free(dataset);
    dataset = open_all("classification");
    info = tutti_dataset_describe(dataset);
    assert_int_equal(info.classes, 3);
    assert_string_equal(info.class_names[0], "\t2");
    assert_string_equal(info.class_names[1], " 9.5 ");
    assert_string_equal(info.class_names[2], " 10");
    tutti_dataset_free(dataset);
}

/* What was learned is enough: no training file is there. */
static void what_was_learned_is_used_elsewhere(void **state)
{
    const tutti_table_opts table = {.target = "kind"};
    tutti_dataset *dataset;
    char fit[512];
    float x[3], there[3];
    int64_t label;

    (void)state;
    put_text("t/train.csv", TRAIN);
    put_text("t/test.csv", TEST);
    dataset = open_table("csv:t/test", &table, NULL);
    read_at(dataset, 0, x, &label);
    snprintf(fit, sizeof fit, "%s", tutti_dataset_fitted(dataset));
    tutti_dataset_free(dataset);
    put_text("other.csv", TEST);
    dataset = open_table("csv:other.csv/all", NULL, fit);
    read_at(dataset, 0, there, &label);
    assert_memory_equal(x, there, sizeof x);
    assert_int_equal(label, 0);
    assert_string_equal(tutti_dataset_fitted(dataset), fit);
    tutti_dataset_free(dataset);
}

static void one_file_is_divided_once(void **state)
{
    enum { N = 50 };
    const tutti_table_opts table = {.raw = true, .test_fraction = 0.3};
    char text[N * 16] = "x,y\n";
    int seen[N] = {0};

    (void)state;
    for (int i = 0; i < N; i++)
        sprintf(text + strlen(text), "%d,1\n", i);
    put_text("all.csv", text);
    for (int part = 0; part < 2; part++) {
        tutti_dataset *dataset =
            open_table(part ? "csv:all.csv/test" : "csv:all.csv/train", &table, NULL);
        const size_t count = tutti_dataset_describe(dataset).count;
        float x, y;

        assert_int_equal(count, part ? 15 : 35);
        for (size_t i = 0; i < count; i++) {
            read_at(dataset, i, &x, &y);
            seen[(int)x]++;
        }
        tutti_dataset_free(dataset);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
}

static void refuse(const char *text, const tutti_table_opts *table, const char *expected)
{
    tutti_dataset *dataset;

    put_text("bad/train.csv", text);
    put_text("bad/test.csv", text);
    assert_int_not_equal(
        tutti_dataset_open_with(&dataset, "csv:bad/train", &(tutti_dataset_opts){.table = table}),
        TUTTI_OK);
    assert_null(dataset);
    assert_error_says(expected, NULL, NULL);
}

static void wrong_tables_are_refused_with_the_place(void **state)
{
    (void)state;
    refuse("", NULL, "bad/train.csv is empty");
    refuse("a,b\n", NULL, "bad/train.csv has no rows");
    refuse("a;b\n1;2\n", NULL,
           "line 1: 1 column; expected 2 to 65536, separated by commas, not by");
    refuse("a,b,a\n1,2,3\n", NULL, "line 1: column 3 is named \"a\", as an earlier one");
    refuse("a,b\n1,2\n\n3,,4\n", NULL, "row 2 (line 4): 3 values, and the first line names 2");
    refuse("a,b\n1,2\n\n3,,4\n", NULL,
           "columns; expected a value for each, in double quotes if it");
    refuse(
        "a,b\n1,2\n3\n", NULL,
        "row 2 (line 3): 1 value, and the first line names 2 columns; expected a value for each, "
        "separated by commas (is the file cut off?)");
    refuse("a,b\n1,2\n,4\n", NULL, "row 2 (line 3), column \"a\": the value is missing (\"\")");
    refuse("a,b\n1,2\nNA,4\n", NULL, "column \"a\": the value is missing (\"NA\")");
    refuse("a,b\n\"x\n\",2\n", NULL,
           "row 1 (line 2), column \"a\": \"x\\n\" is not a finite decimal number");
    refuse("a,b\ninf,2\n", NULL, "\"inf\" is not a finite decimal number");
    refuse("a,b\n0x10,2\n", NULL, "\"0x10\" is not a finite decimal number"); /* as for pandas */
    refuse("a,b\n0x1p4,2\n", NULL, "\"0x1p4\" is not a finite decimal number");
    refuse("a,b\n1,0x10\n", &(tutti_table_opts){.task = "regression"}, "\"0x10\" is not");
    refuse("a,b\n1,nan\n", NULL, "row 1 (line 2), column \"b\": the value is missing");
    refuse("a,b\n1,2\n", &(tutti_table_opts){.target = "c"}, "has no column \"c\"");
    refuse("price,b\n1,2\n", &(tutti_table_opts){.target = "prize"}, "did you mean \"price\"?");
    refuse("a,b\n1,2\n", &(tutti_table_opts){.target = "a,b"}, "no column beside the target");
    refuse("a,b\n1,2\n", &(tutti_table_opts){.features = "b"}, "is in target and in features");
    refuse("a,b\n1,x\n", &(tutti_table_opts){.task = "regression"},
           "row 1 (line 2), column \"b\": \"x\" is not a finite decimal number");
    refuse("a,b,c\n1,x,2\n", &(tutti_table_opts){.target = "b,c"}, "column \"b\": \"x\" is not");
    refuse("a,b\n\"1,2\n3,4\n", NULL, "line 2, field 1: the quote that begins it is never closed");
    refuse("a,b\n1\",2\n", NULL, "line 2, field 1: a quote within a field");
    refuse("a,b\n\"1\"2,3\n", NULL, "line 2, field 1: text follows its closing quote");
    refuse("a,b\n1\r,3\n", NULL, "a carriage return that no line feed follows");
    refuse("a,b\n1e999,3\n", NULL, "is not a finite decimal number");
    refuse("a,b\n1e39,3\n", NULL, "is not a finite decimal number of F32 (up to 3.4e38)");
    refuse("a,b\n1,2\n", &(tutti_table_opts){.test_fraction = 1}, "test_fraction is 1");
    refuse("a,b\n1,\xff\xfe\n", NULL, "must be UTF-8");
}

static void other_rows_must_fit_the_training_rows(void **state)
{
    tutti_dataset *dataset;

    (void)state;
    put_text("t/train.csv", "a,b\n1,cat\n2,dog\n");
    put_text("t/test.csv", "a,b\n1,owl\n");
    assert_int_equal(tutti_dataset_open(&dataset, "csv:t/test"), TUTTI_ERR_FORMAT);
    assert_error_says(
        "t/test.csv, row 1 (line 2), column \"b\": \"owl\" is not one of the 2 classes", NULL,
        NULL);
    put_text("t/test.csv", "c,b\n1,cat\n");
    assert_int_equal(tutti_dataset_open(&dataset, "csv:t/test"), TUTTI_ERR_FORMAT);
    assert_error_says("t/test.csv has no column \"a\"", "it has c, b", NULL);
    assert_int_equal(tutti_dataset_open_with(&dataset, "csv:t/test",
                                             &(tutti_dataset_opts){.fit = "{\"format\": \"npy\"}"}),
                     TUTTI_ERR_FORMAT);
    assert_error_says("are not those of a table", NULL, NULL);
    for (size_t i = 0; i < 3; i++) {
        static const char *const twice[] = {"[\"a\", \"a\"], \"targets\": [\"b\"]",
                                            "[\"a\"], \"targets\": [\"b\", \"b\"]",
                                            "[\"a\"], \"targets\": [\"a\"]"};
        char fit[256];

        snprintf(fit, sizeof fit,
                 "{\"format\": \"csv\", \"features\": %s, \"classes\": [], \"mean\": [], "
                 "\"std\": []}",
                 twice[i]);
        assert_int_equal(
            tutti_dataset_open_with(&dataset, "csv:t/test", &(tutti_dataset_opts){.fit = fit}),
            TUTTI_ERR_FORMAT);
        assert_error_says("are not those of a table", NULL, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(columns_are_found_by_name_and_scaled_by_training),
        IN_FOLDER(texts_are_classes_in_sorted_order),
        IN_FOLDER(numbers_are_classes_if_the_task_says_so),
        IN_FOLDER(blanks_around_numbers_do_not_make_them_texts),
        IN_FOLDER(what_was_learned_is_used_elsewhere),
        IN_FOLDER(one_file_is_divided_once),
        IN_FOLDER(wrong_tables_are_refused_with_the_place),
        IN_FOLDER(other_rows_must_fit_the_training_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* report_page.c -- writes the page: report.html, the runs' figures for its script, and the table of results, which needs
 * no script.   SPDX-License-Identifier: MIT
 *
 * Outside text (names of folders, configurations, failure messages) enters the page in two ways: escaped for HTML, or as JSON
 * without any "<", so that it cannot end the script element that contains it. */
#include "cli/report/report.h"

#include "checkpoint/json_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char page[] = {
#include "report.html.inc" /* made by CMake */
    , '\0'};

/* Control characters have no meaning in HTML, and some are forbidden. */
static void print_text(FILE *out, const char *text)
{
    for (const char *p = text; *p; p++)
        switch (*p) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc((unsigned char)*p < 0x20 && *p != '\n' ? ' ' : *p, out);
        }
}

/* The same for text that may not be UTF-8: through JSON, which replaces invalid bytes. */
static void print_foreign(FILE *out, const char *text)
{
    char *json = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&json, &n);
    json_t *string;

    if (!stream)
        return;
    tutti__json_string(stream, text);
    if (fclose(stream) == 0) {
        string = json_loadb(json, n, JSON_DECODE_ANY, NULL);
        if (string)
            print_text(out, json_string_value(string));
        json_decref(string);
    }
    free(json);
}

/* ---- The table of results --------------------------------------------------------------------------- */

typedef enum form { AS_IT_IS, COUNT, NUMBER, PERCENT, RATE, DURATION } form;

/* In order of interest. A summary's other fields are in the page's "all figures". */
static const struct {
    const char *key, *title;
    form look;
} rows[] = {{"status", "status", AS_IT_IS},
            {"reason", "reason of the failure", AS_IT_IS},
            {"val_perplexity", "test perplexity", NUMBER},
            {"val_accuracy", "test accuracy", PERCENT},
            {"val_top5_accuracy", "test top-5 accuracy", PERCENT},
            {"val_f1", "test F1", NUMBER},
            {"val_iou", "test IoU", NUMBER},
            {"val_mae", "test MAE", NUMBER},
            {"val_rmse", "test RMSE", NUMBER},
            {"val_r2", "test R2", NUMBER},
            {"val_loss", "test loss", NUMBER},
            {"train_loss", "training loss, last epoch", NUMBER},
            {"images_per_s", "samples/s", RATE},
            {"tokens_per_s", "tokens/s", RATE},
            {"mfu", "model FLOPs utilisation", PERCENT},
            {"seconds", "time", DURATION},
            {"world_size", "ranks", COUNT},
            {"steps", "steps", COUNT},
            {"epochs", "epochs", COUNT},
            {"parameters", "parameters", COUNT},
            {"parameter_digest", "digest of the parameters", AS_IT_IS}};

/* 2777674 as "2 777 674", with spaces that do not break. */
static void print_count(FILE *out, int64_t n)
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRId64, n), sign = n < 0;

    for (int i = 0; i < length; i++)
        fprintf(out, "%s%c", i > sign && (length - i) % 3 == 0 ? "&#8239;" : "", digits[i]);
}

static void print_number(FILE *out, double value, form look)
{
    if (look == PERCENT)
        fprintf(out, "%.2f&#8239;%%", 100 * value);
    else if (look == RATE || look == COUNT)
        print_count(out, fabs(value) < 9e18 ? (int64_t)llround(value) : 0);
    else if (look == DURATION && value >= 60)
        fprintf(out, "%.0f:%02.0f:%02.0f", floor(value / 3600), floor(fmod(value, 3600) / 60),
                floor(fmod(value, 60)));
    else
        fprintf(out, "%.4g%s", value, look == DURATION ? "&#8239;s" : "");
}

static void print_cell(FILE *out, const json_t *value, form look)
{
    if (json_is_string(value)) {
        fputs("<td>", out);
        print_text(out, json_string_value(value));
    } else if (json_is_number(value)) {
        fputs("<td>", out);
        print_number(out, json_number_value(value), look);
    } else
        fputs("<td class=\"none\">&#8211;", out);
    fputs("</td>", out);
}

/* A row for each class, a column for each predicted one. */
static void print_matrix(FILE *out, const json_t *classes, const json_t *counts)
{
    const json_t *name, *row, *count;
    size_t i, k;

    fputs("<table><thead><tr><th></th>", out);
    json_array_foreach((json_t *)(uintptr_t)classes, i, name)
    {
        fputs("<th scope=\"col\">", out);
        print_foreign(out, json_string_value(name) ? json_string_value(name) : "");
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    json_array_foreach((json_t *)(uintptr_t)counts, i, row)
    {
        const char *text = json_string_value(json_array_get(classes, i));

        fputs("<tr><th scope=\"row\">", out);
        print_foreign(out, text ? text : "");
        fputs("</th>", out);
        json_array_foreach((json_t *)(uintptr_t)row, k, count) print_cell(out, count, COUNT);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table>\n", out);
}

static void print_confusion(FILE *out, const tutti__report_run *run)
{
    const json_t *matrix = json_object_get(run->summary, "confusion");
    const json_t *classes = json_object_get(matrix, "classes");
    const json_t *counts = json_object_get(matrix, "counts");

    if (json_array_size(classes) < 1 || json_array_size(counts) != json_array_size(classes))
        return;
    fputs("<details><summary>Confusion matrix of ", out);
    print_foreign(out, run->label);
    fputs(": rows are classes, columns what they were taken for</summary>\n", out);
    print_matrix(out, classes, counts);
    fputs("</details>\n", out);
}

/* What a language model wrote last. */
static void print_sample(FILE *out, const tutti__report_run *run)
{
    if (!run->sample)
        return;
    fputs("<details open><summary>What the model of ", out);
    print_foreign(out, run->label);
    fputs(" wrote after its last evaluation</summary>\n<pre class=\"sample\">", out);
    print_foreign(out, run->sample);
    fputs("</pre></details>\n", out);
}

static bool anybody_has(const tutti__report_run *runs, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(runs[i].summary, key);

        if (value && !json_is_null(value))
            return true;
    }
    return false;
}

static void print_results(FILE *out, const tutti__report_run *runs, size_t n)
{
    fputs("<table><thead><tr><th></th>", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "<th scope=\"col\" data-run=\"%zu\">", i);
        print_foreign(out, runs[i].label);
        fputs("</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    for (size_t r = 0; r < TUTTI__COUNT_OF(rows); r++) {
        if (!anybody_has(runs, n, rows[r].key))
            continue;
        fprintf(out, "<tr data-key=\"%s\"><th scope=\"row\">%s</th>", rows[r].key, rows[r].title);
        for (size_t i = 0; i < n; i++)
            print_cell(out, json_object_get(runs[i].summary, rows[r].key), rows[r].look);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table>\n", out);
    for (size_t i = 0; i < n; i++) {
        print_confusion(out, &runs[i]);
        print_sample(out, &runs[i]);
    }
}

static void print_notes(FILE *out, const tutti__report_run *runs, size_t n)
{
    size_t notes = 0;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < runs[i].n_notes; k++) {
            fputs(notes++ ? "<li>" : "<ul class=\"notes\"><li>", out);
            print_foreign(out, runs[i].label);
            fputs(": ", out);
            print_foreign(out, runs[i].notes[k]);
            fputs("</li>\n", out);
        }
    fputs(notes ? "</ul>\n" : "", out);
}

/* ---- Data for the script ----------------------------------------------------------------------------- */

/* Prints JSON with < > and & escaped: they occur only in strings, where \u003c means the same. */
static void print_hidden(FILE *out, const char *json)
{
    for (const char *p = json; *p; p++)
        if (*p == '<' || *p == '>' || *p == '&')
            fprintf(out, "\\u%04x", *p);
        else
            fputc(*p, out);
}

/* false: no memory. */
static bool print_object(FILE *out, const char *name, const json_t *object)
{
    char *text = tutti__json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(9));

    fprintf(out, ",\"%s\":%s", name, text ? text : "null");
    free(text);
    return text || !object;
}

static bool print_run(FILE *out, const tutti__report_run *run)
{
    bool whole;

    fputs("{\"label\":", out);
    tutti__json_string(out, run->label);
    fputs(",\"path\":", out);
    tutti__json_string(out, run->path);
    whole = print_object(out, "config", run->config);
    whole &= print_object(out, "summary", run->summary);
    whole &= print_object(out, "lr_find", run->lr_find);
    fputs(",\"steps\":", out);
    tutti__curves_print(out, &run->steps);
    fputs(",\"evals\":", out);
    tutti__curves_print(out, &run->evals);
    fputs("}\n", out);
    return whole;
}

static tutti_status print_data(FILE *out, const tutti__report_run *runs, size_t n)
{
    char *json = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&json, &bytes);
    bool whole = true;

    if (!stream)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the page");
    fputs("[", stream);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? "," : "", stream);
        whole &= print_run(stream, &runs[i]);
    }
    fputs("]", stream);
    if (fclose(stream) != 0 || !whole) {
        free(json);
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the page");
    }
    print_hidden(out, json);
    free(json);
    return TUTTI_OK;
}

static void print_title(FILE *out, const tutti__report_run *runs, size_t n)
{
    print_foreign(out, runs[0].label);
    if (n > 1)
        fprintf(out, " and %zu more", n - 1);
}

static void print_made(FILE *out)
{
    char text[64];

    tutti__local_time(tutti__wall_seconds(), "%Y-%m-%d %H:%M %Z", text);
    fprintf(out, "tutti %s, %s", TUTTI_VERSION, text);
}

/* Prints report.html, and replaces its placeholder comments ("<!--"). */
tutti_status tutti__report_print(FILE *out, const tutti__report_run *runs, size_t n)
{
    static const char *const marks[] = {"<!--TITLE-->", "<!--MADE-->", "<!--NOTES-->",
                                        "<!--RESULTS-->", "<!--DATA-->"};

    for (const char *p = page, *mark; *p; p = mark) {
        size_t which = 0;

        mark = strstr(p, "<!--");
        mark = mark ? mark : p + strlen(p);
        fwrite(p, 1, (size_t)(mark - p), out);
        while (which < TUTTI__COUNT_OF(marks) &&
               strncmp(mark, marks[which], strlen(marks[which])) != 0)
            which++;
        if (which == TUTTI__COUNT_OF(marks)) {
            if (*mark)
                fputc(*mark++, out);
            continue;
        }
        mark += strlen(marks[which]);
        if (which == 0)
            print_title(out, runs, n);
        else if (which == 1)
            print_made(out);
        else if (which == 2)
            print_notes(out, runs, n);
        else if (which == 3)
            print_results(out, runs, n);
        else
            TUTTI_TRY(print_data(out, runs, n));
    }
    return TUTTI_OK;
}

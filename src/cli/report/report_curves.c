/* report_curves.c -- reduces any number of lines to at most 1024 points per figure.   SPDX-License-Identifier: MIT */
#include "cli/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add(tutti__cell *to, const tutti__cell *from)
{
    if (from->n == 0)
        return;
    to->min = to->n == 0 || from->min < to->min ? from->min : to->min;
    to->max = to->n == 0 || from->max > to->max ? from->max : to->max;
    to->sum += from->sum;
    to->n += from->n;
}

/* Merges pairs of cells. */
static void halve(tutti__column *column)
{
    for (size_t i = 0; i < TUTTI__CELLS; i++) {
        const tutti__cell cell = column->cells[i];

        column->cells[i] = (tutti__cell){0};
        add(&column->cells[i / 2], &cell);
    }
}

void tutti__curves_begin_line(tutti__curves *c)
{
    if (c->lines_a_cell == 0)
        c->lines_a_cell = 1;
    if (c->lines == TUTTI__CELLS * c->lines_a_cell) {
        c->lines_a_cell *= 2;
        for (size_t i = 0; i < c->n; i++)
            halve(c->columns[i]);
    }
    c->lines++;
}

static tutti__column *find(tutti__curves *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->columns[i]->name, name) == 0)
            return c->columns[i];
    return NULL;
}

tutti_status tutti__curves_put(tutti__curves *c, const char *name, double value)
{
    tutti__column *column = find(c, name);

    if (!isfinite(value))
        return TUTTI_OK;
    if (!column && (c->n == TUTTI__COLUMNS || strlen(name) >= sizeof column->name)) {
        c->crowded = true;
        return TUTTI_OK;
    }
    if (!column) {
        column = tutti__alloc(sizeof *column);
        if (!column)
            return TUTTI_ERR_MEMORY;
        strcpy(column->name, name);
        c->columns[c->n++] = column;
    }
    add(&column->cells[(c->lines - 1) / c->lines_a_cell], &(tutti__cell){value, value, value, 1});
    return TUTTI_OK;
}

static void print_cells(FILE *out, const tutti__column *column, size_t n, char what)
{
    fputc('[', out);
    for (size_t i = 0; i < n; i++) {
        const tutti__cell *cell = &column->cells[i];
        const double value = what == '<'   ? cell->min
                             : what == '>' ? cell->max
                                           : cell->sum / (double)cell->n;

        if (i)
            fputc(',', out);
        if (cell->n == 0 || !isfinite(value))
            fputs("null", out);
        else if (value == floor(value) && fabs(value) < 1e15)
            fprintf(out, "%.0f", value); /* a step's number keeps all its digits */
        else
            fprintf(out, "%.7g", value);
    }
    fputc(']', out);
}

void tutti__curves_print(FILE *out, const tutti__curves *c)
{
    const uint64_t a_cell = c->lines_a_cell ? c->lines_a_cell : 1;
    const size_t n = (size_t)((c->lines + a_cell - 1) / a_cell);

    fprintf(out, "{\"lines\":%llu,\"lines_a_cell\":%llu,\"columns\":{",
            (unsigned long long)c->lines, (unsigned long long)a_cell);
    for (size_t i = 0; i < c->n; i++) {
        if (i)
            fputc(',', out);
        tutti__json_string(out, c->columns[i]->name);
        fputs(":{\"mean\":", out);
        print_cells(out, c->columns[i], n, '=');
        if (a_cell > 1) {
            fputs(",\"min\":", out);
            print_cells(out, c->columns[i], n, '<');
            fputs(",\"max\":", out);
            print_cells(out, c->columns[i], n, '>');
        }
        fputc('}', out);
    }
    fputs("}}", out);
}

void tutti__curves_free(tutti__curves *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->columns[i]);
    *c = (tutti__curves){0};
}

/* terminal.h -- output to a terminal: colours, and a progress bar.
 * SPDX-License-Identifier: MIT
 *
 * All of it is ASCII, so that it needs no locale. A bar belongs to one thread. */
#ifndef TUTTI_BASE_TERMINAL_H
#define TUTTI_BASE_TERMINAL_H

#include "base/base.h"

#include <stdio.h>

/* Opens /dev/null as those of descriptors 0 to 2 that are closed: else the next file would become standard output. Before
 * any file is opened. */
void tutti__open_standard_streams(void);
/* Whether standard output was one of them. */
bool tutti__output_was_closed(void);
/* Flushes standard output. Fails if text was lost; not if the reader closed the pipe. */
tutti_status tutti__flush_output(void);
/* The end of a program that would exit with `code`: if that is 0 and text was lost, reports it after `title`. Returns the exit code. */
int tutti__close_output(const char *title, int code);
/* A line and its end, as tutti__printable shows it, so that no name in it commands the terminal. Line ends with which the format
 * begins stay. */
void tutti__print_line(FILE *out, const char *format, ...) TUTTI_PRINTF(2, 3);
void tutti__vprint_line(FILE *out, const char *format, va_list args);
/* TUTTI_COLOR; if that is auto, a terminal on which a line can be redrawn, without NO_COLOR (https://no-color.org). */
bool tutti__wants_colour(int fd);
/* Whether mpirun started this process: it gives its ranks pseudo-terminals, and forwards their output to its own,
 * which may be a file. */
bool tutti__is_carried(void);
/* The sequence that clears the cursor's line (a bar, and ^C after it); "" if fd is no terminal. */
const char *tutti__wipe(int fd);
/* Columns of the terminal as it is now; 80 if fd is none. */
int tutti__columns(int fd);

typedef struct tutti__bar {
    FILE *out; /* NULL: nothing is drawn */
    bool colour;
    int drawn; /* characters of the bar on the screen; 0: none */
    uint64_t begin_ns, next_draw_ns;
} tutti__bar;

/* Draws on `out` if that can be redrawn, else never. Borrows the stream. */
void tutti__bar_init(tutti__bar *bar, FILE *out);
/* Draws on any stream. */
void tutti__bar_force(tutti__bar *bar, FILE *out);
/* Whether a tenth of a second has passed since this was last true. */
bool tutti__bar_is_due(tutti__bar *bar);
/* Draws "HEAD [==== ]  FIELD  FIELD", with as many of the first fields as fit into the window. False, with errno: writing to the
 * stream failed. */
bool tutti__bar_draw(tutti__bar *bar, const char *head, double fraction, const char *const *fields,
                     size_t n_fields);
/* Clears it from the screen. False as above. */
bool tutti__bar_clear(tutti__bar *bar);
/* For counted work: "packing [==== ]  37 %  3700/10000 images  0:07 left", at most ten times a second; cleared at the end. The
 * first call for a piece of work starts the clock. */
void tutti__bar_count(tutti__bar *bar, const char *doing, const char *what, size_t done,
                      size_t total);

/* The text of a bar in `width` columns. */
void tutti__bar_text(char *text, size_t room, int width, const char *head, double fraction,
                     const char *const *fields, size_t n_fields);
/* "0:07", "12:34", "1:02:03", "4 d 03:02:01" */
void tutti__time_text(double seconds, char text[24]);
/* A text of --help, which begins at `column`, and a line end: in lines of at most 100 columns, broken at blanks, all but the
 * first indented by `column`. */
void tutti__print_wrapped(FILE *out, const char *text, int column);

#endif

/* terminal.h -- what may be shown on a terminal: colours, and a bar that is drawn again and again.
 * SPDX-License-Identifier: MIT
 *
 * All of it is ASCII, so that it needs no locale. A bar belongs to one thread. */
#ifndef TUTTI_BASE_TERMINAL_H
#define TUTTI_BASE_TERMINAL_H

#include "base/base.h"

#include <stdio.h>

/* A terminal on which a line can be drawn again: none that is dumb, and none that mpirun has put before a file. */
bool tutti__can_redraw(int fd);
/* TUTTI_COLOR; where that is auto, can_redraw without NO_COLOR (https://no-color.org). */
bool tutti__wants_colour(int fd);
/* Whether mpirun started this process: it gives its ranks terminals of their own, and carries what they write to whatever
 * it was started on itself. */
bool tutti__is_carried(void);
/* What takes the cursor's line off a terminal, a bar and the ^C behind it; "" where fd is none. */
const char *tutti__wipe(int fd);
/* Columns of the terminal as it is now; 80 where fd is none. */
int tutti__columns(int fd);

typedef struct tutti__bar {
    FILE *out; /* NULL: nothing is drawn */
    bool colour;
    int drawn; /* characters of it on the screen, in the cursor's line; 0: none */
    uint64_t begin_ns, next_draw_ns;
} tutti__bar;

/* Draws on `out` if that can be redrawn, else never. The stream stays the caller's. */
void tutti__bar_init(tutti__bar *bar, FILE *out);
/* Draws on it whatever it is. */
void tutti__bar_force(tutti__bar *bar, FILE *out);
/* Whether a tenth of a second has passed since this was last true. */
bool tutti__bar_is_due(tutti__bar *bar);
/* Draws "HEAD [====    ]  FIELD  FIELD"; of the fields the first that fit into the window. False, with errno: the stream
 * takes nothing any more. */
bool tutti__bar_draw(tutti__bar *bar, const char *head, double fraction, const char *const *fields,
                     size_t n_fields);
/* Takes it off the screen. False as above. */
bool tutti__bar_clear(tutti__bar *bar);
/* For work that is counted: "packing [====    ]  37 %  3700/10000 images  0:07 left", at most ten times a second; gone at
 * the end. The first call of a piece of work sets the clock. */
void tutti__bar_count(tutti__bar *bar, const char *doing, const char *what, size_t done,
                      size_t total);

/* The text of a bar in `width` columns. */
void tutti__bar_text(char *text, size_t room, int width, const char *head, double fraction,
                     const char *const *fields, size_t n_fields);
/* "0:07", "12:34", "1:02:03", "4 d 03:02:01" */
void tutti__time_text(double seconds, char text[24]);
/* A text of --help, which begins at `column`, and a line end: in lines of at most 100 columns, parted at blanks, all but the
 * first indented by `column`. */
void tutti__print_wrapped(FILE *out, const char *text, int column);

#endif

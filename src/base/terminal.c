/* terminal.c -- colours, the window's width, the progress bar.   SPDX-License-Identifier: MIT */
#include "base/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    REDRAW_NS = 100000000,
    CELLS = 40, /* of the bar at most */
    CELLS_LEAST = 5,
    ROOMY = 44, /* below this width the last fields are preferred to a bar */
    FRAME = 3,  /* " [" and "]" */
    ECHO = 2    /* "^C", which a terminal writes where the cursor is */
};

static bool output_was_closed;

bool tutti__output_was_closed(void)
{
    return output_was_closed;
}

void tutti__open_standard_streams(void)
{
    int fd = open("/dev/null", O_RDWR);

    output_was_closed = fcntl(STDOUT_FILENO, F_GETFD) < 0 || fd == STDOUT_FILENO;
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = dup(fd);
    if (fd > STDERR_FILENO)
        close(fd);
}

tutti_status tutti__flush_output(void)
{
    struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};

    if ((fflush(stdout) == 0 && !ferror(stdout)) ||
        (poll(&output, 1, 0) == 1 && (output.revents & POLLERR)))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_DISK,
                       "cannot write all of the output to standard output: is its disk full?");
}

int tutti__close_output(const char *title, int code)
{
    if (code != 0 || tutti__flush_output() == TUTTI_OK)
        return code;
    fprintf(stderr, "%s: %s\n", title, tutti_last_error());
    return tutti_status_exit_code(TUTTI_ERR_DISK);
}

bool tutti__is_carried(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK");
}

void tutti__vprint_line(FILE *out, const char *format, va_list args)
{
    char raw[8192], shown[4 * sizeof raw];

    for (; *format == '\n'; format++)
        fputc('\n', out);
    vsnprintf(raw, sizeof raw, format, args);
    fprintf(out, "%s\n", tutti__printable(raw, shown, sizeof shown));
}

void tutti__print_line(FILE *out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    tutti__vprint_line(out, format, args);
    va_end(args);
}

/* A terminal on which a line can be redrawn: not TERM=dumb, and not mpirun's when its own output is a file. */
static bool can_redraw(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) && !tutti__is_carried() && term && *term && strcmp(term, "dumb") != 0;
}

bool tutti__wants_colour(int fd)
{
    const char *rule = tutti__env_text(TUTTI__ENV_COLOR), *no = getenv("NO_COLOR");

    if (strcmp(rule, "always") == 0 || strcmp(rule, "never") == 0)
        return *rule == 'a';
    return can_redraw(fd) && !(no && *no);
}

int tutti__columns(int fd)
{
    struct winsize size;

    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void tutti__time_text(double seconds, char text[24])
{
    const unsigned s = seconds > 0 && seconds < 1e9 ? (unsigned)(seconds + 0.5) : 0;
    const unsigned day = 86400;

    if (s >= day)
        snprintf(text, 24, "%u d %02u:%02u:%02u", s / day, s / 3600 % 24, s / 60 % 60, s % 60);
    else if (s >= 3600)
        snprintf(text, 24, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 24, "%u:%02u", s / 60, s % 60);
}

void tutti__bar_init(tutti__bar *bar, FILE *out)
{
    *bar = (tutti__bar){.out = out && can_redraw(fileno(out)) ? out : NULL};
    bar->colour = bar->out && tutti__wants_colour(fileno(out));
}

void tutti__bar_force(tutti__bar *bar, FILE *out)
{
    *bar = (tutti__bar){.out = out, .colour = tutti__wants_colour(fileno(out))};
}

bool tutti__bar_is_due(tutti__bar *bar)
{
    const uint64_t now = tutti__now_ns();

    if (now < bar->next_draw_ns)
        return false;
    bar->next_draw_ns = now + REDRAW_NS;
    return true;
}

void tutti__bar_text(char *text, size_t room, int width, const char *head, double fraction,
                     const char *const *fields, size_t n_fields)
{
    const int least = width >= ROOMY ? CELLS_LEAST + FRAME : 0;
    int used = (int)strlen(head), cells, full;
    size_t shown = 0, length;

    while (shown < n_fields && used + least + 2 + (int)strlen(fields[shown]) <= width)
        used += 2 + (int)strlen(fields[shown++]);
    cells = width - used - FRAME < CELLS ? width - used - FRAME : CELLS;
    fraction = fraction > 0 ? (fraction < 1 ? fraction : 1) : 0; /* NaN is 0 */
    full = (int)(cells * fraction);
    if (cells >= CELLS_LEAST)
        snprintf(text, room, "%s [%.*s%*s]", head, full,
                 "========================================", cells - full, "");
    else
        snprintf(text, room, "%.*s", width > 0 ? width : 0, head);
    length = strlen(text);
    for (size_t i = 0; i < shown && length < room; i++)
        length += (size_t)snprintf(text + length, room - length, "  %s", fields[i]);
}

/* If the window was made narrower, it has wrapped the line: moves the cursor up to where the line began. */
static void go_back(const tutti__bar *bar, int columns)
{
    const int rows = bar->drawn > 0 ? (bar->drawn - 1) / columns : 0;

    fputc('\r', bar->out);
    if (rows > 0)
        fprintf(bar->out, "\033[%dA\033[J", rows);
}

bool tutti__bar_draw(tutti__bar *bar, const char *head, double fraction, const char *const *fields,
                     size_t n_fields)
{
    char text[512];
    int columns, colour_to;

    if (!bar->out)
        return true;
    columns = tutti__columns(fileno(bar->out));
    /* The last column stays free: a cursor that has passed it wraps on some terminals. Room for ^C lets it be wiped out with
     * the bar. */
    tutti__bar_text(text, sizeof text, columns - 1 - ECHO, head, fraction, fields, n_fields);
    colour_to = (int)strcspn(text, "]") + 1;
    if (colour_to > (int)strlen(text)) /* no room for a bar */
        colour_to = (int)strcspn(text, " ");
    go_back(bar, columns);
    if (bar->colour)
        fprintf(bar->out, "\033[36m%.*s\033[0m%s\033[K", colour_to, text, text + colour_to);
    else
        fprintf(bar->out, "%s\033[K", text);
    bar->drawn = (int)strlen(text);
    return fflush(bar->out) == 0;
}

const char *tutti__wipe(int fd)
{
    return can_redraw(fd) ? "\r\033[K" : "";
}

bool tutti__bar_clear(tutti__bar *bar)
{
    if (!bar->out || bar->drawn == 0)
        return true;
    go_back(bar, tutti__columns(fileno(bar->out)));
    fputs("\033[K", bar->out);
    bar->drawn = 0;
    return fflush(bar->out) == 0;
}

void tutti__bar_count(tutti__bar *bar, const char *doing, const char *what, size_t done,
                      size_t total)
{
    const double fraction = total > 0 ? (double)done / (double)total : 1;
    char percent[16], count[96], left[24], left_field[40];
    const char *const fields[] = {percent, count, left_field};

    if (!bar->out)
        return;
    if (bar->begin_ns == 0)
        bar->begin_ns = tutti__now_ns();
    if (done >= total) {
        bar->begin_ns = 0;
        tutti__bar_clear(bar);
        return;
    }
    if (!tutti__bar_is_due(bar))
        return;
    tutti__time_text((double)(tutti__now_ns() - bar->begin_ns) * 1e-9 * (1 - fraction) / fraction,
                     left);
    snprintf(percent, sizeof percent, "%3.0f %%", 100 * fraction);
    snprintf(count, sizeof count, "%zu/%zu %s", done, total, what);
    snprintf(left_field, sizeof left_field, "%s left", left);
    tutti__bar_draw(bar, doing, fraction, fields, done > 0 ? 3 : 2);
}

void tutti__print_wrapped(FILE *out, const char *text, int column)
{
    int left = 100 - column;

    while (*text) {
        int n = (int)strlen(text);

        if (n > left)
            for (n = left; n > 0 && text[n] != ' '; n--)
                continue;
        if (n == 0)
            n = (int)strlen(text);
        fprintf(out, "%.*s\n", n, text);
        text += n;
        text += strspn(text, " ");
        if (*text)
            fprintf(out, "%*s", column, "");
    }
}

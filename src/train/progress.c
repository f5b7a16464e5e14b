/* progress.c -- the bar and the lines of rank 0.   SPDX-License-Identifier: MIT */
#include "train/progress.h"

#include "train/signals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_NS 100000000u

static bool wants_colour(bool terminal)
{
    const char *rule = tutti__env_text(TUTTI__ENV_COLOR), *no = getenv("NO_COLOR");

    if (strcmp(rule, "always") == 0)
        return true;
    return terminal && strcmp(rule, "never") != 0 && !(no && *no);
}

/* Open MPI gives its ranks terminals of its own, and carries what they write to whatever it was started on. */
static bool is_carried(void)
{
    return getenv("OMPI_COMM_WORLD_RANK") != NULL;
}

static bool is_terminal(FILE *out)
{
    return isatty(fileno(out)) && !is_carried();
}

/* Output that nobody reads any more asks the run to stop, as it would end any program. Where a terminal's other side was
 * mpirun, its end is EIO; a user's own terminal may close and the run go on. */
static void flush(tutti__progress *p)
{
    if (fflush(p->out) == EOF && (errno == EPIPE || (errno == EIO && is_carried())))
        tutti__signals_reader_gone();
}

void tutti__progress_init(tutti__progress *p, FILE *out)
{
    const char *term = getenv("TERM");

    *p = (tutti__progress){.out = out};
    if (!out)
        return;
    p->bar = is_terminal(out) && !(term && strcmp(term, "dumb") == 0);
    p->colour = wants_colour(p->bar);
    setvbuf(out, NULL, _IOFBF, 0); /* flush() sees each failure */
}

void tutti__progress_clear(tutti__progress *p)
{
    if (p->out && p->drawn) {
        fputs("\r\033[K", p->out);
        flush(p);
    }
    p->drawn = false;
}

void tutti__progress_say(tutti__progress *p, const char *format, ...)
{
    va_list args;

    if (!p->out)
        return;
    tutti__progress_clear(p);
    va_start(args, format);
    vfprintf(p->out, format, args);
    va_end(args);
    fputc('\n', p->out);
    flush(p);
}

static int screen_width(FILE *out)
{
    struct winsize size;

    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* "0:07", "12:34", "1:02:03" */
static void time_text(double seconds, char text[24])
{
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;

    if (s >= 3600)
        snprintf(text, 24, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 24, "%ld:%02ld", s / 60, s % 60);
}

static void draw_bar(tutti__progress *p, const tutti__progress_state *s)
{
    char head[64], tail[160], left[24], bar[64] = "";
    int width = screen_width(p->out) - 1, used, cells;

    time_text(s->seconds_left, left);
    snprintf(head, sizeof head, "epoch %lld/%lld", (long long)s->epoch, (long long)s->epochs);
    used = snprintf(tail, sizeof tail, "  step %llu/%llu  loss %.4f  %.0f images/s  %s left",
                    (unsigned long long)s->step, (unsigned long long)s->steps, s->loss,
                    s->images_per_s, left);
    cells = width - (int)strlen(head) - used - 3;
    if (cells > 40)
        cells = 40;
    if (cells >= 5) {
        int full = s->steps ? (int)((double)cells * (double)s->step / (double)s->steps) : 0;

        snprintf(bar, sizeof bar, " [%.*s%*s]", full,
                 "========================================", cells - full, "");
    }
    /* A window too narrow for all loses the end of the line rather than wrapping it. */
    if ((int)(strlen(head) + strlen(bar)) + used > width)
        tail[width > (int)strlen(head) ? width - (int)strlen(head) : 0] = '\0';
    fprintf(p->out, "\r%s%s%s%s%s\033[K", p->colour ? "\033[36m" : "", head, bar,
            p->colour ? "\033[0m" : "", tail);
    flush(p);
    p->drawn = true;
}

void tutti__progress_step(tutti__progress *p, const tutti__progress_state *s, bool logged)
{
    uint64_t now;

    if (!p->out || (!p->bar && !logged))
        return;
    if (!p->bar) {
        char left[24];

        time_text(s->seconds_left, left);
        tutti__progress_say(
            p, "epoch %lld/%lld  step %llu/%llu  loss %.4f  lr %.4g  %.0f images/s  %s left",
            (long long)s->epoch, (long long)s->epochs, (unsigned long long)s->step,
            (unsigned long long)s->steps, s->loss, s->lr, s->images_per_s, left);
        return;
    }
    now = tutti__now_ns();
    if (now < p->next_draw_ns && s->step < s->steps)
        return;
    p->next_draw_ns = now + REDRAW_NS;
    draw_bar(p, s);
}

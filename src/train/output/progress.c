/* progress.c -- the bar and the lines of rank 0.   SPDX-License-Identifier: MIT */
#include "train/output/progress.h"

#include "train/machine/signals.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define RATE_S 5.0 /* time constant of the average: after that long a weight is 1/e */

/* Output that no process reads any more asks the run to stop, as it would end any program. EIO means so only for mpirun's
 * pseudo-terminals: a user's own terminal may close, and the run continues. */
static void look_at_failure(void)
{
    if (errno == EPIPE || (errno == EIO && tutti__is_carried()))
        tutti__signals_reader_gone();
}

void tutti__progress_init(tutti__progress *p, FILE *out, const char *mode)
{
    if (strcmp(mode, "quiet") == 0)
        out = NULL;
    *p = (tutti__progress){.out = out};
    if (out && strcmp(mode, "bar") == 0)
        tutti__bar_force(&p->bar, out);
    else if (strcmp(mode, "auto") == 0)
        tutti__bar_init(&p->bar, out);
    if (out)
        setvbuf(out, NULL, _IOFBF, 0); /* so that flush() detects each failure */
}

void tutti__progress_clear(tutti__progress *p)
{
    if (!tutti__bar_clear(&p->bar))
        look_at_failure();
}

void tutti__progress_say(tutti__progress *p, const char *format, ...)
{
    va_list args;

    if (!p->out)
        return;
    tutti__progress_clear(p);
    va_start(args, format);
    tutti__vprint_line(p->out, format, args);
    va_end(args);
    if (fflush(p->out) == EOF)
        look_at_failure();
}

static double recent_rate(tutti__progress *p, const tutti__progress_state *s)
{
    const double kept = exp(-s->step_seconds / RATE_S);

    p->images = kept * p->images + s->step_images;
    p->seconds = kept * p->seconds + s->step_seconds;
    return p->seconds > 0 ? p->images / p->seconds : 0;
}

void tutti__progress_step(tutti__progress *p, const tutti__progress_state *s, bool logged)
{
    char head[64], loss[32], left[24], time[40], rate[32], step[64];
    const char *const fields[] = {loss, time, rate, step};
    const double images_per_s = recent_rate(p, s);

    if (!p->out || (!p->bar.out && !logged))
        return;
    tutti__time_text(s->seconds_left, left);
    if (!p->bar.out) {
        tutti__progress_say(
            p, "epoch %lld/%lld  step %llu/%llu  loss %.4f  lr %.4g  %.0f %s/s  %s left",
            (long long)s->epoch, (long long)s->epochs, (unsigned long long)s->step,
            (unsigned long long)s->steps, s->loss, s->lr, s->images_per_s, s->noun, left);
        return;
    }
    if (!tutti__bar_is_due(&p->bar) && s->step < s->steps)
        return;
    snprintf(head, sizeof head, "epoch %lld/%lld", (long long)s->epoch, (long long)s->epochs);
    snprintf(loss, sizeof loss, "loss %.4f", s->loss);
    snprintf(time, sizeof time, "%s left", left);
    snprintf(rate, sizeof rate, "%.0f %s/s", images_per_s, s->noun);
    snprintf(step, sizeof step, "step %llu/%llu", (unsigned long long)s->step,
             (unsigned long long)s->steps);
    if (!tutti__bar_draw(&p->bar, head, (double)s->step / (double)s->steps, fields,
                         TUTTI__COUNT_OF(fields)))
        look_at_failure();
}

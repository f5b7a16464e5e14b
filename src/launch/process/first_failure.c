/* first_failure.c -- which worker failed first, by the order of their ends and by what they say in their error files.
 * SPDX-License-Identifier: MIT */
#include "launch/process/first_failure.h"

tutti__failure tutti__failure_of(const tutti__worker *w)
{
    tutti__failure f = {.worker = w, .at_ns = w->running ? UINT64_MAX : w->ended_ns};

    f.has_reason = tutti__error_file_read(w, &f.reason);
    f.effect = !w->running && tutti__worker_exit_code(w) == 3;
    if (f.has_reason) {
        f.effect = f.effect || f.reason.effect;
        if (f.reason.at_ns < w->started_ns) /* files' times are those of the kernel's last tick */
            f.reason.at_ns = w->started_ns;
        f.at_ns = f.reason.at_ns < f.at_ns ? f.reason.at_ns : f.at_ns;
    }
    return f;
}

bool tutti__failure_is_before(const tutti__failure *a, const tutti__failure *b)
{
    return a->effect != b->effect ? b->effect : a->at_ns < b->at_ns;
}

const tutti__worker *tutti__first_failed(const tutti__worker *workers, int n)
{
    tutti__failure first = {.worker = NULL};

    for (int i = 0; i < n; i++) {
        tutti__failure f;

        if (!tutti__worker_failed(&workers[i]))
            continue;
        f = tutti__failure_of(&workers[i]);
        if (!first.worker || tutti__failure_is_before(&f, &first))
            first = f;
    }
    return first.worker;
}

bool tutti__cause_is_known(const tutti__worker *workers, int n)
{
    for (int i = 0; i < n; i++) {
        tutti__failure f = tutti__failure_of(&workers[i]);

        if ((tutti__worker_failed(f.worker) || f.has_reason) && !f.effect)
            return true;
    }
    return false;
}

/* agent_failure.c -- what an agent tells the coordinator about failures, and about leaving.   SPDX-License-Identifier: MIT */
#include "launch/agent/agent_parts.h"
#include "launch/process/error_files.h"
#include "launch/report/failure_report.h"

void tutti__agent_leave(tutti__agent *a, bool final, int code, const char *why)
{
    tutti__membership_send(
        &a->membership, tutti__message_pack_leave(&(tutti__message_leave){
                            .final = final, .signal = a->stop_signal, .code = code, .why = why}));
}

void tutti__agent_fail(tutti__agent *a, tutti_status status)
{
    tutti__console_say(&a->console, "%s", tutti_last_error());
    a->printed_why = true;
    a->code = tutti_status_exit_code(status);
    a->ended = true;
    tutti__agent_leave(a, true, a->code, tutti_last_error());
    tutti__workers_kill(&a->workers);
}

void tutti__agent_report_failure(tutti__agent *a)
{
    const tutti__worker *w = a->workers.blamed;
    tutti__reason reason;
    char why[512];

    if (!w || a->reported_failure)
        return;
    a->reported_failure = true;
    tutti__describe_failure(a->workers.cause ? a->workers.cause : w, why, sizeof why);
    tutti__membership_send(&a->membership,
                           tutti__message_pack_failed(&(tutti__message_failed){
                               .round = a->job->round.number,
                               .code = tutti__worker_exit_code(w),
                               .permanent = tutti__error_file_read(w, &reason) && reason.permanent,
                               .why = why}));
}

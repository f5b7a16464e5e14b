/* signals.h -- requests to stop a run: signals, and the end of its output's reader.   SPDX-License-Identifier: MIT
 *
 * Signal handlers are per process, so this state cannot be in the run. */
#ifndef TUTTI_TRAIN_SIGNALS_H
#define TUTTI_TRAIN_SIGNALS_H

/* Ignores SIGPIPE and SIGXFSZ, so that a closed reader and a file size limit become failed writes instead of ending the
 * process. Called at the start of a run. */
void tutti__signals_begin(void);
/* Restores the previous handlers when the last run of the process has ended. */
void tutti__signals_end(void);
/* From the first step on SIGINT, SIGTERM, SIGHUP and SIGUSR1 only ask to stop; before that there is nothing to save, and they
 * end the process as usual. Signals other than SIGINT that were ignored when the process started (nohup) stay ignored. said:
 * printed to standard error at the first signal, because the current step may take long; copied; "": nothing. */
void tutti__signals_watch(const char *said);
/* The first signal so far; 0: none. */
int tutti__signals_seen(void);
/* As if SIGPIPE had come. */
void tutti__signals_reader_gone(void);
/* Ends the process by SIGPIPE, as for any program whose output has no reader. */
void tutti__signals_end_by_pipe(void);

#endif

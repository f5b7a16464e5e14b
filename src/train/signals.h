/* signals.h -- what asks a run to stop: signals, and a reader of its output that has gone.   SPDX-License-Identifier: MIT
 *
 * A process has one disposition of signals, so this cannot live in the run. */
#ifndef TUTTI_TRAIN_SIGNALS_H
#define TUTTI_TRAIN_SIGNALS_H

/* A reader that has gone and a file that may not grow become failed writes, which would otherwise end the process. A run begins
 * with this. */
void tutti__signals_begin(void);
/* What all these signals did before is so again, once the last run of the process has ended. */
void tutti__signals_end(void);
/* From the first step on SIGINT, SIGTERM, SIGHUP and SIGUSR1 only ask; before, there is nothing to save, and they end the
 * process as usual. One but SIGINT that was ignored when the process began (nohup) stays so.
 * said: what goes to standard error at once when the first comes, for the step in which it comes may be long; copied;
 * "": nothing. */
void tutti__signals_watch(const char *said);
/* The first that came; 0: none. */
int tutti__signals_seen(void);
/* As if SIGPIPE had come. */
void tutti__signals_reader_gone(void);
/* Ends the process by SIGPIPE, as any program whose output nobody reads. */
void tutti__signals_end_by_pipe(void);

#endif

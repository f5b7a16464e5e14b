/* agreement.h -- makes ranks fail together, with one message.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_AGREEMENT_H
#define TUTTI_TRAIN_AGREEMENT_H

#include "train/config/config.h"
#include <tutti/group.h>

/* Collective: every rank passes the status of its local work. If any failed, all return the status and message of the first
 * rank that did. The failure is printed once, by that rank, with its rank number unless all ranks have the same failure. A rank
 * whose group is dead returns its own status. */
tutti_status tutti__fail_together(tutti_group *group, tutti_status status);
/* The same for runs that survive the loss of a group: that loss is returned and not printed. */
tutti_status tutti__fail_together_or_lose(tutti_group *group, tutti_status status);
/* Prints the loss of a group, if it is one, and returns the status. */
tutti_status tutti__report_loss(tutti_group *group, tutti_status status);
/* Whether it is a failure of the group (peer, time limit), which is the same on all ranks. */
bool tutti__is_lost(tutti_status status);
/* For a failure in the middle of work that needs all ranks: if it is this rank's own, ends the group with the thread's message,
 * which the others receive; prints it. Returns status; the message is kept. */
tutti_status tutti__fail_alone(tutti_group *group, tutti_status status);
/* The prefix of this thread's messages, borrowed; NULL or not set: "tutti train". */
void tutti__report_as(const char *command);
/* Prints the thread's message as a usage error, once per host, since all its ranks have the same arguments. Returns 2; for MEMORY,
 * which may be this rank's alone, its exit code. */
int tutti__report_usage(const char *command, tutti_status status);
/* Prints the thread's last message, with this rank in front unless a rank is there already. */
void tutti__report_error(int rank, int size);
/* For a run that has no memory to begin, and no group yet: prints the thread's message, and ends tutti__report_as. Returns MEMORY. */
tutti_status tutti__report_no_memory(void);
/* The keys that must be the same, each as "NAME: VALUE;". To be freed; NULL: no memory. */
char *tutti__config_settings(const tutti__train_config *config);
/* Collective: MISMATCH, with the key, on ranks whose configuration differs from rank 0's in a key that must be the same. */
tutti_status tutti__same_config(tutti_group *group, const tutti__train_config *config);

#endif

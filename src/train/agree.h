/* agree.h -- ranks fail together, and say so once.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_TRAIN_AGREE_H
#define TUTTI_TRAIN_AGREE_H

#include "train/config.h"
#include <tutti/group.h>

/* Collective: every rank brings the status of what it has just done alone. If one failed, all return the status of the
 * first that did, with its message. A failure is printed once: by the first rank that has it, which names itself if it is
 * not everybody's. A rank whose group is dead brings nothing and returns its own status. */
tutti_status tutti__fail_together(tutti_group *group, tutti_status status);
/* The same where a group may be lost and another take its place: that is returned, and not said. */
tutti_status tutti__fail_together_or_lose(tutti_group *group, tutti_status status);
/* Says it, if it is one, and returns the status. */
tutti_status tutti__say_loss(tutti_group *group, tutti_status status);
/* A failure of the group (peers, time limits), in which ranks do not differ from each other. */
bool tutti__is_lost(tutti_status status);
/* Of a failure in the middle of work that needs all ranks: one of this rank's own ends the group, with the thread's message, which
 * the others get; both are said. Returns status, the message kept. */
tutti_status tutti__fail_alone(tutti_group *group, tutti_status status);
/* What messages of this thread begin with, borrowed; NULL, and without it: "tutti train". */
void tutti__say_as(const char *command);
/* Says the thread's message as a usage error, once a host: all its ranks have the same arguments. 2; with MEMORY, which is
 * this rank's alone, its exit code. */
int tutti__say_usage(const char *command, tutti_status status);
/* Prints the thread's last message as this rank's. */
void tutti__say_error(int rank, int size);
/* Collective: MISMATCH, with the key, on ranks whose configuration is not rank 0's in what must be the same. */
tutti_status tutti__same_config(tutti_group *group, const tutti__train_config *config);

#endif

/* process.h -- identifies this process and its machine.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_BOOTSTRAP_PROCESS_H
#define TUTTI_COMM_BOOTSTRAP_PROCESS_H

#include "base/base.h"

/* Text that no other process has, now or later. */
void tutti__process_text(char *text, size_t capacity);
/* Equal for processes that can reach each other's abstract sockets: same boot, network namespace and user. */
uint64_t tutti__machine_id(void);
/* Reads memory of another process by cross-memory attach (process_vm_readv). 0 or an errno. */
int tutti__process_read(int64_t pid, void *to, uint64_t at, size_t bytes);

#endif

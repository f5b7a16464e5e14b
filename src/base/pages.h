/* pages.h -- memory by pages that waits to serve again (tutti__memory_back and _give_back, base.h).   SPDX-License-Identifier: MIT */
#ifndef TUTTI_BASE_PAGES_H
#define TUTTI_BASE_PAGES_H

/* What was given back goes to the system, before something that is no reserved memory needs as much. Any thread. */
void tutti__memory_trim(void);

#endif

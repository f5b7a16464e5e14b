/* output.h -- whether a command may write a file there.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_CHECKPOINT_OUTPUT_H
#define TUTTI_CHECKPOINT_OUTPUT_H

#include "base/base.h"

/* Before any work: ARG if the path, of this flag (or argument), is empty, a folder, in a checkpoint, or a file of a run folder
 * from which the run resumes or is read. "-" is allowed. A folder that is not there is left to the writer: a rank on another
 * machine may not have it. */
tutti_status tutti__output_check(const char *flag, const char *path);
/* On the rank that will write it, before the work: whether a file can be made there. What is there stays. "-", pipes and devices
 * are not tried. */
tutti_status tutti__output_try(const char *path);

#endif

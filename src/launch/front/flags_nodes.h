/* flags_nodes.h -- the flags about nodes: --nnodes, --rdzv-..., --master-..., --node-rank, --local-addr, --standalone.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_FLAGS_NODES_H
#define TUTTI_LAUNCH_FLAGS_NODES_H

#include "launch/front/flag_text.h"
#include "launch/job/launch_job.h"

/* What the options point to. */
typedef struct tutti__node_names {
    char id[64];                      /* of a Slurm step */
    char host[256], master_addr[256]; /* without the brackets of IPv6 */
} tutti__node_names;

tutti_status tutti__flags_read_nodes(const tutti__flag_texts *texts, tutti__launch_opts *opts,
                                     tutti__node_names *names);

#endif

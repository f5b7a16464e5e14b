/* rendezvous.h -- the workers' rendezvous: a port, a secret, a store.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_RENDEZVOUS_H
#define TUTTI_LAUNCH_RENDEZVOUS_H

#include "launch/job/launch_job.h"

/* A port for MASTER_PORT, either --master-port or a free one; a random secret; the store, which sets
 * store_address. */
tutti_status tutti__job_choose_port(const tutti__job *job, int *port_p);
tutti_status tutti__job_make_secret(tutti__job *job);
tutti_status tutti__job_host_store(tutti__job *job, const char *bind_to, const char *address);

#endif

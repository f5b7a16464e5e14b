/* agent.h -- the process that runs a node's part of a job.
 * SPDX-License-Identifier: MIT
 *
 * tutti__launch forks an agent, which forks the workers; both are subreapers, so that orphaned processes become their children
 * and are found. If the agent is killed, the front ends the remaining processes. If the front is killed, the agent sees its
 * control pipe close and ends everything. */
#ifndef TUTTI_LAUNCH_AGENT_H
#define TUTTI_LAUNCH_AGENT_H

#include "launch/job/launch_job.h"

/* Runs the job; returns the exit code. Signals arrive as bytes from `control`; its end means that the front has ended.
 * Signals of job->signals and SIGCHLD are blocked. */
int tutti__agent_run(tutti__job *job, int control);

#endif

/* flight_report.h -- what the flight recorder reports, and its keys in the launcher's store.   SPDX-License-Identifier: MIT
 *
 * A rank whose group has died stores one report, JSON, under the next number:
 *
 *     { "version": 1, "group": "world", "id": "9f..", "size": 4,
 *       "rank": 0, "world_rank": 0, "host": "h", "pid": 4711,
 *       "time": seconds since 1970, "status": "ERR_PEER", "culprit": 2 (-1: none), "cause": "rank 2 (...) was lost: ...",
 *       "calls": [{ "sequence": 41, "op": "all_reduce", "dtype": "F32", "count": 1000, "bytes": 4000,
 *                   "text": "all_reduce #41 (F32 x 1000, sum)", "state": "done", "began": s, "ended": s },
 *                 { ... "state": "running", "began": s }, { ... "state": "queued" }],       oldest first
 *       "members": [0, 1, 2, 3],      for each rank: its rank in the job
 *       "seen": [42, 42, 41, 42] }    for each rank: its last call known here, -1: none */
#ifndef TUTTI_COMM_ENGINE_FLIGHT_REPORT_H
#define TUTTI_COMM_ENGINE_FLIGHT_REPORT_H

/* printf formats: the attempt, and the report's number from 1; the count is a counter. */
#define TUTTI__FLIGHT_COUNT  "flight/%d/count"
#define TUTTI__FLIGHT_REPORT "flight/%d/report/%lld"

enum {
    TUTTI__FLIGHT_VERSION = 1,
    TUTTI__FLIGHT_CALLS = 128,   /* reported at most, of those recorded */
    TUTTI__FLIGHT_REPORTS = 4096 /* kept at most by a store */
};

#endif

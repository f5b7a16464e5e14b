/* diff.h -- `tutti diff`: two runs read, compared step by step, and the first difference with its cause.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_CLI_DIFF_H
#define TUTTI_CLI_DIFF_H

#include "base/base.h"
#include <jansson.h>
#include <stdio.h>

/* What a step computes, in order. */
typedef enum tutti__diff_phase {
#define PHASE(id, kind, words, word) TUTTI__DIFF_##id,
#include "cli/diff/phases.def"
#undef PHASE
    TUTTI__DIFF_PHASES
} tutti__diff_phase;

const char *tutti__diff_kind(tutti__diff_phase phase); /* in the record: "gradient" */

/* ---- The record of a run: digests/rank-*.jsonl ------------------------------------------------------------- */

/* Where a line is; a step has one a rank and shard, and those of `initial` entries come after the step's own. */
typedef struct tutti__diff_line {
    uint64_t step;
    bool initial;
    int rank, shard; /* shard -1: of the step itself */
    int file;        /* digests/rank-FILE.jsonl */
    uint64_t offset, hash;
    size_t bytes, entries;
    bool not_finite; /* an entry's norm is NaN or infinite */
} tutti__diff_line;

typedef struct tutti__diff_record {
    tutti__diff_line *lines; /* in order of step, initial, shard, rank; one for each */
    size_t n, capacity;
    int files;      /* 0: there is no record */
    json_t *header; /* the last one of the lowest rank */
} tutti__diff_record;

typedef struct tutti__diff_entry {
    tutti__diff_phase phase;
    int micro;        /* batch of an accumulation, from 0 */
    const char *name; /* borrowed from the line's JSON */
    const char *digest;
    double norm, dot;
    size_t order; /* of execution */
    size_t nth;   /* of the entries of the step with this phase and name */
} tutti__diff_entry;

/* One line, in memory. Entries are in order of phase, name, nth. */
typedef struct tutti__diff_step {
    json_t *json;
    tutti__diff_entry *entries;
    size_t n;
    bool has_rates; /* a parameter without an entry of its own learning rate has `rate` */
    double rate;
} tutti__diff_step;

/* ---- Runs ---------------------------------------------------------------------------------------------------- */

typedef struct tutti__diff_run {
    const char *path;
    json_t *config, *summary; /* NULL: missing */
    tutti__diff_record record;
    uint64_t *checkpoints; /* steps, latest first */
    size_t n_checkpoints;
    json_t *metrics; /* by step, the figures of its lines */
} tutti__diff_run;

/* Reads what the folder has; the record's lines are found, not loaded. Says on standard error what is missing or damaged and
 * was left out. Errors: NOT_FOUND, no such folder, or no run in it; FORMAT, a record of another format; MEMORY. */
tutti_status tutti__diff_read(tutti__diff_run *run, const char *path);
void tutti__diff_free(tutti__diff_run *run);
tutti_status tutti__diff_record_read(tutti__diff_record *record, const char *run_dir);
void tutti__diff_record_free(tutti__diff_record *record);
/* The line's entries. IO, FORMAT if the file has changed since. */
tutti_status tutti__diff_load(tutti__diff_step *step, const char *run_dir,
                              const tutti__diff_line *line);
void tutti__diff_unload(tutti__diff_step *step);
/* A key of the record's header, as text; "" if there is none. */
const char *tutti__diff_header(const tutti__diff_run *run, const char *key);
/* Whether its summary.json says so; in the step after the last one that it counts. */
bool tutti__diff_has_failed(const tutti__diff_run *run);
/* After the last getline, which returned `got`: whether the file has ended there. MEMORY: a line does not fit; IO. */
tutti_status tutti__diff_whole(FILE *file, ssize_t got, const char *path);
/* A line of standard error: "tutti diff: note: ...". */
void tutti__diff_note(const char *format, ...) TUTTI_PRINTF(1, 2);

/* ---- Configurations ------------------------------------------------------------------------------------------ */

typedef struct tutti__diff_key {
    char name[64];
    char a[120], b[120]; /* values, as JSON; "": it has none */
    unsigned phases; /* a bit for each in which it may act first; 0: the same bits with any value */
} tutti__diff_key;

/* The keys of config.json whose values differ, in its order; free() them. */
tutti_status tutti__diff_keys(tutti__diff_key **keys_p, size_t *n_p, const tutti__diff_run *a,
                              const tutti__diff_run *b);

/* ---- The comparison ------------------------------------------------------------------------------------------ */

typedef enum tutti__diff_source {
    TUTTI__DIFF_EQUAL,  /* in what both have */
    TUTTI__DIFF_RECORD, /* by entries of the records */
    TUTTI__DIFF_RANKS, /* between ranks of one run, by its record; b is the rank that left the others */
    TUTTI__DIFF_CHECKPOINT, /* by tensors */
    TUTTI__DIFF_METRICS,    /* by a figure of metrics.jsonl */
    TUTTI__DIFF_SUMMARY     /* by the digest of the final parameters */
} tutti__diff_source;

typedef struct tutti__diff_side {
    const tutti__diff_run *run;
    int rank;        /* -1: none */
    char digest[40]; /* "": none; of metrics: the figure */
    double norm, dot;
    bool absent; /* this side has no such entry */
} tutti__diff_side;

/* The first difference. */
typedef struct tutti__diff_finding {
    tutti__diff_source source;
    uint64_t step;
    int shard; /* -1: none */
    tutti__diff_phase phase;
    int micro;
    size_t order;
    char name[600]; /* of tensor, module, figure */
    tutti__diff_side a, b;
    char detail[400];    /* of tensors: how many elements, the first one */
    bool has_gap;        /* steps after `equal_step` are not recorded in both, and may differ */
    bool knows_equal;    /* `equal_step` is one */
    uint64_t equal_step; /* the last one before it that both have, and in which they are equal */
    /* entries of this step, and its lines (ranks, or shards) in which there are different ones */
    size_t compared[TUTTI__DIFF_PHASES], different[TUTTI__DIFF_PHASES];
    size_t lines, lines_with[TUTTI__DIFF_PHASES];
    double relative[TUTTI__DIFF_PHASES]; /* the largest difference of norm and projection */
} tutti__diff_finding;

/* What was compared of records. */
typedef struct tutti__diff_extent {
    uint64_t steps, entries;
    size_t ranks, shards; /* that a step has, at most */
} tutti__diff_extent;

typedef struct tutti__diff_result {
    tutti__diff_run run[2];
    size_t runs; /* 1: only its ranks are compared */
    double tolerance;
    tutti__diff_key *keys;
    size_t n_keys;
    tutti__diff_finding first;    /* of the two runs */
    tutti__diff_finding ranks[2]; /* between ranks of each */
    tutti__diff_finding nan[2],
        infinite[2];           /* of each, where it has such values first; source EQUAL: nowhere */
    tutti__diff_extent extent; /* of the two runs */
    tutti__diff_extent ranks_extent[2];
    uint64_t checkpoints, tensors, lines; /* compared, of checkpoints and of metrics.jsonl */
    bool same_end; /* both have ended at one step, with equal final parameters */
} tutti__diff_result;

/* By their records: fills first, extent. */
tutti_status tutti__diff_records(tutti__diff_result *result);
/* Between the ranks of run i: fills its ranks, ranks_extent. */
tutti_status tutti__diff_ranks(tutti__diff_result *result, size_t i);
/* Fills nan and infinite of run i. Infinite values of buffers, and of weights before a step, do not count: a mask may have them. Not those of gradients with a loss
 * scale, which overflow now and then. */
tutti_status tutti__diff_not_finite(tutti__diff_result *result, size_t i);
/* What the records leave open: by checkpoints of the same steps, metrics and results, after the last step that is known to be equal. */
tutti_status tutti__diff_files(tutti__diff_result *result);
bool tutti__diff_has_checkpoint(const tutti__diff_run *run, uint64_t step);
/* The path of STEM (model, optimizer) of its checkpoint of this step, a file or the index of its parts. False: it has neither. */
bool tutti__diff_find_checkpoint(const tutti__diff_run *run, uint64_t step, const char *stem,
                                 char path[4096]);
/* Tensors of the checkpoints that both runs have of this step. finding: unchanged if they are equal; *tensors_p grows. gap: "", or why
 * some of it could not be compared: a file that is missing or damaged. */
tutti_status tutti__diff_checkpoint(const tutti__diff_run run[2], uint64_t step,
                                    tutti__diff_finding *finding, uint64_t *tensors_p,
                                    char gap[1024]);
/* Of two weight files: how many elements of how many tensors differ, and the first; *equal_p. `only`: this tensor alone; NULL: all. */
tutti_status tutti__diff_tensors(const char *a, const char *b, const char *only, bool *equal_p,
                                 char name[600], char detail[400], uint64_t *tensors_p);

/* ---- Words --------------------------------------------------------------------------------------------------- */

/* The cause, a sentence without its full stop, as far as the files tell it. */
void tutti__diff_cause(const tutti__diff_result *result, char *text, size_t size);
/* The verdict: "equal: ..." or "different: ...". */
void tutti__diff_verdict(const tutti__diff_result *result, char *text, size_t size);
/* "the result of module fc1"; and where: "step 3, rank 1: the result of module fc1". */
void tutti__diff_what(const tutti__diff_finding *finding, char *text, size_t size);
void tutti__diff_place(const tutti__diff_finding *finding, char *text, size_t size);
void tutti__diff_print(FILE *out, const tutti__diff_result *result);
json_t *tutti__diff_json(const tutti__diff_result *result);
bool tutti__diff_is_equal(const tutti__diff_result *result);

/* ---- Again --------------------------------------------------------------------------------------------------- */

/* Runs both again with everything recorded, from the last checkpoint at which both are equal, or from the start, until the step in
 * which `result` knows them to differ (0: to the end). folder: where their run folders a and b are made. Says on standard error
 * what it does. Errors: ARG, a run that cannot be run again; those of the runs, with the last lines of their output. */
tutti_status tutti__diff_rerun(const tutti__diff_result *result, const char *folder);

#endif

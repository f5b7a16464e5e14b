/* base.h -- what every layer uses: errors, logging, arenas, random numbers, hashes, environment, the OS.
 * SPDX-License-Identifier: MIT
 *
 * Internal names are tutti__x; file-static names have no prefix. Depends on libc and xxHash only. */
#ifndef TUTTI_BASE_H
#define TUTTI_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <tutti/status.h>

#define TUTTI__COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* For functions with a hot loop: compiles them for several instruction sets, of which the dynamic loader picks the best that
 * the CPU has. The bits are the same in each (no contraction to fused multiply-add, no reassociation). Off under sanitizers,
 * whose run-time is not initialised yet when the loader picks. They are static, and no two in src/ have one name: clang 14 gives their
 * resolvers external names, and others' calls none. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TUTTI__ASAN
#endif
#if __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TUTTI__SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(TUTTI__ASAN)
#define TUTTI__ASAN
#endif
#if defined(TUTTI__ASAN) || defined(__SANITIZE_THREAD__)
#define TUTTI__SANITIZED
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute) &&                       \
    !defined(TUTTI__SANITIZED)
#if __has_attribute(target_clones)
#define TUTTI__CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef TUTTI__CLONES
#define TUTTI__CLONES
#endif

/* ---- Status ------------------------------------------------------------------------------------ */

/* Sets the thread's message and returns `status`. For the function that detects the error: the message says
 * what was wrong, where, what was expected, and the remedy. */
tutti_status tutti__fail(tutti_status status, const char *format, ...) TUTTI_PRINTF(2, 3);
tutti_status tutti__vfail(tutti_status status, const char *format, va_list args);
/* The same, ending in ": " and strerror(error_number); the status is DISK for ENOSPC and EDQUOT, MEMORY for ENOMEM and
 * for limits of descriptors (EMFILE, ENFILE) and threads (EAGAIN), which the message names, NOT_FOUND for ENOENT, else IO. */
tutti_status tutti__fail_errno(int error_number, const char *format, ...) TUTTI_PRINTF(2, 3);
/* Restores a saved message (another thread's, or an earlier one's). */
tutti_status tutti__fail_again(tutti_status status, const char *message);
/* The status with which the thread's message was set or restored; OK before any. */
tutti_status tutti__last_status(void);

/* Writes why this process is about to fail to the file TORCHELASTIC_ERROR_FILE, in torchrun's format, for the launcher; does
 * nothing if that is not set. `own`: the cause is in this process, not in a peer. A later message replaces an earlier one,
 * but neither a peer's failure one of this process, nor a message that quotes a peer's failure that failure itself.
 * The thread's message and its status are unchanged. */
void tutti__error_file_write(bool own, const char *message);
/* The same for a refused command line or environment, with which each round would fail: the launcher makes no further one. */
void tutti__error_file_write_usage(bool own, const char *message);
/* This process has recovered from a peer's failure: removes the file if it reports one. */
void tutti__error_file_forget(void);

/* For public functions: ARG, "tutti_optim_step: optim is NULL". */
#define TUTTI__NOT_NULL(p)                                                                         \
    ((p) ? TUTTI_OK : tutti__fail(TUTTI_ERR_ARG, "%s: %s is NULL", __func__, #p))

/* ---- Options: docs/design/api.md has the rule ------------------------------------------------------ */

/* The value of an option: 0 means the default, TUTTI_ZERO zero. */
static inline double tutti__or(double value, double by_default)
{
    if (value == (double)TUTTI_ZERO)
        return 0;
    return value == 0 ? by_default : value;
}
/* ARG, naming the struct, if its reserved fields are not all zero: they may be options of a later version. */
#define TUTTI__CHECK_RESERVED(type, p)                                                             \
    tutti__check_reserved(#type, (p), offsetof(type, reserved),                                    \
                          TUTTI__COUNT_OF(((const type *)0)->reserved))
/* p NULL: OK */
tutti_status tutti__check_reserved(const char *type, const void *p, size_t offset, size_t n);

/* ---- Log ---------------------------------------------------------------------------------------------- */

/* Refuses a TUTTI_LOG with a rule that is neither LEVEL nor AREA:LEVEL. */
tutti_status tutti__log_check(void);
/* The rank in log lines of this thread; -1: none. Threads that work for a group set it. */
void tutti__log_set_rank(int rank);
int tutti__log_rank(void);

/* ---- Arena: a bump allocator that stops allocating -------------------------------------------------
 * It grows by whole blocks and reuses them in the next rounds: from the second equal round on, nothing is allocated. If a later
 * round needed more, tutti__arena_reset joins the blocks into one. Memory is 64-byte aligned and not zeroed. */
typedef struct tutti__arena_block tutti__arena_block;
typedef struct tutti__arena {
    /* Where blocks come from; NULL: the heap. get: NULL with the message set. */
    void *(*get)(void *self, size_t bytes);
    void (*put)(void *self, void *p);
    void *self;
    tutti__arena_block *blocks, *last; /* oldest first */
    tutti__arena_block *in_use;        /* NULL: none yet in this round */
    size_t used;                       /* bytes handed out since the last reset, rounded up to 64 */
    size_t most;          /* bytes of its blocks that rounds have used so far, at one time */
    size_t capacity;      /* bytes in all blocks */
    uint64_t allocations; /* blocks ever allocated */
    uint64_t settled;     /* `allocations` at the start of this round */
} tutti__arena;

void *tutti__arena_alloc(tutti__arena *arena, size_t bytes); /* NULL: out of memory, message set */
void tutti__arena_reset(tutti__arena *arena);
void tutti__arena_destroy(tutti__arena *arena);

/* ---- Random numbers ------------------------------------------------------------------------------ */

/* Philox4x32-10 (Salmon et al., SC'11): four words that are a function of key and counter only. */
typedef struct tutti__philox_counter {
    uint32_t v[4];
} tutti__philox_counter;
void tutti__philox(uint64_t key, tutti__philox_counter counter, uint32_t out[4]);
/* n words of consecutive blocks, word `place` of the counter advances by one per block. */
void tutti__philox_fill(uint64_t key, tutti__philox_counter counter, int place, uint32_t *out,
                        size_t n);
/* n normal numbers of mean 0 (Box and Muller) from 4 n words: each uses the first two of its four. */
void tutti__normal_fill(const uint32_t *words, double deviation, float *values, size_t n);
/* [0, 1) with 24 bits */
static inline float tutti__unit_float(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* MT19937 as torch's CPU generator uses it: init_genrand(seed), 32-bit outputs. */
typedef struct tutti__mt19937 {
    uint32_t state[624];
    int next;
} tutti__mt19937;
void tutti__mt19937_seed(tutti__mt19937 *mt, uint64_t seed); /* low 32 bits, as torch */
uint32_t tutti__mt19937_next(tutti__mt19937 *mt);

/* ---- Hashes ---------------------------------------------------------------------------------------- */

uint64_t tutti__hash64(const void *p, size_t bytes); /* XXH3-64 */
typedef struct tutti__hash128_state tutti__hash128_state;
tutti__hash128_state *tutti__hash128_new(void); /* NULL: out of memory */
void tutti__hash128_add(tutti__hash128_state *state, const void *p, size_t bytes);
/* 32 hexadecimal digits, high word first, and a NUL; frees the state. */
void tutti__hash128_end(tutti__hash128_state *state, char digits[33]);

/* ---- Environment: every variable that Tutti reads for itself is a row of env.def ------------------ */

typedef enum tutti__env_id {
#define ENV(name, type, value, help) TUTTI__ENV_##name,
#include "base/env.def"
#undef ENV
    TUTTI__N_ENV
} tutti__env_id;

typedef struct tutti__env_row {
    const char *name, *type, *value, *help; /* value: the default, as text */
} tutti__env_row;
extern const tutti__env_row tutti__env_table[TUTTI__N_ENV];
/* Beginnings of names that are never Tutti's own: it neither reads such variables nor warns of them. */
typedef struct tutti__env_prefix {
    const char *prefix, *owner;
} tutti__env_prefix;
enum { TUTTI__N_ENV_PREFIXES = 3 };
extern const tutti__env_prefix tutti__env_prefixes[TUTTI__N_ENV_PREFIXES];

/* Refuses an unknown value of TUTTI_COLOR, and warns of unknown variables that begin with TUTTI_. For the command,
 * once per job: a library should not complain about its program's environment. */
tutti_status tutti__env_check(void);
const char *tutti__env_text(tutti__env_id id); /* the default if unset or empty */
/* ARG, naming the variable and its text, if it is set but not an integer in [low, high]. */
tutti_status tutti__env_int(tutti__env_id id, long low, long high, long *value_p);
/* *choice_p: index among the n names; else tutti__fail_choice. */
tutti_status tutti__env_choice(tutti__env_id id, const char *const *names, size_t n,
                               size_t *choice_p);

/* Whole text as an integer; false for anything else. */
bool tutti__parse_int64(const char *text, int64_t *value_p);
/* An environment variable's: ARG, naming it and its text, if that is not an integer in [low, high]. */
tutti_status tutti__parse_variable(const char *name, const char *text, long low, long high,
                                   long *value_p);
bool tutti__parse_double(const char *text, double *value_p);
/* Bytes from 1 to 1024G, with K, M or G of 1024: "25M", of `length` characters. */
bool tutti__parse_size(const char *text, size_t length, int64_t *bytes_p);
bool tutti__ends_in(const char *text, const char *end);
/* Whether one of these arguments is --help or -h. */
bool tutti__wants_help(int argc, char *const *argv);
/* The end of a plural: printf("%d rank%s", n, tutti__s(n)). */
static inline const char *tutti__s(uint64_t n)
{
    return n == 1 ? "" : "s";
}
/* The first candidate that begins with `text`, of 3 letters or more, else the nearest (edit distance); '-' equals '_'.
 * NULL: none is near. */
const char *tutti__nearest(const char *text, const char *const *candidates, size_t n);
/* Whether `word` is one of the words of a list, which spaces divide. */
bool tutti__word_in(const char *list, const char *word);
/* "a b c" as "a, b or c", with " or " as `last`. Returns text. */
const char *tutti__words_text(const char *list, const char *last, char *text, size_t size);
/* "a, b or c", and " (did you mean b?)" if text is near b; in out[size], which it returns. */
const char *tutti__choice_text(const char *text, const char *const *names, size_t n, char *out,
                               size_t size);
/* ARG: `what` is this text, and expected is one of the names. */
tutti_status tutti__fail_choice(const char *what, const char *text, const char *const *names,
                                size_t n);

/* ---- What bits depend on ------------------------------------------------------------------------------- */

/* "0.1.0, gcc 12.2, onednn 2.6.3 avx2": the library, its compiler, and the kernels of all contexts so far. Processes with equal
 * texts compute the same bits from the same numbers; TUTTI_CPU_ISA and TUTTI_KERNELS can make them equal. Thread-local, valid
 * until the next call. */
#define TUTTI__BUILD_TEXT 128
const char *tutti__build_text(void);
/* Adds kernels that compute other bits than the rest, now in use. `part` has no commas. */
void tutti__build_uses(const char *part);

/* ---- /proc and /sys ------------------------------------------------------------------------------ */

/* The file's first bytes, without the last newline. False and "" if it cannot be read. */
bool tutti__slurp(const char *path, char *text, size_t bytes);
/* False if it is not one integer. */
bool tutti__slurp_int64(const char *path, int64_t *value_p);
/* The same for all processes of one machine, until it boots again. False and "" without /proc. */
bool tutti__boot_text(char text[64]);
/* A hash of it. Without /proc: unique to this call. */
uint64_t tutti__boot_id(void);
/* The path of this process's executable. False and "" without /proc. */
bool tutti__executable(char *path, size_t bytes);
/* A figure of /proc/meminfo, "MemTotal", in bytes; -1: there is none. */
int64_t tutti__meminfo(const char *name);
/* From /proc/PID/stat of a process, or /proc/PID/task/TID/stat of a thread. */
typedef struct tutti__proc_stat {
    char state; /* 'R', 'T', ... */
    int parent, group;
    uint64_t start; /* tells processes apart that have had the same pid */
} tutti__proc_stat;
/* False: it has ended, or cannot be read. */
bool tutti__proc_stat_read(tutti__proc_stat *stat, const char *path);

/* ---- OS -------------------------------------------------------------------------------------------- */

uint64_t tutti__now_ns(void);     /* monotonic */
double tutti__now_ms(void);       /* monotonic */
uint64_t tutti__wall_ns(void);    /* since 1970, as the host's clock is set */
double tutti__wall_seconds(void); /* the same */
double tutti__cpu_seconds(void);  /* of all threads of this process */
/* A time since 1970 in the local zone, by strftime's format; "" if that fails. */
void tutti__local_time(double seconds, const char *format, char text[64]);
/* The same clock at the kernel's last tick, up to TUTTI__TICK_MS ago; four times as fast. Add that to a deadline computed from
 * it. */
enum { TUTTI__TICK_MS = 10 };
uint64_t tutti__now_coarse_ns(void);
/* Cores that this process may use, by affinity and cgroup quota; at least 1. Ignores OpenMP's binding of the calling thread. */
int tutti__cores(void);
/* Where the calling thread runs, for messages about faults: "host a, core 3". */
void tutti__host_and_core(char *text, size_t bytes);
/* In cores: the smallest CPU quota of this process's cgroups. 0: none. */
double tutti__cpu_quota(void);
/* For this process's cgroup and those above it, nearest first: calls visit with the text of that file, version 2's or
 * version 1's; of several files, whose names spaces separate, with their texts, separated likewise. */
void tutti__visit_cgroups(const char *file, const char *controller, const char *file_v1,
                          void (*visit)(void *user, const char *text), void *user);
/* The smallest limit of those groups, and what that group uses of it; files: "LIMIT'S USAGE'S", as above. False: there is none. */
bool tutti__cgroup_room(const char *files, const char *controller, const char *files_v1,
                        int64_t *limit_p, int64_t *used_p);
/* Of memory, in bytes. */
bool tutti__cgroup_memory(int64_t *limit_p, int64_t *used_p);
/* Whether the machine has that much memory, as far as is known. A memfd may be made larger; a process that then writes to it is
 * killed. */
bool tutti__fits_memory(size_t bytes);
/* Addresses without memory: access ends the process. NULL with the message set. `back` gives memory to the pages in which the bytes
 * are (MEMORY), `give_back` takes it from those that are wholly in them. Unless it stays, both are of the same ranges, and memory that was
 * given back serves the next that is backed, in place of new one, with whatever is in it; it goes back to the system with the
 * last reservation, or, of less than a large page, at once. Any thread. */
void *tutti__memory_reserve(size_t bytes);
void tutti__memory_unreserve(void *p, size_t bytes);
tutti_status tutti__memory_back(void *p, size_t bytes, bool stays);
/* The same, but each page only when it is first used. */
tutti_status tutti__memory_open(void *p, size_t bytes);
/* Bytes that are backed and given back together may be large pages. */
void tutti__memory_together(void *p, size_t bytes);
void tutti__memory_give_back(void *p, size_t bytes);
/* As give_back, but then they are zeros, which become memory when they are used without `back`. Of reserved memory. */
void tutti__memory_discard(void *p, size_t bytes);
void *tutti__alloc(size_t bytes); /* 64-byte aligned, zeroed; free with free(). NULL: message set */
/* The same, not zeroed and without a message. Large memory asks for huge pages: fewer TLB misses. */
void *tutti__alloc_unset(size_t bytes);
/* What of that much memory becomes resident when all of it is used: whole huge pages, where there are any. */
size_t tutti__alloc_takes(size_t bytes);
/* The path of a module that is loaded at run time, such as "libtutti_cuda.so": in the folder of this library or program, or
 * where it was installed. false: not found, and `path` is the first folder that was searched. */
bool tutti__module_find(const char *name, char *path, size_t capacity);
/* A folder, or a link to one. */
bool tutti__is_folder(const char *path);
/* mkdir -p. */
tutti_status tutti__make_dirs(const char *path);
/* Writes all of it to fd; path is for the message. */
tutti_status tutti__write_all(int fd, const char *path, const void *p, size_t bytes);
/* A file's text, whole, which the caller frees. ARG: it cannot be read, or is no text of less than `most` bytes; the message begins with
 * `what` ("TUTTI_TUNER_FILE: ") and the path, and `expected` ends it if it cannot be read. MEMORY. */
tutti_status tutti__read_text(const char *what, const char *path, const char *expected, size_t most,
                              char **text_p);

/* New contents for a file (replace.c): open, write to fd, then end with the status. If PATH is not a regular file, the bytes
 * are written to it directly; if it is a symbolic link, its target is replaced. */
typedef struct tutti__replacement {
    int fd;
    char target[4096];         /* "": no regular file */
    char temporary[4096 + 48]; /* what is written, for messages */
    bool unnamed;              /* that has no name yet */
} tutti__replacement;
tutti_status tutti__replace_begin(tutti__replacement *r, const char *path);
/* Whether both paths mean one regular file, by any links, or would if it were made; a loss if one is written from the other. */
bool tutti__same_file(const char *a, const char *b);
/* The error of a failed open() for writing; ENXIO means a pipe without a reader. */
tutti_status tutti__fail_open(int error, const char *path);
/* Renames if status is OK, else discards; closes. durable: synced to disk on return. Returns `status`, or its own failure. */
tutti_status tutti__replace_end(tutti__replacement *r, tutti_status status, bool durable);
/* All of it in one call, not durable: readers see the old or the new file. A signal that asks the process to end waits. */
tutti_status tutti__write_file(const char *path, const void *p, size_t bytes);
/* Locks a byte of a file, or all of it, for this opening of it: type F_RDLCK, F_WRLCK or F_UNLCK. 0 or an errno: EAGAIN if another
 * has had it for `ms`; another if the file system has no locks. Ends when the file is closed, or with the process. */
enum { TUTTI__WHOLE_FILE = -1 };
int tutti__lock_file(int fd, int type, int byte, int ms);
/* Whether the open file still has this name. */
bool tutti__is_file(int fd, const char *path);
/* Makes PATH a symbolic link, atomically, for people to follow: on a file system without links there is none. Refuses to replace
 * anything but a link. */
tutti_status tutti__replace_link(const char *target, const char *path);
/* fsync of a file, and of a folder after files in it were made, renamed or removed. OK if the file system cannot. */
tutti_status tutti__sync_file(int fd, const char *path);
tutti_status tutti__sync_folder(const char *path);

/* The text as a string of JSON, quotes included. Bytes that are not UTF-8 (a name cut in the middle of a character, say)
 * become U+FFFD, so that parsers accept the rest. */
void tutti__json_string(FILE *out, const char *text);
bool tutti__is_utf8(const char *text);

/* The length of the UTF-8 character at text in bytes; 0: invalid. A truncated one is invalid, because the NUL is no
 * continuation byte. */
int tutti__utf8_bytes(const char *text);
/* Whether a terminal obeys the character of n bytes (n of tutti__utf8_bytes): control characters, C1 ones too (U+0080 to U+009F),
 * separators of lines and paragraphs (U+2028, U+2029), and those that change the direction of writing (U+061C, U+200E, U+200F,
 * U+202A to U+202E, U+2066 to U+2069), which can make one name look like another. */
bool tutti__is_obeyed(const char *text, int n);
/* Makes text safe for a terminal, in out[size], cut there; returns out. Line ends, control and escape characters, changes of
 * direction and invalid UTF-8 become \n, \t, \r or \xNN. Print names from outside (files, classes, tensors) through it;
 * messages of tutti__fail and tutti_log pass through it anyway. */
const char *tutti__printable(const char *text, char *out, size_t size);
/* The same, but line ends stay. */
const char *tutti__printable_lines(const char *text, char *out, size_t size);

/* ---- Events: one ring for the trace and the flight recorder -------------------------------------- */

/* One span. Names are static text. The meaning of `arg` (a step, a bucket; -1: none) and `detail` depends on the
 * category. */
typedef struct tutti__time_span {
    const char *name, *category;
    uint64_t begin_ns, end_ns; /* end 0: still open */
    int64_t arg;
    uint64_t detail[3];
    int thread; /* 0 main, 1 communication, 2.. loader workers */
} tutti__time_span;

/* One per rank; any of its threads may record, without a lock. NULL: off, at the cost of a branch. */
typedef struct tutti__recorder tutti__recorder;
tutti__recorder *tutti__recorder_new(size_t capacity);
void tutti__recorder_free(tutti__recorder *recorder);
/* A span that has ended. */
void tutti__record(tutti__recorder *recorder, const char *category, const char *name, int64_t arg,
                   int thread, uint64_t begin_ns, uint64_t end_ns);
/* An open span; its ticket closes it, unless the ring has overwritten it. */
uint64_t tutti__record_open(tutti__recorder *recorder, const tutti__time_span *event);
void tutti__record_close(tutti__recorder *recorder, uint64_t ticket, uint64_t end_ns);
/* Copies the newest events, oldest first; returns how many. */
size_t tutti__recorder_read(tutti__recorder *recorder, tutti__time_span *events, size_t n);

#endif

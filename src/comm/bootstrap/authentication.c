/* authentication.c -- the job's secret, and the proof of knowing it.   SPDX-License-Identifier: MIT
 *
 *     connecting                                         accepting
 *       hello  = magic, has-secret, claim, nonce  ->
 *                                                 <-     answer = magic, has-secret, claim, nonce,
 *                                                                 HMAC("accept", hello, answer)
 *       proof  = HMAC("connect", hello, answer)   ->
 *                                                 <-     verdict: welcome, or why not
 *
 * A claim is job, attempt, process, group, rank and channel: it cannot be replayed, or used by another process. The two
 * HMACs differ in their first word, so neither can be played back as the other. */
#include "comm/bootstrap/authentication.h"

#include "comm/bootstrap/launcher_environment.h"
#include "comm/bootstrap/process.h"
#include "comm/bootstrap/user_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = {'T', 'U', 'T', 'T', 'I', '/', '3', '\n'};

enum {
    FLAG_AT = sizeof MAGIC, /* has a secret: 0 or 1 */
    FULL = 255,             /* instead of it: no descriptor left */
    CLAIM_AT = 16,
    NONCE_AT = CLAIM_AT + sizeof(tutti__claim),
    MAC_BYTES = crypto_auth_hmacsha256_BYTES,
    LEAST_SECRET = 16
};
_Static_assert(NONCE_AT + 32 == TUTTI__HEAD_BYTES, "a head is magic, flag, claim and nonce");

static tutti_status secret_from(tutti__secret *secret, const char *text, size_t n,
                                const char *where)
{
    while (n > 0 && strchr("\r\n \t", text[n - 1]))
        n--;
    if (n < LEAST_SECRET)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s holds a secret of %zu characters, expected at least %d, e.g. from "
                           "`openssl rand -hex 32`",
                           where, n, LEAST_SECRET);
    crypto_hash_sha256(secret->key, (const unsigned char *)text, n);
    secret->set = true;
    return TUTTI_OK;
}

static tutti_status secret_from_file(tutti__secret *secret, const char *path)
{
    char text[4096];
    struct stat info;
    ssize_t n;
    tutti_status status;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO must not block */

    if (fd < 0)
        return tutti__fail_errno(errno, "cannot read %s (TUTTI_SECRET_FILE)", path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s (TUTTI_SECRET_FILE) is not a regular file, which each process of "
                           "the job can read: write the secret to one, mode 0600",
                           path);
    }
    if ((info.st_mode & 077) != 0) {
        close(fd);
        return tutti__fail(
            TUTTI_ERR_ARG,
            "%s (TUTTI_SECRET_FILE) can be read by others (mode %04o), expected 0600: chmod 600 %s",
            path, (unsigned)(info.st_mode & 07777), path);
    }
    n = read(fd, text, sizeof text);
    close(fd);
    if (n < 0)
        return tutti__fail_errno(errno, "cannot read %s (TUTTI_SECRET_FILE)", path);
    status = secret_from(secret, text, (size_t)n, path);
    sodium_memzero(text, sizeof text);
    return status;
}

/* The name of this job, to tell it from the user's others; the same on all its hosts; "": none. Open MPI inside a Slurm
 * job, and ranks that a script starts as separate steps, share the job's number, but not the step's. */
static void job_text(const tutti__env_group *env, char *text, size_t capacity)
{
    const char *id = getenv("TORCHELASTIC_RUN_ID"), *step = getenv("SLURM_STEP_ID");

    if (!id || !*id)
        id = getenv("PMIX_NAMESPACE");
    snprintf(text, capacity, "%s", id ? id : "");
    if (*text || !getenv("SLURM_JOB_ID"))
        return;
    snprintf(text, capacity, "%s", getenv("SLURM_JOB_ID"));
    if (strcmp(env->source, "Slurm") == 0 && step)
        snprintf(text, capacity, "%s.%s", getenv("SLURM_JOB_ID"), step);
}

/* What this process is in the job. An incomplete environment is reported elsewhere. */
static void read_place(tutti__secret *secret)
{
    tutti__env_group env;
    char text[192];
    bool whole = tutti__env_group_read_ranks(&env) == TUTTI_OK;

    tutti__process_text(text, sizeof text);
    secret->process = tutti__hash64(text, strlen(text));
    job_text(&env, text, sizeof text);
    secret->job = *text ? tutti__hash64(text, strlen(text)) : 0;
    secret->speaks = !whole || env.local_rank == 0 || env.rank == 1;
    if (whole && env.world_size > 1) {
        secret->rank = (uint32_t)env.rank + 1;
        secret->attempt = (uint32_t)env.attempt;
    }
}

tutti_status tutti__secret_read_given(tutti__secret *secret)
{
    const char *text = tutti__env_text(TUTTI__ENV_SECRET);
    const char *path = tutti__env_text(TUTTI__ENV_SECRET_FILE);

    *secret = (tutti__secret){0};
    if (sodium_init() < 0)
        return tutti__fail(TUTTI_ERR_INTERNAL, "libsodium found no source of random numbers");
    read_place(secret);
    if (*text)
        return secret_from(secret, text, strlen(text), "TUTTI_SECRET");
    return *path ? secret_from_file(secret, path) : TUTTI_OK;
}

tutti_status tutti__secret_read(tutti__secret *secret)
{
    tutti__user_secret users;
    tutti_status status;

    TUTTI_TRY(tutti__secret_read_given(secret));
    if (secret->set)
        return TUTTI_OK;
    status = tutti__user_secret_read(&users);
    snprintf(secret->where, sizeof secret->where, "%.255s",
             *users.why_none ? users.why_none : users.path);
    secret->users = *users.text != '\0';
    if (status == TUTTI_OK && secret->users)
        status = secret_from(secret, users.text, strlen(users.text), users.path);
    sodium_memzero(&users, sizeof users);
    return status;
}

tutti__claim tutti__store_claim(const tutti__secret *secret)
{
    return (tutti__claim){.kind = 'S',
                          .attempt = secret->attempt,
                          .job = secret->job,
                          .process = secret->process,
                          .rank = secret->rank};
}

/* ---- Messages ----------------------------------------------------------------------------------------- */

static void make_head(uint8_t head[TUTTI__HEAD_BYTES], const tutti__secret *secret,
                      const tutti__claim *claim)
{
    memset(head, 0, TUTTI__HEAD_BYTES);
    memcpy(head, MAGIC, sizeof MAGIC);
    head[FLAG_AT] = secret->set;
    memcpy(head + CLAIM_AT, claim, sizeof *claim);
    randombytes_buf(head + NONCE_AT, TUTTI__HEAD_BYTES - NONCE_AT);
}

static tutti__claim claim_in(const uint8_t head[TUTTI__HEAD_BYTES])
{
    tutti__claim claim;

    memcpy(&claim, head + CLAIM_AT, sizeof claim);
    return claim;
}

static void make_mac(uint8_t mac[MAC_BYTES], const tutti__secret *secret, const char *word,
                     const uint8_t *hello, const uint8_t *answer)
{
    crypto_auth_hmacsha256_state state;

    crypto_auth_hmacsha256_init(&state, secret->key, sizeof secret->key);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)word, strlen(word));
    crypto_auth_hmacsha256_update(&state, hello, TUTTI__HEAD_BYTES);
    crypto_auth_hmacsha256_update(&state, answer, TUTTI__HEAD_BYTES);
    crypto_auth_hmacsha256_final(&state, mac);
}

static bool other_job(const tutti__claim *a, const tutti__claim *b)
{
    return a->job && b->job && a->job != b->job;
}

/* ---- Connecting --------------------------------------------------------------------------------------- */

/* Only one side has a secret. */
static tutti_status fail_one_sided(const tutti__secret *secret, const char *who)
{
    return tutti__fail(TUTTI_ERR_IO, "%s %s a secret while this rank has %s%s%s%s: %s", who,
                       secret->set ? "has not" : "expects", secret->set ? "one" : "none",
                       *secret->where ? " (" : "", secret->where, *secret->where ? ")" : "",
                       secret->users ? "it is another user's, or could not read its own; start all "
                                       "ranks as one user, or with the same TUTTI_SECRET_FILE"
                                     : "start all ranks with the same TUTTI_SECRET_FILE");
}

static tutti_status check_answer(tutti__client_handshake *h, const tutti__secret *secret,
                                 const tutti__claim *mine, const tutti__claim *theirs,
                                 const char *who)
{
    const uint8_t *hello = h->hello, *answer = h->answer;
    const tutti__claim there = claim_in(answer);
    uint8_t mac[MAC_BYTES];

    /* until it is known to be the one: the kernel gives the port of a process that has ended to others */
    h->replaced = theirs != NULL;
    if (memcmp(answer, MAGIC, sizeof MAGIC) != 0)
        return tutti__fail(TUTTI_ERR_IO, "%s speaks another protocol (or another version of Tutti)",
                           who);
    h->replaced = false;
    if (answer[FLAG_AT] == FULL)
        return tutti__fail(TUTTI_ERR_MEMORY,
                           "%s has no descriptor left for another connection: raise the limit of "
                           "open files of the process that hosts it (ulimit -n)",
                           who);
    if (answer[FLAG_AT] != hello[FLAG_AT])
        return fail_one_sided(secret, who);
    make_mac(mac, secret, "accept", hello, answer);
    if (sodium_memcmp(mac, answer + TUTTI__HEAD_BYTES, MAC_BYTES) != 0)
        return secret->users
                   ? tutti__fail(TUTTI_ERR_IO,
                                 "%s has another secret: it belongs to another job or user, or its "
                                 "host has another %s than this one (compare the two with "
                                 "sha256sum); copy that file, or give all ranks the same "
                                 "TUTTI_SECRET_FILE",
                                 who, secret->where)
                   : tutti__fail(TUTTI_ERR_IO, "%s has another secret: it belongs to another job",
                                 who);
    h->replaced = theirs && (other_job(&there, mine) || there.kind != mine->kind ||
                             there.group != theirs->group || there.rank != theirs->rank);
    if (other_job(&there, mine))
        return tutti__fail(
            TUTTI_ERR_IO,
            "%s belongs to another job with the same secret (TORCHELASTIC_RUN_ID, or the "
            "job that mpirun or srun named, differs)",
            who);
    if (there.kind != mine->kind || h->replaced)
        return tutti__fail(TUTTI_ERR_IO,
                           "%s is of this job, but not the process that this rank called", who);
    return TUTTI_OK;
}

static tutti_status fail_other_user(const char *who)
{
    return tutti__fail(
        TUTTI_ERR_IO,
        "%s belongs to another user, and without a secret only processes of one user can form a "
        "group: start all ranks as one user, or with the same TUTTI_SECRET_FILE",
        who);
}

static tutti_status check_verdict(char verdict, const tutti__claim *mine, const char *who)
{
    switch (verdict) {
    case TUTTI__WELCOME:
        return TUTTI_OK;
    case TUTTI__STALE:
        return tutti__fail(TUTTI_ERR_IO,
                           "%s refuses attempt %u of this job: a newer one has begun, and this "
                           "process is a leftover",
                           who, mine->attempt);
    case TUTTI__TAKEN:
        return tutti__fail(
            TUTTI_ERR_IO,
            "%s refuses a second rank %u: another process has that rank; was one started twice?",
            who, mine->rank - 1);
    case TUTTI__OTHER_USER:
        return fail_other_user(who);
    default:
        return tutti__fail(TUTTI_ERR_IO, "%s does not expect this rank in this group", who);
    }
}

tutti_status tutti__client_handshake_fail(tutti__client_handshake *h, const char *who, int error)
{
    /* If the connection is closed here, for lack of descriptors, the caller may try again; later not. */
    if (h->next == TUTTI__AWAIT_VERDICT)
        return tutti__fail(TUTTI_ERR_PEER, "%s closed the connection: %s", who, strerror(error));
    return tutti__fail(error == ETIMEDOUT ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_PEER,
                       "%s does not answer like Tutti: %s; is another program there, is it stopped "
                       "or at its limit of open files (see its output), or did it just "
                       "end?",
                       who, error == ECONNRESET ? "connection closed" : strerror(error));
}

/* 1: `whole` bytes are in h->answer; 0: not yet; -1: errno. */
static int receive(tutti__client_handshake *h, int fd, size_t whole)
{
    while (h->got < whole) {
        ssize_t n = recv(fd, h->answer + h->got, whole - h->got, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n == 0)
            errno = ECONNRESET;
        if (n <= 0)
            return -1;
        h->got += (size_t)n;
    }
    h->got = 0;
    return 1;
}

/* The first bytes on a socket always fit its buffer. */
static int send_whole(int fd, const void *p, size_t bytes)
{
    ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);

    if (n >= 0 && n != (ssize_t)bytes)
        errno = EAGAIN;
    return n == (ssize_t)bytes ? 1 : -1;
}

/* The answer is complete. 1: the proof is sent; -1: h->status, or errno if that is OK. */
static int prove(tutti__client_handshake *h, int fd, const tutti__secret *secret,
                 const tutti__claim *mine, const tutti__claim *theirs, const char *who)
{
    uint8_t mac[MAC_BYTES] = {0};

    h->status = check_answer(h, secret, mine, theirs, who);
    if (h->status == TUTTI_OK && !secret->set && tutti__of_another_user(fd))
        h->status = fail_other_user(who);
    if (h->status == TUTTI_OK)
        make_mac(mac, secret, "connect", h->hello, h->answer);
    else if (h->status != TUTTI_ERR_MEMORY) /* tells it apart from a rank that ended */
        (void)send_whole(fd, mac, sizeof mac);
    return h->status == TUTTI_OK ? send_whole(fd, mac, sizeof mac) : -1;
}

/* One part of the handshake. */
static int step(tutti__client_handshake *h, int fd, const tutti__secret *secret,
                const tutti__claim *mine, const tutti__claim *theirs, const char *who)
{
    int state;

    switch (h->next) {
    case TUTTI__SAY_HELLO:
        make_head(h->hello, secret, mine);
        return send_whole(fd, h->hello, sizeof h->hello);
    case TUTTI__AWAIT_ANSWER:
        state = receive(h, fd, sizeof h->answer);
        return state > 0 ? prove(h, fd, secret, mine, theirs, who) : state;
    default:
        state = receive(h, fd, 1);
        if (state > 0)
            h->status = check_verdict((char)h->answer[0], mine, who);
        return h->status == TUTTI_OK ? state : -1;
    }
}

int tutti__client_handshake_step(tutti__client_handshake *h, int fd, const tutti__secret *secret,
                                 const tutti__claim *mine, const tutti__claim *theirs,
                                 const char *who)
{
    int state;

    while ((state = step(h, fd, secret, mine, theirs, who)) > 0)
        if (h->next++ == TUTTI__AWAIT_VERDICT)
            return 1;
    if (state < 0 && h->status == TUTTI_OK)
        h->status = tutti__client_handshake_fail(h, who, errno);
    return state;
}

/* ---- Accepting ---------------------------------------------------------------------------------------- */

static int turn_away(tutti__server_handshake *h, const char *why)
{
    h->why = why;
    return -1;
}

/* The hello is complete. */
static int answer_hello(tutti__server_handshake *h, int fd, const tutti__secret *secret,
                        const tutti__claim *mine)
{
    const tutti__claim theirs = claim_in(h->hello);

    if (theirs.kind != mine->kind)
        return turn_away(h, "it asks for a service that this process does not offer");
    make_head(h->answer, secret, mine);
    make_mac(h->answer + TUTTI__HEAD_BYTES, secret, "accept", h->hello, h->answer);
    /* The first bytes on this socket always fit its buffer, unless the peer hung up. */
    if (send(fd, h->answer, sizeof h->answer, MSG_NOSIGNAL) != (ssize_t)sizeof h->answer)
        return turn_away(h, "it hung up");
    return 0;
}

static int check_proof(tutti__server_handshake *h, const tutti__secret *secret,
                       const tutti__claim *mine)
{
    uint8_t mac[MAC_BYTES];

    if (h->hello[FLAG_AT] != (uint8_t)secret->set)
        return turn_away(h,
                         secret->set ? "it has no secret" : "it has a secret, this job has none");
    if (sodium_is_zero(h->proof, sizeof h->proof))
        return turn_away(h, "it rejects our authentication: its secret or job differs");
    make_mac(mac, secret, "connect", h->hello, h->answer);
    if (sodium_memcmp(mac, h->proof, MAC_BYTES) != 0)
        return turn_away(h, secret->users ? "it does not know this user's secret"
                                          : "it does not know the job's secret");
    h->claim = claim_in(h->hello);
    if (other_job(&h->claim, mine))
        return turn_away(h, "it is of another job");
    return 1;
}

int tutti__server_handshake_step(tutti__server_handshake *h, int fd, const tutti__secret *secret,
                                 const tutti__claim *mine)
{
    for (;;) {
        bool hello = h->got < sizeof h->hello;
        size_t part = hello ? h->got : h->got - sizeof h->hello;
        size_t whole = hello ? sizeof h->hello : sizeof h->proof;
        ssize_t n = recv(fd, (hello ? h->hello : h->proof) + part, whole - part, 0);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        h->ended = n <= 0;
        if (n <= 0 &&
            /* it only checked whether this rank listens, as ranks do that wait for another */
            h->got == 0)
            return turn_away(h, NULL);
        if (n <= 0)
            return turn_away(h, hello ? "it hung up" : "it ended before it was authenticated");
        h->got += (size_t)n;
        if (memcmp(h->hello, MAGIC, h->got < sizeof MAGIC ? h->got : sizeof MAGIC) != 0)
            return turn_away(h, "it speaks another protocol");
        if (h->got == sizeof h->hello && answer_hello(h, fd, secret, mine) != 0)
            return -1;
        if (h->got == sizeof h->hello + sizeof h->proof)
            return check_proof(h, secret, mine);
    }
}

bool tutti__server_handshake_decide(tutti__server_handshake *h, int fd, char verdict)
{
    bool sent = send(fd, &verdict, 1, MSG_NOSIGNAL) == 1;

    if (verdict != TUTTI__WELCOME)
        h->why = verdict == TUTTI__CROSSED ? NULL
                 : verdict == TUTTI__STALE ? "it belongs to an attempt of the job that has ended"
                 : verdict == TUTTI__TAKEN ? "another process already has its rank"
                 : verdict == TUTTI__OTHER_USER
                     ? "it belongs to another user, and there is no secret"
                     : "no such rank is expected here";
    return sent && verdict == TUTTI__WELCOME;
}

void tutti__refuse_full(int fd)
{
    uint8_t answer[TUTTI__ANSWER_BYTES] = {0}, hello[TUTTI__HEAD_BYTES];

    memcpy(answer, MAGIC, sizeof MAGIC);
    answer[FLAG_AT] = FULL;
    (void)!recv(fd, hello, sizeof hello,
                /* unread bytes would make close discard the answer */
                MSG_DONTWAIT);
    (void)!send(fd, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
}

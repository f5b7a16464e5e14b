/* secret.c -- the job's secret, and proving to know it.   SPDX-License-Identifier: MIT
 *
 *     connecting                                         accepting
 *       hello  = magic, has-secret, kind, nonce   ->
 *                                                 <-     answer = magic, has-secret, nonce, HMAC("accept", hello, answer)
 *       proof  = HMAC("connect", hello, answer)   ->
 *                                                 <-     welcome
 *
 * The two HMACs differ in their first word, so neither can be played back as the other. */
#include "comm/net.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = {'T', 'U', 'T', 'T', 'I', '/', '2', '\n'};

static const uint8_t WELCOME = 'W';

enum {
    FLAG_AT = sizeof MAGIC,
    KIND_AT,
    NONCE_AT = 16,
    HEAD_BYTES =
        48, /* magic, flag, kind, zeros, nonce: the whole hello, the first part of the answer */
    MAC_BYTES = crypto_auth_hmacsha256_BYTES,
    LEAST_SECRET = 16
};

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
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return tutti__fail_errno(errno, "cannot read %s (TUTTI_SECRET_FILE)", path);
    if (fstat(fd, &info) != 0 || (info.st_mode & 077) != 0) {
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

tutti_status tutti__secret_read(tutti__secret *secret)
{
    const char *text = tutti__env_text(TUTTI__ENV_SECRET);
    const char *path = tutti__env_text(TUTTI__ENV_SECRET_FILE);

    *secret = (tutti__secret){0};
    if (sodium_init() < 0)
        return tutti__fail(TUTTI_ERR_INTERNAL, "libsodium found no source of random numbers");
    if (*text)
        return secret_from(secret, text, strlen(text), "TUTTI_SECRET");
    return *path ? secret_from_file(secret, path) : TUTTI_OK;
}

static void make_head(uint8_t head[HEAD_BYTES], const tutti__secret *secret, char kind)
{
    memset(head, 0, HEAD_BYTES);
    memcpy(head, MAGIC, sizeof MAGIC);
    head[FLAG_AT] = secret->set;
    head[KIND_AT] = (uint8_t)kind;
    randombytes_buf(head + NONCE_AT, HEAD_BYTES - NONCE_AT);
}

static void make_mac(uint8_t mac[MAC_BYTES], const tutti__secret *secret, const char *word,
                     const uint8_t *hello, const uint8_t *answer)
{
    crypto_auth_hmacsha256_state state;

    crypto_auth_hmacsha256_init(&state, secret->key, sizeof secret->key);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)word, strlen(word));
    crypto_auth_hmacsha256_update(&state, hello, HEAD_BYTES);
    crypto_auth_hmacsha256_update(&state, answer, HEAD_BYTES);
    crypto_auth_hmacsha256_final(&state, mac);
}

tutti_status tutti__greet(int fd, const tutti__secret *secret, char kind, const char *who,
                          double deadline)
{
    uint8_t hello[HEAD_BYTES], answer[TUTTI__ANSWER_BYTES], mac[MAC_BYTES], welcome;
    int error;

    make_head(hello, secret, kind);
    error = tutti__send_all(fd, hello, sizeof hello, deadline);
    if (!error)
        error = tutti__receive_all(fd, answer, sizeof answer, deadline);
    if (error)
        return tutti__fail(
            error == ETIMEDOUT ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_PEER,
            "%s does not answer as Tutti would: %s; is something else there, or did it just end?",
            who, error == ECONNRESET ? "connection closed" : strerror(error));
    if (memcmp(answer, MAGIC, sizeof MAGIC) != 0)
        return tutti__fail(TUTTI_ERR_IO, "%s speaks another protocol (or another version of Tutti)",
                           who);
    if (answer[FLAG_AT] != hello[FLAG_AT])
        return tutti__fail(TUTTI_ERR_IO,
                           "%s %s a secret while this rank has %s: start all ranks with the same "
                           "TUTTI_SECRET_FILE",
                           who, answer[FLAG_AT] ? "expects" : "has not",
                           secret->set ? "one" : "none");
    make_mac(mac, secret, "accept", hello, answer);
    if (sodium_memcmp(mac, answer + HEAD_BYTES, MAC_BYTES) != 0)
        return tutti__fail(TUTTI_ERR_IO, "%s has another secret: it belongs to another job", who);
    make_mac(mac, secret, "connect", hello, answer);
    error = tutti__send_all(fd, mac, sizeof mac, deadline);
    if (!error) /* a door closed by now, for want of room, is worth another try; later it would not be */
        error = tutti__receive_all(fd, &welcome, sizeof welcome, deadline);
    if (error)
        return tutti__fail(TUTTI_ERR_PEER, "%s closed the connection: %s", who, strerror(error));
    return TUTTI_OK;
}

int tutti__doorman_step(tutti__doorman *d, int fd, const tutti__secret *secret, char kind)
{
    uint8_t mac[MAC_BYTES];

    for (;;) {
        bool hello = d->got < sizeof d->hello;
        size_t part = hello ? d->got : d->got - sizeof d->hello;
        size_t whole = hello ? sizeof d->hello : sizeof d->proof;
        ssize_t n = recv(fd, (hello ? d->hello : d->proof) + part, whole - part, 0);

        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
        d->got += (size_t)n;
        if (memcmp(d->hello, MAGIC, d->got < sizeof MAGIC ? d->got : sizeof MAGIC) != 0)
            return -1;
        if (d->got == sizeof d->hello) {
            if (d->hello[KIND_AT] != (uint8_t)kind)
                return -1;
            make_head(d->answer, secret, kind);
            make_mac(d->answer + HEAD_BYTES, secret, "accept", d->hello, d->answer);
            /* The first bytes on this socket: they fit its buffer or the client is none. */
            if (send(fd, d->answer, sizeof d->answer, MSG_NOSIGNAL) != (ssize_t)sizeof d->answer)
                return -1;
        }
        if (d->got < sizeof d->hello + sizeof d->proof)
            continue;
        make_mac(mac, secret, "connect", d->hello, d->answer);
        if (d->hello[FLAG_AT] != (uint8_t)secret->set ||
            sodium_memcmp(mac, d->proof, MAC_BYTES) != 0)
            return -1;
        return send(fd, &WELCOME, sizeof WELCOME, MSG_NOSIGNAL) == (ssize_t)sizeof WELCOME ? 1 : -1;
    }
}

/* error_file.c -- the file in which a launcher looks for a failed rank's message.   SPDX-License-Identifier: MIT
 *
 * torchrun's format, as its own Python processes write it, at the path that the launcher gives each rank in
 * TORCHELASTIC_ERROR_FILE:
 *
 *     {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp": "1700000000"}}}
 *
 * torchrun blames the rank with the earliest timestamp, in whole seconds. For ranks without a file (killed ones) it takes the
 * time at which it looked, up to 30 s after it began to stop the others. So that it blames the right rank, a rank's own failure
 * is dated a second back (a survivor may end in the same second), and one caused by a peer is dated later than torchrun looks.
 *
 * "permanent": true in extraInfo, which `tutti run` alone reads, means that a further attempt would fail in the same way. */
#include "base/base.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OWN_S = -1, PEERS_S = 60 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char written[2048]; /* the message in the file, if this process wrote it */
static bool written_is_own;

static char *make_text(const char *message, long long timestamp, bool permanent, size_t *bytes_p)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes_p);

    if (!out)
        return NULL;
    fputs("{\"message\": {\"message\": ", out);
    tutti__json_string(out, message);
    fputs(", \"extraInfo\": {\"py_callstack\": ", out); /* the one that torchrun shows */
    tutti__json_string(out, message);
    fprintf(out, ", \"timestamp\": \"%lld\"%s}}}\n", timestamp,
            permanent ? ", \"permanent\": true" : "");
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* Whether it quotes the peer's failure in the file, as that of an exception which the program did not catch does: then this
 * process ends because of the peer. */
static bool is_consequence(const char *message)
{
    return *written && !written_is_own && strstr(message, written);
}

static void write_file(bool own, bool permanent, const char *message)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    const tutti_status status = tutti__last_status();
    char kept[sizeof written], *text = NULL;
    size_t bytes = 0;

    if (!path || !*path)
        return;
    snprintf(kept, sizeof kept, "%s", tutti_last_error());
    pthread_mutex_lock(&lock);
    if (strcmp(message, written) != 0 && (own ? !is_consequence(message) : !written_is_own))
        text = make_text(message, (long long)tutti__wall_seconds() + (own ? OWN_S : PEERS_S),
                         permanent, &bytes);
    if (text && tutti__write_file(path, text, bytes) == TUTTI_OK) {
        snprintf(written, sizeof written, "%s", message);
        written_is_own = own;
    } else if (text) {
        tutti_log(TUTTI_LOG_INFO, "base", "%s (TORCHELASTIC_ERROR_FILE)", tutti_last_error());
    }
    pthread_mutex_unlock(&lock);
    free(text);
    (void)tutti__fail_again(status, kept);
}

void tutti__error_file_write(bool own, const char *message)
{
    write_file(own, false, message);
}

void tutti__error_file_write_usage(bool own, const char *message)
{
    write_file(own, true, message);
}

void tutti__error_file_forget(void)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");

    pthread_mutex_lock(&lock);
    if (path && *written && !written_is_own) {
        (void)unlink(path);
        *written = '\0';
    }
    pthread_mutex_unlock(&lock);
}

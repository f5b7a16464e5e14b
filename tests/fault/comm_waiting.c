/* comm: a rank that is stopped during group setup, or never arrives, is named after 5 s, long before the time limit, by one of
 * the waiting ranks; and in the final error.   SPDX-License-Identifier: MIT   run: waiting */
#include "base/base.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/group.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct rank {
    pid_t pid;
    int errors; /* its standard error */
} rank;

static void put_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* `tutti bench barrier` as one of `size` ranks that rendezvous at the store. */
static rank start(const tutti_store *store, int r, int size)
{
    const char *tutti = getenv("TUTTI") ? getenv("TUTTI") : "../tutti";
    rank started = {.errors = memfd_create("errors", MFD_CLOEXEC)};
    char address[64];

    started.pid = fork();
    if (started.pid != 0)
        return started;
    snprintf(address, sizeof address, "127.0.0.1:%d", tutti_store_port(store));
    setenv("TUTTI_STORE", address, 1);
    setenv("TUTTI_TIMEOUT_S", "7", 1);
    put_number("RANK", r);
    put_number("LOCAL_RANK", r);
    put_number("WORLD_SIZE", size);
    put_number("LOCAL_WORLD_SIZE", size);
    dup2(started.errors, STDERR_FILENO);
    execl(tutti, tutti, "bench", "barrier", "--iterations", "1", (char *)NULL);
    _exit(127);
}

static const char *words_of(const rank *r)
{
    static char text[8192];
    ssize_t n = pread(r->errors, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void assert_says(const rank *r, const char *what)
{
    if (!strstr(words_of(r), what))
        fail_msg("does not say \"%s\", but:\n%s", what, words_of(r));
}

/* Waits for it to exit, which must report a lost peer. */
static void assert_lost(const rank *r)
{
    int status;

    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
        fail_msg("status 0x%x:\n%s", (unsigned)status, words_of(r));
}

static void end(const rank *r)
{
    kill(r->pid, SIGKILL);
    waitpid(r->pid, NULL, 0);
    close(r->errors);
}

/* Starts rank `stopped` of two, which publishes its address and waits for the other; then stops it. */
static rank start_and_stop(tutti_store *store, int stopped)
{
    rank r = start(store, stopped, 2);
    char key[64];

    snprintf(key, sizeof key, "attempt-0/world/2/1/rank/%d", stopped);
    assert_int_equal(tutti_store_wait(store, key, 10000), TUTTI_OK);
    kill(r.pid, SIGSTOP);
    return r;
}

static void a_rank_that_is_stopped_or_absent_is_named(void **state)
{
    tutti_store *stores[3];
    rank stopped[2], waiting[4];
    char who[160], host[64] = "";

    (void)state;
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tutti_store_tcp_serve(&stores[i], "127.0.0.1", 0), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        stopped[i] = start_and_stop(stores[i], i);
        waiting[i] = start(stores[i], !i, 2);
    }
    waiting[2] = start(stores[2], 0, 3); /* rank 1 never arrives */
    waiting[3] = start(stores[2], 2, 3);
    for (int i = 0; i < 4; i++)
        assert_lost(&waiting[i]);
    for (int i = 0; i < 2; i++) {
        snprintf(who, sizeof who,
                 "rank %d of 2 has waited 5 s for rank %d (%s, process %d), which is stopped "
                 "(SIGSTOP, a debugger)",
                 !i, i, host, (int)stopped[i].pid);
        assert_says(&waiting[i], who);
    }
    assert_says(&waiting[1], "waited 7 s for a connection from rank 1 (");
    assert_says(&waiting[0], "waited 7 s for an answer of rank 0 (");
    assert_says(&waiting[2], "has waited 5 s for rank 1 of 3: it has not come to the store at");
    assert_says(&waiting[2], "waited 7 s, but 1 of 3 ranks never came: rank 1");
    assert_null(strstr(words_of(&waiting[3]), "has waited 5 s")); /* only one logs it */
    for (int i = 0; i < 2; i++)
        end(&stopped[i]);
    for (int i = 0; i < 3; i++)
        tutti_store_free(stores[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_stopped_or_absent_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

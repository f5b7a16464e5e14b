/* launch: the coordinator's answers to nodes that fit, do not fit, come late, repeat messages and leave.
 * SPDX-License-Identifier: MIT */
#include "elastic/agent_messages.h"
#include "launch/host/coordinator.h"
#include "harness/connect.h"
#include "harness/greet.h"
#include "harness/limits.h"
#include "launch/message/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct fixture {
    tutti__job job;
    tutti__console console;
    tutti__secret secret;
    tutti__address address;
    tutti__connection local;
    tutti__coordinator *coordinator;
} fixture;

static void begin_with(fixture *f, tutti__nodes nodes, int max_restarts, double settle_ms,
                       const tutti__roster *roster)
{
    tutti__coordinator_opts opts = {.job = &f->job,
                                    .console = &f->console,
                                    .secret = &f->secret,
                                    .address = "127.0.0.1",
                                    .settle_ms = settle_ms,
                                    .roster = roster};
    int ends[2];

    memset(f, 0, sizeof *f);
    f->job.opts = (tutti__launch_opts){
        .title = "tutti run", .n = 1, .max_restarts = max_restarts, .nodes = nodes};
    snprintf(f->job.id, sizeof f->job.id, "job");
    snprintf(f->job.store_address, sizeof f->job.store_address, "127.0.0.1:1");
    f->secret.set = true;
    f->secret.process = 1;
    assert_int_equal(tutti_store_memory_new(&f->job.store), TUTTI_OK);
    assert_int_equal(tutti__resolve(&f->address, "127.0.0.1", 0), TUTTI_OK);
    assert_int_equal(tutti__listen(&f->address, &opts.listener), TUTTI_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    opts.local = ends[0];
    tutti__connection_open(&f->local, ends[1]);
    assert_int_equal(tutti__coordinator_new(&f->coordinator, &opts), TUTTI_OK);
}

static void begin(fixture *f, int min, int max, bool native, int max_restarts)
{
    begin_with(f, (tutti__nodes){.min = min, .max = max, .native = native}, max_restarts, 0, NULL);
}

static void end(fixture *f)
{
    tutti__coordinator_free(f->coordinator);
    tutti__connection_close(&f->local);
    tutti_store_free(f->job.store);
    tutti__console_free(&f->console);
}

/* A node's authenticated connection: a child authenticates and passes the socket on, while this process serves. */
static tutti__connection connect_node(fixture *f)
{
    const tutti__claim claim = {.kind = 'L', .process = 2};
    tutti__connection connection;
    pid_t pid;
    int fd, ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid = fork();
    if (pid == 0) {
        char byte = 'x';
        struct iovec io = {&byte, 1};
        union {
            char bytes[CMSG_SPACE(sizeof(int))];
            struct cmsghdr head;
        } control = {.head = {.cmsg_level = SOL_SOCKET,
                              .cmsg_type = SCM_RIGHTS,
                              .cmsg_len = CMSG_LEN(sizeof(int))}};
        struct msghdr message = {.msg_iov = &io,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};

        fd = tutti_connect(&f->address, 5000);
        if (test_greet(fd, &f->secret, &claim, "it", 5000) != TUTTI_OK)
            _exit(1);
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
        _exit(sendmsg(ends[1], &message, 0) != 1);
    }
    close(ends[1]);
    for (struct pollfd p = {ends[0], POLLIN, 0}; poll(&p, 1, 1) == 0;)
        tutti__coordinator_serve(f->coordinator);
    {
        char byte;
        struct iovec io = {&byte, 1};
        union {
            char bytes[CMSG_SPACE(sizeof(int))];
            struct cmsghdr head;
        } control;
        struct msghdr message = {.msg_iov = &io,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};

        assert_int_equal(recvmsg(ends[0], &message, 0), 1);
        memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
    }
    close(ends[0]);
    tutti__connection_open(&connection, fd);
    return connection;
}

/* A join message, of which `changes`, an object in JSON, replaces parts. */
static void join(fixture *f, tutti__connection *connection, const char *host, const char *changes)
{
    const tutti__nodes *nodes = &f->job.opts.nodes;
    json_t *more = json_loads(changes, 0, NULL);
    json_t *m = json_pack(
        "{s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:I, s:s, s:i, s:i, s:i}", "type",
        "join", "protocol", TUTTI__RENDEZVOUS_PROTOCOL, "version", TUTTI_VERSION, "host", host,
        "pid", 1, "workers", 2, "node_rank", 0, "min", nodes->min, "max", nodes->max, "native",
        nodes->native, "max_restarts", f->job.opts.max_restarts, "clock", (json_int_t)time(NULL),
        "address", "10.0.0.1", "port", 1234, "rounds", 0, "restarts", 0);

    assert_non_null(m);
    json_object_update(m, more);
    json_decref(more);
    tutti__connection_send(connection, m);
    tutti__coordinator_serve(f->coordinator);
}

static void say(fixture *f, tutti__connection *connection, const char *message)
{
    tutti__connection_send(connection, json_loads(message, 0, NULL));
    tutti__coordinator_serve(f->coordinator);
}

static bool is_of(const json_t *message, const char *type)
{
    const char *its = json_string_value(json_object_get(message, "type"));

    return its && strcmp(its, type) == 0;
}

/* The next message other than pings and waits; owned by the caller. NULL: none. */
static json_t *hear(fixture *f, tutti__connection *connection)
{
    json_t *m;

    tutti__coordinator_serve(f->coordinator);
    for (int i = 0; i < 20; i++) {
        tutti__connection_read(connection);
        while ((m = tutti__connection_take(connection)) != NULL) {
            if (!is_of(m, "ping") && !is_of(m, "wait"))
                return m;
            json_decref(m);
        }
        poll(&(struct pollfd){connection->fd, POLLIN, 0}, 1, 5);
    }
    return NULL;
}

static void hears(fixture *f, tutti__connection *connection, const char *type, const char *text)
{
    json_t *m = hear(f, connection);
    char *all = m ? json_dumps(m, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    if (!m || !is_of(m, type) || !strstr(all, text))
        fail_msg("heard %s, expected \"%s\" with %s", all ? all : "nothing", type, text);
    free(all);
    json_decref(m);
}

static bool console_says(const fixture *f, const char *text)
{
    return f->console.bytes && memmem(f->console.bytes + f->console.begin,
                                      f->console.end - f->console.begin, text, strlen(text));
}

#define LEAVE                                                                                      \
    "{\"type\":\"leave\", \"final\":false, \"signal\":15, \"code\":143, \"why\":\"SIGTERM\"}"
#define OVER "{\"type\":\"over\", \"round\":0, \"port\":1}"

static void nodes_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *changes, *why;
    } CASES[] = {
        {"{\"version\": \"0.0.1\"}", "it runs tutti 0.0.1"},
        {"{\"protocol\": 99}", "install the same on all nodes"},
        {"{\"min\": 3, \"max\": 3}", "it was started with --nnodes 3, the rendezvous host with "},
        {"{\"min\": 1, \"max\": 3}", "it was started with --nnodes 1:3, the rendezvous host with "},
        {"{\"native\": true}", "--rdzv-backend native"},
        {"{\"node_rank\": 2}", "its --node-rank is 2, expected 0 to 1"},
        {"{\"node_rank\": -1}", "its --node-rank is -1"},
        {"{\"workers\": 0}", "makes no sense"},
        {"{\"port\": 70000}", "makes no sense"},
        {"{\"workers\": \"many\"}", "makes no sense"},
        {"{\"rounds\": 2147483647}", "makes no sense (rounds)"},
        {"{\"restarts\": -1}", "makes no sense (restarts)"},
        {"{\"version\": \"\\u001b[2J\"}", "x1b[2J, the rendezvous host"},
    };
    fixture f;

    (void)state;
    begin(&f, 2, 2, false, 0);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        tutti__connection node = connect_node(&f);

        join(&f, &node, "b", CASES[i].changes);
        hears(&f, &node, "refuse", CASES[i].why);
        assert_true(console_says(&f, CASES[i].why));
        tutti__connection_close(&node);
    }
    end(&f);
}

static void differences_that_may_be_are_warned_of(void **state)
{
    char late[96];
    tutti__connection node;
    fixture f;

    (void)state;
    begin(&f, 2, 2, false, 1);
    node = connect_node(&f);
    snprintf(late, sizeof late, "{\"clock\": %lld, \"max_restarts\": 7, \"node_rank\": 1}",
             (long long)time(NULL) - 60);
    join(&f, &node, "b", late);
    assert_true(console_says(&f, "the clock of node b is 60 s behind") ||
                console_says(&f, "the clock of node b is 61 s behind"));
    assert_true(console_says(&f, "node b was started with --max-restarts 7; 1, of the rendezvous"));
    join(&f, &f.local, "a", "{}");
    hears(&f, &node, "round", "\"first_rank\":2,\"group_rank\":1");
    tutti__connection_close(&node);
    end(&f);
}

static void messages_of_another_round_are_not_heard(void **state)
{
    tutti__connection node;
    fixture f;

    (void)state;
    begin(&f, 2, 2, false, 1);
    node = connect_node(&f);
    join(&f, &f.local, "a", "{}");
    join(&f, &node, "b", "{\"node_rank\": 1}");
    hears(&f, &f.local, "round", "\"round\":0");
    hears(&f, &node, "round", "\"world_size\":4");
    say(&f, &node, "{\"type\":\"failed\", \"round\":0, \"code\":7, \"why\":\"rank 2 failed\"}");
    hears(&f, &f.local, "stop", "rank 2 failed");
    hears(&f, &node, "stop", "rank 2 failed");
    say(&f, &f.local, OVER);
    say(&f, &node, OVER);
    hears(&f, &f.local, "round", "\"restarts\":1,\"round\":1");
    hears(&f, &node, "round", "\"restarts\":1,\"round\":1");
    say(&f, &node, "{\"type\":\"failed\", \"round\":0, \"code\":9, \"why\":\"old\"}");
    say(&f, &node, OVER);
    say(&f, &node, "{\"type\":\"nonsense\"}");
    assert_null(hear(&f, &f.local));
    say(&f, &f.local, "{\"type\":\"over\", \"round\":1, \"port\":1}");
    assert_null(hear(&f, &f.local)); /* it waits for the other */
    say(&f, &node, "{\"type\":\"over\", \"round\":1, \"port\":1}");
    hears(&f, &f.local, "end", "\"code\":0");
    hears(&f, &node, "end", "\"code\":0");
    assert_false(tutti__coordinator_done(f.coordinator)); /* the node has yet to go */
    tutti__connection_close(&node);
    tutti__coordinator_serve(f.coordinator);
    assert_true(tutti__coordinator_done(f.coordinator));
    end(&f);
}

/* A cause replaces "I lost a peer", in any order; the job's exit code is the cause's. */
static void the_cause_is_told_not_its_effect(void **state)
{
    static const char *const FAILED[] = {
        "{\"type\":\"failed\", \"round\":0, \"code\":3, \"why\":\"rank 0 lost a peer\"}",
        "{\"type\":\"failed\", \"round\":0, \"code\":7, \"why\":\"rank 2 failed\"}"};

    (void)state;
    for (int cause_first = 0; cause_first < 2; cause_first++) {
        tutti__connection node;
        fixture f;

        begin(&f, 2, 2, false, 0);
        node = connect_node(&f);
        join(&f, &f.local, "a", "{}");
        join(&f, &node, "b", "{\"node_rank\": 1}");
        say(&f, &f.local, FAILED[cause_first]);
        say(&f, &node, FAILED[!cause_first]);
        say(&f, &f.local, OVER);
        say(&f, &node, OVER);
        for (int i = 0; i < 2; i++) /* round, stop */
            json_decref(hear(&f, &node));
        hears(&f, &node, "end", "\"code\":7");
        tutti__connection_close(&node);
        end(&f);
    }
}

static void a_spare_node_waits_for_a_place(void **state)
{
    tutti__connection b, c;
    fixture f;

    (void)state;
    begin(&f, 1, 2, true, 1);
    b = connect_node(&f);
    c = connect_node(&f);
    join(&f, &f.local, "a", "{}");
    join(&f, &b, "b", "{}");
    join(&f, &c, "c", "{}");
    hears(&f, &f.local, "round", "\"nodes\":2");
    hears(&f, &b, "round", "\"nodes\":2");
    assert_null(hear(&f, &c));
    tutti__connection_close(&b); /* lost */
    hears(&f, &f.local, "stop", "was lost");
    say(&f, &f.local, OVER);
    hears(&f, &c, "round", "\"group_rank\":1");
    hears(&f, &f.local, "round", "\"group_rank\":0");
    tutti__connection_close(&c);
    end(&f);
}

/* Workers that are told to end go at different times; the slower lose their peers, which is no failure. */
static void what_an_orderly_stop_does_takes_no_restart(void **state)
{
    tutti__connection node;
    fixture f;

    (void)state;
    begin(&f, 1, 2, true, 0);
    node = connect_node(&f);
    join(&f, &f.local, "a", "{}");
    join(&f, &node, "b", "{}");
    hears(&f, &f.local, "round", "\"nodes\":2");
    hears(&f, &node, "round", "\"nodes\":2");
    say(&f, &node, LEAVE);
    hears(&f, &f.local, "stop", "node b (process 1) ends: SIGTERM");
    say(&f, &f.local, "{\"type\":\"failed\", \"round\":0, \"code\":3, \"why\":\"lost a peer\"}");
    say(&f, &node, OVER);
    say(&f, &f.local, OVER);
    hears(&f, &f.local, "round", "\"restarts\":0,\"round\":1");
    tutti__connection_close(&node);
    end(&f);
}

/* A node leaves during a failure: the failure is still reported. */
static void a_node_that_leaves_hides_no_failure(void **state)
{
    tutti__connection node;
    fixture f;

    (void)state;
    begin(&f, 1, 2, true, 0);
    node = connect_node(&f);
    join(&f, &f.local, "a", "{}");
    join(&f, &node, "b", "{}");
    hears(&f, &f.local, "round", "\"nodes\":2");
    say(&f, &f.local, "{\"type\":\"failed\", \"round\":0, \"code\":7, \"why\":\"rank 0 failed\"}");
    hears(&f, &f.local, "stop", "rank 0 failed");
    say(&f, &node, LEAVE);
    say(&f, &node, OVER);
    say(&f, &f.local, OVER);
    hears(&f, &f.local, "end",
          "\"code\":7,\"own\":true,\"permanent\":false,\"type\":\"end\",\"why\":\"rank 0 failed\"");
    tutti__connection_close(&node);
    end(&f);
}

static void a_node_that_leaves_early_is_in_no_round(void **state)
{
    tutti__connection b, c;
    fixture f;

    (void)state;
    begin(&f, 3, 3, true, 1);
    b = connect_node(&f);
    c = connect_node(&f);
    join(&f, &f.local, "a", "{}");
    join(&f, &b, "b", "{}");
    say(&f, &b, LEAVE);
    join(&f, &c, "c", "{}");
    assert_null(hear(&f, &f.local));
    tutti__connection_close(&b);
    tutti__connection_close(&c);
    end(&f);
}

/* The workers of one node have succeeded, those of the other are about to: they are not restarted for a newcomer. */
static void a_node_that_comes_at_the_end_is_too_late(void **state)
{
    tutti__connection b, c;
    fixture f;

    (void)state;
    begin_with(&f, (tutti__nodes){.min = 2, .max = 3, .native = true, .last_call_s = -1}, 0, 1,
               NULL);
    b = connect_node(&f);
    c = connect_node(&f);
    join(&f, &f.local, "a", "{}");
    join(&f, &b, "b", "{}");
    hears(&f, &f.local, "round", "\"nodes\":2");
    hears(&f, &b, "round", "\"nodes\":2");
    say(&f, &f.local, OVER);
    join(&f, &c, "c", "{}");
    assert_null(hear(&f, &b));
    say(&f, &b, OVER);
    hears(&f, &b, "end", "\"code\":0");
    hears(&f, &c, "end", "\"code\":0");
    tutti__connection_close(&b);
    tutti__connection_close(&c);
    end(&f);
}

/* Its workers fail as soon as they start. It cannot be refused, as another that comes late: it hosts the job. */
static void a_host_that_comes_late_and_does_not_fit_ends_the_job(void **state)
{
    tutti__connection b;
    fixture f;

    (void)state;
    begin_with(&f, (tutti__nodes){.min = 1, .max = 2, .native = true, .last_call_s = -1}, 1, 1,
               NULL);
    b = connect_node(&f);
    join(&f, &b, "b", "{}");
    hears(&f, &b, "round", "\"nodes\":1");
    join(&f, &f.local, "a", "{}");
    for (struct pollfd p = {b.fd, POLLIN, 0}; poll(&p, 1, 1) == 0;) /* until b has settled */
        tutti__coordinator_serve(f.coordinator);
    hears(&f, &b, "stop", "1 more node came");
    say(&f, &b, OVER);
    hears(&f, &b, "round", "\"nodes\":2");
    hears(&f, &f.local, "round", "\"round\":1");
    say(&f, &f.local, "{\"type\":\"failed\", \"round\":1, \"code\":2, \"permanent\":true}");
    hears(&f, &b, "stop", "\"failing\":true");
    say(&f, &b, "{\"type\":\"over\", \"round\":1, \"port\":1}");
    say(&f, &f.local, "{\"type\":\"over\", \"round\":1, \"port\":1}");
    hears(&f, &b, "end", "\"code\":2");
    assert_null(hear(&f, &b));
    tutti__connection_close(&b);
    end(&f);
}

/* Serves at the coordinator's deadlines until the local node gets a message, for 10 s at most. */
static void wait_for_message(fixture *f)
{
    for (double end_ms = tutti__now_ms() + 10000; tutti__now_ms() < end_ms && !f->local.n_in;) {
        double wait_ms = tutti__coordinator_deadline(f->coordinator) - tutti__now_ms();

        poll(&(struct pollfd){f->local.fd, POLLIN, 0}, 1, wait_ms > 0 ? (int)wait_ms + 1 : 0);
        tutti__coordinator_serve(f->coordinator);
        tutti__connection_read(&f->local);
    }
}

static void say_ready(fixture *f)
{
    char text[160];

    snprintf(text, sizeof text,
             "{\"type\":\"said\", \"round\":0, \"worker\":0, \"start\":0, \"protocol\":%d, "
             "\"kind\":0, \"shards\":4, \"step\":-1, \"build\":\"it\"}",
             TUTTI__AGENT_PROTOCOL);
    say(f, &f->local, text);
}

/* Nodes that come while the first workers still start: they join if these turn out to be elastic; else all restart. */
static void workers_that_start_may_turn_out_elastic(void **state)
{
    (void)state;
    for (int elastic = 0; elastic < 2; elastic++) {
        tutti__connection b;
        fixture f;

        begin_with(&f, (tutti__nodes){.min = 1, .max = 2, .native = true, .last_call_s = -1}, 0,
                   elastic ? 60000 : 200, NULL);
        b = connect_node(&f);
        join(&f, &f.local, "a", "{}");
        hears(&f, &f.local, "round", "\"nodes\":1");
        join(&f, &b, "b", "{}");
        if (elastic) {
            assert_null(hear(&f, &f.local));
            say_ready(&f);
            hears(&f, &f.local, "elastic", "\"round\":0");
            hears(&f, &b, "round", "\"elastic\":true");
        } else {
            wait_for_message(&f);
            hears(&f, &f.local, "stop", "1 more node came");
        }
        tutti__connection_close(&b);
        end(&f);
    }
}

static int missing_from(const fixture *f, int at)
{
    const tutti__roster_node *node =
        tutti__rounds_missing(tutti__coordinator_rounds(f->coordinator), &at);

    return node ? node->id : 0;
}

/* Disconnects because it did not hear from the coordinator, which does not prove that that is dead. */
static void hangs_up(fixture *f, tutti__connection *node, const char *lost)
{
    say(f, node, "{\"type\":\"apart\"}");
    tutti__connection_close(node);
    for (int i = 0; i < 5000 && !console_says(f, lost); i++) {
        tutti__coordinator_serve(f->coordinator);
        poll(NULL, 0, 2); /* a child of connect_node may have the socket, too, until it has ended */
    }
}

/* A newer list without one node is known only to the local node: the lost node still counts, and is asked. */
static void nodes_that_were_lost_are_all_asked(void **state)
{
    tutti__connection b, c;
    fixture f;

    (void)state;
    begin_with(&f, (tutti__nodes){.min = 3, .max = 3, .native = true, .join_timeout_s = 60}, 0, 0,
               NULL);
    b = connect_node(&f);
    c = connect_node(&f);
    join(&f, &f.local, "a", "{\"listens\": 1, \"listens_at\": \"10.0.0.1\"}");
    join(&f, &b, "b", "{\"listens\": 1, \"listens_at\": \"10.0.0.2\"}");
    join(&f, &c, "c", "{\"listens\": 1, \"listens_at\": \"10.0.0.3\"}");
    say_ready(&f);
    for (int i = 1; i <= 3; i++) {
        tutti__connection *node = i == 1 ? &f.local : i == 2 ? &b : &c;

        say(&f, node, "{\"type\":\"nodes\", \"version\":1}");
    }
    hangs_up(&f, &b, "node b (process 1) was lost");
    assert_false(tutti__rounds_is_paused(tutti__coordinator_rounds(f.coordinator)));
    hangs_up(&f, &c, "node c (process 1) was lost");
    assert_true(tutti__rounds_is_paused(tutti__coordinator_rounds(f.coordinator)));
    assert_int_equal(missing_from(&f, 0) + missing_from(&f, 2), 2 + 3);
    tutti__rounds_is_dead(tutti__coordinator_rounds(f.coordinator), 2);
    tutti__rounds_is_dead(tutti__coordinator_rounds(f.coordinator), 3);
    tutti__coordinator_serve(f.coordinator);
    assert_false(tutti__rounds_is_paused(tutti__coordinator_rounds(f.coordinator)));
    assert_int_equal(missing_from(&f, 0), 0);
    end(&f);
}

/* A node comes with a newer list, which does not say who is dead: they are asked again. The
 * waiting has an end. */
static void who_is_dead_is_asked_again_for_a_newer_list(void **state)
{
    const char *theirs =
        "{\"running\": true, \"rounds\": 1, \"me\": 2, \"id\": \"job\", \"roster\": {\"term\": 1, "
        "\"version\": 5, \"list\": \"1 10.0.0.1 1 2;2 10.0.0.2 1 2;3 "
        "10.0.0.3 1 2;\"}}";
    tutti__roster roster = {.term = 1, .version = 4, .n = 3};
    tutti__connection b;
    fixture f;

    (void)state;
    for (int i = 0; i < 3; i++)
        roster.list[i] =
            (tutti__roster_node){.id = i + 1, .workers = 2, .port = 1, .first = i == 0};
    begin_with(&f, (tutti__nodes){.min = 1, .max = 3, .native = true, .join_timeout_s = 2}, 0, 0,
               &roster);
    b = connect_node(&f);
    join(&f, &f.local, "c", "{\"running\": true, \"rounds\": 1, \"me\": 3, \"id\": \"job\"}");
    tutti__rounds_is_dead(tutti__coordinator_rounds(f.coordinator), 1);
    assert_int_equal(missing_from(&f, 0), 2);
    join(&f, &b, "b", theirs);
    hears(&f, &b, "redirect", "");
    assert_int_equal(missing_from(&f, 0), 1);
    assert_int_equal(missing_from(&f, 1), 2);
    hears(&f, &f.local, "welcome", "");
    wait_for_message(&f);
    hears(&f, &f.local, "end",
          "\"code\":3,\"own\":false,\"permanent\":false,\"type\":\"end\",\"why\":\"timed out after "
          "2 s waiting");
    tutti__connection_close(&b);
    end(&f);
}

/* A node comes that knows of this one's successor: it is in a list that this one never had. */
static void whoever_was_followed_asks_for_the_later_one(void **state)
{
    tutti__connection b;
    fixture f;

    (void)state;
    begin_with(&f, (tutti__nodes){.min = 1, .max = 3, .native = true, .last_call_s = -1}, 0, 0,
               NULL);
    b = connect_node(&f);
    join(&f, &f.local, "a", "{}");
    say_ready(&f);
    assert_false(tutti__rounds_is_paused(tutti__coordinator_rounds(f.coordinator)));
    join(&f, &b, "b",
         "{\"running\": true, \"rounds\": 1, \"me\": 2, \"id\": \"job\", \"roster\": {\"term\": 2, "
         "\"version\": 1, \"list\": \"2 10.0.0.2 1 2;3 10.0.0.3 1 2;\"}}");
    hears(&f, &b, "redirect", "");
    assert_true(tutti__rounds_is_paused(tutti__coordinator_rounds(f.coordinator)));
    assert_int_equal(missing_from(&f, 0), 2);
    tutti__connection_close(&b);
    end(&f);
}

/* A node sends nothing unasked: it is pinged in time, however short its limit. */
static void a_silent_node_is_asked_before_it_is_missed(void **state)
{
    double end_ms = tutti__now_ms() + 10000;
    json_t *m = NULL;
    tutti__connection node;
    fixture f;

    (void)state;
    begin_with(&f, (tutti__nodes){.min = 2, .max = 2, .keep_alive_s = 1, .keep_alive_misses = 4}, 0,
               0, NULL);
    node = connect_node(&f);
    join(&f, &node, "b", "{\"node_rank\": 1}");
    while (tutti__now_ms() < end_ms && !(m && is_of(m, "ping")) && !node.fault) {
        json_decref(m);
        tutti__coordinator_serve(f.coordinator);
        tutti__connection_read(&node);
        m = tutti__connection_take(&node);
        poll(&(struct pollfd){node.fd, POLLIN, 0}, 1, 20);
    }
    assert_non_null(m);
    assert_true(is_of(m, "ping"));
    json_decref(m);
    tutti__connection_close(&node);
    end(&f);
}

/* A connection without the secret is rejected, and does not count as a node. */
static void strangers_are_turned_away(void **state)
{
    const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    fixture f;
    char byte;
    int fd;

    (void)state;
    begin(&f, 2, 2, false, 0);
    fd = tutti_connect(&f.address, 5000);
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    for (int i = 0; i < 1000; i++) {
        ssize_t n;

        tutti__coordinator_serve(f.coordinator);
        n = recv(fd, &byte, 1, 0);
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            break;
        poll(&(struct pollfd){fd, POLLIN, 0}, 1, 5);
        assert_int_not_equal(i, 999);
    }
    close(fd);
    end(&f);
}

/* Code 256 would become 0 for the launcher's parent. */
static void a_failure_is_no_success_whatever_code_it_says(void **state)
{
    static const char *const CODES[] = {"256", "0", "-1", "9223372036854775807", "\"x\""};
    char message[96];
    fixture f;

    (void)state;
    for (size_t i = 0; i < sizeof CODES / sizeof *CODES; i++) {
        begin(&f, 1, 1, false, 0);
        join(&f, &f.local, "a", "{}");
        hears(&f, &f.local, "round", "\"round\":0");
        snprintf(message, sizeof message,
                 "{\"type\": \"failed\", \"round\": 0, \"code\": %s, \"why\": \"it fell\"}",
                 CODES[i]);
        say(&f, &f.local, message);
        hears(&f, &f.local, "stop", "it fell");
        say(&f, &f.local, "{\"type\": \"over\", \"round\": 0, \"port\": 1}");
        hears(&f, &f.local, "end", "\"code\":1,");
        end(&f);
    }
}

/* They have as much time to authenticate as a slow node; meanwhile others connect. */
static void strangers_that_wait_keep_nobody_out(void **state)
{
    enum { STRANGERS = 200 };
    tutti__connection node;
    int fds[STRANGERS];
    fixture f;

    (void)state;
    test_needs_files(2 * STRANGERS + 50);
    begin(&f, 2, 2, false, 0);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = tutti_connect(&f.address, 5000);
        tutti__coordinator_serve(f.coordinator);
    }
    node = connect_node(&f);
    join(&f, &node, "b", "{\"node_rank\": 1}");
    join(&f, &f.local, "a", "{}");
    hears(&f, &node, "round", "\"world_size\":4");
    tutti__connection_close(&node);
    for (int i = 0; i < STRANGERS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_that_do_not_fit_are_refused),
        cmocka_unit_test(differences_that_may_be_are_warned_of),
        cmocka_unit_test(messages_of_another_round_are_not_heard),
        cmocka_unit_test(the_cause_is_told_not_its_effect),
        cmocka_unit_test(a_spare_node_waits_for_a_place),
        cmocka_unit_test(what_an_orderly_stop_does_takes_no_restart),
        cmocka_unit_test(a_node_that_leaves_hides_no_failure),
        cmocka_unit_test(a_node_that_leaves_early_is_in_no_round),
        cmocka_unit_test(a_node_that_comes_at_the_end_is_too_late),
        cmocka_unit_test(a_host_that_comes_late_and_does_not_fit_ends_the_job),
        cmocka_unit_test(workers_that_start_may_turn_out_elastic),
        cmocka_unit_test(nodes_that_were_lost_are_all_asked),
        cmocka_unit_test(who_is_dead_is_asked_again_for_a_newer_list),
        cmocka_unit_test(whoever_was_followed_asks_for_the_later_one),
        cmocka_unit_test(a_silent_node_is_asked_before_it_is_missed),
        cmocka_unit_test(strangers_are_turned_away),
        cmocka_unit_test(a_failure_is_no_success_whatever_code_it_says),
        cmocka_unit_test(strangers_that_wait_keep_nobody_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

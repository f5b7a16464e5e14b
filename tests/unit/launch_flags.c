/* launch: the command line of `tutti run`.   SPDX-License-Identifier: MIT */
#include "launch/front/flags.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static tutti__run_line line;

/* Reads "run TEXT true", words parted by blanks. */
static tutti_status read_line(const char *text)
{
    static char copy[1024];
    char *argv[64] = {copy, NULL}, *rest = copy, *word;
    int argc = 0;

    tutti__run_line_free(&line);
    snprintf(copy, sizeof copy, "run %s true", text);
    while ((word = strsep(&rest, " ")) != NULL)
        if (*word)
            argv[argc++] = word;
    return tutti__run_line_read(&line, argc, argv);
}

static const tutti__nodes *nodes_of(const char *text)
{
    if (read_line(text) != TUTTI_OK)
        fail_msg("%s: %s", text, tutti_last_error());
    assert_string_equal(line.opts.argv[0], "true");
    return &line.opts.nodes;
}

static void refused(const char *text, const char *word)
{
    assert_int_equal(read_line(text), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), word))
        fail_msg("%s: no \"%s\" in \"%s\"", text, word, tutti_last_error());
}

static void check_nodes(const tutti__nodes *nodes, int min, int max, bool native)
{
    assert_int_equal(nodes->min, min);
    assert_int_equal(nodes->max, max);
    assert_int_equal(nodes->native, native);
}

static void check_place(const tutti__nodes *nodes, const char *host, int port)
{
    assert_non_null(nodes->host);
    assert_string_equal(nodes->host, host);
    assert_int_equal(nodes->port, port);
}

static void one_node_needs_no_place(void **state)
{
    (void)state;
    check_nodes(nodes_of(""), 1, 1, false);
    assert_null(line.opts.master_addr);
    check_nodes(nodes_of("--nnodes=1 --nproc_per_node=2 --rdzv_id=101 "
                         "--rdzv_endpoint=localhost:5972"),
                1, 1, false);
    assert_null(line.opts.nodes.host);
    assert_string_equal(line.opts.master_addr, "localhost");
    assert_int_equal(line.opts.master_port, 5972);
    assert_int_equal(line.opts.n, 2);
    check_nodes(nodes_of("--nnodes 1 --rdzv-backend c10d --rdzv-endpoint h:29400 --max-restarts 3"),
                1, 1, true);
    assert_null(line.opts.nodes.host);
    assert_null(line.opts.master_addr);
    assert_int_equal(line.opts.master_port, 0);
    assert_int_equal(line.opts.max_restarts, 3);
    check_nodes(nodes_of("--standalone --nnodes 1:4 --rdzv-endpoint nonsense:x:y"), 1, 1, false);
    assert_null(line.opts.master_addr);
    nodes_of("--master-addr [0:0:0:0:0:0:0:1] --master-port 5000");
    assert_string_equal(line.opts.master_addr, "0:0:0:0:0:0:0:1");
    assert_int_equal(line.opts.master_port, 5000);
}

/* Case 56, and torchrun's other spellings. */
static void several_nodes(void **state)
{
    const tutti__nodes *nodes;

    (void)state;
    nodes = nodes_of("--nnodes 2:20 --rdzv-endpoint head");
    check_nodes(nodes, 2, 20, true);
    check_place(nodes, "head", 29400);
    refused("--nnodes 2:20:30", "MIN:MAX");
    refused("--nnodes 3:2", "MIN <= MAX");
    refused("--nnodes 0", "1 <= MIN");
    refused("--nnodes :3", "MIN:MAX");
    refused("--nnodes two", "MIN:MAX");

    nodes = nodes_of("--nnodes 2 --node-rank 1 --master-addr a.b --master-port 77");
    check_nodes(nodes, 2, 2, false);
    check_place(nodes, "a.b", 77);
    assert_true(nodes->has_node_rank);
    assert_int_equal(nodes->node_rank, 1);
    assert_string_equal(line.opts.master_addr, "a.b");
    assert_int_equal(line.opts.master_port, 77);
    check_place(nodes_of("--nnodes 2 --node-rank 1 --master-addr a"), "a", 29500);
    check_place(nodes_of("--nnodes 2 --node-rank 1 --rdzv-endpoint [::1]:6000"), "::1", 6000);
    check_place(nodes_of("--nnodes 2 --node-rank 0 --rdzv-endpoint h --master-port 6"), "h", 6);
    check_nodes(nodes_of("--nnodes 1:4 --node-rank 0 --rdzv-endpoint h:6000"), 4, 4, false);
    nodes = nodes_of("--nnodes 2 --rdzv-backend native --rdzv-endpoint [fe80::1%eth0] "
                     "--local-addr 10.0.0.2");
    check_place(nodes, "fe80::1%eth0", 29400);
    assert_string_equal(nodes->local_addr, "10.0.0.2");
    assert_null(line.opts.master_addr);
    assert_false(
        nodes_of("--nnodes 2 --node-rank 7 --rdzv-backend c10d --rdzv-endpoint h")->has_node_rank);

    setenv("MASTER_ADDR", "job-master-0", 1);
    setenv("MASTER_PORT", "23456", 1);
    check_place(nodes_of("--nnodes 2 --node-rank 1"), "job-master-0", 23456);
    check_place(nodes_of("--nnodes 2 --node-rank 1 --master-port 5"), "job-master-0", 5);
    check_place(nodes_of("--nnodes 1:2 --rdzv-endpoint e"), "e", 29400);
    nodes_of("");
    assert_null(line.opts.master_addr);
    setenv("MASTER_PORT", "x", 1);
    refused("--nnodes 2 --node-rank 1", "MASTER_PORT is \"x\"");
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
}

/* srun with one task per node: the step determines the nodes and the endpoint, unless flags do. */
static void a_step_of_slurm_is_one_job(void **state)
{
    static const char *const STEP[][2] = {{"SLURM_STEP_NUM_TASKS", "2"},
                                          {"SLURM_PROCID", "1"},
                                          {"SLURM_STEP_NUM_NODES", "2"},
                                          {"SLURM_NODEID", "1"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_STEP_NODELIST", "n[7-8]"},
                                          {"SLURM_JOB_ID", "4711"},
                                          {"SLURM_STEP_ID", "0"}};
    const tutti__nodes *nodes;

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(STEP); i++)
        setenv(STEP[i][0], STEP[i][1], 1);
    nodes = nodes_of("-n 4");
    check_nodes(nodes, 2, 2, false);
    assert_string_equal(nodes->host, "n7");
    assert_int_equal(nodes->node_rank, 1);
    assert_string_equal(line.opts.id, "4711.0");
    check_nodes(nodes_of("--standalone"), 1, 1, false);
    assert_null(line.opts.nodes.host);
    check_nodes(nodes_of("--nnodes 1"), 1, 1, false);
    for (size_t i = 0; i < TUTTI__COUNT_OF(STEP); i++)
        unsetenv(STEP[i][0]);
}

/* Case 66. */
static void what_is_missing_is_named(void **state)
{
    (void)state;
    refused("--nnodes 2 --node-rank 0", "--rdzv-endpoint HOST:PORT, or --master-addr");
    refused("--nnodes 1:2", "--rdzv-endpoint HOST:PORT");
    refused("--nnodes 2 --master-addr h --master-port 5", "Give --node-rank K, from 0 to 1");
    refused("--nnodes 2 --node-rank 0 --rdzv-endpoint h", "the port is missing");
    refused("--nnodes 2 --node-rank 2 --rdzv-endpoint h:5", "a number below 2 (--nnodes)");
    refused("--node-rank 1", "a number below 1");
    refused("--nnodes 2 --node-rank 0 --rdzv-endpoint h:0", "port 0 of h");
    refused("--rdzv-endpoint ::1:5", "brackets");
    refused("--rdzv-endpoint [::1", "brackets");
    refused("--rdzv-endpoint tcp://h:5", "IPv6 address in brackets");
    refused("--rdzv-endpoint h/x:5", "without '/'");
    refused("--rdzv-endpoint h:99999", "port from 0 to 65535");
    refused("--rdzv-backend etcd-v2", "without a server of etcd");
    refused("--rdzv-backend zeus", "static, native or c10d");
    refused("--rdzv-backend statci", "(did you mean static?)");
    refused("--standalone --nnodes 2", "--standalone");
    refused("--max-restarts -1", "--max-restarts is \"-1\"");
}

static void rendezvous_configuration(void **state)
{
    const tutti__nodes *nodes;

    (void)state;
    nodes = nodes_of("--rdzv-conf join_timeout=60,last_call_timeout=0,is_host=yes,"
                     "keep_alive_interval=0.5,keep_alive_max_attempt=7,close_timeout=3,"
                     "store_type=tcp,read_timeout=1,heartbeat_timeout=5");
    assert_true(nodes->join_timeout_s == 60 && nodes->last_call_s < 0);
    assert_true(nodes->keep_alive_s == 0.5 && nodes->keep_alive_misses == 7 && nodes->hosts == 1);
    assert_int_equal(nodes_of("--rdzv-conf is_host=0")->hosts, -1);
    assert_int_equal(nodes_of("--rdzv-conf merge_output=yes")->merges, 1);
    assert_true(nodes_of("--rdzv-conf timeout=900")->join_timeout_s == 900);
    assert_true(nodes_of("--rdzv-conf=")->join_timeout_s == 0);
    refused("--rdzv-conf join_timeot=3", "did you mean join_timeout?");
    refused("--rdzv-conf xyzzyxyzzy=3", "knows no xyzzyxyzzy");
    refused("--rdzv-conf join_timeout", "KEY=VALUE");
    refused("--rdzv-conf join_timeout=", "KEY=VALUE");
    refused("--rdzv-conf join_timeout=5,", "KEY=VALUE");
    refused("--rdzv-conf join_timeout=0", "seconds from 1e-9");
    refused("--rdzv-conf keep_alive_max_attempt=0", "from 1 to");
    refused("--rdzv-conf is_host=maybe", "true or false");
    refused("--rdzv-conf store_type=file", "over TCP");
}

static void abbreviations(void **state)
{
    (void)state;
    nodes_of("--nproc 2 --stand --max-r 3 --rdzv_i j");
    assert_int_equal(line.opts.n, 2);
    assert_int_equal(line.opts.max_restarts, 3);
    assert_string_equal(line.opts.id, "j");
    nodes_of("--e null --nproc-per-nod=2 -n=3"); /* ours, --env, does not count */
    assert_int_equal(line.opts.n, 3);
    refused("--no", "--node-rank, --no-python");
    refused("--m", "--master-addr, --master-port, --max-restarts, --monitor-interval, --module");
    refused("--rdzv", "--rdzv-endpoint");
    refused("--stand=yes", "--standalone takes no value");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_node_needs_no_place),    cmocka_unit_test(several_nodes),
        cmocka_unit_test(a_step_of_slurm_is_one_job), cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(rendezvous_configuration),   cmocka_unit_test(abbreviations),
    };
    int failures;

    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    tutti__run_line_free(&line);
    return failures;
}

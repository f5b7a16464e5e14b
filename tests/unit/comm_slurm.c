/* comm: Slurm's host lists, expanded as Slurm does, and a step's variables; malformed ones are errors with a
 * message, for any bytes.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/slurm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static const struct {
    const char *list, *hosts; /* NULL: malformed */
    /* 22.05: no text after brackets, blanks separate, broken brackets are names */
    bool slurm_agrees;
} LISTS[] = {
    {"n0", "n0", true},
    {"gpu[07-09,12],x", "gpu07 gpu08 gpu09 gpu12 x", true},
    {"prefix[1-3,07],x2y[01-02]", "prefix1 prefix2 prefix3 prefix07 x2y01 x2y02", true},
    {"r[1-2]-n[01-03]", "r1-n01 r1-n02 r1-n03 r2-n01 r2-n02 r2-n03", true},
    {"r[1-2][3-4]", "r13 r14 r23 r24", true},
    {"n[9-11]", "n9 n10 n11", true},
    {"n[09-11]", "n09 n10 n11", true},
    {"n[99-101]", "n99 n100 n101", true},
    {"n[1-010]", "n1 n2 n3 n4 n5 n6 n7 n8 n9 n10", true},
    {"n[00001-3]", "n00001 n00002 n00003", true},
    {"n[2,1]", "n2 n1", true},
    {"n[1,1]", "n1 n1", true},
    {"a[1-2],b[3-4]", "a1 a2 b3 b4", true},
    {"[1-2]", "1 2", true},
    {"node-12[0-3]", "node-120 node-121 node-122 node-123", true},
    {"10.0.0.7,login.example.org", "10.0.0.7 login.example.org", true},
    {"h[5]-ib,k", "h5-ib k", false},
    {"a[1-2]b[3-4]c", "a1b3c a1b4c a2b3c a2b4c", false},
    {"", NULL, false},
    {",", NULL, false},
    {"a,,b", NULL, false},
    {"a,", NULL, false},
    {",a", NULL, false},
    {"a b", NULL, false},
    {"n[", NULL, false},
    {"n[1-2", NULL, false},
    {"n[1,", NULL, false},
    {"n]", NULL, false},
    {"n[]", NULL, true},
    {"n[x]", NULL, true},
    {"n[3-1]", NULL, true},
    {"n[1--2]", NULL, true},
    {"n[1-2-3]", NULL, true},
    {"n[0x1]", NULL, true},
    {"n[+1]", NULL, false},
    {"n[1 - 2]", NULL, false},
    {"n[[1]]", NULL, true},
    {"n[1-9999999999]", NULL, true},
    {"n[99999999999999999999]", NULL, false},
    {"n[0-1048576]", NULL, true},
    {"n[1-2000]x[1-2000]", NULL, false},
    {"n[0-1048575],m", NULL, true},
};

/* All hosts, a blank between two; "" and the message made if one fails. */
static void expand(const char *list, char *text, size_t capacity)
{
    int n;
    size_t used = 0;

    text[0] = '\0';
    if (tutti__host_list_count(list, &n) != TUTTI_OK)
        return;
    for (int i = 0; i < n; i++) {
        if (i > 0)
            text[used++] = ' ';
        assert_int_equal(tutti__host_list_get(list, i, text + used, capacity - used), TUTTI_OK);
        used += strlen(text + used);
    }
}

static void lists_are_expanded(void **state)
{
    char text[512], small[4];
    int n;

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(LISTS); i++) {
        const char *list = LISTS[i].list;

        expand(list, text, sizeof text);
        if (strcmp(text, LISTS[i].hosts ? LISTS[i].hosts : "") != 0)
            fail_msg("\"%s\" became \"%s\"", list, text);
        if (LISTS[i].hosts)
            continue;
        assert_int_equal(tutti__host_list_get(list, 0, text, sizeof text), TUTTI_ERR_ARG);
        assert_non_null(strstr(tutti_last_error(), "is malformed"));
        assert_non_null(strstr(tutti_last_error(), "node[01-04,7],login"));
    }
    assert_int_equal(tutti__host_list_count("n[0-1048575]", &n), TUTTI_OK);
    assert_int_equal(n, 1 << 20);
    assert_int_equal(tutti__host_list_get("n[0-1048575]", n - 1, text, sizeof text), TUTTI_OK);
    assert_string_equal(text, "n1048575");
    assert_int_equal(tutti__host_list_get("a,b", 2, text, sizeof text), TUTTI_ERR_ARG);
    assert_int_equal(tutti__host_list_get("a,b", -1, text, sizeof text), TUTTI_ERR_ARG);
    assert_int_equal(tutti__host_list_get("abc", 0, small, sizeof small), TUTTI_OK);
    assert_int_equal(tutti__host_list_get("abcd", 0, small, sizeof small), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "longer than 3 characters"));
    assert_int_equal(tutti__host_list_get("ab[10]", 0, small, sizeof small), TUTTI_ERR_ARG);
}

/* scontrol asks for a configuration, of any cluster. */
static bool make_configuration(char path[64])
{
    FILE *out;
    int fd;

    strcpy(path, "/tmp/tutti-slurm-XXXXXX");
    if ((fd = mkstemp(path)) < 0 || !(out = fdopen(fd, "w")))
        return false;
    fputs("ClusterName=t\nSlurmctldHost=h(127.0.0.1)\nNodeName=a\nPartitionName=p Nodes=a\n", out);
    fclose(out);
    setenv("SLURM_CONF", path, 1);
    return true;
}

static void slurm_expands_them_so_too(void **state)
{
    char path[64], command[256], text[512];

    (void)state;
    if (system("command -v scontrol >/dev/null") != 0 || !make_configuration(path)) {
        printf("no scontrol to compare with\n");
        skip();
    }
    for (size_t i = 0; i < TUTTI__COUNT_OF(LISTS); i++) {
        FILE *in;
        size_t n;

        if (!LISTS[i].slurm_agrees)
            continue;
        snprintf(command, sizeof command, "timeout 10 scontrol show hostnames '%s' 2>/dev/null",
                 LISTS[i].list);
        in = popen(command, "r");
        assert_non_null(in);
        n = fread(text, 1, sizeof text - 1, in);
        text[n] = '\0';
        pclose(in); /* 0 for some that it refuses */
        for (char *p = text; (p = strchr(p, '\n')); p++)
            *p = ' ';
        if (n > 0)
            text[n - 1] = '\0';
        if (strcmp(text, LISTS[i].hosts ? LISTS[i].hosts : "") != 0)
            fail_msg("scontrol makes \"%s\" of \"%s\"", text, LISTS[i].list);
    }
    unlink(path);
    unsetenv("SLURM_CONF");
}

/* A list with some bytes changed either fails or has hosts that can all be read; checked by sanitizers. */
static void any_text_is_survived(void **state)
{
    static const char BYTES[] = "[[]],,--n0123456789(x ";
    int whole = 0;

    (void)state;
    for (uint32_t round = 0; round < 20000; round++) {
        uint32_t words[12];
        char list[64] = "r[1-2]n[07-9,12],x2y[01-02],2(x3)", host[8];
        size_t length = strlen(list);
        int n, tasks;

        tutti__philox_fill(7, (tutti__philox_counter){{round, 0, 0, 0}}, 1, words,
                           TUTTI__COUNT_OF(words));
        for (uint32_t i = 0; i < words[0] % 4; i++)
            list[words[1 + i] % length] = BYTES[words[5 + i] % (sizeof BYTES - 1)];
        if (words[4] % 3 == 0)
            list[words[9] % length] = '\0';
        (void)tutti__tasks_on_node(list + words[10] % (length + 1), (int)(round % 5), &tasks);
        if (tutti__host_list_count(list, &n) != TUTTI_OK)
            continue;
        whole++;
        assert_in_range(n, 1, 1 << 20);
        for (int i = 0; i < n; i += 1 + n / 7)
            if (tutti__host_list_get(list, i, host, sizeof host) == TUTTI_OK)
                assert_in_range(strlen(host), 1, sizeof host - 1);
    }
    assert_in_range(whole, 2000, 18000);
}

static void tasks_of_a_node(void **state)
{
    int tasks;

    (void)state;
    assert_int_equal(tutti__tasks_on_node("2(x3),1", 0, &tasks), TUTTI_OK);
    assert_int_equal(tasks, 2);
    assert_int_equal(tutti__tasks_on_node("2(x3),1", 2, &tasks), TUTTI_OK);
    assert_int_equal(tasks, 2);
    assert_int_equal(tutti__tasks_on_node("2(x3),1", 3, &tasks), TUTTI_OK);
    assert_int_equal(tasks, 1);
    assert_int_equal(tutti__tasks_on_node("2(x3),1", 4, &tasks), TUTTI_ERR_ARG);
    for (const char *const *bad = (const char *const[]){"", "2(x3", "2(x0)", "0", "-1", "2x",
                                                        "2(y3)", "99999999999", NULL};
         *bad; bad++) {
        assert_int_equal(tutti__tasks_on_node(*bad, 0, &tasks), TUTTI_ERR_ARG);
        assert_non_null(strstr(tutti_last_error(), "SLURM_STEP_TASKS_PER_NODE"));
    }
}

static const char *const STEP[][2] = {{"SLURM_STEP_NUM_TASKS", "7"},
                                      {"SLURM_STEP_NUM_NODES", "4"},
                                      {"SLURM_STEP_NODELIST", "gpu[07-09,12]"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                                      {"SLURM_PROCID", "5"},
                                      {"SLURM_NODEID", "2"},
                                      {"SLURM_LOCALID", "1"},
                                      {"SLURM_JOB_ID", "4711"},
                                      {"SLURM_STEP_ID", "0"}};

static void step_environment(void)
{
    static const char *const OTHERS[] = {
        "SLURM_RESTART_COUNT",  "SLURM_PTY_PORT", "SLURM_TASK_PID",
        "OMPI_COMM_WORLD_RANK", "PMI_RANK",       "MPI_LOCALRANKID",
        "SLURM_JOB_NAME"};

    for (size_t i = 0; i < TUTTI__COUNT_OF(OTHERS); i++)
        unsetenv(OTHERS[i]);
    for (size_t i = 0; i < TUTTI__COUNT_OF(STEP); i++)
        setenv(STEP[i][0], STEP[i][1], 1);
}

static void steps_are_read(void **state)
{
    tutti__slurm_step step;
    int port;

    (void)state;
    step_environment();
    setenv("SLURM_JOB_NAME", "interactive", 1); /* salloc's, which its sruns inherit */
    assert_int_equal(tutti__slurm_step_read(&step), TUTTI_OK);
    assert_true(step.task);
    assert_int_equal(step.n_tasks, 7);
    assert_int_equal(step.rank, 5);
    assert_int_equal(step.n_nodes, 4);
    assert_int_equal(step.node, 2);
    assert_int_equal(step.local_tasks, 2);
    assert_int_equal(step.local_rank, 1);
    assert_string_equal(step.first_host, "gpu07");
    assert_string_equal(step.name, "4711.0");
    assert_int_equal(step.restarts, 0);
    assert_in_range(step.port, 10000, 29999);
    port = step.port;
    setenv("SLURM_STEP_ID", "1", 1);
    setenv("SLURM_RESTART_COUNT", "3", 1);
    assert_int_equal(tutti__slurm_step_read(&step), TUTTI_OK);
    assert_int_not_equal(step.port, port);
    assert_int_equal(step.restarts, 3);
}

static void half_a_step_is_an_error(void **state)
{
    static const char *const BAD[][3] = {
        {"SLURM_PROCID", "7", "SLURM_PROCID is \"7\", expected an integer from 0 to 6"},
        {"SLURM_PROCID", "x", "SLURM_PROCID is \"x\""},
        {"SLURM_STEP_NUM_TASKS", "0", "SLURM_STEP_NUM_TASKS is \"0\""},
        {"SLURM_NODEID", "4", "SLURM_NODEID is \"4\", expected an integer from 0 to 3"},
        {"SLURM_LOCALID", "2", "SLURM_LOCALID is \"2\", expected an integer from 0 to 1"},
        {"SLURM_STEP_NODELIST", "gpu[", "host list \"gpu[\" is malformed"},
        {"SLURM_STEP_TASKS_PER_NODE", "2", "which has no entry for node 2"},
        {"SLURM_RESTART_COUNT", "-1", "SLURM_RESTART_COUNT is \"-1\""},
    };
    tutti__slurm_step step;

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(BAD); i++) {
        step_environment();
        setenv(BAD[i][0], BAD[i][1], 1);
        assert_int_equal(tutti__slurm_step_read(&step), TUTTI_ERR_ARG);
        if (!strstr(tutti_last_error(), BAD[i][2]))
            fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), BAD[i][2]);
    }
    for (size_t i = 0; i < TUTTI__COUNT_OF(STEP); i++) {
        step_environment();
        unsetenv(STEP[i][0]);
        assert_int_equal(tutti__slurm_step_read(&step), TUTTI_ERR_ARG);
        assert_non_null(
            strstr(tutti_last_error(), i > 0 ? "is not set, although SLURM_STEP_NUM_TASKS is"
                                             : "is not set, although SLURM_PROCID is"));
        assert_non_null(strstr(tutti_last_error(), STEP[i][0]));
    }
}

/* Shells and mpirun's ranks have variables of a step of which they are no tasks. */
static void others_are_no_tasks(void **state)
{
    tutti__slurm_step step;
    char session[32];
    pid_t pid;
    int status;

    (void)state;
    step_environment();
    unsetenv("SLURM_STEP_NUM_TASKS"); /* sbatch's shell */
    unsetenv("SLURM_STEP_ID");
    setenv("SLURM_PROCID", "0", 1);
    assert_int_equal(tutti__slurm_step_read(&step), TUTTI_OK);
    assert_false(step.task);
    step_environment();
    setenv("SLURM_STEP_ID", "4294967290", 1); /* salloc's shell on a node of the job */
    assert_false(tutti__slurm_is_task());
    step_environment();
    setenv("OMPI_COMM_WORLD_RANK", "1", 1); /* mpirun in a job */
    assert_false(tutti__slurm_is_task());
    step_environment();
    setenv("PMI_RANK", "1", 1); /* srun --mpi=pmi2 */
    assert_true(tutti__slurm_is_task());
    setenv("MPI_LOCALRANKID", "1", 1); /* hydra in a job */
    assert_false(tutti__slurm_is_task());

    step_environment();
    setenv("SLURM_PTY_PORT", "4000", 1);
    snprintf(session, sizeof session, "%ld", (long)getpid());
    setenv("SLURM_TASK_PID", session, 1); /* srun --pty tutti train */
    assert_true(tutti__slurm_is_task());
    pid = fork(); /* srun --pty bash, and a program in it */
    assert_true(pid >= 0);
    if (pid == 0) {
        setsid();
        snprintf(session, sizeof session, "%ld", (long)getpid());
        setenv("SLURM_TASK_PID", session, 1);
        if (!tutti__slurm_is_task() || (pid = fork()) < 0)
            _exit(1);
        if (pid == 0)
            _exit(tutti__slurm_is_task());
        _exit(waitpid(pid, &status, 0) != pid || status != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_expanded),   cmocka_unit_test(slurm_expands_them_so_too),
        cmocka_unit_test(any_text_is_survived), cmocka_unit_test(tasks_of_a_node),
        cmocka_unit_test(steps_are_read),       cmocka_unit_test(half_a_step_is_an_error),
        cmocka_unit_test(others_are_no_tasks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

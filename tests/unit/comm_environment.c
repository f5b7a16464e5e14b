/* comm: the group that a launcher's variables describe, and the message for each way in which they can be incomplete.
 * SPDX-License-Identifier: MIT */
#include "comm/bootstrap/launcher_environment.h"
#include "comm/comm.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/group.h>
#include <cmocka.h>

static const char *const ALL[] = {"RANK",
                                  "LOCAL_RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "TUTTI_STORE",
                                  "TORCHELASTIC_RESTART_COUNT",
                                  "TORCHELASTIC_USE_AGENT_STORE",
                                  "SLURM_PROCID",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_NODEID",
                                  "SLURM_STEP_TASKS_PER_NODE",
                                  "SLURM_STEP_NODELIST",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_JOB_NAME",
                                  "SLURM_PTY_PORT",
                                  "TORCHELASTIC_RUN_ID",
                                  "TUTTI_SECRET",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMIX_NAMESPACE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS"};

/* Sets "NAME=value NAME=value" and nothing else. */
static void environment(const char *text)
{
    char copy[1024], *rest = copy, *word;

    for (size_t i = 0; i < TUTTI__COUNT_OF(ALL); i++)
        unsetenv(ALL[i]);
    strncpy(copy, text, sizeof copy - 1);
    copy[sizeof copy - 1] = '\0';
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        char *equals = strchr(word, '=');

        *equals = '\0';
        assert_int_equal(setenv(word, equals + 1, 1), 0);
    }
}

static tutti__env_group read_ok(const char *text)
{
    tutti__env_group group;

    environment(text);
    if (tutti__env_group_read(&group) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return group;
}

#define TORCH                                                                                      \
    "RANK=1 LOCAL_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500"
#define SLURM                                                                                      \
    "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=1 SLURM_NODEID=2 "                        \
    "SLURM_STEP_TASKS_PER_NODE=2(x3),1 "                                                           \
    "SLURM_STEP_NODELIST=gpu[07-09,12] SLURM_JOB_ID=4711 SLURM_STEP_ID=0"
#define OMPI                                                                                       \
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "                  \
    "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=job1"

static void launchers_are_read(void **state)
{
    tutti__env_group g = read_ok("");
    int port;

    (void)state;
    assert_int_equal(g.world_size, 1);
    assert_string_equal(g.source, "none");
    g = read_ok(TORCH);
    assert_int_equal(g.rank, 1);
    assert_int_equal(g.world_size, 4);
    assert_int_equal(g.local_rank, 1);
    assert_int_equal(g.local_world_size, 2);
    assert_string_equal(g.master_addr, "10.0.0.1");
    assert_int_equal(g.master_port, 29500);
    assert_false(g.hosted);
    g = read_ok(TORCH " TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=3");
    port = g.master_port; /* torchrun's own store has 29500 */
    assert_in_range(port, 10000, 29999);
    assert_int_not_equal(port, 29500);
    assert_int_equal(g.attempt, 3);
    assert_int_equal(read_ok(TORCH " TORCHELASTIC_USE_AGENT_STORE=True").master_port, port);
    g = read_ok(TORCH " TUTTI_STORE=[::1]:4000 TORCHELASTIC_USE_AGENT_STORE=True");
    assert_true(g.hosted);
    assert_string_equal(g.master_addr, "::1");
    assert_int_equal(g.master_port, 4000);
    g = read_ok("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 TUTTI_STORE=file:/shared/job:7");
    assert_true(g.hosted);
    assert_string_equal(g.store_file, "/shared/job:7");
    g = read_ok(SLURM);
    assert_string_equal(g.source, "Slurm");
    assert_int_equal(g.rank, 5);
    assert_int_equal(g.world_size, 7);
    assert_int_equal(g.local_world_size, 2);
    assert_string_equal(g.master_addr, "gpu07");
    port = g.master_port;
    assert_in_range(port, 10000, 29999);
    assert_int_equal(read_ok(SLURM).master_port, port);
    assert_int_not_equal(read_ok(SLURM " SLURM_STEP_ID=1").master_port, port);
    assert_int_equal(read_ok(SLURM " MASTER_ADDR=h MASTER_PORT=99").master_port, 99);
    assert_int_equal(read_ok(SLURM " SLURM_JOB_NAME=interactive").world_size, 7); /* in salloc */
    assert_int_equal(
        read_ok("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_JOB_ID=1").world_size,
        1);                      /* a batch shell */
    g = read_ok(OMPI " " SLURM); /* mpirun in a Slurm job */
    assert_string_equal(g.source, "Open MPI");
    assert_string_equal(g.master_addr, "127.0.0.1");
    assert_int_equal(g.local_rank, 1);
    g = read_ok("PMI_RANK=0 PMI_SIZE=3 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=3");
    assert_string_equal(g.source, "PMI");
    assert_int_equal(g.world_size, 3);
    g = read_ok(
        "PMI_RANK=4 PMI_SIZE=6 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 MASTER_ADDR=h MASTER_PORT=9 "
        "SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=3 SLURM_LOCALID=0"); /* hydra's daemons by srun */
    assert_string_equal(g.source, "PMI");
    assert_int_equal(g.rank, 4);
    g = read_ok("RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=99"); /* by hand */
    assert_int_equal(g.local_world_size, 0);
    /* a group of one needs no master */
    g = read_ok("RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1");
    assert_int_equal(g.world_size, 1);
}

/* The usual prologue of an sbatch script exports some of torchrun's variables; the others come from the step. */
static void launchers_are_read_beside_what_is_exported(void **state)
{
    tutti__env_group g = read_ok(SLURM " WORLD_SIZE=7 MASTER_ADDR=10.0.0.7 MASTER_PORT=29500");
    int port;

    (void)state;
    assert_string_equal(g.source, "Slurm");
    assert_int_equal(g.rank, 5);
    assert_int_equal(g.world_size, 7);
    assert_int_equal(g.local_rank, 1);
    assert_int_equal(g.local_world_size, 2);
    assert_string_equal(g.master_addr, "10.0.0.7");
    assert_int_equal(g.master_port, 29500);
    g = read_ok(SLURM " WORLD_SIZE=7 RANK=5");
    assert_int_equal(g.local_rank, 1);
    port = g.master_port;
    g = read_ok(SLURM " WORLD_SIZE=7 MASTER_ADDR=10.0.0.7");
    assert_string_equal(g.master_addr, "10.0.0.7");
    assert_int_equal(g.master_port, port); /* of job and step */
    g = read_ok(SLURM " MASTER_PORT=29500");
    assert_string_equal(g.master_addr, "gpu07");
    assert_int_equal(g.master_port, 29500);
    g = read_ok(OMPI " WORLD_SIZE=2 MASTER_PORT=29500");
    assert_string_equal(g.source, "Open MPI");
    assert_string_equal(g.master_addr, "127.0.0.1");
    assert_int_equal(g.master_port, 29500);
    g = read_ok("PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3 WORLD_SIZE=3 "
                "MASTER_ADDR=h MASTER_PORT=9");
    assert_int_equal(g.rank, 1);
    g = read_ok(SLURM " " TORCH); /* srun torchrun */
    assert_string_equal(g.source, "RANK");
    assert_int_equal(g.world_size, 4);
}

static void a_launcher_inside_a_launcher_is_known(void **state)
{
    static const struct {
        const char *environment, *name;
        int n_ranks;
        bool first, agents;
    } CASES[] = {
        {"", NULL, 1, true, false},
        {TORCH, "the launcher that set RANK and LOCAL_RANK", 4, false, false},
        {TORCH " TORCHELASTIC_RUN_ID=x", "torchrun", 4, false, false},
        {TORCH " TORCHELASTIC_RUN_ID=x TUTTI_SECRET=0123456789abcdef", "tutti run", 4, false,
         false},
        {"RANK=0 LOCAL_RANK=0 WORLD_SIZE=1", NULL, 1, true, false},
        {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=9", NULL, 1, true, false}, /* PyTorchJob */
        {OMPI, "mpirun", 2, false, false},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0", NULL, 1,
         true, false},
        {"PMI_RANK=0 PMI_SIZE=3 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=3", "mpirun", 3, true, false},
        {SLURM, "srun", 7, false, true},
        {SLURM " " TORCH, "the launcher that set RANK and LOCAL_RANK", 4, false, false},
        {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_JOB_ID=1", NULL, 1, true, false},
    };

    (void)state;
    for (size_t i = 0; i < TUTTI__COUNT_OF(CASES); i++) {
        tutti__launcher found;

        environment(CASES[i].environment);
        found = tutti__launcher_find();
        if (found.n_ranks != CASES[i].n_ranks || found.first_on_host != CASES[i].first ||
            found.may_start_agents != CASES[i].agents ||
            strcmp(found.name ? found.name : "", CASES[i].name ? CASES[i].name : "") != 0)
            fail_msg("\"%s\" is read as %s, %d ranks", CASES[i].environment, found.name,
                     found.n_ranks);
        assert_int_equal(tutti__launcher_refuse(&found, "tutti train", "-n 2"),
                         found.name ? TUTTI_ERR_ARG : TUTTI_OK);
    }
}

static void half_a_group_is_an_error_that_says_what_is_missing(void **state)
{
    static const struct {
        const char *environment, *says;
    } CASES[] = {
        {"RANK=0", "WORLD_SIZE is not set, although RANK is"},
        {"WORLD_SIZE=2", "RANK is not set, although WORLD_SIZE is"},
        {"LOCAL_RANK=0", "RANK is not set"},
        {"RANK=0 WORLD_SIZE=2", "LOCAL_RANK is not set"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0", "MASTER_ADDR is not set"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", "MASTER_ADDR is not set"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h",
         "MASTER_PORT is not set"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_PORT=1",
         "MASTER_ADDR is not set"},
        {"RANK=two WORLD_SIZE=2 LOCAL_RANK=0", "RANK is \"two\", expected an integer"},
        {"RANK=0 WORLD_SIZE=0 LOCAL_RANK=0", "WORLD_SIZE is \"0\", expected an integer from 1"},
        {"RANK=2 WORLD_SIZE=2 LOCAL_RANK=0",
         "RANK is 2, but WORLD_SIZE is 2: ranks go from 0 to 1"},
        {"RANK=-1 WORLD_SIZE=2 LOCAL_RANK=0", "RANK is \"-1\""},
        {"RANK=0 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=2",
         "LOCAL_RANK is 3, but only 2 ranks"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=http",
         "MASTER_PORT is \"http\""},
        {TORCH " TUTTI_STORE=nowhere",
         "TUTTI_STORE is \"nowhere\", expected HOST:PORT or file:PATH"},
        {TORCH " TUTTI_STORE=file:", "TUTTI_STORE is \"file:\", expected HOST:PORT or file:PATH"},
        {"WORLD_SIZE=2 SLURM_JOB_ID=1", "start the ranks with srun, which gives each its rank"},
        {SLURM " WORLD_SIZE=8",
         "WORLD_SIZE is 8, but Slurm started this rank with SLURM_STEP_NUM_TASKS 7"},
        {SLURM " WORLD_SIZE=7 RANK=0",
         "RANK is 0, but Slurm started this rank with SLURM_PROCID 5"},
        {OMPI " WORLD_SIZE=4", "WORLD_SIZE is 4, but Open MPI started this rank with "},
        {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "several hosts, but MASTER_ADDR and MASTER_PORT are not set"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=h",
         "several hosts, but MASTER_PORT is not set"},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0",
         "SLURM_STEP_TASKS_PER_NODE is not set"},
        {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_JOB_ID=1", /* a container's choice */
         "SLURM_STEP_NUM_TASKS is not set, although SLURM_PROCID is"},
        {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=1 SLURM_STEP_ID=0",
         "SLURM_STEP_NUM_TASKS is not set, although SLURM_PROCID is"},
        {"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=x",
         "SLURM_STEP_TASKS_PER_NODE is \"x\""},
    };

    (void)state;
    /* a real one would start, with these invented ranks */
    setenv("TUTTI_MPI", "/nowhere/mpi.so", 1);
    for (size_t i = 0; i < TUTTI__COUNT_OF(CASES); i++) {
        tutti__env_group group;
        tutti_group *g;

        environment(CASES[i].environment);
        assert_int_equal(tutti__env_group_read(&group), TUTTI_ERR_ARG);
        if (!strstr(tutti_last_error(), CASES[i].says))
            fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), CASES[i].says);
        if (strstr(CASES[i].says, "is not set, although"))
            assert_non_null(
                strstr(tutti_last_error(), strncmp(CASES[i].environment, "SLURM_", 6) == 0
                                               ? "unset SLURM_PROCID SLURM_STEP_NUM_TASKS"
                                               : "tutti run -n N PROGRAM"));
        assert_int_equal(tutti_group_init(&g, NULL), TUTTI_ERR_ARG);
        assert_null(g);
    }
    unsetenv("TUTTI_MPI");
}

static void a_group_of_one_works(void **state)
{
    tutti_group *group;
    tutti_work *work;
    float x = 3, y[2] = {0};
    void *p;

    (void)state;
    environment("");
    assert_int_equal(tutti_group_init(&group, NULL), TUTTI_OK);
    assert_int_equal(tutti_group_size(group), 1);
    assert_int_equal(tutti_group_rank(group), 0);
    assert_int_equal(tutti_group_local_size(group), 1);
    assert_string_equal(tutti_group_name(group), "world");
    assert_string_equal(tutti_group_transport_name(group), "single");
    assert_int_equal(tutti_group_device(group).kind, TUTTI_CPU);
    assert_int_equal(tutti_all_reduce(group, TUTTI_BUF(&x, 1, TUTTI_F32), TUTTI_AVG, &work),
                     TUTTI_OK);
    assert_int_equal(tutti_work_wait(work), TUTTI_OK);
    assert_true(x == 3);
    assert_int_equal(tutti_all_gather(group, TUTTI_CONST_BUF(&x, 1, TUTTI_F32),
                                      TUTTI_BUF(y, 1, TUTTI_F32), NULL),
                     TUTTI_OK);
    assert_true(y[0] == 3);
    assert_int_equal(tutti_group_alloc(group, 100, &p), TUTTI_OK);
    memset(p, 1, 100);
    tutti_group_release(group, p);
    tutti_group_abort(group, "stop");
    assert_int_equal(tutti_barrier(group, NULL), TUTTI_ERR_ABORTED);
    assert_non_null(strstr(tutti_last_error(), "said: stop"));
    tutti_group_free(group);
    tutti_group_free(NULL);
}

/* PyTorch's default store serves all groups. */
static void groups_of_one_fail_of_causes_of_their_own(void **state)
{
    static const char *const why[] = {"the first", "the second"};
    tutti_store *store;

    (void)state;
    assert_int_equal(tutti_store_memory_new(&store), TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        const tutti_group_opts opts = {.store = store, .world_size = 1};
        tutti_group *group;

        assert_int_equal(tutti_group_init(&group, &opts), TUTTI_OK);
        tutti_group_abort(group, "%s", why[i]);
        assert_int_equal(tutti_barrier(group, NULL), TUTTI_ERR_ABORTED);
        assert_non_null(strstr(tutti_last_error(), why[i]));
        tutti_group_free(group);
    }
    tutti_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_of_one_fail_of_causes_of_their_own),
        cmocka_unit_test(launchers_are_read),
        cmocka_unit_test(launchers_are_read_beside_what_is_exported),
        cmocka_unit_test(a_launcher_inside_a_launcher_is_known),
        cmocka_unit_test(half_a_group_is_an_error_that_says_what_is_missing),
        cmocka_unit_test(a_group_of_one_works),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

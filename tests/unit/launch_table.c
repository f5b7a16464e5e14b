/* launch: the table of a dead group from reports, good and bad.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "launch/report/flight_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define REPORT(rank, state, sequence, calls)                                                       \
    "{\"version\":1,\"group\":\"world\",\"id\":\"a1\",\"size\":4,\"rank\":" #rank                  \
    ",\"world_rank\":" #rank ",\"host\":\"h\",\"pid\":7,\"time\":1002.5,\"status\":\"ERR_PEER\","  \
    "\"culprit\":2,\"cause\":\"rank 2 was lost\",\"members\":[0,1,2,3],\"seen\":[8,8,7,8],"        \
    "\"calls\":[{\"sequence\":7,\"op\":\"barrier\",\"text\":\"barrier #7\",\"state\":\"done\","    \
    "\"began\":1000,\"ended\":1001}" calls "]}"
#define RUNNING                                                                                    \
    ",{\"sequence\":8,\"op\":\"all_reduce\",\"text\":\"all_reduce #8 (F32 x 5, sum)\","            \
    "\"state\":\"running\",\"began\":1001}"

static const char *const HOW[] = {"exit code 3", "exit code 3", "killed by SIGKILL", "exit code 3"};

static void alike_share_a_line(void **state)
{
    const char *reports[] = {REPORT(0, running, 8, RUNNING), "no report at all",
                             REPORT(1, running, 8, RUNNING), REPORT(3, running, 8, RUNNING)};
    char *table = tutti__flight_table(reports, 4, HOW, 4, "x", false);

    (void)state;
    assert_non_null(table);
    assert_string_equal(
        table,
        "x: the group \"world\" of 4 ranks died: rank 2 was lost\n"
        "x: rank 2 did not complete all_reduce #8 (F32 x 5, sum), in which ranks 0-1, 3 wait\n"
        "    rank    state              last finished              waits in                      "
        "for\n"
        "  > 2       killed by SIGKILL  barrier #7 (by its peers)  -                             "
        "-\n"
        "    0-1, 3  waits              barrier #7                 all_reduce #8 (F32 x 5, sum)  "
        "1.50 s\n");
    free(table);
}

static void nothing_is_told_of_nothing(void **state)
{
    char *table = tutti__flight_table(NULL, 0, HOW, 4, "x", true);

    (void)state;
    assert_string_equal(table, "");
    free(table);
}

static void mutated_reports_do_no_harm(void **state)
{
    static const char good[] = REPORT(0, running, 8, RUNNING);
    char bad[sizeof good], second[sizeof good];
    const char *reports[] = {bad, good, second};

    (void)state;
    for (uint32_t round = 0; round < 4000; round++) {
        memcpy(bad, good, sizeof good);
        memcpy(second, good, sizeof good);
        for (uint32_t i = 0; i < 1 + round % 4; i++) {
            uint32_t out[4];

            tutti__philox(11, (tutti__philox_counter){{round, i, 0, 0}}, out);
            bad[out[0] % (sizeof good - 1)] = (char)(' ' + out[1] % 90);
            second[out[2] % (sizeof good - 1)] = "0123456789{}[]\"-,"[out[3] % 17];
        }
        free(tutti__flight_table(reports, 3, HOW, (int)(round % 5), "x", round % 2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_share_a_line),
        cmocka_unit_test(nothing_is_told_of_nothing),
        cmocka_unit_test(mutated_reports_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

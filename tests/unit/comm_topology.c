/* comm: which switches are above a host, by a file like Slurm's or by Slurm's address, and which ranks of a group are near each other
 * by that.   SPDX-License-Identifier: MIT */
#include "comm/algorithm/levels.h"
#include "comm/core/operation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char TREE[] = "# two levels\n"
                           "SwitchName=leaf1 Nodes=node[01-03] LinkSpeed=100\n"
                           "switchname=leaf2 nodes=node[04-05],login\n"
                           "\n"
                           "SwitchName=spine Switches=leaf[1-2]\n";

static tutti_status find(const char *text, const char *host, tutti__switches *switches)
{
    char copy[2048];

    snprintf(copy, sizeof copy, "%s", text);
    return tutti__topology_read("tree.conf", copy, host, switches);
}

static uint64_t id(const char *name)
{
    return tutti__hash64(name, strlen(name));
}

static void test_file(void **state)
{
    tutti__switches s;

    (void)state;
    assert_int_equal(find(TREE, "node02", &s), TUTTI_OK);
    assert_true(s.id[0] == id("leaf1") && s.id[1] == id("spine") && s.id[2] == 0);
    assert_int_equal(find(TREE, "login.cluster.example", &s), TUTTI_OK);
    assert_true(s.id[0] == id("leaf2") && s.id[1] == id("spine"));
}

static void refused(const char *text, const char *host, const char *where, const char *what)
{
    tutti__switches s;

    assert_int_equal(find(text, host, &s), TUTTI_ERR_ARG);
    if (!strstr(tutti_last_error(), where) || !strstr(tutti_last_error(), what))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", tutti_last_error(), where, what);
}

static void test_bad_files(void **state)
{
    (void)state;
    refused(TREE, "node09", "tree.conf", "node09, is below no switch");
    refused("SwitchName=a Nodes=n1\nSwitchNam=b Nodes=n2\n", "n1", "tree.conf:2",
            "did you mean SwitchName");
    refused("Nodes=n1\n", "n1", "tree.conf:1", "without SwitchName");
    refused("\nSwitchName=a\n", "n1", "tree.conf:2", "neither Nodes nor Switches");
    refused("SwitchName=a Nodes=n1 Switches=b\n", "n1", "tree.conf:1", "both Nodes and Switches");
    refused("SwitchName=a Nodes=n[1-\n", "n1", "tree.conf:1", "no list of names");
    refused("SwitchName=a Nodes\n", "n1", "tree.conf:1", "expected KEY=VALUE");
    refused("SwitchName=a Nodes=n1 Nodes=n2\n", "n1", "tree.conf:1", "stands twice");
    refused("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "n1", "tree.conf:2",
            "in line 1 already");
    refused("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n", "n1", "tree.conf:2",
            "below a in line 1");
    refused("SwitchName=a Nodes=n1\nSwitchName=b Switches=c\n", "n1", "tree.conf:2",
            "no line SwitchName=c");
    refused("SwitchName=a Nodes=n1\nSwitchName=b Switches=a,c\nSwitchName=c Switches=b\n", "n1",
            "tree.conf:", "above itself");
    refused("BlockName=a Nodes=n1\n", "n1", "tree.conf:1", "topology/block");
}

static void test_address(void **state)
{
    tutti__switches s;

    (void)state;
    assert_int_equal(
        tutti__topology_of_address("s0.s4.s[8-9].linux1", "switch.switch.switch.node", &s),
        TUTTI_OK);
    assert_true(s.id[0] == id("s[8-9]") && s.id[1] == id("s4") && s.id[2] == id("s0"));
    assert_int_equal(tutti__topology_of_address("linux1", "node", &s), TUTTI_ERR_ARG);
    assert_int_equal(tutti__topology_of_address("linux1", "switch.node", &s), TUTTI_ERR_ARG);
}

/* Ranks by host and switch: "aA aA bA bA cB ..." */
static bool shape(const char *text, tutti__shape *shape, char *why, size_t capacity)
{
    uint64_t hosts[64];
    tutti__switches switches[64] = {0};
    int ranks[64], n = 0;

    for (const char *p = text; *p; p += p[2] ? 3 : 2) {
        hosts[n] = (uint64_t)p[0];
        switches[n].id[0] = (uint64_t)p[1];
        ranks[n] = n;
        n++;
    }
    *why = '\0';
    return tutti__shape_of(&(tutti__places){hosts, switches}, ranks, n, shape, why, capacity);
}

static void test_shapes(void **state)
{
    tutti__shape s;
    char why[160];

    (void)state;
    assert_true(shape("aA aA bA bA cB cB dB dB", &s, why, sizeof why));
    assert_true(s.block[0] == 2 && s.block[1] == 4 && s.block[2] == 0 && s.farthest == 2 &&
                s.share == 2);
    assert_true(shape("aA bA cB dB", &s, why, sizeof why));
    assert_true(s.block[0] == 1 && s.block[1] == 2 && s.farthest == 2);
    assert_true(shape("aA aA aA", &s, why, sizeof why));
    assert_true(s.block[0] == 0 && s.farthest == 0);
    assert_false(shape("aA bB cA dB", &s, why, sizeof why));
    assert_string_equal(why, "those of the switch of rank 0 and of rank 2 are not consecutive");
    assert_true(s.block[0] == 0 && s.farthest == 2);
    assert_true(shape("aA bA cA dB", &s, why, sizeof why));
    assert_true(s.block[0] == 1 && s.block[1] == 4 && s.block[2] == 0 && s.farthest == 2);
    assert_true(shape("aA aA bA", &s, why, sizeof why));
    assert_true(s.block[0] == 3 && s.block[1] == 0 && s.farthest == 1 && s.share == 1);
    assert_true(shape("aA aA bA cB", &s, why, sizeof why));
    assert_true(s.block[0] == 4 && s.block[1] == 0 && s.farthest == 2 && s.share == 1);
    assert_false(shape("aA bA bA aA cA", &s, why, sizeof why));
    assert_string_equal(why, "those of the host of rank 0 and of rank 3 are not consecutive");
    assert_true(s.block[0] == 0 && s.farthest == 1);
}

static void test_order_of_hosts(void **state)
{
    const uint64_t hosts[] = {1, 2, 3, 4};
    const tutti__switches switches[] = {{{7, 9}}, {{8, 9}}, {{7, 9}}, {{8, 9}}};
    const int first[] = {0, 1, 2, 3}, expected[] = {0, 2, 1, 3};
    int order[4];

    (void)state;
    assert_int_equal(tutti__order_hosts(&(tutti__places){hosts, switches}, first, 4, order),
                     TUTTI_OK);
    assert_memory_equal(order, expected, sizeof order);
    assert_int_equal(tutti__order_hosts(&(tutti__places){hosts, NULL}, first, 4, order), TUTTI_OK);
    assert_memory_equal(order, first, sizeof order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file), cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_address), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_order_of_hosts)};

    return cmocka_run_group_tests_name("comm/topology", tests, NULL, NULL);
}

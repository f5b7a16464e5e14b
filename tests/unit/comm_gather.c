/* comm: the table of all ranks' information: as it was after packing; small where entries are alike; a table that is cut off or
 * changed is refused or read within its bounds.   SPDX-License-Identifier: MIT */
#include "comm/bootstrap/peer_info.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MANY = 1000 };

static uint32_t dice(uint32_t round, uint32_t what)
{
    uint32_t out[4];

    tutti__philox(29, (tutti__philox_counter){{round, what, 0, 0}}, out);
    return out[0];
}

static tutti__peer_info *like_a_job(void)
{
    tutti__peer_info *infos = calloc(MANY, sizeof *infos);

    assert_non_null(infos);
    for (int r = 0; r < MANY; r++) {
        tutti__peer_info *i = &infos[r];

        i->protocol = 7;
        i->bytes = sizeof *i;
        snprintf(i->version, sizeof i->version, "0.1.0");
        snprintf(i->host, sizeof i->host, "host-%d.cluster.example.org", r / 64);
        i->host_id = tutti__hash64(i->host, sizeof i->host);
        i->nonce = tutti__hash64(&r, sizeof r);
        i->pid = 4000 + 7 * r;
        i->sockets = 1;
        i->world_rank = r;
        i->local_at.length = 8;
        snprintf((char *)&i->local_at.at + 3, 8, "%05x", r);
        i->tcp_at.length = 16;
        memcpy((char *)&i->tcp_at.at + 2, &r, sizeof r);
    }
    return infos;
}

static void is_as_it_was(void **state)
{
    tutti__peer_info *infos = like_a_job(), *read = calloc(MANY, sizeof *read);
    uint8_t *bytes;
    size_t n;

    (void)state;
    assert_int_equal(tutti__peer_info_pack(infos, MANY, &bytes, &n), TUTTI_OK);
    print_message("%zu bytes a rank\n", n / MANY);
    assert_true(n < 80 * MANY);
    assert_true(tutti__peer_info_unpack(bytes, n, read, MANY));
    assert_memory_equal(read, infos, MANY * sizeof *infos);
    assert_false(tutti__peer_info_unpack(bytes, n, read, MANY - 1));
    for (size_t cut = 0; cut < n; cut += 1 + cut / 16)
        assert_false(tutti__peer_info_unpack(bytes, cut, read, MANY));
    free(bytes);
    free(read);
    free(infos);
}

/* Entries without anything in common, which take most. */
static void takes_any_bytes(void **state)
{
    enum { FEW = 20 };
    tutti__peer_info *infos = malloc(FEW * sizeof *infos), *read = malloc(FEW * sizeof *read);
    uint8_t *bytes;
    size_t n;

    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        uint8_t *p = (uint8_t *)infos;

        for (uint32_t i = 0; i < FEW * sizeof *infos; i++)
            p[i] = round % 3 == 0 || dice(round, i) % (1 + round % 9) == 0
                       ? (uint8_t)(dice(round, i) >> 8)
                       : 0;
        assert_int_equal(tutti__peer_info_pack(infos, FEW, &bytes, &n), TUTTI_OK);
        assert_true(n <= FEW * (2 * sizeof *infos + 16));
        assert_true(tutti__peer_info_unpack(bytes, n, read, FEW));
        assert_memory_equal(read, infos, FEW * sizeof *infos);
        for (uint32_t i = 0; i < 20; i++) /* the sanitizers watch */
            bytes[dice(round, 100000 + i) % n] ^= (uint8_t)(1u << i % 8);
        (void)tutti__peer_info_unpack(bytes, n, read, FEW);
        free(bytes);
    }
    free(infos);
    free(read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_as_it_was),
                                       cmocka_unit_test(takes_any_bytes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

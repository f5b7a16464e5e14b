/* device: memory of GPUs that comes and goes in pages, over the stand-in of the driver.   SPDX-License-Identifier: MIT
 * timeout: 120 */
#include "unit/device_gpu.h"

enum { PAGE = 4096 };

/* Of a page: that all its bytes are as the first. */
static int byte_of(tutti_stream *stream, const char *p)
{
    unsigned char bytes[PAGE];

    CHECK_OK(tutti__read(stream, bytes, p, PAGE));
    for (int i = 0; i < PAGE; i++)
        CHECK(bytes[i] == bytes[0]);
    return bytes[0];
}

static void fill_page(tutti_stream *stream, char *p, int byte)
{
    char bytes[PAGE];

    memset(bytes, byte, PAGE);
    CHECK_OK(tutti__copy_in(stream, p, bytes, PAGE));
}

static void pages_come_and_go(void)
{
    tutti_stream *stream = begin();
    char *p = ops->reserve(gpu, 16 * PAGE), *q = ops->reserve(gpu, 100);

    CHECK(p && q && memory_usage().used == 0);
    CHECK(tutti__copy(stream, p, p + PAGE, 1) != TUTTI_OK); /* nothing is there */
    CHECK_OK(ops->back(gpu, p + 1, 4 * PAGE - 2, false));
    CHECK(memory_usage().used == 4 * PAGE && memory_usage().grown == 4);
    for (int i = 0; i < 4; i++)
        fill_page(stream, p + i * PAGE, i);
    CHECK_OK(ops->back(gpu, p, 4 * PAGE, false)); /* they are there */
    ops->give_back(gpu, p + 1, 3 * PAGE);         /* pages 1 and 2 are whole */
    ops->give_back(gpu, p, 0);
    CHECK(memory_usage().used == 2 * PAGE && memory_usage().kept == 2 * PAGE);
    CHECK_OK(ops->back(gpu, p + 2 * PAGE, 1, false)); /* before it went */
    CHECK(byte_of(stream, p) == 0 && byte_of(stream, p + 2 * PAGE) == 2);
    CHECK_OK(ops->back(gpu, q, 100, true)); /* page 1, elsewhere */
    CHECK(memory_usage().grown == 4 && memory_usage().kept == 0);
    CHECK(byte_of(stream, q) == 1 && byte_of(stream, p + 3 * PAGE) == 3);
    CHECK(tutti__copy(stream, p + PAGE, p, 1) != TUTTI_OK);
    ops->unreserve(gpu, q, 100);
    ops->unreserve(gpu, p, 16 * PAGE);
    ops->unreserve(gpu, NULL, 0);
    CHECK(memory_usage().used == 0 && memory_usage().kept == 0);
    tutti_stream_free(stream);
}

/* Of whichever stream: it ends at the old place, although the page was given back. */
static void no_page_goes_before_work_is_done(void)
{
    tutti_stream *first = begin(), *second;
    char *p = ops->reserve(gpu, 8 * PAGE);
    gate g;

    CHECK_OK(tutti_stream_new(&second, gpu));
    for (int i = 0; i < 4; i++) {
        tutti_stream *late = i % 2 ? first : second;

        CHECK_OK(ops->back(gpu, p, PAGE, false));
        CHECK_OK(ops->back(gpu, p + PAGE, PAGE, false));
        close_gate(&g, late);
        fill_page(late, p, 7);
        CHECK_OK(tutti__copy(late, p + PAGE, p, PAGE));
        ops->give_back(gpu, p, PAGE);
        CHECK_OK(ops->back(gpu, p + (2 + i) * PAGE, PAGE, false)); /* another one */
        CHECK(memory_usage().grown == (uint64_t)(i == 0 ? 3 : 3 + i));
        g.open = true;
        CHECK(byte_of(late, p + PAGE) == 7);
    }
    CHECK(memory_usage().waited == 0);
    ops->unreserve(gpu, p, 8 * PAGE);
    tutti_stream_free(first);
    tutti_stream_free(second);
}

/* As ZeRO-3 does: units of 16 pages, of which three are there. */
static void units_in_turn_take_no_more_memory(void)
{
    enum { UNITS = 12, IN_UNIT = 16 };
    tutti_stream *stream = begin();
    char *p = ops->reserve(gpu, UNITS * IN_UNIT * PAGE);
    uint64_t grown = 0;

    for (int round = 0; round < 6; round++) {
        for (int k = 0; k < UNITS; k++) {
            CHECK_OK(ops->back(gpu, p + k * IN_UNIT * PAGE, IN_UNIT * PAGE, false));
            for (int i = 0; i < IN_UNIT; i++)
                fill_page(stream, p + (k * IN_UNIT + i) * PAGE, k);
            CHECK_OK(tutti_stream_wait(stream)); /* as for a gather */
            if (k >= 2)
                ops->give_back(gpu, p + (k - 2) * IN_UNIT * PAGE, IN_UNIT * PAGE);
        }
        ops->give_back(gpu, p + (UNITS - 2) * IN_UNIT * PAGE, 2 * IN_UNIT * PAGE);
        if (round == 1)
            grown = memory_usage().grown;
    }
    CHECK(memory_usage().grown == grown && grown <= 5 * IN_UNIT);
    CHECK(memory_usage().peak == 3 * IN_UNIT * PAGE);
    ops->unreserve(gpu, p, UNITS * IN_UNIT * PAGE);
    tutti_stream_free(stream);
}

/* Then the host waits for what was given back, and cached memory makes room; and the other way. */
static void pages_and_blocks_share_a_device(void)
{
    tutti_stream *stream = begin();
    char *p = ops->reserve(gpu, 64 * MB), *block = ops->alloc(gpu, 40 * MB, false);
    gate g = {.open = true};

    CHECK(p && block);
    CHECK(ops->back(gpu, p, 40 * MB, false) == TUTTI_ERR_MEMORY);
    CHECK_SAYS("out of memory: asked for");
    ops->free(gpu, block);
    CHECK_OK(ops->back(gpu, p, 60 * MB, false));
    CHECK(memory_usage().kept < MB);
    ops->give_back(gpu, p, 60 * MB);
    block = ops->alloc(gpu, 50 * MB, false);
    CHECK(block && memory_usage().used < 51 * MB);
    ops->free(gpu, block);
    CHECK_OK(tutti_stream_wait(stream));
    CHECK_OK(ops->back(gpu, p, 50 * MB, false));
    standin_enqueue(tutti__cuda_native(stream), gate_run, &g);
    ops->give_back(gpu, p, 40 * MB);
    CHECK_OK(ops->back(gpu, p + 50 * MB, 14 * MB, false)); /* and more */
    ops->unreserve(gpu, p, 64 * MB);
    tutti_stream_free(stream);
}

CASE(pages_come_and_go, )
CASE(no_page_goes_before_work_is_done, )
CASE(units_in_turn_take_no_more_memory, )
CASE(pages_and_blocks_share_a_device, "STANDIN_CUDA_MEMORY=64", "STANDIN_CUDA_PAGE=2097152", )

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_come_and_go),
        cmocka_unit_test(test_no_page_goes_before_work_is_done),
        cmocka_unit_test(test_units_in_turn_take_no_more_memory),
        cmocka_unit_test(test_pages_and_blocks_share_a_device),
    };

    use_standin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Damaged files of weights: each is read or rejected with a message, without other effects. The noise is Philox's, so that a
 * failure can be reproduced.   SPDX-License-Identifier: MIT */
#include "checkpoint/pytorch.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"
#include "checkpoint/zip.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROUNDS = 1500, ROOM = 16384 };

static char folder[64], path[128];

typedef struct noise {
    uint32_t round, drawn;
} noise;

static uint32_t draw(noise *n, uint32_t below)
{
    uint32_t words[4];

    tutti__philox(77, (tutti__philox_counter){{n->round, n->drawn++, 0, 0}}, words);
    return words[0] % below;
}

/* Sometimes a boundary value instead of a random one. */
static uint8_t draw_byte(noise *n)
{
    static const uint8_t LIMITS[] = {0, 1, 0x7f, 0x80, 0xff, '(', '}', 't', 'R', 's', '.', 'h'};

    return draw(n, 2) ? (uint8_t)draw(n, 256) : LIMITS[draw(n, sizeof LIMITS)];
}

/* A good file with changed bytes, a piece moved, or cut. */
static size_t damage(noise *n, const uint8_t *good, size_t n_good, uint8_t bad[ROOM])
{
    size_t size = n_good;

    memcpy(bad, good, n_good);
    for (uint32_t i = 1 + draw(n, 6); i > 0; i--)
        bad[draw(n, (uint32_t)size)] = draw_byte(n);
    if (n->round % 4 == 0) {
        size_t from = draw(n, (uint32_t)size), to = draw(n, (uint32_t)size);
        size_t most = size - (from > to ? from : to);

        memmove(bad + to, bad + from, draw(n, (uint32_t)most + 1));
    }
    if (n->round % 5 == 0)
        size = draw(n, (uint32_t)size);
    return size;
}

static size_t read_file(uint8_t bytes[ROOM])
{
    FILE *file = fopen(path, "rb");
    size_t n = fread(bytes, 1, ROOM, file);

    fclose(file);
    assert_in_range(n, 100, ROOM - 1);
    return n;
}

/* Without emptying it first, after which some file systems write to the disk at the close. */
static void write_file(const uint8_t *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(ftruncate(fd, (off_t)n), 0);
    close(fd);
}

/* Returns whether it was read whole. */
static bool try_to_read(void)
{
    tutti__weights *file;
    bool whole = true;

    if (tutti__weights_open(&file, path) != TUTTI_OK) {
        assert_true(strlen(tutti_last_error()) > 10);
        return false;
    }
    for (size_t i = 0; i < tutti__weights_count(file); i++) {
        const tutti__safetensors_entry *e = tutti__weights_at(file, i);
        void *p = malloc((size_t)e->bytes + 1);

        assert_in_range(e->bytes, 0, ROOM);
        whole = tutti__weights_read(file, i, p) == TUTTI_OK && whole;
        free(p);
    }
    tutti__weights_close(file);
    return whole;
}

static void fuzz(void)
{
    static uint8_t good[ROOM], bad[ROOM];
    size_t n_good = read_file(good), read = 0;

    assert_true(try_to_read());
    for (noise n = {0}; n.round < ROUNDS; n.round++, n.drawn = 0) {
        write_file(bad, damage(&n, good, n_good, bad));
        read += try_to_read();
    }
    /* digests detect most, and rounds rarely hit only padding */
    assert_in_range(read, 0, ROUNDS / 2);
}

static const float VALUES[40] = {1, 2, 3};
static const int64_t WHOLE = 3;
static const tutti__safetensors_source SOURCES[] = {
    {"fc.weight", {VALUES, {2, {5, 8}}, TUTTI_F32}},
    {"fc.bias", {VALUES, {1, {5}}, TUTTI_F32}},
    {"bn.num_batches_tracked", {&WHOLE, {.n = 0}, TUTTI_I64}},
};

static void safetensors_files(void **state)
{
    const tutti__safetensors_pair format = {"format", "pt"};

    (void)state;
    assert_int_equal(tutti__safetensors_write(path, SOURCES, 3, &format, 1), TUTTI_OK);
    fuzz();
}

static void pytorch_files(void **state)
{
    (void)state;
    assert_int_equal(tutti__pytorch_write(path, SOURCES, 3, NULL, 0, NULL), TUTTI_OK);
    fuzz();
}

/* The pickle alone is damaged, and its CRC-32 is right: as in a malicious file. */
static void pickles(void **state)
{
    static uint8_t good[ROOM], bad[ROOM];
    tutti__zip *zip;
    size_t n_good;

    (void)state;
    assert_int_equal(tutti__pytorch_write(path, SOURCES, 3, NULL, 0, NULL), TUTTI_OK);
    assert_int_equal(tutti__zip_open(&zip, path, "PyTorch (zip)"), TUTTI_OK);
    n_good = (size_t)tutti__zip_at(zip, 0)->bytes;
    assert_int_equal(tutti__zip_read(zip, tutti__zip_at(zip, 0), good, n_good, 0), TUTTI_OK);
    tutti__zip_close(zip);
    for (noise n = {0}; n.round < ROUNDS; n.round++, n.drawn = 0) {
        size_t size = damage(&n, good, n_good, bad);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        tutti__zip_writer *w;

        assert_int_equal(tutti__zip_writer_new(&w, fd, path, 0), TUTTI_OK);
        assert_int_equal(tutti__zip_add(w, "a/data.pkl", bad, size), TUTTI_OK);
        assert_int_equal(tutti__zip_add(w, "a/data/0", VALUES, sizeof VALUES), TUTTI_OK);
        assert_int_equal(tutti__zip_add(w, "a/data/1", VALUES, 20), TUTTI_OK);
        assert_int_equal(tutti__zip_add(w, "a/data/2", &WHOLE, 8), TUTTI_OK);
        assert_int_equal(tutti__zip_add(w, "a/version", "3\n", 2), TUTTI_OK);
        assert_int_equal(tutti__zip_finish(w), TUTTI_OK);
        tutti__zip_writer_free(w);
        assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_CUR)), 0);
        close(fd);
        try_to_read();
    }
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tutti-fuzz-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/weights", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(safetensors_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pytorch_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pickles, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

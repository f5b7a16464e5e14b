/* train: TensorBoard's and W&B's records to the byte, read back by independent code; histograms; the
 * Prometheus file; full disks. */
#include "train/output/loggers/event_file.h"
#include "train/output/loggers/prometheus.h"
#include "train/output/loggers/wandb_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

static char folder[] = "/tmp/tutti-records-XXXXXX";

static size_t read_all(const char *path, uint8_t *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t n;

    if (!file)
        fail_msg("cannot read %s", path);
    n = fread(bytes, 1, room, file);
    fclose(file);
    return n;
}

static uint64_t le(const uint8_t *p, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes; i-- > 0;)
        value = value << 8 | p[i];
    return value;
}

/* The only file of a folder whose name has `part` in it. */
static void find_file(const char *dir, const char *part, char path[600])
{
    DIR *d = opendir(dir);
    int found = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, part)) {
            snprintf(path, 600, "%s/%s", dir, e->d_name);
            found++;
        }
    closedir(d);
    assert_int_equal(found, 1);
}

/* ---- TensorBoard ---- */

static void crcs_are_the_format_s(void **state)
{
    static const uint8_t text[] = "\x1a\x11"
                                  "CRC test, one two";
    static const uint8_t length[8] = {18};

    (void)state;
    assert_int_equal(tutti__masked_crc32c(text, sizeof text - 1), 0x5794d08a);
    assert_int_equal(tutti__masked_crc32c(length, 8), 0x25641f24);
}

/* An independent CRC-32C, bit by bit. */
static uint32_t slow_masked_crc(const uint8_t *p, size_t n)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* Checks all CRCs, and gives message i of the file. */
static const uint8_t *message(const uint8_t *file, size_t n, int i, size_t *bytes_p)
{
    const uint8_t *found = NULL;

    for (size_t at = 0; at < n; i--) {
        const size_t length = (size_t)le(file + at, 8);

        assert_int_equal(le(file + at + 8, 4), slow_masked_crc(file + at, 8));
        assert_true(at + 16 + length <= n);
        assert_int_equal(le(file + at + 12 + length, 4), slow_masked_crc(file + at + 12, length));
        if (i == 0) {
            found = file + at + 12;
            *bytes_p = length;
        }
        at += 16 + length;
    }
    return found;
}

static void expect_bytes(const uint8_t *p, size_t n, const char *bytes, size_t expected)
{
    assert_int_equal(n, expected);
    assert_memory_equal(p, bytes, expected);
}

static void events_are_the_format_s(void **state)
{
    static const char *const tags[] = {"loss", "lr"};
    static const double values[] = {0.5, 0};
    static const char version[] = "\x1a\x0d"
                                  "brain.Event:2";
    static const char scalars[] = "\x10\x07\x2a\x18\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"
                                  "\x0a\x09\x0a\x02lr\x15\0\0\0\0";
    static const char start[] = "\x10\x29\x3a\x02\x08\x01";
    tutti__event_file file;
    uint8_t bytes[4096];
    char dir[64], path[600];
    const uint8_t *p;
    size_t n, k;

    (void)state;
    snprintf(dir, sizeof dir, "%s/tb", folder);
    assert_int_equal(tutti__event_file_open(&file, dir), TUTTI_OK);
    assert_int_equal(tutti__event_file_resumed(&file, 40), TUTTI_OK);
    assert_int_equal(tutti__event_file_scalars(&file, 7, tags, values, 2), TUTTI_OK);
    tutti__event_file_close(&file);
    find_file(dir, "events.out.tfevents.", path);
    n = read_all(path, bytes, sizeof bytes);
    p = message(bytes, n, 0, &k); /* after 9 bytes of time */
    expect_bytes(p + 9, k - 9, version, sizeof version - 1);
    p = message(bytes, n, 1, &k);
    expect_bytes(p + 9, k - 9, start, sizeof start - 1);
    p = message(bytes, n, 2, &k);
    expect_bytes(p + 9, k - 9, scalars, sizeof scalars - 1);
    assert_null(message(bytes, n, 3, &k));
}

/* Readers read files in the order of their names; an earlier run's are removed, other files not. */
static void files_follow_each_other(void **state)
{
    tutti__event_file file;
    char dir[64], path[128], last[4096] = "", *ahead;

    (void)state;
    snprintf(dir, sizeof dir, "%s/order", folder);
    mkdir(dir, 0777);
    assert_true(asprintf(&ahead, "%s/events.out.tfevents.%010lld.x.1.0", dir,
                         (long long)time(NULL) + 5000) > 0);
    fclose(fopen(ahead, "w"));
    strcpy(last, ahead);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tutti__event_file_open(&file, dir), TUTTI_OK);
        assert_true(strcmp(file.records.path, last) > 0);
        strcpy(last, file.records.path);
        tutti__event_file_close(&file);
    }
    snprintf(path, sizeof path, "%s/notes.txt", dir);
    fclose(fopen(path, "w"));
    assert_int_equal(tutti__event_file_remove_all(dir), TUTTI_OK);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(ahead, F_OK), 0);
    assert_int_not_equal(access(last, F_OK), 0);
    free(ahead);
}

/* ---- A file at its size limit ends with its last complete record ---- */

static void a_full_disk_leaves_whole_records(void **state)
{
    static const char *const tags[] = {"loss"};
    static const double values[] = {1};
    struct rlimit was, limit;
    tutti__event_file file;
    uint8_t bytes[4096];
    char dir[64];
    size_t n, k;
    tutti_status status = TUTTI_OK;

    (void)state;
    snprintf(dir, sizeof dir, "%s/full", folder);
    assert_int_equal(tutti__event_file_open(&file, dir), TUTTI_OK);
    getrlimit(RLIMIT_FSIZE, &was);
    limit = was;
    limit.rlim_cur = 200; /* in the middle of a record: the write is short */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint64_t step = 1; step < 100 && status == TUTTI_OK; step++)
        status = tutti__event_file_scalars(&file, step, tags, values, 1);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_not_equal(status, TUTTI_OK);
    assert_non_null(strstr(tutti_last_error(), file.records.path));
    n = read_all(file.records.path, bytes, sizeof bytes);
    assert_true(n > 100 && n < 200 && n == file.records.size);
    assert_null(message(bytes, n, 1000, &k));
    tutti__event_file_close(&file);
}

/* ---- W&B's framing ---- */

enum { BLOCK = 32768 };

/* Unpacks a record that begins at `position`; returns the position after it. */
static uint64_t unframe(const uint8_t *bytes, uint64_t position, uint8_t *payload, size_t *n_p)
{
    int type;

    *n_p = 0;
    do {
        const size_t left = BLOCK - (size_t)(position % BLOCK);
        size_t n;

        if (left < 7) {
            for (size_t i = 0; i < left; i++)
                assert_int_equal(bytes[i], 0);
            bytes += left;
            position += left;
        }
        n = (size_t)le(bytes + 4, 2);
        type = bytes[6];
        assert_int_equal(le(bytes, 4), crc32(0, bytes + 6, (uInt)n + 1));
        assert_true(position % BLOCK + 7 + n <= BLOCK);
        assert_true(*n_p == 0 ? type == 1 || type == 2 || type == 3 || type == 4 : type > 2);
        memcpy(payload + *n_p, bytes + 7, n);
        *n_p += n;
        bytes += 7 + n;
        position += 7 + n;
    } while (type == 2 || type == 3);
    return position;
}

/* At each distance from a block's end, and longer than blocks. */
static void records_cross_blocks(void **state)
{
    static const size_t sizes[] = {0, 1, 100, BLOCK - 14, BLOCK - 7, BLOCK, 3 * BLOCK + 5};
    const size_t room = tutti__wandb_frame_bound(3 * BLOCK + 5);
    uint8_t *payload = malloc(4 * BLOCK), *frame = malloc(room), *back = malloc(4 * BLOCK);

    (void)state;
    assert_true(payload && frame && back);
    for (size_t i = 0; i < 4 * BLOCK; i++)
        payload[i] = (uint8_t)(i * 31);
    for (uint64_t left = 0; left < 20; left++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const uint64_t position = 2 * BLOCK - left;
            const size_t n = tutti__wandb_frame(frame, position, payload, sizes[i]);
            size_t got;

            assert_true(n <= tutti__wandb_frame_bound(sizes[i]));
            assert_int_equal(unframe(frame, position, back, &got), position + n);
            assert_int_equal(got, sizes[i]);
            assert_memory_equal(back, payload, got);
            if (left == 7 && sizes[i] > 0) /* only a header fits */
                assert_true(frame[6] == 2 && le(frame + 4, 2) == 0);
        }
    free(payload);
    free(frame);
    free(back);
}

/* ---- Histograms ---- */

static void make_histogram(tutti__histogram *h, const float *values, size_t n)
{
    tutti__histogram_begin(h);
    tutti__histogram_add(h, values, n / 2);
    tutti__histogram_add(h, values + n / 2, n - n / 2);
    tutti__histogram_end(h);
}

static void a_histogram_counts_all(void **state)
{
    static tutti__histogram h;
    static const float values[] = {0, 0, -1.5f, 1.5f, 1.5f, 3e-20f, -1e30f, 3e38f, NAN, INFINITY};
    double total = 0;

    (void)state;
    make_histogram(&h, values, sizeof values / sizeof *values);
    assert_int_equal(h.n, 8);
    assert_true(h.min == (double)-1e30f && h.max == (double)3e38f);
    for (size_t i = 0; i < h.n_buckets; i++) {
        total += h.buckets[i];
        assert_true(i == 0 || h.limits[i] > h.limits[i - 1]);
    }
    assert_true(total == 8);
    make_histogram(&h, values, 0);
    assert_true(h.n == 0 && h.n_buckets == 0 && h.min == 0 && h.max == 0);
}

/* Each value is within its bucket, whose left edge is the previous limit; a bucket is at most an eighth wide. */
static void a_value_lies_in_its_bucket(void **state)
{
    static tutti__histogram h;
    unsigned bits = 7;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        float value;

        bits = bits * 1664525u + 1013904223u;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        make_histogram(&h, &value, 1);
        assert_int_equal(h.n_buckets, value <= -0x1.ep127f ? 1 : 2);
        assert_true(h.buckets[h.n_buckets - 1] == 1);
        if (h.n_buckets == 2) {
            const double left = h.limits[0], right = h.limits[1], x = (double)value;

            assert_true(left <= x && x <= right);
            assert_true(fabs(x) < 0x1p-40 || right - left <= fabs(left < 0 ? right : left) / 8);
        }
    }
}

/* ---- Prometheus ---- */

static void prometheus_has_the_text_format(void **state)
{
    static const tutti__step_metrics step = {.step = 3, .loss = 0.5, .lr = NAN};
    static tutti__train_config config;
    const tutti__prometheus_figures now = {.step = &step, .running = true};
    char path[128], text[8192];
    size_t n;

    (void)state;
    strcpy(config.model, "mlp");
    strcpy(config.data, "digits");
    snprintf(path, sizeof path, "%s/a.prom", folder);
    assert_int_equal(tutti__prometheus_write(path, "a \"b\"\\\n", &config, &now), TUTTI_OK);
    n = read_all(path, (uint8_t *)text, sizeof text - 1);
    text[n] = '\0';
#define LABELS "{run=\"a \\\"b\\\"\\\\\\n\",model=\"mlp\",data=\"digits\"}"
    assert_non_null(strstr(text, "# TYPE tutti_running gauge\ntutti_running" LABELS " 1\n"));
    assert_non_null(strstr(text, "\n# HELP tutti_train_loss mean over "));
    assert_non_null(
        strstr(text, "\n# TYPE tutti_train_loss gauge\ntutti_train_loss" LABELS " 0.5\n"));
    assert_non_null(strstr(text, "\ntutti_train_step" LABELS " 3\n"));
    assert_null(strstr(text, "\ntutti_train_lr{")); /* not known */
    assert_null(strstr(text, "tutti_eval"));
    assert_int_equal(text[n - 1], '\n');
}

/* ---- The machine ---- */

static void the_machine_is_plausible(void **state)
{
    static tutti__system_sample s;
    tutti__system *system = tutti__system_open(folder, &(tutti__gpus){.n_here = 0});
    volatile double busy = 1;

    (void)state;
    assert_non_null(system);
    for (uint64_t begin = tutti__now_ns(); tutti__now_ns() - begin < 50000000;)
        busy = busy * 1.0000001;
    tutti__system_read(system, &s);
    assert_true(s.machine.process_cpu_percent > 0 && s.machine.process_cpu_percent < 1000);
    assert_true(isnan(s.machine.cpu_percent) ||
                (s.machine.cpu_percent >= 0 && s.machine.cpu_percent <= 100));
    assert_true(s.machine.rss_bytes > 500000 && s.machine.rss_bytes < s.machine.memory_bytes);
    assert_true(s.machine.memory_percent > 0 && s.machine.memory_percent <= 100);
    assert_true(s.machine.disk_free_bytes > 0);
    assert_true(s.machine.network_sent_bytes >= 0 && s.machine.network_received_bytes >= 0);
    tutti__system_close(system);
    tutti__system_close(NULL);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[80];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(crcs_are_the_format_s),
                                       cmocka_unit_test(events_are_the_format_s),
                                       cmocka_unit_test(files_follow_each_other),
                                       cmocka_unit_test(a_full_disk_leaves_whole_records),
                                       cmocka_unit_test(records_cross_blocks),
                                       cmocka_unit_test(a_histogram_counts_all),
                                       cmocka_unit_test(a_value_lies_in_its_bucket),
                                       cmocka_unit_test(prometheus_has_the_text_format),
                                       cmocka_unit_test(the_machine_is_plausible)};

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

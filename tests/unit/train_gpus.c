/* train: GPUs are found by their PCI address, and their driver's reports are kept and logged.   SPDX-License-Identifier: MIT
 *
 * With the stand-in of NVIDIA's management library, which is loaded here first, so that Tutti gets it. */
#include "train/machine/gpus.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static tutti__nvml *open_nvml(void)
{
    tutti__nvml *nvml = tutti__nvml_open();

    assert_non_null(nvml);
    return nvml;
}

static void an_address_finds_the_device_whatever_its_number(void **state)
{
    tutti__nvml *nvml = open_nvml();

    (void)state;
    assert_int_equal(tutti__nvml_count(nvml), 3);
    assert_int_equal(tutti__nvml_find(nvml, "0000:11:00.0"), 1);
    assert_int_equal(tutti__nvml_find(nvml, "00000000:12:00.0"), 2);
    assert_int_equal(tutti__nvml_find(nvml, "0000:0f:00.0"), -1);
    assert_int_equal(tutti__nvml_find(nvml, ""), -1);
    tutti__nvml_close(nvml);
}

static void only_watched_devices_report(void **state)
{
    tutti__nvml *nvml = open_nvml();
    tutti__gpu_metrics gpus[8];
    tutti__xid xid;

    (void)state;
    assert_false(tutti__nvml_next_xid(nvml, 0, &xid)); /* none is watched */
    assert_false(tutti__nvml_watch(nvml, -1));
    assert_false(tutti__nvml_watch(nvml, 3));
    assert_true(tutti__nvml_watch(nvml, 1));
    assert_true(tutti__nvml_watch(nvml, 2));
    assert_true(tutti__nvml_next_xid(nvml, 0, &xid));
    assert_int_equal(xid.gpu, 2);
    assert_int_equal(xid.number, 63);
    assert_int_equal(tutti__nvml_read(nvml, gpus, 8), 3); /* reads the rest */
    assert_int_equal(gpus[0].xid, 0);
    assert_int_equal(gpus[1].xid, 79);
    assert_int_equal(gpus[2].xid, 63);
    assert_false(tutti__nvml_next_xid(nvml, 0, &xid));
    tutti__nvml_close(nvml);
}

static void a_device_is_described(void **state)
{
    tutti__nvml *nvml = open_nvml();
    tutti__nvml_about about;

    (void)state;
    assert_true(tutti__nvml_describe(nvml, 1, &about));
    assert_string_equal(about.name, "Stand-in 1");
    assert_string_equal(about.bus, "00000000:11:00.0");
    assert_int_equal(about.major, 7);
    assert_int_equal(about.ecc, 0);
    assert_int_equal(about.nvlinks, 4);
    assert_true(about.power_limit_w == 700);
    assert_int_equal(tutti__nvml_peers(nvml, 0, 1), 1);
    setenv("STANDIN_NVML", "bare", 1);
    assert_true(tutti__nvml_describe(nvml, 1, &about));
    assert_int_equal(about.ecc, -1);
    assert_int_equal(about.nvlinks, 0);
    assert_true(isnan(about.power_limit_w));
    assert_false(tutti__nvml_watch(nvml, 0));
    unsetenv("STANDIN_NVML");
    tutti__nvml_close(nvml);
}

/* Captures what is written to stderr meanwhile. */
static void listen_into(tutti__gpus *gpus, char *text, size_t bytes)
{
    FILE *file = tmpfile();
    int before = dup(2);
    size_t n;

    assert_non_null(file);
    fflush(stderr);
    dup2(fileno(file), 2);
    tutti__gpus_listen(gpus, 0);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    rewind(file);
    n = fread(text, 1, bytes - 1, file);
    text[n] = '\0';
    fclose(file);
}

static void a_report_names_device_ranks_and_remedy(void **state)
{
    tutti__gpu_place here[] = {{1, 4, "cuda", "0000:11:00.0"},
                               {1, 5, "cuda", "0000:12:00.0"},
                               {1, 6, "cuda", "0000:11:00.0"}};
    tutti__gpus gpus = {.here = here, .n_here = 3, .nvml = open_nvml()};
    char text[2048];

    (void)state;
    assert_true(tutti__nvml_watch(gpus.nvml, 1));
    listen_into(&gpus, text, sizeof text);
    if (!strstr(text, "GPU 1 (0000:11:00.0) of rank 4, 6: the driver reports Xid 79: the GPU has "
                      "fallen off the bus"))
        fail_msg("%s", text);
    assert_null(strstr(text, "Xid 31")); /* of device 0, which is not the run's */
    listen_into(&gpus, text, sizeof text);
    assert_string_equal(text, "");
    tutti__nvml_close(gpus.nvml);
}

static void every_xid_has_a_text(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++)
        assert_true(strlen(tutti__xid_text(i)) > 10);
    assert_non_null(strstr(tutti__xid_text(31), "page fault"));
    assert_non_null(strstr(tutti__xid_text(12345), "dmesg"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_finds_the_device_whatever_its_number),
        cmocka_unit_test(only_watched_devices_report),
        cmocka_unit_test(a_device_is_described),
        cmocka_unit_test(a_report_names_device_ranks_and_remedy),
        cmocka_unit_test(every_xid_has_a_text),
    };
    const char *build = getenv("BUILD_DIR");
    char path[4096];

    snprintf(path, sizeof path, "%s/standin/nvml/libnvidia-ml.so.1", build ? build : ".");
    if (!dlopen(path, RTLD_NOW)) {
        printf("skipped: %s\n", dlerror());
        return 77;
    }
    setenv("STANDIN_GPUS", "3", 1);
    setenv("STANDIN_XIDS", "0:31,2:63,1:79", 1);
    setenv("TUTTI_LOG", "warn", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* base: files are replaced atomically; other things than regular files are kept.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/tutti-replace-XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;

    (void)state;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.')
            unlink(entry->d_name);
    closedir(folder);
    return chdir("/") == 0 && rmdir(dir) == 0 ? 0 : -1;
}

static void put(const char *path, const char *text)
{
    if (tutti__write_file(path, text, strlen(text)) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
}

static void expect(const char *path, const char *text)
{
    char found[64] = "";
    FILE *file = fopen(path, "re");

    assert_non_null(file);
    (void)!fread(found, 1, sizeof found - 1, file);
    fclose(file);
    assert_string_equal(found, text);
}

static mode_t kind(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 ? st.st_mode & S_IFMT : 0;
}

static int entries(void)
{
    DIR *folder = opendir(dir);
    int n = 0;

    while (readdir(folder))
        n++;
    closedir(folder);
    return n - 2;
}

static void links_stay(void **state)
{
    (void)state;
    put("file", "old");
    assert_int_equal(symlink("file", "link"), 0);
    put("link", "new");
    assert_int_equal(kind("link"), S_IFLNK);
    expect("file", "new");
    assert_int_equal(symlink("made", "dangling"), 0);
    put("dangling", "text");
    assert_int_equal(kind("dangling"), S_IFLNK);
    expect("made", "text");
    assert_int_equal(symlink("circle", "circle"), 0);
    assert_int_equal(tutti__write_file("circle", "x", 1), TUTTI_ERR_IO);
    assert_non_null(strstr(tutti_last_error(), "cannot write circle, a link to circle: "));
    assert_int_equal(kind("circle"), S_IFLNK);
    assert_int_equal(entries(), 5);
}

static void *read_pipe(void *text)
{
    FILE *file = fopen("pipe", "re");

    *(size_t *)text = 0;
    for (int c; file && (c = fgetc(file)) != EOF;)
        ++*(size_t *)text;
    if (file)
        fclose(file);
    return NULL;
}

static void a_pipe_takes_the_bytes(void **state)
{
    static char large[1 << 20]; /* more than a pipe holds: a slow reader is awaited */
    size_t got = 0;
    pthread_t reader;
    tutti_status status;

    (void)state;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_not_equal(tutti__write_file("pipe", "x", 1), TUTTI_OK); /* nobody reads */
    assert_int_equal(pthread_create(&reader, NULL, read_pipe, &got), 0);
    do
        status = tutti__write_file("pipe", large, sizeof large);
    while (status != TUTTI_OK && strstr(tutti_last_error(), "nobody reads")); /* not yet open */
    assert_int_equal(status, TUTTI_OK);
    pthread_join(reader, NULL);
    assert_int_equal(got, sizeof large);
    assert_int_equal(kind("pipe"), S_IFIFO);
}

/* /dev/null, and /dev/full, in a folder of ours. */
static void a_device_stays(void **state)
{
    (void)state;
    if (mknod("null", S_IFCHR | 0600, makedev(1, 3)) != 0 ||
        mknod("full", S_IFCHR | 0600, makedev(1, 7)) != 0 ||
        open("null", O_WRONLY | O_CLOEXEC) < 0) {
        printf("skipped: no device can be made here: %s\n", strerror(errno));
        skip();
    }
    put("null", "text");
    assert_int_equal(kind("null"), S_IFCHR);
    assert_int_equal(tutti__write_file("full", "x", 1), TUTTI_ERR_DISK);
    assert_int_equal(kind("full"), S_IFCHR);
    assert_int_equal(entries(), 2);
}

/* Temporary files of other processes are not touched; a failure leaves only the file. */
static void others_temporary_files_are_left_alone(void **state)
{
    tutti__replacement r;

    (void)state;
    put("file", "old");
    put("precious", "mine");
    assert_int_equal(symlink("precious", "file.tmp"), 0);
    put("file", "new");
    expect("file", "new");
    expect("precious", "mine");
    assert_int_equal(kind("file.tmp"), S_IFLNK);
    assert_int_equal(tutti__replace_begin(&r, "file"), TUTTI_OK);
    assert_int_equal(tutti__write_all(r.fd, r.temporary, "half", 4), TUTTI_OK);
    assert_int_equal(tutti__replace_end(&r, TUTTI_ERR_DISK, true), TUTTI_ERR_DISK);
    expect("file", "new");
    assert_int_equal(entries(), 3);
}

/* A process that handles no signals is asked to end while it writes. */
static void a_signal_leaves_no_temporary_file(void **state)
{
    enum { BYTES = 4 << 20, TIMES = 20 };
    char *text = calloc(1, BYTES);

    (void)state;
    assert_non_null(text);
    for (int i = 0; i < TIMES; i++) {
        pid_t child = fork();
        struct stat st;

        if (child == 0)
            for (;;)
                if (tutti__write_file("file", text, BYTES) != TUTTI_OK)
                    _exit(1);
        assert_true(child > 0);
        while (stat("file", &st) != 0 && waitpid(child, NULL, WNOHANG) == 0)
            usleep(100);
        usleep((useconds_t)(i * 137));
        assert_int_equal(kill(child, SIGTERM), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(entries(), 1);
        unlink("file");
    }
    free(text);
}

/* Where the file system has files without names. */
static void a_kill_leaves_no_temporary_file(void **state)
{
    const int fd = open(".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    tutti__replacement r;
    pid_t child;

    (void)state;
    if (fd < 0) {
        printf("skipped: the temporary folder has no O_TMPFILE: %s\n", strerror(errno));
        skip();
    }
    close(fd);
    put("file", "old");
    child = fork();
    if (child == 0) {
        if (tutti__replace_begin(&r, "file") != TUTTI_OK ||
            tutti__write_all(r.fd, r.temporary, "half", 4) != TUTTI_OK)
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &(int){0}, 0), child);
    expect("file", "old");
    assert_int_equal(entries(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_kill_leaves_no_temporary_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pipe_takes_the_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_device_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(others_temporary_files_are_left_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_signal_leaves_no_temporary_file, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

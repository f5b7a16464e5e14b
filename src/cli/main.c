/* main.c -- `tutti`: finds the subcommand in the table and runs it.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "base/flag.h"
#include "base/terminal.h"
#include "base/thread.h"
#include "cli/cli.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct command {
    const char *name, *help;
    int (*run)(int argc, char **argv); /* NULL: not in this version */
} command;

static const command commands[] = {
#define COMMAND(name, help) {#name, help, tutti__cli_##name},
#define LATER(name, help)   {#name, help, NULL},
#include "cli/commands.def"
#undef COMMAND
#undef LATER
};

static void print_help(FILE *file)
{
    fprintf(file,
            "Tutti %s: data-parallel training in C.\n\n"
            "usage: tutti COMMAND [ARGUMENTS]\n\n",
            TUTTI_VERSION);
    for (size_t i = 0; i < TUTTI__COUNT_OF(commands); i++)
        if (commands[i].run)
            fprintf(file, "  %-10s  %s\n", commands[i].name, commands[i].help);
    fprintf(file, "\n  -V, --version  the version, and how it was built\n"
                  "  -h, --help     this text; tutti COMMAND --help: the flags of a command\n\n"
                  "Of a flag that is given twice, the last value counts.\n");
}

/* The first line is for programs, the second for bug reports. */
static void print_version(void)
{
    const char *compiler = strchr(tutti__build_text(), ' ');

    printf("tutti %s\n%s, %s, with %s\n", TUTTI_VERSION, compiler ? compiler + 1 : "",
           TUTTI_BUILD_TYPE, *TUTTI_PARTS ? TUTTI_PARTS : "no optional part");
}

static int refuse(const char *name)
{
    const char *names[TUTTI__COUNT_OF(commands) + 2] = {"--help", "--version"};
    size_t n = 2;

    for (size_t i = 0; i < TUTTI__COUNT_OF(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            fprintf(stderr, "tutti: \"%s\" (%s) is not in this version, %s\n", name,
                    commands[i].help, TUTTI_VERSION);
            return 2;
        }
        if (commands[i].run)
            names[n++] = commands[i].name;
    }
    (void)tutti__fail_unknown(*name == '-' ? "flag" : "command", "tutti", name, names, n);
    fprintf(stderr, "tutti: %s\n", tutti_last_error());
    return 2;
}

/* Workers of a job inherit its environment, which was checked by the process that started them. */
static int run(const command *c, int argc, char **argv)
{
    if (!getenv("RANK") && tutti__env_check() != TUTTI_OK) {
        fprintf(stderr, "tutti %s: %s\n", c->name, tutti_last_error());
        return tutti_status_exit_code(TUTTI_ERR_ARG);
    }
    return c->run(argc, argv);
}

/* By default glibc takes ever larger memory from its heap, where what is freed remains. All of ours that is large is allocated once. */
static void return_large_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    cpu_set_t cpus;

    return_large_memory();
    tutti__open_standard_streams();
    if (tutti__openmp_binds(&cpus)) /* workers would inherit it and share a core */
        sched_setaffinity(0, sizeof cpus, &cpus);
    if (!*name) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(name, "help") == 0 && argc > 2) {
        char help[] = "--help", *again[] = {argv[0], argv[2], help, NULL};

        return main(3, again);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return tutti__close_output("tutti", 0);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 || strcmp(name, "version") == 0) {
        print_version();
        return tutti__close_output("tutti", 0);
    }
    for (size_t i = 0; i < TUTTI__COUNT_OF(commands); i++)
        if (commands[i].run && strcmp(commands[i].name, name) == 0)
            return tutti__close_output("tutti", run(&commands[i], argc - 1, argv + 1));
    return refuse(name);
}

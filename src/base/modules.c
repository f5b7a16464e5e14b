/* modules.c -- finds the modules that are loaded at run time.   SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

enum { FOLDERS = 7, FOLDER_TEXT = 1024 };

typedef struct folders {
    char text[FOLDERS][FOLDER_TEXT];
    int n;
} folders;

static void add_folders(folders *f, const char *object)
{
    const char *const below[] = {"../" TUTTI_LIBDIR "/tutti", "tutti", TUTTI_LIBDIR "/tutti"};
    const char *slash = strrchr(object, '/');

    for (size_t i = 0; i < TUTTI__COUNT_OF(below) && slash && f->n < FOLDERS; i++)
        snprintf(f->text[f->n++], FOLDER_TEXT, "%.*s/%s", (int)(slash - object), object, below[i]);
}

/* Relative to this library or program, installed or in its build folder; then the configured folder. */
static void find_folders(folders *f)
{
    char program[FOLDER_TEXT / 2];
    Dl_info self;

    f->n = 0;
    if (dladdr((void *)(uintptr_t)find_folders, &self) && self.dli_fname &&
        strlen(self.dli_fname) < sizeof program)
        add_folders(f, self.dli_fname);
    if (tutti__executable(program, sizeof program))
        add_folders(f, program);
    snprintf(f->text[f->n++], FOLDER_TEXT, "%s", TUTTI_MODULE_FOLDER);
}

bool tutti__module_find(const char *name, char *path, size_t capacity)
{
    folders f;

    find_folders(&f);
    for (int i = 0; i < f.n; i++)
        if (snprintf(path, capacity, "%s/%s", f.text[i], name) < (int)capacity &&
            access(path, R_OK) == 0)
            return true;
    snprintf(path, capacity, "%s", f.text[0]);
    return false;
}

/* new.c -- `tutti new`: makes a folder with a training program and its build files.   SPDX-License-Identifier: MIT */
#include "base/base.h"
#include "cli/cli.h"
#include "base/flag.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char HELP[] =
    "Makes the folder NAME with a program that trains a small network, and the files to build "
    "it.\n"
    "\n"
    "usage: tutti new NAME [--dir DIR]\n"
    "\n"
    "  tutti new hello && cd hello && cmake -B build && cmake --build build\n"
    "  tutti run -n 2 build/hello\n"
    "\n"
    "  --dir DIR    the folder to make it in (default: this one)\n"
    "  -h, --help   this text\n"
    "\n"
    "NAME becomes the name of the program and of its source file: letters, digits, _ and -, the "
    "first a letter.\n"
    "The folder holds NAME.c, CMakeLists.txt, README.md and .gitignore. Existing files are "
    "never changed.\n";

/* The values of @NAMES@ in templates. */
typedef struct values {
    char name[65];
    char from[4096]; /* where CMake finds the library: a prefix, or the build folder; "": unknown */
    char tutti[4 * 4096 + 8]; /* this command, quoted for a shell */
} values;

static const char program_text[] = {
#include "program.c.in.inc"
    , 0};
static const char cmake_text[] = {
#include "CMakeLists.txt.in.inc"
    , 0};
static const char readme_text[] = {
#include "README.md.in.inc"
    , 0};
static const char gitignore_text[] = {
#include "gitignore.in.inc"
    , 0};

static const struct file {
    const char *name, *text;
} files[] = {{"@NAME@.c", program_text},
             {"CMakeLists.txt", cmake_text},
             {"README.md", readme_text},
             {".gitignore", gitignore_text}};

/* ---- Names ---------------------------------------------------------------------------------------------- */

static bool is_one_of(const char *name, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(words[i], name) == 0)
            return true;
    return false;
}

static tutti_status check_name(const char *name)
{
    static const char *const keywords[] = {
        "auto",     "break",   "case",   "char",     "const",  "continue", "default",
        "do",       "double",  "else",   "enum",     "extern", "float",    "for",
        "goto",     "if",      "inline", "int",      "long",   "main",     "register",
        "restrict", "return",  "short",  "signed",   "sizeof", "static",   "struct",
        "switch",   "typedef", "union",  "unsigned", "void",   "volatile", "while"};
    /* CMake's predefined targets, its files in a build folder, and the library's targets. */
    static const char *const taken[] = {
        "all",        "clean",      "edit_cache",     "help",    "install",
        "package",    "preinstall", "rebuild_cache",  "test",    "Makefile",
        "CMakeFiles", "Testing",    "ALL_BUILD",      "PACKAGE", "RUN_TESTS",
        "INSTALL",    "ZERO_CHECK", "package_source", "tutti",   "tutti_comm"};
    char shown[256];
    size_t n = strlen(name);

    tutti__printable(name, shown, sizeof shown);
    if (strchr(name, '/'))
        return tutti__fail(TUTTI_ERR_ARG,
                           "the name \"%.60s\" has a slash; give the folder with --dir", shown);
    if (n >= sizeof((values *)0)->name)
        return tutti__fail(TUTTI_ERR_ARG, "the name \"%.40s...\" has %zu characters, at most %zu",
                           shown, n, sizeof((values *)0)->name - 1);
    for (size_t i = 0; i < n || n == 0; i++)
        if (n == 0 || !isascii(name[i]) ||
            !(i == 0 ? isalpha(name[i]) : isalnum(name[i]) || strchr("_-", name[i])))
            return tutti__fail(TUTTI_ERR_ARG,
                               "\"%.60s\" is not a valid program name: expected letters, digits, _ "
                               "and -, the first a letter",
                               shown);
    if (is_one_of(name, keywords, TUTTI__COUNT_OF(keywords)))
        return tutti__fail(TUTTI_ERR_ARG, "\"%s\" is a word of C; choose another name", name);
    if (is_one_of(name, taken, TUTTI__COUNT_OF(taken)))
        return tutti__fail(TUTTI_ERR_ARG,
                           "\"%s\" is a name that CMake or Tutti uses; choose another", name);
    return TUTTI_OK;
}

/* ---- The location of this command ------------------------------------------------------------------------------ */

/* Whether a shell finds this file as `tutti`. */
static bool is_in_path(const char *executable)
{
    const char *path = getenv("PATH");
    struct stat own, found;

    if (stat(executable, &own) != 0)
        return false;
    for (const char *p = path ? path : ""; *p;) {
        size_t n = strcspn(p, ":");
        char candidate[4200];

        snprintf(candidate, sizeof candidate, "%.*s/tutti", (int)(n < 4096 ? n : 0), p);
        if (n > 0 && access(candidate, X_OK) == 0 && stat(candidate, &found) == 0)
            return found.st_dev == own.st_dev && found.st_ino == own.st_ino;
        p += n + (p[n] == ':');
    }
    return false;
}

/* A path quoted for a shell, which is not a flag. size: at least 4 times the path's, and 8. */
static const char *shell_word(char *out, size_t size, const char *path)
{
    const char *quote = strpbrk(path, " \t&()<>|*?[]{}#~!\"'\\$;`") ? "'" : "";
    size_t n = (size_t)snprintf(out, size, "%s%s", path[0] == '-' ? "./" : "", quote);

    for (; *path && n + 8 < size; path++)
        n += (size_t)snprintf(out + n, size - n, "%.1s%s", path, *path == '\'' ? "\\''" : "");
    snprintf(out + n, size - n, "%s", quote);
    return out;
}

/* PREFIX of PREFIX/bin/tutti; or the folder itself, if it is a build folder. A path that would need quoting in CMake or in a
 * shell is not used: CMake then searches its default places. */
static void look_around(values *v)
{
    char executable[4096], *slash;

    strcpy(v->tutti, "tutti");
    if (!tutti__executable(executable, sizeof executable) || strpbrk(executable, "\"'\\$;`\n"))
        return;
    if (!is_in_path(executable))
        shell_word(v->tutti, sizeof v->tutti, executable);
    slash = strrchr(executable, '/');
    *slash = '\0';
    if (tutti__ends_in(executable, "/bin"))
        executable[strlen(executable) - strlen("/bin")] = '\0';
    strcpy(v->from, executable);
}

/* ---- Files ---------------------------------------------------------------------------------------------- */

static void fill(FILE *out, const char *text, const values *v)
{
    const struct {
        const char *mark, *value;
    } marks[] = {{"@NAME@", v->name},
                 {"@FROM@", v->from},
                 {"@TUTTI@", v->tutti},
                 {"@VERSION@", TUTTI_VERSION}};

    while (*text) {
        size_t plain = strcspn(text, "@"), i = 0;

        fwrite(text, 1, plain, out);
        text += plain;
        while (i < TUTTI__COUNT_OF(marks) &&
               strncmp(text, marks[i].mark, strlen(marks[i].mark)) != 0)
            i++;
        if (i < TUTTI__COUNT_OF(marks)) {
            fputs(marks[i].value, out);
            text += strlen(marks[i].mark);
        } else if (*text)
            fputc(*text++, out);
    }
}

/* The text with its values filled in; NULL: no memory. */
static char *filled(const char *text, const values *v, size_t *bytes_p)
{
    char *result = NULL;
    FILE *out = open_memstream(&result, bytes_p);

    if (!out)
        return NULL;
    fill(out, text, v);
    if (fclose(out) != 0) {
        free(result);
        return NULL;
    }
    return result;
}

static tutti_status write_new(int folder, const char *name, const char *folder_path,
                              const char *text, size_t bytes)
{
    char path[4200];
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    tutti_status status;

    snprintf(path, sizeof path, "%s/%s", folder_path, name);
    if (fd < 0)
        return tutti__fail_errno(errno, "cannot make %s", path);
    status = tutti__write_all(fd, path, text, bytes);
    if (close(fd) != 0 && status == TUTTI_OK)
        status = tutti__fail_errno(errno, "cannot write %s", path);
    return status;
}

static tutti_status write_files(int folder, const char *path, const values *v)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(files); i++) {
        size_t name_bytes, bytes;
        char *name = filled(files[i].name, v, &name_bytes);
        char *text = filled(files[i].text, v, &bytes);
        tutti_status status = name && text ? write_new(folder, name, path, text, bytes)
                                           : tutti__fail(TUTTI_ERR_MEMORY, "no memory for files");

        free(name);
        free(text);
        TUTTI_TRY(status);
    }
    return TUTTI_OK;
}

static void remove_files(int folder, const char *path, const values *v)
{
    for (size_t i = 0; i < TUTTI__COUNT_OF(files); i++) {
        size_t bytes;
        char *name = filled(files[i].name, v, &bytes);

        if (name)
            unlinkat(folder, name, 0);
        free(name);
    }
    rmdir(path);
}

/* mkdir reserves the name: a second process finds it taken. */
static tutti_status make(const char *dir, const values *v, char path[4096])
{
    tutti_status status;
    int folder;
    const char *slash = !dir || dir[strlen(dir) - 1] == '/' ? "" : "/";

    if (snprintf(path, 4096, "%s%s%s", dir ? dir : "", slash, v->name) >= 4096)
        return tutti__fail(TUTTI_ERR_ARG, "the path %.60s... is too long", path);
    if (mkdir(path, 0777) != 0) {
        if (errno == EEXIST)
            return tutti__fail(TUTTI_ERR_ARG,
                               "%s is there already, and is left as it is: choose another name, or "
                               "remove it",
                               path);
        if (errno == ENOENT && dir && access(dir, F_OK) != 0)
            return tutti__fail(TUTTI_ERR_NOT_FOUND,
                               "cannot make %s: there is no folder %s (mkdir -p makes it)", path,
                               dir);
        return tutti__fail_errno(errno, "cannot make the folder %s", path);
    }
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    status = folder < 0 ? tutti__fail_errno(errno, "cannot open the new folder %s", path)
                        : write_files(folder, path, v);
    if (status != TUTTI_OK)
        remove_files(folder, path, v);
    if (folder >= 0)
        close(folder);
    return status;
}

/* ---- The command ---------------------------------------------------------------------------------------- */

static tutti_status read_line(int argc, char **argv, const char **name_p, const char **dir_p)
{
    static const char *const flags[] = {"--dir", "--help"};

    for (int i = 1; i < argc; i++) {
        const char *text;
        bool missing = false;

        if ((text = tutti__flag_value("--dir", argc, argv, &i, &missing)))
            *dir_p = text;
        else if (missing || (*dir_p && !**dir_p))
            return tutti__fail(TUTTI_ERR_ARG, "--dir needs a value, a folder");
        else if (argv[i][0] == '-' && argv[i][1])
            return tutti__fail_unknown("flag", NULL, argv[i], flags, TUTTI__COUNT_OF(flags));
        else if (*name_p)
            return tutti__fail(TUTTI_ERR_ARG, "one name, not two: \"%.40s\" and \"%.40s\"", *name_p,
                               argv[i]);
        else
            *name_p = argv[i];
    }
    if (!*name_p)
        return tutti__fail(TUTTI_ERR_ARG, "which name? tutti new hello, for example");
    if (*dir_p && !**dir_p)
        return tutti__fail(TUTTI_ERR_ARG, "--dir needs a value, a folder");
    return check_name(*name_p);
}

static void say_next(const values *v, const char *path)
{
    char shown[4096], word[4 * sizeof shown + 8];

    tutti__printable(path, shown, sizeof shown);
    printf("made %s: %s.c, CMakeLists.txt, README.md\n\n"
           "  cd %s\n"
           "  cmake -B build && cmake --build build\n"
           "  %s run -n 2 build/%s\n",
           shown, v->name, shell_word(word, sizeof word, shown), v->tutti, v->name);
}

int tutti__cli_new(int argc, char **argv)
{
    const char *name = NULL, *dir = NULL;
    values v = {0};
    char path[4096];
    tutti_status status;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    if (read_line(argc, argv, &name, &dir) != TUTTI_OK) {
        fprintf(stderr, "tutti new: %s; see tutti new --help\n", tutti_last_error());
        return 2;
    }
    snprintf(v.name, sizeof v.name, "%s", name);
    look_around(&v);
    status = make(dir, &v, path);
    if (status != TUTTI_OK) {
        fprintf(stderr, "tutti new: %s\n", tutti_last_error());
        return tutti_status_exit_code(status);
    }
    say_next(&v, path);
    return 0;
}

/* flag_text.c -- finds the flags of `tutti run` on the command line and in the environment.
 * SPDX-License-Identifier: MIT */
#include "launch/front/flag_text.h"

#include "base/flag.h"
#include "base/terminal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct flag {
    const char *name;
    char letter;
    const char *metavar, *help;
    /* NULL: any value; else the accepted values ("": none), and the reason */
    const char *accepted, *why;
    bool ours; /* not one of torchrun's */
} flag;

static const flag flags[TUTTI__N_FLAGS] = {
#define FLAG(id, name, letter, metavar, help) {name, letter, metavar, help, NULL, NULL, false},
#define OURS(id, name, letter, metavar, help) {name, letter, metavar, help, NULL, NULL, true},
#define ONLY(id, name, accepted, help, why)   {name, 0, "VALUE", help, accepted, why, false},
#define REFUSED(id, name, why)                {name, 0, "VALUE", "", "", why, false},
#include "launch/front/flags.def"
#undef FLAG
#undef OURS
#undef ONLY
#undef REFUSED
};

/* ---- Names ------------------------------------------------------------------------------------------ */

static bool takes_value(int id)
{
    return *flags[id].metavar != '\0';
}

/* Whether the name begins with the text; '_' counts as '-'. */
static bool begins(const char *name, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((text[i] == '_' ? '-' : text[i]) != name[i])
            return false;
    return true;
}

static tutti_status unknown_flag(const char *text, size_t bytes)
{
    const char *names[TUTTI__N_FLAGS];
    char long_names[TUTTI__N_FLAGS][40], name[64];
    tutti_status status;

    for (int i = 0; i < TUTTI__N_FLAGS; i++) {
        snprintf(long_names[i], sizeof long_names[i], "--%s", flags[i].name);
        names[i] = long_names[i];
    }
    snprintf(name, sizeof name, "--%.*s", (int)bytes, text);
    status = tutti__fail_unknown("flag", "tutti run", name, names, TUTTI__N_FLAGS);
    return tutti__fail(status, "%s (flags of the program come after it)", tutti_last_error());
}

static tutti_status ambiguous_flag(const char *text, size_t bytes)
{
    char names[512] = "";
    size_t n = 0;

    for (int i = 0; i < TUTTI__N_FLAGS && n < sizeof names; i++)
        if (!flags[i].ours && begins(flags[i].name, text, bytes))
            n += (size_t)snprintf(names + n, sizeof names - n, "%s--%s", n ? ", " : "",
                                  flags[i].name);
    return tutti__fail(TUTTI_ERR_ARG, "--%.*s is the beginning of several flags: %s", (int)bytes,
                       text, names);
}

/* As in torchrun, an unambiguous beginning of one of its names is enough. Our own flags must be written out, so that they never
 * make an abbreviation of torchrun's ambiguous. */
static tutti_status find_long(const char *text, size_t bytes, int *id_p)
{
    int found = 0;

    *id_p = 0;
    for (int i = 0; i < TUTTI__N_FLAGS; i++) {
        if (!begins(flags[i].name, text, bytes))
            continue;
        if (!flags[i].name[bytes]) {
            *id_p = i;
            return TUTTI_OK;
        }
        if (flags[i].ours)
            continue;
        *id_p = i;
        found++;
    }
    if (found > 1)
        return ambiguous_flag(text, bytes);
    return found == 1 && bytes > 0 ? TUTTI_OK : unknown_flag(text, bytes);
}

/* ---- Texts ------------------------------------------------------------------------------------------ */

/* Whether the text is one of the words separated by '|'. */
static bool is_listed(const char *list, const char *text)
{
    for (const char *p = list; *p; p += *p == '|') {
        size_t bytes = strcspn(p, "|");

        if (strlen(text) == bytes && strncmp(p, text, bytes) == 0)
            return true;
        p += bytes;
    }
    return false;
}

static tutti_status set_text(tutti__flag_texts *t, int id, const char *source, const char *text)
{
    const flag *f = &flags[id];

    snprintf(t->of[id].source, sizeof t->of[id].source, "%s", source);
    t->of[id].text = text;
    if (!f->accepted || is_listed(f->accepted, text))
        return TUTTI_OK;
    if (!*f->accepted)
        return tutti__fail(TUTTI_ERR_ARG, "%s is not in this version: %s", source, f->why);
    return tutti__fail(TUTTI_ERR_ARG, "%s %s is not in this version, only %s: %s", source, text,
                       f->accepted, f->why);
}

/* --name, --name VALUE, --name=VALUE. *next_p counts the arguments used. */
static tutti_status read_long(tutti__flag_texts *t, char **argv, int *next_p)
{
    const char *name = argv[*next_p] + 2, *equals = strchr(name, '=');
    char source[64];
    int id;

    TUTTI_TRY(find_long(name, equals ? (size_t)(equals - name) : strlen(name), &id));
    snprintf(source, sizeof source, "--%s", flags[id].name);
    if (!takes_value(id) && equals)
        return tutti__fail_value(source, equals + 1);
    if (takes_value(id) && !equals && !argv[*next_p + 1])
        return tutti__fail(TUTTI_ERR_ARG, "%s needs a value (%s)", source, flags[id].metavar);
    *next_p += 1;
    if (!takes_value(id))
        return set_text(t, id, source, "1");
    return set_text(t, id, source, equals ? equals + 1 : argv[(*next_p)++]);
}

/* -n VALUE, -nVALUE, -n=VALUE. */
static tutti_status read_short(tutti__flag_texts *t, char **argv, int *next_p)
{
    const char *arg = argv[*next_p];
    char source[3] = {'-', arg[1], '\0'};
    int id;

    for (id = 0; id < TUTTI__N_FLAGS && flags[id].letter != arg[1]; id++)
        continue;
    if (id == TUTTI__N_FLAGS || (!takes_value(id) && arg[2]))
        return tutti__fail_unknown("flag", "tutti run", arg, NULL, 0);
    if (takes_value(id) && !arg[2] && !argv[*next_p + 1])
        return tutti__fail(TUTTI_ERR_ARG, "%s needs a value (%s)", source, flags[id].metavar);
    *next_p += 1;
    if (!takes_value(id))
        return set_text(t, id, source, "1");
    return set_text(t, id, source, arg[2] ? arg + 2 + (arg[2] == '=') : argv[(*next_p)++]);
}

static tutti_status read_environment(tutti__flag_texts *t)
{
    for (int i = 0; i < TUTTI__N_FLAGS; i++) {
        char name[64] = "PET_";
        const char *text;
        size_t n = 4;

        for (const char *p = flags[i].name; *p; p++)
            name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
        name[n] = '\0';
        text = getenv(name);
        if (t->of[i].text || !text || !*text || i == TUTTI__FLAG_HELP || i == TUTTI__FLAG_ENV)
            continue;
        if (!takes_value(i)) {
            if (strcmp(text, "0") == 0)
                continue;
            if (strcmp(text, "1") != 0)
                return tutti__fail(TUTTI_ERR_ARG, "%s is \"%s\", expected 0 or 1", name, text);
        }
        TUTTI_TRY(set_text(t, i, name, text));
    }
    return TUTTI_OK;
}

tutti_status tutti__flag_texts_read(tutti__flag_texts *texts, int argc, char **argv, int *next_p)
{
    int next = 1;

    while (next < argc && argv[next][0] == '-' && argv[next][1]) {
        if (strcmp(argv[next], "--") == 0) {
            next++;
            break;
        }
        if (argv[next][1] == '-')
            TUTTI_TRY(read_long(texts, argv, &next));
        else
            TUTTI_TRY(read_short(texts, argv, &next));
    }
    *next_p = next;
    if (texts->of[TUTTI__FLAG_HELP].text || texts->of[TUTTI__FLAG_ENV].text)
        return TUTTI_OK;
    return read_environment(texts);
}

/* ---- Help ------------------------------------------------------------------------------------------- */

void tutti__run_print_help(FILE *file)
{
    fputs("usage: tutti run [FLAGS] PROGRAM [ARGUMENTS]\n\n"
          "Starts PROGRAM as N workers on this machine, each with torchrun's environment (RANK, "
          "WORLD_SIZE,\n"
          "MASTER_ADDR, ...), and shows their output with the rank before each line. The first "
          "failure stops the\n"
          "other workers and their children. The exit code is that of the worker that failed first "
          "(128 + n for\n"
          "signal n), or 0. Rank 0 reads standard input. A PROGRAM that ends in .py is run by "
          "python3. Each flag\n"
          "NAME can also be set in the environment as PET_NAME; torchrun's flags can be "
          "abbreviated.\n\n",
          file);
    for (int i = 0; i < TUTTI__N_FLAGS; i++) {
        char left[64], letter[4] = "";

        if (flags[i].accepted)
            continue;
        if (flags[i].letter)
            snprintf(letter, sizeof letter, "-%c,", flags[i].letter);
        snprintf(left, sizeof left, "%3s --%s %s", letter, flags[i].name, flags[i].metavar);
        fprintf(file, "  %-31s ", left);
        if (strlen(left) > 30)
            fprintf(file, "\n%*s", 34, "");
        tutti__print_wrapped(file, flags[i].help, 34);
    }
    fputs("\nOf torchrun's flags these are accepted with no other value:\n", file);
    for (int i = 0; i < TUTTI__N_FLAGS; i++)
        if (flags[i].accepted && *flags[i].accepted)
            fprintf(file, "      --%-26s %s: %s\n", flags[i].name, flags[i].accepted, flags[i].why);
    fputs("\nand these are refused:\n", file);
    for (int i = 0; i < TUTTI__N_FLAGS; i++)
        if (flags[i].accepted && !*flags[i].accepted)
            fprintf(file, "      --%-26s %s\n", flags[i].name, flags[i].why);
}

/* ---- Conversions --------------------------------------------------------------------------------------- */

tutti_status tutti__flag_read_count(const tutti__flag_text *g, int low, int high, int *n_p)
{
    int64_t n;

    if (!g->text)
        return TUTTI_OK;
    if (!tutti__parse_int64(g->text, &n) || n < low || n > high)
        return TUTTI__BAD_FLAG(g, "a number from %d to %d", low, high);
    *n_p = (int)n;
    return TUTTI_OK;
}

tutti_status tutti__flag_read_port(const tutti__flag_text *g, int *port_p)
{
    int64_t port;

    if (!g->text)
        return TUTTI_OK;
    if (!tutti__parse_int64(g->text, &port) || port < 0 || port > 65535)
        return TUTTI__BAD_FLAG(g, "a port from 1 to %d, or 0 for a free one", 65535);
    *port_p = (int)port;
    return TUTTI_OK;
}

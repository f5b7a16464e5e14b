/* parts.c -- resolves names to models and data sets.   SPDX-License-Identifier: MIT
 *
 * A shared object is loaded because a flag or a configuration file names it, never because a checkpoint does (inference.c),
 * and stays loaded, because its tables and functions are in use. */
#include "train/config/parts.h"

#include "base/terminal.h"
#include "data/dataset.h"
#include "nn/nn.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME(name)               #name,
#define MODEL_NAME(symbol, name) name,

/* A key that names a part, and how to look it up. */
typedef struct place {
    const char *key, *symbol, *macro;
    const char *other_symbol, *other_key; /* of the other kind of part, for the error message */
    size_t bytes;                         /* of the part */
    char *name, *file;                    /* in the configuration */
} place;

static place model_place(tutti__train_config *config)
{
    return (place){"model",
                   "tutti_shared_model",
                   "TUTTI_SHARED_MODEL(KIND)",
                   "tutti_shared_data",
                   "data",
                   sizeof(tutti_model_kind),
                   config->model,
                   config->model_file};
}

/* name, file: of TUTTI__CONFIG_TEXT bytes. */
static place data_place(char *name, char *file)
{
    return (place){"data",
                   "tutti_shared_data",
                   "TUTTI_SHARED_DATA(FORMAT)",
                   "tutti_shared_model",
                   "model",
                   sizeof(tutti_dataset_format),
                   name,
                   file};
}

/* ---- Shared objects ---------------------------------------------------------------------------------------- */

static bool is_so(const char *name)
{
    return tutti__ends_in(name, ".so") && strcmp(name, ".so") != 0;
}

static bool is_path(const char *name)
{
    return strchr(name, '/') || is_so(name);
}

/* Makes the path absolute, so that it stays valid in config.json. */
static tutti_status make_absolute(const place *p)
{
    const char *given = is_path(p->name) ? p->name : p->file;
    char *absolute = realpath(given, NULL);
    struct stat about;
    tutti_status status = TUTTI_OK;

    if (!absolute)
        return tutti__fail_errno(errno, "%s: cannot open %.400s", p->key, given);
    if (stat(absolute, &about) != 0)
        status = tutti__fail_errno(errno, "%s: cannot open %.400s", p->key, absolute);
    else if (!S_ISREG(about.st_mode))
        status = tutti__fail(TUTTI_ERR_ARG, "%s: %.400s is not a file; expected a shared object",
                             p->key, absolute);
    else if (strlen(absolute) >= TUTTI__CONFIG_TEXT)
        status = tutti__fail(TUTTI_ERR_ARG, "%s: the path %.60s... is too long", p->key, absolute);
    else
        strcpy(p->file, absolute);
    free(absolute);
    return status;
}

/* "0.1.": before 1.0 a minor version may break programs. */
static bool same_version(const char *version)
{
    const char *dot = strchr(TUTTI_VERSION, '.');
    const size_t n = (size_t)(strchr(dot + 1, '.') - TUTTI_VERSION) + 1;

    return version && strncmp(version, TUTTI_VERSION, n) == 0;
}

static tutti_status check_part(const place *p, const tutti_shared_part *part)
{
    if (part->bytes == p->bytes && part->part && same_version(part->version))
        return TUTTI_OK;
    if (part->bytes != p->bytes || !part->part)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: the symbol %s of %.400s is not what %s of Tutti " TUTTI_VERSION
                           " makes; compile it again with these headers",
                           p->key, p->symbol, p->file, p->macro);
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s: %.400s was compiled for Tutti %.20s, and this is Tutti " TUTTI_VERSION
                       "; compile it again with these headers",
                       p->key, p->file, part->version ? part->version : "of no version");
}

typedef struct elf_file {
    bool is_other;   /* than ELF */
    bool is_cut;     /* shorter than its headers say: the dynamic linker would die by SIGBUS */
    bool is_program; /* it names its dynamic linker, as programs do */
} elf_file;

/* All false if it cannot be read: the linker's own message is enough. */
static elf_file look_at(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    elf_file file = {0};
    ElfW(Ehdr) head = {0};
    ElfW(Phdr) part;
    struct stat about;
    ssize_t n;

    if (fd < 0)
        return file;
    n = pread(fd, &head, sizeof head, 0);
    file.is_other = n >= 0 && memcmp(head.e_ident, ELFMAG, SELFMAG) != 0;
    if (n != sizeof head || file.is_other || fstat(fd, &about) != 0 ||
        head.e_phentsize != sizeof part)
        head.e_phnum = 0;
    for (int i = 0; i < head.e_phnum && !file.is_cut; i++) {
        const uint64_t at = head.e_phoff + (uint64_t)i * sizeof part;
        const uint64_t size = (uint64_t)about.st_size;

        file.is_cut = at >= size || pread(fd, &part, sizeof part, (off_t)at) != sizeof part ||
                      part.p_filesz > size || part.p_offset > size - part.p_filesz;
        file.is_program |= !file.is_cut && part.p_type == PT_INTERP;
    }
    close(fd);
    return file;
}

/* The file whose constructors are running in this thread. */
static _Thread_local const char *loading;

/* At exit: a constructor must not end the process with success. */
static void blame_file(void)
{
    if (!loading)
        return;
    tutti__print_line(stderr,
                      "tutti: the shared object %s ended the process while it was loaded (a "
                      "constructor of it called exit)",
                      loading);
    _exit(1);
}

static void blame_at_exit(void)
{
    (void)atexit(blame_file);
}

static void *open_guarded(const char *file)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *handle;

    pthread_once(&once, blame_at_exit);
    loading = file;
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    loading = NULL;
    return handle;
}

static tutti_status load(const place *p, const void **part_p)
{
    const elf_file file = look_at(p->file);
    const tutti_shared_part *part;
    void *handle;

    if (file.is_cut)
        return tutti__fail(TUTTI_ERR_ARG, "%s: cannot load the shared object: %.400s is cut off",
                           p->key, p->file);
    handle = open_guarded(p->file);
    if (!handle)
        return tutti__fail(
            TUTTI_ERR_ARG, "%s: cannot load the shared object: %.900s%s%s", p->key, dlerror(),
            file.is_program
                ? "; it is a program: run it instead, or make a shared object of its source"
            : file.is_other ? "; of a source, make one"
                            : "",
            file.is_program || file.is_other
                ? ": cc -shared -fPIC $(pkg-config --cflags tutti) FILE.c -o FILE.so"
                : "");
    part = dlsym(handle, p->symbol);
    if (!part && dlsym(handle, p->other_symbol))
        return tutti__fail(TUTTI_ERR_ARG, "%s: %.400s holds a %s: give it with --%s", p->key,
                           p->file, strcmp(p->key, "data") == 0 ? "model" : "data format",
                           p->other_key);
    if (!part)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: %.400s has no symbol %s; write %s; at file scope of its source",
                           p->key, p->file, p->symbol, p->macro);
    TUTTI_TRY(check_part(p, part));
    *part_p = part->part;
    return TUTTI_OK;
}

/* Names are used in file names, and in specs. */
static tutti_status check_name(const place *p, const char *name)
{
    char shown[256];

    if (name && name[0] && strlen(name) <= 60 && !strpbrk(name, "/: ") && name[0] != '.' &&
        strcmp(tutti__printable(name, shown, sizeof shown), name) == 0)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s: the name \"%.60s\" is not one of 1 to 60 printable characters without "
                       "'/', ':' and blanks, and without '.' in front",
                       p->key, name ? name : "");
}

/* The name of the loaded part, which must equal the configured one, if there is one. */
static tutti_status take_name(const place *p, const char *name)
{
    TUTTI_TRY(check_name(p, name));
    if (!is_path(p->name) && strcmp(p->name, name) != 0)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: %.400s holds \"%s\", and the configuration says "
                           "%s \"%.60s\"",
                           p->key, p->file, name, p->key, p->name);
    strcpy(p->name, name);
    return TUTTI_OK;
}

/* ---- Names ------------------------------------------------------------------------------------------------- */

void tutti__parts_set_names(const tutti__parts *parts, tutti__train_config *config)
{
    const tutti_trainer_opts *own = &parts->own;

    if (own->model && own->model->name)
        snprintf(config->model, sizeof config->model, "%s", own->model->name);
    if (own->train)
        snprintf(config->data, sizeof config->data, "%s", tutti_dataset_describe(own->train).name);
    else if (own->format && own->format->name)
        snprintf(config->data, sizeof config->data, "%s", own->format->name);
}

/* names: the library's, and the program's if it has one. */
static tutti_status fail_name(const place *p, const char *const *names, size_t n)
{
    char expected[512];

    return tutti__fail(TUTTI_ERR_ARG,
                       "%s: \"%.100s\" is not one of its values; expected %s, or a shared object "
                       "(./my_%s.so)",
                       p->key, p->name,
                       tutti__choice_text(p->name, names, n, expected, sizeof expected), p->key);
}

static tutti_status fail_own(const place *p, const char *own)
{
    return tutti__fail(TUTTI_ERR_ARG, "%s: this program brings its own, \"%.60s\"; leave %s out",
                       p->key, own, p->key);
}

static tutti_status find_model(tutti__parts *parts, tutti__train_config *config)
{
    static const char *const names[] = {TUTTI__MODELS(MODEL_NAME)};
    const tutti_model_kind *own = parts->own.model;
    const place p = model_place(config);
    const void *part;

    if (own) {
        TUTTI_TRY(check_name(&p, own->name));
        TUTTI_TRY(tutti__model_check(own));
        parts->model = own;
        return strcmp(config->model, own->name) == 0 && !config->model_file[0]
                   ? TUTTI_OK
                   : fail_own(&p, own->name);
    }
    if (is_path(config->model) || config->model_file[0]) {
        TUTTI_TRY(make_absolute(&p));
        TUTTI_TRY(load(&p, &part));
        parts->model = part;
        TUTTI_TRY(take_name(&p, parts->model->name));
        return tutti__model_check(parts->model);
    }
    parts->model = tutti__model_find(config->model);
    return parts->model ? TUTTI_OK : fail_name(&p, names, TUTTI__COUNT_OF(names));
}

static tutti_status load_format(const place *p, const tutti_dataset_format **format_p)
{
    const void *part;

    TUTTI_TRY(make_absolute(p));
    TUTTI_TRY(load(p, &part));
    *format_p = part;
    TUTTI_TRY(take_name(p, (*format_p)->name));
    return tutti__format_check(*format_p);
}

static tutti_status find_data(tutti__parts *parts, tutti__train_config *config)
{
    const tutti_trainer_opts *own = &parts->own;
    const char *const names[] = {TUTTI__FORMATS(NAME) own->format ? own->format->name : NULL};
    const place p = data_place(config->data, config->data_file);

    parts->format = NULL;
    if (own->train) {
        const char *name = tutti_dataset_describe(own->train).name;

        TUTTI_TRY(check_name(&p, name));
        return strcmp(config->data, name) == 0 && !config->data_file[0] ? TUTTI_OK
                                                                        : fail_own(&p, name);
    }
    if (is_path(config->data) || config->data_file[0])
        return load_format(&p, &parts->format);
    if (own->format) {
        TUTTI_TRY(check_name(&p, own->format->name));
        TUTTI_TRY(tutti__format_check(own->format));
    }
    if (own->format && strcmp(config->data, own->format->name) == 0) {
        parts->format = own->format;
        return TUTTI_OK;
    }
    parts->format = tutti__format_find(config->data);
    return parts->format ? TUTTI_OK : fail_name(&p, names, TUTTI__COUNT_OF(names) - !own->format);
}

tutti_status tutti__parts_find(tutti__parts *parts, tutti__train_config *config)
{
    TUTTI_TRY(find_model(parts, config));
    return find_data(parts, config);
}

tutti_status tutti__parts_find_spec(const char *spec, char **named_p,
                                    const tutti_dataset_format **format_p)
{
    const size_t n = strcspn(spec, ":");
    char name[TUTTI__CONFIG_TEXT] = "", file[TUTTI__CONFIG_TEXT] = "";
    const place p = data_place(name, file);

    *named_p = NULL;
    *format_p = NULL;
    if (n < sizeof name)
        memcpy(name, spec, n);
    /* For a folder without a format, the message lists the formats. */
    if (is_so(name) || (spec[n] && is_path(name))) {
        TUTTI_TRY(load_format(&p, format_p));
        if (asprintf(named_p, "%s%s", name, spec + n) < 0)
            *named_p = NULL;
    } else
        *named_p = strdup(spec);
    return *named_p ? TUTTI_OK : tutti__fail(TUTTI_ERR_MEMORY, "no memory for a data set's spec");
}

/* ---- Constraints of data keys ------------------------------------------------------------------------------------- */

/* Keys of tables, which a program's own format may be. */
static tutti_status check_table(const tutti_dataset_format *format, const tutti__train_config *c)
{
    const char *key = c->target[0] ? "target" : c->features[0] ? "features" : NULL;

    if (!key || strcmp(format->name, "csv") == 0 || tutti__format_find(format->name) != format)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "%s: the samples of data=%s have no columns with names; it is for data=csv",
                       key, c->data);
}

static tutti_status check_tokenizer(const tutti_dataset_format *format,
                                    const tutti__train_config *c)
{
    if (!c->tokenizer[0] || strcmp(format->name, "text") == 0 ||
        strcmp(format->name, "tokens") == 0 || tutti__format_find(format->name) != format)
        return TUTTI_OK;
    return tutti__fail(
        TUTTI_ERR_ARG,
        "tokenizer: it is for data=text, and the samples of data=%s are not read from "
        "text; leave it out",
        c->data);
}

tutti_status tutti__parts_check(const tutti__parts *parts, const tutti__train_config *c)
{
    const tutti_dataset_format *format = parts->format;

    const char *of_data = c->data_dir[0]    ? "data_dir"
                          : c->image_size   ? "image_size"
                          : c->target[0]    ? "target"
                          : c->features[0]  ? "features"
                          : c->tokenizer[0] ? "tokenizer"
                                            : NULL;

    if (!format && of_data)
        return tutti__fail(TUTTI_ERR_ARG, "%s: this program brings its own data; leave %s out",
                           of_data, of_data);
    if (!format)
        return TUTTI_OK;
    if (!c->data_dir[0] && !format->no_folder)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "data_dir: data=%s needs files; give their folder with --data-dir FOLDER", c->data);
    if (c->data_dir[0] && format->no_folder)
        return tutti__fail(TUTTI_ERR_ARG,
                           "data_dir: data=%s needs no files; leave data_dir out, or name the data "
                           "that are there (cifar10, mnist, folder, ...)",
                           c->data);
    TUTTI_TRY(check_table(format, c));
    TUTTI_TRY(check_tokenizer(format, c));
    if (c->image_size && !format->read_random)
        return tutti__fail(TUTTI_ERR_ARG,
                           "image_size: the images of data=%s have one size; it is for data=folder",
                           c->data);
    return TUTTI_OK;
}

tutti_status tutti__config_adapt(const tutti__train_config *c, tutti_module *model)
{
    const tutti_lora_opts opts = {.rank = (int)c->lora_rank,
                                  .alpha = c->lora_alpha,
                                  .dropout = c->lora_dropout,
                                  .targets = c->lora_targets,
                                  .train = c->lora_train};

    return c->lora_rank > 0 ? tutti_lora_apply(model, &opts) : TUTTI_OK;
}

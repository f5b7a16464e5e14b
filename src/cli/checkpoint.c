/* checkpoint.c -- `tutti checkpoint show|verify|export`.   SPDX-License-Identifier: MIT */
#include "base/flag.h"
#include "base/terminal.h"
#include "checkpoint/adapter.h"
#include "checkpoint/json_text.h"
#include "checkpoint/output.h"
#include "checkpoint/state.h"
#include "checkpoint/weights.h"
#include "cli/cli.h"
#include "checkpoint/weights_parts.h"
#include "cli/export_hf.h"
#include "cli/export_weights.h"
#include "train/output/counter.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char HELP[] =
    "usage: tutti checkpoint show PATH [--digest] [--json]\n"
    "       tutti checkpoint verify PATH\n"
    "       tutti checkpoint export PATH [--out] OUT [--dtype TYPE] [--weights KIND] [--force]\n"
    "       tutti checkpoint export PATH --hf DIR [--max-shard-size SIZE] [--dtype TYPE] "
    "[--force]\n"
    "       tutti checkpoint export PATH --adapter DIR [--force]\n"
    "\n"
    "PATH is a .safetensors file, the index of several (.safetensors.index.json), a PyTorch .pt "
    "file "
    "(torch.save of\n"
    "a state_dict, or of a dictionary that has one under \"model\" or the like), a checkpoint "
    "(RUN/checkpoints/step-N,\n"
    "or latest; also one that ranks have written in parts), or a run folder (its latest "
    "checkpoint). "
    "Nothing in a file\n"
    "is ever executed.\n"
    "\n"
    "show lists the tensors with type, shape and bytes; for a checkpoint also step, epoch, ranks "
    "and "
    "keys.\n"
    "  --digest       also the XXH3-64 of each tensor\n"
    "  --json         as a JSON object\n"
    "\n"
    "verify reads everything and checks every digest: of each tensor, of state.json, of the model; "
    "in "
    "a run folder,\n"
    "of all checkpoints. It names what is damaged, and then exits with 1.\n"
    "\n"
    "export writes the weights to OUT: a file that ends in .safetensors, or in .pt or .pth for "
    "torch.load.\n"
    "  --dtype TYPE   f32, f16 or bf16, for floating-point tensors (default: unchanged)\n"
    "  --force        replace files that exist\n"
    "  --hf DIR       write a folder for Hugging Face's transformers, of gpt2 or llama: "
    "DIR/model.safetensors,\n"
    "                 config.json and the run's tokenizer (of bytes or characters too); in several "
    "files with an index, if it "
    "is "
    "larger than\n"
    "  --max-shard-size SIZE  bytes of one file, as in 512M (of 1024) or 5GB (of 1000, the "
    "default)\n"
    "One tensor at a time is in memory. Low-rank adapters (LoRA) are merged into the weights, W + "
    "alpha / rank B A.\n"
    "  --weights KIND model (default): the weights of the last step; ema: their averages, of a run "
    "with --ema\n"
    "  --adapter DIR  write the adapters alone, and what was trained besides them, for Hugging "
    "Face's "
    "PEFT:\n"
    "                 DIR/adapter_model.safetensors and adapter_config.json\n"
    "\n"
    "  -h, --help     this text\n";

static int fail(const char *verb, tutti_status status)
{
    fprintf(stderr, "tutti checkpoint %s: %s\n", verb, tutti_last_error());
    return tutti_status_exit_code(status);
}

static int fail_usage(const char *verb, const char *what)
{
    fprintf(stderr, "tutti checkpoint %s: %s; see tutti checkpoint --help\n", verb, what);
    return 2;
}

/* The n names end with --help. */
static int unknown_flag(const char *verb, const char *flag, const char *const *names, size_t n)
{
    (void)tutti__fail_unknown("flag", NULL, flag, names, n);
    return fail_usage(verb, tutti_last_error());
}

/* ---- show ------------------------------------------------------------------------------------------------------- */

/* XXH3-64 of a tensor's bytes; "" and the message set on failure. */
static tutti_status digest_of(const tutti__weights *file, size_t i, char digest[24])
{
    const size_t bytes = (size_t)tutti__weights_at(file, i)->bytes;
    void *p = tutti__alloc(bytes);
    tutti_status status = p ? tutti__weights_read(file, i, p) : TUTTI_ERR_MEMORY;

    snprintf(digest, 24, "%016" PRIx64, status == TUTTI_OK ? tutti__hash64(p, bytes) : 0);
    free(p);
    return status;
}

/* A text of a file as JSON; it may not be UTF-8. */
static json_t *text_json(const char *text)
{
    char shown[1024];
    json_t *value = json_string(text);

    return value ? value : json_string(tutti__printable(text, shown, sizeof shown));
}

static tutti_status no_memory(const tutti__weights *file)
{
    return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s as JSON", tutti__weights_path(file));
}

static tutti_status tensor_json(const tutti__weights *file, size_t i, bool digests, json_t *list)
{
    const tutti__safetensors_entry *e = tutti__weights_at(file, i);
    json_t *shape = json_array(), *row;
    char digest[24];
    int failed = 0;

    for (int k = 0; k < e->shape.n; k++)
        failed |= json_array_append_new(shape, json_integer(e->shape.d[k]));
    row = json_pack("{s:o, s:s, s:o, s:I}", "name", text_json(e->name), "dtype", e->dtype_text,
                    "shape", shape, "bytes", (json_int_t)e->bytes);
    failed |= json_array_append_new(list, row);
    if (digests) {
        TUTTI_TRY(digest_of(file, i, digest));
        failed |= json_object_set_new(row, "xxh3", json_string(digest));
    }
    return failed ? no_memory(file) : TUTTI_OK;
}

static tutti_status show_json(const tutti__weights *file, json_t *state, bool digests)
{
    json_t *tensors = json_array(), *root;
    tutti_status status = TUTTI_OK;
    char *text;

    for (size_t i = 0; i < tutti__weights_count(file) && status == TUTTI_OK; i++)
        status = tensor_json(file, i, digests, tensors);
    root = json_pack("{s:o, s:s, s:o}", "file", text_json(tutti__weights_path(file)), "kind",
                     tutti__weights_kind(file), "tensors", tensors);
    if (status == TUTTI_OK && state && json_object_set(root, "checkpoint", state) != 0)
        status = no_memory(file);
    text = tutti__json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (status == TUTTI_OK && text)
        puts(text);
    else if (status == TUTTI_OK)
        status = no_memory(file);
    free(text);
    json_decref(root);
    return status;
}

static void show_state(const json_t *state)
{
    const json_t *config = json_object_get(state, "config"), *value;
    const char *key;
    int column = 0;

    const long long epoch = json_integer_value(json_object_get(state, "epoch"));
    const long long batch = json_integer_value(json_object_get(state, "batch"));

    printf("checkpoint at step %lld",
           (long long)json_integer_value(json_object_get(state, "step")));
    if (batch > 0 || epoch == 1)
        printf(", in epoch %lld after batch %lld", epoch, batch);
    else if (epoch > 1)
        printf(", after epoch %lld", epoch - 1);
    printf(", of %lld rank%s%s\n",
           (long long)json_integer_value(json_object_get(state, "world_size")),
           json_integer_value(json_object_get(state, "world_size")) == 1 ? "" : "s",
           json_is_true(json_object_get(state, "finished")) ? "; the run was finished" : "");
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12)), shown[256];

        if (!text || strcmp(text, "\"\"") == 0) {
            free(text);
            continue;
        }
        if (column > 0 && column + (int)(strlen(key) + strlen(text)) > 96) {
            putchar('\n');
            column = 0;
        }
        column += printf("  %s=%s", key, tutti__printable(text, shown, sizeof shown));
        free(text);
    }
    puts("");
}

static tutti_status show_table(const tutti__weights *file, const json_t *state, bool digests)
{
    const size_t n = tutti__weights_count(file);
    int width = 4, shapes = 5;
    uint64_t bytes = 0, numbers = 0;
    char name[512], digest[24] = "";

    if (state)
        show_state(state);
    for (size_t i = 0; i < n; i++) {
        const tutti__safetensors_entry *e = tutti__weights_at(file, i);
        int w = (int)strlen(tutti__printable(e->name, name, sizeof name));
        int s = (int)strlen(tutti__shape_text(e->shape));

        width = w > width ? w : width;
        shapes = s > shapes ? s : shapes;
        bytes += e->bytes;
        numbers += (uint64_t)tutti_shape_count(e->shape);
    }
    printf("%s (%s): %zu tensor%s, %" PRIu64 " number%s, %" PRIu64 " bytes\n",
           tutti__printable(tutti__weights_path(file), name, sizeof name),
           tutti__weights_kind(file), n, tutti__s(n), numbers, tutti__s(numbers), bytes);
    printf("  %-*s  %-5s  %-*s  %12s%s\n", width, "name", "dtype", shapes, "shape", "bytes",
           digests ? "  xxh3" : "");
    for (size_t i = 0; i < n; i++) {
        const tutti__safetensors_entry *e = tutti__weights_at(file, i);

        if (digests)
            TUTTI_TRY(digest_of(file, i, digest));
        printf("  %-*s  %-5s  %-*s  %12" PRIu64 "%s%s\n", width,
               tutti__printable(e->name, name, sizeof name), e->dtype_text, shapes,
               tutti__shape_text(e->shape), e->bytes, digests ? "  " : "", digest);
    }
    return TUTTI_OK;
}

static int run_show(int argc, char **argv)
{
    static const char *const flags[] = {"--digest", "--json", "--help"};
    tutti__weights_place place;
    tutti__weights *file = NULL;
    json_t *state = NULL;
    bool digests = false, json = false;
    const char *path = NULL;
    tutti_status status;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--digest") == 0)
            digests = true;
        else if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-' && argv[i][1])
            return unknown_flag("show", argv[i], flags, TUTTI__COUNT_OF(flags));
        else if (path)
            return fail_usage("show", "expected one path");
        else
            path = argv[i];
    }
    if (!path)
        return fail_usage("show", "expected a file, a checkpoint or a run folder");
    status = tutti__weights_find(&place, path);
    if (status == TUTTI_OK)
        status = tutti__weights_open(&file, path);
    if (status == TUTTI_OK && place.folder[0])
        status = tutti__state_read(&state, place.folder);
    if (status == TUTTI_OK)
        status = json ? show_json(file, state, digests) : show_table(file, state, digests);
    json_decref(state);
    tutti__weights_close(file);
    return status == TUTTI_OK ? 0 : fail("show", status);
}

/* ---- verify ----------------------------------------------------------------------------------------------------- */

static void say_verified(void *user, const char *file, const char *problem)
{
    (void)user;
    tutti__print_line(stdout, "%s  %s", problem ? "DAMAGED" : "intact ", problem ? problem : file);
    fflush(stdout);
}

static int run_verify(int argc, char **argv)
{
    static const char *const flags[] = {"--help"};
    tutti__verify_counts c;
    tutti_status status;

    for (int i = 0; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1])
            return unknown_flag("verify", argv[i], flags, TUTTI__COUNT_OF(flags));
    if (argc != 1)
        return fail_usage("verify", "expected a file, a checkpoint or a run folder");
    status = tutti__verify(argv[0], say_verified, NULL, &c);
    if (status != TUTTI_OK)
        return fail("verify", status);
    printf("all intact: %zu file%s, %zu tensor%s, %" PRIu64 " bytes\n", c.files, tutti__s(c.files),
           c.tensors, tutti__s(c.tensors), c.bytes);
    if (c.unchecked > 0)
        printf("(%zu tensor%s could be read, but no digest tells whether the file is what was "
               "written)\n",
               c.unchecked, tutti__s(c.unchecked));
    return 0;
}

/* ---- export ----------------------------------------------------------------------------------------------------- */

typedef struct export_line {
    const char *paths[2]; /* the second: of --adapter and --hf, a folder */
    int dtype;            /* -1: unchanged */
    int64_t most;         /* bytes of a file of --hf; 0: not given */
    bool force, adapter, hf, ema;
    char average[4096]; /* the file of the averages; "": there is none */
} export_line;

static tutti_status export_adapters(const export_line *l, const tutti__export *e, size_t *n_p)
{
    if (!e->adapters)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s holds no low-rank adapters; expected a checkpoint of a run with "
                           "lora_rank",
                           l->paths[0]);
    return tutti__adapters_save(e->adapters, l->paths[1], n_p);
}

/* config.json is last: a folder that has it is complete. */
static tutti_status write_hf(const export_line *l, const tutti__export *e)
{
    tutti__weights_place place;
    char path[4200], *text = NULL;
    bool tokenizer;
    tutti_status status;

    snprintf(path, sizeof path, "%.4000s/config.json", l->paths[1]);
    TUTTI_TRY(tutti__weights_find(&place, l->paths[0]));
    TUTTI_TRY(tutti__export_hf_config(&text, e->file, &place));
    status = tutti__make_dirs(l->paths[1]);
    if (status == TUTTI_OK)
        status = tutti__export_parts(e, l->paths[1], l->most);
    if (status == TUTTI_OK)
        status = tutti__export_hf_tokenizer(&place, text, l->paths[1], &tokenizer);
    if (status == TUTTI_OK && !tokenizer)
        tutti__print_line(stderr,
                          "tutti checkpoint export: no tokenizer is written: %s has none beside "
                          "it, and does not say that its tokens are bytes or characters",
                          l->paths[0]);
    if (status == TUTTI_OK)
        status = tutti__write_file(path, text, strlen(text));
    free(text);
    return status;
}

/* With --weights ema their file is what is exported. */
static tutti_status find_average(export_line *l)
{
    const bool found = tutti__weights_find_ema(l->paths[0], l->average);

    if (!found)
        l->average[0] = '\0';
    if (!l->ema)
        return TUTTI_OK;
    if (!found)
        return tutti__fail(TUTTI_ERR_NOT_FOUND,
                           "--weights ema: %s has no ema.safetensors; expected a checkpoint or a "
                           "run that averages weights (--ema)",
                           l->paths[0]);
    l->paths[0] = l->average;
    return TUTTI_OK;
}

/* "; the averages of the weights (ema)" */
static const char *which(const export_line *l)
{
    return l->ema          ? "; the averages of the weights (ema)"
           : l->average[0] ? "; the weights of the last step: their averages by --weights ema"
                           : "";
}

static tutti_status export(const export_line *l, const tutti__tick *tick, size_t *n_p)
{
    tutti__export e;
    tutti_status status = tutti__export_open(&e, l->paths[0], l->dtype, tick);

    if (status == TUTTI_OK && l->adapter)
        status = export_adapters(l, &e, n_p);
    else if (status == TUTTI_OK) {
        status = tutti__export_list(&e);
        *n_p = e.n;
        if (status == TUTTI_OK)
            status = l->hf ? write_hf(l, &e) : tutti__export_file(&e, l->paths[1]);
        if (status == TUTTI_OK)
            status = tutti__tick_call(tick, e.n, e.n);
    }
    tutti__export_close(&e);
    return status;
}

static tutti_status read_dtype(const char *text, int *dtype_p)
{
    static const char *const names[] = {"f32", "f16", "bf16"};
    static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_F16, TUTTI_BF16};

    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *dtype_p = (int)dtypes[i];
            return TUTTI_OK;
        }
    return tutti__fail_choice("--dtype", text, names, TUTTI__COUNT_OF(names));
}

#define DEFAULT_MOST ((int64_t)5000000000) /* as transformers' save_pretrained */

/* "5GB" of 1000, as transformers reads it; "5G" and "5GiB" of 1024. */
static tutti_status read_size(const char *text, int64_t *bytes_p)
{
    const size_t n = strlen(text);
    const bool b = tutti__ends_in(text, "B"), binary = tutti__ends_in(text, "iB");
    int64_t of_1024 = 0, step = 1;

    if (!tutti__parse_size(text, n - (binary ? 2 : b), &of_1024))
        return tutti__fail(TUTTI_ERR_ARG,
                           "--max-shard-size is \"%.60s\", expected bytes, as in 5GB or 512M",
                           text);
    *bytes_p = of_1024;
    for (size_t i = 0; b && !binary && i < n; i++)
        step = strchr("Kk", text[i])   ? 1024
               : strchr("Mm", text[i]) ? 1 << 20
               : strchr("Gg", text[i]) ? 1 << 30
                                       : step;
    if (step > 1)
        *bytes_p = of_1024 / step * (step == 1024 ? 1000 : step == 1 << 20 ? 1000000 : 1000000000);
    return TUTTI_OK;
}

/* A folder in place of the file to write. */
static tutti_status check_folder(const export_line *l, int n, const char *out)
{
    const char *flag = l->hf ? "--hf" : "--adapter";

    if (n != 1 || out || (l->hf && l->adapter))
        return tutti__fail(TUTTI_ERR_ARG,
                           "with %s DIR expected one path more, of the weights, and no file to "
                           "write",
                           flag);
    if (l->dtype >= 0 && l->adapter)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--adapter writes adapters as they are; leave --dtype out");
    return *l->paths[1] ? TUTTI_OK : tutti__fail(TUTTI_ERR_ARG, "%s: the path is empty", flag);
}

static tutti_status read_weights(const char *text, bool *ema_p)
{
    static const char *const kinds[] = {"model", "ema"};

    *ema_p = strcmp(text, "ema") == 0;
    return *ema_p || strcmp(text, "model") == 0
               ? TUTTI_OK
               : tutti__fail_choice("--weights", text, kinds, TUTTI__COUNT_OF(kinds));
}

static tutti_status read_export(export_line *l, int argc, char **argv)
{
    static const char *const flags[] = {"--out",   "--dtype",   "--hf",      "--max-shard-size",
                                        "--force", "--adapter", "--weights", "--help"};
    const char *out = NULL, *text;
    int n = 0;

    *l = (export_line){.dtype = -1};
    for (int i = 0; i < argc; i++) {
        bool missing = false;

        if ((text = tutti__flag_value("--dtype", argc, argv, &i, &missing))) {
            TUTTI_TRY(read_dtype(text, &l->dtype));
        } else if (!missing && (text = tutti__flag_value("--out", argc, argv, &i, &missing)))
            out = text;
        else if (!missing && (text = tutti__flag_value("--adapter", argc, argv, &i, &missing))) {
            l->adapter = true;
            l->paths[1] = text;
        } else if (!missing && (text = tutti__flag_value("--hf", argc, argv, &i, &missing))) {
            l->hf = true;
            l->paths[1] = text;
        } else if (!missing &&
                   (text = tutti__flag_value("--max-shard-size", argc, argv, &i, &missing))) {
            TUTTI_TRY(read_size(text, &l->most));
        } else if (!missing && (text = tutti__flag_value("--weights", argc, argv, &i, &missing))) {
            TUTTI_TRY(read_weights(text, &l->ema));
        } else if (missing)
            return tutti__fail(TUTTI_ERR_ARG, "%s needs a value", argv[i]);
        else if (strcmp(argv[i], "--force") == 0)
            l->force = true;
        else if (argv[i][0] == '-' && argv[i][1])
            return tutti__fail_unknown("flag", NULL, argv[i], flags, TUTTI__COUNT_OF(flags));
        else if (n == 2)
            return tutti__fail(TUTTI_ERR_ARG, "more than a path and a file to write: \"%.60s\"",
                               argv[i]);
        else
            l->paths[n++] = argv[i];
    }
    if (l->most > 0 && !l->hf)
        return tutti__fail(TUTTI_ERR_ARG, "--max-shard-size is for a folder of several files; add "
                                          "--hf DIR");
    if (l->hf && l->most == 0)
        l->most = DEFAULT_MOST;
    if (l->adapter || l->hf)
        return check_folder(l, n, out);
    if (out && n < 2)
        l->paths[n++] = out;
    else if (out)
        return tutti__fail(TUTTI_ERR_ARG, "more than one file to write: \"%.60s\" and \"%.60s\"",
                           l->paths[1], out);
    if (n != 2)
        return tutti__fail(TUTTI_ERR_ARG, "expected a path and the file to write");
    if (!tutti__export_is_pytorch(l->paths[1]) && !tutti__ends_in(l->paths[1], ".safetensors"))
        return tutti__fail(
            TUTTI_ERR_ARG,
            "the file to write is \"%.200s\", expected one that ends in .safetensors, "
            ".pt or .pth, which says its format",
            l->paths[1]);
    return TUTTI_OK;
}

static tutti_status check_free(const export_line *l, const char *flag, const char *path)
{
    struct stat st;

    TUTTI_TRY(tutti__output_check(flag, path));
    if (!l->force && lstat(path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))
        return tutti__fail(TUTTI_ERR_IO, "%s is there already; --force replaces it", path);
    return TUTTI_OK;
}

/* What may be written to a folder. */
static const char *const *files_of(const export_line *l)
{
    static const char *const adapter[] = {"adapter_model.safetensors", "adapter_config.json", NULL};
    static const char *const hf[] = {"model.safetensors", TUTTI__WEIGHTS_INDEX,    "config.json",
                                     "tokenizer.json",    "tokenizer_config.json", "vocab.json",
                                     "merges.txt",        "tokenizer.tiktoken",    NULL};

    return l->hf ? hf : adapter;
}

/* Removes a folder that a failed export has made. */
static void remove_made(const export_line *l)
{
    char path[4200];

    if (l->hf)
        tutti__export_remove_parts(l->paths[1], 0);
    for (const char *const *name = files_of(l); *name; name++) {
        snprintf(path, sizeof path, "%.4000s/%s", l->paths[1], *name);
        (void)unlink(path);
    }
    (void)rmdir(l->paths[1]);
}

/* Before any work: whether what is written may be, and is not there; and whether its folder is new. */
static tutti_status check_all_free(const export_line *l, bool *new_p)
{
    char path[4200];

    if (!l->hf && !l->adapter)
        return check_free(l, "OUT", l->paths[1]);
    *new_p = access(l->paths[1], F_OK) != 0;
    if (*new_p) { /* it is made where there is a folder for it */
        snprintf(path, sizeof path, "%.4000s", l->paths[1]);
        for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
            path[n - 1] = '\0';
        TUTTI_TRY(tutti__output_try(path));
    }
    for (const char *const *name = files_of(l); *name; name++) {
        snprintf(path, sizeof path, "%.4000s/%s", l->paths[1], *name);
        TUTTI_TRY(check_free(l, l->hf ? "--hf" : "--adapter", path));
    }
    return TUTTI_OK;
}

static int run_export(int argc, char **argv)
{
    export_line l;
    tutti__counter counter;
    tutti__tick tick = tutti__counter_begin(&counter, "exporting", "tensors");
    bool is_new = false;
    size_t n = 0;
    tutti_status status;

    if (read_export(&l, argc, argv) != TUTTI_OK)
        return fail_usage("export", tutti_last_error());
    status = check_all_free(&l, &is_new);
    if (status != TUTTI_OK)
        return status == TUTTI_ERR_ARG ? fail_usage("export", tutti_last_error())
                                       : fail("export", status);
    tutti__counter_catch_signals();
    status = find_average(&l);
    if (status == TUTTI_OK)
        status = export(&l, &tick, &n);
    tutti__counter_clear(&counter);
    if (status != TUTTI_OK) {
        int code = fail("export", status);

        if (is_new)
            remove_made(&l);
        return tutti__counter_stopped() ? 128 + tutti__counter_stopped() : code;
    }
    tutti__print_line(stdout, "%zu tensor%s in %s%s", n, tutti__s(n), l.paths[1], which(&l));
    return 0;
}

int tutti__cli_checkpoint(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    if (strcmp(verb, "show") == 0)
        return run_show(argc - 2, argv + 2);
    if (strcmp(verb, "verify") == 0)
        return run_verify(argc - 2, argv + 2);
    if (strcmp(verb, "export") == 0)
        return run_export(argc - 2, argv + 2);
    if (*verb)
        tutti__print_line(stderr,
                          "tutti checkpoint: there is no \"%.60s\"; it is show, verify or export; "
                          "see tutti checkpoint --help",
                          verb);
    else
        fputs("tutti checkpoint: show, verify or export? See tutti checkpoint --help\n", stderr);
    return 2;
}

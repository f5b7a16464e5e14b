/* generate.c -- `tutti generate`: text from a language model.   SPDX-License-Identifier: MIT */
#include "train/infer/generate.h"

#include "base/flag.h"
#include "base/terminal.h"
#include "cli/cli.h"
#include "cli/nproc.h"
#include "comm/comm.h"
#include "data/text/tokens.h"
#include "launch/front/launch.h"
#include "train/config/agreement.h"
#include "train/infer/inference_line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/status.h>
#include <unistd.h>

static const char HELP[] =
    "Continues a prompt with a language model. The text alone goes to standard output, as it is "
    "made.\n"
    "\n"
    "usage: tutti generate PATH [--prompt TEXT] [-n TOKENS] [--FLAG VALUE]...\n"
    "\n"
    "  tutti generate runs/shakespeare --prompt \"ROMEO:\" -n 500\n"
    "  tutti generate gpt2 --prompt-file story.txt --temperature 0\n"
    "  echo -n \"Once upon a time\" | tutti generate runs/mine --prompt - --samples 3 --seed 7\n"
    "\n"
    "PATH is a checkpoint (RUN/checkpoints/step-N, latest or best), a run folder (its latest "
    "checkpoint), a folder of\n"
    "Hugging Face (config.json, model.safetensors, tokenizer.json), or a .safetensors or PyTorch "
    ".pt "
    "file with --model and\n"
    "the model's sizes. Model and tokenizer are those of the run or folder.\n"
    "\n"
    "  --prompt TEXT            the text to continue; -: standard input. Without one: the "
    "beginning of "
    "a text\n"
    "  --prompt-file FILE       the same from a file\n"
    "  -n, --tokens N           tokens to write (default 200); ends earlier at an end of text\n"
    "  --temperature X          logits are divided by it: less than 1 is more likely text; 0: "
    "always the "
    "likeliest token\n"
    "                           (default 0.8)\n"
    "  --top-k K                only the K likeliest tokens; 0: all (default 200)\n"
    "  --top-p P                and of those the fewest that together have probability P (default "
    "1: "
    "all)\n"
    "  --seed S                 the same seed gives the same text, with any number of threads "
    "(default "
    "0)\n"
    "  --samples N              texts to write, with a line of hyphens between them (default 1)\n"
    "  --no-prompt              writes the continuation without the prompt\n"
    "  --no-stop                goes on after an end of text\n"
    "  --stats                  tokens a second, on standard error\n"
    "  --weights KIND           ema or model, as in tutti eval\n"
    "  --tensor T               T processes, among which each layer is divided, for a model that "
    "is "
    "larger than one\n"
    "                           (gpt2, llama); the text is the same, up to the rounding of sums\n"
    "  --pipeline P             P processes, each with a stage of its blocks (gpt2, llama); the "
    "same "
    "text\n"
    "  --zero 3 --ranks N       N processes, each with its share of the weights; those that a "
    "layer "
    "needs come\n"
    "                           before it. Any model, the same text; slower than --tensor\n"
    "  --model, --layers, --width, --heads, --kv-heads, --context, --vocab, --ffn-width, "
    "--rope-theta,\n"
    "  --rope-scaling, --norm-eps, --tie-embeddings, --tokenizer, --amp, --threads, --device,\n"
    "  --lora-rank, --lora-alpha, --lora-targets, --lora-train, --lora-init\n"
    "                           as in tutti train --help\n"
    "  -h, --help               this text\n"
    "\n"
    "A text may be longer than the model's context: the model then looks at its end, at least the "
    "last "
    "half of a context.\n";

static const char *const KEYS[] = {TUTTI__MODEL_FLAGS, "--amp", "--threads", "--device"};
/* Of which 0 is the model's own. */
static const char *const SIZES[] = {"--layers",  "--width", "--heads",    "--kv-heads",
                                    "--context", "--vocab", "--ffn-width"};
static const char *const OWN[] = {
    "--tokenizer", "--prompt",   "--prompt-file", "--tokens",  "--temperature",
    "--top-k",     "--top-p",    "--seed",        "--samples", "--weights",
    "--no-prompt", "--no-stop",  "--stats",       "--help",    "-n",
    "--tensor",    "--pipeline", "--zero",        "--ranks"};

/* Where the line's words go. */
typedef struct line {
    tutti__generate job;
    int64_t ranks; /* 0: not given */
    const char *prompt, *prompt_file;
    char **keys;
    char *text; /* of the prompt, if it was read */
} line;

/* ---- Values ----------------------------------------------------------------------------------------------------- */

static tutti_status read_count(const char *flag, const char *text, int64_t least, int64_t most,
                               int64_t *to)
{
    if (tutti__parse_int64(text, to) && *to >= least && *to <= most)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG, "%s is \"%.60s\", expected a number from %lld to %lld", flag,
                       text, (long long)least, (long long)most);
}

static tutti_status read_real(const char *flag, const char *text, double most, double *to)
{
    if (tutti__parse_double(text, to) && *to >= 0 && *to <= most)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG, "%s is \"%.60s\", expected a number from 0 to %g", flag, text,
                       most);
}

static tutti_status read_zero(const char *text, int64_t *to)
{
    if (tutti__parse_int64(text, to) && (*to == 0 || *to == 3))
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_ARG,
                       "--zero is \"%.60s\", expected 3, which divides the weights, or 0: 1 and 2 "
                       "divide gradients and an optimizer's state, which are not needed here",
                       text);
}

static tutti_status set_value(line *l, const char *flag, const char *text)
{
    tutti__generate *job = &l->job;
    int64_t seed;

    if (strcmp(flag, "--prompt") == 0)
        l->prompt = text;
    else if (strcmp(flag, "--tokenizer") == 0)
        job->tokenizer = text;
    else if (strcmp(flag, "--prompt-file") == 0)
        l->prompt_file = text;
    else if (strcmp(flag, "--tokens") == 0 || strcmp(flag, "-n") == 0)
        return read_count(flag, text, 1, INT32_MAX, &job->tokens);
    else if (strcmp(flag, "--tensor") == 0)
        return read_count(flag, text, 1, TUTTI__MOST_WORKERS, &job->tensor);
    else if (strcmp(flag, "--pipeline") == 0)
        return read_count(flag, text, 1, TUTTI__MOST_WORKERS, &job->pipeline);
    else if (strcmp(flag, "--ranks") == 0)
        return read_count(flag, text, 1, TUTTI__MOST_WORKERS, &l->ranks);
    else if (strcmp(flag, "--zero") == 0)
        return read_zero(text, &job->zero);
    else if (strcmp(flag, "--samples") == 0)
        return read_count(flag, text, 1, INT32_MAX, &job->samples);
    else if (strcmp(flag, "--top-k") == 0)
        return read_count(flag, text, 0, INT32_MAX, &job->sampling.top_k);
    else if (strcmp(flag, "--temperature") == 0)
        return read_real(flag, text, 1e6, &job->sampling.temperature);
    else if (strcmp(flag, "--top-p") == 0)
        return read_real(flag, text, 1, &job->sampling.top_p);
    else if (strcmp(flag, "--seed") == 0) {
        TUTTI_TRY(read_count(flag, text, 0, INT64_MAX, &seed));
        job->sampling.seed = (uint64_t)seed;
    } else if (strcmp(text, "ema") == 0 || strcmp(text, "model") == 0)
        job->weights = text;
    else
        return tutti__fail_choice("--weights", text, (const char *const[]){"ema", "model"}, 2);
    return TUTTI_OK;
}

/* ---- The line --------------------------------------------------------------------------------------------------- */

static tutti_status set_path(line *l, const char *path)
{
    if (l->job.path)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "one checkpoint, run or folder, but there are \"%.200s\" and \"%.200s\"; "
            "a prompt follows --prompt",
            l->job.path, path);
    l->job.path = path;
    return TUTTI_OK;
}

static bool take_switch(line *l, const char *arg)
{
    bool *const to[] = {&l->job.no_prompt, &l->job.no_stop, &l->job.stats};
    static const char *const names[] = {"--no-prompt", "--no-stop", "--stats"};

    for (size_t i = 0; i < TUTTI__COUNT_OF(names); i++)
        if (tutti__flag_is(arg, names[i]) && !strchr(arg, '='))
            return *to[i] = true;
    return false;
}

static const char *find(const char *arg, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tutti__flag_is(arg, names[i]))
            return names[i];
    return NULL;
}

static tutti_status unknown(const char *arg)
{
    const char *names[TUTTI__COUNT_OF(KEYS) + TUTTI__COUNT_OF(OWN)];

    memcpy(names, KEYS, sizeof KEYS);
    memcpy(names + TUTTI__COUNT_OF(KEYS), OWN, sizeof OWN);
    return tutti__fail_unknown("flag", "tutti generate", arg, names, TUTTI__COUNT_OF(names));
}

static tutti_status read_flag(line *l, int argc, char **argv, int *i)
{
    char *arg = argv[*i], *equals = strchr(arg, '=');
    const char *own = find(arg, OWN, TUTTI__COUNT_OF(OWN)), *value;
    const bool key = find(arg, KEYS, TUTTI__COUNT_OF(KEYS));

    if (take_switch(l, arg))
        return TUTTI_OK;
    if (strncmp(arg, "-n", 2) == 0 && arg[2] && !equals)
        return set_value(l, "-n", arg + 2);
    if (!own && !key)
        return unknown(arg);
    if (own && (strncmp(own, "--no-", 5) == 0 || strcmp(own, "--stats") == 0))
        return tutti__fail_value(own, equals + 1);
    if (!equals && *i + 1 >= argc)
        return tutti__fail(TUTTI_ERR_ARG, "%.60s needs a value, as in %.60s VALUE", arg, arg);
    value = equals ? equals + 1 : argv[++*i];
    if (own)
        return set_value(l, own, value);
    if (strcmp(value, "0") == 0 && find(arg, SIZES, TUTTI__COUNT_OF(SIZES)))
        return TUTTI_OK;
    l->keys[l->job.argc++] = arg;
    if (!equals)
        l->keys[l->job.argc++] = argv[*i];
    return TUTTI_OK;
}

/* ---- The prompt ------------------------------------------------------------------------------------------------- */

static tutti_status read_stream(line *l, FILE *in, const char *name)
{
    enum { LIMIT = 64 << 20 };
    size_t room = 4096, n = 0;

    l->text = malloc(room);
    while (l->text) {
        const size_t got = fread(l->text + n, 1, room - n, in);
        char *more;

        n += got;
        if (got == 0 || n > LIMIT)
            break;
        more = realloc(l->text, room *= 2);
        if (!more)
            free(l->text);
        l->text = more;
    }
    if (!l->text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the prompt");
    if (ferror(in))
        return tutti__fail(TUTTI_ERR_IO, "%s: %s", name, strerror(errno));
    if (n > LIMIT)
        return tutti__fail(TUTTI_ERR_ARG, "%s: a prompt of more than 64 MiB", name);
    l->job.prompt = l->text;
    l->job.prompt_bytes = n;
    return TUTTI_OK;
}

static tutti_status read_prompt(line *l)
{
    tutti_status status;
    FILE *in;

    if (l->prompt && l->prompt_file)
        return tutti__fail(TUTTI_ERR_ARG, "--prompt and --prompt-file: expected one of them");
    if (l->prompt_file && strcmp(l->prompt_file, "-") != 0) {
        in = fopen(l->prompt_file, "re");
        if (!in)
            return tutti__fail(TUTTI_ERR_NOT_FOUND, "--prompt-file: %s: %s", l->prompt_file,
                               strerror(errno));
        status = read_stream(l, in, l->prompt_file);
        fclose(in);
        return status;
    }
    if (l->prompt_file || (l->prompt && strcmp(l->prompt, "-") == 0))
        return read_stream(l, stdin, "standard input");
    l->job.prompt = l->prompt;
    l->job.prompt_bytes = l->prompt ? strlen(l->prompt) : 0;
    return TUTTI_OK;
}

static tutti_status check_prompt(const line *l)
{
    const size_t n = l->job.prompt_bytes;
    const size_t valid = n ? tutti__utf8_valid((const uint8_t *)l->job.prompt, n) : 0;

    return valid == n
               ? TUTTI_OK
               : tutti__fail(TUTTI_ERR_ARG,
                             "the prompt is not UTF-8 at byte %zu; convert it, for example with "
                             "iconv -t UTF-8",
                             valid);
}

/* How the model is divided, and among how many. */
static tutti_status check_layout(line *l)
{
    const bool launched = tutti__launcher_find().name != NULL;
    const bool tensor = l->job.tensor > 1, pipeline = l->job.pipeline > 1;

    if ((l->job.zero != 0) + tensor + pipeline > 1)
        return tutti__fail(TUTTI_ERR_ARG, "%s and %s both divide the model; expected one of them",
                           l->job.zero ? "--zero 3" : "--pipeline",
                           tensor ? "--tensor" : "--pipeline");
    if (l->ranks > 0 && !l->job.zero)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--ranks is for --zero 3, among whose ranks the weights are divided; "
                           "with --tensor T there are T, with --pipeline P there are P");
    if (l->job.zero && l->ranks == 0 && !launched)
        return tutti__fail(TUTTI_ERR_ARG,
                           "--zero 3 divides the weights among ranks; add --ranks N");
    if (tensor || pipeline)
        l->ranks = tensor ? l->job.tensor : l->job.pipeline;
    if (l->ranks == 1) /* nothing is divided, and this process is it */
        l->job.zero = 0;
    return TUTTI_OK;
}

static tutti_status read_line(line *l, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        TUTTI_TRY(argv[i][0] == '-' && argv[i][1] ? read_flag(l, argc, argv, &i)
                                                  : set_path(l, argv[i]));
    if (!l->job.path)
        return tutti__fail(
            TUTTI_ERR_ARG,
            "expected a checkpoint, a run folder, a folder of Hugging Face or a file "
            "of weights");
    TUTTI_TRY(check_layout(l));
    TUTTI_TRY(read_prompt(l));
    return check_prompt(l);
}

static int work(void *self)
{
    const line *l = self;
    const tutti_status status =
        tutti__output_was_closed()
            ? tutti__fail(TUTTI_ERR_IO, "standard output is closed: the text cannot be written; "
                                        "give it a file, or /dev/null")
            : tutti__generate_text(&l->job, stdout);

    if (status != TUTTI_OK && !tutti__generate_is_divided(&l->job)) /* else it was said */
        fprintf(stderr, "tutti generate: %s\n", tutti_last_error());
    return tutti_status_exit_code(status);
}

/* ---- Processes that divide the model ------------------------------------------------------------------------------ */

/* Whether this process is to start them: a launcher's ranks are there already. */
static bool starts_ranks(const line *l)
{
    return tutti__generate_is_divided(&l->job) && !tutti__launcher_find().name;
}

/* What was read from standard input, for the processes, in a file. */
static tutti_status keep_text(const line *l, char path[4096])
{
    const char *folder = getenv("TMPDIR");
    tutti_status status = TUTTI_OK;
    int fd;

    snprintf(path, 4096, "%s/tutti-prompt-XXXXXX", folder && *folder ? folder : "/tmp");
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return tutti__fail_errno(errno, "cannot write %s", path);
    status = tutti__write_all(fd, path, l->text, l->job.prompt_bytes);
    close(fd);
    return status;
}

/* The line again, in as many processes; of standard input only this one has read. */
static int start_ranks(line *l, int argc, char **argv)
{
    char **words = tutti__alloc(((size_t)argc + 3) * sizeof *words), path[4096] = "";
    const bool stdin_read = l->text && (!l->prompt_file || strcmp(l->prompt_file, "-") == 0);
    tutti_status status = words ? TUTTI_OK : TUTTI_ERR_MEMORY;
    char flag[] = "--prompt-file";
    int n = 0, code;

    if (status == TUTTI_OK && stdin_read)
        status = keep_text(l, path);
    for (int i = 0; status == TUTTI_OK && i < argc; i++) {
        const bool of_prompt = i > 0 && (tutti__flag_is(argv[i], "--prompt") ||
                                         tutti__flag_is(argv[i], "--prompt-file"));

        if (stdin_read && of_prompt)
            i += strchr(argv[i], '=') == NULL;
        else
            words[n++] = argv[i];
    }
    if (status == TUTTI_OK && stdin_read) {
        words[n++] = flag;
        words[n++] = path;
    }
    code = status == TUTTI_OK ? tutti__nproc_run(&(tutti__nproc){.title = "tutti generate",
                                                                 .argc = n,
                                                                 .argv = words,
                                                                 .n = l->ranks,
                                                                 .quiet = true})
                              : tutti__report_usage("tutti generate", status);
    if (path[0])
        (void)unlink(path);
    free(words);
    return code;
}

int tutti__cli_generate(int argc, char **argv)
{
    line l = {.job = {.tokens = 200,
                      .samples = 1,
                      .sampling = {.temperature = 0.8, .top_k = 200, .top_p = 1}}};
    tutti_status status = TUTTI_ERR_MEMORY;
    int code;

    if (tutti__wants_help(argc - 1, argv + 1)) {
        fputs(HELP, stdout);
        return 0;
    }
    l.keys = tutti__alloc(((size_t)argc + 1) * sizeof *l.keys);
    if (l.keys)
        status = read_line(&l, argc, argv);
    l.job.argv = l.keys;
    code = status != TUTTI_OK ? tutti__report_usage("tutti generate", status)
           : starts_ranks(&l) ? start_ranks(&l, argc, argv)
                              : work(&l);
    free(l.keys);
    free(l.text);
    return code;
}

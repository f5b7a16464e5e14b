/* open_run.c -- what all runs need before their first step: a plan, the run folder, initial weights.
 * SPDX-License-Identifier: MIT */
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/module_load.h"
#include "checkpoint/weights.h"
#include "data/dataset.h"
#include "data/text/tokenizer.h"
#include "data/text/tokens.h"
#include "ddp/pieces.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/config/config_optim.h"
#include "train/run/run.h"
#include "train/session/whiten.h"

#include <string.h>

/* ---- Files ------------------------------------------------------------------------------------------------------ */

/* Bytes of the whole model, not only of this rank's part. A pipeline's other stages count as much per parameter as this one. */
static uint64_t model_bytes(const tutti__session *s)
{
    const int64_t all = tutti__session_n_parameters(s);
    uint64_t bytes = 0;
    double here = 0;

    for (size_t i = 0; i < tutti_module_n_state(s->module); i++) {
        const tutti_tensor *t = tutti_module_state(s->module, i);
        const uint64_t count = (uint64_t)tutti_shape_count(tutti__whole_shape(t));

        bytes += count * tutti_dtype_size(t->dtype) + 200; /* for the header */
        here += (double)count;
    }
    return s->pipeline && here > 0 && (double)all > here
               ? (uint64_t)((double)bytes * ((double)all / here))
               : bytes;
}

/* Bytes that the run's files will take, with some margin: the final weights, and checkpoints, of which there is one more than
 * kept while it is written. */
static uint64_t files_bytes(const tutti__train_run *run, bool anew)
{
    const tutti__train_config *c = run->session.config;
    const uint64_t states = (uint64_t)tutti__config_optim_states(c);
    const uint64_t kept = !anew                     ? 0 /* they exist */
                          : c->keep_checkpoints < 2 ? 1
                                                    : (uint64_t)c->keep_checkpoints;
    const uint64_t average = c->ema > 0, best = anew && tutti__best_is_kept(c);
    const uint64_t model = model_bytes(&run->session);
    uint64_t bytes = 256 * 1024;

    bytes += model * (1 + average) + (kept + 1 + best) * (1 + states + average) * model;
    return bytes;
}

/* Whether no checkpoint is looked for. */
static bool starts_anew(const tutti__train_run *run)
{
    return strcmp(run->session.config->resume, "no") == 0 && !run->job.restarted &&
           !run->job.requeued;
}

tutti_status tutti__run_open_files(tutti__train_run *run)
{
    bool named;

    TUTTI_TRY(tutti__resume_find_folder(run->session.config));
    named = run->session.config->run_dir[0];
    TUTTI_TRY(tutti__run_folder_open(&run->folder, run->session.config, &run->job));
    strcpy(run->token, run->folder.lock.token);
    TUTTI_TRY(tutti__resume_choose(&run->resume, &run->job));
    if (!named && !run->resume.found && strcmp(run->session.config->resume, "auto") == 0)
        tutti_log(
            TUTTI_LOG_WARN, "train",
            "resume auto: without --run-dir it looks only in this job's own folder, %s, which "
            "is new, so training starts from the beginning; give --run-dir RUN to continue an "
            "earlier run",
            run->folder.path);
    return TUTTI_OK;
}

/* How many tokens data have that are bytes or Shakespeare's characters; 0: they have a tokenizer's file, or it is not known. */
static int plain_tokens(const tutti__train_config *c)
{
    const bool text = strcmp(c->data, "text") == 0;
    const bool named = text || strcmp(c->data, "tokens") == 0;

    if (strcmp(c->data, "shakespeare") == 0 || (named && strcmp(c->tokenizer, "shakespeare") == 0))
        return 65;
    return (text && !c->tokenizer[0]) || (named && strcmp(c->tokenizer, "bytes") == 0) ? 256 : 0;
}

/* " (digest 0123...)" */
static const char *digest_text(const tutti_tokenizer *t, char text[64])
{
    snprintf(text, 64, " (digest %s)", t->digest);
    return text;
}

/* Vocabularies of one size do not show that their tokens mean other things. used: the data's. */
static void compare_tokenizers(const tutti__train_config *c, const tutti_tokenizer *own,
                               const tutti_tokenizer *used, int plain)
{
    char digests[2][64] = {"", ""};

    if (tutti__tokenizer_has_tokens_of(own, used))
        return;
    tutti_log(
        TUTTI_LOG_WARN, "train",
        "the tokens of data=%s are those of %s%s, and the weights of %s have %s%s beside them: "
        "the tokens mean something else to the model; for its own, leave tokenizer out",
        c->data,
        plain == 65 ? "Shakespeare's characters"
        : plain     ? "bytes"
                    : used->path,
        plain ? "" : digest_text(used, digests[0]), c->init, own->path,
        digest_text(own, digests[1]));
}

/* A tokenizer that cannot be read, where none is needed, is none. */
static tutti_tokenizer *open_quietly(const char *path, bool beside)
{
    tutti_tokenizer *t = NULL;
    const tutti_status status =
        beside ? tutti__tokenizer_beside(&t, path) : tutti_tokenizer_open(&t, path);

    return status == TUTTI_OK ? t : NULL;
}

/* Data whose tokens are known to be others than those of the weights. */
static void warn_of_tokens(const tutti__train_run *run)
{
    const tutti__train_config *c = run->session.config;
    const char *path = tutti__dataset_tokenizer(run->session.data.train);
    const int plain = plain_tokens(c);
    tutti__weights_place place;
    tutti_tokenizer *own, *used;

    if (run->session.rank != 0 || !(plain || path) ||
        tutti__weights_find(&place, c->init) != TUTTI_OK)
        return;
    own =
        place.hf[0] || place.run[0] ? open_quietly(place.hf[0] ? place.hf : place.run, true) : NULL;
    used = !own          ? NULL
           : plain == 65 ? open_quietly("shakespeare", false)
           : plain       ? open_quietly("bytes", false)
                         : open_quietly(path, false);
    if (used)
        compare_tokenizers(c, own, used, plain);
    else if (plain && c->vocab > plain && place.hf[0])
        tutti_log(TUTTI_LOG_WARN, "train",
                  "the model of %s knows %lld tokens, and those of data=%s are %d %s, which mean "
                  "something else to it; for its own: data=text with its tokenizer",
                  c->init, (long long)c->vocab, c->data, plain,
                  plain == 256 ? "bytes" : "characters");
    tutti_tokenizer_free(own);
    tutti_tokenizer_free(used);
}

/* Whether ranks have pieces of the weights, which are loaded when they are divided, so that no rank ever has all of them. */
static bool loads_pieces(const tutti__session *s)
{
    return s->config->zero == 3 && s->shards == 0 && tutti__session_data_size(s) > 1 &&
           !s->pipeline;
}

/* Collective, if ranks have pieces. */
static tutti_status load_weights(tutti__train_run *run)
{
    const tutti__train_config *c = run->session.config;
    const tutti_load_opts opts = {.only = c->init_only, .partial = c->init_partial, .finite = true};
    char loaded[2048] = "";
    tutti_status status =
        loads_pieces(&run->session)
            ? tutti__module_load_pieces(run->session.module, run->session.group, c->init, &opts,
                                        c->lora_init[0] != '\0', loaded, sizeof loaded)
            : tutti_module_load_with(run->session.module, c->init, &opts, loaded, sizeof loaded);

    if (status != TUTTI_OK)
        return tutti__fail(status, "init: %s%s", tutti_last_error(),
                           !opts.partial && strstr(tutti_last_error(), "of this model")
                               ? " (--init-partial loads what fits)"
                               : "");
    tutti__progress_say(&run->progress, "init: %s%s", loaded,
                        run->session.pipeline ? "; those of this rank's stages" : "");
    warn_of_tokens(run);
    return TUTTI_OK;
}

static tutti_status whiten(tutti__train_run *run)
{
    const tutti__train_config *c = run->session.config;
    const char *name;

    if (c->whiten == 0)
        return TUTTI_OK;
    TUTTI_TRY(tutti__session_whiten(&run->session, &name));
    if (name)
        tutti__progress_say(&run->progress, "whiten: %s by patches of the first images", name);
    return TUTTI_OK;
}

static tutti_status load_all(tutti__train_run *run)
{
    const tutti__train_config *c = run->session.config;
    tutti_status status;

    TUTTI_TRY(whiten(run));
    if (c->init[0] && !loads_pieces(&run->session))
        TUTTI_TRY(load_weights(run));
    if (!c->lora_init[0])
        return TUTTI_OK;
    status = tutti_lora_load(run->session.module, c->lora_init);
    if (status != TUTTI_OK)
        return tutti__fail(status, "lora_init: %s", tutti_last_error());
    tutti__progress_say(&run->progress, "lora_init: adapters from %s", c->lora_init);
    return TUTTI_OK;
}

/* The other ranks read it too, unless a checkpoint is expected, so that a wrong file is reported; and if they have other parts of the
 * model, in any case. */
tutti_status tutti__run_load_init(tutti__train_run *run)
{
    if (run->resume.found ||
        (run->session.rank != 0 && !starts_anew(run) &&
         (!run->session.mesh || run->session.pipeline))) /* who has other parts */
        return TUTTI_OK;
    return load_all(run);
}

tutti_status tutti__run_load_stage(tutti__train_run *run)
{
    const tutti__session *s = &run->session;

    if (!s->pipeline || run->resume.found || s->rank == 0 || starts_anew(run))
        return TUTTI_OK;
    return load_all(run);
}

tutti_status tutti__run_load_pieces(tutti__train_run *run)
{
    const tutti__session *s = &run->session;

    return s->config->init[0] && loads_pieces(s) && !run->resume.found ? load_weights(run)
                                                                       : TUTTI_OK;
}

tutti_status tutti__run_point_best(tutti__train_run *run)
{
    const uint64_t step = run->position.best.step;
    char dir[4096], path[TUTTI__CHECKPOINT_PATH];

    if (step == 0 || !tutti__best_is_kept(run->session.config))
        return TUTTI_OK;
    TUTTI_TRY(tutti__run_folder_checkpoints(&run->folder, dir));
    TUTTI_TRY(tutti__checkpoint_path(dir, step, path));
    return tutti__is_checkpoint(path) ? tutti__checkpoint_point_best(dir, step) : TUTTI_OK;
}

tutti_status tutti__run_begin_folder(tutti__train_run *run)
{
    const tutti__train_config *c = run->session.config;
    const uint64_t step = run->position.at.step;

    run->position.begun_at = step;
    if (run->session.rank != 0)
        return TUTTI_OK;
    if (run->resume.found && run->resume.here) {
        tutti__run_count_lost(run);
        TUTTI_TRY(tutti__run_folder_continue(&run->folder, c, step, files_bytes(run, false)));
        TUTTI_TRY(tutti__run_point_best(run));
    } else
        TUTTI_TRY(tutti__run_folder_begin(&run->folder, c, files_bytes(run, true)));
    TUTTI_TRY(
        tutti__tokenizer_copy(tutti__dataset_tokenizer(run->session.data.train), run->folder.path));
    tutti__run_begin_logs(run, step);
    return TUTTI_OK;
}

/* What early_stopping and checkpoint_best measure must be there. */
static tutti_status check_best(const tutti__train_run *run)
{
    const tutti__train_config *c = run->session.config;
    const bool kept = tutti__best_is_kept(c);
    const char *key = kept ? "checkpoint_best" : "early_stopping";
    const char *metric = tutti__monitor_of(c).name;
    const tutti__task_kind *task = run->session.task.kind;

    if (!kept && c->early_stopping == 0)
        return TUTTI_OK;
    if (!run->plan.evaluates)
        return tutti__fail(TUTTI_ERR_ARG,
                           "%s: needs evaluations, and data=%s has no test set; leave it out", key,
                           c->data);
    if (strcmp(metric, "val_loss") != 0 && !tutti__word_in(task->figures, metric))
        return tutti__fail(TUTTI_ERR_ARG,
                           "checkpoint_best: task=%s has no %s; expected val_loss or one of %s",
                           task->name, metric, task->figures);
    return TUTTI_OK;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------ */

tutti_status tutti__run_open_alone(tutti__train_run *run)
{
    tutti__session *s = &run->session;

    TUTTI_TRY(tutti__session_open_data(s));
    TUTTI_TRY(tutti__run_plan_memory(run));
    TUTTI_TRY(tutti__session_open_alone(s));
    run->plan = tutti__plan_of(s->config, tutti_dataset_describe(s->data.train).count,
                               tutti__session_shares(s), s->data.test != NULL, &run->position.at);
    TUTTI_TRY(check_best(run));
    TUTTI_TRY(tutti__ledger_open(&run->totals.ledger, s->size > 0 ? s->size : 1,
                                 (uint64_t)s->config->log_every));
    return tutti__run_trace_open(run);
}

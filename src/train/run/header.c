/* header.c -- the first lines of a run.   SPDX-License-Identifier: MIT */
#include "data/dataset.h"
#include "nn/nn.h"
#include "tensor/tensor.h"
#include "train/machine/signals.h"
#include "train/run/run.h"
#include "train/session/amp.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* 2777674 as "2,777,674" */
static const char *grouped(int64_t n, char text[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), k = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[k++] = ',';
        text[k++] = digits[i];
    }
    text[k] = '\0';
    return text;
}

/* Samples of a step of this many ranks or shards, of a configuration's batches. */
static long long step_samples(long long shares, long long batch, long long accumulation)
{
    return shares * batch * (accumulation > 0 ? accumulation : 1);
}

/* What the samples of a step are divided among. */
static const char *noun_of(bool shards, bool divided, long long n)
{
    static const char *const nouns[] = {"ranks", "data ranks", "shards"};
    static const char *const one[] = {"rank", "data rank", "shard"};
    const int k = shards ? 2 : divided ? 1 : 0;

    return n == 1 ? one[k] : nouns[k];
}

/* Another number of ranks or shards than the checkpoint's run had. */
static void print_other_shares(tutti__train_run *run, long long then)
{
    const tutti__session *s = &run->session;
    const tutti__train_config *c = s->config;
    const json_t *state = run->resume.state, *keys = json_object_get(state, "config");
    const long long now = run->plan.shares,
                    samples = step_samples(now, c->batch_size, c->grad_accumulation),
                    had = step_samples(
                        then, c->batch_size,
                        json_integer_value(json_object_get(keys, "grad_accumulation")));
    const char *was = noun_of(json_integer_value(json_object_get(state, "shards")) > 0,
                              json_object_get(state, "data_ranks"), then),
               *is = noun_of(s->shards > 0, s->mesh, now);
    const bool alike = strncmp(was, is, 4) == 0; /* "rank", "ranks" */
    char instead[64] = "";

    if (samples != had)
        snprintf(instead, sizeof instead, " instead of %lld", had);
    tutti__progress_say(
        &run->progress, "%lld %s before, %lld%s%s now: a step %stakes %lld samples%s", then, was,
        now, alike ? "" : " ", alike ? "" : is, samples == had ? "still " : "", samples, instead);
}

static void print_continued(tutti__train_run *run)
{
    const size_t count = run->plan.count;
    const long long then = tutti__resume_shares_then(&run->resume);

    tutti__progress_say(&run->progress, "resumed from %s: %llu of %llu steps are done",
                        run->resume.path, (unsigned long long)run->position.at.step,
                        (unsigned long long)run->plan.total_steps);
    if (then == run->plan.shares)
        return;
    print_other_shares(run, then);
    if (run->position.at.start > 0 && run->position.at.start < count)
        tutti__progress_say(&run->progress,
                            "the %zu remaining samples of epoch %lld are divided among them",
                            count - run->position.at.start, (long long)run->position.at.epoch);
}

static void print_resumed(tutti__train_run *run)
{
    if (run->resume.found)
        print_continued(run);
    else if (strcmp(run->session.config->resume, "auto") == 0 || run->job.restarted ||
             run->job.requeued)
        tutti__progress_say(&run->progress,
                            "resume: no checkpoint there, starting from the beginning");
}

/* Prints the device; nothing for the CPU. */
static void print_device(tutti__train_run *run)
{
    const tutti__gpus *g = &run->gpus;

    if (!g->device.bus[0])
        return;
    if (g->most_on_one > 1)
        tutti__progress_say(&run->progress,
                            "on %d GPU%s (%s), shared by up to %d ranks each: their collectives go "
                            "through host memory",
                            g->n_devices, g->n_devices == 1 ? "" : "s", g->device.name,
                            g->most_on_one);
    else
        tutti__progress_say(&run->progress, "on %d GPU%s (%s), one a rank", g->n_devices,
                            g->n_devices == 1 ? "" : "s", g->device.name);
}

static void print_amp(tutti__train_run *run)
{
    const tutti_dtype dtype = tutti__amp_dtype(&run->session);
    const char *kernels = tutti_ctx_half_kernels_name(run->session.cx, dtype);

    if (dtype != TUTTI_F32)
        tutti__progress_say(&run->progress, "amp %s: %s%s", run->session.config->amp, kernels,
                            strcmp(kernels, "emulated") == 0 ? ", slower than amp off" : "");
}

/* What adapters leave to train. */
static void print_adapters(tutti__train_run *run)
{
    const tutti_module *m = tutti__whole_of(run->session.module);
    const tutti_tensor *t;
    int64_t trained = 0;
    uint64_t adapters = 0;
    char text[32];

    if (m->root->lora.rank == 0)
        return;
    for (size_t i = 0; (t = tutti_module_parameter(m, i)) != NULL; i++) {
        adapters += tutti__state_of(t)->adapter != NULL;
        trained += t->parameter->requires_grad ? tutti__whole_count(tutti__state_of(t)) : 0;
    }
    tutti__progress_say(
        &run->progress, "%llu adapter%s of rank %d: %s parameters are trained, %.2g %% of all",
        (unsigned long long)adapters, tutti__s(adapters), m->root->lora.rank,
        grouped(trained, text), 100 * (double)trained / (double)tutti_module_count(m));
}

/* Of epochs and max_steps the first ends the run; the other is said, if it may have been meant. */
static void print_end(tutti__train_run *run)
{
    const tutti__train_config *c = run->session.config;
    const uint64_t all = tutti__plan_of_epochs(&run->plan);
    const bool chosen = c->epochs != atoll(tutti__key_table[TUTTI__KEY_OF_epochs].value);
    char steps[32], most[32];

    grouped((int64_t)all, steps);
    grouped(c->max_steps, most);
    if (c->lr_find || c->max_steps == 0 || all == (uint64_t)c->max_steps)
        return;
    if (all < (uint64_t)c->max_steps)
        tutti__progress_say(&run->progress,
                            "epochs %lld ends the run after %s steps, before max_steps %s",
                            (long long)c->epochs, steps, most);
    else if (chosen)
        tutti__progress_say(&run->progress,
                            "max_steps %s ends the run, before the %s steps of epochs %lld", most,
                            steps, (long long)c->epochs);
}

/* A stage has so many ranks, one behind the other: of each pipeline, and of those the parts of layers. */
static void print_stages(tutti__train_run *run, int data, int tensor)
{
    const tutti__session *s = &run->session;
    const int each = data * tensor;
    const long long micro = s->config->grad_accumulation, batch = s->config->batch_size;
    const int ranks = tutti_mesh_size(s->mesh, "pipeline");
    char of[48] = "";

    for (int i = 0; i < tutti_pipeline_stages(s->pipeline); i++) {
        const int first = i % ranks * each;

        if (each > 1)
            snprintf(of, sizeof of, "ranks %d-%d", first, first + each - 1);
        else
            snprintf(of, sizeof of, "rank %d", first);
        tutti__progress_say(&run->progress, "%s%d, of %s: %s",
                            i == 0 ? "pipeline: stage " : "          stage ", i, of,
                            tutti_pipeline_stage(s->pipeline, i));
    }
    snprintf(of, sizeof of, " in each of %d pipelines", data);
    tutti__progress_say(&run->progress,
                        "          %s, steps of %lld micro-batch%s of %lld sample%s%s",
                        s->config->pipeline_schedule, micro, micro == 1 ? "" : "es", batch,
                        tutti__s((uint64_t)batch), data > 1 ? of : "");
}

/* A stage of ZeRO that does less here than it says. */
static void print_zero(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    const long long zero = s->config->zero;

    if (zero > 0 && s->config->zero_ranks > 0)
        tutti__progress_say(
            &run->progress, "zero %lld among %lld rank%s each: %lld have the same shares", zero,
            (long long)s->config->zero_ranks, tutti__s((uint64_t)s->config->zero_ranks),
            tutti__session_data_size(s) / (long long)s->config->zero_ranks);
    else if (zero > 0 && s->shards == 0 && tutti__session_data_size(s) == 1)
        tutti__progress_say(&run->progress, "zero %lld divides nothing here: there is one %srank",
                            zero, s->mesh ? "data " : "");
}

/* How ranks are divided, if not by samples alone. */
static void print_layout(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    const int data = tutti__session_data_size(s),
              tensor = s->mesh ? tutti_mesh_size(s->mesh, "tensor") : 1;
    const long long batches = data * (long long)s->config->grad_accumulation;
    const char *no_texts = tutti__run_writes_none(s);
    char parts[32] = "";

    print_zero(run);
    if (no_texts && s->task.kind->is_language_modeling && s->config->sample_tokens > 0)
        tutti__progress_say(&run->progress,
                            "no texts after evaluations: %s; tutti generate writes them from a "
                            "checkpoint",
                            no_texts);
    if (!s->mesh)
        return;
    if (s->pipeline)
        print_stages(run, data, tensor);
    if (s->config->tensor_parts > 0)
        snprintf(parts, sizeof parts, ", in %lld parts", (long long)s->config->tensor_parts);
    if (tensor > 1 || s->config->tensor_parts > 0)
        tutti__progress_say(
            &run->progress,
            "tensor %d%s: each layer is divided among %d rank%s; %lld batch%s of %lld a step",
            tensor, parts, tensor, tutti__s((uint64_t)tensor), batches, batches == 1 ? "" : "es",
            (long long)s->config->batch_size);
}

/* " x batch 4", or of ranks that divide a model " = 2 data x 2 pipeline x 2 tensor, 8 samples a step". */
static void text_of_step(const tutti__session *s, char *text, size_t size)
{
    const tutti__train_config *c = s->config;
    const int data = tutti__session_data_size(s);
    const long long samples = step_samples(data, c->batch_size, c->grad_accumulation);

    char pipeline[32] = "", tensor[32] = "";

    if (c->pipeline > 1)
        snprintf(pipeline, sizeof pipeline, " x %lld pipeline", (long long)c->pipeline);
    if (c->tensor > 1)
        snprintf(tensor, sizeof tensor, " x %lld tensor", (long long)c->tensor);
    if (s->mesh)
        snprintf(text, size, " = %d data%s%s, %lld sample%s a step", data, pipeline, tensor,
                 samples, tutti__s((uint64_t)samples));
    else
        snprintf(text, size, " x batch %lld", (long long)c->batch_size);
}

void tutti__run_header(tutti__train_run *run)
{
    const tutti__session *s = &run->session;
    const tutti__train_config *c = s->config;
    tutti__progress *out = &run->progress;
    const int threads = tutti_ctx_threads(s->cx);
    char parameters[32], images[32], kind[64], tests[64] = "", shards[32] = "", step[96];

    if (s->data.test) {
        const size_t n = tutti_dataset_describe(s->data.test).count;

        tutti__dataset_text(s->data.test, n, kind);
        snprintf(tests, sizeof tests, ", %s test %.*s", grouped((int64_t)n, images),
                 (int)strcspn(kind, " "), kind);
    }
    tutti__dataset_text(s->data.train, run->plan.count, kind);
    tutti__progress_say(out, "%s, %s parameters, on %s: %s training %s%s", c->model,
                        grouped(tutti__session_n_parameters(s), parameters), c->data,
                        grouped((int64_t)run->plan.count, images), kind, tests);
    if (s->shards > 0)
        snprintf(shards, sizeof shards, " over %d shard%s", s->shards,
                 tutti__s((uint64_t)s->shards));
    text_of_step(s, step, sizeof step);
    tutti__progress_say(out, "%d rank%s (%s)%s%s, %s kernels, %d thread%s a rank%s", s->size,
                        tutti__s((uint64_t)s->size), tutti_group_transport_name(s->group), shards,
                        step, tutti_ctx_kernels_name(s->cx), threads, tutti__s((uint64_t)threads),
                        !tutti__dataset_has_images(s->data.train) ? ""
                        : c->augment                              ? ", augment on"
                                                                  : ", augment off");
    print_end(run);
    print_layout(run);
    print_adapters(run);
    print_device(run);
    if (!c->deterministic && s->cx->device.kind != TUTTI_CUDA)
        tutti__progress_say(out, "deterministic false changes nothing here: only GPUs have "
                                 "algorithms whose bits vary");
    print_amp(run);
    if (run->folder.aside[0])
        tutti__progress_say(out, "run folder %s (its earlier run is now in %s)", run->folder.path,
                            run->folder.aside);
    else
        tutti__progress_say(out, "run folder %s", run->folder.path);
    if (run->file_size > 0 && run->file_size != s->size && s->shards == 0)
        tutti__progress_say(
            out, "the configuration is of a run of %lld rank%s: a step has other samples here",
            (long long)run->file_size, tutti__s((uint64_t)run->file_size));
    print_resumed(run);
}

/* Prints a message at once, because a step may take long. */
void tutti__run_watch_signals(const tutti__train_run *run)
{
    const bool launched = getenv("TUTTI_AGENT_FD"); /* the launcher ends it at the second Ctrl-C */
    char answer[256] = "";

    if (run->progress.out)
        snprintf(answer, sizeof answer,
                 "%s%.90s: stopping: finishing the current step, then saving%s\n",
                 run->progress.bar.out ? tutti__wipe(STDERR_FILENO) : "", run->session.parts->title,
                 launched ? "" : "; three more signals end it at once");
    tutti__signals_watch(answer);
}

/* outlook_print.c -- an outlook as tables, and as JSON.   SPDX-License-Identifier: MIT */
#include "train/forecast/outlook.h"

#include <jansson.h>
#include <string.h>

#define MIB 1048576.0

static const struct {
    const char *label, *help;
    size_t offset;
} parts_of[] = {
#define ROW(name, label, help) {label, help, offsetof(tutti__footprint, name)},
    TUTTI__FOOTPRINT_PARTS(ROW)
#undef ROW
};

static size_t part(const tutti__footprint *f, size_t i)
{
    return *(const size_t *)(const void *)((const char *)f + parts_of[i].offset);
}

static void print_memory(FILE *out, const tutti__outlook *o)
{
    const tutti__footprint *f = &o->f;

    fprintf(out, "\nmemory of a rank                 MiB\n");
    for (size_t i = 0; i < TUTTI__COUNT_OF(parts_of); i++)
        if (part(f, i) > 0)
            fprintf(out, "  %-22s %11.1f   %s\n", parts_of[i].label, (double)part(f, i) / MIB,
                    parts_of[i].help);
    fprintf(out, "  %-22s %11.1f   the most at one time, in %s\n", "peak", (double)f->peak / MIB,
            f->peak_when);
    for (int i = 0; i < o->layout.pipeline && o->layout.pipeline > 1; i++)
        fprintf(out, "  %-17s %4d %11.1f   of its ranks, the one that takes most\n",
                "peak of stage", i, (double)f->stage_peak[i] / MIB);
    if (f->peak_off != f->peak && o->layout.ranks > 1)
        fprintf(out, "  %-22s %11.1f   which write less of a checkpoint, or more\n",
                "peak of other ranks", (double)f->peak_off / MIB);
    if (f->peak_regroup > 0)
        fprintf(out, "  %-22s %11.1f   when ranks join or leave: all of the optimizer's state\n",
                "peak of a new group", (double)f->peak_regroup / MIB);
}

static void print_link(FILE *out, const char *name, const tutti__link_speed *l)
{
    if (l->gbps > 0)
        fprintf(out, "  %-22s %11.2f GB/s, %.1f us a call (%s)\n", name, l->gbps, l->us, l->from);
}

static void print_table(FILE *out, const tutti__planned_calls *calls, const char *among,
                        tutti__layout_of_ranks layout, const tutti__wire *wire)
{
    char name[48];

    for (size_t i = 0; i < TUTTI__COUNT_OF(calls->of); i++) {
        const tutti__planned_call *call = &calls->of[i];

        if (!call->name || call->n == 0 || layout.ranks == 1)
            continue;
        snprintf(name, sizeof name, "%s%s", call->name, among);
        fprintf(out, "  %-29s %9llu %10.2f %9.2f\n", name, (unsigned long long)call->n,
                tutti__wire_sent(call, layout.ranks) / MIB,
                1e3 * tutti__wire_seconds(wire, call, &layout));
    }
}

static void print_calls(FILE *out, const tutti__outlook *o, const tutti__wire *wire)
{
    if (o->layout.ranks == 1)
        return;
    fprintf(out, "\non the wire, of a rank and step     calls   MiB sent        ms\n");
    print_table(out, &o->f.calls, "", tutti__layout_of_data(&o->layout), wire);
    print_table(out, &o->f.shard_calls, " (shares)", tutti__layout_of_shares(&o->layout), wire);
    print_table(out, &o->f.tensor_calls, " (tensor)", tutti__layout_of_tensor(&o->layout), wire);
    if (o->layout.pipeline > 1)
        print_table(out, &o->f.pipeline_calls, " (pipeline)",
                    tutti__layout_of_neighbours(&o->layout), wire);
    print_link(out, "link within a host", &wire->within);
    print_link(out, "link between hosts", &wire->between);
}

static void print_time(FILE *out, const tutti__outlook *o)
{
    fprintf(out, "\na step                            ms\n");
    fprintf(out, "  %-22s %11.2f   %s\n", "computation", 1e3 * o->compute_s, o->compute_from);
    if (o->layout.pipeline > 1)
        fprintf(out, "  %-22s %11.2f   on average, by the schedule and the stages' products\n",
                "waiting for stages", 1e3 * o->bubble_s);
    if (o->layout.ranks > 1)
        fprintf(out, "  %-22s %11.2f   of %.2f of communication: what backward does not hide\n",
                "waiting for the wire", 1e3 * o->exposed_s, 1e3 * o->wire_s);
    fprintf(out, "  %-22s %11.2f   %.1f samples a second, efficiency %.1f %%\n", "in all",
            1e3 * o->step_s, o->step_s > 0 ? (double)o->f.samples / o->step_s : 0,
            o->step_s > 0 ? 100 * o->compute_s / o->step_s : 100);
}

void tutti__outlook_print(FILE *out, const tutti__outlook *o, const tutti__train_config *config,
                          const tutti__wire *wire)
{
    char among[32] = "";

    if (o->layout.zero_ranks > 0)
        snprintf(among, sizeof among, " among %d", o->layout.zero_ranks);
    fprintf(out,
            "%s, %lld parameters%s, %.2f GFLOP a step and rank; %d rank%s, %d a host, zero %d%s, "
            "tensor %d, pipeline %d, %d thread%s each; %lld samples a step\n",
            config->model, (long long)o->f.elements, o->layout.tensor > 1 ? " of a rank" : "",
            o->f.flops * 1e-9, o->layout.ranks, tutti__s((uint64_t)o->layout.ranks),
            o->layout.local_ranks, o->layout.zero, among, o->layout.tensor, o->layout.pipeline,
            o->f.threads, tutti__s((uint64_t)o->f.threads), (long long)o->f.samples);
    print_memory(out, o);
    print_calls(out, o, wire);
    print_time(out, o);
}

static json_t *stages_json(const tutti__outlook *o)
{
    json_t *stages = json_array();

    for (int i = 0; i < o->layout.pipeline && o->layout.pipeline > 1; i++)
        json_array_append_new(stages, json_integer((json_int_t)o->f.stage_peak[i]));
    return stages;
}

static json_t *calls_json(const tutti__planned_calls *of, int ranks)
{
    json_t *calls = json_object();

    for (size_t i = 0; i < TUTTI__COUNT_OF(of->of); i++) {
        const tutti__planned_call *call = &of->of[i];

        if (call->name && call->n > 0)
            json_object_set_new(calls, call->name,
                                json_pack("{s:I,s:I,s:I}", "calls", (json_int_t)call->n, "bytes",
                                          (json_int_t)call->bytes, "sent_bytes",
                                          (json_int_t)tutti__wire_sent(call, ranks)));
    }
    return calls;
}

json_t *tutti__outlook_json(const tutti__outlook *o, const tutti__train_config *config)
{
    json_t *memory = json_object();

    for (size_t i = 0; i < TUTTI__COUNT_OF(parts_of); i++)
        json_object_set_new(memory, parts_of[i].label, json_integer((json_int_t)part(&o->f, i)));
    return json_pack(
        "{s:s,s:I,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:I,s:I,s:o,s:I,s:I,s:I,s:o,s:s,s:o,s:o,s:o,s:o,s:f,"
        "s:f,"
        "s:s,s:f,s:f,s:f,s:f}",
        "model", config->model, "parameters", (json_int_t)o->f.elements, "ranks", o->layout.ranks,
        "ranks_per_host", o->layout.local_ranks, "zero", o->layout.zero, "zero_ranks",
        o->layout.zero_ranks, "tensor", o->layout.tensor, "pipeline", o->layout.pipeline,
        "recompute", o->recompute, "batch_size", (json_int_t)o->batch_size, "grad_accumulation",
        (json_int_t)o->grad_accumulation, "memory", memory, "planned_memory", (json_int_t)o->f.peak,
        "planned_memory_of_others", (json_int_t)o->f.peak_off, "planned_memory_of_a_new_group",
        (json_int_t)o->f.peak_regroup, "planned_memory_of_stages", stages_json(o), "peak_when",
        o->f.peak_when, "wire", calls_json(&o->f.calls, tutti__layout_of_data(&o->layout).ranks),
        "wire_of_shares", calls_json(&o->f.shard_calls, tutti__layout_of_shares(&o->layout).ranks),
        "wire_of_tensor", calls_json(&o->f.tensor_calls, o->layout.tensor), "wire_of_pipeline",
        calls_json(&o->f.pipeline_calls, 2), "flops", o->f.flops, "compute_ms", 1e3 * o->compute_s,
        "compute_from", o->compute_from, "wire_ms", 1e3 * o->wire_s, "exposed_ms",
        1e3 * o->exposed_s, "bubble_ms", 1e3 * o->bubble_s, "step_ms", 1e3 * o->step_s);
}

/* event_file.c -- a TensorBoard event file.   SPDX-License-Identifier: MIT */
#include "train/output/loggers/event_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <tensorboard.pb-c.h>
#include <unistd.h>

#define PREFIX "events.out.tfevents."

typedef Tutti__Tensorboard__Event Event;
typedef Tutti__Tensorboard__Value Value;

/* Castagnoli's polynomial, reflected, four bits at a time. */
static uint32_t crc32c(const void *p, size_t bytes)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const uint8_t *byte = p;
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < bytes; i++) {
        crc ^= byte[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

uint32_t tutti__masked_crc32c(const void *p, size_t bytes)
{
    const uint32_t crc = crc32c(p, bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static tutti_status write_event(tutti__event_file *file, const Event *event)
{
    enum { HEAD = 12, TAIL = 4 };
    tutti__record_file *records = &file->records;
    uint8_t *frame;
    size_t n;

    TUTTI_TRY(tutti__record_file_pack(records, &event->base, &n));
    TUTTI_TRY(tutti__record_file_frame(records, HEAD + n + TAIL));
    frame = records->frame;
    tutti__put_le(frame, n, 8);
    tutti__put_le(frame + 8, tutti__masked_crc32c(frame, 8), 4);
    memcpy(frame + HEAD, records->message, n);
    tutti__put_le(frame + HEAD + n, tutti__masked_crc32c(records->message, n), 4);
    return tutti__record_file_write(records, HEAD + n + TAIL);
}

static Event event_at(uint64_t step)
{
    Event event = TUTTI__TENSORBOARD__EVENT__INIT;

    event.wall_time = tutti__wall_seconds();
    event.step = (int64_t)step;
    return event;
}

static tutti_status write_values(tutti__event_file *file, uint64_t step, Value **values, size_t n)
{
    Tutti__Tensorboard__Summary summary = TUTTI__TENSORBOARD__SUMMARY__INIT;
    Event event = event_at(step);

    summary.n_value = n;
    summary.value = values;
    event.what_case = TUTTI__TENSORBOARD__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return write_event(file, &event);
}

/* ---- The file ---- */

tutti_status tutti__event_file_remove_all(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int error = 0;

    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
            unlinkat(dirfd(dir), entry->d_name, 0) != 0 && error == 0)
            error = errno;
    if (dir)
        closedir(dir);
    return error ? tutti__fail_errno(error, "cannot remove the event files of %s", folder)
                 : TUTTI_OK;
}

/* Seconds for the next file's name: now, or later than those of all existing files, because readers sort by name. */
static long long next_seconds(const char *folder)
{
    long long seconds = (long long)tutti__wall_seconds();
    DIR *dir = opendir(folder);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        long long other;

        if (sscanf(entry->d_name, PREFIX "%lld", &other) == 1 && other >= seconds &&
            other < 9999999999)
            seconds = other + 1;
    }
    if (dir)
        closedir(dir);
    return seconds;
}

tutti_status tutti__event_file_open(tutti__event_file *file, const char *folder)
{
    char path[4096], host[128] = "";
    Event event = event_at(0);
    bool exists = true;

    file->records.fd = -1;
    TUTTI_TRY(tutti__make_dirs(folder));
    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        strcpy(host, "localhost");
    if (snprintf(path, sizeof path, "%s/" PREFIX "%010lld.%s.%d.0", folder, next_seconds(folder),
                 host, (int)getpid()) >= (int)sizeof path)
        return tutti__fail(TUTTI_ERR_ARG, "run_dir: the path %.60s... is too long", folder);
    TUTTI_TRY(tutti__record_file_open(&file->records, path, &exists));
    event.what_case = TUTTI__TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    event.file_version = (char *)"brain.Event:2";
    return write_event(file, &event);
}

tutti_status tutti__event_file_resumed(tutti__event_file *file, uint64_t step)
{
    Tutti__Tensorboard__SessionLog log = TUTTI__TENSORBOARD__SESSION_LOG__INIT;
    Event event = event_at(step + 1);

    log.status = TUTTI__TENSORBOARD__SESSION_LOG__STATUS__START;
    event.what_case = TUTTI__TENSORBOARD__EVENT__WHAT_SESSION_LOG;
    event.session_log = &log;
    return write_event(file, &event);
}

void tutti__event_file_close(tutti__event_file *file)
{
    tutti__record_file_close(&file->records);
}

/* ---- Points ---- */

tutti_status tutti__event_file_scalars(tutti__event_file *file, uint64_t step,
                                       const char *const *tags, const double *values, size_t n)
{
    enum { MOST = 32 };
    Value storage[MOST], *list[MOST];

    for (size_t first = 0; first < n; first += MOST) {
        const size_t here = n - first < MOST ? n - first : MOST;

        for (size_t i = 0; i < here; i++) {
            storage[i] = (Value)TUTTI__TENSORBOARD__VALUE__INIT;
            storage[i].tag = (char *)tags[first + i];
            storage[i].value_case = TUTTI__TENSORBOARD__VALUE__VALUE_SIMPLE_VALUE;
            storage[i].simple_value = (float)values[first + i];
            list[i] = &storage[i];
        }
        TUTTI_TRY(write_values(file, step, list, here));
    }
    return TUTTI_OK;
}

tutti_status tutti__event_file_histogram(tutti__event_file *file, uint64_t step, const char *tag,
                                         const tutti__histogram *histogram)
{
    Tutti__Tensorboard__Histogram h = TUTTI__TENSORBOARD__HISTOGRAM__INIT;
    Value value = TUTTI__TENSORBOARD__VALUE__INIT;

    h.min = histogram->min;
    h.max = histogram->max;
    h.num = (double)histogram->n;
    h.sum = histogram->sum;
    h.sum_squares = histogram->sum_squares;
    h.n_bucket_limit = h.n_bucket = histogram->n_buckets;
    h.bucket_limit = (double *)histogram->limits;
    h.bucket = (double *)histogram->buckets;
    value.tag = (char *)tag;
    value.value_case = TUTTI__TENSORBOARD__VALUE__VALUE_HISTOGRAM;
    value.histogram = &h;
    return write_values(file, step, (Value *[]){&value}, 1);
}

/* ---- The configuration ---- */

static void set_plugin(Value *value, Tutti__Tensorboard__Metadata *metadata,
                       Tutti__Tensorboard__Plugin *plugin, const char *name)
{
    *metadata = (Tutti__Tensorboard__Metadata)TUTTI__TENSORBOARD__METADATA__INIT;
    *plugin = (Tutti__Tensorboard__Plugin)TUTTI__TENSORBOARD__PLUGIN__INIT;
    plugin->name = (char *)name;
    metadata->plugin = plugin;
    value->metadata = metadata;
}

/* Escapes bars, which would end the cell, and line ends, which would end the table. */
static void print_cell(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '|')
            fputs("\\|", out);
        else
            putc(*text == '\n' ? ' ' : *text, out);
}

/* "| key | value |" lines. */
static char *config_table(const tutti__train_config *config)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);

    if (!out)
        return NULL;
    fputs("| key | value |\n|---|---|\n", out);
    for (int i = 0; i < TUTTI__N_KEYS; i++) {
        json_t *value = tutti__config_value(config, i);
        char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

        fprintf(out, "| %s | ", tutti__key_table[i].name);
        print_cell(out, json_is_string(value) ? json_string_value(value) : dump ? dump : "?");
        fputs(" |\n", out);
        free(dump);
        json_decref(value);
    }
    fprintf(out, "| world_size | %lld |\n", (long long)config->world_size);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

tutti_status tutti__event_file_text(tutti__event_file *file, uint64_t step, const char *tag,
                                    const char *text)
{
    Tutti__Tensorboard__Shape__Dim one = TUTTI__TENSORBOARD__SHAPE__DIM__INIT, *dims[] = {&one};
    Tutti__Tensorboard__Shape shape = TUTTI__TENSORBOARD__SHAPE__INIT;
    Tutti__Tensorboard__Tensor tensor = TUTTI__TENSORBOARD__TENSOR__INIT;
    Tutti__Tensorboard__Metadata metadata;
    Tutti__Tensorboard__Plugin plugin;
    Value value = TUTTI__TENSORBOARD__VALUE__INIT;
    ProtobufCBinaryData string = {strlen(text), (uint8_t *)(uintptr_t)text};

    one.size = 1;
    shape.n_dim = 1;
    shape.dim = dims;
    tensor.type = TUTTI__TENSORBOARD__TENSOR__TYPE__STRING;
    tensor.shape = &shape;
    tensor.n_string_val = 1;
    tensor.string_val = &string;
    value.tag = (char *)(uintptr_t)tag;
    value.value_case = TUTTI__TENSORBOARD__VALUE__VALUE_TENSOR;
    value.tensor = &tensor;
    set_plugin(&value, &metadata, &plugin, "text");
    return write_values(file, step, (Value *[]){&value}, 1);
}

static tutti_status write_config_text(tutti__event_file *file, const tutti__train_config *config,
                                      uint64_t step)
{
    char *text = config_table(config);
    tutti_status status;

    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the text of the configuration");
    status = tutti__event_file_text(file, step, "config", text);
    free(text);
    return status;
}

/* An event without a value: the content of its plugin is the message. */
static tutti_status write_hparams(tutti__event_file *file, uint64_t step, const char *tag,
                                  const Tutti__Tensorboard__Hparams *hparams)
{
    const size_t n = tutti__tensorboard__hparams__get_packed_size(hparams);
    Tutti__Tensorboard__Metadata metadata;
    Tutti__Tensorboard__Plugin plugin;
    Value value = TUTTI__TENSORBOARD__VALUE__INIT;
    uint8_t *content = malloc(n + 1);
    tutti_status status;

    if (!content)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the table of hyper-parameters");
    tutti__tensorboard__hparams__pack(hparams, content);
    value.tag = (char *)tag;
    set_plugin(&value, &metadata, &plugin, "hparams");
    plugin.content = (ProtobufCBinaryData){n, content};
    status = write_values(file, step, (Value *[]){&value}, 1);
    free(content);
    return status;
}

/* value: borrowed while hparam is used. */
static void set_hparam(Tutti__Tensorboard__Hparam *hparam, Tutti__Tensorboard__HparamValue *number,
                       const char *key, const json_t *value)
{
    *hparam = (Tutti__Tensorboard__Hparam)TUTTI__TENSORBOARD__HPARAM__INIT;
    *number = (Tutti__Tensorboard__HparamValue)TUTTI__TENSORBOARD__HPARAM_VALUE__INIT;
    hparam->key = (char *)key;
    hparam->value = number;
    if (json_is_boolean(value)) {
        number->value_case = TUTTI__TENSORBOARD__HPARAM_VALUE__VALUE_FLAG;
        number->flag = json_is_true(value);
    } else if (json_is_number(value)) {
        number->value_case = TUTTI__TENSORBOARD__HPARAM_VALUE__VALUE_NUMBER;
        number->number = json_number_value(value);
    } else {
        number->value_case = TUTTI__TENSORBOARD__HPARAM_VALUE__VALUE_TEXT;
        number->text = (char *)json_string_value(value);
    }
}

tutti_status tutti__event_file_config(tutti__event_file *file, const tutti__train_config *config,
                                      const char *name, uint64_t step)
{
    enum { N = TUTTI__N_KEYS + 1 };
    Tutti__Tensorboard__HparamValue values[N];
    Tutti__Tensorboard__Hparam storage[N], *list[N];
    Tutti__Tensorboard__SessionStart start = TUTTI__TENSORBOARD__SESSION_START__INIT;
    Tutti__Tensorboard__Hparams hparams = TUTTI__TENSORBOARD__HPARAMS__INIT;
    json_t *json[N];
    tutti_status status;

    for (int i = 0; i < N; i++) {
        json[i] =
            i < TUTTI__N_KEYS ? tutti__config_value(config, i) : json_integer(config->world_size);
        set_hparam(&storage[i], &values[i],
                   i < TUTTI__N_KEYS ? tutti__key_table[i].name : "world_size", json[i]);
        list[i] = &storage[i];
    }
    start.n_hparam = N;
    start.hparam = list;
    start.group_name = (char *)name;
    start.start_time = tutti__wall_seconds();
    hparams.what_case = TUTTI__TENSORBOARD__HPARAMS__WHAT_START;
    hparams.start = &start;
    status = write_config_text(file, config, step);
    if (status == TUTTI_OK)
        status = write_hparams(file, step, "_hparams_/session_start_info", &hparams);
    for (int i = 0; i < N; i++)
        json_decref(json[i]);
    return status;
}

tutti_status tutti__event_file_ended(tutti__event_file *file, uint64_t step, bool success)
{
    Tutti__Tensorboard__SessionEnd end = TUTTI__TENSORBOARD__SESSION_END__INIT;
    Tutti__Tensorboard__Hparams hparams = TUTTI__TENSORBOARD__HPARAMS__INIT;

    end.status = success ? TUTTI__TENSORBOARD__SESSION_END__STATUS__SUCCESS
                         : TUTTI__TENSORBOARD__SESSION_END__STATUS__FAILURE;
    end.end_time = tutti__wall_seconds();
    hparams.what_case = TUTTI__TENSORBOARD__HPARAMS__WHAT_END;
    hparams.end = &end;
    return write_hparams(file, step, "_hparams_/session_end_info", &hparams);
}

/* wandb_file.c -- a Weights & Biases run, written offline.   SPDX-License-Identifier: MIT */
#include "train/output/loggers/wandb_file.h"

#include "checkpoint/json_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <wandb.pb-c.h>
#include <zlib.h>

typedef Tutti__Wandb__Record Record;
typedef Tutti__Wandb__Item Item;

/* ---- Records to bytes ---- */

enum { BLOCK = 32768, HEAD = 7, FULL = 1, FIRST, MIDDLE, LAST };

size_t tutti__wandb_frame_bound(size_t n)
{
    return n + HEAD * (n / (BLOCK - HEAD) + 3);
}

size_t tutti__wandb_frame(uint8_t *out, uint64_t position, const uint8_t *payload, size_t n)
{
    uint8_t *p = out;
    bool first = true, last;

    do {
        size_t room = BLOCK - (size_t)(position % BLOCK), here;

        if (room < HEAD) { /* a header does not fit: the block is filled with zeros */
            memset(p, 0, room);
            p += room;
            position += room;
            room = BLOCK;
        }
        here = n < room - HEAD ? n : room - HEAD;
        last = here == n;
        p[6] = first ? (last ? FULL : FIRST) : (last ? LAST : MIDDLE);
        if (here > 0)
            memcpy(p + HEAD, payload, here);
        tutti__put_le(p, crc32(0, p + 6, (uInt)(here + 1)), 4);
        tutti__put_le(p + 4, here, 2);
        p += HEAD + here;
        position += HEAD + here;
        payload += here;
        n -= here;
        first = false;
    } while (!last);
    return (size_t)(p - out);
}

static tutti_status write_record(tutti__wandb_file *file, Record *record)
{
    tutti__record_file *records = &file->records;
    size_t n;

    record->num = ++file->n_records;
    TUTTI_TRY(tutti__record_file_pack(records, &record->base, &n));
    TUTTI_TRY(tutti__record_file_frame(records, tutti__wandb_frame_bound(n)));
    n = tutti__wandb_frame(records->frame, records->size, records->message, n);
    return tutti__record_file_write(records, n);
}

static Tutti__Wandb__Timestamp timestamp(double seconds)
{
    Tutti__Wandb__Timestamp t = TUTTI__WANDB__TIMESTAMP__INIT;

    t.seconds = (int64_t)seconds;
    t.nanos = (int32_t)((seconds - floor(seconds)) * 1e9);
    return t;
}

/* ---- Begin ---- */

/* Text of a message must be UTF-8, or readers reject the whole message. */
static char *text_or_empty(const char *text)
{
    static const char empty[] = "";

    return (char *)(text && tutti__is_utf8(text) ? text : empty);
}

static char *variable(const char *name, const char *by_default)
{
    const char *text = getenv(name);

    return text_or_empty(text && *text ? text : by_default);
}

/* WANDB_RUN_ID if it can be a file's name, else eight letters and digits. */
static void choose_id(char id[65])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    const char *given = variable("WANDB_RUN_ID", "");
    uint8_t bytes[8];

    if (*given && strlen(given) <= 64 && !strpbrk(given, "/\\#?%: \t\n") && given[0] != '.') {
        strcpy(id, given);
        return;
    }
    if (*given)
        tutti_log(TUTTI_LOG_WARN, "train",
                  "WANDB_RUN_ID \"%.40s\" is not a run id; a new one is generated", given);
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)(tutti__now_ns() >> i ^ (uint64_t)getpid() << i);
    for (size_t i = 0; i < sizeof bytes; i++)
        id[i] = letters[bytes[i] % (sizeof letters - 1)];
    id[sizeof bytes] = '\0';
}

/* `latest-run` is for people. */
static void point_latest(const char *folder, const char *name)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s/latest-run", folder) < (int)sizeof path &&
        tutti__replace_link(name, path) != TUTTI_OK)
        tutti_log(TUTTI_LOG_DEBUG, "train", "%s", tutti_last_error());
}

/* Makes a new folder: a given id may already have been used in this second. */
static tutti_status make_folder(tutti__wandb_file *file, const char *folder, char path[4096])
{
    char name[160];
    double seconds = file->begin;
    int tries = 0;

    TUTTI_TRY(tutti__make_dirs(folder));
    do {
        char when[64];

        tutti__local_time(seconds, "%Y%m%d_%H%M%S", when);
        snprintf(name, sizeof name, "offline-run-%s-%s", when, file->id);
        if (snprintf(path, 4096, "%s/%s", folder, name) >= 3900)
            return tutti__fail(TUTTI_ERR_ARG, "run_dir: the path %.60s... is too long", folder);
        seconds++;
    } while (mkdir(path, 0777) != 0 && errno == EEXIST && ++tries < 100);
    snprintf(file->folder, sizeof file->folder, "%.3900s/files", path);
    TUTTI_TRY(tutti__make_dirs(file->folder));
    snprintf(path + strlen(path), 4096 - strlen(path), "/run-%s.wandb", file->id);
    point_latest(folder, name);
    return TUTTI_OK;
}

static tutti_status write_header(tutti__wandb_file *file)
{
    static const uint8_t magic[HEAD] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};
    Tutti__Wandb__Header__Version version = TUTTI__WANDB__HEADER__VERSION__INIT;
    Tutti__Wandb__Header header = TUTTI__WANDB__HEADER__INIT;
    Record record = TUTTI__WANDB__RECORD__INIT;

    TUTTI_TRY(tutti__record_file_frame(&file->records, HEAD));
    memcpy(file->records.frame, magic, HEAD);
    TUTTI_TRY(tutti__record_file_write(&file->records, HEAD));
    version.producer = (char *)"tutti " TUTTI_VERSION;
    header.version = &version;
    record.what_case = TUTTI__WANDB__RECORD__WHAT_HEADER;
    record.header = &header;
    return write_record(file, &record);
}

static tutti_status write_run(tutti__wandb_file *file, const char *name, uint64_t step)
{
    enum { MOST = 32 };
    Tutti__Wandb__Run run = TUTTI__WANDB__RUN__INIT;
    Tutti__Wandb__Timestamp begin = timestamp(file->begin);
    Record record = TUTTI__WANDB__RECORD__INIT;
    char host[128] = "", list[1024], *tags[MOST], *rest = list;

    gethostname(host, sizeof host - 1);
    snprintf(list, sizeof list, "%s", variable("WANDB_TAGS", ""));
    for (char *tag; run.n_tags < MOST && (tag = strsep(&rest, ","));)
        if (*tag)
            tags[run.n_tags++] = tag;
    run.tags = tags;
    run.id = file->id;
    run.entity = variable("WANDB_ENTITY", "");
    run.project = variable("WANDB_PROJECT", "tutti");
    run.group = variable("WANDB_RUN_GROUP", name);
    run.name = variable("WANDB_NAME", name);
    run.job_type = variable("WANDB_JOB_TYPE", "");
    run.notes = variable("WANDB_NOTES", "");
    run.host = text_or_empty(host);
    run.starting_step = (int64_t)step;
    run.start_time = &begin;
    record.what_case = TUTTI__WANDB__RECORD__WHAT_RUN;
    record.run = &run;
    return write_record(file, &record);
}

/* JSON's numbers are valid YAML, except exponents without a point, which some readers parse as text. */
static void print_yaml(FILE *out, const char *key, const char *json)
{
    const size_t mantissa = strcspn(json, "e");

    fprintf(out, "%s:\n    value: ", key);
    if (json[0] != '"' && json[mantissa] == 'e' && memchr(json, '.', mantissa) == NULL &&
        strcmp(json, "true") != 0 && strcmp(json, "false") != 0)
        fprintf(out, "%.*s.0%s\n", (int)mantissa, json, json + mantissa);
    else
        fprintf(out, "%s\n", json);
}

/* Writes a text to FOLDER/name. */
static tutti_status write_text(const tutti__wandb_file *file, const char *name, const char *text)
{
    char path[4096 + 32];

    snprintf(path, sizeof path, "%s/%s", file->folder, name);
    if (!text)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s", path);
    return tutti__write_file(path, text, strlen(text));
}

static tutti_status write_config(tutti__wandb_file *file, const tutti__train_config *config)
{
    enum { N = TUTTI__N_KEYS + 1 };
    Tutti__Wandb__Items items = TUTTI__WANDB__ITEMS__INIT;
    Item storage[N], *list[N];
    Record record = TUTTI__WANDB__RECORD__INIT;
    char *yaml = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&yaml, &bytes);
    tutti_status status;

    items.update = list;
    for (int i = 0; i < N; i++) {
        json_t *value =
            i < TUTTI__N_KEYS ? tutti__config_value(config, i) : json_integer(config->world_size);
        char *json = tutti__json_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

        json_decref(value);
        if (!json)
            break; /* no memory */
        storage[items.n_update] = (Item)TUTTI__WANDB__ITEM__INIT;
        storage[items.n_update].key =
            (char *)(i < TUTTI__N_KEYS ? tutti__key_table[i].name : "world_size");
        storage[items.n_update].value_json = json;
        list[items.n_update] = &storage[items.n_update];
        if (out)
            print_yaml(out, storage[items.n_update].key, json);
        items.n_update++;
    }
    record.what_case = TUTTI__WANDB__RECORD__WHAT_CONFIG;
    record.config = &items;
    status = items.n_update == N
                 ? write_record(file, &record)
                 : tutti__fail(TUTTI_ERR_MEMORY, "no memory for %s/config.yaml", file->folder);
    if (out && fclose(out) != 0) {
        free(yaml);
        yaml = NULL;
    }
    if (status == TUTTI_OK)
        status = write_text(file, "config.yaml", yaml);
    free(yaml);
    for (size_t i = 0; i < items.n_update; i++)
        free(storage[i].value_json);
    return status;
}

static tutti_status write_metadata(const tutti__wandb_file *file,
                                   const Tutti__Wandb__Environment *e)
{
    char began[40];
    time_t seconds = (time_t)file->begin;
    struct tm tm;
    json_t *root;
    char *text;
    tutti_status status;

    gmtime_r(&seconds, &tm);
    strftime(began, sizeof began, "%Y-%m-%dT%H:%M:%SZ", &tm);
    root =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i}", "os", e->os, "startedAt", began, "program",
                  e->program, "executable", e->executable, "host", e->host, "cpu_count",
                  (int)e->cpu_count, "cpu_count_logical", (int)e->cpu_count_logical);
    text = tutti__json_text(root, JSON_INDENT(2));
    json_decref(root);
    status = write_text(file, "wandb-metadata.json", text);
    free(text);
    return status;
}

static tutti_status write_environment(tutti__wandb_file *file, const char *program)
{
    Tutti__Wandb__Environment e = TUTTI__WANDB__ENVIRONMENT__INIT;
    Tutti__Wandb__Timestamp begin = timestamp(file->begin);
    Record record = TUTTI__WANDB__RECORD__INIT;
    char os[256] = "", host[128] = "", executable[4096] = "";
    struct utsname name;

    if (uname(&name) == 0)
        snprintf(os, sizeof os, "%.60s-%.100s-%.60s", name.sysname, name.release, name.machine);
    gethostname(host, sizeof host - 1);
    tutti__executable(executable, sizeof executable);
    e.os = os;
    e.started_at = &begin;
    e.program = text_or_empty(program);
    e.host = text_or_empty(host);
    e.executable = text_or_empty(executable);
    e.cpu_count = (uint32_t)tutti__system_cores();
    e.cpu_count_logical = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    e.writer_id = file->id;
    record.what_case = TUTTI__WANDB__RECORD__WHAT_ENVIRONMENT;
    record.environment = &e;
    TUTTI_TRY(write_record(file, &record));
    return write_metadata(file, &e);
}

tutti_status tutti__wandb_file_open(tutti__wandb_file *file, const char *folder, const char *name,
                                    const char *program, const tutti__train_config *config,
                                    uint64_t step)
{
    char path[4096];
    bool exists;

    *file = (tutti__wandb_file){.records.fd = -1, .begin = tutti__wall_seconds()};
    choose_id(file->id);
    TUTTI_TRY(make_folder(file, folder, path));
    TUTTI_TRY(tutti__record_file_open(&file->records, path, &exists));
    TUTTI_TRY(write_header(file));
    TUTTI_TRY(write_run(file, name, step));
    TUTTI_TRY(write_environment(file, program));
    return write_config(file, config);
}

void tutti__wandb_file_close(tutti__wandb_file *file)
{
    tutti__record_file_close(&file->records);
}

/* ---- During the run ---- */

/* Replaces the item of that name, or adds a new one. */
static void put(tutti__wandb_item *items, size_t *n, const tutti__wandb_item *item)
{
    size_t i = 0;

    while (i < *n && strcmp(items[i].key, item->key) != 0)
        i++;
    if (i == TUTTI__WANDB_ROW)
        return;
    items[i] = *item;
    *n += i == *n;
}

static void put_row(tutti__wandb_file *file, const char *key, const char *format, double value)
    __attribute__((format(printf, 3, 0)));
static void put_row(tutti__wandb_file *file, const char *key, const char *format, double value)
{
    tutti__wandb_item item = {.key = key};

    snprintf(item.json, sizeof item.json, format, value);
    put(file->row, &file->n_row, &item);
}

static void list_items(const tutti__wandb_item *items, size_t n, Item *storage, Item **list)
{
    for (size_t i = 0; i < n; i++) {
        storage[i] = (Item)TUTTI__WANDB__ITEM__INIT;
        storage[i].key = (char *)items[i].key;
        storage[i].value_json = (char *)items[i].json;
        list[i] = &storage[i];
    }
}

/* Adds what W&B's own client adds to a row, and `wandb sync` does not. */
static tutti_status write_row(tutti__wandb_file *file)
{
    Item storage[TUTTI__WANDB_ROW], *list[TUTTI__WANDB_ROW];
    Tutti__Wandb__History__Step step = TUTTI__WANDB__HISTORY__STEP__INIT;
    Tutti__Wandb__History history = TUTTI__WANDB__HISTORY__INIT;
    Record record = TUTTI__WANDB__RECORD__INIT;

    if (file->n_row == 0)
        return TUTTI_OK;
    put_row(file, "_step", "%.0f", (double)file->row_step);
    put_row(file, "_runtime", "%.6f", file->row_seconds - file->begin);
    put_row(file, "_timestamp", "%.6f", file->row_seconds);
    list_items(file->row, file->n_row, storage, list);
    history.n_item = file->n_row;
    history.item = list;
    step.num = (int64_t)file->row_step;
    history.step = &step;
    record.what_case = TUTTI__WANDB__RECORD__WHAT_HISTORY;
    record.history = &history;
    file->n_row = 0;
    return write_record(file, &record);
}

tutti_status tutti__wandb_file_add(tutti__wandb_file *file, uint64_t step,
                                   tutti__metric_table table, const void *record)
{
    if (step != file->row_step)
        TUTTI_TRY(write_row(file));
    file->row_step = step;
    file->row_seconds = tutti__wall_seconds();
    for (size_t i = 0; i < table.n; i++) {
        const tutti__metric_row *row = &table.rows[i];
        tutti__wandb_item item = {.key = row->tag};

        if (!row->tag || !isfinite(tutti__metric_number(row, record)))
            continue;
        tutti__metric_number_text(row, record, item.json);
        put(file->row, &file->n_row, &item);
        put(file->last, &file->n_last, &item);
    }
    return TUTTI_OK;
}

static tutti_status write_summary(tutti__wandb_file *file, Item **list, size_t n)
{
    Tutti__Wandb__Items items = TUTTI__WANDB__ITEMS__INIT;
    Record record = TUTTI__WANDB__RECORD__INIT;

    items.n_update = n;
    items.update = list;
    record.what_case = TUTTI__WANDB__RECORD__WHAT_SUMMARY;
    record.summary = &items;
    return write_record(file, &record);
}

tutti_status tutti__wandb_file_flush(tutti__wandb_file *file)
{
    Item storage[TUTTI__WANDB_ROW], *list[TUTTI__WANDB_ROW];

    TUTTI_TRY(write_row(file));
    list_items(file->last, file->n_last, storage, list);
    return write_summary(file, list, file->n_last);
}

/* ---- System metrics ---- */

/* W&B's names of the fields of SYSTEM and GPU (there after "gpu.0."), and the size of their units. */
typedef struct stat_name {
    const char *field, *key;
    double unit;
} stat_name;
static const stat_name system_names[] = {{"cpu_percent", "cpu", 1},
                                         {"process_cpu_percent", "proc.cpu", 1},
                                         {"load", "load", 1},
                                         {"rss_bytes", "proc.memory.rssMB", 1048576},
                                         {"memory_percent", "memory_percent", 1},
                                         {"disk_free_bytes", "disk.freeMB", 1048576},
                                         {"network_sent_bytes", "network.sent", 1},
                                         {"network_received_bytes", "network.recv", 1},
                                         {0}};
static const stat_name gpu_names[] = {{"percent", "gpu", 1},
                                      {"memory_percent", "memoryAllocated", 1},
                                      {"memory_bytes", "memoryAllocatedBytes", 1},
                                      {"temperature_c", "temp", 1},
                                      {"power_w", "powerWatts", 1},
                                      {0}};

enum { MOST_STATS = TUTTI__COUNT_OF(system_names) + TUTTI__MOST_GPUS * TUTTI__COUNT_OF(gpu_names) };
typedef struct stats {
    Tutti__Wandb__Stats__StatsItem items[MOST_STATS], *list[MOST_STATS];
    char keys[MOST_STATS][40], texts[MOST_STATS][32];
    size_t n;
} stats;

static void add_stats(stats *s, const char *prefix, const stat_name *names,
                      tutti__metric_table table, const void *record)
{
    for (size_t i = 0; i < table.n; i++) {
        const double value = tutti__metric_number(&table.rows[i], record);
        const stat_name *name = names;
        Tutti__Wandb__Stats__StatsItem *item = &s->items[s->n];

        while (name->field && strcmp(name->field, table.rows[i].name) != 0)
            name++;
        if (!name->field || !isfinite(value))
            continue;
        snprintf(s->keys[s->n], sizeof s->keys[0], "%s%s", prefix, name->key);
        snprintf(s->texts[s->n], sizeof s->texts[0], "%.12g", value / name->unit);
        *item = (Tutti__Wandb__Stats__StatsItem)TUTTI__WANDB__STATS__STATS_ITEM__INIT;
        item->key = s->keys[s->n];
        item->value_json = s->texts[s->n];
        s->list[s->n++] = item;
    }
}

tutti_status tutti__wandb_file_system(tutti__wandb_file *file, const tutti__system_sample *sample)
{
    stats s = {.n = 0};
    Tutti__Wandb__Timestamp now = timestamp(tutti__wall_seconds());
    Tutti__Wandb__Stats message = TUTTI__WANDB__STATS__INIT;
    Record record = TUTTI__WANDB__RECORD__INIT;

    add_stats(&s, "", system_names, tutti__system_table, &sample->machine);
    for (size_t i = 0; i < sample->n_gpus; i++) {
        char prefix[16];

        snprintf(prefix, sizeof prefix, "gpu.%d.", (int)i);
        add_stats(&s, prefix, gpu_names, tutti__gpu_table, &sample->gpus[i]);
    }
    message.timestamp = &now;
    message.n_item = s.n;
    message.item = s.list;
    record.what_case = TUTTI__WANDB__RECORD__WHAT_STATS;
    record.stats = &message;
    return write_record(file, &record);
}

/* ---- End ---- */

/* Writes {"name": value} of summary.json's fields and the last points, as a record and as a file. */
static tutti_status write_last_summary(tutti__wandb_file *file, const json_t *root)
{
    Item storage[2 * TUTTI__WANDB_ROW], *list[2 * TUTTI__WANDB_ROW];
    const char *key;
    json_t *value;
    size_t n = 0;
    tutti_status status;
    char *text = tutti__json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));

    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        if (n == TUTTI__COUNT_OF(storage))
            break;
        storage[n] = (Item)TUTTI__WANDB__ITEM__INIT;
        storage[n].key = (char *)key;
        storage[n].value_json = tutti__json_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (!storage[n].value_json) {
            free(text);
            text = NULL;
            break;
        }
        list[n] = &storage[n];
        n++;
    }
    status = text ? write_summary(file, list, n) : TUTTI_OK;
    while (n > 0)
        free(storage[--n].value_json);
    if (status == TUTTI_OK) /* which fails without a text */
        status = write_text(file, "wandb-summary.json", text);
    free(text);
    return status;
}

/* The files that `wandb sync` uploads; it makes config.yaml and wandb-summary.json itself. */
static tutti_status write_files(tutti__wandb_file *file)
{
    Tutti__Wandb__Files__File metadata = TUTTI__WANDB__FILES__FILE__INIT, *list[] = {&metadata};
    Tutti__Wandb__Files files = TUTTI__WANDB__FILES__INIT;
    Record record = TUTTI__WANDB__RECORD__INIT;

    metadata.path = (char *)"wandb-metadata.json";
    metadata.policy = TUTTI__WANDB__FILES__POLICY__END;
    files.n_file = 1;
    files.file = list;
    record.what_case = TUTTI__WANDB__RECORD__WHAT_FILES;
    record.files = &files;
    return write_record(file, &record);
}

static tutti_status write_exit(tutti__wandb_file *file, int code)
{
    Tutti__Wandb__Exit leave = TUTTI__WANDB__EXIT__INIT;
    Tutti__Wandb__Empty empty = TUTTI__WANDB__EMPTY__INIT;
    Record record = TUTTI__WANDB__RECORD__INIT;

    leave.exit_code = code;
    leave.runtime = (int32_t)(tutti__wall_seconds() - file->begin);
    record.what_case = TUTTI__WANDB__RECORD__WHAT_EXIT;
    record.exit = &leave;
    TUTTI_TRY(write_record(file, &record));
    record.what_case = TUTTI__WANDB__RECORD__WHAT_FINAL;
    record.final = &empty;
    TUTTI_TRY(write_record(file, &record));
    record.what_case = TUTTI__WANDB__RECORD__WHAT_FOOTER;
    record.footer = &empty;
    return write_record(file, &record);
}

tutti_status tutti__wandb_file_end(tutti__wandb_file *file, const tutti__summary *summary)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    json_t *root = NULL;
    tutti_status status;

    if (out) {
        fputs("{", out);
        for (size_t i = 0; i < file->n_last; i++)
            fprintf(out, "\"%s\": %s, ", file->last[i].key, file->last[i].json);
        fprintf(out, "\"_runtime\": %.0f, ", tutti__wall_seconds() - file->begin);
        tutti__metrics_print(out, tutti__summary_table, summary, ", ");
        fputs("}", out);
        if (fclose(out) == 0)
            root = json_loadb(text, bytes, 0, NULL);
        free(text);
    }
    if (!root)
        return tutti__fail(TUTTI_ERR_MEMORY, "no memory for the run's summary");
    status = write_row(file);
    if (status == TUTTI_OK)
        status = write_last_summary(file, root);
    json_decref(root);
    TUTTI_TRY(status);
    TUTTI_TRY(write_files(file));
    return write_exit(file, strcmp(summary->status, "completed") == 0 ? 0
                            : strcmp(summary->status, "interrupted") == 0
                                ? 255 /* as W&B's client */
                                : 1);
}

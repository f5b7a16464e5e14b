/* system.c -- this machine's load: cores, memory, disk, network.   SPDX-License-Identifier: MIT */
#include "train/machine/system.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Monotonic counters. */
typedef struct counters {
    double busy, all;       /* ticks of all cores */
    double process;         /* seconds of CPU */
    double now;             /* seconds */
    int64_t sent, received; /* bytes */
} counters;

struct tutti__system {
    char *folder;
    counters first, last;
    tutti__nvml *nvml; /* NULL: no GPU known to it */
    const tutti__gpus *gpus;
};

/* A core counts at the first of its processors: "2-3" is the list of 2 and of 3. */
int tutti__system_cores(void)
{
    const int n_processors = (int)sysconf(_SC_NPROCESSORS_CONF);
    int n = 0;

    for (int i = 0; i < n_processors; i++) {
        char path[128], list[256];

        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_cpus_list", i);
        n += tutti__slurp(path, list, sizeof list) && *list && atoi(list) == i;
    }
    return n > 0 ? n : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* The first line, of all cores: user nice system idle iowait irq softirq steal. */
static void read_cores(counters *c)
{
    char text[512];
    double t[8] = {0};

    if (!tutti__slurp("/proc/stat", text, sizeof text) ||
        sscanf(text, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3], &t[4],
               &t[5], &t[6], &t[7]) < 4)
        return;
    for (int i = 0; i < 8; i++)
        c->all += t[i];
    c->busy = c->all - t[3] - t[4];
}

/* Lines "eth0: RECEIVED and seven more, SENT ...", after two lines of titles. */
static void read_network(counters *c)
{
    char text[16384], *line;

    if (!tutti__slurp("/proc/net/dev", text, sizeof text))
        return;
    for (line = strchr(text, '\n'); line; line = strchr(line + 1, '\n')) {
        char name[32];
        long long received, sent;

        if (sscanf(line + 1, " %31[^: ]: %lld %*d %*d %*d %*d %*d %*d %*d %lld", name, &received,
                   &sent) == 3 &&
            strcmp(name, "lo") != 0) {
            c->received += received;
            c->sent += sent;
        }
    }
}

static void read_counters(counters *c)
{
    *c = (counters){.now = (double)tutti__now_ns() * 1e-9, .process = tutti__cpu_seconds()};
    read_cores(c);
    read_network(c);
}

static void read_memory(tutti__system_metrics *m)
{
    char text[256];
    int64_t total = tutti__meminfo("MemTotal"), limit, used, pages;

    if (total > 0)
        m->memory_bytes = total - tutti__meminfo("MemAvailable");
    if (tutti__cgroup_memory(&limit, &used) && limit < total) {
        total = limit;
        m->memory_bytes = used;
    }
    m->memory_percent = total > 0 ? 100 * (double)m->memory_bytes / (double)total : NAN;
    if (tutti__slurp("/proc/self/statm", text, sizeof text) && sscanf(text, "%*d %ld", &pages) == 1)
        m->rss_bytes = pages * sysconf(_SC_PAGESIZE);
}

tutti__system *tutti__system_open(const char *folder, const tutti__gpus *gpus)
{
    tutti__system *system = tutti__alloc(sizeof *system);

    if (!system || !(system->folder = strdup(folder))) {
        free(system);
        tutti__fail(TUTTI_ERR_MEMORY, "no memory for the system's figures");
        return NULL;
    }
    read_counters(&system->first);
    system->last = system->first;
    system->gpus = gpus;
    system->nvml = tutti__nvml_open();
    for (int i = 0; system->nvml && i < tutti__nvml_count(system->nvml); i++)
        tutti__nvml_watch(system->nvml, i);
    return system;
}

void tutti__system_read(tutti__system *system, tutti__system_sample *sample)
{
    tutti__system_metrics *m = &sample->machine;
    const counters last = system->last;
    struct statvfs disk;
    counters now;

    read_counters(&now);
    system->last = now;
    *m = (tutti__system_metrics){
        .cpu_percent =
            now.all > last.all ? 100 * (now.busy - last.busy) / (now.all - last.all) : NAN,
        .process_cpu_percent =
            now.now > last.now ? 100 * (now.process - last.process) / (now.now - last.now) : NAN,
        .network_sent_bytes = now.sent - system->first.sent,
        .network_received_bytes = now.received - system->first.received};
    if (getloadavg(&m->load, 1) != 1)
        m->load = NAN;
    read_memory(m);
    if (statvfs(system->folder, &disk) == 0)
        m->disk_free_bytes = (int64_t)((uint64_t)disk.f_bavail * disk.f_frsize);
    sample->n_gpus = 0;
    if (!system->nvml)
        return;
    sample->n_gpus = tutti__nvml_read(system->nvml, sample->gpus, TUTTI__MOST_GPUS);
    for (size_t i = 0; i < system->gpus->n_here; i++) {
        const int gpu = tutti__nvml_find(system->nvml, system->gpus->here[i].bus);

        if (gpu >= 0 && (size_t)gpu < sample->n_gpus)
            sample->gpus[gpu].ranks++;
    }
}

void tutti__system_close(tutti__system *system)
{
    if (!system)
        return;
    tutti__nvml_close(system->nvml);
    free(system->folder);
    free(system);
}

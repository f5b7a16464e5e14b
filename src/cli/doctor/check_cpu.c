/* check_cpu.c -- cores, NUMA nodes, vector extensions, kernels.   SPDX-License-Identifier: MIT */
#include "cli/doctor/doctor.h"
#include "train/machine/pin.h"

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tensor.h>
#include <unistd.h>

/* ---- Cores ---------------------------------------------------------------------------------------------- */

void tutti__check_cores(tutti__doctor *d)
{
    int online = (int)sysconf(_SC_NPROCESSORS_ONLN), allowed = online, counted = tutti__cores();
    double quota = tutti__cpu_quota();
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        allowed = CPU_COUNT(&set);
    tutti__find(d, TUTTI__FINE, "cores", "%d of %d usable; Tutti counts %d", allowed, online,
                counted);
    if (allowed < online)
        tutti__find(d, TUTTI__NOTE, "affinity",
                    "this shell may use %d of %d cores (taskset, Slurm, or the container's cpuset)",
                    allowed, online);
    if (quota > 0 && quota < allowed) {
        tutti__find(d, TUTTI__WARNING, "CPU quota",
                    "the cgroup allows the time of %.2f cores of %d visible ones: more threads are "
                    "stopped for parts of each 100 ms",
                    quota, allowed);
        tutti__remedy(d,
                      "run ranks x threads for %d (tutti run -n %d, TUTTI_THREADS=1), or raise the "
                      "quota (docker --cpus, "
                      "CPUQuota=, Kubernetes resources.limits.cpu)",
                      quota < 1 ? 1 : (int)quota, quota < 1 ? 1 : (int)quota);
    }
    if (d->ranks > counted) {
        tutti__find(d, TUTTI__WARNING, "ranks",
                    "%d ranks would share %d core%s: correct, but slower than -n %d", d->ranks,
                    counted, counted == 1 ? "" : "s", counted);
        tutti__remedy(d, "-n %d", counted);
    }
}

/* Number of different texts in cpu<i>/topology/<file>; 0: unknown. */
static int count_distinct(const char *file)
{
    char seen[4096][32], path[128], text[32];
    int n = 0, cpus = (int)sysconf(_SC_NPROCESSORS_CONF);

    for (int cpu = 0; cpu < cpus && n < 4096; cpu++) {
        int i = 0;

        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, file);
        if (!tutti__slurp(path, text, sizeof text) || !*text)
            continue;
        while (i < n && strcmp(seen[i], text) != 0)
            i++;
        if (i == n)
            memcpy(seen[n++], text, sizeof text);
    }
    return n;
}

static int count_numa_nodes(void)
{
    DIR *dir = opendir("/sys/devices/system/node");
    struct dirent *entry;
    int n = 0;

    while (dir && (entry = readdir(dir)))
        n += strncmp(entry->d_name, "node", 4) == 0 && strspn(entry->d_name + 4, "0123456789") > 0;
    if (dir)
        closedir(dir);
    return n > 0 ? n : 1;
}

static const char *describe_pinning(bool pinned)
{
    const char *wish = tutti__env_text(TUTTI__ENV_PIN);

    if (strcmp(wish, "off") == 0)
        return "off (TUTTI_PIN)";
    return pinned ? "tutti train binds each rank to its share" : "the kernel schedules the ranks";
}

void tutti__check_nodes(tutti__doctor *d)
{
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN), nodes = count_numa_nodes();
    int physical = count_distinct("core_cpus_list"), sockets = count_distinct("package_cpus_list");
    int share = tutti__cores();
    bool pinned;

    if (physical > 0 && sockets > 0)
        tutti__find(d, TUTTI__FINE, "topology",
                    "%d socket%s, %d physical core%s, %s, %d NUMA node%s", sockets,
                    sockets == 1 ? "" : "s", physical, physical == 1 ? "" : "s",
                    physical < threads ? "SMT on (two threads share a core's arithmetic)"
                                       : "one thread per core (no SMT)",
                    nodes, nodes == 1 ? "" : "s");
    else
        tutti__find(d, TUTTI__NOTE, "topology", "not reported by the kernel; %d NUMA node%s", nodes,
                    nodes == 1 ? "" : "s");
    if (share < 2)
        return;
    /* the check's process ends anyway */
    pinned = tutti__cpu_pin(0, share < d->ranks ? share : d->ranks);
    if (pinned || nodes == 1) {
        tutti__find(d, pinned ? TUTTI__FINE : TUTTI__NOTE, "pinning", "%s",
                    describe_pinning(pinned));
        return;
    }
    tutti__find(d, TUTTI__WARNING, "pinning", "%s, over %d NUMA nodes", describe_pinning(pinned),
                nodes);
    tutti__remedy(d,
                  "install hwloc (libhwloc-dev) and build again, or start ranks through numactl");
}

/* ---- Vectors and kernels -------------------------------------------------------------------------------- */

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

/* The line "flags : ..." (x86) or "Features : ..." (arm) of the first processor. */
static bool read_flags(char *flags, size_t bytes)
{
    char line[8192];
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool found = false;

    while (file && !found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');

        found = colon && (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0);
        if (found) {
            colon[strcspn(colon, "\n")] = '\0';
            snprintf(flags, bytes, "%s", colon + 1 + (colon[1] == ' '));
        }
    }
    if (file)
        fclose(file);
    return found;
}

void tutti__check_vectors(tutti__doctor *d)
{
    static const char *const words[] = {"sse4_2",      "avx",      "avx2",        "fma",
                                        "f16c",        "avx512f",  "avx512_vnni", "avx512_bf16",
                                        "avx512_fp16", "amx_bf16", "asimd",       "asimdhp",
                                        "bf16",        "sve",      "sve2"};
    char flags[8192], have[256] = "";
    size_t used = 0;

    if (!read_flags(flags, sizeof flags)) {
        tutti__find(d, TUTTI__NOTE, "vector extensions", "not reported by /proc/cpuinfo");
        return;
    }
    for (size_t i = 0; i < TUTTI__COUNT_OF(words); i++)
        if (has_word(flags, words[i]) && used < sizeof have)
            used += (size_t)snprintf(have + used, sizeof have - used, "%s%s", used ? " " : "",
                                     words[i]);
#ifdef __x86_64__
    if (!has_word(flags, "avx2")) {
        tutti__find(d, TUTTI__WARNING, "vector extensions",
                    "no avx2 (there is: %s): Tutti's own loops run at a fraction of their speed",
                    have);
        tutti__remedy(d,
                      "in a virtual machine, pass the host's processor through (QEMU: -cpu host)");
        return;
    }
    tutti__find(d, TUTTI__FINE, "vector extensions", "%s; Tutti's own loops use %s", have,
                has_word(flags, "avx512f") ? "avx512f" : "avx2");
#else
    tutti__find(d, TUTTI__FINE, "vector extensions", "%s", have);
#endif
}

void tutti__check_kernels(tutti__doctor *d)
{
    tutti_ctx *cx = NULL;

    if (tutti_ctx_new(&cx, (tutti_device){TUTTI_CPU, 0}, NULL) != TUTTI_OK) {
        tutti__find(d, TUTTI__PROBLEM, "kernels", "%s", tutti_last_error());
        tutti__remedy(d, "correct or unset TUTTI_KERNELS and TUTTI_THREADS, or build again with "
                         "libdnnl-dev installed");
        return;
    }
    if (strncmp(tutti_ctx_kernels_name(cx), "reference", 9) == 0) {
        tutti__find(d, TUTTI__WARNING, "kernels",
                    "%s: plain C loops, which are many times slower than oneDNN",
                    tutti_ctx_kernels_name(cx));
        tutti__remedy(d, "%s",
                      strcmp(tutti__env_text(TUTTI__ENV_KERNELS), "reference") == 0
                          ? "unset TUTTI_KERNELS"
                          : "install oneDNN (libdnnl-dev) and build again");
    } else {
        tutti__find(d, TUTTI__FINE, "kernels", "%s, %d thread%s for a single rank",
                    tutti_ctx_kernels_name(cx), tutti_ctx_threads(cx),
                    tutti_ctx_threads(cx) == 1 ? "" : "s");
        if (tutti_ctx_threads(cx) > 1)
            tutti__find(d, TUTTI__NOTE, "ranks and threads",
                        "training is usually fastest with one rank per core (tutti train -n %d); "
                        "`tutti bench step -n RANKS --threads THREADS` compares",
                        tutti_ctx_threads(cx));
    }
    tutti_ctx_free(cx);
    tutti__find(d, TUTTI__NOTE, "optional parts", "this build has: %s", TUTTI_PARTS);
}

/* ---- Other processes ------------------------------------------------------------------------------------- */

typedef struct throttling {
    long long periods, throttled;
} throttling;

static void note_throttling(void *user, const char *text)
{
    throttling *t = user;
    const char *periods = strstr(text, "nr_periods "), *throttled = strstr(text, "nr_throttled ");
    long long n = throttled ? atoll(throttled + strlen("nr_throttled ")) : 0;

    if (n > t->throttled)
        *t = (throttling){periods ? atoll(periods + strlen("nr_periods ")) : 0, n};
}

void tutti__check_load(tutti__doctor *d)
{
    throttling t = {0};
    int cores = tutti__cores();
    double load;

    if (getloadavg(&load, 1) == 1)
        tutti__find(d, load > 1.5 * cores ? TUTTI__NOTE : TUTTI__FINE, "load",
                    "%.2f over the last minute, on %d core%s%s", load, cores, cores == 1 ? "" : "s",
                    load > 1.5 * cores
                        ? ": other programs are computing too, so measurements now say little"
                        : "");
    tutti__visit_cgroups("cpu.stat", "cpu", "cpu.stat", note_throttling, &t);
    if (t.throttled > 0)
        tutti__find(
            d, TUTTI__NOTE, "throttling",
            "the CPU quota throttled this cgroup in %lld of %lld periods since it was created",
            t.throttled, t.periods);
}

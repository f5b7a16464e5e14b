/* choose_isa.c -- the instruction set that oneDNN and our own vector kernels use, for the whole process.   SPDX-License-Identifier: MIT
 *
 * oneDNN accepts a limit only before it first queries the CPU. */
#include "tensor/kernel/onednn/onednn_state.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

typedef struct isa {
    const char *name; /* in TUTTI_CPU_ISA; NULL: cannot be chosen, only named when found */
    dnnl_cpu_isa_t isa;
    const char *found;
} isa;

/* The highest first. Those above avx512_core differ in 16 bit and 8 bit. */
static const isa isas[] = {
    {NULL, dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    {NULL, dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
    {NULL, dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
    {"avx512", dnnl_cpu_isa_avx512_core, "avx512"},
    {NULL, dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
    {"avx2", dnnl_cpu_isa_avx2, "avx2"},
    {NULL, dnnl_cpu_isa_avx, "avx"},
    {"sse41", dnnl_cpu_isa_sse41, "sse41"},
};

static tutti_status limit(const isa *i)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    dnnl_cpu_isa_t found;

    pthread_mutex_lock(&mutex);
    (void)dnnl_set_max_cpu_isa(i->isa); /* fails if it is too late: then what is found decides */
    found = dnnl_get_effective_cpu_isa();
    pthread_mutex_unlock(&mutex);
    if (found == i->isa)
        return TUTTI_OK;
    if ((found & i->isa) == i->isa)
        return tutti__fail(
            TUTTI_ERR_UNSUPPORTED,
            "TUTTI_CPU_ISA is %s, but oneDNN has been used with a higher instruction set before "
            "the first "
            "context, or was built without limits: set ONEDNN_MAX_CPU_ISA to that before the "
            "program starts, or choose kernels reference",
            i->name);
    return tutti__fail(
        TUTTI_ERR_UNSUPPORTED,
        "TUTTI_CPU_ISA is %s, and this CPU has %s at most: set it to that on all machines, "
        "or choose kernels reference there (TUTTI_KERNELS=reference), which need none",
        i->name, tutti__onednn_isa_name());
}

tutti_status tutti__onednn_isa_choose(void)
{
    static const char *const names[] = {"auto", "avx512", "avx2", "sse41"};
    const char *text = tutti__env_text(TUTTI__ENV_CPU_ISA);

    if (strcmp(text, "auto") == 0)
        return TUTTI_OK;
    for (size_t i = 0; i < TUTTI__COUNT_OF(isas); i++)
        if (isas[i].name && strcmp(text, isas[i].name) == 0)
            return limit(&isas[i]);
    return tutti__fail_choice("TUTTI_CPU_ISA", text, names, TUTTI__COUNT_OF(names));
}

/* The name on an arm64, which oneDNN does not report: its code there is for one SVE vector length each. NULL: another CPU. */
static const char *arm64_name(char *text, size_t size)
{
#if defined(__aarch64__) && defined(PR_SVE_GET_VL)
    const int length = prctl(PR_SVE_GET_VL, 0, 0, 0, 0);

    if (length < 0)
        return "neon";
    snprintf(text, size, "sve%d", (length & PR_SVE_VL_LEN_MASK) * 8);
    return text;
#else
    (void)size;
    (void)text;
    return NULL;
#endif
}

const char *tutti__onednn_isa_name(void)
{
    const dnnl_cpu_isa_t found = dnnl_get_effective_cpu_isa();
    static _Thread_local char number[32];
    const char *arm64 = arm64_name(number, sizeof number);

    if (arm64)
        return arm64;
    for (size_t i = 0; i < TUTTI__COUNT_OF(isas); i++)
        if (found == isas[i].isa)
            return isas[i].found;
    snprintf(number, sizeof number, "isa %x", (unsigned)found);
    return number;
}

bool tutti__onednn_has_bf16(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
}

const tutti__isa *tutti__onednn_isa(void)
{
    const dnnl_cpu_isa_t found = dnnl_get_effective_cpu_isa();

    if ((found & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx &&
        tutti__isa_may_use_amx())
        return tutti__isa_of("avx512_amx");
    return tutti__isa_of((found & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core ? "avx512"
                         : (found & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2             ? "avx2"
                                                                                        : "base");
}

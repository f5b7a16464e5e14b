/* nvtx.c -- replaces a profiler (Nsight): a library that NVTX loads by NVTX_INJECTION64_PATH, and which appends
 * "PROCESS THREAD + NAME" and "PROCESS THREAD -" to the file STANDIN_NVTX, as ranges begin and end.   SPDX-License-Identifier: MIT */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Appended in one write, so that lines of several threads and processes stay whole. */
static void say(const char *what)
{
    static _Thread_local char line[160];
    const char *path = getenv("STANDIN_NVTX");
    FILE *file = path ? fopen(path, "a") : NULL;

    if (!file)
        return;
    snprintf(line, sizeof line, "%ld %ld %.120s\n", (long)getpid(), (long)syscall(SYS_gettid),
             what);
    fputs(line, file);
    fclose(file);
}

static int NVTX_API push(const char *name)
{
    char text[128];

    snprintf(text, sizeof text, "+ %.120s", name);
    say(text);
    return 0;
}

static int NVTX_API pop(void)
{
    say("-");
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table)
{
    const NvtxExportTableCallbacks *callbacks = table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable functions;
    unsigned n;

    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &n) ||
        n <= NVTX_CBID_CORE_RangePop)
        return 0;
    *functions[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *functions[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}

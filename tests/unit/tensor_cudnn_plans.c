/* tensor_cudnn_plans.c -- the real cuDNN of this machine plans every convolution of a ResNet, for a GPU that need
 * not be present.   SPDX-License-Identifier: MIT
 *
 * The program restarts itself with the real module and, preloaded before cuDNN, a description of an H100 (standin/h100.c).
 * timeout: 120 */
#include "harness/standin.h"
#include "tensor/kernel/cuda/products.h"
#include <tutti/status.h>

#include <errno.h>

typedef struct shape {
    int64_t n, c, size, m;
    int kernel, stride, padding;
    int groups, dilation;
} shape;

static const shape shapes[] = {
    {128, 3, 32, 16, 3, 1, 1, 1, 1},   {128, 16, 32, 32, 3, 2, 1, 1, 1},
    {128, 16, 32, 32, 1, 2, 0, 1, 1},  {128, 64, 32, 64, 3, 1, 1, 1, 1},
    {512, 256, 8, 512, 3, 2, 1, 1, 1}, {32, 1, 8, 64, 3, 1, 1, 1, 1},
    {7, 5, 9, 3, 5, 1, 2, 1, 1},       {64, 3, 224, 64, 7, 2, 3, 1, 1},
    {64, 64, 56, 256, 1, 1, 0, 1, 1},  {1, 64, 4, 64, 3, 1, 1, 1, 1},
    {2, 2048, 7, 512, 1, 1, 0, 1, 1},  {3, 8, 1, 8, 3, 1, 1, 1, 1},
    {8, 96, 56, 96, 3, 1, 1, 96, 1},   {8, 96, 56, 96, 3, 2, 1, 96, 1},
    {8, 128, 56, 128, 3, 1, 1, 32, 1}, {8, 64, 28, 64, 3, 1, 2, 1, 2},
};

static size_t most; /* bytes of workspace asked for */

static void *workspace(void *arg, size_t bytes)
{
    most = bytes > most ? bytes : most;
    return arg;
}

static tutti__cuda_convolution describe(const shape *s, tutti_dtype dtype, int direction)
{
    const int64_t extent = (s->kernel - 1) * s->dilation + 1;
    const int64_t out = (s->size + 2 * s->padding - extent) / s->stride + 1;

    return (tutti__cuda_convolution){.direction = (tutti__cuda_direction)direction,
                                     .dtype = dtype,
                                     .x = {s->n, s->c, s->size, s->size},
                                     .w = {s->m, s->c / s->groups, s->kernel, s->kernel},
                                     .y = {s->n, s->m, out, out},
                                     .stride = {s->stride, s->stride},
                                     .padding = {s->padding, s->padding},
                                     .dilation = {s->dilation, s->dilation}};
}

static int plan_all(const tutti__cuda *module)
{
    static _Alignas(256) char memory[256]; /* nothing is executed */
    const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
    const tutti__cuda_products_options options = {
        .deterministic = true, .workspace = workspace, .arg = memory};
    int failures = 0, planned = 0;
    void *handle;

    if (module->products->open(&options, &handle) != TUTTI_OK)
        return 1;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int k = 0; k < 9; k++) {
            const tutti__cuda_convolution c = describe(&shapes[i], dtypes[k % 3], k / 3);

            if (module->products->convolution(handle, &c, memory, memory, memory) == TUTTI_OK) {
                planned++;
            } else if (planned == 0 && strstr(module->error(), "cudnnCreate")) {
                printf("skipped: this cuDNN does not plan without a GPU: %s\n", module->error());
                return 77;
            } else {
                printf("FAILED: shape %zu, dtype %d, direction %d: %s\n", i, (int)c.dtype,
                       (int)c.direction, module->error());
                failures++;
            }
        }
    }
    module->products->close(handle);
    printf("%d plans, with workspaces of up to %zu bytes\n", planned, most);
    return failures > 0;
}

int main(int argc, char **argv)
{
    char module_path[4096];
    const char *path = built("lib/tutti/libtutti_cuda.so");
    void *library;

    snprintf(module_path, sizeof module_path, "%s", path ? path : "");
    path = built("tests/standin/libstandin_h100.so");
    if (!path || !*module_path) {
        printf("skipped: this build has no CUDA module\n");
        return 77;
    }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skipped: a sanitizer wants to be loaded before anything else\n");
    return 77;
#endif
    if (argc == 1) {
        setenv("LD_PRELOAD", path, 1);
        execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        printf("FAILED: cannot start again: %s\n", strerror(errno));
        return 1;
    }
    library = dlopen(module_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("FAILED: %s\n", dlerror());
        return 1;
    }
    return plan_all(dlsym(library, TUTTI__CUDA_SYMBOL));
}

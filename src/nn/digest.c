/* digest.c -- a module's parameters and buffers as a digest of 32 digits.   SPDX-License-Identifier: MIT
 *
 * In name order, so that the order of construction does not matter; over raw row-major bytes, so that equal digests mean
 * equal bits. */
#include "nn/nn.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    const tutti_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static tutti_status add(tutti__hash128_state *hash, tutti_tensor *t)
{
    void *p = tutti__alloc(tutti__tensor_bytes(t));
    tutti_status status = p ? tutti_tensor_read(t, p) : TUTTI_ERR_MEMORY;

    if (status == TUTTI_OK)
        tutti__hash128_add(hash, p, tutti__tensor_bytes(t));
    free(p);
    return status;
}

void tutti_module_digest(const tutti_module *m, char digest[33])
{
    size_t n = tutti_module_n_state(m);
    tutti_tensor **sorted = tutti__alloc((n + 1) * sizeof(tutti_tensor *));
    tutti__hash128_state *hash = tutti__hash128_new();
    bool good = m && sorted && hash;

    for (size_t i = 0; i < n && good; i++)
        sorted[i] = tutti_module_state(m, i);
    if (good)
        qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 0; i < n && good; i++)
        good = add(hash, sorted[i]) == TUTTI_OK;
    if (hash)
        tutti__hash128_end(hash, digest);
    if (!good) /* no module or memory, or the device failed: cannot be mistaken for a digest */
        strcpy(digest, "");
    free(sorted);
}

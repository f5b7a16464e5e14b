/* read_part.c -- a rank's part of a file's tensor.   SPDX-License-Identifier: MIT */
#include "checkpoint/read_part.h"

#include <stdlib.h>

tutti_status tutti__read_part(tutti__weights *file, size_t k, const tutti_tensor *t, bool whole,
                              void *dst)
{
    const tutti_shape shape = tutti__weights_at(file, k)->shape;
    const tutti__parameter_split box =
        whole ? (tutti__parameter_split){.count = 0} : tutti__box_of(t);
    const tutti_shape of = tutti__whole_shape(t);
    const size_t each = tutti_dtype_size(t->dtype);
    tutti_status status;
    void *all;

    if (box.count == 0 && tutti_shape_equal(shape, of))
        return tutti__weights_read_as(file, k, t->dtype, dst);
    all = tutti__alloc((size_t)tutti_shape_count(shape) * each);
    if (!all)
        return TUTTI_ERR_MEMORY;
    status = tutti__weights_read_as(file, k, t->dtype, all);
    if (status == TUTTI_OK)
        tutti__box_pick(&box, of, each, 0, tutti__box_count(&box, of), all, dst);
    free(all);
    return status;
}

/* no_png.c -- replaces png.c in a build without libpng.   SPDX-License-Identifier: MIT */
#include "data/image/image.h"

tutti_status tutti__png_decode(tutti__image *image)
{
    return tutti__fail(
        TUTTI_ERR_UNSUPPORTED,
        "%s: this build cannot read PNG; install libpng's headers (libpng-dev) and configure again",
        image->path);
}

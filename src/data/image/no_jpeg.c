/* no_jpeg.c -- replaces jpeg.c in a build without libjpeg.   SPDX-License-Identifier: MIT */
#include "data/image/image.h"

tutti_status tutti__jpeg_decode(tutti__image *image)
{
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       "%s: this build cannot read JPEG; install libjpeg's headers (libjpeg-dev) "
                       "and configure again",
                       image->path);
}

/* strict_device.h -- opens the strict device's memory for access.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DEVICE_STRICT_STRICT_DEVICE_H
#define TUTTI_DEVICE_STRICT_STRICT_DEVICE_H

#include "device/device.h"

/* Between these, all of the device's memory can be read and written, by every thread of the process; they nest. */
void tutti__strict_open(void);
void tutti__strict_close(void);

#endif

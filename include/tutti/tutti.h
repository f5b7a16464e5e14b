/* tutti.h -- all of Tutti's public headers, in reading order.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <tutti/status.h>
#include <tutti/device.h>
#include <tutti/store.h>
#include <tutti/group.h>
#include <tutti/call.h>
#include <tutti/mesh.h>
#include <tutti/reducer.h>
#include <tutti/elastic.h>
#include <tutti/tensor.h>
#include <tutti/op.h>
#include <tutti/autograd.h>
#include <tutti/nn.h>
#include <tutti/optim.h>
#include <tutti/amp.h>
#include <tutti/ddp.h>
#include <tutti/pipeline.h>
#include <tutti/tokenizer.h>
#include <tutti/data.h>
#include <tutti/checkpoint.h>
#include <tutti/trainer.h>

#endif

/* planned_engine.h -- what a group for planning would have sent.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ENGINE_PLANNED_ENGINE_H
#define TUTTI_COMM_ENGINE_PLANNED_ENGINE_H

#include "comm/comm.h"
#include "comm/engine/engine.h"

tutti_status tutti__engine_planned(tutti__engine **engine_p, tutti__comm *comm);
tutti__planned_calls *tutti__engine_planned_calls(tutti__engine *engine);

#endif

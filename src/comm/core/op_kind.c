/* op_kind.c -- the table of operations.   SPDX-License-Identifier: MIT */
#include "comm/core/op_kind.h"

const tutti__op_traits tutti__op_table[TUTTI__N_OPS] = {
    [TUTTI__OP_ALL_REDUCE] = {.name = "all_reduce", .reduces = true},
    [TUTTI__OP_REDUCE] = {.name = "reduce", .reduces = true, .to_root = true},
    [TUTTI__OP_REDUCE_SCATTER] = {.name = "reduce_scatter", .reduces = true, .scatters = true},
    [TUTTI__OP_BROADCAST] = {.name = "broadcast", .from_root = true},
    [TUTTI__OP_SCATTER] = {.name = "scatter", .from_root = true, .scatters = true},
    [TUTTI__OP_GATHER] = {.name = "gather", .to_root = true, .gathers = true},
    [TUTTI__OP_ALL_GATHER] = {.name = "all_gather", .gathers = true},
    [TUTTI__OP_ALL_GATHER_V] = {.name = "all_gather_v", .gathers = true, .uneven = true},
    [TUTTI__OP_ALL_TO_ALL] = {.name = "all_to_all", .scatters = true, .gathers = true},
    [TUTTI__OP_ALL_TO_ALL_V] = {.name = "all_to_all_v",
                                .scatters = true,
                                .gathers = true,
                                .uneven = true},
    [TUTTI__OP_BARRIER] = {.name = "barrier"},
    [TUTTI__OP_ALLOC] = {.name = "alloc"},
    [TUTTI__OP_SEND] = {.name = "send"},
    [TUTTI__OP_RECV] = {.name = "recv"},
    [TUTTI__OP_COMPARE_AND_SWAP] = {.name = "exchange_word"},
};

const char *tutti__op_name(tutti__op_kind kind)
{
    return (unsigned)kind < TUTTI__N_OPS ? tutti__op_table[kind].name : "?";
}

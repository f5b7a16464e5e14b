/* isa_table.c -- the table of this instruction set.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/vector/isa/vector.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

extern const tutti__runs TUTTI__OF_ISA(tutti__runs);
extern const tutti__isa TUTTI__OF_ISA(tutti__isa);

#define TABLE(text, half)                                                                          \
    {                                                                                              \
        .name = text, .multiply_half_work = tutti__multiply_half_work, .multiply_half = half,      \
        .lanes = TUTTI__LANES, .runs = &TUTTI__OF_ISA(tutti__runs),                                \
        .multiply_work = tutti__multiply_work, .multiply = tutti__multiply,                        \
        .attention_work = tutti__attention_work, .attention_forward = tutti__attention_forward,    \
        .attention_backward = tutti__attention_backward,                                           \
        .half_attention_work = tutti__half_attention_work,                                         \
        .half_attention_forward = tutti__half_attention_forward,                                   \
        .half_attention_backward = tutti__half_attention_backward,                                 \
        .winograd_work = tutti__winograd_work, .winograd_forward = tutti__winograd_forward,        \
        .winograd_data = tutti__winograd_data, .winograd_weights = tutti__winograd_weights,        \
    }

const tutti__isa TUTTI__OF_ISA(tutti__isa) = TABLE(TEXT(TUTTI__ISA), tutti__multiply_half);

#if defined TUTTI__HAS_AMX && TUTTI__LANES == 16
extern const tutti__isa tutti__isa_avx512_amx;
const tutti__isa tutti__isa_avx512_amx = TABLE("avx512_amx", tutti__multiply_half_amx);
#endif

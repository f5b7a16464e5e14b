/* isa_table.c -- the table of this instruction set.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/vector/isa/vector.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

extern const tutti__runs TUTTI__OF_ISA(tutti__runs);
extern const tutti__isa TUTTI__OF_ISA(tutti__isa);

/* What the two tables of AVX-512 have in common, then what they do not. */
#define TABLE(text, ...)                                                                           \
    {                                                                                              \
        .name = text, .lanes = TUTTI__LANES, .runs = &TUTTI__OF_ISA(tutti__runs),                  \
        .multiply_work = tutti__multiply_work, .multiply = tutti__multiply,                        \
        .multiply_half_work = tutti__multiply_half_work, .attention_work = tutti__attention_work,  \
        .attention_forward = tutti__attention_forward,                                             \
        .attention_backward = tutti__attention_backward,                                           \
        .half_attention_work = tutti__half_attention_work, .winograd_work = tutti__winograd_work,  \
        .winograd_forward = tutti__winograd_forward, .winograd_data = tutti__winograd_data,        \
        .winograd_weights = tutti__winograd_weights, .max_pool_forward = tutti__max_pool_forward,  \
        .max_pool_backward = tutti__max_pool_backward, __VA_ARGS__                                 \
    }

const tutti__isa TUTTI__OF_ISA(tutti__isa) =
    TABLE(TEXT(TUTTI__ISA), .multiply_half = tutti__multiply_half,
          .half_attention_forward = tutti__half_attention_forward,
          .half_attention_backward = tutti__half_attention_backward);

#if W == 16 && defined TUTTI__HAS_AMX
extern const tutti__isa tutti__isa_avx512_amx;
const tutti__isa tutti__isa_avx512_amx =
    TABLE("avx512_amx", .multiply_half = tutti__multiply_half_amx,
          .half_attention_forward = tutti__half_attention_forward_amx,
          .half_attention_backward = tutti__half_attention_backward_amx);
#endif

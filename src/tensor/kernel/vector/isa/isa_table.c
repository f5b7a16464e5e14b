/* isa_table.c -- the table of this instruction set.   SPDX-License-Identifier: MIT */
#include "tensor/kernel/vector/isa/vector.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

extern const tutti__runs TUTTI__OF_ISA(tutti__runs);
extern const tutti__isa TUTTI__OF_ISA(tutti__isa);

const tutti__isa TUTTI__OF_ISA(tutti__isa) = {
    .name = TEXT(TUTTI__ISA),
    .lanes = TUTTI__LANES,
    .runs = &TUTTI__OF_ISA(tutti__runs),
    .multiply_work = tutti__multiply_work,
    .multiply = tutti__multiply,
    .multiply_half_work = tutti__multiply_half_work,
    .multiply_half = tutti__multiply_half,
    .attention_work = tutti__attention_work,
    .attention_forward = tutti__attention_forward,
    .attention_backward = tutti__attention_backward,
    .half_attention_work = tutti__half_attention_work,
    .half_attention_forward = tutti__half_attention_forward,
    .half_attention_backward = tutti__half_attention_backward,
    .winograd_work = tutti__winograd_work,
    .winograd_forward = tutti__winograd_forward,
    .winograd_data = tutti__winograd_data,
    .winograd_weights = tutti__winograd_weights,
};

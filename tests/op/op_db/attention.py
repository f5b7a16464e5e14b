"""Attention: see ../torch_op_db.py.   SPDX-License-Identifier: MIT"""
import ctypes

from torch_op_db import Left, op
from tutti_structs import AttentionOpts


# The scores of samples are in the hundreds: rounding them changes gradients by as much.
@op("nn.functional.scaled_dot_product_attention", tolerance=20)
def attention(t, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        raise Left("dropout, whose random numbers are not PyTorch's")
    opts = AttentionOpts(attn_mask=attn_mask.p if attn_mask else None, scale=scale or 0.0, is_causal=is_causal, enable_gqa=enable_gqa)
    return t.tutti_scaled_dot_product_attention(q, k, v, ctypes.byref(opts))

"""The structs of tutti's headers that Python programs here pass, for ctypes.   SPDX-License-Identifier: MIT"""
import ctypes

MAX_DIMS = 6
I64, P = ctypes.c_int64, ctypes.c_void_p
INT, F32, BOOL, U64 = ctypes.c_int, ctypes.c_float, ctypes.c_bool, ctypes.c_uint64


class Shape(ctypes.Structure):
    _fields_ = [("n", INT), ("d", I64 * MAX_DIMS)]


class Dims(ctypes.Structure):
    _fields_ = [("n", INT), ("d", INT * MAX_DIMS)]


class Array(ctypes.Structure):
    _fields_ = [("p", P), ("shape", Shape), ("dtype", INT)]


class Device(ctypes.Structure):
    _fields_ = [("kind", INT), ("index", INT)]


class CtxOpts(ctypes.Structure):
    _fields_ = [("seed", U64), ("shard", U64), ("threads", INT), ("kernels", INT), ("nondeterministic", BOOL), ("reserved", U64 * 3)]


class StepOpts(ctypes.Structure):
    _fields_ = [("eval", BOOL), ("no_grad", BOOL), ("autocast", INT), ("reserved", U64 * 4)]


class ModelOpts(ctypes.Structure):
    _fields_ = [("channels", I64), ("height", I64), ("width", I64), ("classes", I64), ("dropout", ctypes.c_double), ("kind", P),
                ("layers", INT), ("hidden", INT), ("heads", INT), ("patch", INT), ("recompute", BOOL), ("context", INT),
                ("llama", P), ("parallel", P), ("parallel_tokens", BOOL), ("reserved", U64)]


class RopeOpts(ctypes.Structure):
    _fields_ = [("theta", ctypes.c_double), ("position", I64), ("scaling", INT), ("factor", ctypes.c_double), ("low_freq_factor", ctypes.c_double),
                ("high_freq_factor", ctypes.c_double), ("original_context", I64), ("reserved", U64 * 4)]


class LlamaOpts(ctypes.Structure):
    _fields_ = [("ffn_width", INT), ("kv_heads", INT), ("tie_embeddings", BOOL), ("norm_eps", F32), ("rope", RopeOpts), ("reserved", U64 * 4)]


class SgdOpts(ctypes.Structure):
    _fields_ = [("lr", F32), ("momentum", F32), ("dampening", F32), ("weight_decay", F32), ("nesterov", BOOL), ("reserved", U64 * 4)]


class AdamOpts(ctypes.Structure):
    _fields_ = [("lr", F32), ("beta1", F32), ("beta2", F32), ("eps", F32), ("weight_decay", F32), ("reserved", U64 * 4)]


class AttentionOpts(ctypes.Structure):
    _fields_ = [("attn_mask", P), ("dropout_p", F32), ("scale", F32), ("is_causal", BOOL), ("causal_lower_right", BOOL),
                ("enable_gqa", BOOL), ("kv_heads", INT), ("first_head", INT), ("all_heads", INT), ("reserved", U64 * 3)]


def shape_of(sizes):
    return Shape(len(sizes), (I64 * MAX_DIMS)(*sizes))


def dtypes_of(library):
    """The values of tutti_dtype by name, b"F32"."""
    library.tutti_dtype_name.restype = ctypes.c_char_p
    return {library.tutti_dtype_name(i): i for i in range(40)}

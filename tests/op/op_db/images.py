"""Adaptors of convolutions, pools and resizing: see ../torch_op_db.py.   SPDX-License-Identifier: MIT"""
from torch_op_db import Left, ctypes, op

CONV = {name: ctypes.c_int for name in ("stride", "padding", "groups", "dilation", "stride_w", "padding_w", "dilation_w")}
CONV |= {"same": ctypes.c_bool, "reserved": ctypes.c_uint64}
TRANSPOSED = {name: ctypes.c_int for name in ("stride", "padding", "output_padding", "groups", "dilation")}
TRANSPOSED |= {name: ctypes.c_int for name in ("stride_w", "padding_w", "output_padding_w", "dilation_w")}
TRANSPOSED |= {"reserved": ctypes.c_uint64 * 4}
POOL = {name: ctypes.c_int for name in ("kernel", "stride", "padding", "unnamed", "kernel_w", "stride_w", "padding_w")}
POOL |= {"dilation": ctypes.c_int16, "dilation_w": ctypes.c_int16, "divisor": ctypes.c_int}
POOL |= {"ceil_mode": ctypes.c_bool, "exclude_padding": ctypes.c_bool, "reserved": ctypes.c_uint64}
RESIZE = {"height": ctypes.c_int64, "width": ctypes.c_int64, "scale_h": ctypes.c_double, "scale_w": ctypes.c_double}
RESIZE |= {"mode": ctypes.c_int, "align_corners": ctypes.c_bool, "reserved": ctypes.c_uint64 * 4}


def options(dims, **given):
    """int options of rows, and of columns if these are given and differ."""
    values = {}
    for name, value in given.items():
        pair = (value,) if isinstance(value, int) else tuple(value)
        values[name] = pair[0]
        if dims == 2 and len(pair) == 2 and pair[1] != pair[0]:
            values[name + "_w"] = pair[1] or -1
    return values


def sizes_of(t, y):
    t.library.tutti_tensor_shape.restype = type(t.shape([1]))
    t.must(t.library.tutti_tensor_status(ctypes.c_void_p(y.p)))
    s = t.library.tutti_tensor_shape(ctypes.c_void_p(y.p))
    return [s.d[i] for i in range(s.n)]


def batched(t, x, dims, run):
    """run(x), with a batch of one if x has none."""
    if x.dim() == dims + 2:
        return run(x)
    y = run(t.tutti_reshape(x, t.shape([1, *x.shape])))
    return t.tutti_reshape(y, t.shape(sizes_of(t, y)[1:]))


def conv(dims):
    def run(t, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        values = options(dims, stride=stride, padding=0 if isinstance(padding, str) else padding, dilation=dilation)
        opts = t.struct(CONV, groups=groups, same=padding == "same", **values)
        function = getattr(t, f"tutti_functional_conv{dims}d")
        return batched(t, x, dims, lambda x: function(x, weight, bias if bias is not None else ctypes.c_void_p(), opts))

    return run


def conv_transpose(dims):
    def run(t, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        values = options(dims, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation)
        opts = t.struct(TRANSPOSED, groups=groups, **values)
        function = getattr(t, f"tutti_functional_conv_transpose{dims}d")
        return batched(t, x, dims, lambda x: function(x, weight, bias if bias is not None else ctypes.c_void_p(), opts))

    return run


def max_pool(dims):
    def run(t, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        values = options(dims, kernel=kernel_size, stride=stride or 0, padding=padding, dilation=dilation)
        opts = t.struct(POOL, ceil_mode=ceil_mode, **values)
        return batched(t, x, dims, lambda x: getattr(t, f"tutti_max_pool{dims}d")(x, opts))

    return run


def avg_pool(dims):
    def run(t, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        values = options(dims, kernel=kernel_size, stride=stride or 0, padding=padding)
        opts = t.struct(POOL, ceil_mode=ceil_mode, exclude_padding=not count_include_pad, divisor=divisor_override or 0, **values)
        return batched(t, x, dims, lambda x: getattr(t, f"tutti_avg_pool{dims}d")(x, opts))

    return run


for n in (1, 2):
    op(f"nn.functional.conv{n}d")(conv(n))
    op(f"nn.functional.conv_transpose{n}d")(conv_transpose(n))
    op(f"nn.functional.max_pool{n}d")(max_pool(n))
    op(f"nn.functional.avg_pool{n}d")(avg_pool(n))


def adaptive(t, x, size, function):
    height, width = (size, size) if isinstance(size, int) else size
    return batched(t, x, 2, lambda x: function(x, t.i64(height or 0), t.i64(width or 0)))


@op("nn.functional.adaptive_avg_pool2d")
def adaptive_avg_pool2d(t, x, output_size):
    return adaptive(t, x, output_size, t.tutti_adaptive_avg_pool2d)


@op("nn.functional.adaptive_max_pool2d")
def adaptive_max_pool2d(t, x, output_size, return_indices=False):
    return adaptive(t, x, output_size, t.tutti_adaptive_max_pool2d)


@op("nn.functional.adaptive_avg_pool1d")
def adaptive_avg_pool1d(t, x, output_size):
    size = output_size if isinstance(output_size, int) else output_size[0]
    return batched(t, x, 1, lambda x: t.tutti_adaptive_avg_pool1d(x, t.i64(size)))


@op("nn.functional.adaptive_max_pool1d")
def adaptive_max_pool1d(t, x, output_size, return_indices=False):
    size = output_size if isinstance(output_size, int) else output_size[0]
    return batched(t, x, 1, lambda x: t.tutti_adaptive_max_pool1d(x, t.i64(size)))


MODES = {"nearest": 0, "nearest-exact": 1, "bilinear": 2, "linear": 2}


def resize(t, x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    spatial = x.dim() - 2
    if spatial > 2:
        raise Left("images of three dimensions")
    if antialias:
        raise Left("antialias")

    def both(v):
        v = [v] * spatial if isinstance(v, (int, float)) else list(v)
        return [1] * (2 - spatial) + v

    if size is None and (recompute_scale_factor or mode == "area"):
        factors = [scale_factor] * spatial if isinstance(scale_factor, (int, float)) else scale_factor
        size = [int(n * float(f)) for n, f in zip(x.shape[2:], factors)]
    values = {}
    if size is not None:
        values["height"], values["width"] = both(size)
    else:
        values["scale_h"], values["scale_w"] = both(scale_factor)
    images = x if spatial == 2 else t.tutti_reshape(x, t.shape([x.shape[0], x.shape[1], 1, x.shape[2]]))
    if mode == "area":
        height, width = values["height"], values["width"]
        y = t.tutti_adaptive_avg_pool2d(images, t.i64(height), t.i64(width))
    else:
        y = t.tutti_interpolate(images, t.struct(RESIZE, mode=MODES[mode], align_corners=bool(align_corners), **values))
    sizes = sizes_of(t, y)
    return y if spatial == 2 else t.tutti_reshape(y, t.shape([sizes[0], sizes[1], sizes[3]]))


for variant in ("nearest", "nearest-exact", "linear", "bilinear", "area"):
    op("nn.functional.interpolate", variant)(resize)


@op("nn.functional.upsample_nearest")
def upsample_nearest(t, x, size=None, scale_factor=None):
    return resize(t, x, size, scale_factor)


@op("nn.functional.upsample_bilinear")
def upsample_bilinear(t, x, size=None, scale_factor=None):
    return resize(t, x, size, scale_factor, "bilinear", align_corners=True)

"""Small convolutions of many clients at once, by Triton kernels: no patch is written to memory.

    y[k, b, o, i, j] = bias[k, o] + Σ_{c,u,v} w[k, o, c, u, v] · x[k, b, c, s·i + u - p, s·j + v - q]

for client k, image b, stride s and paddings p and q; then, where a layer is ``pooled``, the largest
value of each 2x2 window, and ReLU.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fednb.gpu.kernels import ForAllClients, compiled, rows

ENOUGH = 264  # programs that keep a large GPU busy: two for each multiprocessor
MAX_CHANNELS = 64  # in and out; with more, products of matrices are faster
MAX_KERNEL = 49  # weights of a channel
SUMS = 150  # of gradients of weights that a thread keeps
LANES = 32  # threads that share out the pixels of these sums: a warp


@triton.jit
def _pixel(m, SH, SW, PH, PW, QH, QW, POOL):
    """Of the m-th pixel of a convolution, window by window: its image, its place in the result and in
    its window, and the row and column of x at which its patch begins.
    """
    q = m // (POOL * POOL)  # the pixel of the result
    position = m % (POOL * POOL)
    image = q // (QH * QW)
    r = q % (QH * QW)
    i = (r // QW * POOL + position // POOL) * SH - PH
    j = (r % QW * POOL + position % POOL) * SW - PW
    return image, r, position, i, j


@compiled
def _forward(
    x, w, bias, y, code, x_k, w_k, bias_k, n,
    XB: tl.constexpr, XC: tl.constexpr, XH: tl.constexpr, XW: tl.constexpr,
    C: tl.constexpr, O: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, QH: tl.constexpr, QW: tl.constexpr,
    WO: tl.constexpr, WC: tl.constexpr, FLIP: tl.constexpr,
    POOL: tl.constexpr, BIAS: tl.constexpr, OB: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """y, of P pixels of the convolution (window by window) and OB channels; n: pixels in all."""
    k = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * P + tl.arange(0, P)
    live = m < n
    image, r, _, i, j = _pixel(m, SH, SW, PH, PW, QH, QW, POOL)
    pixel = x + k * x_k + image * XB + i * XH + j * XW
    o = tl.program_id(1) * OB + tl.arange(0, OB)
    is_channel = o < O
    filters = w + k * w_k + o * WO
    acc = tl.zeros((OB, P), tl.float32)
    if BIAS:
        acc += tl.load(bias + k * bias_k + o, mask=is_channel, other=0.0).to(tl.float32)[:, None]
    for c in range(C):
        for u in tl.static_range(R):
            for v in tl.static_range(S):
                inside = live
                if PH + PW > 0:
                    inside = live & (i + u >= 0) & (i + u < H) & (j + v >= 0) & (j + v < W)
                value = tl.load(pixel + (c * XC + u * XH + v * XW), mask=inside, other=0.0)
                tap = u * S + v
                if FLIP:
                    tap = R * S - 1 - tap
                weight = tl.load(filters + (c * WC + tap), mask=is_channel, other=0.0)
                acc += weight.to(tl.float32)[:, None] * value.to(tl.float32)[None, :]
    out = k * (O * (n // (POOL * POOL)))
    if POOL == 1:
        at = out + image[None, :] * (O * QH * QW) + o[:, None] * (QH * QW) + r[None, :]
        tl.store(y + at, acc.to(y.dtype.element_ty), mask=is_channel[:, None] & live[None, :])
    else:
        windows = tl.reshape(acc, (OB, P // (POOL * POOL), POOL * POOL))
        largest, which = tl.max(windows, 2, return_indices=True)
        q = tl.program_id(0) * (P // (POOL * POOL)) + tl.arange(0, P // (POOL * POOL))
        r = q % (QH * QW)
        at = out + (q // (QH * QW))[None, :] * (O * QH * QW) + o[:, None] * (QH * QW) + r[None, :]
        mask = is_channel[:, None] & (q < n // (POOL * POOL))[None, :]
        # NaN stays NaN
        tl.store(y + at, tl.where(largest < 0, 0.0, largest).to(y.dtype.element_ty), mask=mask)
        tl.store(code + at, tl.where(largest > 0, which, POOL * POOL).to(tl.uint8), mask=mask)


@compiled
def _weight_gradient(
    x, dy, code, parts, x_k, n, chunk, splits,
    XB: tl.constexpr, XC: tl.constexpr, XH: tl.constexpr, XW: tl.constexpr,
    C: tl.constexpr, O: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, QH: tl.constexpr, QW: tl.constexpr,
    POOL: tl.constexpr, OB: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """A part of the gradients of weights, [O · C · R · S], and after them of the bias, [O].

    That of OB channels of y and one of x, and of the ``split``-th chunk of the n pixels of the
    convolution. A thread keeps OB · R · S sums over its own pixels; all threads add in the end.
    """
    k = tl.program_id(2).to(tl.int64)
    split = tl.program_id(1)
    c = tl.program_id(0) % C
    first = tl.program_id(0) // C * OB
    out = k * (O * (n // (POOL * POOL))) + first * (QH * QW)
    acc = (tl.zeros((P,), tl.float32),) * (OB * R * S)
    of_bias = (tl.zeros((P,), tl.float32),) * OB
    for start in range(split * chunk, min(split * chunk + chunk, n), P):
        m = start + tl.arange(0, P)
        live = m < n
        image, r, position, i, j = _pixel(m, SH, SW, PH, PW, QH, QW, POOL)
        pixel = x + k * x_k + c * XC + image * XB + i * XH + j * XW
        at = out + image * (O * QH * QW) + r
        values = ()
        for u in tl.static_range(R):
            for v in tl.static_range(S):
                inside = live
                if PH + PW > 0:
                    inside = live & (i + u >= 0) & (i + u < H) & (j + v >= 0) & (j + v < W)
                value = tl.load(pixel + (u * XH + v * XW), mask=inside, other=0.0)
                values += (value.to(tl.float32),)
        sums = ()
        sums_of_bias = ()
        for o in tl.static_range(OB):
            mask = live & (first + o < O)
            d = tl.load(dy + at + o * (QH * QW), mask=mask, other=0.0).to(tl.float32)
            if POOL > 1:
                chosen = tl.load(code + at + o * (QH * QW), mask=mask, other=POOL * POOL)
                d = tl.where(chosen == position, d, 0.0)
            sums_of_bias += (of_bias[o] + d,)
            for tap in tl.static_range(R * S):
                sums += (acc[o * (R * S) + tap] + d * values[tap],)
        acc = sums
        of_bias = sums_of_bias
    for o in tl.static_range(OB):
        if first + o < O:
            part = parts + (k * splits + split) * (O * (C * R * S + 1))
            at = ((first + o) * C + c) * (R * S)
            for tap in tl.static_range(R * S):
                tl.store(part + at + tap, tl.sum(acc[o * (R * S) + tap], 0))
            if c == 0:  # all channels of x have the same: one of them writes it
                tl.store(part + O * C * R * S + first + o, tl.sum(of_bias[o], 0))


@compiled
def _spread(
    dy, code, out, n,
    R: tl.constexpr, S: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr, QH: tl.constexpr, QW: tl.constexpr,
    EH: tl.constexpr, EW: tl.constexpr, POOL: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """dy [planes, QH, QW] laid out for the gradient of x: [planes, EH, EW], with n numbers.

    The convolution's gradient, whose pixels are a stride apart, in a frame of R - 1 - padding rows
    and S - 1 - padding columns of zeros.
    """
    e = tl.program_id(0).to(tl.int64) * P + tl.arange(0, P)
    r = (e % (EH * EW)).to(tl.int32)
    i = r // EW - (R - 1 - PH)
    j = r % EW - (S - 1 - PW)
    inside = (e < n) & (i >= 0) & (i < QH * POOL * SH) & (j >= 0) & (j < QW * POOL * SW)
    inside = inside & (i % SH == 0) & (j % SW == 0)
    i = i // SH
    j = j // SW
    at = e // (EH * EW) * (QH * QW) + i // POOL * QW + j // POOL
    d = tl.load(dy + at, mask=inside, other=0.0)
    if POOL > 1:
        chosen = tl.load(code + at, mask=inside, other=POOL * POOL)
        d = tl.where(chosen == i % POOL * POOL + j % POOL, d, 0.0)
    tl.store(out + e, d, mask=e < n)


class Layer(NamedTuple):
    """What a convolution is beside its numbers; ``pooled``: the maxima of 2x2 windows, and ReLU."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    pooled: bool

    def constants(self, x: Tensor, w: Tensor) -> dict[str, int]:
        """Return what kernels are compiled for, given x [k, B, C, H, W] and w [k, O, C, R, S]."""
        pool = 2 if self.pooled else 1
        sides = []
        for dim in (0, 1):
            reach = x.shape[3 + dim] + 2 * self.padding[dim] - w.shape[3 + dim]
            sides.append((reach // self.stride[dim] + 1) // pool)
        names = "XB XC XH XW C H W O R S SH SW PH PW QH QW POOL".split()
        shape = (*x.shape[2:], w.shape[1], *w.shape[3:])
        values = (*x.stride()[1:], *shape, *self.stride, *self.padding, *sides, pool)
        return dict(zip(names, values, strict=True))


class Convolution(torch.autograd.Function):
    """x [k, B, C, H, W], w [k, O, C, R, S], bias [k, O] or None, all of one dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, layer: Layer) -> Tensor:
        w = rows(w)
        bias = None if bias is None else rows(bias)
        shape = layer.constants(x, w)
        y = x.new_empty(*x.shape[:2], shape["O"], shape["QH"], shape["QW"])
        code = torch.empty_like(y, dtype=torch.uint8) if layer.pooled else y
        multiply(x, w, bias, y, code, layer)
        ctx.save_for_backward(x, w, code if layer.pooled else None)
        ctx.layer = layer
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, w, code = ctx.saved_tensors
        dy = dy.contiguous()
        code = dy if code is None else code
        needs_x, needs_w, needs_bias, _ = ctx.needs_input_grad
        dx = input_gradient(dy, code, x, w, ctx.layer) if needs_x else None
        dw = None
        db = None
        if needs_w or needs_bias:
            both = weight_gradient(dy, code, x, w, ctx.layer).to(w.dtype)
            dw = both[:, : w[0].numel()].unflatten(1, w.shape[1:]) if needs_w else None
            db = both[:, w[0].numel() :] if needs_bias else None
        return dx, dw, db, None


def multiply(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    y: Tensor,
    code: Tensor,
    layer: Layer,
    flip: bool = False,
) -> None:
    """Fill y [k, B, O, H', W'], and ``code``, by `_forward`; with ``flip``, by filters turned over."""
    constants = layer.constants(x, w)
    n = y[0, :, 0].numel() * constants["POOL"] ** 2
    given = w if bias is None else bias
    channels = min(8, triton.next_power_of_2(constants["O"]))
    blocks = triton.cdiv(constants["O"], channels)
    # few pixels a program, if there would not be enough programs of many
    many = triton.cdiv(n, 512) * blocks * len(x) >= ENOUGH
    pixels = 512 if many else 128
    _forward[(triton.cdiv(n, pixels), blocks, len(x))](
        x, w, given, y, code, x.stride(0), w.stride(0), given.stride(0), n,
        **constants, WO=w.stride(1), WC=w.stride(2), FLIP=flip, BIAS=bias is not None,
        OB=channels, P=pixels, num_warps=4,
    )  # fmt: skip


def weight_gradient(dy: Tensor, code: Tensor, x: Tensor, w: Tensor, layer: Layer) -> Tensor:
    """Return the gradients of the weights and, after them, of the bias: [k, O · C · R · S + O]."""
    constants = layer.constants(x, w)
    k = len(x)
    n = dy[0, :, 0].numel() * constants["POOL"] ** 2
    # so many sums fit into the registers of a thread; channels are shared out evenly
    channels = max(1, SUMS // w[0, 0, 0].numel())
    channels = triton.cdiv(constants["O"], triton.cdiv(constants["O"], channels))
    blocks = triton.cdiv(constants["O"], channels) * constants["C"]
    # the pixels are split, so that one client has programs enough too
    chunk = triton.cdiv(n * blocks * k, 8 * ENOUGH)
    chunk = triton.cdiv(min(max(chunk, 256), 1024), LANES) * LANES
    splits = triton.cdiv(n, chunk)
    parts = x.new_empty(k, splits, w[0].numel() + constants["O"], dtype=torch.float32)
    _weight_gradient[(blocks, splits, k)](
        x, dy, code, parts, x.stride(0), n, chunk, splits, **constants,
        OB=channels, P=LANES, num_warps=1,
    )  # fmt: skip
    return parts.sum(1)


def input_gradient(dy: Tensor, code: Tensor, x: Tensor, w: Tensor, layer: Layer) -> Tensor:
    """Return the gradient of x, [k, B, C, H, W]: dy's pixels convolved by filters turned over."""
    shape = layer.constants(x, w)
    sides = {"EH": shape["H"] + shape["R"] - 1, "EW": shape["W"] + shape["S"] - 1}
    spread = dy.new_empty(*dy.shape[:3], *sides.values())
    same = {name: shape[name] for name in "R S SH SW PH PW QH QW POOL".split()}
    _spread[(triton.cdiv(spread.numel(), 1024),)](
        dy, code, spread, spread.numel(), **same, **sides, P=1024, num_warps=4
    )
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    multiply(spread, w.transpose(1, 2), None, dx, dx, Layer((1, 1), (0, 0), False), flip=True)
    return dx


def convolution(x: Tensor, w: Tensor, bias: Tensor | None, layer: Layer) -> Tensor | None:
    """Convolve a client's x [B, C, H, W] by w [O, C, R, S] and bias [O], under `torch.vmap`.

    Return [B, O, H', W'], or None if no kernel fits.
    """
    small = max(w.shape[:2]) <= MAX_CHANNELS and w.shape[2] * w.shape[3] <= MAX_KERNEL
    if not small or x.ndim != 4 or not x.dtype == w.dtype == torch.float32:
        return None
    return ForAllClients.apply(Convolution, x, w, bias, layer)

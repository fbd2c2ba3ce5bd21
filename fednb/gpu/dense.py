"""Linear layers, cross entropy, vectors of length 1 and batches of many clients, by Triton kernels.

Each is one kernel, and so is its gradient: a step of small networks takes as long as it has kernels.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fednb.batches import Images
from fednb.gpu.kernels import ForAllClients, block, compiled, power, rows

BLOCK = 32  # rows and columns of a product that a program makes
LARGEST = 16384  # numbers of a client's logits, or of a few vectors, that a program holds at once


@compiled
def _linear(
    x, w, bias, y, x_k, w_k, bias_k, B,
    I: tl.constexpr, O: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    """N rows and columns of y [B, O] = x [B, I] · w [O, I]ᵀ + bias [O], and ReLU."""
    k = tl.program_id(2).to(tl.int64)
    b = tl.program_id(0) * N + tl.arange(0, N)
    o = tl.program_id(1) * N + tl.arange(0, N)
    acc = tl.zeros((N, N), tl.float32)
    for start in range(0, I, N):
        i = start + tl.arange(0, N)
        value = block(x + k * x_k, b, i, B, I, I, 1)
        weight = block(w + k * w_k, o, i, O, I, I, 1)
        acc = tl.dot(value, tl.trans(weight), acc, input_precision="ieee")
    if BIAS:
        acc += tl.load(bias + k * bias_k + o, mask=o < O, other=0.0).to(tl.float32)[None, :]
    if RELU:
        acc = tl.where(acc < 0, 0.0, acc)  # NaN stays NaN
    at = k * (B * O) + b[:, None] * O + o[None, :]
    tl.store(y + at, acc.to(y.dtype.element_ty), mask=(b < B)[:, None] & (o < O)[None, :])


@compiled
def _linear_gradients(
    dy, y, x, w, dx, dw, db, x_k, w_k, B, num_x,
    I: tl.constexpr, O: tl.constexpr, RELU: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """N rows and columns: the first ``num_x`` programs of dx [B, I], the others of dw [O, I], db [O]."""
    k = tl.program_id(1).to(tl.int64)
    columns = (I + N - 1) // N
    i = tl.program_id(0) % columns * N + tl.arange(0, N)
    acc = tl.zeros((N, N), tl.float32)
    if tl.program_id(0) < num_x:
        b = tl.program_id(0) // columns * N + tl.arange(0, N)
        for start in range(0, O, N):
            o = start + tl.arange(0, N)
            d = block(dy + k * (B * O), b, o, B, O, O, 1)
            if RELU:
                d = tl.where(block(y + k * (B * O), b, o, B, O, O, 1) > 0, d, 0.0)
            weight = block(w + k * w_k, o, i, O, I, I, 1)
            acc = tl.dot(d, weight, acc, input_precision="ieee")
        at = k * (B * I) + b[:, None] * I + i[None, :]
        tl.store(dx + at, acc.to(dx.dtype.element_ty), mask=(b < B)[:, None] & (i < I)[None, :])
    else:
        o = (tl.program_id(0) - num_x) // columns * N + tl.arange(0, N)
        of_bias = tl.zeros((N,), tl.float32)
        for start in range(0, B, N):
            b = start + tl.arange(0, N)
            # [O, B], so that its product with x is one of rows and columns
            d = block(dy + k * (B * O), o, b, O, B, 1, O)
            if RELU:
                d = tl.where(block(y + k * (B * O), o, b, O, B, 1, O) > 0, d, 0.0)
            value = block(x + k * x_k, b, i, B, I, I, 1)
            acc = tl.dot(d, value, acc, input_precision="ieee")
            of_bias += tl.sum(d.to(tl.float32), 1)
        at = k * (O * I) + o[:, None] * I + i[None, :]
        tl.store(dw + at, acc.to(dw.dtype.element_ty), mask=(o < O)[:, None] & (i < I)[None, :])
        if (tl.program_id(0) - num_x) % columns == 0:
            tl.store(db + k * O + o, of_bias.to(db.dtype.element_ty), mask=o < O)


@compiled
def _cross_entropy(
    logits, labels, loss, gradient,
    B: tl.constexpr, K: tl.constexpr, BP: tl.constexpr, KP: tl.constexpr,
):  # fmt: skip
    """A client's mean cross entropy of logits [B, K], and its gradient."""
    k = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, BP)
    c = tl.arange(0, KP)
    at = k * (B * K) + b[:, None] * K + c[None, :]
    mask = (b < B)[:, None] & (c < K)[None, :]
    z = tl.load(logits + at, mask=mask, other=-float("inf"))
    # rows beyond the last are logits 0, so that nothing becomes NaN
    z = tl.where((b < B)[:, None], z, 0.0)
    z = z - tl.max(z, 1)[:, None]
    e = tl.exp(z)
    total = tl.sum(e, 1)
    own = c[None, :] == tl.load(labels + k * B + b, mask=b < B, other=0)[:, None]
    each = tl.log(total) - tl.sum(tl.where(own, z, 0.0), 1)
    tl.store(loss + k, tl.sum(tl.where(b < B, each, 0.0), 0) / B)
    tl.store(gradient + at, (e / total[:, None] - tl.where(own, 1.0, 0.0)) / B, mask=mask)


@compiled
def _normalise(x, y, norm, n, eps, D: tl.constexpr, DP: tl.constexpr, N: tl.constexpr):
    """N rows of y [n, D]: those of x, divided by their length or, if it is less, by eps."""
    r = tl.program_id(0) * N + tl.arange(0, N)
    d = tl.arange(0, DP)
    mask = (r < n)[:, None] & (d < D)[None, :]
    value = tl.load(x + r.to(tl.int64)[:, None] * D + d[None, :], mask=mask, other=0.0)
    length = tl.sqrt(tl.sum(value * value, 1))
    length = tl.where(length < eps, eps, length)
    tl.store(y + r.to(tl.int64)[:, None] * D + d[None, :], value / length[:, None], mask=mask)
    tl.store(norm + r, length, mask=r < n)


@compiled
def _normalise_gradient(
    dy, y, norm, dx, n, eps, D: tl.constexpr, DP: tl.constexpr, N: tl.constexpr
):
    """N rows of dx [n, D]."""
    r = tl.program_id(0) * N + tl.arange(0, N)
    d = tl.arange(0, DP)
    mask = (r < n)[:, None] & (d < D)[None, :]
    at = r.to(tl.int64)[:, None] * D + d[None, :]
    g = tl.load(dy + at, mask=mask, other=0.0)
    unit = tl.load(y + at, mask=mask, other=0.0)
    length = tl.load(norm + r, mask=r < n, other=1.0)
    along = tl.where(length > eps, tl.sum(g * unit, 1), 0.0)
    tl.store(dx + at, (g - along[:, None] * unit) / length[:, None], mask=mask)


@compiled
def _read_batch(
    images, labels, index, draws, position, who, scale, shift, x, y, capacity,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
    FLIP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """P pixels of an image of x [k, B, C, H, W] and its label: cropped, flipped, normalised."""
    k = tl.program_id(2).to(tl.int64)
    b = tl.program_id(1)
    row = tl.load(who + k)
    at = row * capacity + tl.load(position + row) + b
    image = tl.load(index + at)
    m = tl.program_id(0) * P + tl.arange(0, P)
    c = m // (H * W)
    i = m % (H * W) // W + tl.load(draws + at * 4).to(tl.int32)
    j = m % W
    if FLIP:
        j = tl.where(tl.load(draws + at * 4 + 2) != 0, W - 1 - j, j)
    j += tl.load(draws + at * 4 + 1).to(tl.int32)
    live = m < C * H * W
    value = tl.load(images + image * (SH * SW * C) + (i * SW + j) * C + c, mask=live, other=0)
    value = value.to(tl.float32) * tl.load(scale + c, mask=live, other=0.0)
    value += tl.load(shift + c, mask=live, other=0.0)
    out = (k * tl.num_programs(1) + b) * (C * H * W)
    tl.store(x + out + m, value, mask=live)
    if tl.program_id(0) == 0:
        tl.store(y + k * tl.num_programs(1) + b, tl.load(labels + image))


class Linear(torch.autograd.Function):
    """x [k, B, I], w [k, O, I], bias [k, O] or None to [k, B, O]; with ``relu`` not below 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        x = rows(x)
        w = rows(w)
        bias = None if bias is None else rows(bias)
        k, num, width = x.shape
        out = w.shape[1]
        y = x.new_empty(k, num, out)
        given = w if bias is None else bias
        _linear[(triton.cdiv(num, BLOCK), triton.cdiv(out, BLOCK), k)](
            x, w, given, y, x.stride(0), w.stride(0), given.stride(0), num,
            I=width, O=out, BIAS=bias is not None, RELU=relu, N=BLOCK,
            num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(x, w, y)
        ctx.relu = relu
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, w, y = ctx.saved_tensors
        dy = dy.contiguous()
        k, num, width = x.shape
        out = w.shape[1]
        needs_x, needs_w, needs_bias, _ = ctx.needs_input_grad
        dx = x.new_empty(k, num, width) if needs_x else None
        dw = x.new_empty(k, out, width) if needs_w or needs_bias else None
        db = x.new_empty(k, out) if needs_w or needs_bias else None
        columns = triton.cdiv(width, BLOCK)
        num_x = triton.cdiv(num, BLOCK) * columns if needs_x else 0
        num_w = triton.cdiv(out, BLOCK) * columns if dw is not None else 0
        spare = dy  # in place of what nobody needs, and no program writes
        _linear_gradients[(num_x + num_w, k)](
            dy, y, x, w, spare if dx is None else dx, spare if dw is None else dw,
            spare if db is None else db, x.stride(0), w.stride(0), num, num_x,
            I=width, O=out, RELU=ctx.relu, N=BLOCK, num_warps=4,
        )  # fmt: skip
        return dx, dw if needs_w else None, db if needs_bias else None, None


class CrossEntropy(torch.autograd.Function):
    """logits [k, B, K] and labels [k, B] to each client's mean, [k]."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        logits = logits.contiguous()
        k, num, classes = logits.shape
        loss = logits.new_empty(k)
        gradient = torch.empty_like(logits)
        _cross_entropy[(k,)](
            logits, labels.contiguous(), loss, gradient,
            B=num, K=classes, BP=power(num), KP=power(classes), num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (gradient,) = ctx.saved_tensors
        return gradient * dy[:, None, None], None


def vectors(width: int, n: int) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid for n vectors, and the constants for those that a program holds at once."""
    num = max(1, min(16, 2048 // power(width)))
    return (triton.cdiv(n, num),), {"D": width, "DP": power(width), "N": num, "num_warps": 4}


class Normalise(torch.autograd.Function):
    """x [..., D] to vectors of length 1; what is shorter than eps is divided by eps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        width = x.shape[-1]
        norm = x.new_empty(x.shape[:-1])
        grid, sizes = vectors(width, norm.numel())
        _normalise[grid](x, y, norm, norm.numel(), eps, **sizes)
        ctx.save_for_backward(y, norm)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        y, norm = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(y)
        grid, sizes = vectors(y.shape[-1], norm.numel())
        _normalise_gradient[grid](dy, y, norm, dx, norm.numel(), ctx.eps, **sizes)
        return dx, None


def linear(x: Tensor, w: Tensor, bias: Tensor | None, relu: bool) -> Tensor | None:
    """Return a client's x wᵀ + bias, [B, O], under `torch.vmap`; or None if no kernel fits.

    x is [B, I], w [O, I] and bias [O] or None. With ``relu`` the result is not below 0.
    """
    if x.ndim != 2 or w.ndim != 2 or not x.dtype == w.dtype == torch.float32:
        return None
    return ForAllClients.apply(Linear, x, w, bias, relu)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor | None:
    """Return a client's mean cross entropy of logits [B, K] and labels [B], likewise."""
    plain = logits.ndim == 2 and labels.ndim == 1 and labels.dtype == torch.long
    if not plain or logits.dtype != torch.float32:
        return None
    if power(logits.shape[0]) * power(logits.shape[1]) > LARGEST:
        return None
    return ForAllClients.apply(CrossEntropy, logits, labels)


def normalise(x: Tensor, eps: float) -> Tensor | None:
    """Return a client's x [..., D] as vectors of length 1, likewise."""
    return ForAllClients.apply(Normalise, x, eps) if x.dtype == torch.float32 else None


def reads(images: Images) -> bool:
    """Tell whether the kernel can read these as `Images.inputs` does. It cannot rotate images."""
    are_bytes = images.train.dtype == torch.uint8
    become_floats = images.constants[0].dtype == torch.float32
    return are_bytes and become_floats and not images.augmentation.rotation


def read_batch(
    images: Images, index: Tensor, draws: Tensor, position: Tensor, who: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """Read the next batch of each client: x [k, B, C, H, W] and y [k, B].

    Parameters
    ----------
    images: of all clients.
    index, draws, position: of all clients what is read, [n, capacity], how it is augmented, [n,
        capacity, 4], and where the next batch begins, [n].
    who: the rows [k] of those who take a step.
    size: B.
    """
    k = len(who)
    _, height, width, channels = images.train.shape
    pad = images.augmentation.pad
    shape = (channels, height - 2 * pad, width - 2 * pad)
    x = torch.empty((k, size, *shape), device=images.device)
    y = torch.empty((k, size), dtype=torch.long, device=images.device)
    _read_batch[(triton.cdiv(shape[0] * shape[1] * shape[2], 1024), size, k)](
        images.train, images.labels, index, draws, position, who, *images.constants, x, y,
        index.shape[1], C=channels, H=shape[1], W=shape[2], SH=height, SW=width,
        FLIP=images.augmentation.flip, P=1024, num_warps=4,
    )  # fmt: skip
    return x, y

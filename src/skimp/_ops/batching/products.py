"""Batching rules of products: each is a matmul whose batch dimensions are the samples."""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.forms import NAMESPACES
from skimp._ops.batching.call import Call, by_samples

_functions = NAMESPACES[""]


def matmul(a: Any, b: Any) -> Any:
    return _functions["matmul"](a, b)


def conj(t: Any) -> Any:
    return t.conj() if t._dtype.is_complex else t


def multiplied(call: Call, a: Any, b: Any) -> Any:
    """a @ b, sample by sample, for samples of any rank that matmul takes; a factor that samples
    share is read once.
    """
    n, m = a.ndim, b.ndim
    if not n or not m:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D"
        )
    if not call.has(a):
        if m == 1 and n == 2:  # a vector for each sample: the rows of one matrix
            return matmul(b._held, a.t())
        if n == 1:
            return _by_vector(call, a, b, m)
        y = b._held if m > 1 else b._held.unsqueeze(-1)
        y = y if y.ndim > n else _padded(y, n + 1)
        return matmul(a, y) if m > 1 else matmul(a, y).squeeze(-1)
    if not call.has(b):
        if m <= 2:  # all samples are the rows of one matrix
            return matmul(a._held, b)
        x = a._held if n > 1 else a._held.unsqueeze(-2)
        made = matmul(_padded(x, m + 1), b)
        return made if n > 1 else made.squeeze(-2)
    x = a._held if n > 1 else a._held.unsqueeze(-2)
    y = b._held if m > 1 else b._held.unsqueeze(-1)
    rank = max(x.ndim, y.ndim)
    made = matmul(_padded(x, rank), _padded(y, rank))
    if m == 1:
        made = made.squeeze(-1)
    return made if n > 1 else made.squeeze(-2 if m > 1 else -1)


def _by_vector(call: Call, a: Any, b: Any, m: int) -> Any:
    """One vector times what each sample has."""
    if m == 1:
        return matmul(b._held, a)
    return matmul(b._held.transpose(-2, -1), a)


def _padded(t: Any, rank: int) -> Any:
    """Dimensions of 1 behind the batch, up to `rank`."""
    shape = tuple(t.shape)
    return (
        t if len(shape) >= rank else t.reshape((shape[0], *(1,) * (rank - len(shape)), *shape[1:]))
    )


def product_rule(call: Call) -> Any:
    a, b = list(call.given.values())[:2]
    _check(call, a, b)
    return multiplied(call, a, b)


def _check(call: Call, a: Any, b: Any) -> None:
    """The refusals that matmul would give in other words."""
    if call.name == "mm" and (a.ndim != 2 or b.ndim != 2):
        raise RuntimeError("self must be a matrix" if a.ndim != 2 else "mat2 must be a matrix")
    if call.name == "bmm" and (a.ndim != 3 or b.ndim != 3):
        raise RuntimeError(f"batch{1 if a.ndim != 3 else 2} must be a 3D tensor")


def vdot(call: Call) -> Any:
    a, b = call.given["input"], call.given["other"]
    return (conj(call.thin(a)) * call.thin(b)).sum(-1)


def linear_rule(call: Call) -> Any:
    x, weight = call.given["input"], call.given["weight"]
    bias = call.given.get("bias")
    linear = NAMESPACES["nn.functional"]["linear"]
    if not call.has(weight) and not call.has(bias):
        return linear(x._held, weight, bias)
    if not call.has(weight):
        made = call.thin(x) if not call.has(x) else x._held
        product = linear(made, weight)
        return product + call.thin(bias, product.ndim - 1)
    if call.has(x):
        if x.ndim == 1 or (x.ndim == 2 and x._held.shape[1] == 1):
            return _of_one_row(call, x, weight, bias)
        rows = x._held if x.ndim > 1 else x._held.unsqueeze(1)
        across = call.thin(weight, rows.ndim - 1).transpose(-2, -1)
        if rows.ndim == 3 and bias is not None and bias.ndim == 1:
            made = _functions["baddbmm"](call.thin(bias, 2), rows, across)
            return made if x.ndim > 1 else made.squeeze(1)
        made = matmul(rows, across)
        made = made if x.ndim > 1 else made.squeeze(1)
    else:
        made = matmul(x, call.thin(weight, max(x.ndim, 2)).transpose(-2, -1))
    return made if bias is None else made + call.thin(bias, made.ndim - 1)


def _of_one_row(call: Call, x: Any, weight: Any, bias: Any) -> Any:
    """weight @ x, whose gradient by `weight` has its layout."""
    column = x._held.unsqueeze(-1) if x.ndim == 1 else x._held.mT
    matrix = call.thin(weight, 2)
    if bias is not None and bias.ndim == 1:
        made = _functions["baddbmm"](call.thin(bias, 1).unsqueeze(-1), matrix, column)
    else:
        made = matmul(matrix, column)
    return made.squeeze(-1) if x.ndim == 1 else made.mT


_FACTORS = {
    "addmm": ("mat1", "mat2", 2),
    "addmv": ("mat", "vec", 1),
    "baddbmm": ("batch1", "batch2", 3),
    "addbmm": ("batch1", "batch2", 2),
    "addr": ("vec1", "vec2", 2),
}


def plus_product(call: Call) -> Any:
    """beta * input + alpha * (the product)."""
    title = call.name.removesuffix("_")
    first, second, rank = _FACTORS[title]
    given = call.given
    a, b, start = given[first], given[second], given["input"]
    beta, alpha = given.get("beta", 1), given.get("alpha", 1)
    if title == "addmm" and call.has(a) and not call.has(b) and not call.has(start):
        made = _tall(call, start, a, b, beta, alpha)
        if made is not None:
            return made
    if title == "addr":
        product = call.front(a).unsqueeze(-1) * call.thin(b).unsqueeze(-2)
    elif call.has(a) or call.has(b):
        product = multiplied(call, a, b)
    else:
        product = matmul(a, b)
        product = product.unsqueeze(0).expand((call.size, *product.shape))
    if title == "addbmm":
        product = product.sum(-3)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        made = product
    else:
        start = call.thin(start, rank)
        made = product + (start if beta == 1 else start * beta)
    return given["input"]._held.copy_(made) if call.name.endswith("_") else made


def _tall(call: Call, start: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    """Shared weights: the rows of all samples are one matrix."""
    if start.ndim > 1 and start.shape[0] != 1:
        return None
    if call.name.endswith("_"):
        return None
    batch, rows, inner = a._held.shape
    flat = a._held.reshape((batch * rows, inner))
    made = _functions["addmm"](start, flat, b, beta=beta, alpha=alpha)
    return made.view((batch, rows, b.shape[1]))


def cross(call: Call) -> Any:
    a, b, dim = call.given["input"], call.given["other"], call.given["dim"]
    rank = max(a.ndim, b.ndim)
    dim = dim if dim < 0 else dim - rank
    a, b = _functions["broadcast_tensors"](call.thin(a, rank), call.thin(b, rank))
    return call.run(input=a, other=b, dim=dim)


def einsum(call: Call) -> Any:
    """The samples get a letter of their own."""
    args = call.given["args"]
    if not isinstance(args[0], str):
        return by_samples(call)
    tensors = args[1:]
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    equation = args[0].replace(" ", "")
    letter = next(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                  if c not in equation)  # fmt: skip
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        counts = "".join(terms).replace("...", "")
        dots = "..." if "..." in left else ""
        right = dots + "".join(sorted({c for c in counts if counts.count(c) == 1}))
    if len(terms) != len(tensors):
        return by_samples(call)
    held = [t._held if call.has(t) else t for t in tensors]
    marked = [letter + s if call.has(t) else s for s, t in zip(terms, tensors, strict=True)]
    return _functions["einsum"](f"{','.join(marked)}->{letter}{right}", *held)

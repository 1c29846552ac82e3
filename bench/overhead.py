"""NumPy's own calls for the small ops of bench/micro.py: what the same values cost without tensors.

A row has the kind of the op (as its declaration has it) and the words of NumPy that give its value,
as few as there are. skimp's time above NumPy's is what binding, checks, the result's tensor and
storage and, if it is recorded, the node cost. Ops whose value NumPy has no few calls for (random
numbers in PyTorch's order, convolutions, GELU, modules, optimizers) are not here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.workloads import Call

PLAIN_GOAL, RECORDED_GOAL = 1e-6, 1.5e-6  # seconds beyond NumPy's calls
KINDS: dict[str, dict[str, str]] = {
    "pointwise": {
        "add": "a + b", "add_number": "a + 1.0", "mul_broadcast": "a * c", "div": "a / b",
        "neg": "-a", "square": "a ** 2", "sqrt": "np.sqrt(positive)", "exp": "np.exp(a)",
        "tanh": "np.tanh(a)", "sigmoid": "1 / (1 + np.exp(-a))", "relu": "np.maximum(a, 0)",
        "clamp": "np.minimum(np.maximum(a, -1), 1)", "gt": "a > b", "where": "np.where(mask, a, b)",
        "masked_fill": "np.where(mask, zero, a)", "double": "a.astype(np.float64)",
        "mul_": "np.multiply(d, 1.0, d)", "add, recorded": "a + b", "mul, recorded": "a * b",
        "scalar, recorded": "np.tanh(number * 2 + 1)",
    },
    "reduction": {
        "sum": "np.add.reduce(a, None)", "sum_dim": "np.add.reduce(a, 1)",
        "mean_keepdim": "np.add.reduce(a, -1, keepdims=True) / 32",
        "max_dim": "(np.maximum.reduce(a, 1), a.argmax(1))", "argmax": "a.argmax(1)",
        "norm": "math.sqrt(np.vdot(a, a))", "mean, recorded": "np.add.reduce(a, None) / 512",
        "var": "np.add.reduce(np.square(a - np.add.reduce(a, 1, keepdims=True) / 32), 1) / 31",
        "equal": "np.logical_and.reduce(a == b, None).item()",
    },
    "row-wise": {
        "softmax": "softmax(a)", "log_softmax": "log_softmax(a)",
        "cumsum": "np.add.accumulate(a, 1)", "sort": "(np.sort(a, 1), a.argsort(1))",
        "softmax, recorded": "softmax(a)", "layer_norm, recorded": "layer_norm(a)",
        "cross_entropy, recorded": "-np.add.reduce(log_softmax(a)[rows, labels], None) / 16",
    },
    "view": {
        "unbind": "list(a)", "unsqueeze": "a[:, None]", "permute": "heads.transpose(0, 2, 1, 3)",
        "expand": "np.broadcast_to(c, (16, 32))", "flatten": "words.reshape(4, -1)",
        "index_int": "a[3]", "view, recorded": "a.reshape(32, 16)",
    },
    "general": {
        "mm": "a @ weight.T", "bmm": "heads @ heads.swapaxes(-2, -1)", "matvec": "weight @ c",
        "linear": "a @ weight.T + bias", "einsum": "np.einsum('ij,kj->ik', a, weight)",
        "cat": "np.concatenate([a, b], 1)", "stack": "np.concatenate([a[None], b[None]])",
        "reshape_copy": "heads.swapaxes(1, 2).reshape(4, 8, 32)",
        "contiguous": "np.ascontiguousarray(a.T)", "clone": "a.copy()", "index_tensor": "a[some]",
        "index_list": "a[[3, 1, 2]]", "index_mask": "a[mask]",
        "gather": "a[column, labels[:, None]]",
        "set_column": "d.__setitem__((slice(None), 0), 0.0)", "one_hot": "eye[labels]",
        "scatter_add": "np.bincount(bins, ones, 16)", "embedding": "table.take(ids, 0)",
        "copy_": "np.copyto(d, b)", "zero_": "e.fill(0)", "zeros": "np.zeros((16, 32), np.float32)",
        "arange": "np.arange(16)", "tensor": "np.array([1.0, 2.0, 3.0], np.float32)",
        "mm, recorded": "a @ weight.T", "linear, recorded": "a @ weight.T + bias",
        "cat, recorded": "np.concatenate([a, b], 1)", "index, recorded": "a[some]",
        "embedding, recorded": "table.take(ids, 0)",
    },
}  # fmt: skip
BY_NUMPY = {name: code for rows in KINDS.values() for name, code in rows.items()}

Array = NDArray[Any]


def by_numpy(name: str) -> Call:
    """The call of a row, with inputs of its own."""
    call: Call = eval(f"lambda: {BY_NUMPY[name]}", {**HELP, **inputs()})
    return call


def every_call() -> list[Call]:
    names = {**HELP, **inputs()}
    return [eval(f"lambda: {code}", names) for code in BY_NUMPY.values()]


def inputs() -> dict[str, Any]:
    """Arrays of the shapes that `micro.inputs` has tensors of."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32)

    a, c, labels = normal(16, 32), normal(32), rng.integers(0, 32, 16)
    return {
        "a": a, "b": normal(16, 32), "c": c, "d": a.copy(), "e": np.zeros((16, 32), np.float32),
        "weight": normal(64, 32), "bias": normal(64), "heads": normal(4, 2, 8, 16),
        "number": np.array(1.5, np.float32), "table": normal(16, 32), "words": normal(4, 8, 32),
        "mask": a > 0, "positive": np.abs(a), "labels": labels, "ones": c[:16],
        "some": rng.integers(0, 16, 8), "ids": rng.integers(0, 16, (4, 8)), "bins": labels % 16,
    }  # fmt: skip


def softmax(x: Array) -> Array:
    e: Array = np.exp(x - np.maximum.reduce(x, -1, keepdims=True))
    e /= np.add.reduce(e, -1, keepdims=True)
    return e


def log_softmax(x: Array) -> Array:
    y: Array = x - np.maximum.reduce(x, -1, keepdims=True)
    y -= np.log(np.add.reduce(np.exp(y), -1, keepdims=True))
    return y


def layer_norm(x: Array) -> Array:
    y: Array = x - np.add.reduce(x, -1, keepdims=True) / x.shape[-1]
    y /= np.sqrt(np.add.reduce(np.square(y), -1, keepdims=True) / x.shape[-1] + 1e-5)
    return y


HELP = {
    "np": np, "math": math, "softmax": softmax, "log_softmax": log_softmax,
    "layer_norm": layer_norm, "rows": np.arange(16), "column": np.arange(16)[:, None],
    "zero": np.float32(0), "eye": np.eye(32, dtype=np.int64),
}  # fmt: skip

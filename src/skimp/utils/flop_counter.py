"""torch.utils.flop_counter: how many multiplications and additions products and convolutions take.

PyTorch's counter sits below autograd. This one looks at the functions that a program and its
modules call: forward is counted at the call, backward when the function's node runs, by the same
formulas. Products inside one function (a recurrent layer, a cell) are not seen.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from skimp._compat.modules import lookup as _lookup, public
from skimp._ops.linalg.equations import parse, read
from skimp.library.aten import aten
from skimp.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from skimp.overrides import TorchFunctionMode

__all__ = ["FlopCounterMode"]
__all__.extend(public(__name__))
__getattr__ = _lookup(__name__)

Counts = dict[str, dict[Any, int]]


class Work(NamedTuple):
    """What a call takes: the names of aten's ops forward and backward, the count forward, and that
    of each operand's gradient."""

    op: str
    back: str
    forward: int
    gradients: tuple[tuple[Any, int], ...]


class FlopCounterMode(TorchFunctionMode):
    """Counts inside a `with`, by module and by op."""

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None
    ) -> None:
        if custom_mapping:
            raise RuntimeError(
                "FlopCounterMode: formulas of one's own are for ops of a dispatcher that is not "
                "there; count what a function takes where it is called"
            )
        self.depth, self.display = depth, display
        self.flop_counts: Counts = defaultdict(lambda: defaultdict(int))
        self._inside = False
        self._names: dict[int, str] = {}
        self._running: list[str] = []
        self._handles: list[Any] = []

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self._running, self._inside = ["Global"], True
        self._handles = [
            register_module_forward_pre_hook(self._begin),
            register_module_forward_hook(self._end, always_call=True),
        ]
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._inside = False
        for handle in self._handles:
            handle.remove()
        self._names.clear()
        if self.display:
            sys.stdout.write(f"{self.get_table(self.depth)}\n")

    def _begin(self, module: Any, args: Any) -> None:
        name = self._names.setdefault(id(module), type(module).__name__)
        for inner, child in module.named_children():
            self._names[id(child)] = f"{name}.{inner}"
        self._running.append(name)

    def _end(self, module: Any, args: Any, result: Any) -> None:
        self._running.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        formula = _FORMULAS.get(getattr(func, "__name__", ""))
        work = None if formula is None else formula(result, *args, **(kwargs or {}))
        if work is not None:
            self._note(work, result)
        return result

    def _note(self, work: Work, result: Any) -> None:
        names = set(self._running)
        self._add(names, work.op, work.forward)
        if result.requires_grad and result.grad_fn is not None:
            back = sum([n for t, n in work.gradients if t.requires_grad])
            result.grad_fn.register_hook(lambda *_: self._add(names, work.back, back))

    def _add(self, names: set[str], op: str, count: int) -> None:
        if self._inside and count:
            for name in names:
                self.flop_counts[name][getattr(aten, op)] += count

    def get_total_flops(self) -> int:
        """All that was counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> Counts:
        """By module, then by op."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Modules down to this depth, their counts, and their share of all."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for name in ["Global", *[n for n in self.flop_counts if n != "Global"]]:
            level = name.count(".") + 1 if name != "Global" else 0
            if level <= depth:
                own = sum(self.flop_counts[name].values())
                rows.append((" " * level + name, f"{own:,}", f"{own / (total or 1):.2%}"))
                rows += [
                    (" " * level + f" - {op}", f"{n:,}", f"{n / (total or 1):.2%}")
                    for op, n in self.flop_counts[name].items()
                ]
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join([f"{a:<{wide[0]}}  {b:>{wide[1]}}  {c:>{wide[2]}}" for a, b, c in rows])


# -- formulas: (result, the call's arguments) -> Work ---------------------------------------------


def _product(op: str, result: Any, a: Any, b: Any) -> Work | None:
    n = 2 * result.numel() * a.shape[-1]
    return Work(op, "bmm" if "bmm" in op else "mm", n, ((a, n), (b, n)))


def _matmul(result: Any, input: Any, other: Any, **_: Any) -> Work | None:
    if other.ndim < 2:
        return None
    return _product("bmm" if min(input.ndim, other.ndim) > 2 else "mm", result, input, other)


def _linear(result: Any, input: Any, weight: Any, bias: Any = None) -> Work | None:
    if weight.ndim < 2:
        return None
    return _product("mm" if bias is None else "addmm", result, input, weight)


def _tensordot(result: Any, a: Any, b: Any, *_: Any, **__: Any) -> Work | None:
    """The sides are m x k and k x n, the result m x n."""
    n = 2 * math.isqrt(a.numel() * b.numel() * result.numel())
    return Work("mm", "mm", n, ((a, n), (b, n)))


def _einsum(result: Any, *args: Any) -> Work | None:
    """Of operands from left to right, as without opt_einsum."""
    equation, operands = parse(args)
    labels, wanted, sizes = read(equation, [tuple(t.shape) for t in operands])
    made, n = set(labels[0]), 0
    for i, own in enumerate(labels[1:], 2):
        kept = set(wanted).union(*labels[i:])
        if made & set(own) - kept:
            n += 2 * math.prod([sizes[k] for k in made | set(own)])
        made = (made | set(own)) & kept
    return Work("bmm", "bmm", n, tuple([(t, n) for t in operands]))


def _convolution(result: Any, input: Any, weight: Any, *_: Any, **__: Any) -> Work:
    return _convolved(result.shape, input, weight, input.shape[-weight.ndim + 1])


def _transposed(result: Any, input: Any, weight: Any, *_: Any, **__: Any) -> Work:
    return _convolved(input.shape, input, weight, result.shape[-weight.ndim + 1])


def _convolved(places: Any, input: Any, weight: Any, channels: int) -> Work:
    """The gradient of a weight is counted as if there were no groups, as PyTorch does."""
    dims = weight.ndim - 2
    batch = input.shape[0] if input.ndim == weight.ndim else 1
    n = 2 * batch * math.prod(places[-dims:]) * math.prod(weight.shape)
    groups = channels // weight.shape[1]
    return Work("convolution", "convolution_backward", n, ((input, n), (weight, n * groups)))


_FORMULAS: dict[str, Callable[..., Work | None]] = {
    "matmul": _matmul,
    "linalg_matmul": _matmul,
    "__rmatmul__": lambda result, other, input: _matmul(result, input, other),
    "mm": _matmul,
    "bmm": _matmul,
    "linear": _linear,
    "addmm": lambda result, _, a, b, **__: _product("addmm", result, a, b),
    "baddbmm": lambda result, _, a, b, **__: _product("baddbmm", result, a, b),
    "tensordot": _tensordot,
    "einsum": _einsum,
    **{f"conv{n}d": _convolution for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _transposed for n in (1, 2, 3)},
}

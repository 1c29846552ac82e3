"""gradcheck and gradgradcheck: analytical gradients against central differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from skimp._engine.autograd import calls
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]


class GradcheckError(RuntimeError):
    """A gradient is not what differences say."""


def _tensors(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (list, tuple)) else (values,)


def _differentiable(values: Any) -> tuple[Tensor, ...]:
    return tuple([t for t in _tensors(values) if isinstance(t, Tensor) and t._rg])


def _numpy(t: Tensor) -> Array:
    return np.array(t.detach().resolve_conj().resolve_neg()._skimp_array())


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether `func`'s gradients equal central differences; inputs that require grad should be
    double precision.

    For complex values both the gradient and its conjugate are compared. Forward-mode and batched
    checks do not exist. `fast_mode` compares v J u for one pair of random vectors instead of all of
    the Jacobian J: two calls of `func` and one backward for each pair of input and output, whatever
    their sizes (atol grows with the vectors' sums, as in PyTorch).

    Shape: any; the slow mode calls `func` twice for every element of the inputs.
    Dtypes: double precision; others warn, and differ by rounding.
    Raises: GradcheckError (or returns False, without `raise_exception`) where they differ,
    ValueError where no input requires grad.
    Memory: two calls for each element of the inputs; nothing stays.
    """
    try:
        _check(
            func,
            _tensors(inputs),
            eps,
            atol,
            rtol,
            nondet_tol,
            check_undefined_grad,
            check_grad_dtypes,
            _compare_vectors if fast_mode else _compare_jacobians,
        )
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    eps: float,
    atol: float,
    rtol: float,
    nondet: float,
    undefined: bool,
    dtypes: bool,
    compare: Callable[[_Pair, float, float, float, bool, float], None],
) -> None:
    wanted = [t for t in inputs if isinstance(t, Tensor) and t._rg]
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them "
            "have requires_grad=True."
        )
    for i, t in enumerate(inputs):
        if isinstance(t, Tensor) and t._rg:
            if t._dtype.name not in ("float64", "complex128"):
                warnings.warn(
                    f"Input #{i} requires gradient and is not a double precision floating point or "
                    "complex. This check will likely fail if all the inputs are not of double "
                    "precision floating point or complex. ",
                    stacklevel=4,
                )
            t.retain_grad()
    outputs = _differentiable(func(*inputs))
    if not outputs:
        _check_constant(func, inputs, wanted, eps, atol)
        return
    for i, out in enumerate(outputs):
        for j, t in enumerate(wanted):
            pair = _Pair(func, inputs, i, out, j, t)
            compare(pair, eps, atol, rtol, dtypes, nondet)
    if undefined:
        _check_undefined(func, inputs, wanted)


class _Pair(NamedTuple):
    """Output i and input j of a function."""

    func: Callable[..., Any]
    inputs: tuple[Any, ...]
    i: int
    out: Tensor
    j: int
    t: Tensor

    def mismatch(self, numerical: Any, analytical: Any) -> str:
        return (
            f"Jacobian mismatch for output {self.i} with respect to input {self.j},\n"
            f"numerical:{numerical}\nanalytical:{analytical}\n"
        )


def _compare_jacobians(
    pair: _Pair, eps: float, atol: float, rtol: float, dtypes: bool, nondet: float
) -> None:
    numerical = _numerical(pair.func, pair.inputs, pair.t, pair.i, eps)
    analytical = _analytical(pair.out, pair.t, dtypes, nondet)
    if not np.allclose(analytical, numerical, rtol, atol):
        raise GradcheckError(pair.mismatch(numerical, analytical))


def _compare_vectors(
    pair: _Pair, eps: float, atol: float, rtol: float, dtypes: bool, nondet: float
) -> None:
    """v J u from differences along u, and from backward of v; both vectors are positive."""
    out, t = pair.out, pair.t
    rng = np.random.default_rng(pair.i * 1009 + pair.j)
    v, u = _unit(rng, out), _unit(rng, t)
    along: Array = u + 1j * _unit(rng, t) if t._dtype.is_complex else u
    change = _along(pair, along, eps)
    allowed = atol * float(along.real.sum() + along.imag.sum()) * float(v.sum())
    for factor in (1.0, 1j) if out._dtype.is_complex else (1.0,):
        given = out.new_zeros(shape_of(out))
        given._skimp_writable()[...] = v * factor
        g = _gradient(out, t, given, dtypes, nondet)
        analytical = float((g.real * along.real + g.imag * along.imag).sum())
        numerical = float((v * (change.real if factor == 1.0 else change.imag)).sum())
        if not np.allclose(analytical, numerical, rtol, allowed):
            raise GradcheckError(
                pair.mismatch(numerical, analytical) + _in_full(pair, eps, atol, rtol)
            )


def _unit(rng: np.random.Generator, t: Tensor) -> Array:
    """A random vector of length 1, of the tensor's shape."""
    found = rng.uniform(0, 1, shape_of(t))
    return np.asarray(found / max(float(np.linalg.norm(found)), 1e-300))


def _along(pair: _Pair, u: Array, eps: float) -> Array:
    """The output's change along `u`, by a central difference."""
    unseen = pair.t.data  # with a version of its own: the graph need not know
    old = _numpy(unseen)
    ends = []
    for step in (eps, -eps):
        unseen._skimp_writable()[...] = old + step * u
        ends.append(_numpy(_differentiable(pair.func(*pair.inputs))[pair.i]))
    unseen._skimp_writable()[...] = old
    found: Array = (ends[0] - ends[1]) / (2 * eps)
    return found


def _in_full(pair: _Pair, eps: float, atol: float, rtol: float) -> str:
    """What the slow mode says of a pair that fails in the fast one."""
    numerical = _numerical(pair.func, pair.inputs, pair.t, pair.i, eps)
    analytical = _analytical(pair.out, pair.t, False, np.inf)
    verdict = "agree" if np.allclose(analytical, numerical, rtol, atol) else "differ"
    largest = float(np.abs(numerical - analytical).max()) if numerical.size else 0.0
    return (
        "\nThe above quantities relating the numerical and analytical jacobians are computed \n"
        "in fast mode: one product with random vectors. Element by element (slow mode) they "
        f"{verdict}:\n\nNumerical:\n {numerical}\nAnalytical:\n{analytical}\n\n"
        f"The max per-element difference (slow mode) is: {largest}.\n"
    )


def _check_constant(
    func: Any, inputs: tuple[Any, ...], wanted: list[Tensor], eps: float, atol: float
) -> None:
    for i, out in enumerate(_tensors(func(*inputs))):
        if not isinstance(out, Tensor) or out._dtype.category < 2:
            continue
        for t in wanted:
            if not np.allclose(_numerical(func, inputs, t, i, eps, True), 0, atol=atol):
                raise GradcheckError("Numerical gradient for function expected to be zero")


def _numerical(
    func: Any, inputs: tuple[Any, ...], t: Tensor, i: int, eps: float, every: bool = False
) -> Array:
    """d output_i / d t by central differences: [elements of t (x2 if complex), elements of the
    output].
    """

    def value() -> Array:
        outs = _tensors(func(*inputs))
        outs = tuple(o for o in outs if isinstance(o, Tensor)) if every else _differentiable(outs)
        return _numpy(outs[i]).reshape(-1)

    unseen = t.data  # with a version of its own: the graph need not know
    rows = []
    for place in np.ndindex(shape_of(t)):
        old = unseen._skimp_array()[place]
        for step in (eps, eps * 1j) if t._dtype.is_complex else (eps,):
            unseen._skimp_writable()[place] = old + step
            high = value()
            unseen._skimp_writable()[place] = old - step
            low = value()
            unseen._skimp_writable()[place] = old
            rows.append((high - low) / (2 * eps))
    return np.array(rows) if rows else np.zeros((0, value().size))


def _analytical(out: Tensor, t: Tensor, dtypes: bool, nondet: float) -> Array:
    """The same from backward: one row of the vector-Jacobian product for each output element (and
    its imaginary part).
    """
    columns = []
    n = _numpy(out).size
    factors = (1.0, 1j) if out._dtype.is_complex else (1.0,)
    for k in range(n):
        parts = [_vjp(out, t, k, factor, dtypes, nondet) for factor in factors]
        columns.append(_column(parts, t._dtype.is_complex))
    return np.array(columns).T if columns else np.zeros((0, 0))


def _column(parts: list[Array], complex_input: bool) -> Array:
    """Derivatives of one output element by the (real) parts of the input.

    backward gives conj(dL/dz) style gradients: g.real is the derivative of Re(conj(v) out) by
    Re(t), g.imag by Im(t).
    """
    reals = [
        np.stack([g.real, g.imag], -1).reshape(-1) if complex_input else g.real.reshape(-1)
        for g in parts
    ]
    return reals[0] if len(parts) == 1 else reals[0] + 1j * reals[1]


def _vjp(out: Tensor, t: Tensor, k: int, factor: complex, dtypes: bool, nondet: float) -> Array:
    v = out.new_zeros(shape_of(out))
    v.view(-1)._skimp_writable()[k] = factor
    return _gradient(out, t, v, dtypes, nondet)


def _gradient(out: Tensor, t: Tensor, v: Tensor, dtypes: bool, nondet: float) -> Array:
    """What backward of `v` gives, twice the same."""
    first, rematerialize = [
        calls.grad(out, t, v, retain_graph=True, allow_unused=True)[0] for _ in range(2)
    ]
    if first is None:
        return np.zeros(shape_of(t))
    if dtypes and first._dtype is not t._dtype:
        raise GradcheckError("Gradient has dtype mismatch")
    a, b = _numpy(first), _numpy(rematerialize)
    if not np.allclose(a, b, 0.0, nondet, equal_nan=True):
        raise GradcheckError(
            "Backward is not reentrant, i.e., running backward with same input and grad_output "
            "multiple times gives different values, although analytical gradient matches numerical "
            f"gradient.The tolerance for nondeterminism was {nondet}."
        )
    return a


def _check_undefined(func: Any, inputs: tuple[Any, ...], wanted: list[Tensor]) -> None:
    """Zeros in, zeros out; and an output that nobody asks about is no error."""
    outputs = _differentiable(func(*inputs))
    zeros = [o.new_zeros(shape_of(o)) for o in outputs]
    found = list(calls.grad(outputs, wanted, zeros, retain_graph=True, allow_unused=True))
    for o in outputs if len(outputs) > 1 else ():
        found += calls.grad(
            o, wanted, o.new_zeros(shape_of(o)), retain_graph=True, allow_unused=True
        )
    for g in found:
        if g is not None and _numpy(g).any():
            raise GradcheckError("backward not multiplied by grad_output")


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Whether the gradients of `func`'s gradients equal central differences.

    Shape: any; `grad_outputs` are the outputs' (drawn, if not given).
    Dtypes: double precision; others warn, and differ by rounding.
    Raises: as gradcheck.
    Memory: two gradients for each element of the inputs; nothing stays.
    """
    ins = _tensors(inputs)
    outputs = _differentiable(func(*ins))
    if grad_outputs is None:
        vectors = tuple([_random_like(o, i) for i, o in enumerate(outputs)])
    else:
        vectors = _tensors(grad_outputs)

    def gradients(*args: Any) -> tuple[Any, ...]:
        given, v = args[: len(ins)], args[len(ins) :]
        wanted = [t for t in given if isinstance(t, Tensor) and t._rg]
        found = calls.grad(
            _differentiable(func(*given)), wanted, v, create_graph=True, allow_unused=True
        )
        return tuple([g for g in found if g is not None])

    return gradcheck(
        gradients,
        (*ins, *vectors),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        fast_mode=fast_mode,
    )


def _random_like(t: Tensor, seed: int) -> Tensor:
    """A vector to multiply with; its own generator, so that the program's random numbers stay as
    they are.
    """
    rng = np.random.default_rng(seed)
    v = t.new_zeros(shape_of(t))
    a = v._skimp_writable()
    a[...] = rng.uniform(-1, 1, a.shape)
    if t._dtype.is_complex:
        a.imag = rng.uniform(-1, 1, a.shape)
    return v.requires_grad_()

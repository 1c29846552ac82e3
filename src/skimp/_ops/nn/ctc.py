"""Connectionist temporal classification (Graves et al., 2006), over all samples and all labels of a
time step at once.

A label sequence l of length L is read as l' of length 2L + 1: a blank before, between and after its
labels. Over l', alpha[t, s] is the log of the probability of everything that has emitted
l'[0 .. s] by step t, and beta[t, s] that of emitting l'[s ..] from step t on, both with step t's
own emission.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.dispatch.targets import blank as blank_result
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._ops.index.masks import where
from skimp._ops.nn.reduction import check_reduction, numbered

_CHECKING = "(while checking arguments for ctc_loss_allocate_outputs)"


class Paths:
    """The label sequences of a batch between blanks, as (batch, 2 * longest + 1) arrays."""

    def __init__(
        self, targets: Array, lengths: Array, blank: int, classes: int, inputs: Array
    ) -> None:
        self.batch = len(lengths)
        self.inputs = inputs  # steps of each sample
        self.last = 2 * lengths  # of each sample, the place of its last blank
        longest = int(lengths.max(initial=0))
        self.labels = np.full((self.batch, 2 * longest + 1), blank, np.int64)
        real = np.arange(longest) < lengths[:, None]
        if targets.ndim == 2:
            self.labels[:, 1::2][real] = targets[:, :longest][real]
        else:  # one sample's labels after another's
            self.labels[:, 1::2][real] = targets
        if ((self.labels < 0) | (self.labels >= classes)).any():
            bad = int(self.labels[(self.labels < 0) | (self.labels >= classes)][0])
            raise IndexError(
                f"ctc_loss: target {bad} is out of bounds for {classes} classes; targets are "
                f"from 0 to {classes - 1}"
            )
        # From s - 2 to s one may go where that leaves out a blank between different labels.
        self.skips = np.zeros((self.batch, max(0, 2 * longest - 1)), bool)
        self.skips[:, 1::2] = self.labels[:, 3::2] != self.labels[:, 1:-2:2]
        self.rows = np.arange(self.batch)
        self.flat = self.rows[:, None] * classes + self.labels
        self.ends = frozenset(inputs.tolist())

    def emitted(self, log_probs: Array) -> Array:
        """The log-probabilities (batch, classes) of one step, of each place's label."""
        return log_probs.reshape(-1).take(self.flat)


def _log_add(terms: Array) -> Array:
    """log(sum(exp(terms))) over the first dim, -inf where there is nothing; overwrites `terms`."""
    shift = bare.highest(terms, 0)
    np.maximum(shift, np.finfo(terms.dtype).min, out=shift)  # where there is nothing
    terms -= shift
    bare.exp(terms, out=terms)
    total: Array = bare.sums(terms, 0)
    np.log(total, out=total)
    total += shift
    return total


def _forth(log_probs: Array, paths: Paths, keep: bool) -> tuple[Array, Array]:
    """Minus each sample's log-likelihood, and alpha (steps, batch, places), empty unless kept."""
    steps, places = len(log_probs), paths.labels.shape[1]
    dtype = log_probs.dtype
    kept = np.empty((steps if keep else 0, paths.batch, places), dtype)
    ends = np.full((paths.batch, places), -np.inf, dtype)
    terms = np.empty((3, paths.batch, places), dtype)
    alpha = np.full((paths.batch, places), -np.inf, dtype)
    for t in range(steps):
        if t:
            terms[:] = -np.inf
            terms[0] = alpha
            terms[1, :, 1:] = alpha[:, :-1]
            bare.copyto(terms[2, :, 2:], alpha[:, :-2], where=paths.skips)
            alpha = _log_add(terms) + paths.emitted(log_probs[t])
        else:
            first = paths.emitted(log_probs[0])
            alpha[:, :2] = first[:, :2]
            alpha[paths.last == 0, 1:] = -np.inf
        if keep:
            kept[t] = alpha
        if t + 1 in paths.ends:
            over = paths.inputs == t + 1
            ends[over] = alpha[over]
    none = paths.inputs == 0  # no step, so only the empty sequence is possible
    ends[none & (paths.last == 0), 0] = 0
    final = np.full((2, paths.batch), -np.inf, dtype)
    final[0] = ends[paths.rows, paths.last]
    some = paths.last > 0
    final[1, some] = ends[paths.rows[some], paths.last[some] - 1]
    return -_log_add(final), kept


def _back(
    g: Array, log_probs: Array, alpha: Array, losses: Array, paths: Paths, zero: bool, into: Array
) -> None:
    """p - (probability that the step emits the class, given the labels), times g."""
    steps, batch, classes = log_probs.shape
    places = paths.labels.shape[1]
    dtype = log_probs.dtype
    flat = paths.flat.ravel()
    terms = np.empty((3, batch, places), dtype)
    beta = np.full((batch, places), -np.inf, dtype)
    impossible = np.isposinf(losses)
    none, least = not impossible.any(), min(paths.ends, default=0)
    for t in range(steps - 1, -1, -1):
        emitted = paths.emitted(log_probs[t])
        terms[:] = -np.inf
        terms[0] = beta
        terms[1, :, :-1] = beta[:, 1:]
        bare.copyto(terms[2, :, :-2], beta[:, 2:], where=paths.skips)
        if t + 1 in paths.ends:
            starts = paths.inputs == t + 1  # where one is done after this step
            terms[0, starts, paths.last[starts]] = 0
            labelled = starts & (paths.last > 0)
            terms[1, labelled, paths.last[labelled] - 1] = 0
        beta = _log_add(terms)  # without this step's emission, as alpha has it
        share = alpha[t] + beta
        share += losses[:, None]
        bare.exp(share, out=share)
        taken = bare.bincount(flat, share.ravel(), batch * classes).reshape(batch, classes)
        here = into[t]
        bare.exp(log_probs[t], out=here)
        here -= taken.astype(dtype, copy=False)
        if not none:
            here[impossible] = np.nan
        here *= g[:, None]
        if t >= least:
            here[paths.inputs <= t] = 0
        beta += emitted
    if zero:
        into[:, impossible] = 0


def _paths(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int
) -> Paths:
    lengths = target_lengths._skimp_array().astype(np.int64, copy=False)
    inputs = input_lengths._skimp_array().astype(np.int64, copy=False)
    labels = targets._skimp_array().astype(np.int64, copy=False)
    return Paths(labels, lengths, blank, log_probs.shape[2], inputs)


@hidden("_ctc_loss_gradient", rule=Rule("NotImplemented", {
        name: lambda g: _no_second_derivative() for name in ("g", "log_probs")
    }))  # fmt: skip
def _gradient(
    g: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    losses: Any,
    alpha: Any,
    blank: int,
    zero_infinity: bool,
) -> Any:
    """The gradient of the log-probabilities; as in PyTorch it has no derivative itself."""
    made, into = blank_result(tuple(log_probs.shape), log_probs._dtype)
    paths = _paths(log_probs, targets, input_lengths, target_lengths, blank)
    values = (log_probs._skimp_array(), alpha._skimp_array(), losses._skimp_array())
    _back(g._skimp_array(), *values, paths, zero_infinity, into)
    return made


def _no_second_derivative() -> Any:
    raise RuntimeError("derivative for aten::_ctc_loss_backward is not implemented")


@hidden(nondiff=(1,), rule=Rule("CtcLossBackward0",
        log_probs=lambda g, log_probs, targets, input_lengths, target_lengths, result0, result1,
        blank, zero_infinity: _gradient(
            g, log_probs, targets, input_lengths, target_lengths, result0, result1, blank,
            zero_infinity,
        )))  # fmt: skip
def _ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
    zero_infinity: bool,
    keep: bool,
) -> Any:
    """Each sample's loss, and alpha, which is empty unless kept for backward."""
    paths = _paths(log_probs, targets, input_lengths, target_lengths, blank)
    losses, alpha = _forth(log_probs._skimp_array(), paths, keep)
    return fresh(losses, log_probs._dtype), fresh(alpha, log_probs._dtype)


# -- the public function --------------------------------------------------------------------------


def _lengths(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        if value._dtype.is_floating_point or value._dtype.is_complex:
            raise RuntimeError(f"{name} must be integral")
        return value.reshape(-1) if value.ndim == 0 else value
    if isinstance(value, (int, np.integer)):
        value = (value,)
    return fresh(np.asarray(tuple(value), np.int64), dtypes.int64)


def _check(log_probs: Any, targets: Any, inputs: Tensor, lengths: Tensor, blank: int) -> None:
    if log_probs._dtype not in dtypes.FLOATING:
        raise no_kernel("ctc_loss_cpu", log_probs._dtype)
    if log_probs.ndim != 3:
        raise RuntimeError(
            f"Expected 3-dimensional tensor, but got {log_probs.ndim}-dimensional tensor for "
            f"argument #1 'log_probs' {_CHECKING}"
        )
    steps, batch, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    for name, given in (("input_lengths", inputs), ("target_lengths", lengths)):
        if tuple(given.shape) != (batch,):
            raise RuntimeError(f"{name} must be of size batch_size")
        least = int(given._skimp_array().min(initial=0))
        if least < 0:
            raise RuntimeError(
                f"Expected {name} to have value at least 0, but got value {least} {_CHECKING}"
            )
    _check_targets(targets, lengths._skimp_array())
    most = int(inputs._skimp_array().max(initial=0))
    if most > steps:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value {most} "
            f"{_CHECKING}"
        )


def _check_targets(targets: Any, lengths: Array) -> None:
    if targets.ndim not in (1, 2):
        raise RuntimeError(
            f"Expected 1 to 2 dimensions, but got {targets.ndim}-dimensional tensor for argument "
            f"#2 'targets' {_CHECKING}"
        )
    wanted = int(lengths.sum()) if targets.ndim == 1 else len(lengths)
    if targets.shape[0] != wanted:
        raise RuntimeError(
            f"Expected tensor to have size {wanted} at dimension 0, but got size "
            f"{targets.shape[0]} for argument #2 'targets' {_CHECKING}"
        )
    if targets.ndim == 2:
        longest = int(lengths.max(initial=0))
        if targets.shape[1] < longest:
            raise RuntimeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size "
                f"{targets.shape[1]} for argument #2 'targets' {_CHECKING}"
            )


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Minus the log-probability that (steps, batch, classes) `log_probs` emit the targets, blanks
    and repetitions left out.

    Targets are (batch, longest), or all of them one after another. "mean" divides each sample's
    loss by its number of labels first.

    Shape: log_probs (steps, n, classes) or (steps, classes); lengths (n,) or (); (n,) or one
    number.
    Dtypes: float32 or float64 log_probs; integers for the rest.
    Raises: RuntimeError for lengths that don't fit.
    Source: Graves et al., 2006.
    """
    check_reduction(reduction)
    inputs, lengths = (
        _lengths("input_lengths", input_lengths),
        _lengths("target_lengths", target_lengths),
    )
    single = log_probs.ndim == 2  # one sample, without a batch
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.unsqueeze(0) if targets.ndim == 1 else targets
    _check(log_probs, targets, inputs, lengths, blank)
    keep = modes.state.grad and log_probs.requires_grad
    losses = _ctc_loss(log_probs, targets, inputs, lengths, blank, zero_infinity, keep)[0]
    if zero_infinity:
        losses = where(losses == float("inf"), losses.new_zeros(()), losses)
    if reduction == "mean":
        return (losses / lengths.to(losses._dtype).clamp_min(1)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.squeeze(0) if single else losses


def _ctc_loss_of_torch(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    """nn.functional.ctc_loss, with the reduction as a number: 0 none, 1 mean, 2 sum."""
    return ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, numbered(reduction), zero_infinity
    )


export("ctc_loss", ctc_loss, ("nn.functional",), method=False, composite=False, autocast="float32")
export("ctc_loss", _ctc_loss_of_torch, method=False, composite=False, autocast="float32")

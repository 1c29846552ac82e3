"""Batch norm: sums of channels, in lanes, lines and gradients."""

from __future__ import annotations

from typing import Any

import cython
from cython.parallel import prange

from skimp._kernels.loops.arithmetic import root


def summed(x: Any, y: Any, sums: Any, threads: Any) -> None:
    """sums = the sum of each row of x, and that of its products with y's, in double, by so many
    threads."""
    n = x.shape[0]
    if threads < 2:
        with cython.nogil:
            _summed(x, y, sums, 0, n)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _summed(x, y, sums, t * n // threads, (t + 1) * n // threads)


def _summed(x: Any, y: Any, sums: Any, first: Any, last: Any) -> None:
    for r in range(first, last):
        total, product = _norm_sums(x, y, r)
        sums[0, r] = total
        sums[1, r] = product


def lined(
    x: Any, a: Any, b: Any, more: Any, holds: Any, low: Any, high: Any, out: Any, threads: Any
) -> None:
    """out = x * a + b (+ more), held between two numbers if it `holds`, by so many threads: of rows
    of which every so-many-th has the same a and b."""
    rows, places = out.shape[0], out.shape[1]
    if threads < 2:
        with cython.nogil:
            _lined(x, a, b, more, holds, low, high, out, 0, rows, 0, places)
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _lined_by(x, a, b, more, holds, low, high, out, t, threads)


def _lined_by(
    x: Any, a: Any, b: Any, more: Any, holds: Any, low: Any, high: Any, out: Any, t: Any, count: Any
) -> None:
    """Some rows, or a part of each where there are few."""
    rows, places = out.shape[0], out.shape[1]
    if rows >= 8 * count:
        first, last = t * rows // count, (t + 1) * rows // count
        _lined(x, a, b, more, holds, low, high, out, first, last, 0, places)
    else:
        first, last = t * places // count, (t + 1) * places // count
        _lined(x, a, b, more, holds, low, high, out, 0, rows, first, last)


def _lined(
    x: Any, a: Any, b: Any, more: Any, holds: Any, low: Any, high: Any, out: Any, first: Any,
    last: Any, start: Any, stop: Any,
) -> None:  # fmt: skip
    channels = a.shape[0]
    for r in range(first, last):
        c = r % channels
        for k in range(start, stop, 256):
            _line_part(x, a[c], b[c], more, holds, low, high, out, r, k, min(256, stop - k))


def _line_part(
    x: Any, a: Any, b: Any, more: Any, holds: Any, low: Any, high: Any, out: Any, r: Any, at: Any,
    count: Any,
) -> None:  # fmt: skip
    """By numbers of its own, for it may be written where it is read."""
    made = [0.0] * 256
    for k in range(count):
        made[k] = x[r, at + k] * a + b
    if more is not None:
        for k in range(count):
            made[k] = made[k] + more[r, at + k]
    if holds:
        for k in range(count):
            one = made[k]
            one = low if one < low else one
            made[k] = high if one > high else one
    for k in range(count):
        out[r, at + k] = made[k]


def normed(
    x: Any, weight: Any, bias: Any, eps: Any, means: Any, variances: Any, kept: Any, moved: Any,
    sample: Any, moments: Any, mean: Any, rstd: Any, slopes: Any, shifts: Any, out: Any, first: Any,
    last: Any, threads: Any,
) -> None:  # fmt: skip
    """moments = mean and variance of channels of x, from the `first` to the `last`, of which `mean`
    is the former, too, `rstd` one over the deviation, and `slopes` and `shifts` the (a, b) of
    x * a + b; out = that. Of running `means` and `variances` so much is `kept`, and added of the
    moments of a `sample`, so many times as large. None of what is None. By so many threads."""
    n = last - first
    if threads < 2:
        with cython.nogil:
            _normed(
                x, weight, bias, eps, means, variances, kept, moved, sample, moments, mean, rstd,
                slopes, shifts, out, first, last,
            )  # fmt: skip
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _normed(
            x, weight, bias, eps, means, variances, kept, moved, sample, moments, mean, rstd,
            slopes, shifts, out, first + t * n // threads, first + (t + 1) * n // threads,
        )  # fmt: skip


def _normed(
    x: Any, weight: Any, bias: Any, eps: Any, means: Any, variances: Any, kept: Any, moved: Any,
    sample: Any, moments: Any, mean: Any, rstd: Any, slopes: Any, shifts: Any, out: Any, first: Any,
    last: Any,
) -> None:  # fmt: skip
    """Of these channels."""
    channels = mean.shape[0]
    images = x.shape[0] // channels
    many = images * x.shape[1]
    for c in range(first, last):
        total = square = 0.0
        for i in range(images):
            one, other = _norm_sums(x, x, i * channels + c)
            total += one
            square += other
        middle = total / many
        var = square / many - middle * middle
        var = 0.0 if var < 0.0 else var
        scale = 1.0 / root(var + eps)
        moments[0, c] = middle
        moments[1, c] = var
        mean[c] = middle
        rstd[c] = scale
        if weight is not None:
            scale = scale * float(weight[c])
        shift = middle * scale
        shift = -shift if bias is None else float(bias[c]) - shift
        slopes[c] = scale
        shifts[c] = shift
        if means is not None:
            means[c] = means[c] * kept + mean[c] * moved
            new = var * sample
            variances[c] = variances[c] * kept + new * moved
        if out is not None:
            for i in range(images):
                _norm_line(x, i * channels + c, scale, shift, out)


def _norm_line(x: Any, r: Any, a: Any, b: Any, out: Any) -> None:
    for k in range(x.shape[1]):
        out[r, k] = x[r, k] * a + b


def normed_back(
    g: Any, x: Any, seen: Any, slopes: Any, shifts: Any, low: Any, high: Any, mean: Any, rstd: Any,
    weight: Any, given: Any, dw: Any, db: Any, out: Any, over: Any, first: Any, last: Any,
    threads: Any,
) -> None:  # fmt: skip
    """out = the gradient of what `normed` has read, from that of its result, `over` which it may
    be; dw, db = those of weight and bias. Of the former what passes (`passed`) by seen * slope +
    shift, with numbers for each channel, if `seen` is given. `given`: mean and deviation were not
    x's own. By so many threads."""
    n = last - first
    if threads < 2:
        with cython.nogil:
            _normed_back(
                g, x, seen, slopes, shifts, low, high, mean, rstd, weight, given, dw, db, out,
                over, first, last,
            )  # fmt: skip
        return
    for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
        _normed_back(
            g, x, seen, slopes, shifts, low, high, mean, rstd, weight, given, dw, db, out, over,
            first + t * n // threads, first + (t + 1) * n // threads,
        )  # fmt: skip


def _normed_back(
    g: Any, x: Any, seen: Any, slopes: Any, shifts: Any, low: Any, high: Any, mean: Any, rstd: Any,
    weight: Any, given: Any, dw: Any, db: Any, out: Any, over: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Of these channels. What is read where it is written is `out` alone: then its loops are those
    of vectors."""
    channels = mean.shape[0]
    images = x.shape[0] // channels
    many = images * x.shape[1]
    for c in range(first, last):
        total = product = 0.0
        for i in range(images):
            r = i * channels + c
            if seen is None:
                one, other = _norm_sums(g, x, r)
            else:
                if over:
                    _norm_gate(out, seen, r, slopes[c], shifts[c], low, high, out)
                else:
                    _norm_gate(g, seen, r, slopes[c], shifts[c], low, high, out)
                one, other = _norm_sums(out, x, r)
            total += one
            product += other
        scale, middle = float(rstd[c]), float(mean[c])
        grad = (product - middle * total) * scale
        dw[c] = grad
        db[c] = total
        a = scale if weight is None else scale * float(weight[c])
        share = a / -many
        b = grad * scale * share
        shift = total * share - middle * b
        for i in range(images):
            r = i * channels + c
            if seen is None and not over:
                _norm_blend(g, x, r, a, b, shift, given, out)
            else:
                _norm_blend(out, x, r, a, b, shift, given, out)


def _norm_blend(g: Any, x: Any, r: Any, a: Any, b: Any, c: Any, given: Any, out: Any) -> None:
    if given:
        for k in range(x.shape[1]):
            out[r, k] = g[r, k] * a
    else:
        for k in range(x.shape[1]):
            out[r, k] = (x[r, k] * b + c) + g[r, k] * a


def _norm_gate(g: Any, seen: Any, r: Any, a: Any, b: Any, low: Any, high: Any, out: Any) -> None:
    for k in range(g.shape[1]):
        own, line = g[r, k], seen[r, k] * a + b
        out[r, k] = 0 if (line <= low) | (line >= high) else own


def _norm_sums(x: Any, y: Any, r: Any) -> Any:
    """Of a row, a part after the other."""
    total = product = 0.0
    for start in range(0, x.shape[1], 1024):
        one, other = _norm_part(x, y, r, start, min(1024, x.shape[1] - start))
        total += one
        product += other
    return total, product


def _norm_part(x: Any, y: Any, r: Any, start: Any, count: Any) -> Any:
    """In 16 lanes, whose bits no width of vectors changes."""
    totals = [0.0] * 16
    products = [0.0] * 16
    whole = count // 16 * 16
    for i in range(start, start + whole, 16):
        for k in range(16):
            one = float(x[r, i + k])
            totals[k] += one
            products[k] += one * float(y[r, i + k])
    for k in range(count - whole):
        one = float(x[r, start + whole + k])
        totals[k] += one
        products[k] += one * float(y[r, start + whole + k])
    for k in range(8):
        totals[k] += totals[k + 8]
        products[k] += products[k + 8]
    for k in range(4):
        totals[k] += totals[k + 4]
        products[k] += products[k + 4]
    total = (totals[0] + totals[2]) + (totals[1] + totals[3])
    return total, (products[0] + products[2]) + (products[1] + products[3])

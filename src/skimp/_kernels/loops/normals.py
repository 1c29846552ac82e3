"""Normal numbers of mt19937's words, as PyTorch's AVX2 kernel makes them (`random/boxmuller.py`):
each step that it fuses is rounded once."""

from __future__ import annotations

from typing import Any

from cython.parallel import prange

from skimp._kernels.loops.arithmetic import (
    _bits,
    _float_of,
    _into,
    _once,
    _rounded,
    _single,
    _whole_of,
    rows_floats,
    rows_new,
    rows_words,
    sqrt,
)


def normals(words: Any, out: Any, std: Any, mean: Any, threads: Any) -> None:
    """out = numbers of this deviation and mean, by so many threads: 16 of 16 words each; where the
    last 16 are incomplete, they are made anew of the 16 words behind those of all."""
    n = out.shape[0]
    groups, std, mean = n // 16, _rounded(std), _rounded(mean)
    given, to = _bits(words), _into(out)
    if threads < 2:
        _normals(given, to, 0, groups, std, mean)
    else:
        for t in prange(threads, nogil=True, num_threads=threads, schedule="static", chunksize=1):
            _normals(given, to, t * groups // threads, (t + 1) * groups // threads, std, mean)
    if n % 16:
        _sixteen(given, n, to, n - 16, std, mean)


def made_normals(words: Any, at: Any, n: Any) -> Any:
    """So many standard ones of the words from `at` on, as a new array."""
    given, out = rows_words(words, at, n + 16 if n % 16 else n), rows_new(n)
    to, one, zero = rows_floats(out), 1, 0
    _normals(given, to, 0, n // 16, _rounded(one), _rounded(zero))
    if n % 16:
        _sixteen(given, n, to, n - 16, _rounded(one), _rounded(zero))
    return out


def _normals(words: Any, out: Any, first: Any, last: Any, std: Any, mean: Any) -> None:
    for k in range(first, last):
        _sixteen(words, 16 * k, out, 16 * k, std, mean)


def _sixteen(words: Any, at: Any, out: Any, to: Any, std: Any, mean: Any) -> None:
    """8 radii and 8 angles make 8 cosines and 8 sines of that length."""
    for i in range(8):
        r, u = _radius(words[at + i]), words[at + 8 + i] & 0xFFFFFF
        quarter = (u + 0x200000) >> 22  # the nearest quarter of a turn, 0 to 4
        x = _angle(u, quarter)
        even, odd = _even(x * x), _odd(x, x * x)
        c, s = (odd, even) if quarter & 1 else (even, odd)
        c = -c if (quarter + 1) & 2 else c
        s = -s if quarter & 2 else s
        out[to + i] = _once(c * r, std, mean)
        out[to + 8 + i] = _once(s * r, std, mean)


def _radius(word: Any) -> Any:
    """sqrt(-2 log(1 - u)), u the uniform of the word's low 24 bits; 1 - u = (1 + x) * 2**e, where
    sqrt(1/2) <= 1 + x < sqrt(2)."""
    c8, c7, c6 = 0.07037683576345444, -0.11514610052108765, 0.11676998436450958
    c5, c4, c3 = -0.12420140951871872, 0.14249323308467865, -0.16668057441711426
    c2, c1, c0 = 0.2000071406364441, -0.24999994039535522, 0.3333333134651184
    low, high, half, one, two = -0.00021219444170128554, 0.693359375, 0.5, 1.0, -2.0
    bits = _whole_of(_single(0x1000000 - (word & 0xFFFFFF))) - 0x4B3504F3
    e = _single(bits >> 23)
    x = _float_of((bits & 0x7FFFFF) + 0x3F3504F3) - one
    y = _once(_once(_once(_once(x, c8, c7), x, c6), x, c5), x, c4)
    y = _once(_once(_once(_once(y, x, c3), x, c2), x, c1), x, c0) * x
    z = x * x
    y = _once(y, z, e * low) - z * half
    return sqrt(((x + y) + e * high) * two)


def _angle(u: Any, quarter: Any) -> Any:
    """What the angle of u steps, 2**-24 of a turn each, is from that quarter; of three parts of a
    right angle two are taken away exactly."""
    step = 3.7450703871400037e-07
    first, second, third = -1.5703125, -0.0004837512969970703, -7.549790126404332e-08
    q = _single(quarter)
    return _once(q, third, _once(q, second, _once(q, first, _single(u) * step)))


def _even(z: Any) -> Any:
    c2, c1, c0 = 2.44331567955669e-05, -0.0013887316454201937, 0.04166664555668831
    half, one = -0.5, 1.0
    y = _once(_once(z, c2, c1), z, c0) * z
    return _once(y, z, z * half) + one


def _odd(x: Any, z: Any) -> Any:
    c2, c1, c0 = -0.00019515295571181923, 0.008332161232829094, -0.16666655242443085
    y = _once(_once(z, c2, c1), z, c0) * z
    return _once(y, x, x)

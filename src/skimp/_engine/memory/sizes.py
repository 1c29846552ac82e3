"""Numbers of bytes, read and written as people write them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1 << 10, "kib": 1 << 10, "kb": 10**3,
    "m": 1 << 20, "mib": 1 << 20, "mb": 10**6,
    "g": 1 << 30, "gib": 1 << 30, "gb": 10**9,
    "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
}  # fmt: skip
_SIZE: Final = re.compile(r"\s*(\d[\d_]*(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def parse_size(size: int | str) -> int:
    """Bytes in `2147483648`, `"2GiB"`, `"1.5 G"` (powers of 1024) or `"500MB"` (powers of 1000).

    Raises: ValueError for text that is no size, and below 0.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise ValueError(f"a size can't be negative; got {size}")
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f'a size is bytes or text like "2GiB", "1.5G" or "500MB"; got {size!r}')
    number, unit = match[1].replace("_", ""), _UNITS[match[2].lower()]
    return int(number) * unit if number.isdigit() else int(float(number) * unit)


def exact(nbytes: int) -> str:
    """The same with every byte: `381.47 MiB (400000000 bytes)`."""
    text = readable(nbytes)
    return text if text.endswith("bytes") else f"{text} ({nbytes} bytes)"


def readable(nbytes: int) -> str:
    """Two decimals at most, in powers of 1024: `381.47 MiB`."""
    if abs(nbytes) < 1024:
        return f"{nbytes} bytes"
    value = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if abs(value) < 1024:
            return f"{value:.2f} {unit}"
    return f"{value / 1024:.2f} TiB"

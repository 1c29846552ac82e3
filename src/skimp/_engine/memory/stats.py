"""The counters under PyTorch's names.

Each takes PyTorch's `device` argument and counts the host whichever it names. Each has deferred
results materialized first, so that the numbers do not depend on what is deferred. None raises: a
result that there is no room for within a limit or a budget is not counted.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from skimp._engine.memory import allocator
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import count_pending, host
from skimp._engine.memory.sizes import readable
from skimp._engine.memory.tally import Tally


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors asked for and have now."""
    count_pending()
    return host.allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors had at once since `reset_peak_memory_stats`."""
    count_pending()
    return host.peak


def memory_reserved(device: Any = None) -> int:
    """Bytes that are held from the system: those allocated, rounding, and what is cached."""
    count_pending()
    return _reserved().current


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were. Tensors below 256 KiB beside a full cache may be missing."""
    count_pending()
    return _reserved().peak


def reset_peak_memory_stats(device: Any = None) -> None:
    """Measure peaks from here on. Open regions keep theirs."""
    count_pending()
    host.reset_peak()
    pool.reset_peaks()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Count sums (the `allocated` and `freed` keys of `memory_stats`) and refusals from here on."""
    _base.clear()
    _base.update({key: value for key, value in memory_stats().items() if _accumulates(key)})


def empty_cache() -> int:
    """Give cached memory back to the system; returns how many bytes that were."""
    return pool.empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the machine, or of the container that limits the process."""
    return allocator.free_memory(), allocator.total_memory()


# -- everything at once ----------------------------------------------------------------------------


class Family(NamedTuple):
    """The four metrics of one statistic."""

    current: int
    peak: int
    allocated: int
    freed: int


ZERO: Final = Family(0, 0, 0, 0)
_base: Final[dict[str, int]] = {}  # what `reset_accumulated_memory_stats` found


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """All counters, under the keys of torch.cuda.memory_stats.

    `large_pool` is what the caching allocator serves (256 KiB and more), `small_pool` is the rest,
    which NumPy allocates. Peaks of `small_pool`, and of the number of allocations, are lower
    bounds: exact ones would cost every small op time. Nothing here waits for a stream, and what is
    free beside blocks in use is cached like any other, not an inactive split.
    """
    count_pending()
    flat = _counters()
    for statistic, pools in _families().items():
        for name, family in pools.items():
            for metric, value in family._asdict().items():
                flat[f"{statistic}.{name}.{metric}"] = value
    return OrderedDict(sorted((key, value - _base.get(key, 0)) for key, value in flat.items()))


def _accumulates(key: str) -> bool:
    return key.endswith((".allocated", ".freed")) or key in ("num_alloc_retries", "num_ooms")


def _counters() -> dict[str, int]:
    return {
        "max_split_size": -1,
        "num_alloc_retries": pool.retries,
        "num_device_alloc": pool.segments.allocated,
        "num_device_free": pool.segments.freed,
        "num_ooms": host.ooms,
        "num_sync_all_streams": 0,
        **dict.fromkeys((f"oversize_allocations.{m}" for m in Family._fields), 0),
        **dict.fromkeys((f"oversize_segments.{m}" for m in Family._fields), 0),
    }


def _families() -> dict[str, dict[str, Family]]:
    count = _split(Family(*_counts()), _family(pool.leases))
    size = _split(_allocated(), _family(pool.asked))
    reserved = {
        "all": _reserved(),
        "large_pool": _family(pool.held),
        "small_pool": size["small_pool"],
    }
    segments = {
        "all": _family(pool.segments),
        "large_pool": _family(pool.segments),
        "small_pool": ZERO,
    }
    none = dict.fromkeys(("all", "large_pool", "small_pool"), ZERO)
    return {
        "active": count,
        "active_bytes": size,
        "allocated_bytes": size,
        "allocation": count,
        "inactive_split": none,
        "inactive_split_bytes": none,
        "requested_bytes": size,  # what rounding adds is reserved, not allocated
        "reserved_bytes": reserved,
        "segment": segments,
    }


def _counts() -> tuple[int, int, int, int]:
    living = host.made - host.dropped
    return living, max(host.most_made, living), host.made, host.dropped


def _allocated() -> Family:
    return Family(host.allocated, host.peak, host.total, host.freed)


def _family(tally: Tally) -> Family:
    return Family(tally.current, tally.peak, tally.allocated, tally.freed)


def _split(everything: Family, large: Family) -> dict[str, Family]:
    """What is not large is small. A small peak is at least what the peaks differ by."""
    current, peak, allocated, freed = (
        max(a - b, 0) for a, b in zip(everything, large, strict=True)
    )
    small = Family(current, max(peak, current), allocated, freed)
    return {"all": everything, "large_pool": large, "small_pool": small}


def _reserved() -> Family:
    small = _split(_allocated(), _family(pool.asked))["small_pool"]
    large = _family(pool.held)
    current = pool.measure()
    return Family(
        current,
        max(current, pool.most, large.peak, host.peak),
        small.allocated + large.allocated,
        small.freed + large.freed,
    )


# -- a table for people ----------------------------------------------------------------------------

_ROWS: Final = (
    ("Allocated memory", "allocated_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("Reserved memory", "reserved_bytes", True),
    ("Allocations", "allocation", False),
    ("Reserved segments", "segment", False),
)
_POOLS: Final = (("", "all"), ("      large", "large_pool"), ("      small", "small_pool"))
_WIDTHS: Final = (18, 15, 15, 15, 15)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counters as a table; `abbreviated` leaves out the two pools."""
    stats = memory_stats()
    rule = "|" + "=" * (sum(_WIDTHS) + 3 * len(_WIDTHS) - 1) + "|"
    title = "skimp memory summary: host"
    ooms = f"out of memory: {stats['num_ooms']}    retries: {stats['num_alloc_retries']}"
    lines = [rule, _line([f"{title:<44}{ooms}"], (len(rule) - 4,)), rule]
    lines += [_line(["Metric", "Current", "Peak", "Total allocated", "Total freed"], _WIDTHS), rule]
    for name, statistic, in_bytes in _ROWS:
        for label, part in _POOLS[: 1 if abbreviated else None]:
            values = [stats[f"{statistic}.{part}.{metric}"] for metric in Family._fields]
            cells = [readable(v) if in_bytes else str(v) for v in values]
            lines.append(_line([label or name, *cells], _WIDTHS))
        lines.append(rule)
    return "\n".join(lines) + "\n"


def _line(cells: list[str], widths: tuple[int, ...]) -> str:
    padded = [
        f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"

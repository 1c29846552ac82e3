"""The counters under PyTorch's names."""

from __future__ import annotations

from hypothesis import given, strategies as st

import skimp
from skimp._engine.memory import stats
from skimp._engine.memory.caching import pool
from skimp._engine.memory.ledger import host
from skimp._engine.memory.regions import region
from skimp._engine.memory.sizes import readable
from tests.support.books import Owner

MIB = 1 << 20


def test_counters_count_the_host() -> None:
    stats.reset_peak_memory_stats()
    base = stats.memory_allocated()
    a = Owner(1000, host)
    b = Owner(500, host)
    del b
    assert stats.memory_allocated("cuda") == stats.memory_allocated(0) == base + 1000
    assert stats.max_memory_allocated() == base + 1500
    stats.reset_peak_memory_stats()
    assert stats.max_memory_allocated() == base + 1000
    del a


@given(st.lists(st.integers(0, 1 << 21), max_size=12))
def test_allocated_is_what_tensors_asked_for(sizes: list[int]) -> None:
    base, held = stats.memory_allocated(), []
    stats.reset_peak_memory_stats()
    with region() as r:
        held = [skimp.empty(n, dtype=skimp.uint8) for n in sizes]
        assert stats.memory_allocated() - base == sum(sizes)
        assert stats.memory_reserved() >= stats.memory_allocated()
    found = stats.memory_stats()
    assert r.peak - base == r.allocated == r.kept == r.extra == sum(sizes)
    assert stats.max_memory_allocated() - base == sum(sizes)
    assert found["allocated_bytes.all.current"] == found["requested_bytes.all.current"]
    assert found["allocated_bytes.all.current"] - base == sum(sizes)
    del held
    assert stats.memory_allocated() == base


def test_a_deferred_storage_and_its_block_are_what_was_asked_for() -> None:
    x = skimp.zeros(1025, 1025)
    base = stats.memory_allocated()
    assert x.nbytes == 4_202_500
    y = (x + 1).relu()
    assert stats.memory_allocated() - base == 4_202_500
    y.untyped_storage().resize_(3_000_001)
    assert stats.memory_allocated() - base == 3_000_001
    del y
    assert stats.memory_allocated() == base


def test_reserved_is_never_less_than_allocated() -> None:
    a = Owner(1000, host)
    b = pool.take(4 * MIB)
    owner = Owner(b.nbytes, host)
    reserved = stats.memory_reserved()
    assert reserved >= stats.memory_allocated()
    assert reserved >= pool.reserved + 1000
    assert stats.max_memory_reserved() >= stats.max_memory_allocated()
    del b, owner
    assert stats.memory_reserved() == reserved  # it is cached
    given = stats.empty_cache()
    assert given >= 4 * MIB
    assert stats.memory_reserved() == reserved - given
    del a


KEYS = (
    "active",
    "active_bytes",
    "allocated_bytes",
    "allocation",
    "inactive_split",
    "inactive_split_bytes",
    "requested_bytes",
    "reserved_bytes",
    "segment",
)


def test_memory_stats_has_pytorchs_keys() -> None:
    found = stats.memory_stats()
    assert list(found) == sorted(found)
    for statistic in KEYS:
        for part in ("all", "small_pool", "large_pool"):
            for metric in ("current", "peak", "allocated", "freed"):
                assert found[f"{statistic}.{part}.{metric}"] >= 0
    for name in ("num_alloc_retries", "num_ooms", "oversize_segments.peak", "max_split_size"):
        assert name in found


def test_memory_stats_tells_the_pools_apart() -> None:
    pool.empty_cache()
    stats.reset_peak_memory_stats()
    before = stats.memory_stats()
    small = Owner(1000, host)
    big = pool.take(400_000_000)
    owner = Owner(400_000_000, host)
    after = stats.memory_stats()
    change = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    for metric in ("current", "allocated", "peak"):
        assert change[f"allocated_bytes.all.{metric}"] == 400_000_000 + 1000
        assert change[f"allocated_bytes.large_pool.{metric}"] == 400_000_000
        assert change[f"allocated_bytes.small_pool.{metric}"] == 1000
        assert change[f"requested_bytes.all.{metric}"] == 400_000_000 + 1000
        assert change[f"reserved_bytes.all.{metric}"] == 382 * MIB + 1000
        assert change[f"allocation.all.{metric}"] == 2
        assert change[f"allocation.large_pool.{metric}"] == 1
        assert change[f"segment.all.{metric}"] == 1
    assert change["num_device_alloc"] == 1
    assert not [key for key in change if key.endswith(".freed")]
    del small, big, owner
    end = stats.memory_stats()
    assert end["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
    assert end["reserved_bytes.all.current"] >= 382 * MIB
    pool.empty_cache()


def test_sums_start_anew() -> None:
    Owner(1000, host)
    stats.reset_accumulated_memory_stats()
    assert stats.memory_stats()["allocated_bytes.all.allocated"] == 0
    Owner(70, host)
    found = stats.memory_stats()
    assert found["allocated_bytes.all.allocated"] == found["allocated_bytes.all.freed"] == 70
    assert found["allocation.all.allocated"] == 1
    stats.reset_accumulated_memory_stats()
    assert stats.memory_stats()["allocated_bytes.all.allocated"] == 0


def test_the_summary_is_a_table() -> None:
    lines = stats.memory_summary().splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(stats.memory_summary(abbreviated=True)) < len("\n".join(lines))
    row = next(line for line in lines if line.startswith("| Allocated memory"))
    assert readable(host.allocated) in row

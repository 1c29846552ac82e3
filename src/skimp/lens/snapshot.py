"""A report in the format of PyTorch's memory snapshots, which its page memory_viz opens.

Every allocation has an address of its own: blocks that lie where others lay before are told apart.
The history has the steps whose allocations the report kept, and what was alive when they began.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Final

from skimp.lens.data import Report

_FIRST: Final = 0x7F0000000000  # the first address
_ALIGN: Final = 512


def snapshot(report: Report) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot()` gives: `device_traces` (one device: the host) with
    `alloc`, `free_requested` and `free_completed` in order, `segments` with the blocks that are
    alive, each with the program's stack, innermost line first.
    """
    detail = report.detail
    addresses = _addresses(report)
    frames = [_frames(report, place) for place in range(len(report.places))]
    events: list[tuple[int, dict[str, Any]]] = []
    for i, order in enumerate(detail.order):
        base = {
            "addr": addresses[i],
            "size": detail.bytes[i],
            "stream": 0,
            "frames": frames[detail.place[i]],
        }
        born = {"action": "alloc", **base, "time_us": round(detail.born[i] * 1e6)}
        events.append((order, born))
        if detail.gone[i] >= 0:
            gone = {**base, "time_us": round(detail.freed[i] * 1e6)}
            events.append((detail.gone[i], {"action": "free_requested", **gone}))
            events.append((detail.gone[i], {"action": "free_completed", **gone}))
    events.sort(key=lambda event: event[0])
    return {
        "segments": _segments(report, addresses, frames),
        "device_traces": [[event for _, event in events]],
        "allocator_settings": {},
        "external_annotations": [
            {"stage": "START", "name": m.kind, "device": 0, "time_us": round(m.start * 1e6)}
            for m in report.marks
        ],
    }


def dump(report: Report, path: str | Path) -> None:
    """Write it as a file that memory_viz opens: a pickle."""
    Path(path).write_bytes(pickle.dumps(snapshot(report)))


def _addresses(report: Report) -> list[int]:
    found = []
    at = _FIRST
    for nbytes in report.detail.bytes:
        found.append(at)
        at += -(-max(nbytes, 1) // _ALIGN) * _ALIGN
    return found


def _frames(report: Report, number: int) -> list[dict[str, Any]]:
    place = report.places[number]
    stack = [report.frames[i] for i in reversed(place.stack)]
    op = {"filename": f"skimp:{place.module}", "line": 0, "name": f"{place.op} ({place.phase})"}
    return [op, *[{"filename": f.file, "line": f.line, "name": f.function} for f in stack]]


def _segments(
    report: Report, addresses: list[int], frames: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    detail = report.detail
    found = []
    for i, nbytes in enumerate(detail.bytes):
        if detail.gone[i] >= 0:
            continue
        block = {
            "address": addresses[i],
            "size": nbytes,
            "requested_size": nbytes,
            "state": "active_allocated",
            "frames": frames[detail.place[i]],
        }
        found.append(
            {
                "device": 0,
                "address": addresses[i],
                "total_size": nbytes,
                "allocated_size": nbytes,
                "active_size": nbytes,
                "requested_size": nbytes,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [block],
            }
        )
    return found

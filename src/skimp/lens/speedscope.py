"""The peak as a file for speedscope.app: the program's stacks, weighed by their bytes."""

from __future__ import annotations

import json

from skimp.lens.data import Report


def to_speedscope(report: Report) -> str:
    """JSON of speedscope's format: one sampled profile, in bytes, that adds up to the peak."""
    frames: list[dict[str, object]] = [
        {"name": f.function, "file": f.file, "line": f.line} for f in report.frames
    ]
    ops: dict[str, int] = {}
    samples = []
    for held in report.peak.held:
        name = " ".join(filter(None, [held.place.op, held.role, held.module]))
        at = ops.setdefault(name, len(report.frames) + len(ops))
        samples.append([*held.place.stack, at])
    frames += [{"name": name} for name in ops]
    weights = [held.bytes for held in report.peak.held]
    profile = {
        "type": "sampled",
        "name": f"{report.program}: the peak",
        "unit": "bytes",
        "startValue": 0,
        "endValue": report.peak.bytes,
        "samples": samples,
        "weights": weights,
    }
    content = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": frames},
        "profiles": [profile],
        "exporter": "skimp",
    }
    return json.dumps(content)

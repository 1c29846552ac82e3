"""A report in the formats of other tools: PyTorch's memory snapshot, speedscope."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import skimp as torch
from skimp import lens, nn
from skimp._engine.memory.ledger import host
from skimp.lens import Recording
from tests.support.running import skimp as command, write


def trained() -> lens.Report:
    net = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters())
    with Recording("train.py") as recording:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(16, 32)).sum().backward()
            optimizer.step()
        return recording.report()


def peak(trace: list[dict[str, Any]]) -> tuple[int, int]:
    """The most and the last bytes, as memory_viz adds a history up."""
    live: dict[int, int] = {}
    most = 0
    for event in trace:
        if event["action"] == "alloc":
            assert event["addr"] not in live
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"]) == event["size"]
        most = max(most, sum(live.values()))
    return most, sum(live.values())


def test_the_history_adds_up_to_the_peak_and_to_what_is_alive() -> None:
    report = trained()
    made = lens.snapshot(report)
    (trace,) = made["device_traces"]
    assert peak(trace) == (report.peak.bytes, report.live)
    alive = [b for s in made["segments"] for b in s["blocks"]]
    assert sum(b["size"] for b in alive) == report.live
    assert {b["state"] for b in alive} == {"active_allocated"}
    functions = {f["name"] for event in trace for f in event["frames"]}
    assert {"trained", "linear (forward)", "AddmmBackward0 (backward)"} <= functions


def test_pytorch_finds_its_own_fields() -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    made = lens.snapshot(trained())
    assert "add_local_files" in viz.trace_plot(made)  # it packs the history into its page


def test_pytorchs_functions_record_and_dump(tmp_path: Path) -> None:
    torch.cuda.memory._record_memory_history(max_entries=1000)
    kept = torch.ones(1000)
    torch.cuda.memory._dump_snapshot(str(tmp_path / "s.pickle"))
    shown = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    written = pickle.loads((tmp_path / "s.pickle").read_bytes())
    assert [e["size"] for e in shown["device_traces"][0]] == [4000]
    assert [e["size"] for e in written["device_traces"][0]] == [4000]
    assert torch.cuda.memory._snapshot()["device_traces"] == [[]]
    assert not host.watched
    assert kept.shape == (1000,)
    with pytest.raises(RuntimeError, match="call _record_memory_history"):
        torch.cuda.memory._dump_snapshot()


def test_speedscope_adds_up_to_the_peak() -> None:
    report = trained()
    made = json.loads(lens.to_speedscope(report))
    (profile,) = made["profiles"]
    assert sum(profile["weights"]) == profile["endValue"] == report.peak.bytes
    count = len(made["shared"]["frames"])
    assert all(0 <= i < count for sample in profile["samples"] for i in sample)


def test_run_writes_them(tmp_path: Path) -> None:
    script = write(tmp_path, "import torch\nx = torch.ones(1000)\n")
    for name in ("r.snapshot", "r.speedscope.json"):
        done = command("run", "--quiet", "--report", name, script, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    written = pickle.loads((tmp_path / "r.snapshot").read_bytes())
    assert peak(written["device_traces"][0])[0] == 4000
    assert json.loads((tmp_path / "r.speedscope.json").read_text())["profiles"]


def test_a_recording_is_reached_from_the_public_module() -> None:
    with torch.memory.record() as r:
        x = torch.ones(1000)
        text = str(r)
    assert "peak" in text
    assert r.report().peak.bytes == 4000
    assert x.shape == (1000,)

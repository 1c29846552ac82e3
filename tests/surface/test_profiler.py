"""torch.profiler: events are those of the ops called, nested, and nothing is watched afterwards."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import skimp
from skimp._engine.autograd import watched
from skimp._engine.eval import run
from skimp._engine.tensor import regions
from skimp.profiler import ProfilerAction, profile, record_function, schedule


def counts(prof: Any) -> dict[str, int]:
    return {row.key: row.count for row in prof.key_averages()}


def program(t: Any) -> None:
    x = t.ones(4, 3, requires_grad=True)
    w = t.ones(3, 2)
    with t.profiler.record_function("forward"):
        y = t.mm(x, w).exp()
        y = y + 1
    y.sum().backward()


def test_ops_are_counted_as_pytorch_counts_them() -> None:
    with profile() as prof:
        program(skimp)
    with torch.profiler.profile() as theirs:
        program(torch)
    got = counts(prof)
    want = {row.key: row.count for row in theirs.key_averages()}
    for name in ("aten::exp", "aten::sum", "forward"):
        assert got[name] == want[name], name
    assert got["aten::add"] >= 1  # the operator may call the function
    for node in ("MmBackward0", "ExpBackward0", "SumBackward0"):
        name = f"autograd::engine::evaluate_function: {node}"
        assert got[name] == want[name] == 1
    nodes = [{n: c for n, c in each.items() if "evaluate_function" in n} for each in (got, want)]
    assert nodes[0] == nodes[1]


def test_nodes_and_optimizers_steps_have_rows_of_their_own() -> None:
    rows = []
    for t, profiled in ((skimp, profile), (torch, torch.profiler.profile)):
        net = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Linear(8, 2))
        optimizer = t.optim.AdamW(net.parameters())
        with profiled() as prof:
            for _ in range(2):
                net(t.ones(3, 4)).sum().backward()
                optimizer.step()
        words = ("Backward", "AccumulateGrad", "Optimizer.step")
        rows.append({k: n for k, n in counts(prof).items() if any(w in k for w in words)})
    assert rows[0] == rows[1]
    assert rows[0]["Optimizer.step#AdamW.step"] == rows[0]["ReluBackward0"] == 2


def test_a_step_that_fails_ends() -> None:
    """What comes after it is no part of it, and the bytes of all rows are PyTorch's."""
    rows = []
    for t, profiled in ((skimp, profile), (torch, torch.profiler.profile)):
        net = t.nn.Linear(3, 3)
        optimizer = t.optim.SGD(net.parameters())
        with profiled(profile_memory=True) as prof:
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    optimizer.step(lambda: 1 / 0)
                x = t.ones(1000)
                del x
        row = {row.key: row for row in prof.key_averages()}["Optimizer.step#SGD.step"]
        rows.append((row.count, row.cpu_memory_usage, row.self_cpu_memory_usage))
        events = [e for e in prof.events() if e.name in ("Optimizer.step#SGD.step", "aten::ones")]
        assert [e.name[:4] for e in events] == ["Opti", "aten"] * 2  # in the order of beginnings
    assert rows[0] == rows[1] == (2, 0, 0)


def test_times_nest() -> None:
    with profile() as prof, record_function("outer"):
        with record_function("inner"):
            skimp.rand(100, 100).exp()
        skimp.rand(100, 100).exp()
    rows = {row.key: row for row in prof.key_averages()}
    outer, inner = rows["outer"], rows["inner"]
    assert outer.cpu_time_total >= inner.cpu_time_total > inner.self_cpu_time_total > 0
    assert prof.key_averages().self_cpu_time_total == pytest.approx(outer.cpu_time_total)
    assert rows["aten::exp"].cpu_time * 2 == pytest.approx(rows["aten::exp"].cpu_time_total)
    assert outer.is_user_annotation
    assert not rows["aten::exp"].is_user_annotation


def test_bytes_are_the_ledgers() -> None:
    with profile(profile_memory=True) as prof:
        x = skimp.zeros(1000)
        y = skimp.ones(1000)
        del x
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["aten::zeros"].cpu_memory_usage == 4000
    assert rows["aten::ones"].cpu_memory_usage == 4000
    assert "3.91 KB" in prof.key_averages().table()
    assert y.numel() == 1000


def test_shapes_are_recorded_if_asked() -> None:
    with profile(record_shapes=True) as prof:
        skimp.mm(skimp.ones(2, 3), skimp.ones(3, 4))
        skimp.mm(skimp.ones(5, 3), skimp.ones(3, 4))
    rows = [r for r in prof.key_averages(group_by_input_shape=True) if r.key == "aten::mm"]
    assert sorted(str(r.input_shapes[:2]) for r in rows) == ["[[2, 3], [3, 4]]", "[[5, 3], [3, 4]]"]
    assert "[2, 3], [3, 4]" in prof.key_averages(group_by_input_shape=True).table()


def test_tables_are_sorted_and_cut() -> None:
    with profile() as prof:
        for _ in range(3):
            skimp.ones(2).neg()
        skimp.ones(2).exp()
    text = prof.key_averages().table(sort_by="count", row_limit=2, header="of the test")
    lines = text.splitlines()
    assert lines[1] == "of the test"
    assert [line.split()[0] for line in lines[5:7]] == ["aten::ones", "aten::neg"]
    assert "aten::exp" not in text
    with pytest.raises(AttributeError, match=r"sort_by='colour'.*cpu_time_total"):
        prof.key_averages().table(sort_by="colour")


@pytest.mark.parametrize(
    "words",
    [
        {"wait": 1, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 2, "active": 1, "repeat": 2},
        {"wait": 1, "warmup": 0, "active": 3, "repeat": 1, "skip_first": 2},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*warmup.*:UserWarning")
def test_schedules_are_pytorchs(words: dict[str, int]) -> None:
    ours, theirs = schedule(**words), torch.profiler.schedule(**words)
    assert [ours(i).name for i in range(15)] == [theirs(i).name for i in range(15)]


def test_steps_follow_the_schedule() -> None:
    ready = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=lambda p: ready.append(counts(p))) as prof:
        for _ in range(9):
            skimp.ones(2).exp()
            prof.step()
        assert prof.current_action is ProfilerAction.NONE
    assert [found["aten::exp"] for found in ready] == [2, 2]
    assert "ProfilerStep#2" in ready[0]
    assert "ProfilerStep#3" in ready[0]


def test_traces(tmp_path: Path) -> None:
    handler = skimp.profiler.tensorboard_trace_handler(str(tmp_path), "me", use_gzip=True)
    with profile(on_trace_ready=handler) as prof:
        prof.add_metadata("note", "here")
        program(skimp)
    (path,) = tmp_path.glob("me.*.pt.trace.json.gz")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = {e["name"]: e for e in trace["traceEvents"]}
    assert trace["note"] == "here"
    inner, outer = events["aten::exp"], events["forward"]
    assert outer["cat"] == "user_annotation"
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    prof.export_chrome_trace(tmp_path / "plain.json")
    assert json.loads((tmp_path / "plain.json").read_text()) == trace


def memory_events(t: Any, path: Path) -> list[dict[str, Any]]:
    before = t.empty(50)  # nobody's business
    with t.profiler.profile(profile_memory=True) as prof:
        x = t.empty(16, 16)
        y = t.mm(x, x)
        del before
        z = t.cat([x, y])
        del x
        del y, z
    prof.export_chrome_trace(str(path))
    found = json.loads(path.read_text())["traceEvents"]
    return [e for e in found if e["name"] == "[memory]"]


def test_traces_have_the_memory_events_of_pytorch(tmp_path: Path) -> None:
    ours, theirs = (memory_events(t, tmp_path / t.__name__) for t in (skimp, torch))
    keys = ("Bytes", "Total Allocated", "Device Type", "Device Id", "Total Reserved")
    assert [[e["args"][k] for k in keys] for e in ours] == [
        [e["args"][k] for k in keys] for e in theirs
    ]
    for name in ("ph", "cat", "s", "name", "pid"):
        assert {e[name] for e in ours} == {e[name] for e in theirs}
    assert [e["ts"] for e in ours] == sorted(e["ts"] for e in ours)
    with profile() as prof:
        skimp.ones(3).exp()
    prof.export_chrome_trace(tmp_path / "without")
    assert "[memory]" not in (tmp_path / "without").read_text()


def nobody() -> None:
    assert [*regions.active, *watched.ON, *run.OBSERVERS] == []
    assert sys.getprofile() is None


def test_nothing_is_watched_outside() -> None:
    nobody()
    with profile():
        assert regions.active
    with pytest.raises(ZeroDivisionError), profile():
        _ = 1 / 0
    nobody()
    with record_function("alone"):
        skimp.ones(1)


def test_what_fails_ends_there() -> None:
    """Ops and nodes that raise end with their callers; another thread's calls are not recorded."""
    x = skimp.ones(2, 3, requires_grad=True)
    y = x.exp().sin()
    y.register_hook(lambda g: g.no_such_name)
    with profile() as prof:
        with pytest.raises(RuntimeError):
            skimp.mm(x, x)
        with pytest.raises(AttributeError):
            y.sum().backward()
        thread = threading.Thread(target=lambda: skimp.ones(3).cos().sum().item())
        thread.start()
        thread.join()
        with profile() as inner:
            skimp.ones(3).tan()
    found = {e.name: e for e in prof.events()}
    assert found["aten::mm"].depth == found["aten::tan"].depth == 0
    assert "aten::cos" not in found
    assert counts(inner)["aten::tan"] == counts(prof)["aten::tan"] == 1
    assert all(e.end >= e.start for e in prof.events())


def test_the_older_form() -> None:
    older = skimp.autograd.profiler
    with older.profile(profile_memory=True) as prof, older.record_function("all"):
        skimp.ones(3).exp()
    assert counts(prof)["all"] == 1
    assert prof.self_cpu_time_total > 0
    assert "aten::exp" in prof.table(sort_by="cpu_time_total")
    with pytest.raises(RuntimeError, match=r"emit_nvtx: there is no CUDA"):
        skimp.autograd.profiler.emit_nvtx()


def test_variables_are_tensors() -> None:
    for t in (torch, skimp):
        x = t.ones(2)
        v = t.autograd.Variable(x, requires_grad=True)
        assert (v.requires_grad, x.requires_grad, v.data_ptr() == x.data_ptr()) == (
            True,
            False,
            True,
        )
        assert isinstance(x, t.autograd.Variable)
        assert not isinstance(3, t.autograd.Variable)


@pytest.mark.parametrize(
    "by", ["self_cpu_memory_usage", "cpu_memory_usage", "cpu_time_total", "self_cpu_time_total"]
)
def test_tables_are_sorted_by_what_pytorchs_are(by: str) -> None:
    with profile(profile_memory=True) as prof:
        kept = [skimp.nn.functional.softmax(skimp.ones(1 << n), 0) for n in (4, 12, 16)]
    rows = prof.key_averages()
    text = rows.table(sort_by=by)
    listed = [line.split()[0] for line in text.splitlines() if "aten::" in line]
    assert listed == [r.key for r in sorted(rows, key=lambda r: -getattr(r, by))]
    assert "Self CPU Mem" in text
    assert sum([r.self_cpu_memory_usage for r in rows]) >= 4 * sum([t.numel() for t in kept])


ALONE = (1, 2, 3, 6)  # parameters, optimizer state, inputs, gradients: the same in both libraries


def steps(library: Any, path: Path) -> Any:
    """Three training steps, with their memory timeline written."""
    profiler, nn = library.profiler, library.nn
    net = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 8))
    optimizer = library.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    wanted = {"profile_memory": True, "record_shapes": True, "with_stack": True}
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], **wanted) as p:
        for _ in range(3):
            optimizer.zero_grad()
            net(library.randn(32, 64)).sum().backward()
            optimizer.step()
    with pytest.warns(FutureWarning, match="`export_memory_timeline` is deprecated"):
        p.export_memory_timeline(str(path), device="cpu")
    return p


def test_the_memory_timeline_has_pytorchs_categories(tmp_path: Path) -> None:
    most = []
    for library in (torch, skimp):
        path = tmp_path / f"{library.__name__}.json"
        p = steps(library, path)
        times, sizes = json.loads(path.read_text())
        assert len(times) == len(sizes)
        assert {len(row) for row in sizes} == {9}
        most.append([max(row[i] for row in sizes) for i in ALONE])
    assert most[0] == most[1]
    for end in (".json.gz", ".raw.json.gz", ".html"):
        with pytest.warns(FutureWarning):
            p.export_memory_timeline(str(tmp_path / f"all{end}"))
    raw = json.loads(gzip.decompress((tmp_path / "all.raw.json.gz").read_bytes()))
    assert sum(more for _, _, more, _ in raw) == sum(sizes[-1])
    assert "Memory over time, by role" in (tmp_path / "all.html").read_text()


def test_a_memory_timeline_needs_all_that_pytorchs_does(tmp_path: Path) -> None:
    with profile(profile_memory=True) as p:
        pass
    words = "record_shapes=True, with_stack=True required for memory profiling"
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match=words):
        p.export_memory_timeline(str(tmp_path / "all.json"))


def test_a_profile_within_a_recording_uses_it(tmp_path: Path) -> None:
    with skimp.memory.record() as recording:
        steps(skimp, tmp_path / "all.json")
        assert recording.report().allocations > 0


def test_a_mark_for_nvidias_profilers_raises_where_it_is_entered() -> None:
    """Not where a function is decorated with one, which libraries do when they are imported."""
    for lib in (skimp, torch):
        mark = lib.cuda.nvtx.range("step {}", 1)
        with pytest.raises(RuntimeError, match="NVTX functions not installed"), mark:
            pass

        @lib.cuda.nvtx.range("f")
        def f() -> None:
            pass

        with pytest.raises(RuntimeError, match="NVTX functions not installed"):
            f()

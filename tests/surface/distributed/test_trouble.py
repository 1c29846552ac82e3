"""Launched ranks: what is printed, in which order, and with which exit code, when one fails."""

from __future__ import annotations

import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skimp import cli
from skimp.cli import launch
from skimp.distributed import mpi
from skimp.distributed.errors import DistStoreError
from skimp.distributed.joining import init_process_group
from skimp.distributed.stores import HashStore
from tests.support import ranks
from tests.support.ranks import launched

PROGRAM = Path(__file__).with_name("trouble.py")


WAITING = len(PROGRAM.read_text().rstrip().split("\n"))  # the last all_reduce


def test_ranks_run_and_lines_begin_with_them() -> None:
    done = launched("launch", "--prefix", "-n", "2", str(PROGRAM), "nothing")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0] sum [3.0, 3.0, 3.0] 0",
        "[1] sum [3.0, 3.0, 3.0] 1",
    ]


def test_one_rank_knows_its_number_too() -> None:
    done = launched("torchrun", "--nproc-per-node=1", str(PROGRAM), "nothing")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["sum [1.0, 1.0, 1.0] 0"]


def test_a_rank_that_raises_ends_the_job_with_its_traceback_first() -> None:
    start = time.monotonic()
    done = launched("torchrun", "--nproc-per-node=3", str(PROGRAM), "raise")
    assert done.returncode == 1
    assert time.monotonic() - start < 60  # it waits for nobody's timeout, on a loaded machine
    lines = [line for line in done.stderr.splitlines() if line.startswith("[rank")]
    assert lines[0] == "[rank2]: Traceback (most recent call last):"
    assert lines[-3] == "[rank2]: ValueError: boom"
    for line in lines[-2:]:
        assert f"waited in all_reduce of float32[3] SUM at {PROGRAM}:{WAITING}" in line
        assert "rank 2 failed: ValueError: boom" in line
    assert "BAD TERMINATION" not in done.stdout + done.stderr


def test_the_exit_code_is_that_of_the_first_rank_that_failed() -> None:
    done = launched("launch", "-n", "3", str(PROGRAM), "exit")
    assert done.returncode == 3
    waited = [line for line in done.stderr.splitlines() if "waited in" in line]
    assert sorted([line[:8] for line in waited]) == ["[rank0]:", "[rank1]:"]
    assert all("but rank 2 ended with exit code 3" in line for line in waited)


def test_a_rank_that_is_killed_is_named() -> None:
    done = launched("launch", "-n", "2", str(PROGRAM), "kill")
    assert done.returncode == 128 + signal.SIGKILL
    assert f"[rank0]: waited in all_reduce of float32[3] SUM at {PROGRAM}:{WAITING}" in done.stderr
    assert "rank 1 was killed" in done.stderr


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raise", "failed: ValueError: boom"),
        ("exit", "ended with exit code 3"),
        ("kill", "was killed, or ended without a farewell"),
    ],
)
def test_under_plain_mpiexec_who_waited_says_so(how: str, why: str) -> None:
    done = ranks.run_mpiexec(ranks.ours(PROGRAM, how), 3, LOCAL_RANK="0")
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("[rank")]
    assert all("Traceback" in line for line in said[: how == "raise"])
    assert sorted([line[:8] for line in said if "waited in" in line]) == ["[rank0]:", "[rank1]:"]
    for line in said[-2:]:
        assert f"waited in all_reduce of float32[3] SUM at {PROGRAM}:{WAITING}" in line
        assert f"but rank 2 {why}" in line
    assert subprocess.run(["pgrep", "-f", f"{PROGRAM} {how}"], check=False).returncode == 1


SPAWNING = """
import os, signal, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, meeting, how):
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=3)
    x = torch.ones(3)
    dist.all_reduce(x)
    if rank == 2:
        if how == "raise":
            raise ValueError("boom")
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)

if __name__ == "__main__":
    if sys.argv[3] == "spawn":
        mp.spawn(work, args=sys.argv[1:3], nprocs=3)
    ranks = [mp.Process(target=work, args=(r, *sys.argv[1:3])) for r in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    print([rank.exitcode for rank in ranks])
"""


@pytest.mark.parametrize("way", ["spawn", "Process"])
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_started_ranks_that_waited_follow_the_traceback(how: str, way: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SPAWNING)
    done = launched("run", "--quiet", str(program), f"{tmp_path}/meeting", how, way)
    why = "failed: ValueError: boom" if how == "raise" else "was killed"
    waited = [line for line in done.stderr.splitlines() if "waited in all_reduce" in line]
    assert len(waited) == 2
    place = f"{program}:{SPAWNING[: SPAWNING.rindex('dist.all_reduce')].count(chr(10)) + 1}"
    assert all(f"{place}, but rank 2 {why}" in line for line in waited)
    if how == "raise":
        assert done.stderr.index("ValueError: boom\n") < done.stderr.index("waited in")
    if way == "spawn":
        assert done.returncode == 1
        assert sorted([line[:8] for line in waited]) == ["[rank0]:", "[rank1]:"]
    else:
        assert done.stdout.strip() == f"[1, 1, {1 if how == 'raise' else -9}]"


def test_a_rank_that_does_not_come_in_time_is_named() -> None:
    done = launched("launch", "-n", "2", str(PROGRAM), "late")
    assert done.returncode == 1
    assert "Timed out after 4000ms in all_reduce" in done.stderr
    assert "rank 1 has not come" in done.stderr


def test_other_collectives_are_an_error_that_names_both_lines() -> None:
    done = launched("launch", "-n", "2", str(PROGRAM), "other", TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert done.returncode == 1
    assert "Detected mismatch between collectives" in done.stderr
    assert f"rank 0 is in all_reduce of float32[3] SUM at {PROGRAM}:{WAITING}" in done.stderr
    assert f"rank 1 is in broadcast of float32[3] from rank 0 at {PROGRAM}:{WAITING - 1}" in (
        done.stderr
    )


def test_hosts_and_their_numbers_of_ranks_go_to_mpiexec(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[str]] = {}

    def run(words: list[str], variables: dict[str, str], ended: launch.Ended) -> int:
        seen["words"], seen["told"] = words, [variables["WORLD_SIZE"], variables["MASTER_ADDR"]]
        return 0

    monkeypatch.setattr(launch, "_run", run)
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    command = ["launch", "--hosts", "a:4,b:3", "--prefix", "train.py", "--hosts", "5"]
    assert cli.main(command) == 0
    words = seen["words"]
    assert words[1:6] == ["-n", "7", "-hosts", "a:4,b:3", "-prepend-rank"]
    assert words[-3:] == ["train.py", "--hosts", "5"]
    assert seen["told"] == ["7", "localhost"]  # where the hosts find this one's store


def test_an_interrupt_ends_all_ranks() -> None:
    command = [sys.executable, "-m", "skimp", "launch", "-n", "2", str(PROGRAM), "sleep"]
    with subprocess.Popen(
        command,
        env=ranks.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # a suite that runs in the background may have been told to ignore interrupts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert b"sum" in process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 130
    end = time.monotonic() + 20  # a loaded machine takes its time; ranks would sleep for 60 s
    while _has_members(process.pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_rank_that_never_comes_is_named() -> None:
    with pytest.raises(DistStoreError, match=r"1/2 clients joined\. Missing: rank 1"):
        init_process_group(
            "gloo", store=HashStore(), rank=0, world_size=2, timeout=datetime.timedelta(seconds=0.2)
        )


def test_all_who_wait_for_a_rank_that_never_comes_name_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import datetime\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=5))\n"
    )
    here = ranks.started(ranks.ours(program), 2, of=3)
    for process in here:
        _, said = process.communicate(timeout=ranks.LIMIT)
        assert "2/3 clients joined. Missing: rank 2" in said


def test_four_ranks_that_start_at_once_join_in_their_order(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "import torch\n"
        "import torch.distributed as dist\n"
        "from torch.multiprocessing import Process\n"
        "def work(rank, size, url):\n"
        "    dist.init_process_group('gloo', url, rank=rank, world_size=size)\n"
        "    found = [torch.zeros(1) for _ in range(size)]\n"
        "    dist.all_gather(found, torch.full((1,), float(rank)))\n"
        "    assert torch.cat(found).tolist() == [0, 1, 2, 3]\n"
        "    dist.destroy_process_group()\n"
        "ranks = [Process(target=work, args=(r, 4, sys.argv[1])) for r in range(4)]\n"
        "for rank in ranks:\n"
        "    rank.start()\n"
        "for rank in ranks:\n"
        "    rank.join()\n"
        "sys.exit(any([rank.exitcode for rank in ranks]))\n"
    )
    done = launched("run", "--quiet", str(program), f"file://{tmp_path}/meeting")
    assert done.returncode == 0, done.stderr


def test_without_the_extra_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "available", lambda: False)
    mpi.load.cache_clear()
    with pytest.raises(RuntimeError, match=r"pip install 'skimp\[mpi\]'"):
        init_process_group("gloo", rank=0, world_size=1, store=HashStore())


def test_one_report_of_all_ranks_has_peaks_and_lines(tmp_path: Path) -> None:
    program, report = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text(
        "import torch\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('mpi')\n"
        "x = torch.ones(1000)\n"
        "for _ in range(5):\n"
        "    dist.all_reduce(x)\n"
    )
    done = launched("launch", "-n", "2", "--report", str(report), str(program))
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert [one["rank"] for one in found] == [0, 1]
    for one in found:
        assert one["memory"]["peak"]["bytes"] == 4000
        (line,) = one["communication"]
        assert (line["file"], line["line"], line["what"]) == (str(program), 6, "all_reduce")
        assert (line["calls"], line["bytes"]) == (5, 5 * 4000)
        assert line["seconds"] > 0
    done = launched("launch", "-n", "2", "--report", "-", str(program))
    assert "rank 1: 3.91 KiB" in done.stderr
    assert f"10 x all_reduce at {program}:6" in done.stderr

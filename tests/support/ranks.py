"""Starting the ranks of a distributed program: on PyTorch's gloo, and on skimp in each way."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from skimp.distributed import mpi
from tests.support.warm import WITH_PYTORCH, WITH_SKIMP, Done

LIMIT = 90  # seconds, on a loaded machine


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def mpiexec() -> str:
    """The command of the installed MPI."""
    found = mpi.wheel_file("mpich", "mpiexec")
    assert found is not None
    return str(found)


def environment(**more: str) -> dict[str, str]:
    """One thread per rank, and nothing of a launcher around the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "OMPI", "TORCH"))}
    return {**kept, "OMP_NUM_THREADS": "1", "SKIMP_THREADS": "1", **more}


def ours(program: Path, *args: str) -> list[str]:
    """The command that runs a program on skimp."""
    return [sys.executable, "-m", "skimp", "run", "--quiet", str(program), *args]


def run_theirs(program: Path, *args: str, n: int) -> None:
    """The ranks of a program on PyTorch, to their ends."""
    told = environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(n))
    each = [told | {"RANK": str(r), "LOCAL_RANK": str(r)} for r in range(n)]
    command = [sys.executable, str(program), *args]
    done = WITH_PYTORCH.run_together([command] * n, program.parent, each)
    assert not any(one.returncode for one in done), "\n".join([one.stderr for one in done])


def launched(*words: str, **more: str) -> Done:
    """A command of skimp's that starts ranks, to its end."""
    command = [sys.executable, "-m", "skimp", *words]
    return WITH_SKIMP.run_together([command], Path.cwd(), [environment(**more)])[0]


def started(
    command: Sequence[str], n: int, of: int = 0, **more: str
) -> list[subprocess.Popen[str]]:
    """`n` processes with the variables that torchrun sets, each started by itself; or the first `n`
    `of` so many.
    """
    told = {"WORLD_SIZE": str(of or n), "MASTER_PORT": str(free_port()), **more}
    return [_start(command, RANK=str(r), LOCAL_RANK=str(r), **told) for r in range(n)]


def _start(command: Sequence[str], **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(command),
        env=environment(MASTER_ADDR="127.0.0.1", **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each wrote to stdout. AssertionError with all of stderr when one failed."""
    try:
        said = [process.communicate(timeout=LIMIT) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    assert not any(p.returncode for p in processes), "\n".join([err for _, err in said])
    return [out for out, _ in said]


def run_each(command: Sequence[str], n: int, **more: str) -> list[str]:
    """`started`, to the end."""
    return finished(started(command, n, **more))


def run_mpiexec(command: Sequence[str], n: int, **more: str) -> subprocess.CompletedProcess[str]:
    """The command under mpiexec, to its end."""
    return subprocess.run(
        [mpiexec(), "-n", str(n), *command],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )

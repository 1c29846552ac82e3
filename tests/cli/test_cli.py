"""`skimp run`, as a user meets it: every test runs the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.running import SKIMP, Done, measured, skimp, start, write

pytestmark = pytest.mark.skipif(
    os.environ.get("SKIMP_DEFER", "auto") != "auto",
    reason="nothing here depends on what is deferred, and starting processes takes its time",
)


# -- as Python would ------------------------------------------------------------------------------

MIRROR = """
    import os, sys
    print(__name__, __file__, __spec__, __package__, type(__loader__).__name__)
    print(sys.argv, sys.path[0])
    names = globals().keys() - {"__annotations__"}
    print(sys.modules["__main__"].__dict__ is globals(), sorted(names))
    import beside
    print(beside.__file__)
    if __name__ == "__main__":
        sys.exit(len(sys.argv))
"""


def test_a_script_cannot_tell_it_from_python(tmp_path: Path) -> None:
    write(tmp_path, "", "work/beside.py")
    script = write(tmp_path, MIRROR, "work/script.py")
    words = [script, "one", "--report", "two", "--quiet"]  # ours only in front of the script
    by_python = start([sys.executable, *words], tmp_path)
    by_skimp = start([*SKIMP, "run", *words], tmp_path)
    assert by_skimp.stdout == by_python.stdout
    assert by_skimp.returncode == by_python.returncode == 5


def test_so_it_is_for_a_link_to_a_script_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, "", "work/beside.py")
    write(tmp_path, MIRROR, "work/script.py")
    (tmp_path / "link.py").symlink_to("work/script.py")
    by_python = start([sys.executable, "link.py"], tmp_path)
    by_skimp = skimp("run", "--quiet", "link.py", cwd=tmp_path)
    assert (by_skimp.stdout, by_skimp.returncode) == (by_python.stdout, by_python.returncode)


@pytest.mark.parametrize("module", ["pkg", "pkg.inner"])
def test_a_module_cannot_tell_it_from_python(tmp_path: Path, module: str) -> None:
    write(tmp_path, "import sys; print('package', sys.argv, sys.path[0])", "pkg/__init__.py")
    code = """
        import sys
        from . import helper
        print(__name__, __file__, __package__, __spec__.name, sys.argv, sys.path[0])
    """
    write(tmp_path, code, "pkg/__main__.py")
    write(tmp_path, code, "pkg/inner.py")
    write(tmp_path, "", "pkg/helper.py")
    words = ["-m", module, "--limit", "x"]
    by_python = start([sys.executable, *words], tmp_path)
    by_skimp = skimp("run", *words, cwd=tmp_path)
    assert by_skimp.stdout == by_python.stdout
    assert by_skimp.returncode == by_python.returncode == 0
    assert f"skimp: -m {module}" in by_skimp.stderr


def test_source_is_read_as_python_reads_it(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\nprint(len('\xe9'))\n".encode("latin-1"))
    assert skimp("run", "--quiet", "latin.py", cwd=tmp_path).stdout == "1\n"


def test_the_console_script_is_the_same_command(tmp_path: Path) -> None:
    script = write(tmp_path, "import sys; print(sys.path[0])")
    command = str(Path(sys.executable).parent / "skimp")
    assert start([command, "run", "--quiet", script], tmp_path).stdout == f"{tmp_path}\n"


def test_collections_leave_alone_what_the_command_imported(tmp_path: Path) -> None:
    """Going through it once, as the interpreter ends, takes a third of an import's time."""
    code = """
        import gc
        class Own:
            def __del__(self): print("gone")
        own = Own()
        own.itself = own
        del own
        print(gc.get_freeze_count() > 10_000, gc.collect() > 0)
        own = Own()
        own.itself = own
    """
    done = start([*SKIMP, "run", "--quiet", write(tmp_path, code)], tmp_path)
    assert done.stdout == "gone\nTrue True\ngone\n"


def test_torch_is_skimp(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch, torch.nn as nn, skimp
        print(torch is skimp, nn is skimp.nn)
        """,
    )
    assert skimp("run", "--quiet", script, cwd=tmp_path).stdout == "True True\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_may_start_processes_afresh(tmp_path: Path, method: str) -> None:
    script = write(
        tmp_path,
        f"""
        import multiprocessing
        import torch

        def work(number):
            return number, __name__, torch.__name__

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.apply(work, [7]))
        """,
    )
    done = start([*SKIMP, "run", script], tmp_path)
    assert done.stdout == "(7, '__mp_main__', 'torch')\n"
    assert done.stderr.count("skimp: ") == 1  # one report: the children end without


def test_threads_and_exit_hooks_come_before_the_report(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import atexit, sys, threading, time
        atexit.register(lambda: print("hook", file=sys.stderr))

        def work():
            time.sleep(0.2)
            print("thread", file=sys.stderr)

        threading.Thread(target=work).start()
        print("main", file=sys.stderr)
        """,
    )
    lines = skimp("run", script, cwd=tmp_path).stderr.split()
    assert lines[:4] == ["main", "thread", "hook", "skimp:"]


def test_a_fork_that_ends_like_its_parent_does_not_report(tmp_path: Path) -> None:
    script = write(tmp_path, "import os, sys\nif os.fork(): os.wait()\nsys.exit(0)\n")
    assert skimp("run", script, cwd=tmp_path).stderr.count("skimp: ") == 1


# -- endings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('no more')", 1, "no more\n"),
        ("raise SystemExit(4)", 4, ""),
    ],
)
def test_exit_codes_are_the_programs(tmp_path: Path, code: str, status: int, said: str) -> None:
    script = write(tmp_path, f"import sys\n{code}\n")
    done = skimp("run", script, cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.startswith(said)
    assert "skimp: script.py" in done.stderr


RAISES = {
    "error": "def f():\n    raise ValueError('bad')\nf()\n",
    "chain": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError(2) from e\n",
    "group": "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])\n",
    "syntax": "x = (\n",
    "callback": "import functools\nfunctools.reduce(lambda a, b: a / b, [1, 0])\n",
}


@pytest.mark.parametrize("code", RAISES.values(), ids=RAISES)
def test_tracebacks_are_those_of_python(tmp_path: Path, code: str) -> None:
    (tmp_path / "script.py").write_text(code)
    by_python = start([sys.executable, "script.py"], tmp_path)
    by_skimp = skimp("run", "script.py", cwd=tmp_path)
    trace, _, rest = by_skimp.stderr.partition("\nskimp: ")
    assert trace == by_python.stderr
    assert rest.startswith("script.py, ")
    assert by_skimp.returncode == by_python.returncode == 1


@pytest.mark.parametrize("call", ["torch.nn.Linear(3, 4)(torch.ones(2, 5))", "torch.ones(3) + x"])
def test_ops_and_layers_have_no_frames_in_tracebacks(tmp_path: Path, call: str) -> None:
    """Nor has the code that is made of text, which lies in no file."""
    script = write(tmp_path, f"import torch\nx = torch.ones(4)\n{call}\n")
    done = skimp("run", "--quiet", script, cwd=tmp_path)
    files = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert files == [f'  File "{tmp_path / script}", line 3, in <module>']
    assert done.stderr.count("Error: ") == 1


def test_our_frames_are_there_for_those_who_ask(tmp_path: Path) -> None:
    script = write(tmp_path, "1 / 0")
    done = skimp("run", "--quiet", "--full-traceback", script, cwd=tmp_path)
    assert os.path.join("skimp", "cli", "program.py") in done.stderr
    assert done.returncode == 1


def test_a_program_may_have_its_own_way_with_errors(tmp_path: Path) -> None:
    script = write(tmp_path, "import sys\nsys.excepthook = lambda *a: print('mine')\n1 / 0\n")
    done = skimp("run", "--quiet", script, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("mine\n", "", 1)


def test_an_interrupt_ends_with_130_and_the_report(tmp_path: Path) -> None:
    script = write(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen(
        [*SKIMP, "run", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # a suite that runs in the background may have been told to ignore interrupts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in said
    assert "skimp: script.py" in said


# -- bad input ------------------------------------------------------------------------------------


BAD: list[tuple[list[str], int, str]] = [
    (["run", "nowhere.py"], 2, "skimp run: can't open file 'nowhere.py': No such file"),
    (["run", "."], 2, "skimp run: '.' is a directory"),
    (["run", "-m", "no_such_module"], 1, "skimp run: no module named 'no_such_module'"),
    (["run", "-m", "no_such.module"], 1, "skimp run: no module named 'no_such.module'"),
    (["run", "-m", "json"], 1, "skimp run: no module named 'json.__main__'"),
    (["run", "-m", "sys"], 1, "skimp run: module 'sys' has no Python code"),
    (["run", "-m"], 2, "skimp run: there is no program to run\nusage: skimp run [options]"),
    (["run"], 2, "skimp run: there is no program to run"),
    (["run", "--limit", "lots", "x.py"], 2, "argument --limit: "),
    (["run", "--limit"], 2, "argument --limit: expected one argument"),
    (["run", "--report", ".", "x.py"], 2, "argument --report: '.' is a directory"),
    (["run", "--report", "no/r.json", "x.py"], 2, "argument --report: there is no directory 'no'"),
    (["run", "--fast", "x.py"], 2, "unrecognized arguments: --fast"),
    (["walk"], 2, "invalid choice: 'walk'"),
    ([], 2, "the following arguments are required: command"),
]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[Done]:
    """What each of these and of `HELP` comes to."""
    folder = tmp_path_factory.mktemp("bad")
    return [skimp(*words, cwd=folder) for words in (*[words for words, _, _ in BAD], *HELP)]


@pytest.mark.parametrize("number", range(len(BAD)), ids=[" ".join(words) for words, _, _ in BAD])
def test_bad_input_gets_a_clear_line(ended: list[Done], number: int) -> None:
    done, (_, status, said) = ended[number], BAD[number]
    assert said in done.stderr
    assert done.returncode == status
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "  peak" not in done.stderr  # nothing ran, so there is nothing to report


def test_a_package_whose_import_fails_is_the_programs_error(tmp_path: Path) -> None:
    write(tmp_path, "import not_there\n", "pkg/__init__.py")
    write(tmp_path, "", "pkg/__main__.py")
    done = skimp("run", "--quiet", "-m", "pkg", cwd=tmp_path)
    assert "ModuleNotFoundError: No module named 'not_there'" in done.stderr
    assert done.returncode == 1


HELP = [["--help"], ["run", "--help"], ["--version"]]


@pytest.mark.parametrize("number", range(len(HELP)))
def test_help_and_version(ended: list[Done], number: int) -> None:
    done = ended[len(BAD) + number]
    assert done.returncode == 0
    assert "skimp" in done.stdout
    assert done.stderr == ""


# -- the report -----------------------------------------------------------------------------------


def test_the_report_goes_where_it_is_sent(tmp_path: Path) -> None:
    script = write(tmp_path, "import os; os.chdir('/'); print('out')")
    every = ("--report", "b.txt", "--report", "b.json", "--report", "json")
    wishes: list[tuple[str, ...]] = [
        (), ("--report", "json"), ("--report", "r.json"), ("--report", "r.txt"), every,
        ("--quiet", "--report", "q.json"),
    ]  # fmt: skip
    text, json_, *files, all_of_them, quiet = [
        skimp("run", *words, script, cwd=tmp_path) for words in wishes
    ]
    assert "peak" in text.stderr
    assert measured(json_)["program"] == script
    assert [done.stderr for done in files] == ["", ""]
    assert json.loads((tmp_path / "r.json").read_text())["program"] == script
    assert "peak" in (tmp_path / "r.txt").read_text()
    assert measured(all_of_them)["program"] == script
    assert json.loads((tmp_path / "b.json").read_text())["program"] == script
    assert "peak" in (tmp_path / "b.txt").read_text()
    assert (quiet.stdout, quiet.stderr) == ("out\n", "")
    assert (tmp_path / "q.json").exists()


@pytest.mark.parametrize("ending", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_program_that_closes_its_output_is_reported_on(tmp_path: Path, ending: str) -> None:
    """As `python -m json.tool` does."""
    script = write(tmp_path, f"import sys\nprint('out')\n{ending}\n")
    done = skimp("run", script, cwd=tmp_path)
    assert done.stdout == "out\n"
    assert done.stderr.startswith("\nskimp: script.py, ")  # and no traceback
    assert done.returncode == 0


def test_a_report_that_cannot_be_written_is_said_and_changes_no_exit_code(tmp_path: Path) -> None:
    script = write(tmp_path, "import os, sys; os.rmdir('gone'); sys.exit(3)")
    (tmp_path / "gone").mkdir()
    done = skimp("run", "--report", "gone/r.json", script, cwd=tmp_path)
    assert "can't write" in done.stderr
    assert done.returncode == 3


# -- names that are missing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("torch.zeroes(3)", "module 'torch' has no attribute 'zeroes'; the nearest is 'zeros'"),
        ("import torch.optin", "No module named 'torch.optin' in skimp; the nearest is 'optim'"),
    ],
)
def test_a_missing_name_is_told_with_the_nearest(tmp_path: Path, code: str, said: str) -> None:
    done = skimp("run", "--quiet", write(tmp_path, f"import torch\n{code}\n"), cwd=tmp_path)
    assert said in done.stderr
    assert done.stderr.count("File ") == 1  # the program's line, and no frames of ours
    assert done.returncode == 1


def test_an_unknown_option_shows_the_usage_of_its_own_command(tmp_path: Path) -> None:
    script = write(tmp_path, "print(1)")
    for words in (("run", "--quite", script), ("check", "--quite", script)):
        done = skimp(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"usage: skimp {words[0]} [")
        assert f"skimp {words[0]}: error: unrecognized arguments: --quite" in done.stderr
    done = skimp("rum", script, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: skimp [-h]")


def test_nothing_is_collected_for_a_report_that_nobody_reads(tmp_path: Path) -> None:
    script = write(tmp_path, "import torch._C\nfrom skimp._engine.memory.ledger import host\n"
                   "print(host.watched)")  # fmt: skip
    listening = {
        ("--quiet",): "False",
        ("--quiet", "--report", "json"): "False",
        ("--quiet", "--report", "file.json"): "True",
        (): "True",
    }
    for options, expected in listening.items():
        assert skimp("run", *options, script, cwd=tmp_path).stdout == f"{expected}\n", options

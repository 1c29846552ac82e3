"""What functions, classes and modules say of themselves while skimp stands for `torch`."""

from __future__ import annotations

import json
import sys

import pytest

from tests.support.running import skimp, write
from tests.support.warm import WITH_PYTORCH, Done

SCRIPT = """
import inspect, json, sys
import torch
import torch.distributions, torch.nn.functional, torch.optim.lr_scheduler, torch.utils.data
SPACES = ["", "nn.functional", "linalg", "fft", "special", "nn", "optim", "optim.lr_scheduler",
          "distributions", "utils.data", "nn.utils", "nn.init", "autograd"]
found = {}
for space in SPACES:
    owner = torch
    for part in space.split(".") if space else ():
        owner = getattr(owner, part)
    for name in dir(owner):
        value = getattr(owner, name, None)
        if name.startswith("_") or not (callable(value) or inspect.ismodule(value)):
            continue
        signature = None
        if isinstance(value, type) and space:
            try:
                p = inspect.signature(value).parameters.values()
            except ValueError:
                p = ()
            simple = (int, float, bool, str, type(None), tuple)
            signature = [(q.name, q.kind.name, repr(q.default) if isinstance(q.default, simple)
                          else q.default is q.empty) for q in p]
        own = value.__module__ if isinstance(value, type) else None
        called = str(getattr(value, "__name__", None))
        found[f"{space}.{name}"] = called, own, inspect.ismodule(value), signature
s = torch.optim.lr_scheduler.StepLR
found["scheduler"] = s.__module__ == torch.optim.lr_scheduler.__name__
print(json.dumps(found))
"""


def told(done: Done) -> dict[str, list[object]]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list], dict[str, list]]:
    folder = tmp_path_factory.mktemp("names")
    script = write(folder, SCRIPT)
    theirs = WITH_PYTORCH.run([sys.executable, script], folder)
    return told(theirs), told(skimp("run", "--quiet", script, cwd=folder))


# names that PyTorch's own objects have from elsewhere
ODD = frozenset({
    ".sym_sqrt", "nn.functional.logsigmoid", "nn.functional.native_channel_shuffle",
    "nn.functional.threshold", "fft.Tensor", "nn.functional.tanhshrink",
})  # fmt: skip


def test_names(both: tuple[dict[str, list], dict[str, list]]) -> None:
    theirs, ours = both
    shared = theirs.keys() & ours.keys() - ODD - {"scheduler"}
    unlike = {k: (ours[k][0], theirs[k][0]) for k in shared if ours[k][0] != theirs[k][0]}
    assert len(shared) > 1300
    assert len(unlike) <= LEFT, unlike
    assert theirs["scheduler"] is ours["scheduler"] is True


LEFT = 8  # may only become fewer


def test_constructors_take_the_same_arguments(
    both: tuple[dict[str, list], dict[str, list]],
) -> None:
    theirs, ours = both
    classes = [
        k for k in theirs.keys() & ours.keys() - {"scheduler"} if theirs[k][3] and ours[k][3]
    ]
    assert len(classes) > 250
    unlike = {k: (ours[k][3], theirs[k][3]) for k in classes if ours[k][3] != theirs[k][3]}
    assert unlike == {}

"""Pickles of the standard library between PyTorch and skimp: each reads what the other wrote."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from tests.support.running import write
from tests.support.warm import WITH_PYTORCH, WITH_SKIMP

ITEMS = """
import pickle, sys, warnings
warnings.simplefilter("ignore")
if sys.argv[1] == "skimp":
    from skimp._compat import install
    install()
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.BatchNorm1d(3))
net.activation, net.builtin = torch.nn.functional.relu, torch.tanh
adam = torch.optim.Adam(net.parameters())
net(torch.ones(2, 2)).sum().backward()
adam.step()
base = torch.arange(6.0)
generator = torch.Generator().manual_seed(3)
tagged = torch.ones(2)
tagged.tag = "mine"
items = {
    "turned": base.reshape(2, 3).t(), "both": [base, base[2:]], "scalar": torch.tensor(2.0),
    "parameter": torch.nn.Parameter(base), "leaf": torch.ones(1, requires_grad=True),
    "empty": torch.empty(0, 3), "size": torch.Size([2, 3]), "dtype": torch.float16,
    "device": torch.device("cpu"), "state": net.state_dict(), "net": net, "tagged": tagged,
    "optimizer": adam.state_dict(), "generator": generator, "sparse": torch.eye(2).to_sparse(),
    "conj": torch.tensor([1 + 2j]).conj(), "result": torch.max(torch.eye(2), 0),
    "packed": torch.nn.utils.rnn.pack_sequence([base, base[:2]]),
    "normal": torch.distributions.Normal(0.0, 1.0), "function": torch.relu, "bound": torch.bmm,
    "nowhere": torch.ones(3, 2, device="meta").t(), "storage": base.storage(),
    **{d: torch.ones(2).to(getattr(torch, d)) for d in
       "float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128".split()},
}


def shown(value):
    if isinstance(value, torch.Tensor) and value.is_meta:
        return [str(value.dtype), tuple(value.shape), value.stride()]
    if isinstance(value, torch.Tensor):
        dense = value.to_dense() if value.is_sparse else value.resolve_conj()
        return [str(value.dtype), value.requires_grad, type(value).__name__, dense.tolist(),
                None if value.is_sparse else value.stride(), getattr(value, "tag", None)]
    if isinstance(value, dict):
        return {str(k): shown(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(shown, value)]
    if isinstance(value, torch.nn.Module):
        made = value.builtin(value.activation(value.eval()(torch.ones(2, 2))))
        return [repr(value), shown(value.state_dict()), [round(x, 5) for x in made[0].tolist()]]
    if isinstance(value, torch.Generator):
        return torch.rand(3, generator=value).tolist()
    if isinstance(value, torch.distributions.Normal):
        return [shown(value.loc), shown(value.scale)]
    return value.__name__ if callable(value) else str(value)
"""
WRITE = """
for path in sys.argv[2:]:  # each by the protocol that it ends with
    protocol = int(path.split(".")[-1])
    with open(path, "wb") as file:
        pickle.dump({name: pickle.dumps(v, protocol) for name, v in items.items()}, file)
"""
READ = """
def read(path):
    with open(path, "rb") as file:
        texts = pickle.load(file)
    for name, data in texts.items():
        found, own = shown(pickle.loads(data)), shown(pickle.loads(pickle.dumps(items[name])))
        assert found == own, (name, found, own)
    first, second = pickle.loads(texts["both"])
    if "/skimp." in path:
        first[3] = -1.0
        assert second[1] == -1.0
    return len(texts)


for path in sys.argv[2:]:
    try:
        print(path.split("/")[-1], read(path))
    except Exception as error:
        print(path.split("/")[-1], repr(error))
"""
PROTOCOLS = [2, pickle.HIGHEST_PROTOCOL]


WARM = {"skimp": WITH_SKIMP, "torch": WITH_PYTORCH}


def run(folder: Path, text: str, engine: str, *files: Path) -> str:
    program = [sys.executable, write(folder, text), engine, *map(str, files)]
    done = WARM[engine].run(program, folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What each reader tells of each file."""
    folder = tmp_path_factory.mktemp("pickles")
    files = {e: [folder / f"{e}.{protocol}" for protocol in PROTOCOLS] for e in ("skimp", "torch")}
    for engine, own in files.items():
        run(folder, ITEMS + WRITE, engine, *own)
    told = {
        "torch": run(folder, ITEMS + READ, "torch", *files["skimp"]),
        "skimp": run(folder, ITEMS + READ, "skimp", *files["torch"], *files["skimp"]),
    }
    return {
        reader: dict([line.split(" ", 1) for line in lines.splitlines()])
        for reader, lines in told.items()
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("writer", "reader"), [("skimp", "torch"), ("torch", "skimp"),
                                                ("skimp", "skimp")])  # fmt: skip
def test_each_reads_what_the_other_pickled(
    read: dict[str, dict[str, str]], writer: str, reader: str, protocol: int
) -> None:
    assert read[reader][f"{writer}.{protocol}"] == "34"


COPIES = """
import copy, sys
if sys.argv[1] == "skimp":
    from skimp._compat import install
    install()
import torch


class Kind(torch.Tensor):
    pass


base = torch.arange(12.0)
tagged = torch.ones(2)
tagged.tag = "mine"
for t in (base, base.reshape(3, 4).t()[1:], torch.ones(2, requires_grad=True), torch.empty(0, 3),
          torch.nn.Parameter(base), base.as_subclass(Kind), tagged, base.to(torch.bfloat16)):
    build, arguments = t.__reduce_ex__(2)[:2]
    for other in (copy.copy(t), build(*arguments)):
        print(type(other).__name__, other is t, other.data_ptr() == t.data_ptr(), other.stride(),
              other.storage_offset(), other.requires_grad, other.tolist())
print(copy.copy(tagged).tag)
"""


def test_copies_are_on_the_same_bytes(tmp_path: Path) -> None:
    """copy.copy, and what subclasses build of the parts that a tensor's pickle names."""
    ours, theirs = [run(tmp_path, COPIES, engine) for engine in ("skimp", "torch")]
    assert ours == theirs
    assert " True (1,) 0 " in ours

"""Writes docs/api.md (each public name of PyTorch's and its state here) and the data that `skimp
check` reads. Needs PyTorch; `--check` says whether both are up to date.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import sys
import warnings
from pathlib import Path

from skimp.cli import names
from skimp.cli.names import State

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
DIFFERENCES = ROOT / "docs" / "differences.md"

# The modules that PyTorch's documentation has pages for.
MODULES = """
torch torch.Tensor torch.accelerator torch.amp torch.ao.quantization torch.autograd
torch.autograd.forward_ad torch.autograd.functional torch.autograd.graph torch.autograd.profiler
torch.backends.cpu torch.backends.cuda torch.backends.cudnn torch.backends.mha torch.backends.mkl
torch.backends.mkldnn torch.backends.mps torch.backends.nnpack torch.backends.openmp
torch.backends.opt_einsum torch.compiler torch.cpu torch.cuda torch.cuda.amp torch.cuda.memory
torch.cuda.nvtx torch.distributed torch.distributed.algorithms.join torch.distributed.checkpoint
torch.distributed.checkpoint.state_dict torch.distributed.device_mesh torch.distributed.fsdp
torch.distributed.nn.functional torch.distributed.optim torch.distributed.pipelining
torch.distributed.rpc torch.distributed.tensor torch.distributed.tensor.parallel
torch.distributions torch.export torch.fft torch.func
torch.futures torch.fx torch.hub torch.jit torch.library torch.linalg torch.masked torch.monitor
torch.mps torch.mtia torch.multiprocessing torch.nested torch.nn torch.nn.attention
torch.nn.functional torch.nn.init torch.nn.parallel torch.nn.utils torch.nn.utils.parametrizations
torch.nn.utils.parametrize torch.nn.utils.prune torch.nn.utils.rnn torch.nn.utils.stateless
torch.onnx torch.optim torch.optim.lr_scheduler torch.optim.swa_utils torch.overrides
torch.package torch.profiler torch.quantization torch.random torch.serialization
torch.signal.windows torch.sparse torch.special torch.testing torch.types torch.utils
torch.utils.benchmark torch.utils.checkpoint torch.utils.cpp_extension torch.utils.data
torch.utils.data.distributed torch.utils.dlpack torch.utils.hooks torch.utils.mobile_optimizer
torch.utils.model_zoo torch.utils.tensorboard torch.xpu
""".split()  # noqa: SIM905


def public(space: str) -> list[str]:
    """The public names of a module of PyTorch's, or of its Tensor."""
    import torch

    if space == "torch.Tensor":
        return sorted(n for n in dir(torch.Tensor) if not n.startswith("_"))
    module = importlib.import_module(space)
    listed = set(getattr(module, "__all__", ()))
    if not listed or space == "torch":
        listed |= {n for n, v in vars(module).items() if _own(v)}
    if space == "torch":
        listed -= {n for n, v in vars(module).items() if _inner(n, v)}
    return sorted(n for n in listed if not n.startswith("_") and hasattr(module, n))


def _own(value: object) -> bool:
    """Whether a value in a module without a list of names is the module's own: a function, class
    or dtype of PyTorch's, but nothing that the module imports for itself.
    """
    import torch

    if isinstance(value, torch.dtype):
        return True
    home = str(getattr(value, "__module__", None) or "torch")
    if inspect.isclass(value):
        return home.startswith("torch") and not home.startswith("torch._")
    built_in = inspect.isbuiltin(value)
    return built_in or (inspect.isfunction(value) and re.match(r"torch(?!\._)", home) is not None)


# functions for one kernel library or for the compiler, which no page documents
_INNER = re.compile(r"(cudnn|miopen|mkldnn|fbgemm|quantized|sym|batch_norm_|fused_)_?\w+|bits?\w+")


def _inner(name: str, value: object) -> bool:
    """Whether a name of the package itself is TorchScript's, or a kernel's."""
    home = str(getattr(value, "__module__", ""))
    bound = inspect.isclass(value) and type(value).__name__ == "pybind11_type"
    script = inspect.isclass(value) and home.startswith(("torch._C", "torch.jit", "typing"))
    kernel = inspect.isbuiltin(value) and _INNER.fullmatch(name) is not None
    return (bound or script or kernel) and name not in ("Generator", "Stream", "Event")


def differing(found: dict[str, list[str]]) -> dict[str, str]:
    """The names that stand in the first column of docs/differences.md, and what the row says."""
    known = {f"{space}.{name}" for space, names_ in found.items() for name in names_}
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \| ([^|]*) \|", DIFFERENCES.read_text(), re.M)
    told: dict[str, str] = {}
    for title, theirs, ours in rows:
        subject = title.partition(", as ")[0]  # what stands behind is an example
        for word in re.findall(r"`([\w.]+)(?:\([^`]*\))?`", subject):
            for dotted in (word, f"torch.{word}"):
                if dotted in known:
                    row = f"{title.strip()}. PyTorch: {theirs.strip()} skimp: {ours.strip()}"
                    told[dotted] = row.replace("`", "")
    return dict(sorted(told.items()))


def data(found: dict[str, list[str]]) -> str:
    """The data file's text."""
    content = {
        "differs": differing(found),
        "names": {space: " ".join(names_) for space, names_ in found.items()},
    }
    return json.dumps(content, indent=1) + "\n"


def page(found: dict[str, list[str]]) -> str:
    """The page's text: counts, and for each module the names that do not simply work."""
    differs = differing(found)
    states = {
        space: {n: names.state(space, n, differs) for n in words} for space, words in found.items()
    }
    lines = [
        "# PyTorch's names, and their state here",
        "",
        "Written by `python tools/api.py`, which looks for each public name of PyTorch 2.13 in",
        "skimp. A name *works* where it is there; what it does is the tests' matter, not this",
        "page's. It *differs* where [differences](differences.md) has a row for it, is *refused*",
        "where it can be imported and raises a clear error when used, and is *missing* otherwise.",
        "`skimp check program.py` asks the same for a program.",
        "",
        "| module | names | work | differ | refused | missing |",
        "|---|---|---|---|---|---|",
    ]
    total = dict.fromkeys(State, 0)
    for space, of in states.items():
        counts = {s: sum(v is s for v in of.values()) for s in State}
        for s in State:
            total[s] += counts[s]
        cells = " | ".join(str(counts[s]) for s in State)
        lines.append(f"| [{space}](#{space.replace('.', '').lower()}) | {len(of)} | {cells} |")
    cells = " | ".join(str(total[s]) for s in State)
    lines += [f"| all | {sum(total.values())} | {cells} |", ""]
    for space, of in states.items():
        lines += [f"## {space}", ""]
        for s in (State.MISSING, State.REFUSED, State.DIFFERS, State.WORKS):
            words = [f"`{n}`" for n, v in of.items() if v is s]
            if words:
                lines += [f"{s.value.capitalize()}: {', '.join(words)}", ""]
    return "\n".join(lines)


def texts() -> dict[Path, str]:
    """What both files should hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {space: public(space) for space in MODULES}
    return {names.DATA: data(found), PAGE: page(found)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where a file is old")
    options = parser.parse_args()
    stale = [p for p, text in texts().items() if not p.exists() or p.read_text() != text]
    if options.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date: run python tools/api.py")
        return bool(stale)
    for path, text in texts().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What recording costs: `python -m bench.recording` prints the guide's table of training steps.

Steps as they are and steps that are recorded take turns in one process, on one thread, and of each
the lower tenth of processor times counts: other programs on the machine only ever add to a step.
"""

from __future__ import annotations

import gc
import sys
from time import process_time
from typing import Any, Final

import skimp
from bench.programs import PROGRAMS, TITLES
from bench.programs.data import Step
from skimp.lens import Recording

NAMES: Final = ("resnet18", "gpt_small", "transformer", "lstm", "vae", "char_mlp", "bigram")
TURNS: Final = 5
SECONDS: Final = 1.5  # of a turn, of which the first third does not count: a recording learns what
# a step is like, and the interpreter anew where attributes are (it forgets when either begins)


def times(step: Step, count: int) -> list[float]:
    """Processor seconds of each of some steps."""
    found = []
    for _ in range(count):
        start = process_time()
        step()
        found.append(process_time() - start)
    return found


def lower(found: list[float]) -> float:
    """The time that a tenth of the steps is below."""
    return sorted(found)[len(found) // 10]


def measured(step: Step) -> tuple[float, float, int]:
    """Seconds of a step as it is and of one that is recorded, and its allocations."""
    count = max(12, int(SECONDS / lower(times(step, 8))))
    plain: list[float] = []
    recorded: list[float] = []
    made = 0
    for _ in range(TURNS):
        gc.collect()
        plain += times(step, count)[count // 3 :]
        with Recording() as recording:
            # one loop, as programs have it: a step that is called from elsewhere is another one
            recorded += times(step, count)[count // 3 :]
            made = recording.collector.since()[0] // count
    return lower(plain), lower(recorded), made


def toy(torch: Any) -> Step:
    """Two small layers, whose work is that of some Python calls."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(16, 10), torch.randn(16, 1)

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def mlp(torch: Any) -> Step:
    """Three layers, batches of 64."""
    nn = torch.nn
    layers = [nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    net = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(net.parameters())
    x, y = torch.randn(64, 128), torch.randint(0, 10, (64,))

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


OWN: Final = {"mlp": ("MLP, 64 x 128, 512 wide, Adam", mlp), "toy": ("two small layers", toy)}


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    skimp.set_num_threads(1)
    print("| a training step | as it is | allocations | recorded | more |\n|---|---|---|---|---|")
    for name in sys.argv[1:] or (*NAMES, *OWN):
        title, make = OWN[name] if name in OWN else (TITLES[name], PROGRAMS[name])
        plain, recorded, made = measured(make(skimp))
        more = f"{100 * (recorded / plain - 1):.1f}%"
        ms = (f"{1e3 * plain:.2f} ms", str(made), f"{1e3 * recorded:.2f} ms", more)
        print(f"| {' | '.join((title, *ms))} |", flush=True)


if __name__ == "__main__":
    main()

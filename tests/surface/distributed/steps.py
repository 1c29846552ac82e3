"""A program of many ranks: takes each step of a file, and writes what it gave to another."""

import datetime
import json
import sys
import warnings

import torch
import torch.distributed as dist

source, target = sys.argv[1:]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
r, n = dist.get_rank(), dist.get_world_size()
kept = {"torch": torch, "dist": dist, "r": r, "n": n}


def take(step):
    names = dict(kept)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            exec(step, names)
        out = names.get("out")
        listed = [out] if isinstance(out, torch.Tensor) else out
        if isinstance(listed, list) and isinstance(listed[0], torch.Tensor):
            out = [(t.dtype, tuple(t.shape), t.tolist()) for t in listed]
        text = repr(out) + "".join(f" {w.category.__name__}: {w.message}" for w in said)
    except Exception as error:
        text = f"{type(error).__name__}"
        if not isinstance(error, RuntimeError) or "Default" in str(error):
            text += f": {error}"
    kept.update({name: names[name] for name in ("g", "h") if name in names})
    return text


with open(source) as file:
    steps = file.read().strip().splitlines()
answers = []
for step in steps:
    answers.append(take(step))
    dist.barrier()
with open(f"{target}.{r}", "w") as file:
    json.dump(answers, file)
dist.destroy_process_group()

"""How much memory a ReLU takes, out of place and in place, as a program measures itself.

Under PyTorch this needs CUDA. Under skimp the same counters count the host where there is none.
"""

import torch
import torch.nn.functional as F

SIDE = 10_000
MIB = 1024**2


def counters() -> tuple[float, float]:
    """MiB allocated now and at most so far, with all pending work done."""
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() / MIB, torch.cuda.max_memory_allocated() / MIB


def cost_of_relu(device: torch.device, in_place: bool) -> tuple[float, float]:
    """MiB by which one ReLU raises the memory in use, and its maximum."""
    values = torch.randn(SIDE, SIDE, device=device)
    now, most = counters()
    result = F.relu_(values) if in_place else F.relu(values)
    now_after, most_after = counters()
    del result
    return now_after - now, most_after - most


if __name__ == "__main__":
    place = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    for in_place in (False, True):
        now, most = cost_of_relu(place, in_place)
        print(
            "in place:    " if in_place else "out of place:",
            f"{now:.1f} MiB in use, {most:.1f} MiB at most",
        )

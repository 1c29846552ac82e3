"""torch.cuda's functions about GPUs: there are none."""

from __future__ import annotations

import contextlib
from typing import Any

from skimp._engine.tensor.tensor import Tensor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU multiplies bfloat16: there is none."""
    return False


def is_tf32_supported() -> bool:
    """Whether a GPU multiplies in TF32: there is none."""
    return False


def is_current_stream_capturing() -> bool:
    """Whether a graph is being captured: never."""
    return False


def get_arch_list() -> list[str]:
    """Kinds of GPU that there is code for: none."""
    return []


def get_gencode_flags() -> str:
    """The compiler's flags for them: none."""
    return ""


def get_rng_state_all() -> list[Tensor]:
    """States of the GPUs' generators: there are none.

    Shape: an empty list.
    Dtypes: none.
    Raises: nothing.
    Memory: none.
    """
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Give each GPU its state: there are none."""


def seed() -> None:
    """Nothing to seed."""


seed_all = seed


def manual_seed(seed: int) -> None:
    """Nothing to seed without CUDA; the number is checked."""
    int(seed)


manual_seed_all = manual_seed


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Nothing to set."""


def ipc_collect() -> None:
    """Nothing to collect."""


class StreamContext(contextlib.AbstractContextManager[None]):
    """A context in which that stream is the current one: there is one queue of work."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __exit__(self, *_: object) -> None:
        return None


def stream(stream: Any) -> StreamContext:
    """A context in which that stream is the current one."""
    return StreamContext(stream)


class device(contextlib.AbstractContextManager[None]):  # noqa: N801  (PyTorch's name)
    """A context in which that GPU is the current one: it changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __exit__(self, *_: object) -> None:
        return None


class device_of(device):  # noqa: N801  (PyTorch's name)
    """The same for the GPU of a tensor."""

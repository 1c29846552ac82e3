"""Communication hooks of DDP: the plain all-reduce, and those that halve the bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.groups import chosen
from skimp.distributed.reducer import GradBucket
from skimp.distributed.reductions import all_reduce
from skimp.utils.futures import Future

__all__ = [
    "allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook",
    "fp16_compress_wrapper",
]  # fmt: skip


def summed(t: Tensor, group: Any) -> Future:
    """The future of the sum over the group, in place."""
    work = all_reduce(t, group=group, async_op=True)
    assert work is not None
    return work.get_future()


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """What DDP does without a hook."""
    group = chosen(process_group)
    buffer = bucket.buffer().div_(group.size())
    return summed(buffer, group).then(lambda future: future.value()[0])


def _compressed(dtype: dtypes.dtype, process_group: Any, bucket: GradBucket) -> Future:
    group = chosen(process_group)
    buffer = bucket.buffer()
    small = buffer.to(dtype).div_(group.size())
    return summed(small, group).then(lambda future: buffer.copy_(future.value()[0]))


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Gradients are sent, and summed in float32, as float16."""
    return _compressed(dtypes.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Gradients are sent, and summed in float32, as bfloat16."""
    return _compressed(dtypes.bfloat16, process_group, bucket)


Hook = Callable[[Any, GradBucket], Future]


def _wrapper(dtype: dtypes.dtype, hook: Hook) -> Hook:
    def wrapped(state: Any, bucket: GradBucket) -> Future:
        buffer = bucket.buffer()
        small = _Cast(bucket, buffer.to(dtype))

        def decompress(future: Future) -> Tensor:
            found: Any = future.value()
            value = found[0] if isinstance(found, list) else found
            return buffer.copy_(value)

        return hook(state, small).then(decompress)

    return wrapped


class _Cast(GradBucket):
    """A bucket in another dtype."""

    def __init__(self, bucket: GradBucket, buffer: Tensor) -> None:
        super().__init__(bucket.index(), bucket.parameters(), bucket.is_last())
        self._cast = buffer
        self._buffer = lambda: self._cast


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that gets float16 gradients."""
    return _wrapper(dtypes.float16, hook)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """A hook that gets bfloat16 gradients."""
    return _wrapper(dtypes.bfloat16, hook)

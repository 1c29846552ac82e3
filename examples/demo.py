"""What `make demo` runs: a plain PyTorch program about where tensors keep their numbers."""

import torch
import torch.nn.functional as F


def heading(words: str) -> None:
    print(f"\n--- {words}")


heading("A slice is a view: a write through it shows in the tensor")
shelves = torch.arange(40).reshape(2, 4, 5)
look = shelves[:, 0::2, 2:5]
look[-1] = 100
print(shelves)

heading("A transpose is the same storage with other strides")
torch.manual_seed(3)
tall = torch.randint(0, 9, (5, 3))
wide = tall.t()
one = tall.data_ptr() == wide.data_ptr()
print(f"strides {tall.stride()} and {wide.stride()}, one address: {one}")
tall.zero_()
print(wide)

heading("In place: the same memory; rebinding: new memory")
total, more = torch.tensor([3, 4]), torch.tensor([1, 2])
before = total.data_ptr()
total += more
print(f"total += more        {total}  same memory: {total.data_ptr() == before}")
total = total + more
print(f"total = total + more {total}  same memory: {total.data_ptr() == before}")

heading("And what it costs: a ReLU of 10000 x 10000 numbers")


def in_use() -> float:
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated() / 1024**2


values = torch.randn(10_000, 10_000)
start = in_use()
positive = F.relu(values)
print(f"F.relu(values)   {in_use() - start:.1f} MiB")
del positive
start = in_use()
F.relu_(values)
print(f"F.relu_(values)  {in_use() - start:.1f} MiB")

"""How many Python functions of the package a small step runs: what it costs, without a clock."""

from __future__ import annotations

import numpy as np

import skimp
from skimp import relu
from skimp._ops.shape import pieces
from tests.support.frames import frames_of

# Functions that `y = relu(x @ w + b); y.sum().backward()` runs once warm. Only ever lowered,
# but for the one that restores a backward's state.
MOST = 50
# And those of a product of batches, and back.
MOST_OF_BATCHES = 60
# Of a number whose gradients meet: they are added as arrays.
MOST_OF_MEETING = 64
# Of three views, each of the one before, that nobody records.
MOST_OF_VIEWS = 7
# Of three pieces of rows as heads, of pieces of two numbers, and of those of a large tensor.
MOST_OF_HEADS = {
    "heads": 35, "heads and back": 168, "threes and twos": 33, "large pieces": 23,
}  # fmt: skip
# Of these calls, which nobody records.
MOST_OF_CALLS = {
    "norm of one row": 11, "softmax of one row": 7, "attention of one query": 18,
    "pieces": 10, "deviation": 11, "a stack of numbers": 5, "a number where mask and int say": 9,
    "values where a mask says": 26, "one word": 21, "a quantile": 32,
    "places that hold": 6, "a mirror image": 4, "one of two numbers": 9, "a range of floats": 5,
    "normals of a size": 11, "integers of a shape": 6, "integers by names": 9,
    "the tensor itself": 2, "a row taken from rows": 3, "limits into a tensor": 10,
    "a sum into a tensor": 11, "cosines of a batch": 490,
    "a mixture after one into a tensor": 8,
    "rows of a table": 15, "rows written to a table": 25, "rows added to a table": 17,
    "rows of batches times a matrix": 5, "a vector added to a product": 11,
    "places of the last dim": 32,
    "NumPy's number": 10, "a slice by NumPy's numbers": 12, "a number and places": 39,
}  # fmt: skip
# Of backward through these ops alone, of small tensors.
MOST_OF_GRADIENTS = {
    "gather": 30, "clamp": 27, "a quotient": 17, "a square": 23, "a rectifier": 20, "a loss": 21,
    "a shape": 39, "softmax of one row": 27, "pieces of which one is wanted": 39, "a bias": 18,
    "a table with padding": 33,
}  # fmt: skip
# Of a large tensor that is written over, in which gradients go on too; of a promise and its value,
# of which one watches what it reads: so blocks are taken without a look at all that waits.
MOST_OF_LARGE = {"plain": 20, "a number": 17, "recorded": 23, "waits and is asked for": 44}
# Of a step of a block whose activations wait, take memory of the pool and are made in blocks.
MOST_OF_BLOCK = 1275


def test_frames_of_a_small_step() -> None:
    generator = skimp.Generator().manual_seed(0)
    x = skimp.randn(8, 16, generator=generator)
    w = skimp.randn(16, 4, generator=generator).requires_grad_()
    b = skimp.randn(4, generator=generator).requires_grad_()

    def without() -> None:
        w.grad = b.grad = None

    def step() -> None:
        y = relu(x @ w + b)
        y.sum().backward()

    with skimp.config.using(defer="auto"):
        found = frames_of(step, without)
    assert w.grad is not None
    assert "relu" in found
    assert len(found) <= MOST, f"{len(found)} functions: {' '.join(found)}"


def test_frames_of_a_product_of_batches() -> None:
    """A sum's gradient, one element expanded, is written out; factors are read as they lie."""
    heads = skimp.rand(4, 2, 8, 16).requires_grad_()

    def without() -> None:
        heads.grad = None

    with skimp.config.using(defer="auto"):
        found = frames_of(lambda: (heads @ heads.mT).sum().backward(), without)
    assert len(found) <= MOST_OF_BATCHES, f"{len(found)} functions: {' '.join(found)}"


def test_frames_of_gradients_that_meet() -> None:
    w, x = skimp.rand(4).requires_grad_(), skimp.rand(4)

    def without() -> None:
        w.grad = None

    def step() -> None:
        h = w.tanh()
        (h * x + h * h + h).sum().backward()

    with skimp.config.using(defer="auto"):
        found = frames_of(step, without)
    assert not {"_is_own", "_same_kind", "add_"} & set(found), found
    assert len(found) <= MOST_OF_MEETING, f"{len(found)} functions: {' '.join(found)}"


def test_frames_of_unrecorded_views_of_views() -> None:
    row = skimp.rand(1, 6, 8)
    with skimp.config.using(defer="auto"), skimp.no_grad():
        found = frames_of(lambda: row.transpose(0, 1).unflatten(-1, (2, 4)).permute(1, 2, 0, 3))
    assert len(found) <= MOST_OF_VIEWS, f"{len(found)} functions: {' '.join(found)}"


def test_frames_of_the_heads_of_pieces() -> None:
    """A piece of a row, whose like attention sees as heads, refuses writes, and is recorded as any
    other; pieces of several numbers have each their own record."""
    rows = skimp.rand(4, 8, 24).requires_grad_()
    large = skimp.rand(12, 64, 384).requires_grad_()

    def heads(of: skimp.Tensor) -> list[skimp.Tensor]:
        return [t.view(4, 8, 2, 4).transpose(1, 2) for t in of.split(8, 2)]

    def back() -> None:
        q, k, v = heads(rows * 1)
        (q + k + v).sum().backward()

    def without() -> None:
        rows.grad = None

    for recording in pieces._PIECES.recordings.values():
        recording.forget()  # what else has been split in this process: few numbers have a text
    with skimp.config.using(defer="auto"):
        found = {
            "heads": frames_of(lambda: heads(rows)),
            "heads and back": frames_of(back, without),
            "threes and twos": frames_of(lambda: (rows.chunk(3, 1), rows.chunk(2, 1))),
            "large pieces": frames_of(lambda: large.split(128, 2)),
        }
    counts = {name: len(names) for name, names in found.items()}
    more = {name: found[name] for name, most in MOST_OF_HEADS.items() if counts[name] > most}
    assert not more, f"{counts} {more}"
    assert not [name for name, names in found.items() if "begin" in names]


def test_frames_of_calls_that_nobody_records() -> None:
    nn, F = skimp.nn, skimp.nn.functional
    with skimp.config.using(defer="auto"):
        norm, words = nn.LayerNorm(8), nn.Embedding(5, 8)
        row, rows, word = skimp.rand(1, 8), skimp.rand(4, 8), skimp.tensor(3)
        query, keys = skimp.rand(1, 2, 1, 4), skimp.rand(1, 2, 6, 4)
        mask, numbers = skimp.tensor([True, False, True, True]), [skimp.tensor(1.0)] * 3
        places, into, square = skimp.arange(4), skimp.empty(1, 8), skimp.rand(4, 4)
        table, some, one = skimp.rand(400, 400), skimp.rand(4, 400), np.int64(1)
    skimp.lerp(into, into, 0.5, out=skimp.empty(1, 8))
    calls = {
        "norm of one row": lambda: norm(row),
        "softmax of one row": lambda: F.softmax(row, -1),
        "attention of one query": lambda: F.scaled_dot_product_attention(query, keys, keys),
        "pieces": lambda: row.chunk(2, -1),
        "deviation": lambda: row.std(),
        "a stack of numbers": lambda: skimp.stack(numbers),
        "a number where mask and int say": lambda: rows.__setitem__((mask, 0), 1.0),
        "values where a mask says": lambda: rows.__setitem__(mask, rows[:3].clone()),
        "one word": lambda: words(word),
        "a quantile": lambda: skimp.quantile(rows, 0.3, 0),
        "places that hold": lambda: mask.nonzero(),
        "a mirror image": lambda: skimp.flip(rows, [1]),
        "one of two numbers": lambda: skimp.where(mask, 1.0, 0.0),
        "a range of floats": lambda: skimp.arange(0, 8, 2, dtype=skimp.float32),
        "normals of a size": lambda: skimp.normal(0.0, 1.0, (16,)),
        "integers of a shape": lambda: skimp.randint_like(places, 9),
        "integers by names": lambda: skimp.randint(low=0, high=9, size=(4,)),
        "the tensor itself": lambda: skimp.as_tensor(rows),
        "a row taken from rows": lambda: rows.sub_(row),
        "rows of a table": lambda: table[places],
        "rows written to a table": lambda: table.__setitem__(places, some),
        "rows added to a table": lambda: table.index_add_(0, places, some),
        "rows of batches times a matrix": lambda: skimp.matmul(keys, square),
        "a vector added to a product": lambda: skimp.addmv(square[0], square, square[1]),
        "cosines of a batch": lambda: skimp.vmap(F.cosine_similarity, (0, None, None))(
            rows, row, -1
        ),
        "limits into a tensor": lambda: skimp.clamp(row, 0.0, 1.0, out=into),
        "a mixture after one into a tensor": lambda: skimp.lerp(row, row, 0.5),
        "a sum into a tensor": lambda: skimp.sum(rows, 0, True, out=into),
        "places of the last dim": lambda: rows[..., [1, 0]],
        "NumPy's number": lambda: rows[one],
        "a slice by NumPy's numbers": lambda: rows[:, one : one + 2],
        "a number and places": lambda: rows[1, [0, 2]],
    }
    with skimp.config.using(defer="auto"), skimp.no_grad():
        found = {name: frames_of(call) for name, call in calls.items()}
    counts = {name: len(names) for name, names in found.items()}
    more = {name: found[name] for name, most in MOST_OF_CALLS.items() if counts[name] > most}
    assert not more, f"{counts} {more}"
    assert "Tree.__getattr__" not in found["norm of one row"]


def test_frames_of_gradients_of_small_tensors() -> None:
    F = skimp.nn.functional
    x, row = skimp.rand(4, 5).requires_grad_(), skimp.rand(1, 5).requires_grad_()
    bias = skimp.rand(5).requires_grad_()
    more, index, labels = skimp.rand(4, 5), skimp.tensor([[1], [0], [4], [1]]), skimp.arange(4)
    ones, one, column = skimp.ones(4, 5), skimp.ones(1, 5), skimp.ones(4, 1)
    other, both = skimp.ones(5, 4), skimp.ones(8, 5)
    made = {
        "gather": lambda: x.gather(1, index).backward(column),
        "clamp": lambda: x.clamp(0.2, 0.8).backward(ones),
        "a quotient": lambda: (more / x).backward(ones),
        "a square": lambda: (x**2).backward(ones),
        "a rectifier": lambda: F.relu(x).backward(ones),
        "a loss": lambda: F.nll_loss(x, labels).backward(),
        "a shape": lambda: x.reshape(5, 4).backward(other),
        "softmax of one row": lambda: F.softmax(row, -1).backward(one),
        "pieces of which one is wanted": lambda: skimp.cat((more, x)).backward(both),
        "a bias": lambda: (more + bias).backward(ones),
        "a table with padding": lambda: F.embedding(labels, x, 0).backward(ones),
    }

    def without() -> None:
        x.grad = row.grad = bias.grad = None

    with skimp.config.using(defer="auto"):
        found = {name: frames_of(call, without) for name, call in made.items()}
    counts = {name: len(names) for name, names in found.items()}
    more_than = {n: found[n] for n, most in MOST_OF_GRADIENTS.items() if counts[n] > most}
    assert not more_than, f"{counts} {more_than}"


def test_frames_of_a_step_of_a_block_of_middle_size() -> None:
    nn = skimp.nn
    skimp.manual_seed(0)
    norm, up, down = nn.LayerNorm(128), nn.Linear(128, 512), nn.Linear(512, 128)
    parameters = [*norm.parameters(), *up.parameters(), *down.parameters()]
    optimizer = skimp.optim.AdamW(parameters)
    x = skimp.randn(12, 64, 128)

    def step() -> None:
        optimizer.zero_grad()
        y = down(nn.functional.gelu(up(norm(x)))) + x
        y.square().mean().backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    with skimp.config.using(defer="auto"):
        found = frames_of(step, warm=10)
    assert "Storage._compute" in found  # GELU waited
    assert len(found) <= MOST_OF_BLOCK, f"{len(found)} functions: {' '.join(found)}"


def test_layouts_of_views_with_dims_of_one_are_looked_up() -> None:
    """NumPy's strides of such dims aren't PyTorch's, so a layout is made: once for all calls."""
    row = skimp.rand(1, 32)
    with skimp.config.using(defer="auto"):
        for look in (
            lambda: row.view(1, 4, 8),
            lambda: row.view((1, 4, 8)),
            lambda: row.permute(1, 0),
            lambda: row.expand(1, 4, 32),
            row.t,
        ):
            found = frames_of(look)
            assert not {"ints", "as_int", "permute", "t", "_view_sizes"} & set(found[1:]), found


def test_frames_of_large_tensors_written_over() -> None:
    x, y = skimp.rand(400, 400), skimp.rand(400, 400)
    leaf = skimp.rand(400, 400).requires_grad_()
    with skimp.config.using(defer="auto", threads=1):
        made = (leaf * 1).clone()
        made.data_ptr()
        found = {
            "plain": frames_of(lambda: x.add_(y)),
            "a number": frames_of(lambda: x.mul_(0.5)),
            "recorded": frames_of(lambda: made.add_(y)),
            "waits and is asked for": frames_of(lambda: (x + y).data_ptr()),
        }
    counts = {name: len(names) for name, names in found.items()}
    more = {name: found[name] for name, most in MOST_OF_LARGE.items() if counts[name] > most}
    assert not more, f"{counts} {more}"

"""The graph as programs walk it: names of nodes, how many edges they have, and which are empty."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch as oracle

import skimp
from tests.support.op_samples import compared, tensors_of

# Ops whose nodes are others, by reason; one that is repaired leaves this list.
ONE_NODE = "one node where PyTorch's CPU build has several"
OTHER_OPS = "made of other ops than in PyTorch: the last one is another"
SPECIAL = "for some arguments (one row, one dim, no elements, a number) PyTorch takes another way"
UNLIKE: dict[str, str] = {
    **dict.fromkeys(
        [
            "nn.functional.rms_norm", "nn.functional.scaled_dot_product_attention", "special.ndtr",
            "matmul", "__rmatmul__", "nn.functional.linear", "linalg.matrix_power",
        ],
        ONE_NODE,
    ),
    **dict.fromkeys(["linalg.cond", "nn.functional.linear_cross_entropy"], OTHER_OPS),
    **dict.fromkeys(
        [
            "cdist", "cumulative_trapezoid", "fft.fft2", "fft.fftn", "fft.ifft2", "fft.ifftn",
            "linalg.householder_product", "linalg.matrix_norm", "linalg.norm", "meshgrid",
            "nn.functional.cross_entropy", "nn.functional.dropout", "nn.functional.dropout2d",
            "nn.functional.dropout3d", "sort", "stft", "trapezoid", "trapz",
        ],
        SPECIAL,
    ),
    "nn.functional.pad": "circular: PyTorch writes the edges in place, here they are gathered",
    "round": "PyTorch's own overload of decimals=0",
}  # fmt: skip


def shown(t: Any) -> Any:
    """A tensor's node as a program sees it."""
    node = t.grad_fn if t.requires_grad else None
    if node is None:
        return None
    return type(node).__name__, [to is not None for to, _ in node.next_functions]


def test_nodes_are_those_of_the_oracle() -> None:
    seen, unlike = compared(60, lambda lib, one: [shown(t) for t in tensors_of(one.call(lib))])
    assert len(seen) > 440
    assert unlike == set(UNLIKE)


@pytest.mark.parametrize("word", ["add", "sub", "mul", "truediv", "pow", "mod"])
@pytest.mark.parametrize("number", [2, 2.5, True])
def test_numbers_on_either_side(word: str, number: Any) -> None:
    """With leaves and with results, on the left, on the right and in place."""
    f = getattr(operator, word)
    for made_first in (False, True):
        for way in ("left", "right", "in place"):
            found = []
            for torch in (oracle, skimp):
                x = torch.full((3,), 1.5, requires_grad=True)
                y = x.sin() if made_first else x
                try:
                    if way == "in place":
                        found.append(shown(getattr(operator, f"i{word}")(x.sin(), number)))
                    else:
                        found.append(shown(f(y, number) if way == "left" else f(number, y)))
                except RuntimeError:
                    found.append("refused")
            if word == "mod" and way == "right":
                continue  # PyTorch has no derivative of number % x; here there is one
            assert found[0] == found[1], (made_first, way)


LOSSES = (
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss", "poisson_nll_loss",
    "hinge_embedding_loss",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_end_in_their_own_node(name: str, reduction: str) -> None:
    for needs_target in (False, True):
        found = []
        for torch in (oracle, skimp):
            x = torch.tensor([0.25, 0.5, 0.75], requires_grad=True)
            t = torch.tensor([1.0, 1.0, 1.0], requires_grad=needs_target)
            try:
                y = getattr(torch.nn.functional, name)(x, t, reduction=reduction)
            except RuntimeError:
                break  # no gradient for the target
            node = shown(y)
            first = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
            again = torch.autograd.grad((first * y.sum()).sum(), x)[0]
            found.append((node, first.tolist(), again.tolist()))
        else:
            assert found[0][0] == found[1][0]
            for ours, theirs in zip(found[1][1:], found[0][1:], strict=True):
                assert ours == pytest.approx(theirs, 1e-5, 1e-6)


FUNCTIONS = (
    "add", "sub", "mul", "div", "pow", "remainder", "fmod", "true_divide", "floor_divide",
    "maximum", "minimum", "atan2", "hypot", "rsub", "where", "lerp", "addcmul", "float_power",
    "xlogy", "copysign",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_as_any_argument_of_functions(name: str) -> None:
    """And with sums, means and norms of what comes out."""
    numbers = (2, 0.5)
    for number in numbers:
        for place in range(3):
            for word in ("", "sum", "mean", "norm", "max", "prod"):
                found = []
                for torch in (oracle, skimp):
                    x = torch.tensor([0.25, 0.5, 2.0], requires_grad=True)
                    given = [x.sin(), x, x.exp()][
                        : 3 if name in ("where", "lerp", "addcmul") else 2
                    ]
                    if name == "where":
                        given[0] = x.detach() > 1
                    if place < len(given):
                        given[place] = number
                    try:
                        y = getattr(torch, name)(*given)
                        found.append(shown(getattr(y, word)() if word else y))
                    except (TypeError, RuntimeError):
                        found.append("refused")
                if "refused" not in found and found[0] and found[0][0] != "NotImplemented":
                    assert found[0] == found[1], (number, place, word)


def test_an_op_of_several_results_shows_the_same_edges_for_each() -> None:
    x = skimp.randn(3, 4, requires_grad=True)
    y = x.sin()
    var, mean = skimp.var_mean(y, 1)
    assert var.grad_fn.name() == mean.grad_fn.name() == "VarMeanBackward0"
    assert var.grad_fn.next_functions == mean.grad_fn.next_functions == ((y.grad_fn, 0),)
    (var.sum() + mean.sum()).backward()
    assert x.grad is not None


# docs/differences.md: one node where PyTorch's CPU build has those of the ops inside
RECURRENT = {
    "GRU": (["StackBackward0"], ["GruBackward0"]),
    "LSTM": (["MkldnnRnnLayerBackward0"], ["LstmBackward0"]),
    "RNN": (["StackBackward0"], ["RnnBackward0"]),
    "GRUCell": (["AddBackward0"], ["ThnnFusedGruCellBackward0"]),
    "LSTMCell": (["MulBackward0", "AddBackward0"], ["ThnnFusedLstmCellBackward0"] * 2),
    "RNNCell": (["TanhBackward0"], ["RnnBackward0"]),
}


@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_nets_are_one_node_for_a_direction_or_a_step(kind: str) -> None:
    found = []
    for torch in (oracle, skimp):
        net = getattr(torch.nn, kind)(2, 3)
        given = torch.zeros(4, 2, requires_grad=True)
        made = net(given if "Cell" in kind else given.view(4, 1, 2))
        results = made if kind == "LSTMCell" else [made] if "Cell" in kind else [made[0]]
        found.append([t.grad_fn.name() for t in results])
    assert tuple(found) == RECURRENT[kind]
    edges = [to is not None for to, _ in results[0].grad_fn.next_functions]
    assert edges == [True] + [False] * (2 if "LSTM" in kind else 1) + [True] * 4


def test_an_argument_that_comes_back_keeps_its_node() -> None:
    x = skimp.randn(1, 2, 4, 4, requires_grad=True).sin()
    assert x.sum_to_size(1, 2, 4, 4).grad_fn.name() == "SinBackward0"


WRITES = (
    "copy_(b)", "copy_(b[0])", "copy_(b.double())", "add_(b)", "mul_(b)", "addcmul_(b, b.exp())",
    "masked_fill_(b > 0, b[0, 0])", "index_copy_(0, i, b)", "index_add_(0, i, b)",
    "scatter_(0, i.expand(2, 3).long(), b)", "index_put_((i,), b)", "lerp_(b, 0.5)", "pow_(b)",
    "masked_scatter_(b > 0, b)", "where(b > 0, b.exp())", "__setitem__(0, b[1])", "fill_(b[0, 0])",
    "__setitem__(i, b)", "atan2_(b)", "div_(b)", "sub_(b)", "put_(i, b[0, :2])",
    "clamp_(min=b)", "clamp_(max=b)",
)  # fmt: skip


def _edges(t: Any) -> Any:
    node = t.grad_fn
    if node is None:
        return None
    return type(node).__name__, [to and type(to).__name__ for to, _ in node.next_functions]


@pytest.mark.parametrize("write", WRITES)
def test_writes_have_their_edges_in_order(write: str) -> None:
    """Of what is written to, then of what is read; each with a history, or without one."""
    for written, read in ((True, True), (True, False), (False, True)):
        found = []
        for torch in (oracle, skimp):
            a = torch.full((2, 3), 0.5, requires_grad=written).sin()
            b = torch.full((2, 3), 0.75, requires_grad=read)
            space = {"a": a, "b": b.cos() if read else b, "i": torch.tensor([0, 1]).view(2)}
            if write.startswith("scatter_"):
                space["i"] = torch.tensor([[0], [1]])
            out = eval(f"a.{write}", space)
            made = out if out is not None else a
            gradient = []
            if made.requires_grad:
                made.sum().backward()
                gradient = b.grad.tolist() if read else []
            found.append((_edges(made), gradient))
        assert found[0][0] == found[1][0], (written, read)
        for ours, theirs in zip(found[1][1], found[0][1], strict=True):
            assert ours == pytest.approx(theirs, 1e-5)

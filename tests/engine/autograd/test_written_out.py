"""What is written out for a rule that has been used a few times does what the general way does."""

from __future__ import annotations

import gc
import traceback
from types import BuiltinFunctionType
from typing import Any

import pytest

import skimp
from skimp._engine.autograd import described, record
from skimp._engine.autograd.rules import Rule
from tests.support.programs import Program, into, same


def leaf(torch: Any, *shape: int) -> Any:
    """Different numbers in every place."""
    n = skimp.Size(shape or (4,)).numel()
    return ((torch.arange(n) * 7 % 11 - 4) / 8).reshape(shape or (4,)).requires_grad_()


PROGRAMS: dict[str, Program] = {}
program = into(PROGRAMS)


def shown(e: BaseException) -> str:
    """The first line of an error, without the numbers of elements and versions."""
    return f"{type(e).__name__}: {str(e).splitlines()[0][:60]}"


@program
def gradients_on_arrays(torch):
    """Formulas that small arrays take in one go: odd numbers, other layouts, and recorded ones."""
    F, found = torch.nn.functional, []
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[0.0, -0.0, 1.5, nan], [inf, -inf, -2.0, 3.0]])
    g = torch.tensor([[nan, inf, -0.0, 1.0], [2.0, -3.0, inf, -1.0]])
    index = torch.tensor([[3, 0, 3, 1], [2, 2, 2, 2]])
    ops = (
        torch.relu, lambda a: a.clamp(-2.0, 1.5), lambda a: a.clamp(min=0), F.hardtanh, F.relu6,
        lambda a: a.clamp(max=1), lambda a: a.clamp(-inf, 1),
        lambda a: a.clamp(torch.zeros(()), torch.ones(4)),
        lambda a: a.gather(1, index), lambda a: a**2, lambda a: a**-1, lambda a: a**0.5,
        lambda a: a**3, lambda a: a**0, lambda a: 1.5 / a, lambda a: (a + 1) / a,
        lambda a: a / (a[:, :1] + 2), lambda a: a.reshape(4, 2).view(2, 4),
        lambda a: torch.cat((a, a.detach(), a[:, 1:]), 1)[:, 4:8], lambda a: a.softmax(1),
        lambda a: a[:1].softmax(1).expand(2, 4), lambda a: a[:1].log_softmax(-1).expand(2, 4),
    )  # fmt: skip

    def told(y, a, *g, **words):  # the very numbers: NaN, and zeros with their signs
        found.append(str(torch.autograd.grad(y, a, *g, **words)[0].tolist()))

    for f in ops:
        for turned in (False, True):
            a = (x.t().contiguous().t() if turned else x.clone()).requires_grad_()
            told(f(a), a, g, create_graph=True)
            told(f(a), a, g.t().contiguous().t() if turned else g)
            told(f(a).sum(), a)
    for reduction in ("mean", "sum", "none"):
        a = x.clone().requires_grad_()
        loss = F.nll_loss(a, torch.tensor([3, 1]), reduction=reduction)
        told(loss, a, g[0, :2] if loss.ndim else g[1, 0])
    number = torch.tensor(3.0, requires_grad=True)
    told(number**2 / number.clamp(0, 5), number)
    return found


@program
def masks_of_an_addmm(torch):
    found = []
    for which in range(1, 8):
        b, x, w = leaf(torch, 4), leaf(torch, 3, 2), leaf(torch, 2, 4)
        given = [t if which >> i & 1 else t.detach() for i, t in enumerate((b, x, w))]
        y = torch.addmm(*given, beta=2, alpha=3)
        y.sum().backward()
        found += [b.grad, x.grad, w.grad, len(y.grad_fn.next_functions)]
    return found


@program
def factors_in_every_layout(torch):
    found = []
    for turned in range(4):
        x = leaf(torch, 3, 2).t() if turned & 1 else leaf(torch, 2, 3)
        w = leaf(torch, 4, 3).t() if turned & 2 else leaf(torch, 3, 4)
        x.retain_grad(), w.retain_grad()
        (x @ w).sum().backward()
        found += [x.grad, w.grad, x.grad.stride(), w.grad.stride()]
    return found


@program
def results_and_second_derivatives(torch):
    x = leaf(torch)
    y = x.tanh().exp() * x.sigmoid()
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (g * g).sum().backward()
    return y, g, x.grad


@program
def joint_formulas(torch):
    x, y = leaf(torch, 3, 4), leaf(torch, 3, 4)
    d = torch.cdist(x, y) + torch.atan2(x, y).sum()
    d.sum().backward()
    z = leaf(torch, 5, 4)
    torch.nn.functional.layer_norm(z, (4,), leaf(torch, 4), leaf(torch, 4)).pow(2).sum().backward()
    return x.grad, y.grad, z.grad


@program
def lists_and_several_outputs(torch):
    x, y = leaf(torch, 3), leaf(torch, 2)
    a, b = torch.cat([x, y, x]).split([3, 5])
    values, _ = torch.stack([a, b[:3]]).max(0)
    (values.sum() + b.sum()).backward()
    return x.grad, y.grad


@program
def lists_of_every_kind(torch):
    found = []
    for n in (1, 2, 3):
        for which in range(1 << n):
            given = [leaf(torch, 2) for _ in range(n)]
            given = [t if which >> i & 1 else t.detach() for i, t in enumerate(given)]
            y, z = torch.cat(given), torch.stack([t * 2 for t in given])
            found += [y.requires_grad, z.requires_grad]
            if which:
                (y.sum() + (z * z).sum()).backward()
                found += [t.grad for t in given if t.requires_grad]
                found.append([f is not None for f, _ in y.grad_fn.next_functions])
    return found


@program
def broadcasts_and_numbers(torch):
    x, y = leaf(torch, 3, 1), leaf(torch, 4)
    z = (x * y + 2) / (y * y + 1) - 3 * x
    z.mean((0,), keepdim=True).sum().backward()
    return x.grad, y.grad


@program
def a_write_is_noticed(torch):
    found = []
    for op in (lambda t: t.exp(), lambda t: torch.mm(t, t), lambda t: t.softmax(1)):
        x = leaf(torch, 3, 3)
        y = x * 1
        z = op(y)
        for written in (y, z):
            with torch.no_grad():
                written.mul_(2)
        with pytest.raises(RuntimeError) as e:
            z.sum().backward()
        found.append(shown(e.value))
    return found


@program
def freed_and_kept(torch):
    x = leaf(torch, 3, 3)
    y = torch.mm(x, x).softmax(0)[0].sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError) as e:
        y.backward()
    return x.grad, shown(e.value)


@program
def hooks_pack(torch):
    x, log = leaf(torch, 2, 2), []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (log.append(tuple(t.shape)), t * 1)[1], lambda t: t
    ):
        y = torch.mm(x, x.tanh())
    y.sum().backward()
    return log, x.grad


@program
def views_made_under_no_grad(torch):
    x = leaf(torch, 4)
    with torch.no_grad():
        v = x[1:]
    found = [v.requires_grad, (v * 2).grad_fn is None]
    y = torch.clamp(x, 0.1, 0.5).view(2, 2).t().sum(0)
    y.backward(torch.ones(2))
    return found, x.grad


@program
def gradients_that_are_missing(torch):
    x = leaf(torch, 4)
    a, b = x.exp().unbind()[:2]
    (got,) = torch.autograd.grad(a * 1, x, allow_unused=True)
    return got, b


def recorders(rule: Rule) -> list[Any]:
    """What records the calls of a rule's ops."""
    return [recording.record for recording in rule.recordings.values()]


def is_written(f: Any) -> bool:
    return type(f) is BuiltinFunctionType or f.__code__.co_filename.startswith("<skimp ")


def forget() -> None:
    """Let every rule be as if it had not been used."""
    for rule in gc.get_objects():
        if type(rule) is Rule:
            for recording in rule.recordings.values():
                recording.forget()


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in PyTorch before what records is written out, and where it is."""
    monkeypatch.setattr(record, "USES", 10**9)
    forget()
    same(PROGRAMS[name])
    monkeypatch.setattr(record, "USES", 1)
    for _ in range(3):
        same(PROGRAMS[name])


def test_a_rule_is_written_out_after_some_uses() -> None:
    forget()
    x = skimp.rand(3, 3, requires_grad=True)
    for _ in range(2 * record.USES):
        y = x.softmax(1)
        y.sum().backward()
    plan = x.softmax(1).grad_fn._skimp_plan
    assert is_written(plan.run)
    assert any([is_written(f) for f in recorders(plan.rule)])  # which is not the user's line


def test_a_new_plan_is_written_into_its_rule() -> None:
    forget()
    a, b = skimp.rand(3, requires_grad=True), skimp.rand(3)
    for first, second in ((a, b), (b, a), (a, a)):
        for _ in range(2 * record.USES):
            y = first * second
        assert any([is_written(f) for f in recorders(y.grad_fn._skimp_plan.rule)])
        assert [n is not None for n, _ in y.grad_fn.next_functions] == [first is a, second is a]


def test_tracebacks_have_the_lines_that_are_written() -> None:
    x = skimp.rand(3, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError) as e:
        y.backward()
    assert "raise freed(node)" in "".join(traceback.format_exception(e.value))


def test_lines_are_the_users() -> None:
    x = skimp.rand(3, 3, requires_grad=True)
    for _ in range(2 * record.USES):
        y = x.t()
        skimp.mm(y, y).sum().backward()
    z = skimp.mm(x, x)
    x.detach().mul_(2)
    with pytest.raises(RuntimeError) as e:
        z.sum().backward()
    assert "z = skimp.mm(x, x)" in str(e.value)
    assert "x.detach().mul_(2)" in str(e.value)


@pytest.mark.skipif(described.IN_C is None, reason="nothing is compiled")
def test_c_reads_no_output_where_there_is_none() -> None:
    x = leaf(skimp)
    for _ in range(record.USES + 1):
        node = x.topk(2)[0].grad_fn
    (made,) = node.rule.recordings.values()
    with pytest.raises(IndexError):
        made.record((), *[x if n in node.rule.names else None for n in made.names])

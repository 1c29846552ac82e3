"""nn.init and nn.utils against the oracle: the same draws, parametrizations, sequences."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch as oracle
from hypothesis import given, strategies as st

import skimp
from tests.engine.memory.test_interrupts import Moments
from tests.support import samples

Program = Callable[[Any], Any]


def same(program: Program, tolerance: float = 1e-5) -> None:
    """`program(library)` gives the same from the same seed."""
    ours, theirs = samples.seeded(lambda t, functional: program(t))
    samples.same(ours, theirs, tolerance)


FILLS = {
    "uniform_": (), "normal_": (), "constant_": (2,), "ones_": (), "zeros_": (), "eye_": (),
    "xavier_uniform_": (), "xavier_normal_": (), "kaiming_uniform_": (), "kaiming_normal_": (),
    "orthogonal_": (), "sparse_": (0.5,),
}  # fmt: skip
SAID = {
    "any.": samples.DTYPES,
    "floating point and complex numbers.": samples.DTYPES[-6:],
    "float32 and float64.": samples.FLOATS,
}


@pytest.mark.parametrize("name", FILLS)
def test_types_that_are_filled(name: str) -> None:
    """As in PyTorch, and as the docstring says."""
    taken = []
    for dtype in samples.DTYPES:

        def fill(t: Any, dtype: str = dtype) -> Any:
            made = t.zeros(4, 4, dtype=getattr(t, dtype))
            return samples.answer(getattr(t.nn.init, name), made, *FILLS[name])

        ours, theirs = samples.both(fill)
        assert type(ours).__name__ == type(theirs).__name__, dtype
        if isinstance(theirs, oracle.Tensor):
            taken.append(dtype)
    doc = getattr(skimp.nn.init, name).__doc__ or ""
    said = next(line for line in doc.splitlines() if "Dtypes: " in line)
    assert tuple(taken) == SAID[said.partition("Dtypes: ")[2]]


INITS: dict[str, Program] = {
    "uniform_": lambda t: t.nn.init.uniform_(t.empty(3, 5), -1, 2),
    "normal_": lambda t: t.nn.init.normal_(t.empty(4, 5), 1, 2),
    "constant_": lambda t: t.nn.init.constant_(t.empty(2, 2), 0.3),
    "ones_": lambda t: t.nn.init.ones_(t.empty(2)),
    "zeros_": lambda t: t.nn.init.zeros_(t.empty(2)),
    "eye_": lambda t: t.nn.init.eye_(t.empty(2, 3)),
    "dirac_": lambda t: t.nn.init.dirac_(t.empty(4, 2, 3, 3), 2),
    "trunc_normal_": lambda t: t.nn.init.trunc_normal_(t.empty(20, 5), 0.1, 1.5),
    "trunc_normal_tail": lambda t: t.nn.init.trunc_normal_(t.empty(20, 5), 0.0, 1.0, 1.0, 1.5),
    "xavier_uniform_": lambda t: t.nn.init.xavier_uniform_(t.empty(3, 5, 2), 2.0),
    "xavier_normal_": lambda t: t.nn.init.xavier_normal_(t.empty(4, 5)),
    "kaiming_uniform_": lambda t: t.nn.init.kaiming_uniform_(t.empty(3, 5), nonlinearity="relu"),
    "kaiming_normal_": lambda t: t.nn.init.kaiming_normal_(t.empty(4, 5), 0.2, "fan_out"),
    "orthogonal_": lambda t: t.nn.init.orthogonal_(t.empty(5, 3), 2.0),
    "orthogonal_wide": lambda t: t.nn.init.orthogonal_(t.empty(3, 4, 2)),
    "sparse_": lambda t: t.nn.init.sparse_(t.empty(6, 4), 0.4),
    "generator": lambda t: t.nn.init.normal_(t.empty(20), generator=t.Generator().manual_seed(3)),
    "gain": lambda t: [
        t.nn.init.calculate_gain(n) for n in ("linear", "tanh", "relu", "leaky_relu", "selu")
    ],
}


@pytest.mark.parametrize("name", INITS)
def test_init(name: str) -> None:
    exact = name not in (
        "trunc_normal_",
        "trunc_normal_tail",
        "orthogonal_",
        "orthogonal_wide",
        "normal_",
    )
    same(INITS[name], 0 if exact else 1e-5)


def test_init_errors() -> None:
    for f in (
        lambda t: t.nn.init.eye_(t.empty(2)),
        lambda t: t.nn.init.dirac_(t.empty(2, 2)),
        lambda t: t.nn.init.xavier_normal_(t.empty(2)),
        lambda t: t.nn.init.kaiming_normal_(t.empty(2, 2), mode="x"),
        lambda t: t.nn.init.calculate_gain("x"),
        lambda t: t.nn.init.orthogonal_(t.empty(2)),
    ):
        found = []
        for torch in (skimp, oracle):
            with pytest.raises(ValueError) as e:  # noqa: PT011  (the text is compared)
                f(torch)
            found.append(str(e.value))
        assert found[0] == found[1]


# -- gradients and vectors -------------------------------------------------------------------------


def with_grads(torch: Any) -> Any:
    m = torch.nn.Linear(3, 2)
    m(torch.ones(4, 3)).square().sum().backward()
    return m


@pytest.mark.parametrize("limit", [0.1, 1e9])
@pytest.mark.parametrize("kind", [2.0, 1, float("inf")])
def test_clip_grad_norm(limit: float, kind: float) -> None:
    def program(torch: Any) -> Any:
        m = with_grads(torch)
        total = torch.nn.utils.clip_grad_norm_(m.parameters(), limit, kind, foreach=None)
        return [total, m.weight.grad, m.bias.grad, torch.nn.utils.get_total_norm([m.weight.grad])]

    same(program)


def test_a_norm_of_large_and_small_ones_is_that_of_their_norms() -> None:
    norm = skimp.linalg.vector_norm
    several = [skimp.randn(*s) for s in ((5,), (300, 400), (0,), (3, 512))]
    several.append(several[3].t())
    assert skimp.nn.utils.get_total_norm(several).equal(
        norm(skimp.stack([norm(t) for t in several]))
    )


def test_clip_grads() -> None:
    def program(torch: Any) -> Any:
        m = with_grads(torch)
        torch.nn.utils.clip_grad_value_(m.parameters(), 0.5)
        out = [m.weight.grad.clone(), torch.nn.utils.clip_grad_norm_(m.bias, 0.1)]
        m.weight.grad.fill_(float("inf"))
        with pytest.raises(RuntimeError, match=r"The total norm of order 2.0 .* is non-finite"):
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0, error_if_nonfinite=True)
        return out

    same(program)


def test_clipping_that_changes_nothing_writes_nothing() -> None:
    m = with_grads(skimp)
    before = m.weight.grad._version
    skimp.nn.utils.clip_grad_norm_(m.parameters(), 1e9)
    assert m.weight.grad._version == before


def test_norms_looked_at_together_are_those_of_each() -> None:
    skimp.manual_seed(0)
    sizes = [(), (1,), (7, 31), (513,), (64, 300), (0, 4), (5, 4)]
    grads = [skimp.randn(size) for size in sizes]
    grads.append(skimp.randn(6, 5).t())
    for listed in (grads[:5], grads, [*grads[:3], grads[3].double()]):
        each = [skimp.linalg.vector_norm(g) for g in listed]
        together = skimp.linalg.vector_norm(skimp.stack(each))
        assert skimp.nn.utils.get_total_norm(listed).item() == together.item()
    mixed = [skimp.ones(3), skimp.ones(3, dtype=skimp.float64)]
    assert skimp.nn.utils.get_total_norm(mixed).dtype is skimp.float64


def test_vectors() -> None:
    def program(torch: Any) -> Any:
        m = torch.nn.Linear(3, 2)
        v = torch.nn.utils.parameters_to_vector(m.parameters())
        torch.nn.utils.vector_to_parameters(v * 2, m.parameters())
        return [v, m.weight, m.bias]

    same(program)


# -- parametrizations ------------------------------------------------------------------------------


def trained(torch: Any, make: Program, remove: Callable[[Any, Any], Any] | None = None) -> Any:
    """Values, keys and gradients through two forwards, then without the parametrization."""
    m = make(torch)
    out = [repr(m), list(m.state_dict())]
    for _ in range(2):
        m.zero_grad()
        y = m(torch.ones(2, m.in_features))
        (y * y).sum().backward()
        out += [y, *[p.grad for _, p in sorted(m.named_parameters())]]
    if torch.nn.utils.parametrize.is_parametrized(m):
        out.append(copy.deepcopy(m).state_dict())
    if remove is not None:
        remove(torch, m)
        out += [repr(m), m.state_dict(), m(torch.ones(2, m.in_features))]
    return out


def drop(torch: Any, m: Any) -> None:
    torch.nn.utils.parametrize.remove_parametrizations(m, "weight")


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Linear(3, 4)),
        lambda t: t.nn.utils.parametrizations.weight_norm(t.nn.Linear(3, 4), dim=None),
        lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(3, 4)),
        lambda t: t.nn.utils.parametrizations.orthogonal(t.nn.Linear(3, 4)),
        lambda t: t.nn.utils.parametrizations.orthogonal(t.nn.Linear(4, 4), "weight", "cayley"),
        lambda t: t.nn.utils.parametrizations.orthogonal(
            t.nn.Linear(5, 4), use_trivialization=False
        ),
    ],
)
def test_parametrizations(make: Program) -> None:
    same(lambda t: trained(t, make, drop), 1e-4)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_older_norms() -> None:
    def undo_weight(t: Any, m: Any) -> None:
        t.nn.utils.remove_weight_norm(m)

    def undo_spectral(t: Any, m: Any) -> None:
        t.nn.utils.remove_spectral_norm(m)

    same(lambda t: trained(t, lambda t: t.nn.utils.spectral_norm(t.nn.Linear(3, 4)), undo_spectral))
    m = skimp.nn.utils.weight_norm(skimp.nn.Linear(3, 4))
    assert list(m.state_dict()) == ["bias", "weight_g", "weight_v"]
    same(lambda t: t.nn.utils.weight_norm(t.nn.Linear(3, 4))(t.ones(2, 3)))
    undo_weight(skimp, m)
    assert list(m.state_dict()) == ["bias", "weight"]


def test_parametrizations_of_ones_own() -> None:
    def program(torch: Any) -> Any:
        nn, P = torch.nn, torch.nn.utils.parametrize

        class Symmetric(nn.Module):
            def forward(self, x: Any) -> Any:
                return x.triu() + x.triu(1).transpose(-1, -2)

        class Double(nn.Module):
            def forward(self, x: Any) -> Any:
                return 2 * x

            def right_inverse(self, y: Any) -> Any:
                return y / 2

        class Wider(nn.Module):
            def forward(self, x: Any) -> Any:
                return x.repeat(2, 1)

        m = nn.Linear(3, 3)
        P.register_parametrization(m, "weight", Symmetric())
        out = [m.weight, P.is_parametrized(m), P.is_parametrized(m, "bias"), repr(m)]
        n = nn.Linear(3, 3)
        P.register_parametrization(n, "weight", Double())
        P.register_parametrization(n, "weight", Double())
        n.weight = torch.ones(3, 3)
        with P.cached():
            out.append(n.weight is n.weight)
        out += [n.weight, n.state_dict(), P.type_before_parametrizations(n).__name__]
        P.remove_parametrizations(n, "weight", leave_parametrized=False)
        out.append(n.weight)
        for bad in (
            lambda: P.register_parametrization(nn.Linear(3, 3), "weight", Wider()),
            lambda: P.register_parametrization(n, "nothing", Double()),
            lambda: P.remove_parametrizations(n, "weight"),
        ):
            with pytest.raises(ValueError) as e:  # noqa: PT011  (the text is compared)
                bad()
            out.append(str(e.value))
        return out

    same(program)


# -- other helpers ---------------------------------------------------------------------------------


def test_fusion_and_skip_init() -> None:
    def program(torch: Any) -> Any:
        conv, bn = torch.nn.Conv2d(2, 3, 2), torch.nn.BatchNorm2d(3)
        bn(conv(torch.randn(4, 2, 5, 5)))
        x = torch.randn(1, 2, 4, 4)
        fused = torch.nn.utils.fuse_conv_bn_eval(conv.eval(), bn.eval())
        linear, norm = torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)
        other = torch.nn.utils.fusion.fuse_linear_bn_eval(linear.eval(), norm.eval())
        return [fused(x), bn(conv(x)), other(torch.ones(1, 3))]

    same(program, 1e-4)
    skimp.manual_seed(0)
    before = skimp.get_rng_state()
    assert skimp.nn.utils.skip_init(skimp.nn.Linear, 2, 3).weight.shape == (3, 2)
    assert (skimp.get_rng_state() == before).all()


def test_functional_call() -> None:
    m = skimp.nn.Sequential(skimp.nn.Linear(2, 2), skimp.nn.BatchNorm1d(2))
    call = skimp.nn.utils.stateless.functional_call
    x = skimp.ones(3, 2)
    zero = {"0.weight": skimp.zeros(2, 2, requires_grad=True), "0.bias": skimp.ones(2)}
    y = call(m.eval(), zero, (x,))
    assert np.allclose(y.detach().numpy(), 1.0, atol=1e-4)
    y.sum().backward()
    assert zero["0.weight"].grad is not None
    assert not (m[0].weight == 0).any()
    with pytest.raises(RuntimeError, match="Missing key"):
        call(m, zero, (x,), strict=True)
    y = call(m, {"0.nothing": x}, (x,))  # an attribute for as long as the call lasts
    assert y.shape == (3, 2)
    assert not hasattr(m[0], "nothing")
    with pytest.raises(AttributeError):
        call(m, {"2.nothing": x}, (x,))
    with pytest.raises(TypeError, match="3 is not an instance of"):
        call(m, {"0.weight": 3}, (x,))


@given(st.booleans(), st.booleans(), st.lists(st.sampled_from(["0.weight", "0.bias", "1.weight"])))
def test_tensors_stand_in_for_a_modules_own(tie: bool, strict: bool, names: list[str]) -> None:
    """Inside a region, which libraries take by its private name; afterwards none is left."""

    def program(torch: Any) -> Any:
        layer = torch.nn.Linear(2, 2)
        m = torch.nn.Sequential(layer, torch.nn.Linear(2, 2))
        m[1].weight = layer.weight
        own, new = layer.weight, {n: torch.full(m.get_parameter(n).shape, 2.0) for n in names}
        replaced = torch.nn.utils.stateless._reparametrize_module
        try:
            with replaced(m, new, tie_weights=tie, strict=strict):
                out = m(torch.ones(1, 2))
                m[0].bias = None if "0.bias" in new else layer.bias
        except (RuntimeError, ValueError) as error:
            return [str(error), sorted(new), layer.weight is own]
        return [out, m[1].weight is own, {n: new[n] is None for n in sorted(new)}, layer.bias]

    same(program, 1e-6)


def test_what_is_given_is_as_it_was_after_a_refusal() -> None:
    def program(torch: Any) -> Any:
        m, new = torch.nn.Linear(2, 2), {"weight": torch.ones(2, 2), "bias": 3}
        with pytest.raises(TypeError):
            torch.func.functional_call(m, new, (torch.ones(1, 2),))
        return [new["weight"], new["bias"]]

    same(program)


def test_a_module_has_its_own_tensors_after_an_interrupt() -> None:
    """Also while the traceback is kept, which holds what has not ended, as a notebook keeps it."""
    m, at = skimp.nn.Linear(2, 2), 1
    own, new = list(m.parameters()), {n: skimp.ones(p.shape) for n, p in m.named_parameters()}

    def call() -> Any:
        return skimp.func.functional_call(m, new, (skimp.ones(1, 2),))

    while True:
        one, kept = Moments(at), []
        sys.setprofile(one._hook)
        try:
            call()
        except KeyboardInterrupt as stop:
            kept.append(stop)
        finally:
            sys.setprofile(None)
        found = [a is b for a, b in zip(m.parameters(), own, strict=True)]
        assert found == [True, True], (at, kept)
        if not one.interrupted:
            break
        at += 1
    assert at > 50


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
def test_dense_tensors_as_one_and_back(shapes: list[list[int]]) -> None:
    def program(torch: Any) -> Any:
        ours = [torch.randn(shape).movedim(0, -1) if shape else torch.randn(()) for shape in shapes]
        flat = torch._utils._flatten_dense_tensors(ours)
        parts = torch._utils._unflatten_dense_tensors(flat, ours)
        bases = [p.numel() and p.data_ptr() - flat.data_ptr() for p in parts]
        return [flat, *parts, bases, type(parts) is tuple]

    same(program, 0)


def test_sequences() -> None:
    def program(torch: Any) -> Any:
        R = torch.nn.utils.rnn
        parts = [torch.arange(float(n) * 2).reshape(n, 2) for n in (2, 4, 1)]
        padded = R.pad_sequence(parts, padding_value=-1.0)
        left = R.pad_sequence(parts, batch_first=True, padding_side="left")
        packed = R.pack_padded_sequence(padded, [2, 4, 1], enforce_sorted=False)
        fewer = R.pack_padded_sequence(padded, [2, 4], enforce_sorted=False)
        back, lengths = R.pad_packed_sequence(
            packed, batch_first=True, padding_value=9.0, total_length=5
        )
        again = R.unpack_sequence(R.pack_sequence(parts, enforce_sorted=False))
        turned = padded.clone()
        single = R.unpad_sequence(turned, torch.tensor([2, 4, 1]))
        assert turned.shape == (3, 4, 2)  # in place
        bad = []
        for f in (
            lambda: R.pack_padded_sequence(padded, [2, 4, 1]),
            lambda: R.pack_padded_sequence(padded, [2, 4]),
            lambda: R.pack_padded_sequence(padded, [2, 1, 0]),
            lambda: R.pack_padded_sequence(padded[:, :0], []),
        ):
            with pytest.raises(RuntimeError) as e:
                f()
            bad.append(str(e.value).split("but")[0][:40])
        return [
            padded,
            left,
            *packed,
            fewer.data,
            back,
            lengths,
            again,
            single,
            packed.batch_sizes.tolist(),
            bad,
        ]

    same(program, 0)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_through_layers(kind: str, bidirectional: bool) -> None:
    def program(torch: Any) -> Any:
        R = torch.nn.utils.rnn
        m = getattr(torch.nn, kind)(3, 4, 2, bidirectional=bidirectional, dropout=0.3)
        x = torch.randn(5, 3, 3).requires_grad_()
        packed = R.pack_padded_sequence(x, [3, 5, 2], enforce_sorted=False)
        out, state = m.eval()(packed)
        full, lengths = R.pad_packed_sequence(out)
        (full * full).sum().backward()
        hidden = torch.ones(2 * (1 + bidirectional), 3, 4)
        given = m(packed, (hidden, hidden) if kind == "LSTM" else hidden)[1]
        return [full, lengths, state, given, x.grad, *[p.grad for p in m.parameters()]]

    same(program, 1e-4)


def test_dropout_between_recurrent_layers() -> None:
    """The masks are those that PyTorch draws."""

    def program(torch: Any) -> Any:
        m = torch.nn.GRU(3, 8, 3, dropout=0.5)
        return m(torch.randn(4, 2, 3))[0]

    same(program)


# -- attention -------------------------------------------------------------------------------------


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("mask", ["none", "bool", "float", "heads"])
def test_attention_masks(need: bool, padding: bool, mask: str) -> None:
    def program(torch: Any) -> Any:
        m = torch.nn.MultiheadAttention(8, 2, batch_first=True, add_zero_attn=mask == "float")
        q, k = torch.randn(3, 4, 8), torch.randn(3, 5, 8)
        masks = {
            "none": None,
            "bool": torch.ones(4, 5, dtype=torch.bool).triu(2),
            "float": torch.randn(4, 5),
            "heads": torch.randn(6, 4, 5),
        }
        pad = (
            torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
            if padding
            else None
        )
        if pad is not None and mask in ("float", "heads"):
            pad = torch.zeros(3, 5).masked_fill(pad, -1e9)
        out, w = m(
            q,
            k,
            k,
            key_padding_mask=pad,
            need_weights=need,
            attn_mask=masks[mask],
            average_attn_weights=False,
        )
        return [out, 0 if w is None else w]

    same(program, 1e-4)


@pytest.mark.parametrize("kind", ["same", "two", "widths", "bias_kv"])
@pytest.mark.parametrize("need", [True, False])
def test_attention_by_batch_first_draws_and_lies_as_by_length(kind: str, need: bool) -> None:
    def program(torch: Any) -> Any:
        wide = {"kdim": 6, "vdim": 6} if kind == "widths" else {}
        m = torch.nn.MultiheadAttention(
            8, 2, 0.3, add_bias_kv=kind == "bias_kv", batch_first=True, **wide
        )
        q = torch.randn(3, 4, 8, requires_grad=True)
        k = q if kind == "same" else torch.randn(3, 5, 6 if wide else 8)
        out, _ = m(q, k, k, need_weights=need)
        dropped = torch.nn.functional.dropout(out, 0.4)  # drawn in the order of memory
        (dropped * torch.arange(8.0)).sum().backward()
        strides = torch.tensor(out.stride())
        return [dropped, strides, q.grad, *[p.grad for p in m.parameters()]]

    same(program, 1e-4)


@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_refuses_keys_and_values_of_other_lengths(batch_first: bool) -> None:
    m = skimp.nn.MultiheadAttention(8, 2, batch_first=batch_first)
    inputs = [skimp.ones(length, 2, 8) for length in (5, 4, 3)]
    if batch_first:
        inputs = [t.transpose(0, 1) for t in inputs]
    with pytest.raises(AssertionError, match=r"key shape torch.Size\(\[4, 2, 8\]\) does not match"):
        m(*inputs)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_transformers() -> None:
    def program(torch: Any) -> Any:
        nn = torch.nn
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.2)
        encoder = nn.TransformerEncoder(layer, 2)
        x = torch.randn(2, 5, 8)
        causal = nn.Transformer.generate_square_subsequent_mask(5)
        pad = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        out = [encoder(x), encoder(x, mask=causal), encoder(x, src_key_padding_mask=pad)]
        encoder.eval()
        with torch.no_grad():
            out += [encoder(x, mask=causal, is_causal=True), encoder(x, src_key_padding_mask=pad)]
        decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True), 2
        )
        out.append(decoder(x, x, tgt_mask=causal, memory_key_padding_mask=pad))
        return [causal, *out]

    same(program, 1e-4)


def test_packed_sequences_of_other_types() -> None:
    for torch in (skimp, oracle):
        packed = torch.nn.utils.rnn.pack_sequence([torch.arange(3.0), torch.arange(2.0)])
        for name in ("byte", "char", "short", "int", "long", "half", "float", "double"):
            whole = getattr(torch.arange(1), name)().dtype
            assert getattr(packed, name)().data.dtype == whole

"""The small ops that programs are made of, a row each: its name, and what a program writes.

Sizes are those of the smallest programs, so what is measured is what an op costs beside its work.
`PLAIN` rows keep nothing for gradients, `RECORDED` rows do, `BACKWARD` rows also go back.
"""

from __future__ import annotations

from typing import Any

from bench.workloads import Call

PLAIN = {
    # pointwise
    "add": "a + b", "add_number": "a + 1.0", "mul_broadcast": "a * c", "div": "a / b",
    "neg": "-a", "square": "a ** 2", "sqrt": "positive.sqrt()", "exp": "a.exp()",
    "tanh": "torch.tanh(a)", "sigmoid": "a.sigmoid()", "relu": "F.relu(a)", "gelu": "F.gelu(a)",
    "clamp": "a.clamp(-1, 1)", "gt": "a > b", "where": "torch.where(mask, a, b)",
    "masked_fill": "a.masked_fill(mask, 0.0)", "double": "a.double()",
    # reductions and rows
    "sum": "a.sum()", "sum_dim": "a.sum(1)", "mean_keepdim": "a.mean(-1, keepdim=True)",
    "max_dim": "a.max(1)", "argmax": "a.argmax(1)", "var": "a.var(1)", "norm": "a.norm()",
    "softmax": "a.softmax(-1)", "log_softmax": "F.log_softmax(a, -1)",
    "logsumexp": "a.logsumexp(1)", "topk": "a.topk(4)", "sort": "a.sort()",
    "cumsum": "a.cumsum(1)", "equal": "(a == b).all().item()",
    # products
    "mm": "a @ weight.t()", "bmm": "heads @ heads.transpose(-2, -1)", "matvec": "weight @ c",
    "linear": "F.linear(a, weight, bias)", "einsum": "torch.einsum('ij,kj->ik', a, weight)",
    # shapes
    "cat": "torch.cat([a, b], 1)", "stack": "torch.stack([a, b])", "split": "a.split(8, 1)",
    "chunk": "a.chunk(2, -1)", "unbind": "a.unbind(0)", "unsqueeze": "a.unsqueeze(1)",
    "permute": "heads.permute(0, 2, 1, 3)", "expand": "c.expand(16, 32)",
    "reshape_copy": "heads.transpose(1, 2).reshape(4, 8, 32)", "flatten": "words.flatten(1)",
    "contiguous": "a.t().contiguous()", "clone": "a.clone()", "detach": "ga.detach()",
    # indices
    "index_int": "a[3]", "index_tensor": "a[some]", "index_list": "a[[3, 1, 2]]",
    "index_mask": "a[mask]", "gather": "a.gather(1, labels[:, None])",
    "set_column": "d.__setitem__((slice(None), 0), 0.0)",
    "scatter_add": "torch.zeros(16).scatter_add_(0, bins, ones)",
    "one_hot": "F.one_hot(labels, 32)", "embedding": "F.embedding(ids, table)",
    # making
    "zeros": "torch.zeros(16, 32)", "zeros_like": "torch.zeros_like(a)",
    "arange": "torch.arange(16)",
    "tensor": "torch.tensor([1.0, 2.0, 3.0])", "tril": "torch.tril(torch.ones(8, 8))",
    "rand": "torch.rand(16)", "randn": "torch.randn(16)", "randint": "torch.randint(0, 9, (16,))",
    "randperm": "torch.randperm(32)", "multinomial": "torch.multinomial(chances, 1)",
    "bernoulli": "torch.bernoulli(halves)", "dropout": "F.dropout(a, 0.5)",
    # to Python and back
    "item": "number.item()", "float": "float(number)", "tolist": "c.tolist()", "numpy": "a.numpy()",
    "from_numpy": "torch.from_numpy(array)", "repr": "repr(few)",
    # in place
    "add_alpha_": "d.add_(b, alpha=0.0)", "mul_": "d.mul_(1.0)", "copy_": "d.copy_(b)",
    "zero_": "e.zero_()", "lerp_": "e.lerp_(e, 0.1)",
    # modules and optimizers
    "module_linear": "linear(a)", "mlp_step": "mlp_step()", "adam_step": "adam.step()",
    "sgd_step": "sgd.step()",
}  # fmt: skip
RECORDED = {
    "add": "ga + gb", "mul": "ga * gb", "mm": "ga @ gweight.t()",
    "linear": "F.linear(ga, gweight, gbias)", "softmax": "ga.softmax(-1)", "mean": "ga.mean()",
    "gelu": "F.gelu(ga)", "layer_norm": "F.layer_norm(ga, (32,))", "dropout": "F.dropout(ga, 0.5)",
    "cross_entropy": "F.cross_entropy(ga, labels)", "view": "ga.view(32, 16)",
    "cat": "torch.cat([ga, gb], 1)", "index": "ga[some]", "embedding": "F.embedding(ids, gtable)",
    "attention": "F.scaled_dot_product_attention(gheads, gheads, gheads, is_causal=True)",
    "conv": "F.conv2d(gimages, gkernel, padding=1)", "scalar": "(gnumber * 2 + 1).tanh()",
}  # fmt: skip
BACKWARD = {
    **{name: RECORDED[name] for name in (
        "add", "mm", "linear", "softmax", "gelu", "cat", "index", "cross_entropy", "attention",
        "conv", "scalar",
    )},
    "layer_norm": "norm(ga)", "embedding": "embedding(ids)", "batch_norm": "batch_norm(gimages)",
    "max_pool": "F.max_pool2d(gimages, 2)", "lstm_cell": "lstm_cell(ga)[0]",
    "rnn_cell": "rnn_cell(ga)",
}  # fmt: skip

ROWS = {
    **PLAIN,
    **{f"{name}, recorded": code for name, code in RECORDED.items()},
    **{f"{name}, and back": f"({code}).sum().backward()" for name, code in BACKWARD.items()},
}


def small_op(torch: Any, name: str) -> Call:
    """The call of a row, with inputs of its own."""
    call: Call = eval(f"lambda: {ROWS[name]}", inputs(torch))
    return call


def every_op(torch: Any) -> list[Call]:
    names = inputs(torch)
    return [eval(f"lambda: {code}", names) for code in ROWS.values()]


def inputs(torch: Any) -> dict[str, Any]:
    """What the rows' words stand for."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    plain = {
        "a": torch.randn(16, 32), "b": torch.randn(16, 32), "weight": torch.randn(64, 32),
        "bias": torch.randn(64), "heads": torch.randn(4, 2, 8, 16), "number": torch.tensor(1.5),
        "images": torch.randn(2, 3, 16, 16), "kernel": torch.randn(8, 3, 3, 3),
        "table": torch.randn(16, 32),
    }  # fmt: skip
    c, labels = torch.randn(32), torch.randint(0, 32, (16,))
    mlp = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 10))
    for p in mlp.parameters():
        p.grad = torch.zeros_like(p)

    def mlp_step() -> None:
        mlp.zero_grad(set_to_none=True)
        F.cross_entropy(mlp(plain["a"]), labels % 10).backward()

    return {
        "torch": torch, "F": F, **plain,
        **{f"g{name}": x.clone().requires_grad_() for name, x in plain.items()},
        "c": c, "d": plain["a"].clone(), "e": torch.zeros(16, 32), "few": c[:4], "ones": c[:16],
        "labels": labels, "some": torch.randint(0, 16, (8,)), "ids": torch.randint(0, 16, (4, 8)),
        "bins": labels % 16, "mask": plain["a"] > 0, "positive": plain["a"].abs(),
        "halves": torch.full((16, 32), 0.5), "words": torch.randn(4, 8, 32),
        "chances": torch.softmax(torch.randn(4), 0), "array": plain["a"].numpy(),
        "linear": nn.Linear(32, 64), "norm": nn.LayerNorm(32), "embedding": nn.Embedding(16, 32),
        "batch_norm": nn.BatchNorm2d(3), "lstm_cell": nn.LSTMCell(32, 32),
        "rnn_cell": nn.RNNCell(32, 32), "mlp_step": mlp_step,
        "adam": torch.optim.Adam(mlp.parameters(), 1e-3),
        "sgd": torch.optim.SGD(mlp.parameters(), 1e-2, momentum=0.9),
    }  # fmt: skip

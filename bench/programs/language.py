"""Programs about text: transformers of the sizes that people train on a CPU, and word models."""

from __future__ import annotations

import math
from typing import Any

from bench.programs.data import Step, letters, sentences


def gpt(
    torch: Any, batch: int, length: int, width: int, layers: int, heads: int
) -> tuple[Any, Any]:
    """A decoder in the manner of GPT-2, with attention written out, and its ids."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    ids, words = letters(torch, batch * (length + 1))

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.register_buffer(
                "mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length)
            )

        def forward(self, x: Any) -> Any:
            b, t, c = x.size()
            q, k, v = self.qkv(x).split(c, dim=2)
            q = q.view(b, t, heads, c // heads).transpose(1, 2)
            k = k.view(b, t, heads, c // heads).transpose(1, 2)
            v = v.view(b, t, heads, c // heads).transpose(1, 2)
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            x = F.softmax(scores, dim=-1) @ v
            return self.out(x.transpose(1, 2).contiguous().view(b, t, c))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.attention, self.ln_2 = (
                nn.LayerNorm(width),
                Attention(),
                nn.LayerNorm(width),
            )
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, ids: Any, targets: Any) -> Any:
            x = self.words(ids) + self.places(torch.arange(ids.size(1)))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))

    return GPT(), ids.view(batch, length + 1)


def trained_gpt(torch: Any, *sizes: int) -> Step:
    model, ids = gpt(torch, *sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)

    def step() -> Any:
        loss = model(ids[:, :-1], ids[:, 1:])
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def gpt_small(torch: Any) -> Step:
    return trained_gpt(torch, 12, 64, 128, 4, 4)


def gpt_names(torch: Any) -> Step:
    return trained_gpt(torch, 64, 11, 48, 3, 3)


def generating(torch: Any) -> Step:
    """Twenty characters, one at a time, from a decoder that keeps keys and values."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    width, heads, layers, words = 64, 4, 3, 65

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any, past: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = (
                p.view(b, t, heads, width // heads).transpose(1, 2)
                for p in self.qkv(self.before(x)).chunk(3, dim=-1)
            )
            if past is not None:
                k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
            x = x + self.out(a.transpose(1, 2).reshape(b, t, width))
            return x + self.down(F.gelu(self.up(self.between(x)))), (k, v)

    embedding, places = nn.Embedding(words, width), nn.Embedding(32, width)
    blocks, head = nn.ModuleList([Block() for _ in range(layers)]), nn.Linear(width, words)

    @torch.no_grad()
    def step() -> Any:
        ids = torch.zeros(1, 1, dtype=torch.long)
        pasts: list[Any] = [None] * layers
        for place in range(20):
            x = embedding(ids[:, -1:]) + places(torch.tensor([place]))
            for n, block in enumerate(blocks):
                x, pasts[n] = block(x, pasts[n])
            logits = head(x[:, -1, :]) / 0.8
            best, _ = torch.topk(logits, 10)
            logits[logits < best[:, [-1]]] = -float("inf")
            ids = torch.cat([ids, torch.multinomial(F.softmax(logits, dim=-1), 1)], dim=1)
        return ids

    return step


def bigram(torch: Any) -> Step:
    """A table of next letters, and a batch that is cut from the text by slices."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    data, words = letters(torch, 10_000)
    table = nn.Embedding(words, words)
    optimizer = torch.optim.AdamW(table.parameters(), lr=1e-2)

    def step() -> Any:
        starts = torch.randint(len(data) - 8, (64,))
        x = torch.stack([data[i : i + 8] for i in starts])
        y = torch.stack([data[i + 1 : i + 9] for i in starts])
        logits = table(x)
        b, t, c = logits.shape
        loss = F.cross_entropy(logits.view(b * t, c), y.view(b * t))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


def char_mlp(torch: Any) -> Step:
    """Embedded letters, batch norm by hand, and gradient descent by hand."""
    F = torch.nn.functional
    generator = torch.Generator().manual_seed(0)
    data, words = letters(torch, 5_000)
    context, width, hidden = 3, 10, 200
    X, Y = data.unfold(0, context, 1)[:-1], data[context:]
    C = torch.randn((words, width), generator=generator)
    W1 = (
        torch.randn((context * width, hidden), generator=generator)
        * (5 / 3)
        / (context * width) ** 0.5
    )
    W2 = torch.randn((hidden, words), generator=generator) * 0.01
    b2 = torch.randn(words, generator=generator) * 0
    gain, bias = torch.ones((1, hidden)), torch.zeros((1, hidden))
    mean_running, std_running = torch.zeros((1, hidden)), torch.ones((1, hidden))
    parameters = [C, W1, W2, b2, gain, bias]
    for p in parameters:
        p.requires_grad = True

    def step() -> Any:
        nonlocal mean_running, std_running
        ix = torch.randint(0, X.shape[0], (32,), generator=generator)
        before = C[X[ix]].view(32, -1) @ W1
        mean, std = before.mean(0, keepdim=True), before.std(0, keepdim=True)
        with torch.no_grad():
            mean_running = 0.999 * mean_running + 0.001 * mean
            std_running = 0.999 * std_running + 0.001 * std
        h = torch.tanh(gain * (before - mean) / std + bias)
        loss = F.cross_entropy(h @ W2 + b2, Y[ix])
        for p in parameters:
            p.grad = None
        loss.backward()
        for p in parameters:
            p.data += -0.1 * p.grad
        return loss

    return step


def transformer(torch: Any) -> Step:
    """nn.Transformer on pairs of short sentences, with padding masks and label smoothing."""
    nn = torch.nn
    torch.manual_seed(0)
    source, target, words = sentences(torch)
    width = 64
    embedding, places = nn.Embedding(words, width, padding_idx=0), nn.Embedding(16, width)
    net = nn.Transformer(width, 4, 2, 2, 128, dropout=0.1, batch_first=True)
    head = nn.Linear(width, words)
    parameters = [p for m in (embedding, places, net, head) for p in m.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    criterion = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    causal = nn.Transformer.generate_square_subsequent_mask(target.size(1) - 1)

    def embedded(ids: Any) -> Any:
        return embedding(ids) * math.sqrt(width) + places(torch.arange(ids.size(1)))

    def step() -> Any:
        given, wanted = target[:, :-1], target[:, 1:]
        out = net(
            embedded(source), embedded(given), tgt_mask=causal,
            src_key_padding_mask=source == 0, tgt_key_padding_mask=(given == 0).float() * -1e9,
            memory_key_padding_mask=source == 0,
        )  # fmt: skip
        loss = criterion(head(out).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def word2vec(torch: Any) -> Step:
    """Skip-gram with negative samples, sparse gradients of two tables and SparseAdam."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    words, width, batch, negatives = 2000, 50, 128, 5
    middle = nn.Embedding(words, width, sparse=True)
    around = nn.Embedding(words, width, sparse=True)
    optimizer = torch.optim.SparseAdam([*middle.parameters(), *around.parameters()], lr=1e-2)
    frequencies = 1.0 / torch.arange(1, words + 1) ** 0.75

    def step() -> Any:
        center = torch.multinomial(frequencies, batch, replacement=True)
        context = (center + torch.randint(1, 5, (batch,))) % words
        noise = torch.multinomial(frequencies, batch * negatives, replacement=True)
        v = middle(center)
        good = F.logsigmoid((v * around(context)).sum(1))
        bad = torch.bmm(around(noise.view(batch, negatives)).neg(), v.unsqueeze(2)).squeeze(2)
        loss = -(good + F.logsigmoid(bad).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step

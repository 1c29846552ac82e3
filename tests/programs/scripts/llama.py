"""A Llama: RMSNorm, complex rotary embeddings, grouped queries, SwiGLU, a cache, top-p sampling."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(1)
DIM, HEADS, KV, V = 32, 4, 2, 40


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.type_as(x) * self.weight


freqs = 1.0 / (10000.0 ** (torch.arange(0, 8, 2)[:4].float() / 8))
angles = torch.outer(torch.arange(64), freqs)
freqs_cis = torch.polar(torch.ones_like(angles), angles)


def rotate(x, cis):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * cis[None, :, None, :]).flatten(3).type_as(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wo = nn.Linear(DIM, DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.wk, self.wv = (nn.Linear(DIM, KV * 8, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(DIM, 64, bias=False) for _ in range(2))
        self.w2 = nn.Linear(64, DIM, bias=False)
        self.n1, self.n2 = RMSNorm(DIM), RMSNorm(DIM)
        self.cache_k, self.cache_v = torch.zeros(1, 32, KV, 8), torch.zeros(1, 32, KV, 8)

    def forward(self, x, start, mask, use_cache):
        b, t, _ = x.shape
        y, cis = self.n1(x), freqs_cis[start : start + t]
        q = rotate(self.wq(y).view(b, t, HEADS, 8), cis)
        k, v = rotate(self.wk(y).view(b, t, KV, 8), cis), self.wv(y).view(b, t, KV, 8)
        if use_cache:
            self.cache_k[:b, start : start + t] = k
            self.cache_v[:b, start : start + t] = v
            k, v = self.cache_k[:b, : start + t], self.cache_v[:b, : start + t]
        k, v = (
            z[:, :, :, None, :].expand(b, -1, KV, HEADS // KV, 8).reshape(b, -1, HEADS, 8)
            for z in (k, v)
        )
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        scores = q @ k.transpose(2, 3) / 8**0.5
        if mask is not None:
            scores = scores + mask
        y = F.softmax(scores.float(), dim=-1).type_as(q) @ v
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, -1))
        y = self.n2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(V, DIM), RMSNorm(DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.output = nn.Linear(DIM, V, bias=False)

    def forward(self, ids, start=0, use_cache=False):
        h, t, mask = self.embed(ids), ids.shape[1], None
        if t > 1:
            mask = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)
            mask = torch.hstack([torch.zeros((t, start)), mask]).type_as(h)
        for layer in self.layers:
            h = layer(h, start, mask, use_cache)
        return self.output(self.norm(h)).float()


model = Llama()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), eps=1e-5)
for _ in range(10):
    ids = (torch.arange(13) * 7 + torch.randint(0, V, (4, 1))) % V
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())


@torch.inference_mode()
def generate(prompt, top_p=0.9):
    tokens, start = torch.tensor([prompt]), 0
    while tokens.shape[1] < 16:
        probs = torch.softmax(model(tokens[:, start:], start, True)[:, -1] / 0.8, dim=-1)
        start = tokens.shape[1]
        probs_sort, probs_idx = torch.sort(probs, dim=-1, descending=True)
        probs_sort[torch.cumsum(probs_sort, dim=-1) - probs_sort > top_p] = 0.0
        probs_sort.div_(probs_sort.sum(dim=-1, keepdim=True))
        chosen = torch.multinomial(probs_sort, num_samples=1)
        tokens = torch.cat([tokens, torch.gather(probs_idx, -1, chosen)], 1)
    return tokens[0].tolist()


print(generate([0, 7, 14]))
print(model.bfloat16()(torch.tensor([[0, 7, 14]])).argmax(-1).tolist())

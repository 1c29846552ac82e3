"""Denoising diffusion with a small U-Net: time embeddings, group norm, a schedule by gather."""

import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
STEPS = 20


class Block(nn.Module):
    def __init__(self, dim, out, time):
        super().__init__()
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time, out * 2))
        self.conv1, self.conv2 = nn.Conv2d(dim, out, 3, padding=1), nn.Conv2d(out, out, 3, 1, 1)
        self.norm1, self.norm2 = nn.GroupNorm(4, out), nn.GroupNorm(4, out)
        self.skip = nn.Conv2d(dim, out, 1) if dim != out else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.mlp(t)[:, :, None, None].chunk(2, dim=1)
        h = F.silu(self.norm1(self.conv1(x)) * (scale + 1) + shift)
        return F.silu(self.norm2(self.conv2(h))) + self.skip(x)


class Unet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.dim = dim
        self.time = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, 32))
        self.inp, self.down = nn.Conv2d(1, dim, 1), nn.Conv2d(dim, dim, 4, 2, 1)
        self.b1, self.b2 = Block(dim, dim, 32), Block(dim, 16, 32)
        self.qkv = nn.Conv2d(16, 48, 1, bias=False)
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, dim, 3, padding=1))
        self.b3, self.out = Block(2 * dim, dim, 32), nn.Conv2d(dim, 1, 1)

    def forward(self, x, t):
        half = self.dim // 2
        f = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        f = t[:, None] * f[None, :]
        t = self.time(torch.cat((f.sin(), f.cos()), dim=-1))
        a = self.b1(self.inp(x), t)
        h = self.b2(self.down(a), t)
        q, k, v = (z.flatten(2) for z in self.qkv(h).chunk(3, dim=1))
        att = torch.einsum("b d i, b d j -> b i j", q * 0.25, k).softmax(dim=-1)
        h = h + torch.einsum("b i j, b d j -> b d i", att, v).view(h.shape)
        return self.out(self.b3(torch.cat((self.up(h), a), dim=1), t))


x = torch.linspace(0, STEPS, STEPS + 1)
bar = torch.cos(((x / STEPS) + 0.008) / 1.008 * torch.pi * 0.5) ** 2
betas = torch.clip(1 - (bar[1:] / bar[:-1]), 0.0001, 0.9)
alphas = 1.0 - betas
cumprod = torch.cumprod(alphas, axis=0)
before = F.pad(cumprod[:-1], (1, 0), value=1.0)
variance = betas * (1.0 - before) / (1.0 - cumprod)


def extract(a, t, shape):
    return a.gather(-1, t).reshape(t.shape[0], *((1,) * (len(shape) - 1)))


model = Unet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(8):
    batch = torch.rand(4, 1, 8, 8) * 2 - 1
    t = torch.randint(0, STEPS, (4,)).long()
    noise = torch.randn_like(batch)
    a = extract(cumprod, t, batch.shape)
    loss = F.smooth_l1_loss(noise, model(a.sqrt() * batch + (1 - a).sqrt() * noise, t))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
img = torch.randn(2, 1, 8, 8)
with torch.no_grad():
    for i in reversed(range(STEPS)):
        t = torch.full((2,), i, dtype=torch.long)
        step = betas[i] * model(img, t) / (1 - cumprod[i]).sqrt()
        img = (img - step) / alphas[i].sqrt()
        if i > 0:
            img = img + variance[i].sqrt() * torch.randn_like(img)
print("%.4f" % img.abs().mean().item())

"""Densities: real NVP, an invertible 1x1 convolution, weights with a distribution, LBFGS."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import distributions as D, nn

torch.manual_seed(0)


class RealNVP(nn.Module):
    def __init__(self, masks, prior):
        super().__init__()
        self.prior, self.mask = prior, nn.Parameter(masks, requires_grad=False)
        self.s, self.t = nn.ModuleList(), nn.ModuleList()
        for _ in masks:
            self.t.append(nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2)))
            self.s.append(
                nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh())
            )

    def log_prob(self, x):
        log_det, z = x.new_zeros(x.shape[0]), x
        for mask, s, t in zip(reversed(self.mask), reversed(self.s), reversed(self.t)):
            kept = mask * z
            shift, scale = t(kept) * (1 - mask), s(kept) * (1 - mask)
            z = (1 - mask) * (z - shift) * torch.exp(-scale) + kept
            log_det -= scale.sum(dim=1)
        return self.prior.log_prob(z) + log_det


masks = torch.from_numpy(np.array([[0, 1], [1, 0]] * 2).astype(np.float32))
flow = RealNVP(masks, D.MultivariateNormal(torch.zeros(2), torch.eye(2)))
optimizer = torch.optim.Adam([p for p in flow.parameters() if p.requires_grad], lr=1e-3)
for i in range(6):
    angle = torch.rand(64) * math.pi
    x = torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(64, 2)
    loss = -flow.log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"iter {i}: loss = {loss.item():.7f}")
W = nn.Parameter(torch.linalg.qr(torch.randn(4, 4))[0].contiguous())
optimizer = torch.optim.LBFGS([W], max_iter=3, line_search_fn="strong_wolfe")
image = torch.randn(4, 4, 3, 3)


def closure():
    optimizer.zero_grad()
    z = F.conv2d(image, W.unsqueeze(2).unsqueeze(3))
    loss = -D.Normal(0, 1).log_prob(z).mean() * 16 - torch.slogdet(W)[1]
    loss.backward()
    print(loss.item())
    return loss


optimizer.step(closure)
print(torch.inverse(W).norm().item())


class BayesLinear(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.mu, self.rho = (
            nn.Parameter(torch.randn(o, i) * 0.1),
            nn.Parameter(torch.full((o, i), -3.0)),
        )

    def forward(self, x):
        q = D.Normal(self.mu, F.softplus(self.rho))
        self.kl = D.kl_divergence(q, D.Normal(0.0, 1.0)).sum()
        return F.linear(x, q.rsample())


net = nn.Sequential(BayesLinear(1, 16), nn.ReLU(), BayesLinear(16, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
x = torch.linspace(-2, 2, 24).reshape(-1, 1)
y = -x.pow(4) + 3 * x.pow(2) + 1
for _ in range(6):
    kl = 0
    loss = -D.Normal(net(x), 0.5).log_prob(y).sum() + sum(m.kl for m in net if hasattr(m, "kl"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
print(D.Dirichlet(torch.tensor([0.5, 0.5, 2.0])).sample((2,)), D.Gamma(2.0, 3.0).sample((2,)))

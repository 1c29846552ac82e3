"""Chapters of textbooks: regression, convolution, batch norm and an optimizer by hand."""

import math
import random

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils import data

torch.manual_seed(0)
random.seed(0)
true_w = torch.tensor([2, -3.4])
X = torch.normal(0, 1, (100, 2))
y = (torch.matmul(X, true_w) + 4.2 + torch.normal(0, 0.01, (100,))).reshape((-1, 1))
w, b = torch.normal(0, 0.01, size=(2, 1), requires_grad=True), torch.zeros(1, requires_grad=True)
indices = list(range(100))
for _ in range(3):
    random.shuffle(indices)
    for i in range(0, 100, 20):
        j = torch.tensor(indices[i : i + 20])
        loss = (torch.mm(X[j], w) + b - y[j]) ** 2 / 2
        loss.sum().backward()
        with torch.no_grad():
            for param in (w, b):
                param -= 0.1 * param.grad / 20
                param.grad.zero_()
    print(f"loss {loss.detach().mean().item():f}")
x = torch.arange(4.0, requires_grad=True)
(x * x).backward(torch.ones_like(x))
print(x.grad, true_w - w.detach().reshape(true_w.shape), torch.zeros(2, dtype=int))


def corr2d(image, kernel):
    h, w = kernel.shape
    out = torch.zeros((image.shape[0] - h + 1, image.shape[1] - w + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = (image[i : i + h, j : j + w] * kernel).sum()
    return out


image = torch.ones((6, 8))
image[:, 2:6] = 0
edges = corr2d(image, torch.tensor([[1.0, -1.0]]))
conv = nn.Conv2d(1, 1, kernel_size=(1, 2), bias=False)
for _ in range(4):
    loss = (conv(image.reshape((1, 1, 6, 8))) - edges.reshape((1, 1, 6, 7))) ** 2
    conv.zero_grad()
    loss.sum().backward()
    conv.weight.data[:] -= 3e-2 * conv.weight.grad
    print(f"{loss.sum().item():.6f}")


class BatchNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(1, n)), nn.Parameter(torch.zeros(1, n))
        self.mean, self.var = torch.zeros(1, n), torch.ones(1, n)

    def forward(self, x):
        if not torch.is_grad_enabled():
            return self.gamma * (x - self.mean) / torch.sqrt(self.var + 1e-5) + self.beta
        mean = x.mean(dim=0)
        var = ((x - mean) ** 2).mean(dim=0)
        self.mean = (0.9 * self.mean + 0.1 * mean).data
        self.var = (0.9 * self.var + 0.1 * var).data
        return self.gamma * (x - mean) / torch.sqrt(var + 1e-5) + self.beta


class Lion(Optimizer):
    def __init__(self, params, lr=1e-2, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                average = state["exp_avg"]
                p.add_(
                    average.mul(group["beta"]).add(p.grad, alpha=0.1).sign_(), alpha=-group["lr"]
                )
                average.mul_(0.99).add_(p.grad, alpha=0.01)


net = nn.Sequential(nn.Flatten(), nn.LazyLinear(16), BatchNorm(16), nn.Sigmoid(), nn.Linear(16, 5))
Xs, ys = torch.rand(60, 1, 8, 8), torch.randint(0, 5, (60,))
net(Xs[:2])
optimizer = Lion(net.parameters())
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.5 * (1 + math.cos(e / 3)))
lossf = nn.CrossEntropyLoss(reduction="none")
for _ in range(3):
    for xb, yb in data.DataLoader(data.TensorDataset(*(Xs, ys)), 20, shuffle=True):
        loss = lossf(net(xb), yb).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    schedule.step()
with torch.no_grad():
    print(np.asarray(net(Xs)).shape, schedule.get_last_lr())

"""Gradients of gradients: MAML, a physics-informed net, a penalty; adapters of low rank."""

import math

import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from torch import nn
from torch.autograd import Variable, grad
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(6):
    a, p = torch.rand(1) * 4.9 + 0.1, torch.rand(1) * math.pi
    x = torch.rand(10, 1) * 10 - 5
    params = dict(net.named_parameters())
    inner = F.mse_loss(functional_call(net, params, (x,)), a * torch.sin(x + p))
    grads = grad(inner, params.values(), create_graph=True)
    fast = {k: v - 0.01 * g for (k, v), g in zip(params.items(), grads)}
    loss = F.mse_loss(functional_call(net, fast, (x + 0.1,)), a * torch.sin(x + 0.1 + p))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(inner.item(), loss.item())
x, t = torch.rand(40, 1, requires_grad=True), torch.rand(40, 1, requires_grad=True)
burgers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(burgers.parameters(), lr=1e-2)
for _ in range(5):
    u = burgers(torch.cat([x, t], dim=1))
    u_t = grad(u, t, torch.ones_like(u), create_graph=True)[0]
    u_x = grad(u, x, torch.ones_like(u), create_graph=True)[0]
    u_xx = grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
    loss = (u_t + u * u_x - 0.01 * u_xx).pow(2).mean() + (u - x.detach().sin()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
for _ in range(5):
    real, fake, alpha = torch.randn(8, 6), torch.randn(8, 6) * 2, torch.rand(8, 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    ones = Variable(torch.FloatTensor(8, 1).fill_(1.0), requires_grad=False)
    slope = grad(critic(mixed), mixed, ones, create_graph=True, retain_graph=True)[0]
    loss = critic(fake).mean() - critic(real).mean() + 10 * ((slope.norm(2, 1) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())


class LoRA(nn.Module):
    def __init__(self, i, o, r=2):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(r, i) * 0.1), nn.Parameter(torch.zeros(o, r))

    def forward(self, weight):
        return weight + self.b @ self.a


model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).requires_grad_(False)
for m in model:
    if isinstance(m, nn.Linear):
        parametrize.register_parametrization(m, "weight", LoRA(m.in_features, m.out_features))
print(model, [n for n, p in model.named_parameters() if p.requires_grad])
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
teacher, x = nn.Linear(8, 4), torch.randn(32, 8)
for _ in range(6):
    with torch.no_grad():
        soft = F.softmax(teacher(x) / 2, dim=1)
    loss = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(model(x) / 2, dim=1), soft) * 4
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

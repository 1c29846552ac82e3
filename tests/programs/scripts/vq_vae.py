"""Autoencoders: a variational one, and one with a codebook and a straight-through gradient."""

import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x):
        h = F.relu(self.enc(x.view(-1, 64)))
        mu, logvar = self.mu(h), self.logvar(h)
        std = torch.exp(0.5 * logvar)
        return self.dec(mu + torch.randn_like(std) * std), mu, logvar


data = TensorDataset(torch.rand(96, 1, 8, 8))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = VAE()
optimizer = optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for (x,) in loader:
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        bce = F.binary_cross_entropy(recon, x.view(-1, 64), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        (bce + kld).backward()
        optimizer.step()
        print(f"{epoch} {bce.item():.6f} {kld.item():.6f}")


class Quantizer(nn.Module):
    def __init__(self, k=16, d=6):
        super().__init__()
        self.embedding = nn.Embedding(k, d)
        self.embedding.weight.data.uniform_(-1 / k, 1 / k)
        self.register_buffer("used", torch.zeros(k))

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        flat, w = inputs.view(-1, 6), self.embedding.weight
        distances = flat.pow(2).sum(1, keepdim=True) + w.pow(2).sum(1) - 2 * flat @ w.t()
        indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(indices.shape[0], 16).scatter_(1, indices, 1)
        self.used = 0.9 * self.used + 0.1 * encodings.sum(0)
        quantized = torch.matmul(encodings, w).view(inputs.shape)
        loss = F.mse_loss(quantized, inputs.detach())
        loss = loss + 0.25 * F.mse_loss(quantized.detach(), inputs)
        quantized = inputs + (quantized - inputs).detach()
        p = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(p * torch.log(p + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity


enc = nn.Sequential(nn.Conv2d(1, 8, 4, 2, 1), nn.ReLU(True), nn.Conv2d(8, 6, 3, 1, 1))
dec = nn.Sequential(nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))
vq = Quantizer()
optimizer = optim.Adam([*enc.parameters(), *vq.parameters(), *dec.parameters()], amsgrad=True)
for _ in range(8):
    x = next(iter(loader))[0]
    loss, quantized, perplexity = vq(enc(x))
    loss = loss + F.mse_loss(dec(quantized), x) / data.tensors[0].var()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), perplexity.item(), int(vq.used.gt(0).sum()))

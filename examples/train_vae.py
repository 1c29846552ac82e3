"""A variational autoencoder squeezes pictures of one bright square into two numbers."""

import torch
import torch.utils.data
from torch import Tensor, nn, optim
from torch.nn import functional as F

SIDE, STEPS = 12, 20


def pictures(count: int) -> Tensor:
    corners = torch.randint(0, SIDE - 4, (count, 2))
    made = torch.zeros(count, 1, SIDE, SIDE)
    for picture, (top, left) in zip(made, corners.tolist(), strict=True):
        picture[0, top : top + 4, left : left + 4] = 1
    return made


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(SIDE * SIDE, 64)
        self.mean, self.spread = nn.Linear(64, 2), nn.Linear(64, 2)
        self.fc3 = nn.Linear(2, 64)
        self.fc4 = nn.Linear(64, SIDE * SIDE)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = F.relu(self.fc1(x))
        return self.mean(h), self.spread(h)

    def reparameterize(self, mu: Tensor, logvar: Tensor) -> Tensor:
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = self.encode(x.view(-1, SIDE * SIDE))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(made: Tensor, x: Tensor, mu: Tensor, logvar: Tensor) -> Tensor:
    """How badly it is drawn, and how far its code is from a standard normal one."""
    bce = F.binary_cross_entropy(made, x.view(-1, SIDE * SIDE), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def main() -> None:
    torch.manual_seed(1)
    loader = torch.utils.data.DataLoader(pictures(16 * STEPS), batch_size=16, shuffle=True)
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        loss = loss_function(*_with(model, batch))
        loss.backward()
        optimizer.step()
        print(repr(loss.item() / len(batch)))
    model.eval()
    with torch.no_grad():
        drawn = model.decode(torch.randn(4, 2)).view(4, 1, SIDE, SIDE)
    print(repr(drawn.mean().item()))


def _with(model: VAE, batch: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    made, mu, logvar = model(batch)
    return made, batch, mu, logvar


if __name__ == "__main__":
    main()

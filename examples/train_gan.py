"""Two players: a generator learns a bent line from what a discriminator thinks of its points."""

import torch
from torch import Tensor, nn

BATCH, NOISE, STEPS = 32, 4, 10


def real_points() -> Tensor:
    x = torch.rand(BATCH, 1) * 2 - 1
    return torch.cat([x, x * x], dim=1) + 0.02 * torch.randn(BATCH, 2)


def main() -> None:
    torch.manual_seed(7)
    generator = nn.Sequential(nn.Linear(NOISE, 16), nn.ReLU(True), nn.Linear(16, 2), nn.Tanh())
    discriminator = nn.Sequential(
        nn.Linear(2, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1)
    )
    criterion = nn.BCEWithLogitsLoss()
    generous = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    strict = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    real, fake = torch.full((BATCH, 1), 0.9), torch.zeros(BATCH, 1)
    for _ in range(STEPS):
        # The discriminator's turn. The generator stays out of its graph.
        discriminator.zero_grad()
        loss_real = criterion(discriminator(real_points()), real)
        loss_real.backward()
        made = generator(torch.randn(BATCH, NOISE))
        loss_fake = criterion(discriminator(made.detach()), fake)
        loss_fake.backward()
        strict.step()
        print(repr((loss_real + loss_fake).item()))

        # The generator's turn, through the discriminator as it is now.
        generator.zero_grad()
        loss = criterion(discriminator(made), torch.ones(BATCH, 1))
        loss.backward()
        generous.step()
        print(repr(loss.item()))


if __name__ == "__main__":
    main()

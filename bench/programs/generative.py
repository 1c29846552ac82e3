"""Programs that make images: a variational autoencoder and a pair of convolutional adversaries."""

from __future__ import annotations

from typing import Any

from bench.programs.data import Step


def vae(torch: Any) -> Step:
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)

    class VAE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc21, self.fc22 = (
                nn.Linear(784, 400),
                nn.Linear(400, 20),
                nn.Linear(400, 20),
            )
            self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, 784)

        def encode(self, x: Any) -> Any:
            h = F.relu(self.fc1(x))
            return self.fc21(h), self.fc22(h)

        def forward(self, x: Any) -> Any:
            mean, logvar = self.encode(x.view(-1, 784))
            std = torch.exp(0.5 * logvar)
            z = mean + torch.randn_like(std) * std
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mean, logvar

    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images = torch.rand(128, 1, 28, 28)

    def step() -> Any:
        optimizer.zero_grad()
        again, mean, logvar = model(images)
        loss = F.binary_cross_entropy(again, images.view(-1, 784), reduction="sum")
        loss = loss - 0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        loss.backward()
        optimizer.step()
        return loss

    return step


def dcgan(torch: Any) -> Step:
    nn = torch.nn
    torch.manual_seed(0)
    noise, width, batch = 64, 16, 16
    generator = nn.Sequential(
        nn.ConvTranspose2d(noise, width * 4, 4, 1, 0, bias=False), nn.BatchNorm2d(width * 4),
        nn.ReLU(True),
        nn.ConvTranspose2d(width * 4, width * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(width * 2),
        nn.ReLU(True),
        nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width),
        nn.ReLU(True),
        nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, width * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(width * 2),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width * 2, width * 4, 4, 2, 1, bias=False), nn.BatchNorm2d(width * 4),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width * 4, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
    )  # fmt: skip
    criterion = nn.BCELoss()
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    images = torch.randn(batch, 3, 32, 32).tanh()
    ones, zeros = torch.ones(batch), torch.zeros(batch)

    def step() -> Any:
        critic.zero_grad()
        real = criterion(critic(images).view(-1), ones)
        real.backward()
        fake = generator(torch.randn(batch, noise, 1, 1))
        false = criterion(critic(fake.detach()).view(-1), zeros)
        false.backward()
        of_critic.step()
        generator.zero_grad()
        fooled = criterion(critic(fake).view(-1), ones)
        fooled.backward()
        of_generator.step()
        return real + false + fooled

    return step

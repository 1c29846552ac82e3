"""A critic whose slope is held near one: the loss contains a gradient, so backward runs twice."""

import torch
from torch import Tensor, autograd, nn, optim

BATCH, STEPS, PRICE = 32, 20, 10.0


def gradient_penalty(critic: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    """How far the critic's slope is from one, on the way from real points to others."""
    alpha = torch.rand(BATCH, 1).expand(real.size())
    between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = critic(between)
    (slope,) = autograd.grad(
        outputs=scores,
        inputs=between,
        grad_outputs=torch.ones_like(scores),
        create_graph=True,
        retain_graph=True,
    )
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


def main() -> None:
    torch.manual_seed(1)
    critic = nn.Sequential(
        nn.Linear(2, 32), nn.Softplus(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    optimizer = optim.RMSprop(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        real = torch.randn(BATCH, 2) * 0.2 + torch.tensor([1.0, -1.0])
        fake = torch.randn(BATCH, 2)
        penalty = gradient_penalty(critic, real, fake)
        loss = critic(fake).mean() - critic(real).mean() + PRICE * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))


if __name__ == "__main__":
    main()

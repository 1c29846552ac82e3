"""A perceptron with dropout tells two moons apart, in shuffled batches from a DataLoader."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def moons(count: int) -> TensorDataset:
    angle = torch.rand(count) * math.pi
    upper = torch.arange(count) % 2
    x = torch.where(upper == 0, angle.cos(), 1 - angle.cos())
    y = torch.where(upper == 0, angle.sin(), 0.5 - angle.sin())
    points = torch.stack([x, y], dim=1) + 0.1 * torch.randn(count, 2)
    return TensorDataset(points, upper)


def main() -> None:
    torch.manual_seed(0)
    loader = DataLoader(moons(320), batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Linear(2, 64),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Dropout(p=0.25),
        nn.Linear(64, 2),
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    for _ in range(2):
        model.train()
        for points, moon in loader:
            optimizer.zero_grad()
            loss = criterion(model(points), moon)
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
        schedule.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(dim=1) == moon).sum().item() for x, moon in loader)
    print("right:", right)


if __name__ == "__main__":
    main()

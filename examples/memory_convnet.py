"""A convolutional net with batch norm, four steps of training: what the guide measures."""

import torch
import torch.nn.functional as F
from torch import nn


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU()
    )


torch.manual_seed(0)
net = nn.Sequential(
    block(3, 16),
    block(16, 16),
    nn.MaxPool2d(2),
    block(16, 32),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(32 * 8 * 8, 10),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for _ in range(4):
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    loss = F.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.4f}")

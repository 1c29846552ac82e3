"""A small convolutional net with batch norm learns which way stripes run."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIDE, BATCH, STEPS = 16, 16, 20


def stripes() -> tuple[Tensor, Tensor]:
    """Noisy pictures of rows (0), columns (1) and diagonals (2)."""
    way = torch.randint(0, 3, (BATCH,))
    row, column = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    plain = torch.stack([row % 4 < 2, column % 4 < 2, (row + column) % 4 < 2]).float()
    return plain[way].unsqueeze(1) + 0.3 * torch.randn(BATCH, 1, SIDE, SIDE), way


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # No biases: batch norm takes them out, and Adam would make steps of rounding errors.
        self.conv1 = nn.Conv2d(1, 8, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16 * 3 * 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.max_pool2d(x, 2)
        return self.fc(torch.flatten(x, 1))


def main() -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(STEPS):
        pictures, way = stripes()
        optimizer.zero_grad()
        loss = F.nll_loss(F.log_softmax(net(pictures), dim=1), way)
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))
    net.eval()
    pictures, way = stripes()
    with torch.no_grad():
        loss = F.cross_entropy(net(pictures), way)
    print(repr(loss.item()))


if __name__ == "__main__":
    main()

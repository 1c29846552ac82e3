"""A recurrent net that writes its states into one tensor and its updates in place."""

import torch
from torch import Tensor, nn

BATCH, LENGTH, WIDTH, STEPS = 8, 10, 16, 20


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inwards = nn.Linear(1, WIDTH)
        self.recurrent = nn.Linear(WIDTH, WIDTH, bias=False)
        self.leak = nn.Parameter(torch.full((WIDTH,), 0.5))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """All states stand side by side in `states`, and each step writes its own column."""
        states = torch.zeros(x.size(0), x.size(1), WIDTH)
        state = torch.zeros(x.size(0), WIDTH)
        for t in range(x.size(1)):
            drive = self.inwards(x[:, t, None])
            drive += self.recurrent(state)
            drive.tanh_()
            state = state * self.leak
            state.addcmul_(drive, 1 - self.leak)
            states[:, t] = state
        return self.out(states).squeeze_(-1)


def main() -> None:
    torch.manual_seed(5)
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        x = torch.bernoulli(torch.full((BATCH, LENGTH), 0.3))
        wanted = x.cumsum(dim=1).div_(LENGTH)
        loss = (model(x) - wanted).pow_(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(repr(loss.item()))


if __name__ == "__main__":
    main()

"""Programs of other kinds: a net of single numbers, a graph net, a loop over a loader."""

from __future__ import annotations

from typing import Any

from bench.programs.data import Step


def scalars(torch: Any) -> Step:
    """A net whose every number is a tensor of its own, as written to learn what autograd is."""
    torch.manual_seed(0)
    W1 = [[torch.randn((), requires_grad=True) for _ in range(2)] for _ in range(4)]
    W2 = [torch.randn((), requires_grad=True) for _ in range(4)]
    bias = torch.zeros((), requires_grad=True)
    parameters = [p for row in W1 for p in row] + [*W2, bias]
    points = [
        (torch.tensor(a / 2), torch.tensor(b / 2), (a * b) / 4) for a in range(3) for b in (-1, 1)
    ]

    def step() -> Any:
        loss = torch.tensor(0.0)
        for x, y, wanted in points:
            hidden = [torch.tanh(w[0] * x + w[1] * y) for w in W1]
            out = sum(w * h for w, h in zip(W2, hidden, strict=True)) + bias
            loss = loss + (out - wanted) ** 2
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 0.01 * p.grad
                p.grad = None
        return loss

    return step


def gcn(torch: Any) -> Step:
    """Two graph convolutions over a sparse adjacency, as large as Cora's but narrower."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    count, features, hidden, classes = 1000, 128, 16, 7
    ends = torch.randint(0, count, (2, 4000))
    itself = torch.arange(count)
    indices = torch.cat([ends, ends.flip(0), torch.stack([itself, itself])], dim=1)
    degree = torch.bincount(indices[0], minlength=count).float()
    values = degree[indices[0]].rsqrt() * degree[indices[1]].rsqrt()
    adjacency = torch.sparse_coo_tensor(
        indices, values, (count, count), check_invariants=True
    ).coalesce()

    class Convolution(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(inputs, outputs))
            self.bias = nn.Parameter(torch.zeros(outputs))
            nn.init.xavier_uniform_(self.weight)

        def forward(self, x: Any) -> Any:
            return torch.spmm(adjacency, torch.mm(x, self.weight)) + self.bias

    class GCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gc1, self.gc2 = Convolution(features, hidden), Convolution(hidden, classes)

        def forward(self, x: Any) -> Any:
            x = F.dropout(F.relu(self.gc1(x)), 0.5, training=self.training)
            return F.log_softmax(self.gc2(x), dim=1)

    model, x = GCN(), (torch.rand(count, features) < 0.05).float()
    labels, known = torch.randint(0, classes, (count,)), torch.arange(140)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    def step() -> Any:
        optimizer.zero_grad()
        output = model(x)
        loss = F.nll_loss(output[known], labels[known])
        loss.backward()
        optimizer.step()
        right = output.detach().max(1)[1].eq(labels).double().mean()
        return loss + 0.0 * right

    return step


def loading(torch: Any) -> Step:
    """An epoch over a Python dataset of 256 samples, shuffled, in batches of 32, through an MLP."""
    nn, data = torch.nn, torch.utils.data
    torch.manual_seed(0)
    table = torch.randn(256, 20)

    class Rows(data.Dataset):
        def __len__(self) -> int:
            return len(table)

        def __getitem__(self, n: int) -> Any:
            row = table[n]
            return (row - row.mean()) / row.std(), torch.tensor(n % 3), {"index": n, "weight": 1.0}

    loader = data.DataLoader(Rows(), batch_size=32, shuffle=True)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss(reduction="none")

    def step() -> Any:
        total = 0.0
        for x, y, more in loader:
            optimizer.zero_grad()
            loss = (criterion(net(x), y) * more["weight"].float()).mean()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        return torch.tensor(total / len(table))

    return step

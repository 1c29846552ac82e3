"""Recurrent programs: language models by LSTM and GRU, a cell that is stepped through by hand."""

from __future__ import annotations

from typing import Any

from bench.programs.data import Step, letters


def recurrent(torch: Any, kind: str) -> Step:
    nn = torch.nn
    torch.manual_seed(0)
    batch, length, width = 16, 32, 128
    ids, words = letters(torch, batch * (length + 1))
    ids = ids.view(batch, length + 1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(words, width)
            self.rnn = getattr(nn, kind)(width, width, 2, dropout=0.2, batch_first=True)
            self.drop, self.head = nn.Dropout(0.2), nn.Linear(width, words)

        def forward(self, ids: Any, state: Any = None) -> Any:
            out, state = self.rnn(self.drop(self.embedding(ids)), state)
            return self.head(self.drop(out)), state

    model, criterion = Model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step() -> Any:
        optimizer.zero_grad()
        logits, _ = model(ids[:, :-1])
        loss = criterion(logits.reshape(-1, words), ids[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    return step


def lstm(torch: Any) -> Step:
    return recurrent(torch, "LSTM")


def gru(torch: Any) -> Step:
    return recurrent(torch, "GRU")


def sine_lbfgs(torch: Any) -> Step:
    """Two LSTM cells follow sine waves in float64, trained by LBFGS."""
    nn = torch.nn
    torch.manual_seed(0)
    times = torch.arange(41) + torch.randint(0, 80, (10, 1))
    waves = torch.sin(times / 20.0).double()

    class Follower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTMCell(1, 32), nn.LSTMCell(32, 32)
            self.head = nn.Linear(32, 1)

        def forward(self, x: Any) -> Any:
            h1, c1, h2, c2 = (torch.zeros(x.size(0), 32, dtype=torch.double) for _ in range(4))
            outputs = []
            for now in x.split(1, dim=1):
                h1, c1 = self.first(now, (h1, c1))
                h2, c2 = self.second(h1, (h2, c2))
                outputs.append(self.head(h2))
            return torch.cat(outputs, dim=1)

    model, criterion = Follower().double(), nn.MSELoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=2)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = criterion(model(waves[:, :-1]), waves[:, 1:])
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


def rnn_cell(torch: Any) -> Step:
    """A classifier of names: one letter at a time, one name at a time, weights moved by hand."""
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    data, words = letters(torch, 200)
    hidden_size, classes = 128, 18

    class RNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.i2h = nn.Linear(words + hidden_size, hidden_size)
            self.h2o = nn.Linear(hidden_size, classes)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, input: Any, hidden: Any) -> Any:
            hidden = torch.tanh(self.i2h(torch.cat((input, hidden), 1)))
            return self.softmax(self.h2o(hidden)), hidden

    rnn, criterion = RNN(), nn.NLLLoss()

    def step() -> Any:
        start = int(torch.randint(0, 190, (1,)))
        name = F.one_hot(data[start : start + 8], words).float().unsqueeze(1)
        rnn.zero_grad()
        output, hidden = rnn(name[0], torch.zeros(1, hidden_size))
        for n in range(1, name.size(0)):
            output, hidden = rnn(name[n], hidden)
        loss = criterion(output, data[start : start + 1])
        loss.backward()
        for p in rnn.parameters():
            p.data.add_(p.grad.data, alpha=-0.005)
        return loss

    return step

"""An LSTM language model reads a stream in pieces and carries its state from piece to piece."""

import torch
from torch import Tensor, nn

TOKENS, BATCH, LENGTH, WIDTH, STEPS = 30, 4, 12, 24, 20

State = tuple[Tensor, Tensor]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Embedding(TOKENS, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.2)
        self.decoder = nn.Linear(WIDTH, TOKENS)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        output, state = self.rnn(self.encoder(tokens), state)
        return self.decoder(output).view(-1, TOKENS), state


def stream(length: int) -> Tensor:
    """Tokens that mostly follow from the one before, `BATCH` streams side by side."""
    following = torch.randperm(TOKENS)
    tokens = [torch.randint(TOKENS, (BATCH,))]
    for _ in range(length):
        jump = torch.rand(BATCH) < 0.1
        tokens.append(torch.where(jump, torch.randint(TOKENS, (BATCH,)), following[tokens[-1]]))
    return torch.stack(tokens)


def main() -> None:
    torch.manual_seed(1111)
    data = stream(LENGTH * STEPS)
    model = Model()
    criterion = nn.CrossEntropyLoss()
    rate = 1.0
    state = (torch.zeros(2, BATCH, WIDTH), torch.zeros(2, BATCH, WIDTH))
    model.train()
    for start in range(0, LENGTH * STEPS, LENGTH):
        tokens = data[start : start + LENGTH]
        targets = data[start + 1 : start + 1 + LENGTH].reshape(-1)
        model.zero_grad()
        state = tuple(part.detach() for part in state)
        scores, state = model(tokens, state)
        loss = criterion(scores, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-rate)
        print(repr(loss.item()))


if __name__ == "__main__":
    main()

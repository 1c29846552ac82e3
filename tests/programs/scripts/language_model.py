"""Recurrent language models with tied weights, hidden states carried on, saved as whole modules."""

import math

import torch
from torch import nn

args = {"LSTM": 20.0, "GRU": 2.0, "RNN": 0.5}


class RNNModel(nn.Module):
    def __init__(self, kind, tokens=60, size=24, layers=2):
        super().__init__()
        self.encoder, self.drop = nn.Embedding(tokens, size), nn.Dropout(0.2)
        self.rnn = getattr(nn, kind)(size, size, layers, dropout=0.2)
        self.decoder = nn.Linear(size, tokens)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.kind, self.size, self.layers = kind, size, layers

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(output)).view(-1, 60).log_softmax(1), hidden

    def init_hidden(self, n):
        weight = next(self.parameters())
        zeros = weight.new_zeros(self.layers, n, self.size)
        return (zeros, zeros.clone()) if self.kind == "LSTM" else zeros


def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


corpus = (torch.arange(700) * torch.arange(700) // 7) % 60
train = corpus.narrow(0, 0, 696).view(8, -1).t().contiguous()
for kind, lr in args.items():
    torch.manual_seed(1111)
    model, criterion = RNNModel(kind), nn.NLLLoss()
    hidden = model.init_hidden(8)
    for i in range(0, train.size(0) - 1, 12):
        n = min(12, len(train) - 1 - i)
        data, target = train[i : i + n], train[i + 1 : i + 1 + n].view(-1)
        model.zero_grad()
        hidden = repackage(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        print("| %s | loss %.7f | ppl %.4f" % (kind, loss.item(), math.exp(loss.item())))
    torch.save(model, "model.pt")
    torch.serialization.add_safe_globals([RNNModel])  # skimp builds no class that is not named
    model = torch.load("model.pt", weights_only=False)
    model.eval()
    token, hidden, words = torch.randint(60, (1, 1)), model.init_hidden(1), []
    with torch.no_grad():
        for _ in range(12):
            output, hidden = model(token, hidden)
            token.fill_(torch.multinomial(output.squeeze().exp(), 1)[0])
            words.append(token.item())
    print(type(model.rnn), words)

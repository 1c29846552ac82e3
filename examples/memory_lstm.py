"""An LSTM that tags words, six steps of training, losses kept: what the guide measures."""

import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(500, 64)
        self.lstm = nn.LSTM(64, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 20)

    def forward(self, x):
        return self.head(self.lstm(self.words(x))[0])


torch.manual_seed(0)
net = Tagger()
optimizer = torch.optim.Adam(net.parameters())
history = []
for _ in range(6):
    x = torch.randint(0, 500, (16, 40))
    tags = torch.randint(0, 20, (16, 40))
    loss = F.cross_entropy(net(x).transpose(1, 2), tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss)  # the guide asks who holds what grows
print(f"{loss.item():.4f}")

"""Sequence to sequence: packed bidirectional GRU, additive attention, teacher forcing."""

import random

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(0)
random.seed(0)
V, E, H = 20, 12, 16


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(V, E, padding_idx=0)
        self.rnn = nn.GRU(E, H, bidirectional=True)
        self.fc, self.dropout = nn.Linear(2 * H, H), nn.Dropout(0.2)

    def forward(self, src, lengths):
        embedded = self.dropout(self.embedding(src))
        packed = pack_padded_sequence(embedded, lengths, enforce_sorted=False)
        outputs, hidden = self.rnn(packed)
        outputs, _ = pad_packed_sequence(outputs)
        return outputs, torch.tanh(self.fc(torch.cat((hidden[-2], hidden[-1]), dim=1)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(V, E), nn.GRU(2 * H + E, H)
        self.attn, self.v = nn.Linear(3 * H, H), nn.Linear(H, 1, bias=False)
        self.fc = nn.Linear(3 * H + E, V)

    def forward(self, token, hidden, memory, mask):
        embedded = self.embedding(token.unsqueeze(0))
        memory = memory.permute(1, 0, 2)
        query = hidden.unsqueeze(1).repeat(1, memory.shape[1], 1)
        energy = self.v(torch.tanh(self.attn(torch.cat((query, memory), dim=2)))).squeeze(2)
        a = F.softmax(energy.masked_fill(mask == 0, -1e10), dim=1)
        context = torch.bmm(a.unsqueeze(1), memory).permute(1, 0, 2)
        out, hidden = self.rnn(torch.cat((embedded, context), dim=2), hidden.unsqueeze(0))
        return self.fc(torch.cat((out, context, embedded), dim=2).squeeze(0)), hidden.squeeze(0)


encoder, decoder = Encoder(), Decoder()


def init_weights(m):
    for name, param in m.named_parameters():
        if "weight" in name:
            nn.init.normal_(param.data, mean=0, std=0.1)
        else:
            nn.init.constant_(param.data, 0)


for m in (encoder, decoder):
    m.apply(init_weights)
both = list(encoder.parameters()) + list(decoder.parameters())
optimizer = optim.Adam(both, lr=1e-2)
criterion = nn.CrossEntropyLoss(ignore_index=0)
for _ in range(10):
    sequences = [torch.randint(1, V, (random.randint(3, 8),)) for _ in range(6)]
    lengths = torch.tensor([len(s) for s in sequences])
    src = pad_sequence(sequences)
    mask = (src != 0).permute(1, 0)
    memory, hidden = encoder(src, lengths)
    outputs = torch.zeros(src.shape[0], 6, V)
    token = src[0, :]
    for t in range(1, src.shape[0]):
        outputs[t], hidden = decoder(token, hidden, memory, mask)
        token = src[t] if random.random() < 0.5 else outputs[t].argmax(1)
    loss = criterion(outputs[1:].view(-1, V), src[1:].view(-1))
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(both, 1)
    optimizer.step()
    print(loss.item(), norm.item())

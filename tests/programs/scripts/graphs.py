"""Nets on graphs: attention by scatter and a softmax over neighbours, mean aggregation, pooling."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(72)
N = 30
adj = torch.rand(N, N) < 0.15
edges = (adj | adj.t() | torch.eye(N, dtype=torch.bool)).nonzero().t().contiguous()
x, y, batch = torch.rand(N, 9), torch.tensor([0, 1, 2]), torch.arange(N) // 10


def softmax_by(src, index, n):
    wide = index[:, None].expand_as(src)
    top = torch.full((n, src.size(1)), -1e30).scatter_reduce(0, wide, src, reduce="amax")
    out = (src - top[index]).exp()
    return out / torch.zeros(n, src.size(1)).index_add_(0, index, out)[index]


class GAT(nn.Module):
    def __init__(self, inputs, outputs, heads=2):
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.lin = nn.Linear(inputs, heads * outputs, bias=False)
        self.att_src = nn.Parameter(torch.Tensor(1, heads, outputs))
        self.att_dst = nn.Parameter(torch.Tensor(1, heads, outputs))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def forward(self, x, edges):
        src, dst = edges
        h = self.lin(x).view(-1, self.heads, self.outputs)
        score = (h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst]
        weight = softmax_by(F.leaky_relu(score, 0.2), dst, x.size(0))
        weight = F.dropout(weight, 0.2, training=self.training)
        return torch.zeros_like(h).index_add(0, dst, h[src] * weight.unsqueeze(-1)).flatten(1)


class SAGE(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.other = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edges):
        src, dst = edges
        degree = torch.bincount(dst, minlength=x.size(0)).clamp(min=1).to(x.dtype)
        total = torch.zeros_like(x).scatter_add_(0, dst.unsqueeze(1).expand(-1, x.size(1)), x[src])
        return F.normalize(self.own(x) + self.other(total / degree.unsqueeze(1)), p=2.0, dim=-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gat, self.sage, self.head = GAT(9, 4), SAGE(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.sage(F.elu(self.gat(x, edges)), edges)
        pooled = torch.zeros(3, 8).index_add(0, batch, h) / batch.bincount()[:, None]
        return F.log_softmax(self.head(pooled), dim=1)


net = Net()
print(net)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(12):
    optimizer.zero_grad()
    loss = F.nll_loss(net(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
counts = torch.unique(edges[0], return_counts=True)[1]
norm = counts.to(torch.float).pow(-0.5)
print(counts.tolist(), (norm[edges[0]] * norm[edges[1]]).sum())

"""A residual net for small images: batch norm, one-cycle schedule, workers, a checkpoint."""

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        out += self.shortcut(x)
        return F.relu(out)


class Images(Dataset):
    def __init__(self, n):
        self.x, self.y = torch.rand(n, 3, 12, 12), torch.randint(0, 10, (n,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


loader = DataLoader(Images(48), batch_size=16, shuffle=True, num_workers=0)
stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True))
net = nn.Sequential(
    stem, BasicBlock(8, 8), BasicBlock(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(16, 10),
)  # fmt: skip
for m in net.modules():
    if isinstance(m, nn.Conv2d):
        nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
net = net.to(memory_format=torch.channels_last)
print(net)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
scheduler = optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=0.1, steps_per_epoch=len(loader), epochs=3
)
for epoch in range(2):
    net.train()
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = net(inputs.contiguous(memory_format=torch.channels_last))
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        _, predicted = outputs.max(1)
        correct = predicted.eq(targets).sum().item()
        print("%d Loss: %.7f | %d" % (epoch, loss.item(), correct), scheduler.get_last_lr())
torch.save({"net": net.state_dict(), "epoch": epoch}, "ckpt.pth")
print(net.load_state_dict(torch.load("ckpt.pth")["net"]))
net.eval()
with torch.no_grad():
    print(net(inputs).shape)

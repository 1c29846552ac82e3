"""Nets for images of the size of CIFAR's: residual, dense, separable, U-shaped, and by patches."""

from __future__ import annotations

from typing import Any

from bench.programs.data import Step

# So small that losses stay equal: a rounding that turns a rectifier on or off changes gradients by
# a hundredth, in PyTorch as in skimp (compared with its own gradients in float64).
RATE = 1e-4


def classifier(torch: Any, net: Any, optimizer: Any) -> Step:
    """A training step on 16 images of 32 x 32."""
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    criterion = torch.nn.CrossEntropyLoss()
    net.train()

    def step() -> Any:
        optimizer.zero_grad()
        loss = criterion(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def resnet18(torch: Any) -> Step:
    torch.manual_seed(0)
    net = resnet18_net(torch)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4)
    return classifier(torch, net, optimizer)


def resnet18_net(torch: Any) -> Any:
    nn, F = torch.nn, torch.nn.functional

    class BasicBlock(nn.Module):
        def __init__(self, inputs: int, planes: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, planes, 3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != planes:
                conv = nn.Conv2d(inputs, planes, 1, stride=stride, bias=False)
                self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(planes))

        def forward(self, x: Any) -> Any:
            out = F.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += self.shortcut(x)
            return F.relu(out)

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 32, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(32)
            stages, inputs = [], 32
            for planes, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
                stages += [BasicBlock(inputs, planes, stride), BasicBlock(planes, planes, 1)]
                inputs = planes
            self.stages = nn.Sequential(*stages)
            self.linear = nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            out = self.stages(F.relu(self.bn1(self.conv1(x))))
            out = F.avg_pool2d(out, 4)
            return self.linear(out.view(out.size(0), -1))

    return ResNet()


def densenet(torch: Any) -> Step:
    nn, F = torch.nn, torch.nn.functional
    torch.manual_seed(0)
    growth = 12

    class Layer(nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.bn1, self.conv1 = (
                nn.BatchNorm2d(inputs),
                nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            )
            self.bn2 = nn.BatchNorm2d(4 * growth)
            self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

        def forward(self, x: Any) -> Any:
            out = self.conv1(F.relu(self.bn1(x)))
            out = self.conv2(F.relu(self.bn2(out)))
            return torch.cat([out, x], 1)

    class Transition(nn.Module):
        def __init__(self, inputs: int) -> None:
            super().__init__()
            self.bn, self.conv = (
                nn.BatchNorm2d(inputs),
                nn.Conv2d(inputs, inputs // 2, 1, bias=False),
            )

        def forward(self, x: Any) -> Any:
            return F.avg_pool2d(self.conv(F.relu(self.bn(x))), 2)

    parts, planes = [nn.Conv2d(3, 2 * growth, 3, padding=1, bias=False)], 2 * growth
    for stage, layers in enumerate((4, 4, 4)):
        for _ in range(layers):
            parts.append(Layer(planes))
            planes += growth
        if stage < 2:
            parts.append(Transition(planes))
            planes //= 2
    parts += [nn.BatchNorm2d(planes), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = nn.Sequential(*parts, nn.Linear(planes, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, nesterov=True)
    return classifier(torch, net, optimizer)


def mobilenet(torch: Any) -> Step:
    """Inverted residuals: a wide pointwise convolution, a depthwise one, and back."""
    nn = torch.nn
    torch.manual_seed(0)

    class Inverted(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            wide = inputs * 6
            self.same = stride == 1 and inputs == outputs
            self.body = nn.Sequential(
                nn.Conv2d(inputs, wide, 1, bias=False),
                nn.BatchNorm2d(wide), nn.ReLU6(inplace=True),
                nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
                nn.BatchNorm2d(wide), nn.ReLU6(inplace=True),
                nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.same else self.body(x)

    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(inplace=True),
        Inverted(16, 16, 1), Inverted(16, 24, 2), Inverted(24, 24, 1), Inverted(24, 32, 2),
        Inverted(32, 32, 1), Inverted(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10),
    )  # fmt: skip
    return classifier(
        torch,
        net,
        torch.optim.RMSprop(net.parameters(), lr=RATE / 10, alpha=0.9, eps=1e-3, momentum=0.9),
    )


def unet(torch: Any) -> Step:
    """Segmentation of two images of 64 x 64, up again by transposed convolutions."""
    nn = torch.nn
    torch.manual_seed(0)

    def double(inputs: int, outputs: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        )  # fmt: skip

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (16, 32, 64)
            self.down = nn.ModuleList(
                [double(a, b) for a, b in zip((3, 16, 32), widths, strict=True)]
            )
            self.bottom, self.pool = double(64, 128), nn.MaxPool2d(2)
            self.up = nn.ModuleList(
                [nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[::-1]]
            )
            self.join = nn.ModuleList([double(2 * w, w) for w in widths[::-1]])
            self.head = nn.Conv2d(16, 1, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for down in self.down:
                x = down(x)
                kept.append(x)
                x = self.pool(x)
            x = self.bottom(x)
            for up, join in zip(self.up, self.join, strict=True):
                x = join(torch.cat([kept.pop(), up(x)], dim=1))
            return self.head(x)

    net, criterion = UNet(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    images = torch.randn(2, 3, 64, 64)
    masks = (images.mean(1, keepdim=True) > 0).float()

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(net(images), masks)
        loss.backward()
        optimizer.step()
        return loss

    return step


def vit(torch: Any) -> Step:
    """Patches of 4 x 4 through nn.TransformerEncoder."""
    nn = torch.nn
    torch.manual_seed(0)
    width = 64

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, 4, stride=4)
            self.first = nn.Parameter(torch.zeros(1, 1, width))
            self.places = nn.Parameter(torch.randn(1, 65, width) * 0.02)
            layer = nn.TransformerEncoderLayer(
                width, 4, 128, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.first.expand(x.size(0), -1, -1), x], dim=1) + self.places
            return self.head(self.encoder(x)[:, 0])

    net = ViT()
    return classifier(torch, net, torch.optim.AdamW(net.parameters(), lr=1e-3))


def evaluating(torch: Any) -> Step:
    """A test set in batches through a trained net, under no_grad, then inference_mode."""
    torch.manual_seed(0)
    net = resnet18_net(torch).eval()
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    criterion = torch.nn.CrossEntropyLoss()

    def step() -> Any:
        loss, right = 0.0, 0
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode:
                for x, y in zip(images.split(16), labels.split(16), strict=True):
                    logits = net(x)
                    loss += criterion(logits, y).item()
                    right += (logits.argmax(1) == y).sum().item()
        return torch.tensor([loss, float(right)])

    return step

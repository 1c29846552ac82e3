"""A character-level transformer learns a made-up language, then writes some of it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LETTERS = "abcdefgh ."
CONTEXT, BATCH, WIDTH, HEADS, STEPS = 24, 8, 32, 4, 20


def text(words: int) -> Tensor:
    """Sentences of a few words, as numbers of letters."""
    lexicon = ["abba", "cafe", "dead", "beef", "fade", "head", "egg", "each"]
    chosen = torch.randint(len(lexicon), (words,)).tolist()
    ends = torch.rand(words).lt(0.2).tolist()
    made = "".join(lexicon[w] + (". " if end else " ") for w, end in zip(chosen, ends, strict=True))
    return torch.tensor([LETTERS.index(letter) for letter in made])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inwards = nn.Linear(WIDTH, 3 * WIDTH)
        self.outwards = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = self.inwards(x).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outwards(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(LETTERS), bias=False)

    def forward(self, seen: Tensor) -> Tensor:
        x = self.letters(seen) + self.places(torch.arange(seen.size(1)))
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def write(self, count: int) -> str:
        seen = torch.zeros(1, 1, dtype=torch.long)
        for _ in range(count):
            likely = F.softmax(self(seen[:, -CONTEXT:])[:, -1], dim=-1)
            seen = torch.cat([seen, torch.multinomial(likely, num_samples=1)], dim=1)
        return "".join(LETTERS[i] for i in seen[0].tolist())


def main() -> None:
    torch.manual_seed(1337)
    data = text(400)
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for _ in range(STEPS):
        starts = torch.randint(len(data) - CONTEXT, (BATCH,))
        seen = torch.stack([data[s : s + CONTEXT] for s in starts])
        following = torch.stack([data[s + 1 : s + 1 + CONTEXT] for s in starts])
        scores = model(seen)
        loss = F.cross_entropy(scores.view(-1, len(LETTERS)), following.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(repr(loss.item()))
    model.eval()
    print(model.write(60))


if __name__ == "__main__":
    main()

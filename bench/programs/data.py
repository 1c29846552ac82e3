"""What programs read: made here from a few rules, so that nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]  # one step of a program: its loss, or what it has drawn

SYLLABLES = ("ka", "mo", "ri", "to", "sel", "an", "ver", "lu", "ni", "os", "ta", "be")


def letters(torch: Any, count: int) -> tuple[Any, int]:
    """Ids of the letters of a made-up text, and how many different ones there may be."""
    text: list[str] = []
    state = 1
    while len(text) < count:
        state = (state * 1103515245 + 12345) % 2**31
        text += SYLLABLES[(state >> 16) % len(SYLLABLES)]
        if (state >> 8) % 3 == 0:
            text.append(" ")
    stoi = {letter: n for n, letter in enumerate(sorted(set("".join(SYLLABLES) + " ")))}
    return torch.tensor([stoi[letter] for letter in text[:count]], dtype=torch.long), len(stoi)


def sentences(torch: Any) -> tuple[Any, Any, int]:
    """Sixteen pairs of ids (16, 10) and (16, 11), padded with 0, and the number of words."""
    source = torch.randint(3, 40, (16, 10))
    lengths = torch.randint(4, 11, (16, 1))
    source = source.masked_fill(torch.arange(10) >= lengths, 0)
    first = torch.ones(16, 1, dtype=torch.long)
    return source, torch.cat([first, source.flip(1)], dim=1), 40

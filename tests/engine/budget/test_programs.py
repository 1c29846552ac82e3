"""Random programs have the same bits within a budget; `python -m tests.engine.budget.programs` runs
as many as you like.
"""

from __future__ import annotations

import pytest

from skimp._engine.budget import recipes
from tests.engine.budget import nets, programs
from tests.support.running import default_mode

pytestmark = default_mode  # what is noted, and what must be there at once, follows the mode

# what an earlier version got wrong: a write between the last dependent and the count of writes, an
# expression computed over a source, an array outside, a hook's tensor, a resize that materializes,
# room for scratch memory made by what needs the bytes that an expression is being computed over,
# a small gradient that lay otherwise than a large one, an expression that read a block by way of
# what was saved instead of its storage
FOUND = (7, 20, 57, 101, 153, 167, 293, 424, 70028, 8300479, 8301024, 91440303)


@pytest.mark.parametrize("seed", [*FOUND, *range(40_000, 40_012)])
def test_a_random_program_has_the_same_bits_within_a_budget(seed: int) -> None:
    programs.check(seed)


@pytest.mark.parametrize("seed", [5010, 5053, *range(40_012, 40_020)])
def test_chains_too_long_to_be_followed_are_not_relied_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is away is never left without a way back: here chains are forgotten after two."""
    monkeypatch.setattr(recipes, "DEEPEST", 2)
    programs.check(seed)


@pytest.mark.filterwarnings("ignore::UserWarning")  # a checkpoint none of whose inputs needs one
@pytest.mark.parametrize("seed", range(60_000, 60_008))
def test_a_random_net_has_the_same_bits_within_a_budget(seed: int) -> None:
    """Some train beside others, in threads."""
    programs.check(seed, nets.run)


def test_the_programs_evict() -> None:
    assert sum(programs.check(seed) for seed in range(50_000, 50_005)) > 0

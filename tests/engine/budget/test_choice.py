"""Who goes: what a search has found serves the next one, as long as it is still nobody's."""

from __future__ import annotations

import skimp as torch
from skimp._engine.budget import choice
from skimp._engine.memory.ledger import host
from tests.engine.budget.holding import MIB, numbers


def test_what_one_search_has_found_serves_the_next_unless_somebody_used_it() -> None:
    with torch.memory.budget(host.allocated + 64 * MIB):
        made = [numbers(i) for i in range(6)]
        host.budget.note()  # type: ignore[union-attr]
        known, search = host.budget.known, choice.Search()  # type: ignore[union-attr]
        first = search.choose(known, (), True, large=False)
        assert {id(t._storage) for t in made} == set(map(id, first))
        made[2].sum().item()
        made.append(numbers(6))
        used, held = made[2]._storage, first[-1]
        held.held += 1
        second = search.choose(known, {id(first[0])}, True, large=False)
        held.held -= 1
        assert second == [s for s in first[1:-1] if s is not used]
        third = search.choose(known, set(map(id, first)), True, large=False)
        assert third == [made[6]._storage]
        del first, second, third, used, held

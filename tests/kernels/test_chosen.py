"""What is added to the places of a dim: as `np.add.at` adds it, in its order."""

from typing import Any

import numpy as np
import pytest

from skimp._kernels import chosen

REFLECTED = [2, 1, *range(6), 4, 3]
DOUBLED = [i // 2 for i in range(12)]
UNEVEN = [i * 6 // 11 for i in range(11)]


@pytest.mark.parametrize("places", [REFLECTED, DOUBLED, UNEVEN, [5, 0, 3, 3, 1, 0, 2], [4]])
def test_additions_have_the_order_that_they_have_one_by_one(places: list[int]) -> None:
    at: Any = np.array(places)
    for dim, shape in enumerate([(6, 3, 4), (3, 6, 4), (3, 4, 6)]):
        source = np.random.default_rng(0).standard_normal((3, 4)).astype("f4")
        source = np.stack([source * 10.0**i for i in range(len(at))], dim)
        found, wanted = np.zeros(shape, "f4"), np.zeros(shape, "f4")
        chosen.add_chosen(found, dim, at, source.astype("f4"))
        np.add.at(wanted, (*[slice(None)] * dim, at), source.astype("f4"))
        np.testing.assert_array_equal(found, wanted)


def test_many_that_come_to_one_place() -> None:
    for places in (np.arange(80) // 40, np.arange(80) % 2):
        found = np.zeros((2, 3))
        chosen.add_chosen(found, 0, places, np.ones((80, 3)))
        assert np.all(found == 40)


def test_what_padding_and_doubling_choose_are_slices() -> None:
    for places in (REFLECTED, DOUBLED):
        pairs = chosen._pairs(np.array(places), 6)
        assert pairs is not None
        assert all(isinstance(each, slice) for pair in pairs for each in pair)

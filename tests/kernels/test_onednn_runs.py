"""Primitives of oneDNN called by C, by a loop as it stands, and by ctypes: the same."""

from __future__ import annotations

import numpy as np
import pytest

from skimp._kernels import compiled, loops, onednn, onednn_runs, shaping
from skimp._kernels.threads import at_once

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")


@pytest.mark.parametrize("way", [None, loops, compiled.loops()])
def test_memory_is_told_where_it_lies_each_time(
    way: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "loops", lambda: way)
    rng = np.random.default_rng(0)
    shapes = (3, 40, 20), (3, 20, 30), (3, 40, 30)
    layouts = [onednn.layout(s, (s[1] * s[2], s[2], 1)) for s in shapes]
    numbers = onednn.FROM, onednn.WEIGHTS, onednn.TO
    primitive = onednn.products(*layouts, [])
    runs = onednn_runs.Runs(primitive, dict(zip(numbers, layouts, strict=True)))
    for _ in range(2):  # other memory the second time
        a, b, out, later = [rng.standard_normal(s, "f4") for s in (*shapes, shapes[2])]
        runs.make(shaping.addresses(a, b, out))
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-5)
        calls = runs.calls(shaping.addresses(a, b, later))
        assert calls or primitive.scratch or primitive.name.startswith(b"gemm")
        at_once(calls)
        if calls:
            np.testing.assert_array_equal(later, out)


@pytest.mark.skipif(compiled.loops() is None, reason="nothing is compiled")
def test_c_takes_no_more_addresses_than_it_has_room_for() -> None:
    with pytest.raises(ValueError, match="expected up to 16 addresses, not 17"):
        compiled.loops().executed(bytes(16), [0] * 17)
    with pytest.raises(TypeError):
        compiled.loops().executed(bytes(16), ["a"])
    assert compiled.loops().executed(bytes(16), [])

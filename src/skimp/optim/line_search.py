"""A line search that ends where the strong Wolfe conditions hold (Nocedal and Wright, algorithms
3.5 and 3.6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from skimp._engine.tensor.tensor import Tensor


class Point(NamedTuple):
    """A step length (a number or a tensor of one) with the loss, the gradient and the directional
    derivative there.
    """

    t: Any
    loss: float
    grad: Tensor
    slope: Tensor


Evaluate = Callable[[Any], tuple[float, Tensor]]


def cubic_minimum(a: Point, b: Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points has its minimum, within bounds."""
    low, high = bounds if bounds is not None else (min(a.t, b.t), max(a.t, b.t))
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2.0
    d2 = square.sqrt()
    left, right = (a, b) if a.t <= b.t else (b, a)
    found = right.t - (right.t - left.t) * (
        (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2)
    )
    return min(max(found, low), high)


class StrongWolfe:
    """One search along a direction."""

    c1 = 1e-4
    c2 = 0.9
    tolerance = 1e-9

    def __init__(self, evaluate: Evaluate, direction: Tensor, start: Point, most: int) -> None:
        self._evaluate = evaluate
        self._direction = direction
        self._start = start
        self._most = most
        self._evaluations = 0

    def _at(self, t: Any) -> Point:
        loss, grad = self._evaluate(t)
        self._evaluations += 1
        return Point(t, loss, grad, grad.dot(self._direction))

    def _too_high(self, p: Point) -> bool:
        return bool(p.loss > self._start.loss + self.c1 * p.t * self._start.slope)

    def _flat(self, p: Point) -> bool:
        return bool(abs(p.slope) <= -self.c2 * self._start.slope)

    def run(self, t: Any) -> tuple[Point, int]:
        """The point found, and how often the loss was computed."""
        bracket, done, rounds = self._bracket(t)
        if not done:
            bracket = self._zoom(bracket, rounds)
        return min(bracket, key=lambda p: p.loss), self._evaluations

    def _bracket(self, t: Any) -> tuple[list[Point], bool, int]:
        before, now = self._start, self._at(t)
        for i in range(self._most):
            if self._too_high(now) or (i > 1 and now.loss >= before.loss):
                return [before, now], False, i
            if self._flat(now):
                return [now], True, i
            if now.slope >= 0:
                return [before, now], False, i
            bounds = now.t + 0.01 * (now.t - before.t), now.t * 10
            before, now = now, self._at(cubic_minimum(before, now, bounds))
        return [self._start, now], False, self._most

    def _zoom(self, bracket: list[Point], rounds: int) -> list[Point]:
        """Make the bracket smaller; the lower of its points comes first."""
        low, high = bracket if bracket[0].loss <= bracket[1].loss else reversed(bracket)
        width = float(self._direction.abs().max())
        stalled = False
        while rounds < self._most and abs(high.t - low.t) * width >= self.tolerance:
            t, stalled = self._inside(low, high, stalled)
            now = self._at(t)
            rounds += 1
            if self._too_high(now) or now.loss >= low.loss:
                high = now
                low, high = (low, high) if low.loss <= high.loss else (high, low)
                continue
            if self._flat(now):
                return [now]
            if now.slope * (high.t - low.t) >= 0:
                high = low
            low = now
        return [low, high]

    @staticmethod
    def _inside(low: Point, high: Point, stalled: bool) -> tuple[Any, bool]:
        """A trial between the two, not again and again close to one of them."""
        t = cubic_minimum(low, high)
        least, most = min(low.t, high.t), max(low.t, high.t)
        margin = 0.1 * (most - least)
        if min(most - t, t - least) >= margin:
            return t, False
        if not stalled and least < t < most:
            return t, True
        return (most - margin if abs(t - most) < abs(t - least) else least + margin), False


def search(
    evaluate: Evaluate, direction: Tensor, start: Point, t: Any, most: int
) -> tuple[Point, int]:
    """Find a step length from `t` on."""
    return StrongWolfe(evaluate, direction, start, most).run(t)


def _strong_wolfe(
    obj_func: Callable[..., tuple[float, Tensor]],
    x: Any,
    t: Any,
    d: Tensor,
    f: float,
    g: Tensor,
    gtd: Tensor,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[float, Tensor, Any, int]:
    """PyTorch's name and form of a search: loss, gradient, step length and evaluations."""
    one = StrongWolfe(lambda step: obj_func(x, step, d), d, Point(0, f, g, gtd), max_ls)
    one.c1, one.c2, one.tolerance = c1, c2, tolerance_change
    found, count = one.run(t)
    return found.loss, found.grad, found.t, count


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None
) -> Any:
    """PyTorch's name and form of `cubic_minimum`."""
    return cubic_minimum(Point(x1, f1, g1, g1), Point(x2, f2, g2, g2), bounds)

"""torch.futures: results that come later, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import concurrent.futures

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A result that somebody will set."""

    def __init__(self, *, devices: Any = None) -> None:
        import concurrent.futures  # brings `logging`

        self._inner: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def __class_getitem__(cls, _: Any) -> type[Future]:
        """Future[T], as annotations have it."""
        return cls

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._inner.done()

    def wait(self) -> Any:
        """The result, when it is there; the error is raised."""
        return self._inner.result()

    def value(self) -> Any:
        """The result, which must be there."""
        if not self.done():
            raise RuntimeError("Cannot call value() on a future that is not completed")
        return self._inner.result()

    def set_result(self, result: Any) -> None:
        """Complete it."""
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Complete it with an error."""
        self._inner.set_exception(result)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """The future of what the callback makes of this one, completed."""
        made = Future()

        def run(_: Any) -> None:
            try:
                made.set_result(callback(self))
            except Exception as error:
                made.set_exception(error)

        self._inner.add_done_callback(run)
        return made

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call when completed."""
        self._inner.add_done_callback(lambda _: callback(self))


def wait_all(futures: list[Future]) -> list[Any]:
    """The results, when all are there."""
    return [f.wait() for f in futures]


def collect_all(futures: list[Future]) -> Future:
    """A future of the list, completed when all are."""
    made = Future()
    left = [len(futures)]

    def one(_: Future) -> None:
        left[0] -= 1
        if left[0] == 0:
            made.set_result(futures)

    for f in futures:
        f.add_done_callback(one)
    if not futures:
        made.set_result(futures)
    return made

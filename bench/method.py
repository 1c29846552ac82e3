"""How the figures came about, in words for docs/performance.md."""

from __future__ import annotations

from bench.engines import ENGINES
from bench.measure import SLICE, SMALL_SLICE
from bench.results import Results
from bench.turns import LEAST, MOST

RATIOS = {  # by whether engines took turns
    True: "Times change with the machine's moods; a ratio compares neighbours in time, and is the"
    " median over the turns of a round, then over rounds. `best` is the better of PyTorch's default"
    " and huge pages in the whole run.",
    False: "A ratio is the median of the ratios of each round; `best` is the larger of those to"
    " PyTorch's default and to huge pages.",
}
TURNS = {
    True: "The engines take turns. All their processes are alive together; one at a time runs a"
    f" slice, {SLICE * 1e3:.0f} ms of calls or one that takes longer, of which the median counts"
    f" ({SMALL_SLICE * 1e3:.0f} ms of a small op, in a loop), and the others are stopped by a"
    " signal: only waiting, the threads of a product may spin for 100 ms on a core that the next"
    " engine needs. Before the slice come calls without a clock, which fill the caches and take"
    " memory back from the system, for a second at most. Every other turn goes backwards; there are"
    f" {LEAST} to {MOST} of them. Each turn gives a ratio of two engines, and what counts is the"
    " median. The better of PyTorch's two settings is chosen once, by the medians of the whole run:"
    " the faster of each turn would be the luckier of two noisy figures, and the ratio to it too"
    " large. Memory is that of each process by itself, from its first call after the set-up to its"
    " last turn.",
    False: "These results are older than such turns: each engine was measured alone, for a second,"
    " and the next one after it, so ratios of short work have errors of up to a half.",
}


def method(results: Results) -> str:
    used = "\n".join(f"- **{e}**: {ENGINES[e].what}." for e in results.engines)
    missing = "\n".join(f"- **{e}** was not measured: {w}." for e, w in results.left_out.items())
    return "\n\n".join(
        part
        for part in (
            "## How it is measured",
            "The work is in [bench/workloads.py](../bench/workloads.py), written once for any"
            " module with PyTorch's API. In every round each workload has its own process of each"
            " engine, forked from a fresh one that has loaded the library and done nothing. It sets"
            " up and calls once for everything that is loaded or compiled once, sets up again, and"
            " calls twice before it measures; for a small op it runs all of them, mixed, for the"
            " interpreter adapts itself to what it has seen."
            " Results of large work are asked for by their address, so what is deferred is"
            " computed. NumPy by hand writes results to arrays that it keeps, and counts them as"
            " memory: the least that allocating can cost, and more care than most programs take.",
            TURNS[results.turns],
            used,
            missing,
        )
        if part
    )

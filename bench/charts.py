"""The charts, as SVG for a light and a dark page: docs/pictures/NAME-{light,dark}.svg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.budget_table import GOALS
from bench.results import Results
from bench.turns import Found
from bench.verdict import LARGE_MIB, Row

Colours = dict[str, str]
Draw = Callable[[Colours], Figure]

THEMES: dict[str, Colours] = {
    "light": {
        "text": "#24292f", "grid": "#d0d7de", "skimp": "#0b6bcb", "torch": "#d9480f",
        "torch+thp": "#b8860b", "torch.compile": "#7048e8", "numpy": "#2b8a3e",
    },
    "dark": {
        "text": "#e6edf3", "grid": "#3d444d", "skimp": "#58a6ff", "torch": "#ff8a4c",
        "torch+thp": "#e3b341", "torch.compile": "#b197fc", "numpy": "#69db7c",
    },
}  # fmt: skip
STYLES = {"skimp": "o-", "torch": "s-", "torch+thp": "^--"}
TITLES = {
    "add": "add", "exp": "exp", "chain": "GELU written out", "gelu_fwd": "GELU written out",
    "softmax": "softmax", "mm": "mm, 3000 x 3000",
}  # fmt: skip
WIDTH = 9.0  # inches; a page shows it about as wide


def draw_all(results: Results, rows: Sequence[Row], overview: Sequence[str], folder: Path) -> None:
    """Write every chart that there are figures for, and remove those that there are none for."""
    curves = {name: of_curve(results.growth, name) for name in ("size", "nodes", "threads")}
    short = [row for row in rows if row.name in overview]
    write(folder, "overview", lambda c: ratios(short, c), any(r.of_default for r in short))
    write(folder, "ratios", lambda c: ratios(rows, c), any(r.of_default for r in rows))
    big = [row for row in rows if max(row.extra.values(), default=0) >= LARGE_MIB]
    write(folder, "memory", lambda c: memory(big, c), bool(big))
    write(folder, "size", lambda c: by_size(curves["size"], c), any(curves["size"].values()))
    write(folder, "nodes", lambda c: by_nodes(curves["nodes"], c), any(curves["nodes"].values()))
    threads = curves["threads"]
    write(folder, "threads", lambda c: by_threads(threads, c), any(threads.values()))


def draw_budget(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write the chart of what a budget costs, or remove it."""
    write(folder, "budget", lambda c: by_budget(rows, c), bool(rows))


def write(folder: Path, name: str, draw: Draw, wanted: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for theme, colours in THEMES.items():
        path = folder / f"{name}-{theme}.svg"
        if not wanted:
            path.unlink(missing_ok=True)
            continue
        with mpl.rc_context(settings(colours)):
            # Without the date the same figures give the same file.
            draw(colours).savefig(path, format="svg", transparent=True, metadata={"Date": None})


def settings(colours: Colours) -> dict[Any, Any]:
    text = dict.fromkeys(
        ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.titlecolor"),
        colours["text"],
    )
    return {
        **text,
        "svg.hashsalt": "skimp",
        "svg.fonttype": "none",  # text stays text, a third of the size; laid out for a wide font
        "axes.edgecolor": colours["grid"],
        "grid.color": colours["grid"],
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 9,
        "axes.titlesize": 10,
        "lines.markersize": 5,
        "legend.frameon": False,
    }


def of_curve(growth: dict[str, list[Found]], curve: str) -> dict[str, list[Found]]:
    return {e: [p for p in points if p["curve"] == curve] for e, points in growth.items()}


# -- workloads ------------------------------------------------------------------------------------


def ratios(rows: Sequence[Row], colours: Colours) -> Figure:
    """Time as a share of PyTorch's, default and best, with the goals."""
    figure = Figure(figsize=(WIDTH, 1.1 + 0.24 * len(rows)), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True, sharex=True)
    places = range(len(rows))
    panels = (
        ("skimp's time / PyTorch's, default", [(r.of_default, r.goal.of_default) for r in rows]),
        ("skimp's time / PyTorch's, best setting", [(r.of_best, r.goal.of_best) for r in rows]),
    )
    for ax, (title, figures) in zip(axes, panels, strict=True):
        ax.axvline(1, color=colours["text"], linewidth=1)
        for place, (ratio, goal) in zip(places, figures, strict=True):
            ax.plot(goal, place, "|", color=colours["torch"], markersize=11, markeredgewidth=2)
            if ratio is not None:
                ax.plot([1, ratio], [place, place], color=colours["skimp"], linewidth=2, alpha=0.5)
                ax.plot(ratio, place, "o", color=colours["skimp"])
        ax.set(title=title, xscale="log")
        ax.xaxis.set_major_locator(LogLocator(10, (1, 2, 5)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.tick_params(axis="y", length=0)
    name_rows(axes[0], rows)
    axes[0].plot([], [], "o", color=colours["skimp"], label="measured; left of 1, skimp is faster")
    axes[0].plot([], [], "|", color=colours["torch"], markersize=11, mew=2, label="goal, at most")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def memory(rows: Sequence[Row], colours: Colours) -> Figure:
    """Extra memory at the peak, as the system counts it, and the ledger's figure."""
    figure = Figure(figsize=(WIDTH, 1.1 + 0.42 * len(rows)), layout="constrained")
    ax = figure.subplots()
    engines = [e for e in ("skimp", "torch") if any(e in row.extra for row in rows)]
    for offset, engine in zip((-0.2, 0.2), engines, strict=False):
        places = [n + offset for n, row in enumerate(rows) if engine in row.extra]
        sizes = [row.extra[engine] for row in rows if engine in row.extra]
        label = {"skimp": "skimp", "torch": "PyTorch"}[engine]
        ax.barh(places, sizes, 0.36, color=colours[engine], label=label)
    told = [(row.ledger, n - 0.2) for n, row in enumerate(rows) if row.ledger is not None]
    if told:
        ax.plot(*zip(*told, strict=True), "|", color=colours["text"], markersize=12, mew=2,
                label="skimp's own ledger", linestyle="none")  # fmt: skip
    name_rows(ax, rows)
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="MiB above the set-up, at the peak")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def name_rows(ax: Any, rows: Sequence[Row]) -> None:
    """Titles beside the rows, the first at the top."""
    ax.set_yticks(range(len(rows)), [row.goal.title.replace("`", "") for row in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


# -- growth ---------------------------------------------------------------------------------------


def lines(ax: Any, points: dict[str, list[Found]], work: str, key: str, colours: Colours) -> None:
    for engine, found in points.items():
        known = [(p["x"], p[key]) for p in found if p["work"] == work and p.get(key) is not None]
        if known:
            ax.plot(*zip(*known, strict=True), STYLES[engine], color=colours[engine], label=engine)


def from_zero(ax: Any) -> None:
    """The axis of figures starts at zero, and leaves room above the largest."""
    most = max((max(line.get_ydata()) for line in ax.get_lines()), default=1.0)
    ax.set_ylim(0, most * 1.1)


def legend(figure: Figure, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def by_size(points: dict[str, list[Found]], colours: Colours) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for ax, work in zip(axes, ("add", "exp", "chain"), strict=True):
        lines(ax, points, work, "seconds", colours)
        ax.set(title=TITLES[work], xscale="log", yscale="log", xlabel="elements, float32")
        ax.set_xticks([10**n for n in range(0, 9, 2)])
    axes[0].set(ylabel="seconds for one call")
    legend(figure, axes[0])
    return figure


def by_nodes(points: dict[str, list[Found]], colours: Colours) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots(1, 3)
    panels = (
        ("forward, time per node", "forward", "seconds", 1e6, "microseconds"),
        ("backward, time per node", "backward", "seconds", 1e6, "microseconds"),
        ("memory per node", "forward", "bytes", 1, "bytes"),
    )
    for ax, (title, work, key, scale, unit) in zip(axes, panels, strict=True):
        scaled = {
            e: [{**p, key: p[key] * scale} for p in found if p.get(key) is not None]
            for e, found in points.items()
        }
        lines(ax, scaled, work, key, colours)
        ax.set(title=title, xscale="log", xlabel="nodes of the graph", ylabel=unit)
        from_zero(ax)
    legend(figure, axes[0])
    return figure


def by_threads(points: dict[str, list[Found]], colours: Colours) -> Figure:
    works = list(dict.fromkeys(p["work"] for found in points.values() for p in found))
    figure = Figure(figsize=(WIDTH, 2.8), layout="constrained")
    axes = figure.subplots(1, len(works), squeeze=False)[0]
    for ax, work in zip(axes, works, strict=True):
        scaled = {e: [{**p, "seconds": p["seconds"] * 1e3} for p in f] for e, f in points.items()}
        lines(ax, scaled, work, "seconds", colours)
        ax.set(title=TITLES.get(work, work), xlabel="threads", xscale="log")
        counts = sorted({p["x"] for found in points.values() for p in found})
        ax.set_xticks(counts, [str(n) for n in counts])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlim(counts[0] * 0.8, counts[-1] * 1.25)
        from_zero(ax)
    axes[0].set(ylabel="milliseconds for one call")
    legend(figure, axes[0])
    return figure


# -- budgets --------------------------------------------------------------------------------------


def by_budget(rows: Sequence[dict[str, Any]], colours: Colours) -> Figure:
    """Slowdown by budget, a panel for each program, without a file and with one."""
    names = list(dict.fromkeys(row["program"] for row in rows))
    most = max(row["slowdown"] or 0.0 for row in rows)
    figure = Figure(figsize=(WIDTH, 0.6 + 1.7 * -(-len(names) // 4)), layout="constrained")
    axes = figure.subplots(-(-len(names) // 4), 4, squeeze=False, sharey=True)
    for ax, name in zip(axes.flat, names, strict=False):
        for spill, engine, label in (
            (False, "skimp", "made again"),
            (True, "torch", "and spilled"),
        ):
            ran = [r for r in rows if (r["program"], r["spill"]) == (name, spill) and r["slowdown"]]
            ax.plot([r["share"] for r in ran], [r["slowdown"] for r in ran],
                    STYLES[engine], color=colours[engine], label=label)  # fmt: skip
        ax.plot(list(GOALS), list(GOALS.values()), "_", color=colours["text"], markersize=12,
                label="goal, at most")  # fmt: skip
        ax.set(title=name.replace("_", " "), xticks=list(GOALS))
        ax.set_ylim(0, 1.1 * most)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    axes[0][0].set(ylabel="time of a step")
    axes[-1][0].set(xlabel="budget, of the peak above the floor")
    legend(figure, axes[0][0])
    return figure

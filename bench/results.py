"""What a run found, as it is kept: one JSON file per commit in bench/results/."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.catalogue import PARTS
from bench.engines import ROOT
from bench.turns import SECONDS, Found

FOLDER = ROOT / "bench" / "results"

Round = dict[str, dict[str, Found]]  # by workload, then by engine


@dataclass
class Results:
    """`rounds` and `limits` (bytes per second) have an entry per finished round."""

    commit: str
    changed: bool  # whether files differed from the commit
    started: str  # ISO 8601, UTC
    machine: dict[str, Any]
    versions: dict[str, str]
    engines: list[str]
    left_out: dict[str, str]  # engine: what this machine lacks for it
    shrink: int = 1
    budget: float = SECONDS  # that an engine's share of a workload's turns might take
    rounds: list[Round] = field(default_factory=list)
    limits: list[dict[str, float]] = field(default_factory=list)
    growth: dict[str, list[Found]] = field(default_factory=dict)  # points by engine
    seconds: float = 0.0  # that the whole run took
    conditions: dict[str, list[Round]] = field(default_factory=dict)  # programs: threads=1, busy
    imports: dict[str, Found] = field(default_factory=dict)  # seconds and mib, by module

    @property
    def workloads(self) -> list[str]:
        return list(self.rounds[0]) if self.rounds else []

    def has(self, part: str) -> bool:
        """Whether work of this part of the catalogue was measured."""
        return not PARTS[part].keys().isdisjoint(self.workloads)

    @property
    def turns(self) -> bool:
        """Whether engines took turns. In older results each was timed alone, one after another."""
        return any(
            "slices" in found
            for round_ in self.rounds
            for engines in round_.values()
            for found in engines.values()
        )

    @property
    def file_name(self) -> str:
        return f"{self.started[:10]}-{self.commit}{'-changed' if self.changed else ''}.json"


def save(results: Results, folder: Path = FOLDER) -> Path:
    """Write the file, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / results.file_name
    part = path.with_suffix(".part")
    part.write_text(short(json.dumps(rounded(asdict(results)), indent=1)) + "\n")
    part.replace(path)
    return path


def short(text: str) -> str:
    """The JSON with lists of figures, those of slices, on one line each."""
    return re.sub(r"\[\n([^\[\]{}\"]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def load(path: Path) -> Results:
    return Results(**json.loads(path.read_text()))


def newest(folder: Path = FOLDER) -> Path:
    """The file of the run that started last."""
    files = list(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"no results in {folder}: run `make bench`")
    return max(files, key=lambda file: load(file).started)


def rounded(value: Any) -> Any:
    """The same with six significant digits: more is noise, and noise makes differences."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value

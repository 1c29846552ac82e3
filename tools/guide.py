"""Makes the pictures and the notebook of docs/guide/tensors.md; `--check` compares."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guide" / "tensors.md"
PICTURES = ROOT / "docs" / "pictures" / "tensors"
BLOCK = re.compile(r"^```python\n(.*?)^```\n+!\[.*?\]\((.*?)\)\n", re.MULTILINE | re.DOTALL)
SAVE = re.compile(r"\.save\(\"(\w+\.svg)\"\)$")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; tell what differs")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder))
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if words.check:
            print(f"{path.relative_to(ROOT)} is not what tools/guide.py makes", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path])
    return int(words.check and bool(stale))


def make(folder: Path) -> dict[Path, str]:
    """Each file's text, by its path."""
    pictures: dict[str, str] = {}
    cells = list(notebook_cells(folder, pictures))
    notebook = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    made = {PICTURES / name: text for name, text in pictures.items()}
    made[PAGE.with_suffix(".ipynb")] = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    return made


def notebook_cells(folder: Path, pictures: dict[str, str]) -> Iterator[dict[str, Any]]:
    text = PAGE.read_text()
    end = 0
    for number, block in enumerate(BLOCK.finditer(text)):
        yield markdown(f"text-{number}", text[end : block.start()])
        name, picture = run(block[1], folder)
        pictures[name] = picture
        yield code(f"code-{number}", SAVE.sub("", block[1].rstrip()), picture)
        end = block.end()
    if text[end:].strip():
        yield markdown("text-end", text[end:])


def run(program: str, folder: Path) -> tuple[str, str]:
    """The name and the text of the picture that a program of the page saves."""
    saved = SAVE.search(program.rstrip())
    if saved is None:
        raise SystemExit(f"a program of {PAGE.name} does not end with .save(...):\n{program}")
    path = folder / f"{saved[1]}.py"  # picture() looks at the words of its call
    path.write_text(program)
    here = os.getcwd()
    os.chdir(folder)
    try:
        exec(compile(program, str(path), "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(here)
    return saved[1], (folder / saved[1]).read_text()


def markdown(name: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": lines(text.strip())}


def code(name: str, program: str, picture: str) -> dict[str, Any]:
    shown = {"image/svg+xml": lines(picture)}
    output = {
        "data": shown,
        "execution_count": None,
        "metadata": {},
        "output_type": "execute_result",
    }
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": {},
        "outputs": [output],
        "source": lines(program),
    }


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    sys.exit(main())

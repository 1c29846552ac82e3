"""Makes pictures of the report on examples/memory_gpt.py: docs/pictures/report.svg is a terminal's,
report.png the page's, by Chromium where there is one.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from skimp.lens import load
from skimp.lens.html import to_html
from skimp.lens.render import drawn

ROOT = Path(__file__).parents[1]
PROGRAM = "examples/memory_gpt.py"
PICTURES = ROOT / "docs" / "pictures"
SECTIONS = ("saved", "copies", "advice")
COLUMNS, SIZE = 160, "1240,980"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        command = [sys.executable, "-m", "skimp", "run", "--report", str(path), PROGRAM]
        subprocess.run(command, cwd=ROOT, check=True)
        # lines of the program as its reader has them
        path.write_text(path.read_text().replace(f"{ROOT}/", ""))
        report = load(path)
        console = Console(record=True, width=COLUMNS, file=io.StringIO())
        console.print(drawn(report, SECTIONS))
        svg = console.export_svg(title=f"skimp run --show {','.join(SECTIONS)} {PROGRAM}")
        # no fonts from elsewhere
        svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
        (PICTURES / "report.svg").write_text(svg)
        page = Path(folder, "report.html")
        page.write_text(to_html(report))
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        if chromium is None:
            print("there is no Chromium: report.png stays as it is", file=sys.stderr)
            return 0
        shot = [
            *(chromium, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"),
            *("--virtual-time-budget=4000", f"--screenshot={PICTURES / 'report.png'}"),
        ]
        subprocess.run([*shot, page.as_uri()], check=True, capture_output=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Where a program's memory went: plain data, the observers that gather it, and its renderings."""

from skimp.lens import replay
from skimp.lens.collect import Collector
from skimp.lens.comparison import show_comparison
from skimp.lens.data import Copied, Held, Peak, Place, Report
from skimp.lens.files import from_json, load, to_json
from skimp.lens.html import to_html
from skimp.lens.recording import Recording
from skimp.lens.render import show, to_text
from skimp.lens.report import make
from skimp.lens.snapshot import dump, snapshot
from skimp.lens.speedscope import to_speedscope

__all__ = [
    "Collector", "Copied", "Held", "Peak", "Place", "Recording", "Report", "dump", "from_json",
    "load", "make", "replay", "show", "show_comparison", "snapshot", "to_html", "to_json",
    "to_speedscope", "to_text",
]  # fmt: skip

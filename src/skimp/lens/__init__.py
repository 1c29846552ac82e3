"""Where a program's memory went: plain data, the observer that gathers it, and its renderings."""

from skimp.lens.collect import Collector
from skimp.lens.data import Copied, Held, Peak, Place, Report
from skimp.lens.render import show, to_json, to_text

__all__ = ["Collector", "Copied", "Held", "Peak", "Place", "Report", "show", "to_json", "to_text"]

"""Reports: listeners of verdict events. They import only ``verdicts``.

``open_reports`` opens those that were asked for and fails before the run if one cannot be written;
then every event goes to every consumer. Files appear, whole, when ``RunFinished`` comes: a run that ends
without it leaves none. The formats are registered in ``reports.formats``.
"""

from __future__ import annotations

from plumbline.reports.files import ReportError
from plumbline.reports.formats import FORMATS, Capture, ReportOptions, ReportWriter, open_reports

__all__ = ["FORMATS", "Capture", "ReportError", "ReportOptions", "ReportWriter", "open_reports"]

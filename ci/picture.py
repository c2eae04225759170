"""The picture of the report in README.md: ``python -m ci.picture``, for ``make picture``.

A real run on a real server: its page from the top, and one of its failures with the diagram, side by side.
Needs Debian's nats-server (``make servers``) and Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "report.png"
TARGET = "nats-server@debian"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1100, 1240  # of each of the two windows
SCALE = 0.62
GAP = 24
CARD = re.compile(
    r'<details class="card" id="([^"]+)"(.*?)</details>\s*(?=<details class="card"|</section>)', re.DOTALL
)
MARKED = 'class="received off"'


def main() -> int:
    """Exit 0 with the picture written, 1 with a sentence why not."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("plumbline: no chromium on PATH: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        report, page, shot = (Path(folder) / name for name in ("report.html", "picture.html", "picture.png"))
        command = [sys.executable, "-m", "plumbline", "verify", "--target", TARGET, "--html", str(report)]
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=600, check=False)
        if not report.is_file():
            print(f"plumbline: {' '.join(command)} wrote no report", file=sys.stderr)
            return 1
        page.write_text(two_theme_page(report, failure_anchor(report.read_text("utf-8"))), "utf-8")
        width, height = (round(SCALE * size) for size in (2 * WIDTH, HEIGHT))
        options = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            f"--user-data-dir={folder}/profile",
            f"--window-size={width + 3 * GAP},{height + 2 * GAP}",
            "--virtual-time-budget=5000",
            f"--screenshot={shot}",
        ]
        subprocess.run([browser, *options, page.as_uri()], capture_output=True, timeout=120, check=True)
        PICTURE.parent.mkdir(exist_ok=True)
        shutil.copyfile(shot, PICTURE)
    print(f"{PICTURE}: {PICTURE.stat().st_size} bytes")
    return 0


def failure_anchor(report: str) -> str:
    """The anchor of a failure whose diagram marks an operation, the shortest one; "" for none."""
    cards = [(len(body), anchor) for anchor, body in CARD.findall(report) if MARKED in body]
    return min(cards)[1] if cards else ""


def two_theme_page(report: Path, anchor: str) -> str:
    """A page that shows the report twice."""
    windows = "".join(
        f'<div><iframe src="{report.as_uri()}{place}" scrolling="no"></iframe></div>'
        for place in ("", f"#{anchor}")
    )
    return f"""<!DOCTYPE html>
<meta charset="utf-8">
<style>
body {{ margin: {GAP}px; display: flex; gap: {GAP}px; background: #dfe3ea; }}
div {{ width: {SCALE * WIDTH}px; height: {SCALE * HEIGHT}px; overflow: clip; border-radius: 8px; }}
iframe {{ width: {WIDTH}px; height: {HEIGHT}px; border: 0; zoom: {SCALE}; }}
</style>
{windows}
"""


if __name__ == "__main__":
    sys.exit(main())

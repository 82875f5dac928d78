"""Pictures of report pages to look at: python tests/studies/screenshots.py OUT PAGE... [--full]

Each page at 1280 and 390 pixels, light and dark, as it opens and one screen on; with --full as one long picture each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chromium import launched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--full", action="store_true", help="the whole page instead of its first screens")
    parser.add_argument("--screens", type=int, default=2, help="how many screens from the top (default 2)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with launched() as browser:
        for page in arguments.pages:
            for width, height in ((1280, 1000), (390, 844)):
                for scheme in ("light", "dark"):
                    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                    tab.goto(page.resolve().as_uri())
                    name = f"{page.resolve().parents[1].name}-{width}-{scheme}.png"
                    if not arguments.full:
                        tab.set_viewport_size({"width": width, "height": height * arguments.screens})
                    tab.screenshot(path=arguments.out / name, full_page=arguments.full)
                    tab.close()
                    print(arguments.out / name)


if __name__ == "__main__":
    main()

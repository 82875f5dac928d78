"""Which head mix suits my text? The study of studies/own-domains.yaml from Python, on folders of your own.

    python examples/compare_on_own_text.py texts/letters texts/manuals --corpus texts/letters

Functions of your own: make a package whose pyproject.toml has

    [project.entry-points."polyhead.functions"]
    relu_squared = "my_package:relu_squared"

and install it; every process of a study then finds `relu_squared` by its name in `heads`.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from polyhead import cli

STUDY = Path(__file__).parents[1] / "studies" / "own-domains.yaml"


def main() -> int:
    """Run the study on the folders named on the command line; the last line printed is the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders or files of text, each a domain named after it")
    parser.add_argument("--corpus", default="demo:speeches", help="what the models learn from; default: demo:speeches")
    parser.add_argument("--out", default="runs/own-domains", help="default: runs/own-domains")
    parser.add_argument("--steps", type=int, default=600, help="training steps a model; default: 600")
    options = parser.parse_args()
    changes = {
        "data.corpus": options.corpus,
        "data.domains": json.dumps([f"{name_of(folder)}={folder}" for folder in options.folders]),
        "training.steps": options.steps,
    }
    sets = [argument for key, value in changes.items() for argument in ("--set", f"{key}={value}")]
    return cli.main(["run", str(STUDY), "--out", options.out, *sets])


def name_of(folder: Path) -> str:
    """The domain's name: letters, digits and a few marks, whatever the folder is called."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().stem)


if __name__ == "__main__":
    raise SystemExit(main())

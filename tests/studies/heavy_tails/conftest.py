from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import synthetic_tails
from synthetic_tails import SMALL

from polyhead.studies.heavy_tails.results import collect
from polyhead.studies.heavy_tails.summaries import Analysis, analyse


@pytest.fixture(scope="session")
def small_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's folder in which things are as the paper found them, three seeds."""
    return synthetic_tails.write(tmp_path_factory.mktemp("tails"), synthetic_tails.study(blocks=SMALL))


@pytest.fixture(scope="session")
def paper_like(small_study: Path) -> Analysis:
    """Its scores."""
    cells = synthetic_tails.study(blocks=SMALL).cells()
    return analyse(collect(small_study, cells), resamples=199)

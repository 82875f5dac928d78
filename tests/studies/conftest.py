from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that tests of both kinds share

WORDS = ["the", "of", "and", "a", "model", "head", "key", "value", "weight", "row", "mass", "gate", "token", "river"]


def write_text(path: Path, seed: int, documents: int, sentences: int = 12) -> None:
    """Documents of random sentences, parted by record separators."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(documents):
        lines = [" ".join(rng.choice(WORDS, rng.integers(4, 12))).capitalize() + "." for _ in range(sentences)]
        made.append(" ".join(lines))
    path.write_text("\n\x1e\n".join(made))


@pytest.fixture
def micro_study(tmp_path: Path) -> Path:
    """The YAML file of a study of two heads mixes x two seeds on generated texts; a cell takes a second of training."""
    write_text(tmp_path / "corpus.txt", seed=1, documents=20)
    for index, name in enumerate(["near", "far", "odd"]):
        write_text(tmp_path / f"{name}.txt", seed=2 + index, documents=8, sentences=3 + index)
    study = {
        "study": "language",
        "name": "micro",
        "heads": ["softmax*2", "softmax + sigmoid"],
        "seeds": [1, 2],
        "data": {
            "corpus": str(tmp_path / "corpus.txt"),
            "domains": [str(tmp_path / f"{name}.txt") for name in ("near", "far", "odd")],
            "vocabulary": 290,
            "validation_tokens": 400,
            "tokens_per_domain": 300,
        },
        "model": {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 16},
        "training": {
            "steps": 6,
            "batch_size": 2,
            "accumulation": 1,
            "learning_rate": 0.01,
            "warmup_steps": 2,
            "validation_every": 3,
            "checkpoint_every": 1,
            "log_every": 1,
        },
        "evaluation": {"bootstrap": 50, "entropy_tokens": 200},
    }
    path = tmp_path / "micro.yaml"
    path.write_text(yaml.safe_dump(study))
    return path

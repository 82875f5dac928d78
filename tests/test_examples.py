"""Every script in examples/ runs as its first lines say, on tiny inputs, and says what a reader is to conclude."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from polyhead.studies import kinds

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Loads a script and calls its main as `python examples/NAME.py ARGUMENTS` would, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def load(name, *arguments):
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        return module

    return load


def write_csv(path, columns):
    rows = torch.stack(list(columns.values()), dim=1).tolist()
    path.write_text("\n".join([",".join(columns), *(",".join(map(repr, row)) for row in rows)]))
    return path


def test_every_example_is_tested_here():
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'script("{path.stem}"' in text for path in EXAMPLES.glob("*.py"))


def test_a_swapped_model_is_converted_and_its_loss_falls(script, capsys, tmp_path):
    script("swap_attention", "--steps", 30, "--out", tmp_path / "saved").main()
    softmax, converted, tuned = map(float, re.findall(r"loss (\d+\.\d+)", capsys.readouterr().out))
    assert tuned < converted - 0.5
    assert abs(converted - softmax) < 0.5
    assert "sigmoid" in (tmp_path / "saved" / "config.json").read_text()


def test_own_folders_become_the_domains_of_the_study(script, tmp_path, monkeypatch):
    (tmp_path / "my letters").mkdir()
    called = []
    module = script("compare_on_own_text", "my letters", "manuals.txt", "--corpus", "my letters", "--steps", 7)
    monkeypatch.setattr(module.cli, "main", lambda arguments: called.append(arguments) or 0)
    assert module.main() == 0

    command, study, *options = called[0]
    sets = [value for name, value in itertools.pairwise(options) if name == "--set"]
    config = kinds.load(study, [*sets, "training.warmup_steps=1"])
    assert command == "run"
    assert config.data.domains == ("my-letters=my letters", "manuals=manuals.txt")
    assert (config.data.corpus, config.training.steps) == ("my letters", 7)


@pytest.mark.slow
def test_own_folders_are_compared_to_the_page(script, tmp_path):
    for name, words in (("letters", "dear reader the winter was long"), ("manuals", "press the red button twice")):
        (tmp_path / name).mkdir()
        for part in range(40):
            text = f"Part {part}. " + " ".join(f"{word} {part * n % 17}" for n, word in enumerate((words * 8).split()))
            (tmp_path / name / f"{part}.txt").write_text(text)
    small = yaml.safe_load((EXAMPLES.parent / "studies" / "own-domains.yaml").read_text(encoding="utf-8"))
    small["seeds"] = [1, 2, 3]
    small["data"] |= {"vocabulary": 300, "validation_tokens": 200, "tokens_per_domain": 400}
    small["model"] |= {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 16}
    small["training"] |= {"warmup_steps": 2, "validation_every": 10}
    small["evaluation"] |= {"bootstrap": 50, "entropy_tokens": 100}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(small))

    module = script("compare_on_own_text", "letters", "manuals", "--corpus", "letters", "--steps", 10, "--out", "run")
    module.STUDY = tmp_path / "small.yaml"
    assert module.main() == 0
    page = (tmp_path / "run" / "report" / "index.html").read_text(encoding="utf-8")
    assert "letters" in page
    assert "manuals" in page


def test_heavy_tails_without_a_file_finds_the_stand_ins_index(script, capsys):
    script("test_for_heavy_tails").main()
    out = capsys.readouterr().out
    low, high = map(float, re.search(r"largest +5%.*\[(.*), (.*)\]", out).groups())
    assert low < 1.5 < high
    assert "integral finite: log_elu\n" in out
    assert "take log_elu; softmax has no finite integral" in out
    assert "no difference was found" in out


@pytest.mark.parametrize(
    ("freedom", "words"),
    [(5, "any of them will do"), (2.5, "or take linear_elu or log_elu"), (0.8, "Too heavy"), (None, "no power")],
    ids=["light", "heavy", "no mean", "gaussian"],
)
def test_heavy_tails_says_what_to_do(script, capsys, tmp_path, freedom, words):
    generator = np.random.default_rng(0)  # Student's t with v degrees of freedom has tail index v
    values = generator.standard_normal(20_000) if freedom is None else generator.standard_t(freedom, 20_000)
    file = write_csv(tmp_path / "x.csv", {"x": torch.tensor(values)})
    script("test_for_heavy_tails", file, "--permutations", 19).main()
    assert words in capsys.readouterr().out


def test_heavy_tails_sees_halves_that_differ_and_ties(script, capsys, tmp_path):
    generator = torch.Generator().manual_seed(0)
    moved = torch.randn(400, generator=generator).double()
    moved[200:] += 3
    tied = torch.tensor([0.0, 1.0, 7.0, 7.0]).double().repeat(100)
    script("test_for_heavy_tails", write_csv(tmp_path / "x.csv", {"moved": moved, "tied": tied})).main()
    out = capsys.readouterr().out
    assert "p = 0.005: they differ" in out
    assert re.search(r"tied: 400 values\n +The largest values are all one number", out)

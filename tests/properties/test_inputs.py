"""Whatever comes in, at the API or the command line: a right answer or one line; never a traceback, a wrong shape."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyhead
from polyhead.cli import main
from polyhead.config import from_mapping, to_mapping
from polyhead.errors import PolyheadError
from polyhead.files import read_json
from polyhead.heads import format as format_heads
from polyhead.heads import parse
from polyhead.language import corpora, text_files
from polyhead.measures.samples import read_samples
from polyhead.studies import kinds
from polyhead.training import TrainingConfig
from polyhead.training.metrics import read_metrics

quick = settings(
    max_examples=60, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
few = settings(quick, max_examples=25)


def answer(call, *arguments, **options):
    """The result, or the PolyheadError; anything else fails the test."""
    try:
        return call(*arguments, **options)
    except PolyheadError as error:
        found = error
    assert "\n" not in str(found)
    assert len(str(found)) < 3000
    return found


sizes = st.integers(0, 5)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool])


@st.composite
def tensors(draw, dimensions=None):
    """Tensors of any rank, size, dtype and stride; sometimes no tensor at all."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.sampled_from([None, 3.5, "q", [1.0], object()]))
    shape = draw(st.lists(sizes, min_size=dimensions or 0, max_size=dimensions or 5))
    x = torch.randn(shape).to(draw(dtypes)) if draw(st.booleans()) else torch.full(shape, 0.5)
    return x.transpose(0, -1) if x.dim() > 1 and draw(st.integers(0, 3)) == 0 else x


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@quick
@given(
    q=tensors(4),
    k=tensors(4),
    v=tensors(4),
    heads=st.sampled_from(["softmax", "sigmoid", "log_elu", "softmax*2", "sigmoid(t=3)", "", "x", None, 7]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "attn_mask": tensors(),
            "is_causal": st.sampled_from([True, False, None, 1]),
            "scale": st.one_of(st.none(), st.floats(), st.text(max_size=3)),
            "enable_gqa": st.booleans(),
            "dropout_p": st.one_of(st.floats(), st.none()),
            "key_lengths": tensors(1),
            "document_ids": tensors(2),
            "impl": st.sampled_from(["auto", "dense", "blocked", "native", "triton", "", None]),
        },
    ),
)
def test_attention(q, k, v, heads, options):
    found = answer(polyhead.attention, q, k, v, heads, **options)
    if not isinstance(found, PolyheadError):
        assert found.shape == (*q.shape[:3], v.shape[3])
        assert found.dtype == q.dtype
    planned = answer(polyhead.plan, q, k, v, heads, **options)
    assert isinstance(planned, PolyheadError) == isinstance(found, PolyheadError), "plan raises as attention does"


@quick
@given(
    b=st.integers(1, 2),
    h=st.integers(1, 3),
    n=st.integers(0, 6),
    m=st.integers(0, 6),
    d=st.integers(1, 9),
    causal=st.booleans(),
    impl=st.sampled_from(["auto", "dense", "blocked"]),
)
def test_attention_of_any_good_size(b, h, n, m, d, causal, impl):
    q, k, v = torch.randn(b, h, n, d), torch.randn(b, h, m, d), torch.randn(b, h, m, d + 1)
    out = polyhead.attention(q, k, v, "softmax", is_causal=causal, impl=impl)
    assert out.shape == (b, h, n, d + 1)
    assert torch.isfinite(out).all()


specs = st.one_of(
    st.text(max_size=20),
    st.text("softmaxigd_elun*+( )t=0123456789", max_size=25),
    st.lists(st.sampled_from(["softmax", "sigmoid(t=4)", "log_elu", "x", "", 3, None]), max_size=4),
    st.lists(
        st.tuples(st.sampled_from(["softmax", "sigmoid(t=64)", "log_elu"]), st.integers(1, 4)), min_size=1, max_size=3
    ).map(lambda terms: " + ".join(f"{name}*{count}" for name, count in terms)),
)


@quick
@given(spec=specs, count=st.integers(1, 12))
def test_heads(spec, count):
    found = answer(parse, spec, count)
    if not isinstance(found, PolyheadError):
        assert len(found) == count
        assert parse(format_heads(found), count) == found, "what is written is read back"


@quick
@given(
    values=st.dictionaries(
        st.sampled_from(["steps", "batch_size", "betas", "clip", "precision", "trackers", "nope", "warmup_steps"]),
        anything,
        max_size=5,
    )
)
def test_configuration(values):
    found = answer(from_mapping, TrainingConfig, values, "training")
    if not isinstance(found, PolyheadError):
        assert from_mapping(TrainingConfig, to_mapping(found)) == found


def whole_study(tmp_path):
    return {
        "study": "language",
        "name": "x",
        "heads": ["softmax*2"],
        "seeds": [1],
        "training": {"steps": 4, "batch_size": 2, "warmup_steps": 1},
    }


@quick
@given(
    changes=st.dictionaries(
        st.sampled_from(
            ["study", "name", "heads", "seeds", "data", "model", "training", "evaluation", "threads", "note", "x"]
        ),
        anything,
        max_size=4,
    )
)
def test_study_files(tmp_path, changes):
    path = tmp_path / "study.yaml"
    for kind in ("language", "heavy-tails"):
        path.write_text(yaml.safe_dump({**whole_study(tmp_path), "study": kind, **changes}), encoding="utf-8")
        answer(kinds.load, path)


@quick
@given(
    content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
)
def test_any_bytes_as_any_file(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    answer(kinds.load, path)
    answer(read_json, path)
    answer(read_metrics, path)
    for suffix in (".txt", ".jsonl", ".parquet", ".csv"):
        named = path.with_suffix(suffix)
        named.write_bytes(content)
        if suffix == ".csv":
            answer(read_samples, named)
        else:
            answer(lambda file: [len(text) for text in text_files.read(file, "text", "\x1e")], named)
            named.unlink()


@quick
@given(rows=st.lists(st.dictionaries(st.sampled_from(["text", "x"]), anything, max_size=2), max_size=4))
def test_json_lines(tmp_path, rows):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = answer(lambda: list(corpora.load(path)))
    if not isinstance(found, PolyheadError):
        assert found == [row["text"] for row in rows if row["text"].strip()]


def cli(arguments):
    """Exit code, stdout and stderr of one command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = stopped.code or 0
    return code, out.getvalue(), err.getvalue()


words = st.one_of(
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12),
    st.sampled_from(
        [
            "--set",
            "training.steps=5",
            "training.steps=x",
            "--dry-run",
            "--out",
            "/dev/null",
            "--heads",
            "softmax*2",
            "--seed",
            "-1",
            "--jobs",
            "0",
            "studies/mofa-demo.yaml",
            "studies",
            "--text",
            "README.md",
            "--scores",
            "nan",
            "--plot",
            "--replay",
        ]
    ),
)
commands = st.sampled_from(
    ["run", "report", "train", "evaluate", "functions", "data", "bench", "tails", "no", "--debug", ""]
)


@few
@given(command=commands, rest=st.lists(words, max_size=4))
def test_command_lines(tmp_path, monkeypatch, command, rest):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("polyhead.language.archives.fetch", _no_network)
    arguments = [command, *rest]
    if command in ("run", "train") and "--dry-run" not in rest:
        arguments.append("--dry-run")
    if command == "data":
        arguments = [
            command,
            "demo",
            *[word for word in rest if word not in ("default", "extended", "unverified")],
            "x!",
        ]
    if command == "bench":
        arguments = [command, *rest, "--rounds", "x"]
    code, _, err = cli(arguments)
    assert code in (0, 1, 2), err
    assert "Traceback" not in err
    assert "unexpected" not in err
    if code == 2:
        assert err.startswith("polyhead: error: ")
        assert len(err.strip().splitlines()) == 1


def _no_network(*_, **__):
    raise PolyheadError("no network in a test")


OPTIONS = [
    (["run"], "STUDY"),
    (["run", "missing.yaml"], "missing.yaml: got no such file"),
    (["run", "."], ".: got a folder"),
    (["run", "s.yaml", "--jobs", "0"], "--jobs"),
    (["run", "s.yaml", "--jobs", "many"], "--jobs"),
    (["run", "s.yaml", "--engine", "slurm"], "--engine"),
    (["run", "s.yaml", "--set", "training.stepz=3", "--dry-run"], "training.stepz: unknown key"),
    (["run", "s.yaml", "--set", "training.steps", "--dry-run"], "--set: got 'training.steps', expected key=value"),
    (
        ["run", "s.yaml", "--set", "training.steps=many", "--dry-run"],
        "training.steps: got 'many', expected a whole number",
    ),
    (["run", "s.yaml", "--set", "training.steps=-1", "--dry-run"], "training.steps: got -1"),
    (["run", "s.yaml", "--set", "training.warmup_steps=4000000", "--dry-run"], "training.warmup_steps"),
    (["run", "s.yaml", "--set", "heads=[softmaxx]", "--dry-run"], "heads: unknown attention function 'softmaxx'"),
    (["run", "s.yaml", "--set", "seeds=[]", "--dry-run"], "seeds"),
    (["run", "s.yaml", "--set", "study=language-study", "--dry-run"], "study: got 'language-study'"),
    (["report"], "RUN"),
    (["report", "nowhere"], "nowhere: got no study.yaml in it"),
    (["train", "s.yaml", "--heads", "softmaxx", "--dry-run"], "heads: unknown attention function"),
    (["train", "s.yaml", "--seed", "x"], "--seed"),
    (["train", "s.yaml", "--replay", "nowhere"], "no study.yaml in it"),
    (["evaluate", "nowhere", "--text", "a.txt"], "nowhere"),
    (["evaluate", "nowhere"], "--text"),
    (["evaluate", "nowhere", "--text", "a.txt", "--batch-size", "0"], "--batch-size"),
    (["evaluate", "nowhere", "--text", "a.txt", "--protocol", "x"], "--protocol"),
    (["functions", "--scores", "x"], "--scores"),
    (["functions", "--plot", "a.xyz"], "a.xyz"),
    (["functions", "--plot", "/dev/null/a.svg"], "/dev/null/a.svg"),
    (["data"], "data"),
    (["data", "demo", "tweet"], "tweet"),
    (["bench", "attention", "--shape", "1,2"], "--shape"),
    (["bench", "attention", "--shape", "1,2,x,4,causal"], "--shape"),
    (["bench", "attention", "--impl", "nativ"], "--impl: unknown kernel 'nativ'; did you mean 'native'?"),
    (["bench", "attention", "--rounds", "0"], "--rounds"),
    (["bench", "attention", "--dtype", "int8"], "--dtype"),
    (["bench", "energy", "--points", "-5"], "--points"),
    (["bench", "what"], "what"),
    (["surprise"], "surprise"),
]


@pytest.mark.parametrize(("arguments", "line"), OPTIONS, ids=[" ".join(arguments) for arguments, _ in OPTIONS])
def test_every_option_names_what_is_wrong(tmp_path, monkeypatch, arguments, line):
    shutil.copyfile(Path(__file__).parents[2] / "studies" / "mofa-demo.yaml", tmp_path / "s.yaml")
    monkeypatch.chdir(tmp_path)
    code, _, err = cli(arguments)
    assert code == 2
    assert line in err
    assert err.startswith("polyhead: error: ")
    assert len(err.strip().splitlines()) == 1

"""What comes from others (checkpoints, archives, YAML, CSV, names of files) is refused in one line, or is harmless."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import pickle
import re
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from training_example import config, last_checkpoint, run, small_model

from polyhead.errors import PolyheadError
from polyhead.files import read_json, sha256_file
from polyhead.language import text_files, token_files
from polyhead.language.archives import LARGEST_RATIO, ArchiveReader
from polyhead.language.shards import open_tokens
from polyhead.measures.samples import read_samples
from polyhead.studies import kinds
from polyhead.studies.language.config import DataConfig, domain_names
from polyhead.studies.pages import _csv
from polyhead.studies.yaml_file import apply_override, read_yaml
from polyhead.training.checkpoint import Checkpoints, _digest
from polyhead.training.metrics import read_metrics
from polyhead.training.weights import load_best

SOURCE = Path(__file__).parents[2] / "src" / "polyhead"


class Payload:
    """Unpickled, it makes a file."""

    def __reduce__(self):
        return (open, ("pwned", "w"))


def refused(call, *arguments, **options):
    """The one line of the PolyheadError that the call raises."""

    def through():
        result = call(*arguments, **options)
        return list(result) if hasattr(result, "__next__") else result

    with pytest.raises(PolyheadError) as caught:
        through()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 2000
    return line


# ---- nothing is unpickled or evaluated


def test_the_sources_unpickle_and_evaluate_nothing():
    forbidden = re.compile(
        r"\bpickle\.(load|loads|Unpickler)\b|\b(cloudpickle|dill|joblib|shelve|marshal)\b|allow_pickle\s*=\s*True"
        r"|(?<![\w.])(eval|exec)\(|yaml\.(unsafe_load|full_load|FullLoader|UnsafeLoader)|weights_only\s*=\s*False"
        r"|read_pickle|(?<!`)trust_remote_code\s*=\s*True|os\.system\(|shell\s*=\s*True|extractall|\.extract\("
    )
    needs = {"torch.load(": "weights_only=True", "yaml.load(": "Loader=_StrictLoader", "np.load(": "allow_pickle=False"}
    read = 0
    for path in SOURCE.rglob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = forbidden.search(line)
            assert not found, f"{path}:{number}: {line.strip()}"
            for call, guard in needs.items():
                assert call not in line or guard in line, f"{path}:{number}: {call} without {guard}"
            read += 1
    assert read > 5000


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A run of four steps; the working folder is where a payload would leave its mark."""
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "run", stop_at=4)
    return tmp_path / "run"


def rehash(folder, **changes):
    """Make the hashes of a checkpoint right again, as whoever forged it would."""
    content = json.loads((folder / "state.json").read_text())
    del content["sha256"]
    content |= changes
    content["files"] = {name: sha256_file(folder / name) for name in content["files"]}
    (folder / "state.json").write_text(json.dumps({**content, "sha256": _digest(content)}))


def payloads():
    """Pickles in every dress torch.load knows."""
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Payload(), protocol=2))
        file.writestr("archive/version", "3")
        file.writestr("archive/byteorder", sys.byteorder)
    torch_file = io.BytesIO()
    torch.save({"state": {0: {"exp_avg": Payload()}}, "param_groups": []}, torch_file)
    return {"raw": pickle.dumps(Payload(), protocol=2), "zip": zipped.getvalue(), "torch.save": torch_file.getvalue()}


@pytest.mark.parametrize("dress", ["raw", "zip", "torch.save"])
@pytest.mark.parametrize("name", ["optimizer.pt", "model.safetensors"])
def test_a_malicious_checkpoint_is_refused(trained, tmp_path, injected, dress, name):
    with injected("malicious checkpoint"):
        folder = last_checkpoint(trained)
        (folder / name).write_bytes(payloads()[dress])
        rehash(folder)
        line = refused(run, trained)
        assert name in line
        assert not (tmp_path / "pwned").exists()


def test_optimizer_state_of_other_shapes_is_refused(trained, injected):
    with injected("malicious checkpoint"):
        folder = last_checkpoint(trained)
        state = torch.load(folder / "optimizer.pt", weights_only=True)
        state["state"][0]["exp_avg"] = torch.zeros(10_000)
        torch.save(state, folder / "optimizer.pt")
        rehash(folder)
        assert "optimizer.pt" in refused(run, trained)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {}},
        {"files": {"../../../../../../dev/zero": "0" * 64}},
        {"files": {"/dev/zero": "0" * 64}},
        {"step": -1},
        {"step": "4; rm -rf"},
        {"state": []},
        {"state": {"position": {"step": 4}}, "files": None},
        {"format": 99},
    ],
)
def test_a_state_that_points_elsewhere_is_damaged(trained, injected, changes):
    """No file outside is read, and above all none that never ends."""
    with injected("malicious checkpoint"):
        folder = last_checkpoint(trained)
        content = json.loads((folder / "state.json").read_text())
        del content["sha256"]
        content |= changes
        (folder / "state.json").write_text(json.dumps({**content, "sha256": _digest(content)}))
        assert Checkpoints(trained / "checkpoints").newest() is None


@pytest.mark.parametrize("position", [None, [], {"step": 4, "surprise": 1}, "x"])
def test_a_position_of_another_version_is_named(trained, injected, position):
    with injected("malicious checkpoint"):
        rehash(last_checkpoint(trained), state={"position": position})
        assert "position" in refused(run, trained)


def test_best_weights_with_a_forged_header(trained, injected):
    for header in (
        struct.pack("<Q", 2**63) + b"{}",  # a header of 8 exabytes
        struct.pack("<Q", 100) + b"{",
        struct.pack("<Q", 2) + b"{}" + b"x" * 100,
        b"",
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    ):
        with injected("malicious checkpoint"):
            (trained / "best" / "model.safetensors").write_bytes(header)
            assert "best" in refused(load_best, small_model(), trained)


def test_best_weights_of_another_shape_name_or_type(trained, injected):
    own = {name: tensor.clone() for name, tensor in small_model().state_dict().items()}
    metadata = {"polyhead.step": "4", "polyhead.validation_loss": "1.0"}
    for forged in (
        own | {"0.weight": torch.zeros(7)},
        own | {"surprise": torch.zeros(1)},
        own | {"3.bias": own["3.bias"].long()},
        {name: own[name] for name in list(own)[1:]},
    ):
        with injected("malicious checkpoint"):
            save_file(forged, trained / "best" / "model.safetensors", metadata=metadata)
            assert "weights of another model" in refused(load_best, small_model(), trained)


# ---- JSON, metrics, YAML


HOSTILE_JSON = {
    "nested": "[" * 100_000,
    "number": "1" * 10_000,
    "cut": '{"a": ',
    "binary": b"\x00\xff\xfe",
    "two": "{} {}",
    "empty": "",
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_json(tmp_path, injected, name):
    with injected("hostile JSON"):
        content = HOSTILE_JSON[name]
        path = tmp_path / "a.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        assert str(path) in refused(read_json, path)
        (tmp_path / "metrics.jsonl").write_bytes(
            path.read_bytes() + b'\n{"event": "train", "step": 1}\n{"step": "x"}\n7\n'
        )
        assert [event["step"] for event in read_metrics(tmp_path / "metrics.jsonl")] == [1]
    assert str(tmp_path) in refused(read_json, tmp_path)


BOMB = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'lol'}]\n" for i in range(12))
HOSTILE_YAML = {
    "object": "study: !!python/object/apply:os.system ['touch pwned']",
    "name": "study: !!python/name:os.system",
    "module": "!!python/module:os",
    "bomb": BOMB,
    "bomb in a known key": BOMB + "seeds: *a11\nstudy: language\n",
    "itself": "study: &a [*a]",
    "date": "study: 2001-99-99",
    "number": "seeds: [" + "1" * 10_000 + "]",
    "binary": "study: !!binary x",
    "unhashable": "{[1]: 2}",
    "nested": "a: " + "[" * 600,
    "many documents": "a: 1\n---\nb: 2",
    "tabs": "a:\n\t- b",
    "control": "a: \x07",
    "merge": "<<: [1, 2]",
    "long line": "name: " + "x" * 1_000_000,
    "long file": "# x\n" * 1_000_000,
    "repeated": "study: language\nstudy: language",
    "no mapping": "- a",
    "code": "study: __import__('os').system('touch pwned')",
}


@pytest.mark.parametrize("name", HOSTILE_YAML)
def test_hostile_yaml(tmp_path, monkeypatch, injected, name):
    with injected("hostile YAML"):
        monkeypatch.chdir(tmp_path)
        path = tmp_path / "study.yaml"
        path.write_text(HOSTILE_YAML[name])
        refused(kinds.load, path)
        assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("value", ["*a", "!!python/name:os.system", "1" * 10_000, "[" * 600, BOMB, "2001-99-99"])
def test_hostile_overrides(tmp_path, injected, value):
    with injected("hostile YAML"):
        line = refused(apply_override, {}, f"name={value}", ["name"])
        assert line.startswith("--set name")


def test_yaml_that_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "none", tmp_path / "bytes"):
        (tmp_path / "bytes").write_bytes(b"\xff\xfe")
        assert str(path) in refused(read_yaml, path)


# ---- archives


def zipped(members, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize("packed", ["zip", "gzip", "bzip2", "lzma"])
def test_bombs_stop_early(injected, packed):
    """20 million zeros in a few kilobytes: refused by their ratio, long before the limit of size."""
    with injected("archive bomb"):
        zeros = bytes(20_000_000)
        if packed == "gzip":
            reader = ArchiveReader(zipped({"a": gzip.compress(zeros)}, zipfile.ZIP_STORED))
            line = refused(reader.read_gzip, "a")
        elif packed == "bzip2":
            reader = ArchiveReader(zipped({"a": bz2.compress(zeros)}, zipfile.ZIP_STORED))
            line = refused(reader.read_bzip2, "a")
        else:
            method = zipfile.ZIP_DEFLATED if packed == "zip" else zipfile.ZIP_LZMA
            reader = ArchiveReader(zipped({"a": zeros}, method))
            line = refused(reader.read, "a")
        assert f"less than {LARGEST_RATIO} times" in line


def test_archives_that_climb_out_are_refused(injected):
    for name in ("../x", "a/../../x", "/etc/x", "..\\x", "C:\\x", "\\\\host\\x", "a/b/../../../x"):
        with injected("archive that climbs out"):
            assert "inside the archive" in refused(ArchiveReader, zipped({name: b"x"}))


def test_an_archive_of_too_many_members(monkeypatch, injected):
    with injected("archive bomb"):
        monkeypatch.setattr("polyhead.language.archives.MOST_MEMBERS", 10)
        assert "at most 10" in refused(ArchiveReader, zipped({f"m{i}": b"" for i in range(11)}))


def test_a_member_with_a_password(injected):
    with injected("damaged archive"):
        data = bytearray(zipped({"a": b"secret"}))
        for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            data[data.index(signature) + offset] |= 1
        assert "damaged" in refused(ArchiveReader(bytes(data)).read, "a")


def test_any_byte_flipped_in_an_archive_is_an_error_or_nothing(injected):
    whole = zipped({"a": b"text " * 50, "b": gzip.compress(b"more " * 50)})
    for place in range(len(whole)):
        with injected("damaged archive"):
            data = bytearray(whole)
            data[place] ^= 0x41
            try:
                with ArchiveReader(bytes(data)) as reader:
                    for name in reader.names():
                        reader.read(name)
                    reader.read_gzip("b")
            except PolyheadError:
                pass  # any other exception fails the test


# ---- texts and tokens


LONG = "x" * 1_000_000
HOSTILE_TEXTS = {
    "a.jsonl": [
        '{"text": ' + "[" * 100_000,
        '{"text": 1}',
        "[]",
        '{"text": "\\ud800"}',
        '{"other": "x"}',
        "{'text': 1}",
    ],
    "a.txt": [b"\xff\xfe\x00", b"abc\xc3"],
    "a.parquet": [b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"no parquet"],
    "a.pkl": [pickle.dumps(Payload())],
}


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_hostile_texts(tmp_path, monkeypatch, injected, name):
    monkeypatch.chdir(tmp_path)
    for content in HOSTILE_TEXTS[name]:
        with injected("hostile text file"):
            path = tmp_path / name
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            assert str(path) in refused(text_files.read, path, "text", "\x1e")
            assert not (tmp_path / "pwned").exists()


def test_a_line_of_a_million_characters_is_a_document(tmp_path):
    (tmp_path / "a.txt").write_text(LONG)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": LONG}) + "\n")
    assert [len(text) for text in text_files.read(tmp_path, "text", "\x1e")] == [1_000_000] * 2


def test_any_byte_flipped_in_a_token_file_is_an_error_or_other_tokens(tmp_path, injected):
    """What is read is of the vocabulary, and an error names the file: here and in the middle of a training."""
    path = tmp_path / "a.tokens"
    documents = [token_files.EncodedDocument(np.array(ids), 9) for ids in ([1, 2, 3], [4, 5], [])]
    token_files.write(path, documents, tokenizer_hash="h", vocabulary_size=10, end_of_text=0)
    whole, refusals, accepted = path.read_bytes(), 0, 0
    for place in [*range(0, 128), *range(256, len(whole))]:
        with injected("damaged token file"):
            data = bytearray(whole)
            data[place] ^= 0x81
            path.write_bytes(bytes(data))
            try:
                file = token_files.TokenFile(path)
                read = [file.document(number) for number in range(file.documents)]
                assert file.document_bytes is None or (file.document_bytes >= 0).all()
                assert all(0 <= token < file.vocabulary_size for ids in read for token in ids)
            except PolyheadError as error:
                line = str(error)
                refusals += str(path) in line and "\n" not in line
            else:
                accepted += 1
    assert refusals + accepted == 128 + len(whole) - 256, "every error is one line that names the file"
    assert refusals > 60, "most of header, ids and index"


@pytest.mark.parametrize("end", [0, 3, 8, 2**63, 2**64 - 1])
def test_a_damaged_index_of_a_token_file_names_it(tmp_path, injected, end):
    """Ends out of order, beyond the file, or beyond what a signed number holds."""
    with injected("damaged token file"):
        path = tmp_path / "a.tokens"
        token_files.write(path, [[1, 2, 3], [4, 5]], tokenizer_hash="h", vocabulary_size=10, end_of_text=0)
        data = bytearray(path.read_bytes())
        data[-16:-8] = struct.pack("<Q", end)
        path.write_bytes(bytes(data))
        line = refused(token_files.TokenFile(path).document, 1)
        assert line.startswith(f"{path}: got document 1 from token 4 to {end} (damaged?)")
        assert line.endswith("delete it and tokenise again")


@pytest.mark.parametrize("index", ["[]", "3", "null", '{"shards": 3}', '{"shards": [{}]}', '{"shards": [7]}', "{"])
def test_a_damaged_index_of_shards_names_it(tmp_path, injected, index):
    with injected("damaged token file"):
        (tmp_path / "shards.json").write_text(index)
        assert str(tmp_path / "shards.json") in refused(open_tokens, tmp_path)


# ---- what the report shows


EVIL = [
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "' onload='x",
    LONG[:5000],
    "{{ 7*7 }}",
]


@pytest.mark.parametrize("name", EVIL)
def test_a_table_holds_no_formula(name, injected):
    with injected("hostile name in a table"):
        text = _csv(pd.DataFrame({name: [name, "plain"], "number": [-1.5, 2.0]}))
        read = pd.read_csv(io.StringIO(text))
        for cell in (read.columns[0], read.iloc[0, 0]):
            assert cell.endswith(name)
            assert not cell.startswith(("=", "+", "-", "@"))
        assert read["number"].tolist() == [-1.5, 2.0], "negative numbers stay numbers"


def test_config_values_are_never_evaluated(injected):
    with injected("hostile YAML"):
        code = "__import__('os').abort()"
        for change in ({"steps": code}, {"learning_rate": code}, {"betas": code}, {"precision": code}):
            with pytest.raises(PolyheadError):
                config(**change)


def test_a_document_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch, injected):
    monkeypatch.setattr(text_files, "LARGEST_DOCUMENT", 1000)
    for name, content in (
        ("lines.txt", "a line\n" * 200),
        ("line.txt", "x" * 1001),
        ("a.jsonl", '{"text": "' + "x" * 1001),
    ):
        with injected("hostile text file"):
            (tmp_path / name).write_text(content)
            line = refused(text_files.read, tmp_path / name, "text", "\x1e")
            assert name in line
            assert "part it" in line
    (tmp_path / "good.txt").write_text(("a line\n" * 100 + "\x1e\n") * 20)
    assert len(list(text_files.read(tmp_path / "good.txt", "text", "\x1e"))) == 20


@pytest.mark.parametrize(
    "name", ["../up", "..", "a/b", "<script>", "=cmd", "-x", "", "a\nb", "a\0b", "é", "'; drop", "x" * 300, "{{ 7*7 }}"]
)
def test_a_hostile_domain_name_is_refused(name, injected):
    """It names files and columns: letters, digits and a little more, and never the way out of a folder."""
    with injected("hostile domain name"):
        assert "data.domains" in refused(domain_names, DataConfig(corpus="demo:speeches", domains=(f"{name}=texts/",)))


HOSTILE_CSV = {
    "long line": "x\n" + "1" * 1_000_000,
    "long cell": "x\n" + "1\n" * 60 + "9" * 999 + "e" + "9" * 99 + "\n",
    "formula": "x\n" + "1\n2\n" * 60 + "=cmd|' /C calc'!A0\n",
    "formula as a name": "=1+1\n" + "1\n2\n" * 60,
    "html": "x\n" + "1\n2\n" * 60 + "<script>alert(1)</script>\n",
    "open quote": 'x\n"' + "1\n" * 60_000,
    "zeros": "\0" * 10_000,
    "many columns": ",".join("1" * 50_000),
    "nan": "x\n" + "1\n2\n" * 60 + "nan\n",
}


@pytest.mark.parametrize("name", HOSTILE_CSV)
def test_hostile_samples(tmp_path, injected, name):
    with injected("hostile CSV"):
        path = tmp_path / "a.csv"
        path.write_text(HOSTILE_CSV[name])
        assert str(path) in refused(read_samples, path)

import time
import uuid

import fsspec
import pytest

from polyhead.errors import PolyheadError
from polyhead.studies.storage import Storage


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return f"file://{tmp_path}/there" if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(url):
    fs, root = fsspec.core.url_to_fs(url)
    return sorted(path[len(root) :].lstrip("/") for path in fs.find(root)) if fs.exists(root) else []


def test_what_is_sent_can_be_fetched_elsewhere(tmp_path, url):
    write(tmp_path / "a", study="s", data__tokens="t" * 1000, cells__one__result="r")
    Storage(url).push(tmp_path / "a")
    Storage(url).pull(tmp_path / "b")
    for name in ("study", "data/tokens", "cells/one/result"):
        assert (tmp_path / "b" / name).read_text() == (tmp_path / "a" / name).read_text()


def test_folders_may_be_left_out_in_both_directions(tmp_path, url):
    write(tmp_path / "a", study="s", cells__one__checkpoints__x="c", cells__one__result="r", report__page="p")
    Storage(url).push(tmp_path / "a", skip=("report",))
    assert names(url) == ["cells/one/checkpoints/x", "cells/one/result", "study"]
    Storage(url).pull(tmp_path / "b", "cells", skip=("checkpoints",))
    assert [p.name for p in (tmp_path / "b").rglob("*") if p.is_file()] == ["result"]


def test_only_what_changed_is_sent_and_what_went_is_removed(tmp_path, url, monkeypatch):
    write(tmp_path, cell__a="1", cell__b="1", other="1")
    storage, sent = Storage(url), []
    whole = Storage._send
    monkeypatch.setattr(Storage, "_send", lambda self, path, name: (sent.append(name), whole(self, path, name)))
    storage.push(tmp_path, "cell")
    write(tmp_path, cell__b="22")
    (tmp_path / "cell" / "a").unlink()
    storage.push(tmp_path, "cell")
    assert sent == ["cell/a", "cell/b", "cell/b"]
    assert names(url) == ["cell/a", "cell/b"]
    storage.push(tmp_path, "cell", remove=True)
    assert names(url) == ["cell/b"]


def test_what_vouches_for_other_files_is_sent_after_them(tmp_path, url, monkeypatch):
    sent = []
    monkeypatch.setattr(Storage, "_send", lambda self, path, name: sent.append(name))
    write(tmp_path, **{"c__result.json": "r", "c__step-1__state.json": "s", "c__step-1__weights": "w", "c__z": "z"})
    Storage(url).push(tmp_path)
    assert sent == ["c/step-1/weights", "c/z", "c/result.json", "c/step-1/state.json"]


def test_hidden_files_such_as_locks_stay(tmp_path, url):
    write(tmp_path, **{"c__.lock": "1", "c__a": "2"})
    Storage(url).push(tmp_path)
    assert names(url) == ["c/a"]


def test_files_that_never_change_are_fetched_once(tmp_path, url, monkeypatch):
    write(tmp_path / "a", data__tokens="1234")
    Storage(url).push(tmp_path / "a")
    write(tmp_path / "b", data__tokens="5678")
    Storage(url).pull(tmp_path / "b", "data", once=True)
    assert (tmp_path / "b" / "data" / "tokens").read_text() == "5678"
    Storage(url).pull(tmp_path / "b", "data")
    assert (tmp_path / "b" / "data" / "tokens").read_text() == "1234"


def test_it_is_kept_up_while_a_cell_works_and_at_its_end(tmp_path, url):
    write(tmp_path, c__a="1")
    with Storage(url).kept_up(tmp_path, "c", every=0.01):
        deadline = time.monotonic() + 20
        while names(url) != ["c/a"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert names(url) == ["c/a"]
        write(tmp_path, c__b="2")
    assert names(url) == ["c/a", "c/b"]


def test_a_place_that_fails_is_tried_again_and_an_error_at_the_end(tmp_path, url, monkeypatch):
    tried = []

    def refuse(self, path, name):
        tried.append(name)
        raise PermissionError("no")

    monkeypatch.setattr(Storage, "_send", refuse)
    write(tmp_path, c__a="1")

    def work():
        with Storage(url).kept_up(tmp_path, "c", every=0.01):
            deadline = time.monotonic() + 20
            while len(tried) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)

    with pytest.raises(PolyheadError, match="PermissionError: no"):
        work()
    assert len(tried) >= 3


def test_a_place_with_other_files_is_refused(tmp_path, url):
    storage = Storage(url)
    assert storage.check_empty_or("study.yaml") is False
    write(tmp_path, holiday="photo")
    storage.push(tmp_path)
    with pytest.raises(PolyheadError, match="which holds other files"):
        storage.check_empty_or("study.yaml")
    write(tmp_path, **{"study.yaml": "s"})
    storage.push(tmp_path)
    assert storage.check_empty_or("study.yaml") is True


def test_an_unknown_protocol_is_named():
    with pytest.raises(PolyheadError, match=r"--storage: got nosuch://x"):
        Storage("nosuch://x")

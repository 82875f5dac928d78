import json
import logging
import pickle
import resource
import shutil

import pytest
import torch
from safetensors.torch import load_file
from training_example import assert_same_run, config, gpt2, last_checkpoint, run, small_model

from polyhead.errors import PolyheadError
from polyhead.files import sha256_file
from polyhead.training.checkpoint import Checkpoints, _digest
from polyhead.training.weights import load_weights, save_weights, weights_sha256

FILES = ("model.safetensors", "optimizer.pt", "state.json")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def steps(folder):
    return sorted(int(p.name.removeprefix("step-")) for p in (folder / "checkpoints").glob("step-*"))


def test_the_last_two_are_kept_and_nothing_else(tmp_path):
    run(tmp_path, config(checkpoint_every=2))
    assert steps(tmp_path) == [8, 10]
    assert sorted(p.name for p in last_checkpoint(tmp_path).iterdir()) == sorted(FILES)
    assert not list((tmp_path / "checkpoints").glob(".*"))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [flip, cut, lambda path: path.unlink()])
def test_a_damaged_checkpoint_is_passed_over_with_one_warning(tmp_path, caplog, name, damage):
    run(tmp_path / "whole")
    run(tmp_path / "parts", stop_at=8)
    damage(tmp_path / "parts" / "checkpoints" / "step-00000008" / name)
    with caplog.at_level(logging.WARNING, "polyhead"):
        result = run(tmp_path / "parts")
    assert result.resumed_from == 4
    (warning,) = caplog.messages
    assert "step-00000008" in warning
    assert "step-00000004" in warning
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert steps(tmp_path / "parts") == [8, 10]


def test_half_written_checkpoints_count_for_nothing_and_go(tmp_path, caplog):
    run(tmp_path, stop_at=4)
    checkpoints = tmp_path / "checkpoints"
    shutil.copytree(checkpoints / "step-00000004", checkpoints / ".step-00000008.part")
    (checkpoints / ".step-00000008.part" / "state.json").unlink()
    assert run(tmp_path).resumed_from == 4
    assert not caplog.messages
    assert not list(checkpoints.glob(".*"))


def test_without_any_whole_checkpoint_the_run_starts_again(tmp_path, caplog):
    run(tmp_path / "whole")
    run(tmp_path / "parts", stop_at=4)
    flip(last_checkpoint(tmp_path / "parts") / "model.safetensors")
    with caplog.at_level(logging.WARNING, "polyhead"):
        assert run(tmp_path / "parts").resumed_from == 0
    assert "starts again at step 0" in caplog.text
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_failed_write_leaves_the_earlier_checkpoint(tmp_path, monkeypatch):
    run(tmp_path, stop_at=4)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", full)
        with pytest.raises(PolyheadError, match=r"step-00000008: got No space left on device.*run again"):
            run(tmp_path)
    assert steps(tmp_path) == [4]
    assert not list((tmp_path / "checkpoints").glob(".*"))
    assert run(tmp_path).resumed_from == 4


class Payload:
    def __reduce__(self):
        return (open, ("pwned", "w"))


def test_a_disk_that_is_full_is_said_whatever_library_finds_out(tmp_path):
    """A limit on the size of a file stands for the full disk: one holds no weights, the other no optimiser state."""
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters())
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    try:
        for limit in (size // 2, size + size // 2):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            with pytest.raises(PolyheadError, match=r"step-00000001: got .*make room there"):
                Checkpoints(tmp_path).write(1, model, optimizer, {})
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert list(tmp_path.iterdir()) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nothing_is_unpickled_from_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(tmp_path, stop_at=4)
    folder = last_checkpoint(tmp_path)
    (folder / "optimizer.pt").write_bytes(pickle.dumps(Payload(), protocol=2))
    content = json.loads((folder / "state.json").read_text())
    del content["sha256"]
    content["files"]["optimizer.pt"] = sha256_file(folder / "optimizer.pt")
    (folder / "state.json").write_text(json.dumps({**content, "sha256": _digest(content)}))
    found = Checkpoints(tmp_path / "checkpoints").newest()  # the hashes are right
    with pytest.raises(PolyheadError, match=r"optimizer\.pt: got no optimiser state \(Weights only load failed\)"):
        found.restore(small_model(), torch.optim.AdamW(small_model().parameters()))
    assert not (tmp_path / "pwned").exists()


def test_tied_weights_are_stored_once_and_load_tied(tmp_path):
    save_weights(gpt2(), tmp_path / "w.safetensors")
    stored = load_file(tmp_path / "w.safetensors")
    assert "transformer.wte.weight" in stored
    assert "lm_head.weight" not in stored
    other = gpt2(seed=3)
    load_weights(other, tmp_path / "w.safetensors")
    assert weights_sha256(other) == weights_sha256(gpt2())
    assert other.lm_head.weight.data_ptr() == other.transformer.wte.weight.data_ptr()


def test_views_of_one_memory_are_stored_apart(tmp_path):
    class Views(torch.nn.Module):
        def __init__(self, fill):
            super().__init__()
            shared = torch.full((4,), fill)
            self.register_buffer("whole", shared)
            self.register_buffer("part", shared[1:3])

    save_weights(Views(2.0), tmp_path / "w.safetensors")
    model = Views(0.0)
    load_weights(model, tmp_path / "w.safetensors")
    assert model.whole.tolist() == [2.0] * 4


@pytest.mark.parametrize(
    "other", [torch.nn.Linear(16, 32), torch.nn.Sequential(*list(small_model())[:3], torch.nn.Linear(16, 33))]
)
def test_weights_of_another_model_are_named(tmp_path, other):
    save_weights(small_model(), tmp_path / "w.safetensors")
    with pytest.raises(PolyheadError, match="weights of another model"):
        load_weights(other, tmp_path / "w.safetensors")
    with pytest.raises(PolyheadError, match="unreadable weights"):
        load_weights(other, tmp_path / "none.safetensors")


def test_the_hash_sees_names_shapes_and_every_bit():
    reference = weights_sha256(small_model())
    assert weights_sha256(small_model()) == reference
    changed = small_model()
    with torch.no_grad():
        changed[0].weight[3, 5] += 1e-6
    assert weights_sha256(changed) != reference
    assert weights_sha256(torch.nn.ModuleDict({"x": small_model()})) != reference
    assert weights_sha256(small_model().bfloat16()) != reference

"""A run that is killed, starved of room or told to stop, at every point where it writes, ends as if it had not been."""

from __future__ import annotations

import functools
import random
import shutil
import subprocess
import time
from pathlib import Path

import children
import pytest
import scenarios
from training_example import assert_same_run, events, last_checkpoint

from polyhead.training.weights import best_weights


def files(folder):
    """Every file of a run, relative; hidden ones too, the lock excepted."""
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file() and p.name != ".lock")


def finish(folder):
    """Start the run again, undisturbed this time."""
    outcome = children.run("train", folder)
    assert (outcome.code, outcome.error) == (0, None), outcome.said
    return outcome


def assert_as_undisturbed(folder, reference):
    assert_same_run(folder, reference)
    assert events(folder) == events(reference)
    assert files(folder) == files(reference), "no leftovers, nothing missing"


@pytest.fixture(scope="session")
def reference(shared_path):
    folder = shared_path / "run"
    outcome = children.run("train", folder)
    assert (outcome.code, outcome.error) == (0, None), outcome.said
    return folder, outcome.points


def points(reference, every, first=1):
    return range(first, len(reference[1]) + 1, every)


def test_the_points_are_those_that_matter(reference):
    folder, seen = reference
    for needed in (
        "mkdir checkpoints/.step-00000002.part",
        "save_file checkpoints/.step-00000002.part/model.safetensors",
        "torch.save checkpoints/.step-00000002.part/optimizer.pt",
        "fsync checkpoints/.step-00000002.part/optimizer.pt",
        "rename checkpoints/.step-00000002.part/state.json",
        "rename checkpoints/step-00000004",
        "write metrics.jsonl",
        "rename training.json",
        "rename best/model.safetensors",
        "open .lock",
        "rename best/config.json",
    ):
        # a rename is noted under the name it gives
        assert needed in seen, f"{needed} is not among {seen}"
    assert len(seen) > 60
    assert (folder / "best" / "config.json").exists()


def killed_at(folder, at):
    outcome = children.run("train", folder, "kill", at)
    assert outcome.code == -9
    assert len(outcome.points) == at


def kill_everywhere(reference, tmp_path, injected, every, first=1):
    for at in points(reference, every, first):
        with injected("training killed (SIGKILL) at a write point"):
            folder = tmp_path / f"at{at}"
            killed_at(folder, at)
            assert "WARNING" not in finish(folder).said, "a kill damages nothing, so there is nothing to warn of"
            assert_as_undisturbed(folder, reference[0])


def test_killed_at_write_points(reference, tmp_path, injected):
    kill_everywhere(reference, tmp_path, injected, every=8)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2, 9))
def test_killed_at_every_write_point(reference, tmp_path, injected, first):
    kill_everywhere(reference, tmp_path, injected, every=8, first=first)


def test_killed_again_and_again(reference, tmp_path, injected):
    """Every start is killed a few points further on, until one ends."""
    folder = tmp_path / "run"
    for number in range(60):
        with injected("training killed over and over"):
            outcome = children.run("train", folder, "kill", 23 + 5 * number)
        if outcome.code == 0:
            break
        assert outcome.code == -9
    assert number > 3
    assert_as_undisturbed(folder, reference[0])


def full_everywhere(reference, tmp_path, injected, every, first=1):
    for at in points(reference, every, first):
        with injected("disk full (ENOSPC) at a write point of training"):
            folder = tmp_path / f"at{at}"
            outcome = children.run("train", folder, "full", at)
            if outcome.error is not None:  # the last points need no room
                assert outcome.error in ("PolyheadError", "StorageError"), outcome.said
                assert "\n" not in outcome.message
                assert str(folder) in outcome.message
                assert "No space left" in outcome.message or "unexpected pos" in outcome.message
                assert "make room there and run again" in outcome.message
            left = files(folder) if folder.exists() else []
            assert not [name for name in left if name.endswith(".part")], "a full disk is not filled with leftovers"
            finish(folder)
            assert_as_undisturbed(folder, reference[0])


def test_disk_full_at_write_points(reference, tmp_path, injected):
    full_everywhere(reference, tmp_path, injected, every=8, first=3)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2, 4, 5, 6, 7, 8])
def test_disk_full_at_every_write_point(reference, tmp_path, injected, first):
    full_everywhere(reference, tmp_path, injected, every=8, first=first)


@pytest.mark.parametrize("signal", ["terminate", "interrupt"])
def test_told_to_stop_while_writing(reference, tmp_path, injected, signal):
    """The signal comes in the middle of a checkpoint: it is finished first, and another start goes on."""
    during = [n for n, what in enumerate(reference[1], 1) if "step-00000002.part" in what]
    for at in during[:: max(1, len(during) // 4)]:
        with injected(f"training told to stop ({signal}) while it writes"):
            folder = tmp_path / f"{signal}{at}"
            outcome = children.run("train", folder, signal, at)
            assert outcome.error == "Interrupted", outcome.said
            assert "run the same command again to go on" in outcome.message
            assert str(last_checkpoint(folder)) in outcome.message
            finish(folder)
            assert_as_undisturbed(folder, reference[0])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 4
    path.write_bytes(bytes(content))


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def empty(path):
    path.write_bytes(b"")


def swap(path):
    """Another file of the right kind: the older checkpoint's."""
    shutil.copyfile(path.parent.parent / "step-00000002" / path.name, path)


DAMAGES = {"flipped": flip, "truncated": cut, "emptied": empty, "missing": Path.unlink, "exchanged": swap}


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "state.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint(reference, tmp_path, injected, name, damage):
    with injected(f"checkpoint {damage}"):
        folder = tmp_path / "run"
        assert children.run("train", folder, "kill", len(reference[1])).code == -9
        newest = last_checkpoint(folder)
        assert newest.name == "step-00000004"
        DAMAGES[damage](newest / name)
        said = finish(folder).said
        warnings = [line for line in said.splitlines() if line.startswith("WARNING")]
        assert len(warnings) == 1
        assert str(newest) in warnings[0]
        assert f"used instead: {newest.parent / 'step-00000002'}" in warnings[0]
        assert_as_undisturbed(folder, reference[0])


@pytest.mark.parametrize("damage", ["flipped", "truncated", "emptied", "missing"])
def test_damaged_best_weights(reference, tmp_path, injected, damage):
    """They are made again: from the checkpoint of that step, or by starting again; never left as they are."""
    with injected("best weights damaged or missing"):
        folder = tmp_path / "run"
        shutil.copytree(reference[0], folder)
        DAMAGES[damage](folder / "best" / "model.safetensors")
        said = finish(folder).said
        assert "best weights missing or damaged" in said
        assert best_weights(folder) is not None
        assert_as_undisturbed(folder, reference[0])


@pytest.mark.parametrize("damage", ["flipped", "truncated", "emptied", "missing"])
@pytest.mark.parametrize("name", ["training.json", "metrics.jsonl"])
def test_damaged_records(reference, tmp_path, injected, name, damage):
    """Metrics are said to be damaged or are rewritten; a run whose identity is gone is not guessed at."""
    with injected(f"{name} damaged or missing"):
        folder = tmp_path / "run"
        assert children.run("train", folder, "kill", len(reference[1])).code == -9
        DAMAGES[damage](folder / name)
        outcome = children.run("train", folder)
        if name == "training.json":
            assert outcome.error == "PolyheadError", outcome.said
            assert str(folder) in outcome.message
            assert last_checkpoint(folder).name == "step-00000004", "nothing was thrown away"
        else:
            assert outcome.code == 0, outcome.said
            assert_same_weights(folder, reference[0])
            # a last line that is cut is what any killed process leaves, and comes again
            assert ("metrics damaged or missing" in outcome.said) == (damage in ("flipped", "emptied", "missing"))


def assert_same_weights(folder, other):
    for name in ("model.safetensors", "optimizer.pt"):
        assert (last_checkpoint(folder) / name).read_bytes() == (last_checkpoint(other) / name).read_bytes()


def test_a_checkpoint_that_is_less_frequent_than_validation(tmp_path, injected):
    """Best weights of steps that must be done again are no reason to call an earlier validation worse."""
    run = functools.partial(children.run, "train", checkpoint_every=4, steps=8)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    seen = run(whole).points
    last = max(n for n, what in enumerate(seen, 1) if what == "write metrics.jsonl")
    for at in (last - 40, last - 20, last):
        with injected("training killed (SIGKILL) at a write point"):
            shutil.rmtree(parts, ignore_errors=True)
            assert run(parts, fault="kill", at=at).code == -9
            assert run(parts).code == 0
            assert_as_undisturbed(parts, whole)


def test_a_read_only_folder_is_named(tmp_path, injected):
    for existing in (False, True):
        with injected("read-only run folder"):
            folder = tmp_path / f"run{existing}"
            if existing:
                assert children.run("train", folder, steps=3).code == 0
            before = files(folder) if existing else []
            outcome = children.run("train", folder, "readonly", 1)
            assert outcome.error == "StorageError", outcome.said
            assert "Read-only file system" in outcome.message
            assert str(folder) in outcome.message
            assert (files(folder) if existing else []) == before


def test_the_wall_clock_may_jump(reference, tmp_path, injected):
    with injected("wall clock that jumps"):
        outcome = children.run("jumping_clock", tmp_path / "run")
        assert outcome.code == 0, outcome.said
        assert_as_undisturbed(tmp_path / "run", reference[0])
        assert all(0 <= event["seconds"] < 600 for event in events(tmp_path / "run", times=True) if "seconds" in event)


def test_a_second_process_names_the_first_and_takes_over_from_the_dead(reference, tmp_path, injected):
    folder = tmp_path / "run"
    holder = children.CONTEXT.Process(target=scenarios.hold, args=(str(folder),))
    children.start_server()
    holder.start()
    try:
        deadline = time.monotonic() + 60
        while not (folder / "held").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        with injected("second process on the same run"):
            outcome = children.run("train", folder)
            assert outcome.error == "PolyheadError", outcome.said
            assert f"a folder where process {holder.pid} trains" in outcome.message
    finally:
        holder.kill()
        holder.join()
    (folder / "held").unlink()
    with injected("lock of a dead process"):
        assert (folder / ".lock").read_text() == f"{holder.pid}\n"
        finish(folder)
        assert_as_undisturbed(folder, reference[0])


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path, injected):
    """From outside, at moments that no write point names; up to forty kills for one run."""
    assert children.run("train", tmp_path / "whole", steps=60).code == 0
    draw, folder, kills = random.Random(7), tmp_path / "run", 0
    for _ in range(40):
        children.start_server()
        process = children.CONTEXT.Process(
            target=scenarios.train, args=(str(folder),), kwargs={"steps": 60, "pause": 0.005}
        )
        process.start()
        process.join(draw.uniform(0.05, 0.3))
        if process.exitcode is not None:
            break
        with injected("training killed (SIGKILL) at a random moment"):
            process.kill()
            process.join()
        kills += 1
    assert kills > 2
    assert children.run("train", folder, steps=60).code == 0
    assert_as_undisturbed(folder, tmp_path / "whole")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few kilobytes, and the means to make it larger."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"file systems cannot be mounted here: {made.stderr.strip()}")

    def resize(size):
        subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)

    yield place, resize
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_really_full(reference, small_disk, tmp_path, injected):
    """No shim: the kernel says there is no room, to Python, to safetensors and to torch alike."""
    place, resize = small_disk
    folder, ended = place / "run", False
    for kilobytes in range(16, 80, 4):
        resize(f"{kilobytes}k")
        outcome = children.run("train", folder, notes=tmp_path / "notes")
        if ended := outcome.code == 0:
            break
        with injected("disk full (a small tmpfs)"):
            assert outcome.error in ("PolyheadError", "StorageError"), outcome.said
            assert "make room there and run again" in outcome.message
    resize("10m")
    if not ended:
        finish(folder)
    assert_as_undisturbed(folder, reference[0])

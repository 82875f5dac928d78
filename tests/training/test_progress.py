import io
import re

from rich.console import Console
from training_example import run

from polyhead.training.progress import Silent, TrainingProgress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def plain(**options):
    text = io.StringIO()
    return text, TrainingProgress(Console(file=text, width=60), **options)


def test_without_a_terminal_a_line_now_and_then():
    clock = Clock()
    text, progress = plain(plain_every=10, clock=clock)
    progress.begin("9:3 [seed 42]", 100, 0)
    for done in range(1, 101):
        clock.now += 1
        progress.update(done, 5.0 - done / 100, 12_345.0)
    progress.end()
    lines = text.getvalue().splitlines()
    assert lines[0] == "9:3 [seed 42]: step 0/100"
    assert lines[1] == "9:3 [seed 42]: step 10/100  loss 4.9000  12,345 tokens/s  1:30 left"
    assert lines[-1] == "9:3 [seed 42]: step 100/100  loss 4.0000  12,345 tokens/s"
    assert len(lines) == 11


def test_a_resumed_run_counts_time_from_where_it_began():
    clock = Clock()
    text, progress = plain(plain_every=1, clock=clock)
    progress.begin("", 4000, 1000)
    clock.now = 100.0
    progress.update(1010, 1.0, 1.0)
    assert text.getvalue().splitlines()[1].endswith("8:18:20 left")  # 2990 steps at 10 seconds


def test_on_a_terminal_a_bar_with_the_numbers_for_one_run_after_another():
    text, clock = io.StringIO(), Clock()
    progress = TrainingProgress(Console(file=text, force_terminal=True, width=120), clock=clock)
    for name in ("first", "second"):
        progress.begin(name, 10, 0)
        clock.now += 1
        progress.update(5, 1.25, 2000.0)
        progress.note("step 5: validation loss 1.3000")
        progress.update(10, 1.0, 2000.0)
        progress.end()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue())
    for name in ("first", "second"):
        assert f"{name}: step 5: validation loss 1.3000" in shown
        assert re.search(rf"{name} .*10/10 loss 1.0000  2,000 tokens/s", shown)


def test_the_loop_tells_the_display(tmp_path, capsys):
    text, progress = plain(plain_every=0)
    run(tmp_path / "a", description="a", progress=progress)
    lines = text.getvalue().splitlines()
    assert sum("tokens/s" in line for line in lines) == 10
    assert sum("validation loss" in line for line in lines) == 3
    run(tmp_path / "b", progress=Silent())
    run(tmp_path / "c")
    assert capsys.readouterr() == ("", "")

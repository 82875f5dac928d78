import pytest
from training_example import config

from polyhead.training.schedule import learning_rate


def test_warm_up_peak_and_end():
    settings = config(steps=100, warmup_steps=10, learning_rate=2.0, final_learning_rate=0.1)
    rates = [learning_rate(step, settings) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (i + 1) for i in range(10)])
    assert rates[10] == 2.0
    assert rates[99] == pytest.approx(0.2)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert learning_rate(10 + 89 // 2, settings) == pytest.approx(1.1, abs=0.02)  # half-way down the cosine


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (2, 1), (2, 0)])
def test_runs_of_one_or_two_steps(steps, warmup):
    settings = config(steps=steps, warmup_steps=warmup, learning_rate=1.0, final_learning_rate=0.0)
    assert learning_rate(0, settings) == 1.0
    assert learning_rate(steps - 1, settings) == (0.0 if steps - warmup == 2 else 1.0)

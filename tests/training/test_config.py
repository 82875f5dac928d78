import subprocess
import sys

import pytest

from polyhead.config import from_mapping, to_mapping
from polyhead.errors import PolyheadError
from polyhead.training import TrainingConfig


def test_it_comes_from_a_mapping_and_goes_back():
    config = from_mapping(
        TrainingConfig, {"steps": 3000, "batch_size": 4, "learning_rate": "3e-4", "betas": [0.9, 0.99]}
    )
    assert (config.learning_rate, config.betas, config.clip, config.warmup_steps) == (3e-4, (0.9, 0.99), 1.0, 2000)
    assert from_mapping(TrainingConfig, to_mapping(config)) == config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("steps", 2.5),
        ("steps", True),
        ("batch_size", 0),
        ("accumulation", -1),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("final_learning_rate", 1.5),
        ("warmup_steps", -1),
        ("warmup_steps", 3000),
        ("betas", (0.9,)),
        ("betas", (0.9, 1.0)),
        ("weight_decay", -0.1),
        ("clip", 0.0),
        ("validation_every", 0),
        ("checkpoint_every", 0),
        ("log_every", 0),
        ("precision", "fp16"),
        ("trackers", "tensorboard"),
    ],
)
def test_a_value_out_of_range_names_its_field(field, value):
    with pytest.raises(PolyheadError, match=rf"^{field}: got .*expected"):
        TrainingConfig(**{"steps": 3000, "batch_size": 4, field: value})


def test_unknown_keys_name_the_nearest():
    with pytest.raises(PolyheadError, match="did you mean 'learning_rate'"):
        from_mapping(TrainingConfig, {"steps": 3000, "batch_size": 4, "learning_rat": 1.0})


def test_reading_a_configuration_does_not_import_torch():
    code = "import sys; from polyhead.training import TrainingConfig; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""A choice of heads in any model's config, and on disk: saved, it loads as what it is or not at all.

`polyhead.huggingface.use` turns a model's config into an instance of a subclass made here: it keeps the class's name,
which is how transformers' Auto classes find the model class, and its model type, by which tools such as PEFT know the
model. In config.json the whole config stands one level down, below the model type "polyhead".
"""

from __future__ import annotations

import functools
import json
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

from polyhead.errors import PolyheadError
from polyhead.files import write_text
from polyhead.huggingface.chosen import NAME, GuardsHeads, note

__all__ = ["PolyheadConfig", "WithHeads", "config_class"]

MODEL_TYPE = "polyhead"
_COUNT = "num_hidden_layers"


class WithHeads(GuardsHeads):
    """In front of a config class of transformers: `heads`, guarded, and saved so that they travel with the weights."""

    def to_json_file(self, json_file_path: Any, use_diff: bool = True) -> None:
        """Write config.json, so that no class of transformers runs the weights as softmax.

        The Auto classes stop at the unknown model type; a named class at the text where the number of layers should be.
        """
        fields = json.loads(self.to_json_string(use_diff))  # type: ignore[attr-defined]
        model_type = fields.pop("model_type")  # where it stood, a class of transformers would find its own fields
        saved = {
            "model_type": MODEL_TYPE,
            "base_model_type": model_type,
            "heads": fields.pop("heads"),
            "architectures": fields.get("architectures"),
            "attn_implementation": NAME,
            self.attribute_map.get(_COUNT, _COUNT): note(model_type),  # type: ignore[attr-defined]
            "model": fields,
        }
        write_text(json_file_path, json.dumps(saved, indent=2) + "\n")

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickled and copied by way of the class of transformers, as the subclass has no place to be imported from."""
        return _remake, (type(self).__bases__[1], self.__dict__.copy())


class PolyheadConfig:
    """What transformers finds under the model type "polyhead": makes the config of the model it is a choice for."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """The config that `WithHeads.to_json_file` wrote; with ``return_unused_kwargs=True`` a pair."""
        fields = config_dict.get("model")
        if not isinstance(fields, dict) or "base_model_type" not in config_dict or "heads" not in config_dict:
            raise PolyheadError.of("config.json", sorted(config_dict), "what save_pretrained of a polyhead model wrote")
        model_type = config_dict["base_model_type"]
        if model_type not in CONFIG_MAPPING:
            raise PolyheadError.of(
                "base_model_type", repr(model_type), "a model type of the transformers installed here"
            )
        made: Any = config_class(CONFIG_MAPPING[model_type])
        found = made.from_dict({**fields, "heads": config_dict["heads"]}, **kwargs)
        (found[0] if isinstance(found, tuple) else found).check()
        return found

    @classmethod
    def from_pretrained(cls, folder: Any, **kwargs: Any) -> Any:
        """The config of a saved model."""
        config_dict, kwargs = PreTrainedConfig.get_config_dict(folder, **kwargs)
        return cls.from_dict(config_dict, **kwargs)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Nothing to do: asked for of a class that a folder's own code names."""


@functools.cache
def config_class(base: Any) -> Any:
    """The subclass of a config class of transformers that has heads; itself, where it is one."""
    if issubclass(base, WithHeads):
        return base
    names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (WithHeads, base), names)


def _remake(base: Any, state: dict[str, Any]) -> Any:
    made = config_class(base)
    config = object.__new__(made)
    config.__dict__.update(state)
    return config


CONFIG_MAPPING.register(MODEL_TYPE, PolyheadConfig, exist_ok=True)

"""One configuration: a choice for every knob."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from te_lite.errors import RecordError, require

from .axis import VirtualAxis, virtual_axis
from .errors import InstantiationError, TemplateError
from .knob import Entity, KnobSpace, entity_from_json, knob_numbers

MOST_KNOBS = 256


class HasKnobs(Protocol):
    """The space of a configuration, as far as the configuration needs it."""

    @property
    def space_map(self) -> Mapping[str, KnobSpace]:
        """The knobs by name."""


class ConfigEntity:
    """`index` names the configuration in its space (None when it was read from a record of a space that is unknown
    here); `config["tile_x"]` is the choice of a knob.

    A template that runs with it may call `define_split` and the like: the choices are made, and the calls do nothing.
    """

    is_fallback = False

    def __init__(
        self,
        index: int | None,
        entity_map: dict[str, Entity],
        space: HasKnobs | None = None,
        code_hash: str | None = None,
    ) -> None:
        self.index = index
        self.space = space
        self.code_hash = code_hash
        self._entities = dict(entity_map)

    def __getitem__(self, name: str) -> Entity:
        known = ", ".join(self._entities) or "none"
        require(name in self._entities, TemplateError, "configuration", f"the knobs are {known}", got=name)
        return self._entities[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entities)

    def __len__(self) -> int:
        return len(self._entities)

    def items(self) -> list[tuple[str, Entity]]:
        """Names and choices, in the order of the knobs."""
        return list(self._entities.items())

    def values(self) -> list[list[Any]]:
        """`[name, kind, value]` of each knob."""
        return [[name, *entity.to_json()] for name, entity in self._entities.items()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(str(self.values()))

    # --------------------------------------------------------------------------------- what templates call

    @staticmethod
    def axis(var: Any) -> VirtualAxis:
        return virtual_axis(var)

    reduce_axis = axis

    def define_split(self, name: str, axis: Any, policy: str = "factors", **options: Any) -> list[VirtualAxis]:
        return [VirtualAxis(f"{name}.{k}", -1) for k in range(len(self[name].to_json()[1]))]

    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[Any]:
        return list(axes)

    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> list[Any]:
        return list(axes)

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        self[name]

    def multi_filter(self, filter: Callable[[ConfigEntity], bool]) -> None:
        """The space was filtered when it was defined."""

    def add_flop(self, flop: float) -> None:
        """Operations were counted when the space was defined."""

    def raise_error(self, msg: str) -> None:
        """Declare this configuration invalid.  Raises InstantiationError with the reason."""
        raise InstantiationError(msg)

    def valid(self) -> bool:
        """True: an invalid configuration does not get past `raise_error`."""
        return True

    # ---------------------------------------------------------------------------------- numbers and records

    def get_flatten_feature(self) -> list[float]:
        """The numbers of all choices, one after the other (`knob.knob_numbers`)."""
        require(self.space is not None, TemplateError, "configuration", "features need the space", index=self.index)
        assert self.space is not None
        return [x for name, e in self.items() for x in knob_numbers(self.space.space_map[name], e)]

    def to_json_dict(self) -> dict[str, Any]:
        """`{"index": 17, "code_hash": None, "entity": [[name, kind, value], ...]}`."""
        return {"index": self.index, "code_hash": self.code_hash, "entity": self.values()}

    @staticmethod
    def from_json_dict(data: Any) -> ConfigEntity:
        """The configuration of a record.  Raises RecordError, in one sentence, for anything else."""
        ok = isinstance(data, dict) and isinstance(data.get("entity"), list) and len(data["entity"]) <= MOST_KNOBS
        require(ok, RecordError, "record, config", "an index and a list of knobs are needed")
        index, code_hash = data.get("index"), data.get("code_hash")
        ok = index is None or (isinstance(index, int) and not isinstance(index, bool) and 0 <= index < 2**62)
        require(ok, RecordError, "record, config", "the index must be a number of at least 0", got=str(index)[:40])
        ok = code_hash is None or isinstance(code_hash, str)
        require(ok, RecordError, "record, config", "the code hash must be a text or null", got=str(code_hash)[:40])
        entities: dict[str, Entity] = {}
        for item in data["entity"]:
            ok = isinstance(item, list) and len(item) == 3 and isinstance(item[0], str) and item[0] not in entities
            require(ok, RecordError, "record, config", "a knob is [name, kind, value], each name once")
            entities[item[0]] = entity_from_json(item[1], item[2])
        return ConfigEntity(index, entities, None, code_hash)

    def __repr__(self) -> str:
        return f"{list(self._entities.items())},{self.code_hash},{self.index}"

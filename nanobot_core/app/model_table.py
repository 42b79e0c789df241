"""ModelTable: what is known of models, from data of plugins and from the services themselves."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from nanobot_core.contracts.provider import Ability, ModelInfo
from nanobot_core.disk import replace_file
from nanobot_core.folder import require_regular
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.contracts.provider import ProviderSpec

_VERSION = re.compile(r"(?:[-@:](?:\d{3,}|v\d+|latest|preview|exp|free)(?:-\d\d){0,2})+(?::\d+)?")
"""The end of a name that dates or labels a release of the model before it."""
_COUNTS = {"window_tokens": 512, "max_answer_tokens": 1}
"""Counts with the least that a service can mean: history is summarised to fit a window."""
_PRICES = ("input_usd", "cached_usd", "output_usd")
_MAX_MODELS = 10_000
_NAME_CHARS = 300
_MAX_TOKENS = 1 << 40
_MAX_USD = 1e6
"""More than any service can mean; larger figures break what calculates with them."""
_MAX_FILE_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class _Known:
    shipped: Mapping[str, ModelInfo]
    listed: Mapping[str, ModelInfo]


class ModelTable:
    """Facts about models, by provider.

    What a service has reported overrides the data that ships with its plugin. Reading blocks, and
    happens once for each provider.

    Args:
        folder: contains a file for each provider whose service was asked; need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, _Known] = {}

    def is_read(self, spec: ProviderSpec) -> bool:
        """Whether `find` and `models` read no file for this provider."""
        return spec.name in self._known

    def models(self, spec: ProviderSpec) -> Mapping[str, ModelInfo]:
        """Return the models of a provider by name: those that its service has listed, if any."""
        known = self._read(spec)
        return known.listed or known.shipped

    def find(self, spec: ProviderSpec, name: str) -> ModelInfo | None:
        """Return the facts about a model, or ``None`` if it is unknown.

        Args:
            spec: its provider.
            name: as the service knows it. A dated name matches the one without the date.
        """
        known = self._read(spec)
        return _nearest(name, {**known.shipped, **known.listed})

    def store(self, spec: ProviderSpec, models: Iterable[ModelInfo]) -> None:
        """Keep what a service has reported.

        Args:
            spec: its provider.
            models: result of `credible_models`.

        Raises:
            OSError: it cannot be written; the previous data is unchanged.
        """
        rows = [_fields_of(model) for model in models]
        replace_file(self._file(spec.name), json.dumps(rows, ensure_ascii=False, indent=1))
        self._known.pop(spec.name, None)

    def forget(self) -> None:
        """Read all files again when they are needed."""
        self._known = {}

    def _read(self, spec: ProviderSpec) -> _Known:
        known = self._known.get(spec.name)
        if known is None:
            shipped = _parse(_read_json(_packaged(spec.models)), spec.name)
            reported = _parse(_read_json(self._file(spec.name)), spec.name)
            listed = {
                name: _completed(model, _nearest(name, shipped)) for name, model in reported.items()
            }
            known = self._known[spec.name] = _Known(shipped, listed)
        return known

    def _file(self, provider: str) -> Path:
        return self._folder / f"{provider}.json"


def credible_models(models: Iterable[ModelInfo]) -> tuple[ModelInfo, ...]:
    """Return what can be used of a service's list, which may hold anything.

    Models are left out whose names are too long or cannot be shown on one line, and those beyond
    the first ten thousand; of the others, figures that cannot be true.
    """
    found = (_model_info(_fields_of(model)) for model in models)
    return tuple(islice((model for model in found if model is not None), _MAX_MODELS))


def _nearest(name: str, known: Mapping[str, ModelInfo]) -> ModelInfo | None:
    if name in known:
        return known[name]
    roots = [
        root for root in known if name.startswith(root) and _VERSION.fullmatch(name, len(root))
    ]
    return known[max(roots, key=len)] if roots else None


def _completed(model: ModelInfo, other: ModelInfo | None) -> ModelInfo:
    """Return `model` with the facts of `other` that it lacks."""
    if other is None:
        return model
    lacking = {
        key: value
        for key, value in _facts(other).items()
        # A price for cached tokens belongs to the price beside it.
        if getattr(model, key) is None and (key != "cached_usd" or model.input_usd is None)
    }
    return replace(model, **lacking)


def _facts(model: ModelInfo) -> dict[str, Any]:
    return {key: getattr(model, key) for key in (*_COUNTS, *_PRICES, "abilities")}


def _fields_of(model: ModelInfo) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(model).items() if value is not None}
    if model.abilities is not None:
        fields["abilities"] = sorted(model.abilities)
    return fields


def _packaged(resource: str) -> Path | None:
    """Return the path of ``package:file``; the package is not imported."""
    package, _, file = resource.partition(":")
    try:
        found = find_spec(package) if file else None
    except (ImportError, ValueError):
        found = None
    folders = found.submodule_search_locations if found else None
    return Path(next(iter(folders))) / file if folders else None


def _read_json(path: Path | None) -> object:
    try:
        return json.loads(_content_of(path)) if path else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        from loguru import logger

        logger.warning("cannot read the data of models in '{}': {}", path, error)
        return None


def _content_of(path: Path) -> bytes:
    """Return the bytes of a regular file; opening a pipe would wait for its other end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        require_regular(os.fstat(handle), path)
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        msg = f"it is longer than {_MAX_FILE_BYTES:,} bytes"
        raise ValueError(msg)
    return data


def _parse(content: object, provider: str) -> dict[str, ModelInfo]:
    rows = content.get(provider) if isinstance(content, dict) else content
    found = [_model_info(row) for row in rows[:_MAX_MODELS]] if isinstance(rows, list) else []
    return {model.name: model for model in found if model is not None}


def _model_info(row: object) -> ModelInfo | None:
    """Return the facts in one row, without those of a wrong type or size."""
    name = row.get("name") if isinstance(row, dict) else None
    if not isinstance(row, dict) or not isinstance(name, str) or not _is_name(name):
        return None
    fields: dict[str, Any] = {
        key: row[key] for key in _PRICES if _is_amount(row.get(key), _MAX_USD)
    }
    fields |= {
        key: int(row[key])
        for key, least in _COUNTS.items()
        if _is_amount(row.get(key), _MAX_TOKENS) and row[key] >= least
    }
    if isinstance(abilities := row.get("abilities"), list):
        fields["abilities"] = frozenset(each for each in get_args(Ability) if each in abilities)
    return ModelInfo(name=name, **fields)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _NAME_CHARS and text.isprintable()


def _is_amount(value: object, limit: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value < limit

"""What a user changes on the command: ``key=value`` as overrides, ``key=value`` as a choice of runs."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from falcon_gnn.benchmark.arguments import Choice
from falcon_gnn.benchmark.config import SECTIONS, Options, check_keys
from falcon_gnn.errors import OptionError

AXES = ("seeds", "models", "budgets", "centralities", "datasets", "methods")
"""Lists that a benchmark is the product of; the other overrides are options."""

_LABELS = ("dataset", "model", "method", "centrality", "budget", "seed")


def parse_overrides(settings: Sequence[str]) -> dict[str, Any]:
    """Return overrides by key from ``key=value``.

    Args:
        settings: A key is one of :data:`AXES`, ``section.field``, or a field that one section only has. A value is
            TOML; a list may leave out brackets and quotes (``datasets=Cora,PubMed``).

    Raises:
        OptionError: If there is no ``=``, or the key is unknown or not unique.

    Example:
        >>> parse_overrides(["num_epochs=50", "datasets=Cora,PubMed", "seeds=3"])
        {'training.num_epochs': 50, 'datasets': ['Cora', 'PubMed'], 'seeds': 3}
    """
    overrides = {}
    for setting in settings:
        key, value = _split(setting, "--set")
        overrides[_full_key(key)] = _listed(value) if key in AXES else _parse(value)
    return overrides


def override_options(overrides: Mapping[str, Any]) -> Options:
    """Return the overrides that are options, by section."""
    options: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for key, value in overrides.items():
        if key not in AXES:
            section, _, name = key.partition(".")
            options[section][name] = value
    return options


def parse_choice(choices: Sequence[str]) -> Choice:
    """Return which runs to keep from ``label=value[,value]``; values of one label add up, labels narrow down.

    A value that holds a comma stands in a TOML list: ``method=["a, b"]``.

    Raises:
        OptionError: If there is no ``=`` or no such label.
    """
    kept: dict[str, frozenset[str]] = {}
    for choice in choices:
        label, values = _split(choice, "--only")
        check_keys([label], _LABELS, "--only")
        listed = _listed(values)
        wanted = listed if isinstance(listed, list) else [listed]
        kept[label] = kept.get(label, frozenset()) | {str(value).lower() for value in wanted}
    return kept


def _split(setting: str, option: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip() or not value.strip():
        msg = f"{option} takes key=value, got {setting!r}."
        raise OptionError(msg)
    return key.strip(), value.strip()


def _full_key(key: str) -> str:
    if key in AXES:
        return key
    section, dot, name = key.partition(".")
    if dot:
        check_keys([section], SECTIONS, "--set")
        check_keys([name], SECTIONS[section], f"--set {section}")
        return key
    holders = [section for section, names in SECTIONS.items() if key in names]
    if not holders:
        check_keys([key], set(AXES).union(*SECTIONS.values()), "--set")
    if len(holders) > 1:
        msg = f"--set {key} could be {' or '.join(f'{holder}.{key}' for holder in holders)}: say which."
        raise OptionError(msg)
    return f"{holders[0]}.{key}"


def _listed(text: str) -> Any:
    parsed = _parse(text)
    if isinstance(parsed, str):
        return [part.strip() for part in parsed.split(",")]
    return parsed


def _parse(text: str) -> Any:
    """Return a TOML value, a list without brackets, or else the text itself."""
    for attempt in (text, f"[{text}]") if "," in text else (text,):
        try:
            return tomllib.loads(f"value = {attempt}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text

"""Command-line options made from the fields of configurations: name, type, default and help stand there only."""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from falcon_gnn.cli.option_file import NO_VALUE, OptionFile

_ENTRY = re.compile(r"^ {8}(\w+): (.*(?:\n {9,}.*)*)", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?([^`]*)`")
_SENTENCE = re.compile(r"(.+?(?<!Alg)[.!?])(?=\s|$)", re.DOTALL)
_WIDEST_CHOICE = 24
_FILE = inspect.Parameter("config_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OptionFile)


@dataclass(frozen=True)
class FieldOptions:
    """Which fields of a configuration a command takes.

    Attributes:
        config: The dataclass.
        panel: Heading of the options in the help.
        only: Fields taken; None for all that an option can hold.
        without: Fields left out.
        negatable: Switches that can be off where a preset has them on, and so have a ``--no-`` form.
    """

    config: type
    panel: str
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    negatable: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Return the names of the fields taken."""
        return [
            entry.name
            for entry in fields(self.config)
            if (self.only is None or entry.name in self.only) and entry.name not in self.without
        ]


def takes_options(*groups: FieldOptions) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, in place of its keyword argument ``options``, one option per field of some configurations.

    A field that several configurations have is one option, described by the first of them. The command gets all
    values as one mapping by field name. It also reads its options from a file
    (:mod:`falcon_gnn.cli.option_file`).

    Args:
        groups: The fields, in the order of the help.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        parameters = {name: entry for name, entry in own.parameters.items() if name != "options"}
        made: dict[str, inspect.Parameter] = {}
        for group in groups:
            for name in group.names():
                if name not in parameters:
                    made.setdefault(name, _parameter(group, name))

        def run(**values: Any) -> None:
            told = {name: tuple(v) if isinstance(v := values[name], list) else v for name in made}
            command(**{name: values[name] for name in parameters}, **({"options": told} if groups else {}))

        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        entries = [
            entry.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for entry in (*parameters.values(), _FILE, *made.values())
        ]
        run.__signature__ = own.replace(parameters=entries)  # type: ignore[attr-defined]
        run.__annotations__ = {entry.name: entry.annotation for entry in entries}
        return run

    return decorate


def given(context: typer.Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user gave."""
    sources = {name: context.get_parameter_source(name) for name in options}
    return {name: options[name] for name, source in sources.items() if source and source.name != "DEFAULT"}


def chosen(config: type, options: Mapping[str, Any], **more: Any) -> Any:
    """Return a configuration with its fields from the options, as far as these hold them, and some more."""
    names = {entry.name for entry in fields(config)} - set(more)
    return config(**{name: value for name, value in options.items() if name in names}, **more)


@cache
def described(config: type) -> dict[str, str]:
    """Return the first sentence of each field's entry in the docstring of a dataclass, without markup."""
    text = inspect.getdoc(config) or ""
    body = text.partition("Attributes:\n")[2]
    entries = _ENTRY.findall("\n".join(f"    {line}" for line in body.splitlines()))
    return {name: _first_sentence(entry) for name, entry in entries}


def _first_sentence(entry: str) -> str:
    text = " ".join(_ROLE.sub(r"\1", entry).replace("``", "").split())
    match = _SENTENCE.match(text)
    return match[1] if match else text


def _parameter(group: FieldOptions, name: str) -> inspect.Parameter:
    entry = next(entry for entry in fields(group.config) if entry.name == name)
    kind: Any = get_type_hints(group.config)[name]
    default: Any = None if entry.default is MISSING else entry.default
    flag, bare = name.replace("_", "-"), _without_none(kind)
    settings: dict[str, Any] = {"help": described(group.config).get(name), "rich_help_panel": group.panel}
    if {int, float} <= set(get_args(kind)):
        # A whole number and a share are told apart by the decimal point, which a number has lost.
        kind = str | None
    elif default is not None and _holds_none(kind):
        # Only what is not None by default must be able to become so.
        kind, settings["parser"], settings["metavar"] = str, _or_none(bare), f"{bare.__name__.upper()}|{NO_VALUE}"
    elif get_origin(bare) is tuple:
        kind, default = list[get_args(bare)[0]] | None, list(default) if default else None  # type: ignore[misc]
    words = f"--{flag}/--no-{flag}" if bare is bool and (default or name in group.negatable) else f"--{flag}"
    if get_origin(bare) is Literal and len("|".join(get_args(bare))) > _WIDEST_CHOICE:
        settings["metavar"] = name.upper()
    annotation: Any = Annotated[kind, typer.Option(words, **settings)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _holds_none(kind: Any) -> bool:
    return type(None) in get_args(kind)


def _without_none(kind: Any) -> Any:
    """Return the type without None, of several the first."""
    if get_origin(kind) in (Union, types.UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind


def _or_none(kind: Callable[[str], Any]) -> Callable[[Any], Any]:
    def parse(text: Any) -> Any:
        return None if text == NO_VALUE else kind(text)

    return parse

"""The command's options in a TOML file, a table per command and a key per option: read, and printed.

    [train]
    model = "sign"
    node_budget = 0.34
    patience = "none"   # TOML has no word for no value

A flag wins over the file, the file over the default; what the file says counts as given by the user.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from falcon_gnn.errors import OptionError

FLAG = "--config"
NO_VALUE = "none"

_NONE_IS_A_CHOICE = ("edge_weights",)
"""Options that know a value "none"; an empty text stands for no value there."""

_HEAD = f"""\
# The options of falcon-gnn as {FLAG} FILE reads them, a table per command. A line that begins with # is at its default:
# take the # away to set it. "{NO_VALUE}" stands for no value.
"""


def use_file(context: typer.Context, path: Path | None) -> Path | None:
    """Make what a file says of a command the defaults of its options.

    Args:
        context: Of the command that is about to run.
        path: The file, or None.

    Raises:
        OptionError: If the file cannot be read, or holds an unknown table or key, or a value that the option refuses.
    """
    if path is not None and not context.resilient_parsing:
        tables = _read_tables(path, file_commands(context.find_root().command))
        name = str(context.info_name)
        context.default_map = _texts(context, tables.get(name, {}), f"{path}, [{name}]")
    return path


OptionFile = Annotated[
    Path | None,
    typer.Option(
        FLAG,
        callback=use_file,
        is_eager=True,
        help="TOML file with options; a flag wins over it. falcon-gnn config prints one with all of them.",
    ),
]


def file_commands(application: Any) -> dict[str, Any]:
    """Return the commands of the application that read a file, by name."""
    commands = application.commands.items()
    return {name: command for name, command in commands if any(FLAG in option.opts for option in command.params)}


def show_options(root: Any, commands: Iterable[Any], words: Sequence[str]) -> str:
    """Return a file with all options of some commands: the value of each, where it comes from, and the default.

    Args:
        root: Context of the whole application.
        commands: Commands that nothing else uses: here they require nothing.
        words: Flags as they would follow the name of each command.
    """
    return "\n".join([_HEAD, *(_show_command(root, command, words) for command in commands)])


def _show_command(root: Any, command: Any, words: Sequence[str]) -> str:
    required = [option.name for option in command.params if option.required]
    for option in command.params:
        option.required = False
    with command.make_context(command.name, list(words), parent=root) as context:
        file, context.default_map = context.params["config_file"], None
        panels: dict[str, list[str]] = {}
        for option in command.params:
            if option.param_type_name == "option" and option.name not in ("config_file", "help"):
                panel = getattr(option, "rich_help_panel", None) or ""
                panels.setdefault(panel, []).append(_show_option(context, option, file, option.name in required))
    blocks = ["\n".join([f"# {panel}:"] * bool(panel) + lines) for panel, lines in panels.items()]
    return f"[{command.name}]\n" + "\n\n".join(blocks) + "\n"


def _show_option(context: typer.Context, option: Any, file: Path | None, is_required: bool) -> str:
    origin = context.get_parameter_source(option.name)
    default = _as_toml(option.name, option.get_default(context))
    if origin is None or origin.name == "DEFAULT":
        return f"# {option.name} = {default}  # {'required' if is_required else 'default'}"
    value = _as_toml(option.name, context.params[option.name])
    place = "the command line" if origin.name == "COMMANDLINE" else file
    return f"{option.name} = {value}  # from {place}; {'required' if is_required else f'default {default}'}"


def _as_toml(name: str, value: Any) -> str:
    """Return a value as TOML; of text that is JSON."""
    if value is None:
        value = "" if name in _NONE_IS_A_CHOICE else NO_VALUE
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_as_toml(name, item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, (int, float)) else json.dumps(str(value), ensure_ascii=False)


def _read_tables(path: Path, known: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the tables of a file, by command."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"{FLAG} must be a readable TOML file, and {path} is not: {error}."
        raise OptionError(msg) from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            msg = f"{path}: {name} must stand in the table of a command, such as [train], got it above all tables."
            raise OptionError(msg)
        _check_name(name, list(known), f"{path} has no use for the table [{name}]")
    return tables


def _texts(context: typer.Context, table: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the values of a table by option, as they would be typed after the flag, each one tried."""
    options = {option.name: option for option in context.command.params if option.param_type_name == "option"}
    known = sorted(set(options) - {"config_file", "help"})
    texts: dict[str, Any] = {}
    for name, value in table.items():
        _check_name(name, known, f"{place}: there is no option {name}")
        if _is_no_value(name, value) and options[name].default is None:
            continue
        text = _as_typed(value, options[name])
        if text is None:
            msg = f"{place}: {name} must be one value{' or a list' if options[name].multiple else ''}, got {value!r}."
            raise OptionError(msg)
        try:
            options[name].process_value(context, text)
        except Exception as error:
            msg = f"{place}: {name} = {_as_toml(name, value)} is refused: {getattr(error, 'message', error)}"
            raise OptionError(msg) from error
        texts[name] = text
    return texts


def _is_no_value(name: str, value: Any) -> bool:
    return bool(value == ("" if name in _NONE_IS_A_CHOICE else NO_VALUE))


def _as_typed(value: Any, option: Any) -> Any:
    """Return a value of the file as a flag would give it, or None where no flag could."""
    if option.multiple:
        items = value if isinstance(value, list) else [value]
        return None if any(isinstance(item, (list, dict, bool)) for item in items) else [str(item) for item in items]
    if option.is_flag:
        return value if isinstance(value, bool) else None
    return None if isinstance(value, (list, dict, bool)) else str(value)


def _check_name(name: str, known: Sequence[str], what: str) -> None:
    if name not in known:
        close = get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]!r}?" if close else f"It knows {', '.join(known)}."
        msg = f"{what}. {hint}"
        raise OptionError(msg)

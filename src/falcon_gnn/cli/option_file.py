"""The command's options in a TOML file, a table per command and a key per option: read, and printed.

    [train]
    model = "sign"
    node_budget = 0.34
    patience = "none"   # TOML has no word for no value

A flag wins over the file, the file over the default; what the file says counts as given by the user. ``--memory none``
takes back what a file says of an option that has no value by default.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from falcon_gnn.errors import OptionError

FLAG = "--config"
NO_VALUE = "none"

_NONE_IS_A_CHOICE = ("edge_weights",)
"""Options that know a value "none"; an empty text stands for no value there."""

_UNSET = "falcon_gnn.unset"
"""Where a context keeps the names of the options that were taken back."""

_HEAD = f"""\
# The options of falcon-gnn as {FLAG} FILE reads them, a table per command. A line that begins with # is at its default:
# take the # away to set it. "{NO_VALUE}" stands for no value.
"""


class FileCommand(TyperCommand):
    """A command that reads its options from a file, and takes "none" for any of them that has no value by default."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words but for options that are taken back; stop at an empty one."""
        kept, ctx.meta[_UNSET] = _take_back(self.params, args)
        typed = self.make_parser(ctx).parse_args(list(kept))[0]
        for option in self.params:
            _check_not_empty(option, typed.get(option.name), option.opts[0])
        return super().parse_args(ctx, kept)


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
        texts = _texts(context, tables.get(name, {}), f"{path}, [{name}]")
        context.default_map = {key: text for key, text in texts.items() if key not in context.meta[_UNSET]}
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


def _take_back(options: Iterable[Any], words: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return the words without flags that say "none" where that is the default, and the names of their options."""
    names = {
        flag: option.name
        for option in options
        if option.param_type_name == "option" and option.default is None and not option.required
        for flag in option.opts
    }
    kept: list[str] = []
    unset: set[str] = set()
    rest = iter(words)
    for word in rest:
        flag, is_joined, value = word.partition("=")
        following = [] if flag not in names or is_joined else list(islice(rest, 1))
        values = [value] if is_joined else following
        if flag in names and any(_is_no_value(names[flag], text) for text in values):
            unset.add(names[flag])
        else:
            kept += [word, *following]
    return kept, unset


def _check_not_empty(option: Any, text: Any, called: str) -> None:
    """Stop at an empty text: as a path it would be the folder in which the command runs."""
    if text == "" or (isinstance(text, list | tuple) and "" in text):
        fix = "Give one" if option.required else "Give one, or leave it out"
        msg = f"{called} must have a value, got an empty text. {fix}; '.' is the folder in which the command runs."
        raise OptionError(msg)


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
    options: dict[str, Any] = {
        str(option.name): option for option in context.command.params if option.param_type_name == "option"
    }
    known = sorted(set(options) - {"config_file", "help"})
    texts: dict[str, Any] = {}
    for name, value in table.items():
        _check_name(name, known, f"{place}: there is no option {name}")
        if _is_no_value(name, value) and options[name].default is None:
            continue
        text = _as_typed(value, options[name])
        if text is None:
            several = " or a list" if options[name].multiple else ""
            allowed = "true or false" if options[name].is_flag else f"one value{several}"
            msg = f"{place}: {name} must be {allowed}, got {value!r}."
            raise OptionError(msg)
        _check_not_empty(options[name], text, f"{place}: {name}")
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

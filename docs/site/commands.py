"""The reference of the command, made from its own help."""

import re
from collections import defaultdict
from typing import Any

import typer

from falcon_gnn.cli.commands import app


def describe_commands() -> str:
    """Return every command with its options as Markdown: a table per panel of its help."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="falcon-gnn")
    parts = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            parts.append(_describe(command, typer.Context(command, info_name=f"falcon-gnn {name}")))
    return "\n\n".join(parts)


def _describe(command: Any, context: Any) -> str:
    panels: dict[str, list[str]] = defaultdict(list)
    arguments, words = [], []
    for parameter in command.params:
        if parameter.hidden:
            continue
        if parameter.param_type_name == "argument":
            words.append(parameter.name.upper())
            arguments.append(f"- `{words[-1]}`: {_plain(parameter.help or '')}")
            continue
        names, told = parameter.get_help_record(context)
        panels[parameter.rich_help_panel or "Options"].append(f"| {_flags(names)} | {_plain(told)} |")
    told = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    usage = " ".join([context.info_name, *words, "[OPTIONS]"])
    lines = [f"## {context.info_name}", "", told, "", f"```\n{usage}\n```", "", *arguments]
    for panel, rows in panels.items():
        lines += ["", f"**{panel}**", "", "| option | what it does |", "|---|---|", *rows]
    return "\n".join(lines)


def _flags(names: str) -> str:
    """Return the names of an option as code, its values below them."""
    flags, _, values = names.partition(" ")
    while values.startswith(("/ -", "-")) or flags.endswith(","):
        more, _, values = values.removeprefix("/ ").partition(" ")
        flags = f"{flags.rstrip(',')} {more}"
    shown = ", ".join(f"`{flag}`" for flag in flags.split())
    return f"{shown}<br>{_plain(values)}" if values else shown


def _plain(text: str) -> str:
    text = re.sub(r"\[default: (.+?)\]$", r"*Default: \1.*", " ".join(text.split()))
    return text.replace("|", "\\|").replace("[", "\\[").replace("<", "&lt;")

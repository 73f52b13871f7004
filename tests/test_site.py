"""What the build of the site makes: examples run where they stand, and every option of the command."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

from falcon_gnn.cli.commands import app

SITE = Path(__file__).resolve().parents[1] / "docs" / "site"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", SITE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


examples = _load("examples")


def test_what_a_block_prints_stands_below_it_and_names_live_on() -> None:
    page = "# A page\n\n```python\nx = 6\n```\n\nText.\n\n```python\nprint(7 * x)\n```\n\nEnd.\n"
    expected = page.replace("print(7 * x)\n```\n", "print(7 * x)\n```\n\n``` { .text .output }\n42\n```\n")
    assert examples.run_page("page.md", page) == expected


def test_a_command_is_run_and_what_it_prints_is_shown() -> None:
    page = "```console\n$ echo one\n$ echo two\n```\n"
    assert "``` { .text .output }\none\ntwo\n```" in examples.run_page("page.md", page)


@pytest.mark.parametrize("block", ["```python\n1 / 0\n```\n", "```console\n$ echo no >&2; exit 3\n```\n"])
def test_a_block_that_fails_is_an_error_that_names_the_page(block: str) -> None:
    with pytest.raises(RuntimeError, match=r"An example of page\.md fails:\n(.|\n)*(ZeroDivisionError|: no)"):
        examples.run_page("page.md", block)


def test_a_block_is_only_shown_where_what_it_needs_is_not_installed() -> None:
    page = "<!-- needs: no_such_module -->\n```python\n1 / 0\n```\n"
    assert examples.run_page("page.md", page) == page


def test_a_block_of_another_kind_is_left_alone() -> None:
    page = "```py\n1 / 0\n```\n\n```\nexit 1\n```\n"
    assert examples.find_blocks(page) == []


def test_the_reference_of_the_command_lists_every_flag_of_every_command() -> None:
    group = typer.main.get_command(app)
    page = _load("commands").describe_commands()
    parts = dict(re.findall(r"^## falcon-gnn (\w+)\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL))
    commands = {name: command for name, command in group.commands.items() if not command.hidden}
    assert set(parts) == set(commands)
    for name, command in commands.items():
        flags = [flag for option in command.params if option.opts[0].startswith("-") for flag in option.opts]
        assert [flag for flag in flags if f"`{flag}`" not in parts[name]] == []


@pytest.mark.skipif(not (SITE.parents[1] / "results").is_dir(), reason="a source archive has no records")
def test_the_tables_of_the_judged_preset_are_those_of_the_records() -> None:
    judged = _load("judged")
    generated = judged.write_tables()
    assert judged.PAGE.read_text(encoding="utf-8").endswith(generated), "run python docs/site/judged.py"
    assert generated.count("| **preset** |") == 7


def test_a_paired_difference_takes_the_splits_that_both_have() -> None:
    difference = _load("judged")._difference
    assert difference([[3.0, 5.0, None, 7.0], [1.0, 2.0, 9.0, 6.0]]) == "+2.0 [−0.5, +4.5]"
    assert difference([[3.0, None], [4.0, 1.0]]) == "−1.0 (1)"
    assert difference([[None], [1.0]]) == "–"

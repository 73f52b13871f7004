"""The examples of docs/data.md run, and print what the page says."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data.md"


def test_every_example_of_the_page_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    for module in ("torch_geometric", "networkx"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) > 8
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
        printed = capsys.readouterr().out.strip()
        assert not printed or f"# {printed}" in block

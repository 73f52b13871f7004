"""The examples of the README run with nothing but the embedded images, and print what it says."""

import doctest
import re
from pathlib import Path

import pytest

BLOCKS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8"), re.DOTALL
)


def test_every_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    assert len(BLOCKS) == 3
    for number, block in enumerate(BLOCKS):
        if ">>>" not in block:
            exec(compile(block, f"README.md, example {number}", "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(block, {}, "README.md", "README.md", 0)
        told: list[str] = []
        doctest.DocTestRunner().run(example, out=told.append)
        assert not told, "".join(told)

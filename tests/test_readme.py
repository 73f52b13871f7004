"""The examples of the README and of the start page run with nothing but the embedded images, as they say."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": 1, "docs/index.md": 2}


@pytest.mark.parametrize("page", PAGES)
def test_every_example_of_a_first_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == PAGES[page]
    for number, block in enumerate(blocks):
        if ">>>" not in block:
            exec(compile(block, f"{page}, example {number}", "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(block, {}, page, page, 0)
        told: list[str] = []
        doctest.DocTestRunner().run(example, out=told.append)
        assert not told, "".join(told)

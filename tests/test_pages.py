"""The pages agree with what they speak of: links, records, experiments and tables that stand beside them."""

import csv
import importlib
import json
import re
from itertools import chain
from pathlib import Path

import pytest

import falcon_gnn
from falcon_gnn.benchmark.plan import make_plan

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "configs" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
TABLES = {
    "paper": {"dataset": "data set", "predicted_mib": "predicted MiB", "paper_mb": "paper MB"},
    "resident": {},
}

pytestmark = pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="a source archive has no records")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_to_a_file_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_every_file_of_records_is_named_on_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    unnamed = [path.name for path in (ROOT / "results").glob("*.jsonl") if f"results/{path.name}" not in text]
    assert unnamed == []


def test_the_experiments_are_all_listed_with_their_number_of_runs():
    rows = re.findall(r"^\| `(.+\.toml)` \|.*\| ([\d,]+) \|$", (ROOT / "configs" / "README.md").read_text(), flags=re.M)
    listed = {name: int(count.replace(",", "")) for name, count in rows}
    files = [path for path in (ROOT / "configs").rglob("*.toml") if path.name != "datasets.toml"]
    assert listed == {path.relative_to(ROOT / "configs").as_posix(): len(make_plan(path).runs) for path in files}


@pytest.mark.parametrize("name", TABLES)
def test_a_long_table_holds_what_was_recorded(name):
    with (ROOT / "docs" / f"memory_{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = (ROOT / "results" / "memory.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["table"] == name]
    found = [{column: record[TABLES[name].get(column, column)] for column in rows[0]} for record in records]
    assert rows == [{key: "" if value is None else str(value) for key, value in row.items()} for row in found]


def test_no_page_and_no_docstring_speaks_of_papers_that_a_reader_has_not_got():
    sources = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in ("src", "benchmarks"))
    pattern = re.compile(r"\bD(?:[1-9]|1[0-6])\b|\bdesign page\b|\bof the design\b")
    speaking = [path.name for path in (*PAGES, *sources) if pattern.search(path.read_text(encoding="utf-8"))]
    assert speaking == []


def test_every_line_of_the_paper_leads_to_code_that_is_there():
    table = (
        (ROOT / "docs" / "equations.md")
        .read_text(encoding="utf-8")
        .split("## Where each line lives")[1]
        .split("## ")[0]
    )
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        module = ""
        for name in re.findall(r"`([\w.]+)`", row[3]):
            path = f"{module}{name}" if name.startswith(".") else name
            module = path.rpartition(".")[0]
            try:
                importlib.import_module(f"falcon_gnn.{path}")
            except ModuleNotFoundError:
                assert hasattr(importlib.import_module(f"falcon_gnn.{module}"), path.rpartition(".")[2]), path
        for name in re.findall(r"`(tests/[\w/]+\.py)`", row[4]):
            assert (ROOT / name).is_file(), name


def test_the_reference_names_every_public_name_where_it_is_defined() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = {line.removeprefix("::: ") for line in page.splitlines() if line.startswith("::: ")}
    sources = {f"{module}.{name}" for name, module in falcon_gnn._SOURCES.items()}
    assert named == sources | {"falcon_gnn.interop.pyg.FalconCollapse"}


def test_every_page_stands_in_the_sites_navigation() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    pages = [path.relative_to(docs).with_suffix(".md").as_posix() for path in (*docs.rglob("*.md"), *NOTEBOOKS)]
    assert [page for page in pages if f": {page}\n" not in settings] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


def test_every_example_of_a_how_to_page_is_python() -> None:
    for page in (ROOT / "docs" / "howto").glob("*.md"):
        for number, block in enumerate(re.findall(r"^```py(?:thon)?\n(.*?)^```$", page.read_text(), flags=re.M | re.S)):
            compile(block, f"{page.name}, example {number}", "exec")


def test_every_figure_that_a_page_asks_for_is_drawn_by_the_site() -> None:
    drawn = (ROOT / "docs" / "site" / "figures.py").read_text(encoding="utf-8").split("_FIGURES")[-1]
    asked = [name for page in PAGES for name in re.findall(r'data-draw="(\w+)"', page.read_text(encoding="utf-8"))]
    assert asked
    assert [name for name in asked if f'"{name}": _draw_' not in drawn] == []

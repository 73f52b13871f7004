"""What a release says of itself agrees."""

import re
from pathlib import Path

import pytest

from falcon_gnn import __version__
from falcon_gnn.provenance import describe_versions

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CHANGELOG.md", r"^## \[(\d[\d.]*)\]"),
        ("CITATION.cff", r"^version: ([\d.]+)$"),
        ("docs/cite.md", r"version = \{([\d.]+)\}"),
    ],
)
def test_the_version_is_that_of_the_package(file: str, pattern: str) -> None:
    found = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found is not None
    assert found[1] == __version__


def test_records_hold_the_version_of_the_code_and_not_of_an_old_installation() -> None:
    assert describe_versions()["falcon-gnn"] == __version__

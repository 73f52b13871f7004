"""Whether our figures agree with the paper's, and the page that lists all of them."""

from pathlib import Path

import pytest
from tests.benchmark.test_tables import THREE, cell, plan

from falcon_gnn.benchmark.agreement import find_agreements, format_verdict, render_agreements
from falcon_gnn.benchmark.paper import paper_figures
from falcon_gnn.benchmark.paper_page import paper_page
from falcon_gnn.benchmark.records import Records, read_records
from falcon_gnn.benchmark.summary import summarise

ROOT = Path(__file__).resolve().parents[2]


def summaries_of(runs, *cells, **options):
    return summarise(Records([plan(*cells, **options)], runs, {}, {}))


def test_a_figure_is_within_if_both_intervals_together_reach_from_one_to_the_other():
    # Ours: 0.84 ± 4.303 · 0.02 / √3, that is 84.00 ± 4.97; the paper's (QSIGN, FALCON by PR): 84.36 ± 0.62.
    (agreement,) = find_agreements(*summaries_of(THREE, cell(["a", "b", "c"])))
    assert agreement.reach == pytest.approx(4.97 + 0.62, abs=0.01)
    assert format_verdict(agreement) == "within"


def test_the_interval_of_a_single_run_counts_as_nothing():
    (agreement,) = find_agreements(*summaries_of(THREE, cell(["a"])))
    assert (agreement.reach, format_verdict(agreement)) == (0.62, "outside by 1.74")


def test_what_the_paper_does_not_print_has_no_verdict():
    assert find_agreements(*summaries_of(THREE, cell(["a"], paper=None))) == []
    assert render_agreements(summaries_of(THREE, cell(["a"]), paper=None)) == (
        "No figure stands beside one of the paper.\n"
    )


def test_the_table_of_verdicts_counts_them():
    text = render_agreements(summaries_of(THREE, cell(["a", "b", "c"])))
    assert "| Cora | QSIGN | FALCON | PR | Accuracy | 84.00 ± 4.97 | 84.36 ± 0.62 | −0.36 | within |" in text
    assert text.endswith("1 of 1 figures lie within the paper's interval and ours together.\n")


def test_the_page_has_a_row_for_every_figure_of_the_paper_and_says_why_one_of_ours_is_missing():
    page = paper_page(summaries_of(THREE, cell(["a", "b", "c"]), cell(["d"], centrality="DC")))
    rows = [line for line in page.splitlines() if line.startswith("| ") and " --- " not in line]
    assert len(rows) - page.count("### ") == len(paper_figures()) == 1150
    assert "Of 1,150 figures 1 have ours beside them." in page
    assert "| QSIGN | FALCON | PR | Accuracy | 84.36 ± 0.62 | 84.00 ± 4.97 |  | −0.36 | within |" in page
    assert "| QSIGN | FALCON | DC | Accuracy | 84.16 ± 0.84 | not run |  |  |  |" in page
    flickr = page.split("### Prediction quality: Flickr")[1]
    assert "| GCN | none |  | Accuracy | OOM | no data |  |  |  |" in flickr


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="a source archive has no records")
def test_the_page_in_docs_is_what_the_records_make_of_it():
    records = read_records(*sorted((ROOT / "results").glob("*.jsonl")))
    written = (ROOT / "docs" / "paper_figures.md").read_text(encoding="utf-8")
    hint = "run: falcon-gnn tables results/*.jsonl --paper-page docs/paper_figures.md"
    assert paper_page(summarise(records)) == written, hint

"""The record file survives what can happen to it."""

import errno
import json

import pytest

from falcon_gnn.benchmark.records import RecordWriter, read_records
from falcon_gnn.errors import OptionError


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"id": "a", "record": {}}\n{"id": "b", "reco', encoding="utf-8")
    assert list(read_records(path).runs) == ["a"]


def test_writing_goes_on_behind_a_torn_last_line(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"id": "a", "record": {}}\n{"id": "b", "reco', encoding="utf-8")
    RecordWriter(path).append({"id": "c", "record": {}})
    assert path.read_text(encoding="utf-8") == '{"id": "a", "record": {}}\n{"id":"c","record":{}}\n'


def test_a_whole_last_line_without_an_end_is_kept(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"id": "a", "record": {}}', encoding="utf-8")
    RecordWriter(path).append({"id": "b", "record": {}})
    assert list(read_records(path).runs) == ["a", "b"]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"id": "a", "record": {}}\n{"id": \n{"id": "b", "record": {}}\n', encoding="utf-8")
    with pytest.raises(OptionError, match="line 2"):
        read_records(path)


def test_a_full_disk_is_named_and_leaves_the_earlier_lines(tmp_path, monkeypatch):
    path = tmp_path / "records.jsonl"
    writer = RecordWriter(path)
    writer.append({"id": "a", "record": {}})

    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OptionError, match=r"records\.jsonl cannot be written \(No space .* Free some space"):
        writer.append({"id": "b", "record": {}})
    assert "a" in read_records(path).runs


def test_an_error_counts_until_its_run_is_done(tmp_path):
    path = tmp_path / "records.jsonl"
    writer = RecordWriter(path)
    writer.append({"id": "a", "error": "x"})
    assert list(read_records(path).errors) == ["a"]
    writer.append({"id": "a", "record": {}})
    records = read_records(path)
    assert (list(records.runs), list(records.errors)) == (["a"], [])


def test_a_file_that_is_not_there_is_empty_and_several_add_up(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": name, "record": {}}) + "\n", encoding="utf-8")
    assert read_records(tmp_path / "none.jsonl").runs == {}
    assert list(read_records(tmp_path / "a.jsonl", tmp_path / "b.jsonl").runs) == ["a", "b"]


def test_a_file_that_must_be_there_is_missed_by_name(tmp_path):
    with pytest.raises(OptionError, match=r"nofile.jsonl does not exist"):
        read_records(tmp_path / "nofile.jsonl", must_exist=True)


def test_a_folder_is_no_record_file(tmp_path):
    with pytest.raises(OptionError, match=r"record file .* cannot be read"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [({"title": 0, "overrides": 0}, "title, overrides"), ({"cells": [{"dataset": "G"}]}, "model, .*, ids"),
     ({"datasets": {"G": None}}, "metrics, note")],
)  # fmt: skip
def test_a_plan_that_lacks_something_is_named_with_its_line(tmp_path, changes, missing):
    kept = {"title": "T", "kind": "train", "paper": None, "figure": None, "drawn_methods": [], "overrides": {}}
    plan = {"plan": "p", "cells": [], "datasets": {}, **kept, **changes}
    path = tmp_path / "records.jsonl"
    path.write_text(
        "\n" + json.dumps({key: value for key, value in plan.items() if value != 0}) + "\n", encoding="utf-8"
    )
    with pytest.raises(OptionError, match=rf"line 2 of .*records\.jsonl is the plan .* without {missing}\. Remove"):
        read_records(path)


@pytest.mark.parametrize(
    "line",
    [
        {"id": "a", "record": None}, {"id": ["a"], "record": {}}, {"missing_data": ["G"], "error": "x"},
        {"plan": "p", "cells": 3, "datasets": {}},
    ],
)  # fmt: skip
def test_a_line_whose_values_are_of_another_kind_is_of_no_benchmark(tmp_path, line):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    records = read_records(path)
    assert records.foreign == {str(path): 1}
    assert (records.runs, records.plans, records.missing_data) == ({}, [], {})

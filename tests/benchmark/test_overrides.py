"""What can be changed on the command."""

import pytest

from falcon_gnn.benchmark.overrides import parse_choice, parse_overrides
from falcon_gnn.errors import OptionError


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("num_epochs=50", {"training.num_epochs": 50}),
        ("model.hidden_channels = 64", {"model.hidden_channels": 64}),
        ("precision=bf16", {"training.precision": "bf16"}),
        ("datasets=Cora,PPI (re-derived labels)", {"datasets": ["Cora", "PPI (re-derived labels)"]}),
        ("seeds=2", {"seeds": 2}),
        ("seeds=0,2", {"seeds": [0, 2]}),
        ("budgets=[0.5, 100]", {"budgets": [0.5, 100]}),
        ("models=sign", {"models": ["sign"]}),
    ],
)
def test_a_setting_becomes_an_override(setting, expected):
    assert parse_overrides([setting]) == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("num_epoch=3", "Did you mean 'num_epochs'"),
        ("hidden=3", "Did you mean 'hidden_channels'"),
        ("collapse.gama=3", "Did you mean 'gamma'"),
        ("trainings.num_epochs=3", "Did you mean 'training'"),
        ("task=classes", r"could be training\.task or collapse\.task"),
        ("num_epochs", "takes key=value"),
        ("seed=3", "no key 'seed'"),
    ],
)
def test_a_setting_that_is_unclear_is_refused(setting, message):
    with pytest.raises(OptionError, match=message):
        parse_overrides([setting])


def test_values_of_one_label_add_up():
    assert parse_choice(["dataset=Cora", "dataset=PPI, Flickr"]) == {"dataset": {"cora", "ppi", "flickr"}}


def test_a_value_that_holds_a_comma_stands_in_a_list():
    assert parse_choice(['method=["mean, counted"]', "seed=0,1", "budget=0.5"]) == {
        "method": {"mean, counted"},
        "seed": {"0", "1"},
        "budget": {"0.5"},
    }


def test_a_choice_by_an_unknown_label_is_refused():
    with pytest.raises(OptionError, match="Did you mean 'dataset'"):
        parse_choice(["datasets=Cora"])

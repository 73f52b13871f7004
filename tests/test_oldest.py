"""The constraints of ``make test-oldest`` are the lower bounds that stand in ``pyproject.toml``."""

import pytest

from tests.oldest import oldest_versions


def test_a_lower_bound_becomes_a_version() -> None:
    text = '[project]\ndependencies = ["numpy>=2.0", "scikit-learn>=1.4.2,<3; python_version > \'3\'"]'
    assert oldest_versions(text) == ["numpy==2.0", "scikit-learn==1.4.2"]


def test_a_library_without_a_lower_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="'scipy<2' has no lower bound"):
        oldest_versions('[project]\ndependencies = ["scipy<2"]')

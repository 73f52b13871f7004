"""What the site's reference changes in docstrings: Sphinx's roles become code, a doctest under "Example" is one."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|exc|func|meth|mod):`~?([^`]+)`")
_EXAMPLE = re.compile(r"^(\s*)Example:$", re.MULTILINE)


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring once, when its object is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite an object's docstring."""
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(r"\1Examples:", text)

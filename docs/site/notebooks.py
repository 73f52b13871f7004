"""Notebooks become pages: each is executed while the site is built, and its outputs are those of that run."""

import base64
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

_SECONDS = 600
_IMAGES = {"image/svg+xml": "svg", "image/png": "png"}


def run_notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown with its outputs, and the images that it shows by name.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3").execute(cwd=str(path.parent))
    title, *cells = notebook.cells
    heading, _, rest = title.source.partition("\n")
    lead = f"*A notebook that the build of this page has run: [{path.name}]({path.name}).*"
    parts, images = [f"{heading}\n\n{lead}\n{rest}"], {}
    for number, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        text, shown = _read_outputs(cell.outputs)
        if text:
            parts.append(f"``` {{ .text .output }}\n{text}\n```")
        for kind, content in shown:
            name = f"{path.stem}_{number}.{kind}"
            images[name] = content
            parts.append(f"![What the code above draws]({name})")
    return "\n\n".join(parts) + "\n", images


def _read_outputs(outputs: list[Any]) -> tuple[str, list[tuple[str, bytes]]]:
    """Return what a cell printed and returned as text, and its images with their kind."""
    texts, images = [], []
    for output in outputs:
        if output.output_type == "stream":
            texts += [output.text] if output.name == "stdout" else []
            continue
        kind = next((name for name in _IMAGES if name in output.data), None)
        if kind is None:
            texts.append(output.data.get("text/plain", "") + "\n")
        elif kind == "image/png":
            images.append(("png", base64.b64decode(output.data[kind])))
        else:
            images.append(("svg", output.data[kind].encode()))
    return "".join(texts).rstrip(), images

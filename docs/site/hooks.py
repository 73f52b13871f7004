"""What the build of the site does beside reading pages: figures, examples, notebooks, the command's help."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import Any

from commands import describe_commands
from examples import example_environment, run_page
from figures import draw
from gallery import write_bundle, write_gallery
from mkdocs.structure.files import File, Files
from notebooks import run_notebook

from falcon_gnn.reporting.style import PALETTE

_ROOT = Path(__file__).resolve().parents[2]
_FIGURE = re.compile(r'<figure data-draw="(\w+)"(?: data-alt="([^"]*)")?>')


_ran: dict[str, str] = {}
"""How-to pages with the output of their examples, by their place."""


def on_files(files: Files, *, config: Any) -> Files:
    """Run examples and notebooks, and add the pages that are made of notebooks and of documents beside the sources."""
    os.environ.update(example_environment())
    notebooks = sorted((_ROOT / "docs" / "notebooks").glob("*.ipynb"))
    pages = sorted((_ROOT / "docs" / "howto").glob("*.md"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = [pool.submit(run_notebook, notebook) for notebook in notebooks]
        ran = [pool.submit(run_page, page.name, page.read_text(encoding="utf-8")) for page in pages]
    for notebook, done in zip(notebooks, made, strict=True):
        text, images = done.result()
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
        for name, content in images.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    _ran.update({f"howto/{page.name}": done.result() for page, done in zip(pages, ran, strict=True)})
    files.append(File.generated(config, "vega.js", content=write_bundle()))
    files.append(File.generated(config, "palette.css", content=_write_palette()))
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = (_ROOT / f"{name}.md").read_text(encoding="utf-8")
        files.append(File.generated(config, f"{name.lower()}.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Run the examples of a How-to page, list the commands, and let links to notebooks lead to their pages."""
    source = page.file.src_uri
    markdown = _ran.get(source, markdown)
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", describe_commands())
    return re.sub(r"(?<!\.ipynb)\]\(([\w./]+)\.ipynb\)", r"](\1.md)", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Draw the figures of a page."""
    if "<!-- gallery -->" in html:
        html = html.replace("<!-- gallery -->", write_gallery())
    return _FIGURE.sub(_drawn, html)


def _write_palette() -> str:
    """Return the colours of figures as properties of the page, in its light and its dark look."""
    looks = []
    for mode, scheme in enumerate(("default", "slate")):
        values = " ".join(f"--{name}: {codes[mode]};" for name, codes in PALETTE.items())
        looks.append(f'[data-md-color-scheme="{scheme}"] {{ {values} }}')
    return "\n".join(looks)


def _drawn(found: re.Match[str]) -> str:
    name, alt = found[1], found[2] or found[1]
    return f'<figure class="drawn" id="figure-{escape(name)}">{draw(name, f"{name}-", alt)}'

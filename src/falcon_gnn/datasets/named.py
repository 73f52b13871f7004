"""The data sets known by name: their raw files, where these are looked for, and how they become a graph."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from falcon_gnn.datasets import graphsaint, images, ogb, planetoid
from falcon_gnn.datasets.downloads import Registry, download_files, read_registry
from falcon_gnn.datasets.facts import check_graph
from falcon_gnn.errors import OptionError
from falcon_gnn.graph import Graph


@dataclass(frozen=True)
class NamedSet:
    """A data set that is known by name.

    Attributes:
        files: Raw files, relative to their folder; none for a set that is installed.
        folders: Folders below ``root`` that are looked into, in this order.
        origin: Where a user gets the files, as it reads after "from".
        load: Makes the graph from (the folder of the files, the threshold).
        is_similarity_graph: Whether the threshold has a meaning.
    """

    files: tuple[str, ...]
    folders: tuple[str, ...]
    origin: str
    load: Callable[[Path, float | None], Graph]
    is_similarity_graph: bool = False


def load_named(
    name: str,
    root: Path,
    threshold: float | None = None,
    *,
    download: bool = False,
    registry: Registry | None = None,
) -> Graph:
    """Return a data set by name.

    Args:
        name: One of :func:`dataset_names`.
        root: The folder that holds the raw files, itself or in one of the set's usual subfolders.
        threshold: Cosine above which two images are linked, for image sets only.
        download: Whether missing files are fetched.
        registry: Where they are; by default :func:`falcon_gnn.datasets.downloads.read_registry`.

    Raises:
        DownloadError: If files are to be fetched and cannot be.
        OptionError: If the files are not there; the message names them, their source and their place. Or if a
            threshold is given to a set that comes with edges.
        GraphError: If the files are of another data set (:mod:`falcon_gnn.datasets.facts`).
    """
    entry = _REGISTRY[name]
    if threshold is not None and not entry.is_similarity_graph:
        msg = f"threshold is for image sets, whose edges are made from similarity; {name} has edges. Leave it out."
        raise OptionError(msg)
    graph = entry.load(_find(name, entry, root, registry) if download else _locate(name, entry, root), threshold)
    check_graph(name, graph)
    return graph


def dataset_names() -> tuple[str, ...]:
    """Return the names that :func:`falcon_gnn.load_graph` knows."""
    return tuple(_REGISTRY)


def nearest_name(name: str) -> str | None:
    """Return the known name that is most like another, or None if none is."""
    close = difflib.get_close_matches(name.lower(), _REGISTRY, n=1)
    return close[0] if close else None


def _locate(name: str, entry: NamedSet, root: Path) -> Path:
    folders = [root / folder for folder in entry.folders]
    for folder in folders:
        if all((folder / file).is_file() for file in entry.files):
            return folder
    nearest = max(folders, key=lambda folder: sum((folder / file).is_file() for file in entry.files))
    missing = [file for file in entry.files if not (nearest / file).is_file()]
    asking = "pass download=True (--download on the command), or " if name in read_registry() else ""
    msg = (
        f"{name} needs the files {', '.join(entry.files)}, and {missing[0]} is not in {nearest} "
        f"(looked in: {', '.join(str(folder) for folder in folders)}). Nothing is downloaded unasked: {asking}get them "
        f"from {entry.origin} and put them in one of these folders, or pass root= with the folder that holds them."
    )
    raise OptionError(msg)


def _find(name: str, entry: NamedSet, root: Path, registry: Registry | None) -> Path:
    """Return the folder with the files of a set, fetched where they are missing."""
    try:
        return _locate(name, entry, root)
    except OptionError as error:
        reason = str(error)
    known = read_registry() if registry is None else registry
    if name in known:
        return download_files(known[name], entry.files, root)
    msg = f"{name} cannot be downloaded: its files have no address that stays. {reason}"
    raise OptionError(msg)


def _planetoid(name: str, title: str) -> NamedSet:
    return NamedSet(
        planetoid.file_names(name),
        ("", f"{title}/raw", "raw", "planetoid_raw"),
        f"github.com/kimiyoung/planetoid (data), or run torch_geometric.datasets.Planetoid(root, {title!r}) once",
        lambda folder, _: planetoid.read_planetoid(folder, name),
    )


def _organ(name: str, file: str) -> NamedSet:
    return NamedSet(
        (file,),
        ("", "medmnist"),
        f"medmnist.com ({file}, 28 by 28 pixels)",
        lambda folder, threshold: images.read_images(folder / file, threshold, images.ORGAN_EDGES[name], name),
        is_similarity_graph=True,
    )


def _ogb(name: str) -> NamedSet:
    return NamedSet(
        ogb.file_names(name),
        (name.replace("-", "_"), name.removeprefix("ogbn-"), ""),
        f"ogb.stanford.edu ({name.removeprefix('ogbn-')}.zip, unpacked)",
        lambda folder, _: ogb.read_ogb(folder, name),
    )


_REGISTRY = {
    "digits": NamedSet((), ("",), "", lambda _, threshold: images.digits_graph(threshold), is_similarity_graph=True),
    "cora": _planetoid("cora", "Cora"),
    "citeseer": _planetoid("citeseer", "CiteSeer"),
    "pubmed": _planetoid("pubmed", "PubMed"),
    "ppi": NamedSet(
        graphsaint.PPI_FILES,
        ("", "raw", "ppi", "PPI/raw"),
        "data.dgl.ai/dataset/ppi.zip, or run torch_geometric.datasets.PPI(root) once",
        lambda folder, _: graphsaint.read_ppi(folder),
    ),
    "flickr": NamedSet(
        graphsaint.FLICKR_FILES,
        ("", "raw", "flickr", "Flickr/raw"),
        "the GraphSAINT authors (github.com/GraphSAINT/GraphSAINT), or run torch_geometric.datasets.Flickr(root) once",
        lambda folder, _: graphsaint.read_flickr(folder),
    ),
    "organs": _organ("organs", "organsmnist.npz"),
    "organc": _organ("organc", "organcmnist.npz"),
    "ogbn-arxiv": _ogb("ogbn-arxiv"),
    "ogbn-products": _ogb("ogbn-products"),
}

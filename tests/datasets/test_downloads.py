"""Downloads, when asked for, against a server on this machine with small made files; nothing leaves the machine."""

import gzip
import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from falcon_gnn.cli.commands import app
from falcon_gnn.datasets import facts
from falcon_gnn.datasets.downloads import RemoteSet, download_files, read_registry
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.named import _REGISTRY, dataset_names, load_named
from falcon_gnn.errors import DownloadError, MissingDependencyError, OptionError

pytest.importorskip("pooch")

TEXT = b"some bytes of a data set, " * 100


class Server:
    """Serves bytes by address, and remembers what was asked for."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                body = server.content.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write((body or b"")[: len(body or b"") // 2 if self.path in server.cut else None])

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in content.items():
            archive.writestr(name, body)
    return buffer.getvalue()


def arxiv_files():
    rows = {
        "raw/edge": "0,1\n1,0\n2,1\n", "raw/node-feat": "0.5,-1\n0.25,2\n1,3\n0,4\n", "raw/node-label": "3\n1\n0\n2\n",
        "raw/num-node-list": "4\n", "raw/node_year": "2013\n2014\n2015\n2016\n", "split/time/train": "0\n3\n",
        "split/time/valid": "1\n", "split/time/test": "2\n",
    }  # fmt: skip
    return {f"arxiv/{name}.csv.gz": gzip.compress(text.encode(), mtime=0) for name, text in rows.items()}


@pytest.fixture
def arxiv(server, tmp_path, monkeypatch):
    """The small arxiv behind an address that the environment gives."""
    server.content["/arxiv.zip"] = zipped(arxiv_files() | {"arxiv/mapping/README.md": b"not wanted"})
    registry = tmp_path / "mirror.toml"
    registry.write_text(
        f'[ogbn-arxiv]\nfolder = "ogbn_arxiv"\narchive = "{server.address}/arxiv.zip"\ninside = "arxiv"\n'
        'also = ["raw/node_year.csv.gz"]\n'
    )
    monkeypatch.setenv("FALCON_DOWNLOADS", str(registry))
    monkeypatch.setattr(facts, "FACTS", {})
    return server


def test_missing_files_are_fetched_and_those_that_are_there_left_alone(server, tmp_path):
    server.content |= {"/set/a": TEXT, "/set/b": b"other"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "b").write_bytes(b"my own")
    remote = RemoteSet("mine", base=f"{server.address}/set/", checksums={"a": sha256(TEXT), "b": sha256(b"other")})
    assert download_files(remote, ("a", "b"), tmp_path) == tmp_path / "mine"
    assert (tmp_path / "mine" / "a").read_bytes() == TEXT
    assert (tmp_path / "mine" / "b").read_bytes() == b"my own"
    assert server.asked == ["/set/a"]
    assert oct((tmp_path / "mine" / "a").stat().st_mode & 0o444) == oct(0o444)


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_another_file_than_the_one_expected_is_refused_and_not_kept(server, tmp_path, kind):
    server.content["/a"] = TEXT
    known, found = (hashlib.new(kind, content).hexdigest() for content in (b"what was published", TEXT))
    remote = RemoteSet("", base=f"{server.address}/", checksums={"a": f"{kind}:{known}"})
    with pytest.raises(DownloadError, match=rf"/a must have the checksum {kind}:{known}, got {found}"):
        download_files(remote, ("a",), tmp_path)
    assert files_below(tmp_path) == []


def test_half_a_file_is_refused_and_not_kept(server, tmp_path):
    server.content["/a"] = TEXT
    server.cut.add("/a")
    with pytest.raises(DownloadError, match=r"/a cannot be fetched \(.*Nothing of it was kept"):
        download_files(RemoteSet("", base=f"{server.address}/"), ("a",), tmp_path)
    assert files_below(tmp_path) == []


def test_a_file_that_the_server_has_not_is_named(server, tmp_path):
    with pytest.raises(DownloadError, match=r"/b cannot be fetched \(HTTPError: 404"):
        download_files(RemoteSet("", base=f"{server.address}/"), ("b",), tmp_path)


def test_without_a_server_the_error_names_the_address_and_the_network(server, tmp_path):
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(DownloadError, match=rf"{server.address}/a cannot be fetched .*HTTPS_PROXY.*FALCON_DOWNLOADS"):
        download_files(RemoteSet("", base=f"{server.address}/"), ("a",), tmp_path)


def test_a_proxy_that_the_environment_names_is_asked(server, tmp_path, monkeypatch):
    server.content["http://data.invalid/a"] = TEXT
    monkeypatch.setenv("http_proxy", server.address)
    download_files(RemoteSet("", base="http://data.invalid/"), ("a",), tmp_path)
    assert server.asked == ["http://data.invalid/a"]
    assert (tmp_path / "a").read_bytes() == TEXT


def test_the_wanted_files_come_out_of_an_archive_and_nothing_else(arxiv, tmp_path):
    graph = load_graph("ogbn-arxiv", root=tmp_path / "data", download=True)
    assert graph.degrees.tolist() == [1, 2, 1, 0]
    assert graph.node_attributes["node_year"].tolist() == [2013, 2014, 2015, 2016]
    there = files_below(tmp_path / "data")
    assert there == sorted(f"ogbn_{name}" for name in arxiv_files())
    assert load_graph("ogbn-arxiv", root=tmp_path / "data", download=True).num_edges == graph.num_edges
    assert arxiv.asked == ["/arxiv.zip"]


@pytest.mark.parametrize("spoil", ["other", "cut", "flipped", "lacking"])
def test_a_broken_archive_leaves_no_broken_file(arxiv, tmp_path, spoil):
    whole = arxiv.content["/arxiv.zip"]
    files = arxiv_files()
    flipped = bytearray(whole)
    flipped[whole.index(files["arxiv/raw/edge.csv.gz"][:10]) + 12] ^= 255
    del files["arxiv/split/time/test.csv.gz"]
    arxiv.content["/arxiv.zip"] = {
        "other": b"<html>moved</html>", "cut": whole[: len(whole) // 2], "flipped": bytes(flipped),
        "lacking": zipped(files),
    }[spoil]  # fmt: skip
    with pytest.raises(DownloadError, match=r"arxiv\.zip is not the archive that it should be"):
        load_graph("ogbn-arxiv", root=tmp_path / "data", download=True)
    whole_files = {f"ogbn_{name}": content for name, content in arxiv_files().items()}
    for name in files_below(tmp_path / "data"):
        assert (tmp_path / "data" / name).read_bytes() == whole_files[name]


def test_the_command_downloads_when_asked(arxiv, tmp_path):
    words = ["collapse", "ogbn-arxiv", "--root", str(tmp_path), "--node-budget", "1", "--num-clusters", "1"]
    words += ["--centrality", "degree", "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, words)
    assert "pass download=True (--download on the command)" in str(refused.exception)
    assert arxiv.asked == []
    done = CliRunner().invoke(app, [*words, "--download"], catch_exceptions=False)
    assert (done.exit_code, arxiv.asked) == (0, ["/arxiv.zip"])


def test_a_registry_may_be_given(server, tmp_path):
    images = {
        f"{part}_images": np.full((2, 28, 28), i + 1, np.uint8) for i, part in enumerate(("train", "val", "test"))
    }
    labels = {f"{part}_labels": np.zeros((2, 1), np.uint8) for part in ("train", "val", "test")}
    stream = io.BytesIO()
    np.savez(stream, **images, **labels)
    server.content["/organsmnist.npz"] = stream.getvalue()
    registry = {"organs": RemoteSet("medmnist", base=f"{server.address}/")}
    with pytest.raises(Exception, match="organs must have the classes 0 to 10"):
        load_named("organs", tmp_path, download=True, registry=registry)
    assert files_below(tmp_path) == ["medmnist/organsmnist.npz"]


def test_a_set_without_an_address_says_how_to_get_it(tmp_path):
    with pytest.raises(OptionError, match=r"flickr cannot be downloaded: .*get them from the GraphSAINT authors"):
        load_graph("flickr", root=tmp_path, download=True)
    with pytest.raises(OptionError, match=r"Nothing is downloaded unasked: get them from the GraphSAINT"):
        load_graph("flickr", root=tmp_path)


def test_without_pooch_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'falcon-gnn\[download\]'"):
        load_graph("cora", root=tmp_path, download=True)


def test_the_folder_of_named_sets_is_refused_for_a_path(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    with pytest.raises(OptionError, match=r"root is for data sets known by name, got the path .*edges.csv"):
        load_graph(tmp_path / "edges.csv", root=tmp_path)


def test_a_path_is_never_downloaded(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    with pytest.raises(OptionError, match="download is for data sets known by name"):
        load_graph(tmp_path / "edges.csv", num_nodes=2, download=True)


def test_the_addresses_are_of_named_sets_and_their_folders_are_looked_into():
    registry = read_registry()
    assert set(registry) == set(dataset_names()) - {"digits", "flickr"}
    for name, remote in registry.items():
        assert (remote.base + remote.archive).startswith("https://")
        assert remote.folder in _REGISTRY[name].folders
        assert not remote.base or set(remote.checksums) == set(_REGISTRY[name].files)


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_the_checksums_are_those_of_the_raw_files_at_hand(name, shared_dataset):
    folder = shared_dataset(name).parent / "planetoid_raw"
    if not folder.is_dir():
        pytest.skip("no planetoid_raw folder beside the data sets")
    for file, checksum in read_registry()[name].checksums.items():
        assert sha256((folder / file).read_bytes()) == checksum


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cora", "must name a readable TOML file"),
        ("[cora]\nbase = 'https://x/'\n", r"\[cora\] must be a table with folder"),
        ("[cora]\nfolder = ''\nadress = 'https://x/'\n", r"\[cora\] must be a table with folder"),
        ("[cora]\nfolder = ''\n", "either base or archive, got neither"),
        ("[cora]\nfolder = ''\nbase = 'https://x/'\narchive = 'https://x/a.zip'\n", "got both"),
    ],
)
def test_a_broken_registry_is_named(tmp_path, text, message):
    path = tmp_path / "registry.toml"
    path.write_text(text)
    with pytest.raises(OptionError, match=message) as raised:
        read_registry(path)
    assert str(path) in str(raised.value)


def test_a_registry_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FALCON_DOWNLOADS", str(tmp_path / "nowhere.toml"))
    with pytest.raises(OptionError, match=r"FALCON_DOWNLOADS must name .*nowhere\.toml is not"):
        read_registry()


def test_a_place_that_cannot_be_written_is_named(server, tmp_path):
    server.content["/a"] = TEXT
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="cannot be written"):
        download_files(RemoteSet("file", base=f"{server.address}/"), ("a",), Path(tmp_path))

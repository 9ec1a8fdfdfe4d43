"""The workspace's folder: what is found in it, what is bounded, and that nothing leads out of it."""

import os
import socket
from pathlib import Path

import pytest

from app.dialects.tarko_ui.routes import folder as folders
from app.dialects.tarko_ui.routes.folder import Folder
from app.errors import ConfigurationError, NotFound, TooLarge

SECRET = "the secret of the folder beside it"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with friendly and hostile things in it, between neighbours that hold a secret."""
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "README.md").write_text("# Read me é")
    (root / "src" / "main.py").write_text("print()")
    (root / "src" / "deep" / "readable.txt").write_text("x")
    (root / "picture.png").write_bytes(b"\x89PNG\xff")
    (root / ".hidden").write_text("h")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "main.js").write_text("m")
    for name in ("root-evil", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret.txt").write_text(SECRET)
    (root / "link-file").symlink_to(tmp_path / "elsewhere" / "secret.txt")
    (root / "link-folder").symlink_to(tmp_path / "elsewhere")
    (root / "link-inside").symlink_to("README.md")
    (root / "loop").symlink_to("loop")
    (root / "loop-folder").symlink_to(".")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(root)  # a socket's path must be short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    return root


@pytest.fixture
def folder(root: Path) -> Folder:
    return Folder(root)


def found(folder: Folder, words: str, kind: str = "all") -> list[str]:
    return [item["relativePath"] for item in folder.search(words, kind)]  # type: ignore[arg-type]


HOSTILE = [
    "..",
    "../root-evil/secret.txt",
    "src/../../elsewhere/secret.txt",
    "./../elsewhere",
    "%2e%2e/elsewhere/secret.txt",
    "/etc/passwd",
    "/",
    "//etc/passwd",
    "-evil/secret.txt",
    "link-file",
    "link-folder",
    "link-folder/secret.txt",
    "link-inside",
    "loop",
    "loop/x",
    "loop-folder/README.md",
    "pipe",
    "socket",
    "README.md\0",
    "\0",
    "README.md/x",
    "nothing",
    "x" * 300,
    "x/" * 4000,
    "\ud800",
    "..\\elsewhere",
    "~",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_no_path_leads_out_or_to_what_is_neither_file_nor_folder(folder: Folder, path: str) -> None:
    assert folder.kind(path) is None
    with pytest.raises(NotFound) as refused:
        folder.look(path)
    assert refused.value.code == "file_not_found"
    assert str(refused.value) == "There is no such file or folder in the workspace."


def test_an_absolute_path_of_the_root_itself_is_none(folder: Folder, root: Path) -> None:
    assert folder.kind(str(root)) is None
    assert folder.kind(str(root / "README.md")) is None


def test_files_and_folders_are_told(folder: Folder) -> None:
    assert folder.kind("") == folder.kind(".") == folder.kind("src/deep/") == "directory"
    assert folder.kind("src//./main.py") == "file"
    assert folder.look("./README.md") == {
        "path": "README.md",
        "name": "README.md",
        "type": "file",
        "size": 12,
        "encoding": "utf-8",
        "content": "# Read me é",
    }
    assert folder.look("picture.png") | {"path": ""} == {
        "path": "",
        "name": "picture.png",
        "type": "file",
        "size": 5,
        "encoding": "base64",
        "content": "iVBOR/8=",
    }
    assert folder.look("src") == {
        "path": "src",
        "name": "src",
        "type": "directory",
        "entries": [
            {"name": "deep", "path": "src/deep", "relativePath": "src/deep", "type": "directory"},
            {
                "name": "main.py",
                "path": "src/main.py",
                "relativePath": "src/main.py",
                "type": "file",
                "size": 7,
            },
        ],
        "truncated": False,
    }


def test_the_root_lists_only_what_can_be_had(folder: Folder) -> None:
    listed = folder.look("")
    assert (listed["name"], listed["path"]) == ("root", "")
    assert [entry["name"] for entry in listed["entries"]] == [
        ".hidden",
        "README.md",
        "node_modules",
        "picture.png",
        "src",
    ]


def test_a_search_has_the_closest_first_and_leaves_out_what_is_hidden(folder: Folder) -> None:
    assert found(folder, "READ") == ["README.md", "src/deep/readable.txt"]
    assert found(folder, "main") == ["src/main.py"]
    assert found(folder, "src") == ["src", "src/deep", "src/main.py", "src/deep/readable.txt"]
    assert found(folder, "") == [
        "README.md",
        "picture.png",
        "src",
        "src/deep",
        "src/main.py",
        "src/deep/readable.txt",
    ]
    assert found(folder, "", "directory") == ["src", "src/deep"]
    assert found(folder, "src", "file") == ["src/main.py", "src/deep/readable.txt"]
    assert found(folder, ".hid") == [".hidden"]
    assert found(folder, "secret") == found(folder, "link") == found(folder, "pipe") == []


def test_answers_are_bounded(folder: Folder, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "many").mkdir()
    for number in range(30):
        (root / "many" / f"file{number:02}").write_text("x")
    assert len(found(folder, "file")) == 20
    monkeypatch.setattr(folders, "MAX_ENTRIES", 5)
    listed = folder.look("many")
    assert (len(listed["entries"]), listed["truncated"]) == (5, True)
    monkeypatch.setattr(folders, "MAX_LOOKED_AT", 3)
    assert len(found(folder, "")) <= 3
    monkeypatch.setattr(folders, "MAX_LOOKED_AT", 1000)
    monkeypatch.setattr(folders, "MAX_DEPTH", 1)
    assert found(folder, "main") == []
    monkeypatch.setattr(folders, "SEARCH_TIME", -1)
    assert found(folder, "") == []


def test_a_file_that_is_too_large_is_refused(
    folder: Folder, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_FILE", 5)
    assert folder.look("picture.png")["size"] == 5
    with pytest.raises(TooLarge) as refused:
        folder.look("README.md")
    assert refused.value.code == "file_too_large"
    # One that grew since it was looked at.
    monkeypatch.setattr(folders, "_kind_of", lambda _: ("file", 0))
    with pytest.raises(TooLarge):
        folder.look("README.md")


def test_a_pipe_that_takes_a_files_place_holds_nobody_up(
    folder: Folder, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind_of = folders._kind_of
    kinds = iter([lambda _: ("file", 1)])
    monkeypatch.setattr(folders, "_kind_of", lambda found: next(kinds, kind_of)(found))
    with pytest.raises(NotFound):
        folder.look("pipe")


def test_a_link_that_takes_a_files_place_is_not_followed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_kind_of", lambda _: ("file", 1))
    with pytest.raises(NotFound):
        folder.look("link-file")
    monkeypatch.setattr(folders, "_kind_of", lambda _: ("directory", 0))
    with pytest.raises(NotFound):
        folder.look("link-folder")


def test_names_that_are_no_text_and_folders_that_are_shut_are_left_out(folder: Folder, root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_text("x")
    assert not any("\udcff" in entry["name"] for entry in folder.look("")["entries"])
    assert found(folder, "\udcff") == []


def test_a_folder_that_goes_away_during_a_search_is_passed_over(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = folders._names
    listed: list[str] = []

    def vanishing(inner: int, name: str, limit: int) -> list[tuple[str, folders.Kind, int]]:
        listed.append(name)
        if name == "src":
            raise FileNotFoundError(name)
        return names(inner, name, limit)

    monkeypatch.setattr(folders, "_names", vanishing)
    assert found(folder, "") == ["README.md", "picture.png", "src"]
    assert "src" in listed


def test_a_workspace_that_is_no_folder_is_refused_at_start(root: Path) -> None:
    for path in (root / "README.md", root / "nothing"):
        with pytest.raises(ConfigurationError, match="is not a folder"):
            Folder(path)
    assert Folder(Path("/")).name == "workspace"

"""`python -m isrlab page`: the page for a browser as a folder of files, for any web server.

Theory of operation. Python for browsers (Pyodide) comes from npm, and msgspec from PyPI; parts.toml
has versions and hashes, and downloads are kept. Files are in folders named after a digest of their
contents, so that a browser may keep them forever; `index.html` and `sw.js` name these folders.
Large files are compressed here, because not every server does so, and have names that servers and
proxies leave alone. An open page requests nothing from other sites.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from isrlab.installed import DATA, packages
from isrlab_book.page.playing import contents, recordings

PLAY = "play"  # the folder of the page, beside the reports
CACHE = Path("~/.cache/isrlab/page").expanduser()
HERE = Path(__file__).parent
FRONT, COMPILE = HERE / "front", HERE / "compile.mjs"
PARTS = tomllib.loads((HERE / "parts.toml").read_text("utf-8"))
_squeeze = partial(gzip.compress, compresslevel=9, mtime=0)
PYODIDE, MSGSPEC = PARTS["pyodide"], PARTS["msgspec"]  # name, sha256, and the command that fetches


class PageError(Exception):
    """The page cannot be built; the message says what is missing."""


def build(out: Path) -> int:
    """Replace `out` with the page; returns its size without logs, in bytes. Raises PageError."""
    pyodide, msgspec = fetched(PYODIDE), fetched(MSGSPEC)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=".page-") as folder:
        made = Path(folder) / out.name
        made.mkdir()
        runtime = _folder(made, "pyodide", _runtime(pyodide))
        own = {path.name: path.read_bytes() for path in FRONT.iterdir() if path.suffix != ".html"}
        worker_of_cache = own.pop("sw.js")
        for name in ("explorer.js", "explorer.css"):
            own[name] = (HERE.parent / "explorer" / name).read_bytes()
        own["contents.json"] = json.dumps(contents(), separators=(",", ":")).encode()
        logs = {f"{name}.zip": _zipped(_logs(path)) for name, path in recordings().items()}
        where = {"pyodide": runtime, "recordings": _folder(made, "recordings", logs)}
        own["where.json"] = json.dumps({k: f"../{v}/" for k, v in where.items()}).encode()
        own["python.bin"] = _squeeze(_archive(_compiled(pyodide, _python(msgspec))))
        page = _folder(made, "page", own)
        index = (FRONT / "index.html").read_text(encoding="utf-8").replace("FOLDER", page)
        (made / "index.html").write_text(index, encoding="utf-8")
        every = (path for path in sorted(made.rglob("*")) if path.is_file())
        kept = [path for path in every if path.parent.name != where["recordings"]]
        files = [path.relative_to(made).as_posix() for path in kept]
        version = hashlib.sha256(f"{runtime} {page} {index}".encode()).hexdigest()[:12]
        names = (
            f'const VERSION = "isrlab-{version}";\nconst FILES = {json.dumps(["./", *files])};\n'
        )
        (made / "sw.js").write_bytes(names.encode() + worker_of_cache)
        size = sum(path.stat().st_size for path in kept)
        if out.exists():
            shutil.rmtree(out)
        os.replace(made, out)
    return size


def fetched(part: Mapping[str, str]) -> Path:
    """A package's file, kept or from its registry. Raises PageError if it is missing or differs."""
    name, command = part["name"], part["command"].format(python=sys.executable).split()
    kept = CACHE / name
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as folder:
            if not shutil.which(command[0]):
                raise PageError(f"{command[0]} is not installed; the page needs it for {name}")
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode or not (Path(folder) / name).exists():
                reason = (done.stderr.strip().splitlines() or ["it was not there"])[-1]
                raise PageError(f"{name} could not be fetched with {command[0]}: {reason}")
            os.replace(Path(folder) / name, kept)
    if hashlib.sha256(kept.read_bytes()).hexdigest() != part["sha256"]:
        raise PageError(f"{kept} has an unexpected hash. Delete it, then build again.")
    return kept


def _runtime(package: Path) -> dict[str, bytes]:
    with tarfile.open(package) as archive:
        files = {name: archive.extractfile(f"package/{name}").read()  # type: ignore[union-attr]
                 for name in PYODIDE["files"]}  # fmt: skip
    lock = json.loads(files["pyodide-lock.json"]) | {"packages": {}}
    return {
        "pyodide.js": files["pyodide.mjs"].replace(b"pyodide.asm.mjs", b"pyodide.asm.js"),
        "pyodide.asm.js": files["pyodide.asm.mjs"],
        "pyodide.asm.wasm.bin": _squeeze(files["pyodide.asm.wasm"]),
        "pyodide-lock.json": json.dumps(lock).encode(),
        "python_stdlib.zip": _library(package, files["python_stdlib.zip"]),
    }


def _compiled(package: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Python files as bytecode for the Python that will run them; the result is kept."""
    digest = hashlib.sha256(package.name.encode() + COMPILE.read_bytes())
    for name, content in files.items():
        digest.update(f"{name} {len(content)} ".encode() + content)
    kept = CACHE / f"compiled-{digest.hexdigest()[:16]}.zip"
    if not kept.exists():
        with TemporaryDirectory(dir=CACHE) as folder:
            runtime, source, made = (Path(folder) / name for name in ("package", "from", "to"))
            with tarfile.open(package) as archive:
                archive.extractall(folder, filter="data")
            source.write_bytes(_zipped(files))
            library = max(CACHE.glob("library-*.zip"), default=runtime / "python_stdlib.zip")
            command = ["node", str(COMPILE), *map(str, (runtime, library, source, made))]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise PageError(f"Python's files could not be compiled:\n{done.stderr.strip()}")
            os.replace(made, kept)
    with zipfile.ZipFile(kept) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _library(package: Path, whole: bytes) -> bytes:
    """Python's library, compiled, without the modules that are not needed."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        names = [
            n
            for n in archive.namelist()
            if not n.startswith(tuple(PARTS["library"]["not_needed"])) and n[-1] != "/"
        ]
        library = _zipped(_compiled(package, {name: archive.read(name) for name in names}))
    (CACHE / f"library-{package.stem}.zip").write_bytes(library)
    return library


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


def _python(msgspec: Path) -> dict[str, bytes]:
    """The files that Python finds in the browser."""
    with zipfile.ZipFile(msgspec) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()
                 if name.startswith("msgspec/") and not name.endswith((".pyi", "/"))}  # fmt: skip
    for package in packages():
        paths = [package / name for name in PARTS[package.name].get("files", ())]
        for part in PARTS[package.name].get("folders", ()):
            for kind in ("*.py", "*.txt", "*.toml"):
                paths += sorted((package / part).rglob(kind))
        files |= {p.relative_to(package.parent).as_posix(): p.read_bytes() for p in paths}
    texts = [*sorted(DATA.glob("scenarios/*.txt")), *sorted(DATA.glob("exercises/*.txt"))]
    return files | {f"isrlab/data/{p.parent.name}/{p.name}": p.read_bytes() for p in texts}


def _logs(folder: Path) -> dict[str, bytes]:
    """The logs of a recording, also metadata logs, without the files that describe it."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.parent != folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _archive(files: Mapping[str, bytes]) -> bytes:
    index = json.dumps({name: len(content) for name, content in files.items()}).encode()
    return struct.pack("<I", len(index)) + index + b"".join(files.values())


def _folder(out: Path, name: str, files: Mapping[str, bytes]) -> str:
    """Write files to a folder named after a digest of them; returns the folder's name."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file} {len(files[file])} ".encode() + files[file])
    folder = out / f"{name}-{digest.hexdigest()[:12]}"
    folder.mkdir()
    for file, content in files.items():
        (folder / file).write_bytes(content)
    return folder.name

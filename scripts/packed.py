"""Gzipped weights of fixtures, for the scripts that make and read them. Go tests read them with internal/golden."""
import contextlib
import gzip
import pathlib
import shutil
import tempfile


def pack(file):
    """Replaces file by file.gz. Equal files give equal bytes: the header has no time."""
    file = pathlib.Path(file)
    file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    file.unlink()


@contextlib.contextmanager
def unpacked(folder):
    """Gives folder, if none of its weights are gzipped, else a copy of the same name with unpacked weights, for the time of the block."""
    folder = pathlib.Path(folder)
    files = list(folder.glob("*.safetensors.gz"))
    if not files:
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        copy = pathlib.Path(place) / folder.name
        shutil.copytree(folder, copy)
        for file in files:
            (copy / file.name).unlink()
            (copy / file.name.removesuffix(".gz")).write_bytes(gzip.decompress(file.read_bytes()))
        yield copy

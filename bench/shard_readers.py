"""Other programs that read a shard: `python -m bench.shard_readers`, also part of `make judges`.

Some print the first row; the others read all ids, names of axes and features, which are compared to
the bit. docs/lab/judges.md has the results.
"""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

import pipeline

PROJECT = Path(__file__).resolve().parents[1]
NODE = PROJECT / ".judges" / "node_modules"

# Programs that print the id and three values of the first row of the shard, which is their last
# argument. Octave cannot read texts of variable length, and R and Octave have the axes reversed.
READERS = (
    ("h5ls", ("sh", "-c", "h5ls -d $0/ids | head -n 3; h5ls -d $0/features | head -n 4")),
    ("h5dump", ("sh", "-c", "h5dump -d ids -s 0 -c 1 $0; h5dump -d features -s 0,0 -c 1,3 $0")),
    (
        "Rscript",
        (
            "Rscript",
            "-e",
            'f <- hdf5r::H5File$new(commandArgs(TRUE), "r");'
            'cat(f[["ids"]][1], f[["features"]][1:3, 1])',
        ),
    ),
    (
        "octave",
        (
            *("sh", "-c"),
            "octave --quiet --eval \"x = load('-hdf5', '$0', 'features').features;"
            " printf('%.6g ', x(1:3, 1))\"",
        ),
    ),
    (
        "jsfive",
        (
            *("node", "--input-type=module", "-e"),
            'import {readFileSync} from "fs"; import {File} from "jsfive";'
            "const b = readFileSync(process.argv[1]);"
            "const f = new File(b.buffer.slice(b.byteOffset, b.byteOffset + b.length));"
            'console.log(f.get("ids").value[0], ...f.get("features").value.slice(0, 3))',
        ),
    ),
)

# Programs of Python and of Node.js that print ids, names of axes, and the SHA-256 of the features,
# as JSON; those of Python begin with `READ` and end with `PRINT`.
READ = "import hashlib, json, sys; path = sys.argv[1]\n"
PRINT = """
ids = [i.decode() if isinstance(i, bytes) else i for i in ids]
print(json.dumps([ids, axes, hashlib.sha256(features.tobytes()).hexdigest()]))
"""
_OF_XARRAY = """
ids, axes, features = data.ids.values.tolist(), list(data.features.dims), data.features.values
"""
_OPEN_REFERENCES = """
data = xarray.open_dataset("reference://", engine="zarr", consolidated=False,
    backend_kwargs={"storage_options": {"fo": references, "simple_templates": False}})
"""
PYTHON = (
    (
        "xarray, h5netcdf",
        ("xarray", "h5netcdf", "h5py"),
        "import xarray; data = xarray.open_dataset(path, engine='h5netcdf')" + _OF_XARRAY,
    ),
    (
        "xarray, netCDF4",
        ("xarray", "netCDF4"),
        "import xarray; data = xarray.open_dataset(path, engine='netcdf4')" + _OF_XARRAY,
    ),
    (
        "kerchunk, zarr, xarray",
        ("kerchunk", "h5py", "jinja2", "xarray", "zarr"),
        "import xarray; from kerchunk.hdf import SingleHdf5ToZarr\n"
        "references = SingleHdf5ToZarr(path).translate()" + _OPEN_REFERENCES + _OF_XARRAY,
    ),
    (
        "VirtualiZarr, zarr, xarray",
        ("virtualizarr[hdf]==2.5.1",),
        "import xarray; from obspec_utils.registry import ObjectStoreRegistry\n"
        "from obstore.store import LocalStore; from virtualizarr.parsers import HDFParser\n"
        "store = HDFParser()('file://' + path, ObjectStoreRegistry({'file://': LocalStore()}))\n"
        "data = xarray.open_dataset(store, engine='zarr', consolidated=False, zarr_format=3)"
        + _OF_XARRAY,
    ),
    (
        "our references, zarr, xarray",
        ("fsspec", "jinja2", "xarray", "zarr"),
        "import xarray; references = path + '.json'" + _OPEN_REFERENCES + _OF_XARRAY,
    ),
    (
        "pyfive",
        ("pyfive",),
        "import pyfive; data = pyfive.File(path); features = data['features']\n"
        "axes = [axis[0].name.strip('/') for axis in features.dims]\n"
        "ids, features = data['ids'][:].tolist(), features[:]",
    ),
)
_H5WASM = """
import {createHash} from "crypto"; import * as h5 from "h5wasm/node"; await h5.ready;
const features = new h5.File(process.argv[1], "r").get("features");
const ids = new h5.File(process.argv[1], "r").get("ids").value;
const axes = features.shape.map((_, axis) => features.get_attached_scales(axis)[0].slice(1));
const value = features.value;
const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
console.log(JSON.stringify([ids, axes, createHash("sha256").update(bytes).digest("hex")]));
"""


def main() -> None:
    """Read a shard with every program."""
    with tempfile.TemporaryDirectory() as folder:
        read_a_shard(Path(folder))


def read_a_shard(work: Path) -> None:
    """Print the first row of a shard by other programs, and whether all of it is the same."""
    images = work / "images"
    images.mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(256, size=(32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / f"é{number}.png")
    (images / "é9.png").write_bytes(b"\x89PNG")
    pipeline.extract(images, work / "features", recipe="dct-thumbnail")
    features = pipeline.read_features(work / "features")
    print("the first row is", features.ids[0], *features.read([features.ids[0]])[0, :3])
    (shard,) = (work / "features").glob("*.h5")
    pipeline.export(features, shard.with_name(f"{shard.name}.json"), allow_failed=True)
    # Node.js finds its packages from the folder that it runs in.
    here = NODE.parent if NODE.exists() else work
    for name, words in READERS:
        if (read := ended(name, [*words, shard], here, 300)) is not None:
            found = re.findall(r"é0\.png|-?\d+\.\d{3,}", read.stdout)
            print(f"{name}: {' '.join(found[:4]) or read.stderr.strip()[-300:]}", flush=True)
    axes = features.index.header.axes.split(", ")
    expected = [list(features.ids), axes, hashlib.sha256(features[:].tobytes()).hexdigest()]
    for name, command in programs():
        if (read := ended(name, [*command, shard], here, 300)) is None:
            continue
        try:
            same = json.loads(read.stdout.strip().splitlines()[-1]) == expected
        except (IndexError, ValueError):
            last = (read.stderr or read.stdout).strip().splitlines()[-1:]
            print(f"{name}: failed: {''.join(last)}", flush=True)
        else:
            print(f"{name}: {'equal' if same else read.stdout.strip()}", flush=True)


def programs() -> list[tuple[str, list[str]]]:
    """Return the programs that print ids, names of axes and a hash, by name."""
    python = ("python", "-W", "ignore", "-c")
    return [
        *(
            (name, ["uvx", "--quiet", *_with(packages), *python, READ + code + PRINT])
            for name, packages, code in PYTHON
        ),
        ("h5wasm", ["node", "--input-type=module", "-e", _H5WASM]),
    ]


def _with(packages: Sequence[str]) -> list[str]:
    return [word for package in packages for word in ("--with", package)]


def ended(
    name: str, command: Sequence[str | Path], folder: Path, seconds: int
) -> subprocess.CompletedProcess[str] | None:
    """Run a program in a folder; return None with a line if it is missing or exceeds its time."""
    words = [str(part) for part in command]
    program = words[2] if words[0] == "env" else words[0]  # env PYTHONPATH=... PROGRAM
    if not shutil.which(program):
        print(f"{name}: skipped, {program} is not installed", flush=True)
        return None
    try:
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"{name}: stopped after {seconds} s", flush=True)
        return None


if __name__ == "__main__":
    main()

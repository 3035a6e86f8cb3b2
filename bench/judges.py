"""External tools run on the project: `python -m bench.judges [--pages DIR...] [--url URL]`.

Without options they check the package and a shard; with options also the HTML pages in folders and
a running `pipeline serve`. uvx installs the Python tools in environments of their own, and
`make judges` installs those of Node.js in `.judges/`; missing programs are skipped.
docs/judges.md has the results, and the exceptions with reasons.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from pathlib import Path
from threading import Thread

import numpy as np
from PIL import Image

import pipeline

PROJECT = Path(__file__).resolve().parents[1]
NODE = PROJECT / ".judges" / "node_modules"

# Name, command of uvx, and the pattern of the score in what it prints.
PACKAGE = (
    ("validate-pyproject", "validate-pyproject pyproject.toml", "(?:V|Inv)alid file.*"),
    ("check-wheel-contents", "check-wheel-contents {dist}", r"OK$|W\d+.*"),
    ("twine check", "twine check --strict {dist}", "PASSED|FAILED|ERROR.*"),
    ("pyroma", "pyroma --min 8 .", "Final rating: .*"),
    ("sp-repo-review", "--from sp-repo-review[cli] repo-review .", r"[A-Z]+\d+ .* ❌"),
    ("zizmor", "zizmor --offline .github", r"No findings.*|\d+ findings.*"),
    (
        "check-jsonschema",
        "check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/ci.yml",
        "ok.*|.*errors.*",
    ),
    ("cffconvert", "cffconvert --validate", ".*valid.*"),
    ("deptry", "deptry . --requirements-files {requirements}", r"Success.*|Found \d+.*"),
    ("vulture", "vulture pipeline stages --min-confidence 80", ".*confidence.*"),
    ("interrogate", "interrogate --fail-under 75 pipeline stages", "actual: [0-9.%]+"),
    (
        "pyright",
        "pyright --verifytypes pipeline --ignoreexternal",
        "Type completeness score: .*",
    ),
)

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
        "pyfive",
        (
            *("uvx", "--quiet", "--with", "pyfive", "python", "-c"),
            "import pyfive, sys; f = pyfive.File(sys.argv[1])\n"
            "print(f['ids'][0], *f['features'][0][:3])",
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
    (
        "h5wasm",
        (
            *("node", "--input-type=module", "-e"),
            'import * as h5 from "h5wasm/node"; await h5.ready;'
            'const f = new h5.File(process.argv[1], "r");'
            'const row = f.get("features").slice([[0, 1], [0, 3]]);'
            'console.log(f.get("ids").slice([[0, 1]])[0], ...row)',
        ),
    ),
)

# Judges of a page at a URL.
PA11Y = ("pa11y", "--config", PROJECT / "bench" / "pa11y.json")
LOCAL = r"^https?://(?!127\.0\.0\.1)"
PAGES = (
    ("axe-core and HTML_CodeSniffer", PA11Y, r"\d+ Errors|No issues.*"),
    ("linkinator", ("linkinator", "--recurse", "--skip", LOCAL), r"(?:Successfully|ERROR).*"),
    (
        "lighthouse",
        (
            *("lighthouse", "--quiet", "--chrome-flags=--headless=new --no-sandbox"),
            *("--output=json", "--only-categories=accessibility,best-practices,seo"),
        ),
        r'"score": [0-9.]+\n\s+}',
    ),
)
# Judges of a running server, which they ask for things that it should refuse.
SERVER = (
    (
        "schemathesis",
        "schemathesis run bench/serve.openapi.json --url {url} --max-examples 40 --seed 1 "
        "--exclude-checks positive_data_acceptance",
        r"\d+ (?:failed|passed|generated).*|Failures:.*|No issues.*",
    ),
    (
        "wapiti",
        "--from wapiti3 wapiti -u {url} --scope folder --max-scan-time 20 --max-attack-time 12 "
        "--flush-session "
        "-m csp,cookieflags,http_headers,crlf,exec,file,redirect,sql,xss "
        "-f txt -o {work}/wapiti.txt --no-bugreport",
        r"\d+ .*vulnerab.*|.*: +\d+ vuln.*|Report.*",
    ),
)


def main() -> None:
    """Run all judges selected by the options."""
    parser = argparse.ArgumentParser(prog="bench.judges", description=__doc__)
    parser.add_argument("--pages", type=Path, nargs="+", default=[], help="folders of HTML")
    parser.add_argument("--url", help="of a running `pipeline serve`, on 127.0.0.1")
    given = parser.parse_args()
    os.environ["PATH"] += os.pathsep + str(Path(sys.executable).parent)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        subprocess.run(["uv", "build", "--quiet", "--out-dir", work, "."], cwd=PROJECT, check=True)
        (wheel,) = work.glob("*.whl")
        requirements = work / "requirements.txt"  # deptry does not read setup.cfg
        extras_of_developers = re.compile(r'extra == "(dev|docs)"')
        (built,) = distributions(path=[str(wheel)])
        needs = built.requires or ()
        lines = [need.split(";")[0] for need in needs if not extras_of_developers.search(need)]
        requirements.write_text("\n".join(lines), encoding="utf-8")
        for name, command, score in PACKAGE:
            made = {"dist": str(wheel), "requirements": str(requirements)}
            _judge(name, _uvx_of(command, **made), score)
        _read_a_shard(work)
        for pages in given.pages:
            vnu = ("java", "-jar", NODE / "vnu-jar/build/dist/vnu.jar", "--skip-non-html")
            _judge(f"vnu {pages}", (*vnu, "--errors-only", pages.absolute()), "error: .*")
            with _served(pages) as url:
                _judge_page(f"{url}index.html")
        if given.url:
            _judge_page(given.url)
            for name, command, score in SERVER:
                _judge(name, _uvx_of(command, url=given.url, work=folder), score)


def _uvx_of(command: str, **values: str) -> list[str]:
    """Return a command of uvx, with the names in braces filled in.

    deptry and pyright read the installed packages of this environment.
    """
    path = [f"PYTHONPATH={PROJECT}{os.pathsep}{sysconfig.get_path('purelib')}"]
    reads = command.startswith(("deptry", "pyright"))
    uvx = ["uvx", "--quiet", *command.format(**values).split()]
    return ["env", *path, *uvx] if reads else uvx


def _judge(name: str, command: Sequence[str | Path], score: str) -> None:
    """Run a judge in the project; print its status and the first 12 lines of its score."""
    ended = _ended(name, command, PROJECT, 1800)
    if ended is None:
        return
    found = [line.strip() for line in re.findall(score, ended.stdout + ended.stderr, re.MULTILINE)]
    print(
        f"{name}: status {ended.returncode}, {len(found)} lines; {'; '.join(found[:12])}",
        flush=True,
    )


def _ended(
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


def _judge_page(url: str) -> None:
    """Run the judges of a page opened in chromium."""
    for name, command, score in PAGES:
        # The URL is first: lighthouse would read it as one more of its categories.
        program = NODE / ".bin" / command[0]
        _judge(f"{name} {url}", (program, url, *command[1:]), score)


def _read_a_shard(work: Path) -> None:
    """Print the first row of a shard as read by other programs, next to this package's."""
    images = work / "images"
    images.mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(256, size=(32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images / f"{number}.png")
    pipeline.extract(images, work / "features", recipe="dct-thumbnail")
    features = pipeline.read_features(work / "features")
    print("the first row is", features.ids[0], *features.read([features.ids[0]])[0, :3])
    (shard,) = (work / "features").glob("*.h5")
    for name, command in READERS:
        # Node.js finds its packages from the folder that it runs in.
        ended = _ended(name, [*command, shard], NODE.parent if NODE.exists() else work, 300)
        if ended is None:
            continue
        found = re.findall(r"0\.png|-?\d+\.\d{3,}", ended.stdout)
        print(f"{name}: {' '.join(found[:4]) or ended.stderr.strip()[-300:]}", flush=True)


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """Serve a folder on a port of 127.0.0.1; yield its URL."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


if __name__ == "__main__":
    main()

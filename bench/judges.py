"""External tools run on the project: `python -m bench.judges [--pages DIR...] [--url URL]`.

Without options they check the package and a shard; with options also the HTML pages in folders and
a running `pipeline serve`. uvx installs the Python tools in environments of their own, and
`make judges` installs those of Node.js in `.judges/`; missing programs are skipped.
docs/lab/judges.md has the results, and the exceptions with reasons.
"""

import argparse
import os
import re
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

from bench.shard_readers import NODE, ended, read_a_shard

PROJECT = Path(__file__).resolve().parents[1]

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
        read_a_shard(work)
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
    result = ended(name, command, PROJECT, 1800)
    if result is None:
        return
    found = [
        line.strip() for line in re.findall(score, result.stdout + result.stderr, re.MULTILINE)
    ]
    print(
        f"{name}: status {result.returncode}, {len(found)} lines; {'; '.join(found[:12])}",
        flush=True,
    )


def _judge_page(url: str) -> None:
    """Run the judges of a page opened in chromium."""
    for name, command, score in PAGES:
        # The URL is first: lighthouse would read it as one more of its categories.
        program = NODE / ".bin" / command[0]
        _judge(f"{name} {url}", (program, url, *command[1:]), score)


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

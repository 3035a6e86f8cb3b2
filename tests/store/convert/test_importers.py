"""Foreign layouts, written here as their authors' programs do, become feature sets."""

import base64
import json
import zipfile
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from safetensors.numpy import save_file
from scipy.io import savemat

from pipeline.datasets.checks import DatasetError
from pipeline.datasets.prepare import prepare
from pipeline.store.builder.feature_build import ShardBuild
from pipeline.store.convert.importers.arrays import MatFeatures, NpyFeatures
from pipeline.store.convert.importers.bottom_up import NpzFolderFeatures, TsvFeatures
from pipeline.store.convert.importers.boxes import read_boxes
from pipeline.store.convert.importers.groups import GroupFeatures
from pipeline.store.convert.importers.import_features import import_features
from pipeline.store.convert.importers.source import ImportSource, import_rows
from pipeline.store.convert.importers.tables import TableFeatures
from pipeline.store.convert.merge import merge
from pipeline.store.errors import WrongUsage
from pipeline.store.hashing import sha256_of_file
from pipeline.store.shards.feature_set import FeatureSet
from pipeline.store.shards.format import OtherShard, ShardError
from pipeline.store.shards.verify import verify
from tests.project import Recorder
from tests.store.shards.factories import block, build, header, ids

RNG = np.random.default_rng(0)
NAMES = ["c.jpg", "a/b.jpg", "a.jpg"]


def imported(source: ImportSource, out: Path, **options: object) -> FeatureSet:
    import_rows(source, out, "made", **options)  # type: ignore[arg-type]
    assert verify(out).faults == []
    return FeatureSet(out)


def write_tsv(path: Path, values: np.ndarray, names: list[str], newline: str = "\n") -> np.ndarray:
    """Write bottom-up attention's TSV; return the boxes."""
    boxes = RNG.random((*values.shape[:2], 4), np.float32)
    lines = [
        "\t".join(
            [name, "640", "480", str(len(box))]
            + [base64.b64encode(part.tobytes()).decode() for part in (box, value)]
        )
        for name, box, value in zip(names, boxes, values, strict=True)
    ]
    path.write_text(newline.join(lines) + newline, newline="")
    return boxes


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_npy(tmp_path: Path, dtype: str) -> None:
    values = RNG.standard_normal((3, 5)).astype(dtype)
    path = tmp_path / "x_ims.npy"
    np.save(path, np.asfortranarray(values))
    features = imported(NpyFeatures(path, NAMES), tmp_path / "out", note="from a friend")
    stored = "float16" if dtype == "float16" else "float32"
    assert features.index.header.dtype == stored
    np.testing.assert_array_equal(features.read(NAMES), values.astype(stored))
    header = features.index.header
    assert (header.weights, header.weights_sha256) == ("unknown", "0" * 64)
    assert header.recipe == {
        "name": "imported",
        "source_format": "npy",
        "source_file": "x_ims.npy",
        "source_sha256": sha256_of_file(path),
        "source_dtype": np.dtype(dtype).name,
        "note": "from a friend",
    }
    assert header.axes == "row, channel"


def test_npy_with_five_rows_an_image(tmp_path: Path) -> None:
    values = RNG.standard_normal((3, 2, 4)).astype(np.float32)
    path = tmp_path / "x.npy"
    np.save(path, np.repeat(values, 5, axis=0))
    repeated = [name for name in NAMES for _ in range(5)]
    for number, given in enumerate((NAMES, repeated)):
        features = imported(NpyFeatures(path, given, 5), tmp_path / f"out{number}")
        np.testing.assert_array_equal(features.read(NAMES), values)
        assert features.index.header.axes == "row, region, channel"
    with pytest.raises(ShardError, match="read every 5 rows as one"):
        NpyFeatures(path, NAMES)
    with pytest.raises(ShardError, match="expected one id 5 times"):
        NpyFeatures(path, repeated[::-1][:7] + repeated[:8], 5)
    with pytest.raises(ShardError, match="not a multiple of 4"):
        NpyFeatures(path, NAMES, 4)
    wrong = np.repeat(values, 5, axis=0)
    wrong[8, 0, 0] += 1
    np.save(path, wrong)
    with pytest.raises(ShardError, match=r"x\.npy, row 5, id 'a/b\.jpg': the 5 rows differ"):
        imported(NpyFeatures(path, NAMES, 5), tmp_path / "other")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_named(tmp_path: Path, bad: float) -> None:
    values = np.ones((15, 4), np.float32)
    values[10:] = bad
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(ShardError, match=r"x\.npy, row 10, id 'a\.jpg': holds inf"):
        imported(NpyFeatures(tmp_path / "x.npy", NAMES, 5), tmp_path / "out")


def test_arrays_that_are_not_rows_of_floats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(ShardError, match="pickled"):
        NpyFeatures(path, NAMES)
    for array, text in ((np.zeros((3, 2), np.int64), "int64"), (np.zeros(3), "found 1 axes")):
        np.save(path, array)
        with pytest.raises(ShardError, match=text):
            NpyFeatures(path, NAMES)
    np.save(path, np.zeros((3, 2)))
    for names, text in (
        (["a", "b", "a"], "more than once"),
        (["a", "../b", "c"], "leaves"),
        (["a", "b"], "2 ids"),
    ):
        with pytest.raises(ShardError, match=text):
            imported(NpyFeatures(path, names), tmp_path / "out")
    with pytest.raises(ShardError, match="one for the rows and one for each axis"):
        imported(NpyFeatures(path, NAMES), tmp_path / "out", axes="row")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mat(tmp_path: Path, dtype: str) -> None:
    values = RNG.standard_normal((6, 3)).astype(dtype)
    path = tmp_path / "vgg_feats.mat"
    savemat(path, {"feats": values, "other": np.zeros(3)})
    features = imported(MatFeatures(path, NAMES), tmp_path / "out")
    np.testing.assert_array_equal(features.read(NAMES), values.T.astype(np.float32))
    with pytest.raises(ShardError, match="no variable 'x'"):
        MatFeatures(path, NAMES, "x")
    with pytest.raises(ShardError, match="2 ids"):
        MatFeatures(path, NAMES[:2])
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(ShardError, match="download is complete"):
        MatFeatures(path, NAMES)
    with pytest.raises(ShardError, match=r"no\.mat not found"):
        MatFeatures(tmp_path / "no.mat", NAMES)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_bottom_up_tsv(tmp_path: Path, newline: str) -> None:
    path, names = tmp_path / "x.tsv", ["150367", "7", "12"]
    values = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    boxes = write_tsv(path, values, names, newline)
    features = imported(TsvFeatures(path), tmp_path / "features")
    np.testing.assert_array_equal(features.read(names), values)
    assert features.index.header.recipe["source_sha256"] == sha256_of_file(path)
    features = imported(TsvFeatures(path, "boxes"), tmp_path / "boxes")
    np.testing.assert_array_equal(features.read(names), boxes)


def test_bottom_up_tsv_faults_name_the_line(tmp_path: Path) -> None:
    path, names = tmp_path / "x.tsv", ["150367", "7", "12"]
    values = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    write_tsv(path, values, names)
    lines = path.read_text().splitlines()
    write_tsv(tmp_path / "other.tsv", values[:, :3], names)
    others = (tmp_path / "other.tsv").read_text().splitlines()
    for changed, text in (
        ([lines[0], others[1]], r"x\.tsv, line 2, id '7': 3 boxes .* fixed number"),
        ([lines[0], ""], r"line 2: found 1 columns"),
        ([lines[0], lines[1][:-1] + "!"], r"line 2, id '7': not base64"),
        ([lines[0], lines[1].replace("7\t", "150367\t", 1)], "more than once"),
        ([], "empty"),
    ):
        path.write_text("\n".join(changed) + "\n" * bool(changed))
        with pytest.raises(ShardError, match=text):
            imported(TsvFeatures(path), tmp_path / "out")


def test_repeated_lines_of_a_tsv_count_once(tmp_path: Path) -> None:
    path, names = tmp_path / "x.tsv", ["150367", "7"]
    values = RNG.standard_normal((2, 4, 5)).astype(np.float32)
    write_tsv(path, values, names)
    first, second = path.read_text().splitlines()
    path.write_text("\ufeff" + "\n".join([first, second, second, first.removeprefix("\ufeff"), ""]))
    logged: list[str] = []
    features = imported(source := TsvFeatures(path, log=logged.append), tmp_path / "out")
    assert features.ids == names
    np.testing.assert_array_equal(features.read(names), values)
    assert "left out 2 repeated lines, first ['7', '150367']" in logged[0]
    assert source.where(1).endswith("line 2")
    assert sorted(read_boxes(path)) == sorted(names)


def test_a_folder_of_npz_files(tmp_path: Path) -> None:
    folder = tmp_path / "npz"
    folder.mkdir()
    values = {n: RNG.standard_normal((4, 5)).astype(np.float32) for n in ("b", "a", "c")}
    for name, value in values.items():
        np.savez(folder / f"{name}.npz", features=value, bbox=value[:, :4])
    (folder / "below").mkdir()
    (folder / "c.npz").rename(folder / "below/c.v2.jpg.npz")
    (folder / "d.NPZ").touch()
    (folder / "e.npz").symlink_to("nowhere")
    (folder / "f").symlink_to(folder / "below")
    logged: list[str] = []
    features = imported(NpzFolderFeatures(folder, log=logged.append), tmp_path / "out")
    assert features.ids == ["a", "b", "below/c.v2.jpg"]
    assert logged == [f"{folder}: left out 3 names, first ['d.NPZ', 'e.npz', 'f']"]
    np.testing.assert_array_equal(features.row("b"), values["b"])
    with pytest.raises(ShardError, match="known:"):
        NpzFolderFeatures(folder, "x")
    np.savez(folder / "b.npz", features=values["b"][:3])
    with pytest.raises(ShardError, match=r"b\.npz: .* fixed number"):
        imported(NpzFolderFeatures(folder), tmp_path / "other")
    np.savez(folder / "b.npz", features=np.array([None]))
    with pytest.raises(ShardError, match=r"b\.npz is damaged or not"):
        imported(NpzFolderFeatures(folder), tmp_path / "other")
    with pytest.raises(ShardError, match=r"no \.npz"):
        NpzFolderFeatures(tmp_path / "out")


def test_hdf5_groups(tmp_path: Path) -> None:
    path = tmp_path / "feats.h5"
    values = {name: RNG.standard_normal(5).astype(np.float32) for name in NAMES}
    with h5py.File(path, "w") as file:
        for name, value in values.items():
            file.create_group(name)["global_descriptor"] = value
        file["elsewhere"] = h5py.ExternalLink("secret.h5", "/")
        file["soft"] = h5py.SoftLink("/" + NAMES[0])
        file["a circle/up"] = file["/"]
        file.create_group("broken.jpg")["other"] = [1.0]
        file["flat.jpg"] = file["a/flat.jpg"] = np.ones(5, np.float32)
    logged: list[str] = []
    features = imported(GroupFeatures(path, log=logged.append), tmp_path / "out")
    assert [line.partition(": ")[2] for line in logged] == [
        "left out 2 datasets next to groups, first ['a/flat.jpg', 'flat.jpg']",
        "left out 3 links, first ['a circle/up', 'elsewhere', 'soft']",
        "left out 2 groups without a dataset 'global_descriptor', first ['a circle', 'broken.jpg']",
    ]
    assert sorted(features.ids) == sorted(NAMES)
    np.testing.assert_array_equal(features.read(NAMES), [values[name] for name in NAMES])
    with pytest.raises(ShardError, match="name the right dataset"):
        GroupFeatures(path, "keypoints")
    with h5py.File(path, "r+") as file:
        file.create_group("d.jpg")["global_descriptor"] = np.zeros(6, np.float32)
    with pytest.raises(ShardError, match=r"d\.jpg/global_descriptor"):
        GroupFeatures(path)


@pytest.mark.usefixtures("tried_apart")
def test_a_file_of_absurd_depth_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.h5"
    with h5py.File(path, "w", libver="latest") as file:
        group = file.create_group("g/" * 3000)
        group["global_descriptor"] = group["boxes"] = np.zeros((1, 4), np.float32)
    into_set = partial(import_features, out=tmp_path / "out", layout="groups", dataset="x")
    for read in (into_set, read_boxes):
        with pytest.raises(ShardError, match=r"deep\.h5 is (damaged|not a readable).*depth"):
            read(path)


def part(folder: Path, rows: list[int], **changes: object) -> FeatureSet:
    """Make a set of some of the sample's rows."""
    with ShardBuild(folder, header(**changes), [ids(23)[row] for row in rows]) as work:
        for number, row in enumerate(rows):
            work.append(number, block(row, row + 1, failed=(3, 17)))
        work.publish()
    return FeatureSet(folder)


def test_merged_parts_are_the_whole(tmp_path: Path) -> None:
    build(tmp_path / "whole", 23)
    parts = [part(tmp_path / "a", [*range(9)]), part(tmp_path / "b", [*range(7, 23)])]
    merge(parts, tmp_path / "out", rows_per_shard=10)
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    parts = [part(tmp_path / "c", [*range(9, 23)], created_by="other"), parts[0]]
    merge(parts, tmp_path / "turned")
    turned = FeatureSet(tmp_path / "turned")
    assert turned.ids == ids(23)[9:] + ids(23)[:9]
    assert turned.index.header.created_by == "other; tests"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"recipe": {"name": "made", "scale": 2}}, "scale 2 .requested: 1"),
        ({"weights": "x"}, "weights 'x'"),
        ({"weights_sha256": "1" * 64}, "weights_sha256"),
        ({"dataset": "x"}, "dataset 'x'"),
        ({"dtype": "float16"}, "dtype 'float16'"),
        ({"axes": "row, a, b"}, "axes"),
    ],
)
def test_other_features_are_not_merged(
    tmp_path: Path, changes: dict[str, object], text: str
) -> None:
    sets = [part(tmp_path / "a", [0, 1]), part(tmp_path / "b", [2], **changes)]
    with pytest.raises(OtherShard, match=text):
        merge(sets, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_different_rows_of_one_id_are_not_merged(tmp_path: Path) -> None:
    first = part(tmp_path / "a", [0, 1])
    with h5py.File(part(tmp_path / "b", [1, 2]).folder / "shard-00000-of-00001.h5", "r+") as file:
        file["crc32"][0] = 1
    with pytest.raises(ShardError, match=r"row 1 of .*a and row 0 of .*b, with another crc32"):
        merge([first, FeatureSet(tmp_path / "b")], tmp_path / "out")


def test_merging_into_a_set_that_is_there_offers_nothing_that_merge_has_not(
    tmp_path: Path,
) -> None:
    sets = [part(tmp_path / "a", [0, 1]), part(tmp_path / "b", [2])]
    part(tmp_path / "out", [0])
    with pytest.raises(OtherShard, match="choose another output folder") as caught:
        merge(sets, tmp_path / "out")
    assert "add" not in str(caught.value)


def test_damaged_npy_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((3, 4), np.float32))
    sound = path.read_bytes()
    damaged = [b"PK\x03\x04", b"PK\x03\x04" + sound, b"", sound[:9], sound[:-1]]
    damaged += [sound.replace(b"'descr'", b'"""(scr')]
    damaged += [sound.replace(b"(3, 4)", size) for size in (b"(-3,4)", b"(3,4.)", b"(9**9)")]
    damaged += [sound[:10] + byte * 54 + sound[64:] for byte in (b"(", b"\x00", b"[", b"\\")]
    # numpy's memory map of this one ends the process: an integer division by zero.
    damaged += [sound.replace(b"<f4", b"|V0").replace(b"(3, 4)", b"(-1,) ")]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(ShardError, match=r"x\.npy is damaged or not a \.npy file of numbers"):
            NpyFeatures(path, NAMES)


def test_damaged_npz_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, features=np.arange(64, dtype=np.float32).reshape(4, 16))
    sound = path.read_bytes()
    method = sound.index(b"PK\x01\x02") + 10
    changes = [sound[:60] + b"\xff" * 20 + sound[80:], sound[:-30], b"PK\x03\x04", b"x"]
    changes += [sound[:method] + bytes([value]) + sound[method + 1 :] for value in (1, 99)]
    changes += [sound[: method - 2] + b"\x01" + sound[method - 1 :]]
    with zipfile.ZipFile(tmp_path / "text.zip", "w") as file:
        file.writestr("features", "no array")
    changes += [(tmp_path / "text.zip").read_bytes()]
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    changes += [(tmp_path / "x.npy").read_bytes()]
    for data in changes:
        path.write_bytes(data)
        with pytest.raises(ShardError, match=r"a\.npz is damaged or not an \.npz file of numbers"):
            NpzFolderFeatures(tmp_path)


def test_a_number_of_boxes_that_python_cannot_convert_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    write_tsv(path, np.ones((2, 1, 2), np.float32), ["a", "b"])
    first, second = path.read_text().splitlines()
    fields = second.split("\t")
    path.write_text("\n".join([first, "\t".join([*fields[:3], "9" * 5000, *fields[4:]])]) + "\n")
    with pytest.raises(ShardError, match=r"x\.tsv, line 2: .* number of boxes"):
        TsvFeatures(path)


TABLES = ["hdf5", "per-image", "parquet", "fixed", "safetensors"]


def write_table(path: Path, kind: str, names: list[str] | None, values: np.ndarray) -> None:
    """Write rows and ids in one of the layouts."""
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["features"] = values
            file["boxes"] = np.zeros((len(values), 4))
            if names is not None:
                file["image_ids"] = names
    elif kind == "per-image":
        with h5py.File(path, "w") as file:
            for name, row in zip(names or [], values, strict=True):
                file[name] = row
    elif kind == "safetensors":
        save_file({"x": values}, path, {"ids": json.dumps(names)} if names else None)
    else:
        vectors: object = [*values]
        if kind == "fixed":
            vectors = pyarrow.FixedSizeListArray.from_arrays(values.reshape(-1), values.shape[1])
        columns = {"vector": vectors, "caption": ["x"] * len(values)}
        pyarrow.parquet.write_table(
            pyarrow.table(columns | ({} if names is None else {"image_path": names})), path
        )


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_with_ids_beside_them(tmp_path: Path, kind: str, dtype: str) -> None:
    layout = {"per-image": "hdf5", "fixed": "parquet"}.get(kind, kind)
    names = [name.replace("/", "-") for name in NAMES]
    values, path = RNG.standard_normal((3, 5)).astype(dtype), tmp_path / "theirs"
    write_table(path, kind, names, values)
    import_features(path, tmp_path / "out", layout=layout, dataset="made")
    assert verify(tmp_path / "out").faults == []
    stored = "float16" if dtype == "float16" else "float32"
    np.testing.assert_array_equal(FeatureSet(tmp_path / "out").read(names), values.astype(stored))
    if kind == "per-image":
        return
    write_table(path, kind, None, values)
    with pytest.raises(ShardError, match="no column of ids"):
        import_features(path, tmp_path / "none", layout=layout, dataset="made")
    with pytest.raises(ShardError, match="3 rows, but there are 2 ids"):
        import_features(path, tmp_path / "few", layout=layout, dataset="made", ids=["a", "b"])
    import_features(path, tmp_path / "given", layout=layout, dataset="made", ids=names)
    np.testing.assert_array_equal(FeatureSet(tmp_path / "given").read(names), values.astype(stored))
    with pytest.raises(ShardError, match="theirs has"):
        import_features(path, tmp_path / "no", layout=layout, dataset="made", array="other")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ShardError, match="theirs is damaged"):
        import_features(path, tmp_path / "cut", layout=layout, dataset="made", ids=names)


def test_arrays_of_a_file_are_different_features(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["ids"], file["none"] = NAMES, np.ones((3, 0))
        file["features"], file["fc"] = RNG.standard_normal((2, 3, 5))
    into = partial(import_features, tmp_path / "x.h5", layout="hdf5", dataset="made")
    first = into(tmp_path / "out")
    with pytest.raises(OtherShard, match="source_array"):
        into(tmp_path / "out", array="fc")
    assert into(tmp_path / "fc", array="fc").header.recipe_hash != first.header.recipe_hash
    with pytest.raises(ShardError, match=r"rows of shape \(0,\), which hold no numbers"):
        into(tmp_path / "none", array="none")
    with pytest.raises(WrongUsage, match="`every=0` is below 1"):
        into(tmp_path / "none", every=0)


def test_ids_of_clip_retrieval(tmp_path: Path) -> None:
    values = RNG.standard_normal((3, 5)).astype(np.float16)
    np.save(tmp_path / "img_emb_0.npy", values)
    pyarrow.parquet.write_table(
        pyarrow.table({"caption": ["x"] * 3, "image_path": NAMES}), tmp_path / "metadata_0.parquet"
    )
    import_features(
        tmp_path / "img_emb_0.npy", tmp_path / "out", layout="npy", dataset="made",
        ids=tmp_path / "metadata_0.parquet",
    )  # fmt: skip
    np.testing.assert_array_equal(FeatureSet(tmp_path / "out").read(NAMES), values)


def test_vectors_of_two_lengths_are_refused(tmp_path: Path) -> None:
    ragged = pyarrow.table({"id": ["a", "b"], "v": [[1.0, 2.0], [3.0]]})
    pyarrow.parquet.write_table(ragged, tmp_path / "x.parquet")
    with pytest.raises(ShardError, match=r"lengths \{1, 2\}"):
        import_features(tmp_path / "x.parquet", tmp_path / "out", layout="parquet", dataset="made")


def test_what_a_file_with_one_dataset_per_image_has_besides_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a.jpg"] = file["b.jpg"] = np.ones(4)
        file["soft.jpg"], file["gone.jpg"] = h5py.SoftLink("/a.jpg"), h5py.SoftLink("/none")
        file["in/c.jpg"] = np.full(4, 2.0)
        file["in/circle"] = file["/"]
        file.create_dataset("raw.jpg", (4,), "f4", external=[("raw", 0, 16)])
    logged: list[str] = []
    features = imported(TableFeatures(path, "hdf5", "", None, logged.append), tmp_path / "out")
    assert features.ids == ["a.jpg", "b.jpg", "in/c.jpg"]
    np.testing.assert_array_equal(features.row("in/c.jpg"), np.full(4, 2.0, np.float32))
    (line,) = logged
    assert "left out 4 names of links or data of other files" in line
    assert "['gone.jpg', 'in/circle', 'raw.jpg', 'soft.jpg']" in line
    with h5py.File(path, "a") as file:
        file["rows"] = np.ones((3, 4))
        file["ids"] = h5py.SoftLink("/a.jpg")
    with pytest.raises(ShardError, match="'ids' is a link"):
        TableFeatures(path, "hdf5", "rows", None, logged.append)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_occur_twice_are_refused(tmp_path: Path) -> None:
    one, other = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        for array in (one, other):
            with file.open("features.npy", "w") as member:
                np.lib.format.write_array(member, array)
    with pytest.raises(ShardError, match=r"a\.npz has the array 'features' more than once"):
        NpzFolderFeatures(tmp_path)
    for version in ("4", "5"):
        parts = []
        for array in (one, other):
            savemat(tmp_path / "x.mat", {"feats": array.T}, format=version)
            parts.append((tmp_path / "x.mat").read_bytes())
        both = parts[0] + parts[1][128 if version == "5" else 0 :]
        (tmp_path / "x.mat").write_bytes(both)
        with pytest.raises(ShardError, match="'feats' occurs 2 times"):
            MatFeatures(tmp_path / "x.mat", NAMES)
    tensor = '"x":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}'
    ids = '"ids":"[\\"a\\",\\"b\\",\\"c\\"]"'
    header = f'{{"__metadata__":{{{ids},{ids}}},{tensor}}}'.encode()
    stored = len(header).to_bytes(8, "little") + header + one.tobytes()
    (tmp_path / "x.safetensors").write_bytes(stored)
    with pytest.raises(ShardError, match="the key 'ids' more than once"):
        TableFeatures(tmp_path / "x.safetensors", "safetensors", "", None, len)


def test_paths_of_images_become_the_ids_of_a_dataset(tmp_path: Path) -> None:
    rows = [{"path": f"{name}.png", "caption": "a dog", "id": name} for name in "aabbc"]
    for row in rows:
        (tmp_path / "photos").mkdir(exist_ok=True)
        (tmp_path / "photos" / row["path"]).touch()
    prepare(rows, tmp_path / "mine", root=tmp_path / "photos")
    ids = ["photos/b.png", str(tmp_path / "photos/a.png"), "a", "other.png", "b"]
    values, monitor = RNG.standard_normal((5, 4)).astype(np.float32), Recorder()
    np.save(tmp_path / "x.npy", values)
    into = partial(
        import_features, tmp_path / "x.npy", layout="npy", ids=ids, dataset=tmp_path / "mine"
    )
    into(tmp_path / "captions", captions=True, monitor=monitor)
    features = FeatureSet(tmp_path / "captions")
    assert features.ids == ["b#0", "a#0", "a#1", "other.png#0", "b#1"]
    np.testing.assert_array_equal(features.read(features.ids), values)
    assert features.index.header.dataset == "mine"
    assert monitor.lines == ["1 of 5 ids are not in mine, first ['other.png']"]
    into(tmp_path / "named", ids=features.ids, monitor=(named := Recorder()))
    assert named.lines == ["1 of 5 ids are not in mine, first ['other.png#0']"]
    with pytest.raises(ShardError, match=r"1 image with fewer captions .*'a' with 2 and 3"):
        into(tmp_path / "more", captions=True, ids=["a", "b", "a", "c.png", "a"])
    with pytest.raises(ShardError, match=r"2 ids occur more than once, first \['b', 'a'\]"):
        into(tmp_path / "images")
    with pytest.raises(DatasetError, match="not a prepared dataset"):
        into(tmp_path / "images", dataset=tmp_path / "none")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([b"a", "caf\u00e9".encode()], ["a", "caf\u00e9"]),
        ([7, 12], ["7", "12"]),
        ([1.0, 2.0], "row 0: the id is 1.0, expected a text or a whole number"),
    ],
)
def test_ids_are_texts_or_whole_numbers(tmp_path: Path, ids: list, expected: object) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"id": ids, "v": [[1.0]] * 2}), tmp_path / "parquet")
    with h5py.File(tmp_path / "hdf5", "w") as file:
        file["ids"], file["features"] = np.array(ids), np.ones((2, 1))
    for layout in ("parquet", "hdf5"):
        into = partial(TableFeatures, tmp_path / layout, layout, "", None, len)
        if isinstance(expected, list):
            assert into().ids == expected
        else:
            with pytest.raises(ShardError, match=str(expected)):
                into()
    for given in ("null", '{"a": 1, "b": 2}', '["a", null]', '"ab"'):
        save_file({"x": np.ones((2, 1), np.float32)}, tmp_path / "s", {"ids": given})
        with pytest.raises(ShardError, match="Expected `"):
            TableFeatures(tmp_path / "s", "safetensors", "", None, len)


def test_lists_of_texts_are_no_vectors(tmp_path: Path) -> None:
    columns = {"id": ["a"], "captions": [["A dog."]], "vector": [[1.0, 2.0]]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "x")
    features = TableFeatures(tmp_path / "x", "parquet", "", None, len)
    np.testing.assert_array_equal(features.read(0, 1), [[1, 2]])
    pyarrow.parquet.write_table(pyarrow.table({**columns, "other": [[3.0]]}), tmp_path / "x")
    with pytest.raises(ShardError, match=r"\['vector', 'other'\] are vectors .* name one"):
        TableFeatures(tmp_path / "x", "parquet", "", None, len)


def test_columns_that_occur_twice_and_vectors_that_are_null(tmp_path: Path) -> None:
    columns = [pyarrow.array(column) for column in (["a"], ["b"], [[1.0]])]
    for names, match in (
        (["id", "id", "v"], "found 'id' more than once"),
        (["id", "v", "v"], "found 'v' more than once"),
        (["id", "v"], r"lengths \{None\}, expected one"),
    ):
        table = pyarrow.Table.from_arrays(columns[: len(names)], names=names)
        if len(names) == 2:
            table = pyarrow.table({"id": ["a"], "v": pyarrow.array([None], columns[2].type)})
        pyarrow.parquet.write_table(table, tmp_path / "x")
        with pytest.raises(ShardError, match=match):
            TableFeatures(tmp_path / "x", "parquet", "", None, len)

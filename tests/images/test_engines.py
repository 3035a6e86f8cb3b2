"""The fast engine against the reference: folding, fusing, and the sharing of ten crops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from pipeline.images import network
from pipeline.images.backbones.known_backbones import BACKBONES
from pipeline.images.engine.fuse import (
    Convolution,
    Layers,
    PlainConvolution,
    PlainLayers,
    Tracing,
    rewrite,
)
from pipeline.images.engine.onednn import OneDnnLayers
from pipeline.images.engine.ten_crops import SharedTenCrops, share_ten_crops, shared_steps, steps_of
from pipeline.images.engine.winograd import WinogradConvolution, applicable, toom_cook
from pipeline.images.network import RecipeNetwork
from pipeline.images.recipes import Crop, resolve_recipe
from pipeline.images.transforms import crop_offsets, cut_crops
from pipeline.images.weights import load_weights, seeded_state
from tests.allocator import return_memory
from tests.images.networks.small import use_narrow_networks
from tests.images.odd_files import photo


class Block(nn.Module):
    """A residual block with a choice of how its sum is written and what follows it."""

    def __init__(self, channels: int, stride: int, groups: int, last: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, stride, 1, groups=groups, bias=False)
        self.norm1, self.relu = nn.BatchNorm2d(channels), nn.ReLU6()
        self.second = nn.Conv2d(channels, channels, 1)
        self.norm2 = nn.BatchNorm2d(channels, affine=False)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(channels, channels, 1, stride), nn.BatchNorm2d(channels))
            if stride > 1
            else nn.Identity()
        )
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        """Return last(branch + shortcut)."""
        y = self.norm2(self.second(self.relu(self.norm1(self.first(x)))))
        y += self.shortcut(x)
        return self.last(y)


class Net(nn.Module):
    """Blocks, a value that is read twice, even and uneven padding, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(3, 8, 3), nn.ReLU())
        self.blocks = nn.Sequential(
            Block(8, 1, 1, nn.ReLU()), Block(8, 2, 4, nn.Identity()), Block(8, 1, 8, nn.ReLU())
        )
        self.uneven = nn.Sequential(
            nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 8, 3, 2),
            nn.ZeroPad2d((1, 3, 0, 1)), nn.Conv2d(8, 8, 5, 2, padding=1, groups=8, bias=False),
            nn.BatchNorm2d(8), nn.ReLU6(),
        )  # fmt: skip
        self.again = nn.Conv2d(8, 8, 1)
        self.dense = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 4))

    def forward(self, x: Tensor) -> Tensor:
        """Return rows."""
        x = self.uneven(self.blocks(self.stem(x)))
        x = torch.add(self.again(x), x) * torch.sigmoid(x)
        return self.dense[:3](x.mean((2, 3)))


class Hazards(nn.Module):
    """Steps that careless fusing would reorder, overwrite or misfit."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.inplace, self.relu6 = nn.ReLU(inplace=True), nn.ReLU6()
        self.norm, self.dense, self.gelu = nn.BatchNorm2d(8), nn.Linear(6, 6), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Return maps."""
        x = x + 0.5
        if self.kind == "overwritten input":
            y = self.a(x)
            x = self.inplace(x)
            return y + self.b(x)
        if self.kind == "overwritten by a function":
            y = self.a(x)
            x.mul_(2)
            return y + self.b(x)
        if self.kind == "overwritten before the norm":
            y = self.a(x)
            x = self.inplace(x)
            return self.norm(y) + self.b(x)
        if self.kind == "overwritten before the GELU":
            y = self.dense(x)
            x = self.inplace(x)
            return self.gelu(y) + self.b(x)
        if self.kind == "view of the addend":
            y = self.a(x)
            v = y.flatten(2)
            z = y + self.b(x)
            return z * v.view_as(z)
        if self.kind == "alias of the addend":
            y = self.a(x)
            r = self.inplace(y)
            z = y + self.b(r)
            return z * r
        if self.kind == "broadcast branch":
            return self.inplace(x + self.b(x.mean((2, 3), keepdim=True)))
        if self.kind == "broadcast addend":
            return self.a(x.mean((2, 3), keepdim=True)) + self.b(x)
        if self.kind == "ReLU6 of a sum":
            return self.relu6(self.a(x) + self.b(x))
        if self.kind == "keyword":
            return self.b(input=self.a(x))
        y = self.a(x)
        z = y + self.b(x)
        return z + y


HAZARDS = (
    "overwritten input", "overwritten by a function", "overwritten before the norm",
    "overwritten before the GELU", "view of the addend", "alias of the addend",
    "broadcast branch", "broadcast addend", "ReLU6 of a sum", "keyword", "addend read later",
)  # fmt: skip


class Undecided(nn.Module):
    """A network whose steps depend on its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x or -x."""
        return x if x.sum() > 0 else -x


def seeded(net: nn.Module) -> nn.Module:
    """Give a network varied weights and statistics."""
    net.load_state_dict(seeded_state(net, 0, ""), strict=False)
    return net.eval()


@pytest.mark.parametrize("size", [7, 16])
@pytest.mark.parametrize("batch", [1, 3])
@torch.inference_mode()
def test_a_rewritten_network_computes_the_same(size: int, batch: int) -> None:
    net = seeded(Net())
    x = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0))
    expected = net(x)
    folded = rewrite(net, PlainLayers())
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.modules())
    assert sum(isinstance(m, PlainConvolution) for m in folded.modules()) == 11
    torch.testing.assert_close(folded.double()(x.double()), net.double()(x.double()))
    net.float()
    fused = rewrite(net, OneDnnLayers(torch.float32))
    assert [m.padding for m in fused.modules() if isinstance(m, nn.ZeroPad2d)] == [(0, 1, 0, 1)]
    x = x.contiguous(memory_format=torch.channels_last)
    for _ in range(2):
        torch.testing.assert_close(fused(x), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(net(x.contiguous()), expected), "the given network is not changed"


@pytest.mark.parametrize("kind", HAZARDS)
@torch.inference_mode()
def test_a_rewriting_keeps_the_order_of_what_is_overwritten(kind: str) -> None:
    net = seeded(Hazards(kind))
    x = torch.randn(2, 8, 6, 6, generator=torch.Generator().manual_seed(0))
    x = x.contiguous(memory_format=torch.channels_last)
    expected = net(x)
    for layers in (PlainLayers(), OneDnnLayers(torch.float32)):
        rewritten = rewrite(net, layers).float()
        torch.testing.assert_close(rewritten(x), expected, rtol=1e-4, atol=1e-5)


class Mlp(nn.Module):
    """Fully connected layers with each activation that is fused, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(5))
        self.gelu, self.relu, self.silu = nn.GELU(), nn.ReLU(), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return rows of 6."""
        a, b, c, d, e = self.layers
        x = F.gelu(b(self.gelu(a(x))), approximate="tanh")
        found: Tensor = F.gelu(e(self.silu(d(self.relu(c(x))))))
        return found


@pytest.mark.parametrize("shape", [(3, 6), (2, 5, 6)])
@torch.inference_mode()
def test_activations_are_fused_into_fully_connected_layers(shape: tuple[int, ...]) -> None:
    net = seeded(Mlp())
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for layers in (PlainLayers(), OneDnnLayers(torch.float32)):
        rewritten = rewrite(net, layers)
        assert isinstance(rewritten, fx.GraphModule)
        functions = [node for node in rewritten.graph.nodes if node.op == "call_function"]
        assert functions == []
        torch.testing.assert_close(rewritten(x), net(x), rtol=1e-5, atol=1e-6)


def test_what_cannot_be_traced_runs_as_it_is() -> None:
    net = Undecided()
    assert rewrite(net, PlainLayers()) is net


class NormThenActivation(nn.BatchNorm2d):
    """A library's own module of two layers."""

    def forward(self, x: Tensor) -> Tensor:
        """Return tanh(norm(x)); a tracer that looks in here stumbles."""
        assert x.shape[0] > 0
        return torch.tanh(super().forward(x))


@torch.inference_mode()
def test_parts_take_the_place_of_a_leaf() -> None:
    def parts(module: nn.Module) -> tuple[nn.Module, ...]:
        if not isinstance(module, NormThenActivation):
            return ()
        norm = nn.BatchNorm2d(5).eval()
        norm.load_state_dict(module.state_dict())
        return norm, nn.Tanh()

    net = seeded(nn.Sequential(nn.Conv2d(3, 5, 3), NormThenActivation(5), nn.Conv2d(5, 2, 1)))
    x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    rewritten = rewrite(net, PlainLayers(), Tracing((NormThenActivation,), parts=parts))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in rewritten.modules())
    torch.testing.assert_close(rewritten.float()(x), net(x), rtol=1e-5, atol=1e-6)
    whole = rewrite(net, PlainLayers(), Tracing((NormThenActivation,)))
    torch.testing.assert_close(whole.float()(x), net(x), rtol=1e-5, atol=1e-6)


class Lite(nn.Module):
    """A network that no test knows, with or without steps that depend on its input."""

    def __init__(self, undecided: bool) -> None:
        super().__init__()
        self.conv, self.undecided = nn.Conv2d(3, 4, 3), Undecided() if undecided else nn.ReLU()
        # Of more dimensions than channels-last memory knows.
        self.table = nn.Parameter(torch.zeros(1, 1, 1, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return maps."""
        found: Tensor = self.undecided(self.conv(x))
        return found


@pytest.mark.parametrize("cause", ["cannot be traced", "rows differ by 1", ""])
def test_a_network_that_no_test_knows_is_compared_first(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> nn.Module:
        return Lite(cause == "cannot be traced")

    backbone = replace(BACKBONES["vgg16"], build=build, tested=False)
    monkeypatch.setitem(BACKBONES, "vgg16", backbone)
    if cause == "rows differ by 1":
        monkeypatch.setattr(network, "rewrite", lambda net, *given: _Doubled(net))
    recipe = replace(
        resolve_recipe("vgg16-squash-fc7"), tap="undecided", activation="none", shape=(222, 222, 4),
        axes="row, cell_y, cell_x, channel",
    )  # fmt: skip
    state = load_weights(recipe, "random:0").state
    canvas = torch.from_numpy(np.array(photo(3, 224, 224))[None, None])
    fast = RecipeNetwork(recipe, state)
    assert (cause in fast.remark) if cause else fast.remark == ""
    reference = RecipeNetwork(recipe, state, engine="reference")
    assert reference.remark == ""
    torch.testing.assert_close(fast(canvas), reference(canvas), rtol=1e-4, atol=1e-5)


class _Doubled(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.net(x)


def stack(poolings: int, seed: int = 0) -> nn.Sequential:
    """Return a small stack of VGG's kind."""
    layers: list[nn.Module] = []
    channels = 3
    for block in range(poolings):
        for _ in range(1 + block % 2):
            layers += [nn.Conv2d(channels, 5 + block, 3, padding=1), nn.ReLU(inplace=True)]
            channels = 5 + block
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("canvas", "size"), [(64, 48), (64, 56), (40, 32), (48, 16), (34, 32), (33, 32), (32, 32)]
)
@pytest.mark.parametrize("poolings", [1, 3])
@torch.inference_mode()
def test_shared_ten_crops_are_ten_crops(canvas: int, size: int, poolings: int) -> None:
    plain = seeded(stack(poolings)).double()
    offsets = crop_offsets(canvas, canvas, Crop("ten", size))
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (2, canvas, canvas, 3), dtype=np.uint8)
    canvases = torch.from_numpy(pixels).double().permute(0, 3, 1, 2)
    cut = torch.from_numpy(
        np.concatenate([cut_crops(canvas, Crop("ten", size)) for canvas in pixels])
    )
    expected = plain(cut.double().permute(0, 3, 1, 2))
    shared = share_ten_crops(plain, offsets, canvas, size, PlainLayers())
    if shared is None:
        assert (canvas - size) % 4 or canvas - size == 0 or size == 16
        return
    torch.testing.assert_close(shared.double()(canvases), expected, rtol=1e-12, atol=1e-12)


def test_the_geometry_decides_what_is_shared() -> None:
    vgg = seeded_free_vgg()
    steps = steps_of(vgg)
    assert len(steps) == 21

    def poolings(canvas: int, size: int) -> int:
        offsets = crop_offsets(canvas, canvas, Crop("ten", size))
        count = shared_steps(steps, offsets, canvas, size, PlainLayers())
        return sum(step.convolution is None for step in steps[:count])

    assert poolings(256, 224) == 4
    assert [poolings(size + 32, size) for size in (224, 225)] == [4, 0]
    assert [poolings(224 + margin, 224) for margin in (4, 8, 16)] == [1, 2, 3]
    assert [poolings(canvas, 224) for canvas in (224, 255)] == [4, 0]
    assert steps_of(nn.Conv2d(3, 3, 3)) == [] == steps_of(nn.Sequential(nn.MaxPool2d(2)))


def seeded_free_vgg() -> nn.Module:
    """Return VGG-19's stack without any memory for its weights."""
    import torchvision

    with torch.device("meta"):
        features: nn.Module = torchvision.models.vgg19().features
    return features


@pytest.mark.parametrize("name", ["vgg19-fc7-10crop", "efficientnet-lite0-pool"])
def test_both_engines_agree_on_a_picture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten crops, shared and one by one: below 1e-6; a deep network gathers a little more."""
    use_narrow_networks(monkeypatch)
    recipe = resolve_recipe(name)
    state = load_weights(recipe, "random:0").state
    canvas = np.asarray(photo(3, 256, 256).resize((recipe.resize.size,) * 2))
    rows = {}
    for engine in ("reference", "fast"):
        network = RecipeNetwork(recipe, state, engine=engine)
        shares_crops = network.shares_crops
        assert shares_crops == (name == "vgg19-fc7-10crop" and engine == "fast")
        rows[engine] = network(torch.from_numpy(cut_crops(canvas, network.window)[None]))
        del network
        return_memory()
    reference, fast = rows["reference"], rows["fast"]
    assert reference.shape == (1, *recipe.shape)
    limit = 1e-6 if shares_crops else 5e-6
    assert float((fast - reference).norm() / reference.norm()) < limit


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_narrow_arithmetic_stays_near(precision: str) -> None:
    recipe = resolve_recipe("efficientnet-lite0-pool")
    state = load_weights(recipe).state
    canvas = torch.from_numpy(np.array(photo(3, 224, 224))[None, None])
    exact = RecipeNetwork(recipe, state)(canvas)
    narrow = RecipeNetwork(resolve_recipe(recipe.name, precision), state)(canvas)
    difference = float((narrow - exact).norm() / exact.norm())
    assert 1e-5 < difference < {"bf16": 0.05, "fp16": 0.01}[precision]


@pytest.mark.parametrize("shape", [(1, 5, 1, 1), (3, 4, 7, 10), (2, 6, 16, 13)])
@pytest.mark.parametrize("activation", ["none", "relu", "hardtanh"])
@torch.inference_mode()
def test_winograds_algorithm_is_a_convolution(shape: tuple[int, ...], activation: str) -> None:
    module = nn.Conv2d(shape[1], 7, 3, padding=1, bias=activation != "none")
    seeded(module).double()
    convolution = Convolution.of(module)
    assert convolution is not None
    assert applicable(convolution)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = x.contiguous(memory_format=torch.channels_last)
    limits = {"none": (-1e9, 1e9), "relu": (0.0, 1e9), "hardtanh": (-0.5, 0.5)}[activation]
    expected = module(x).clamp(*limits)
    winograd = WinogradConvolution(
        convolution, (activation, list(limits) if activation == "hardtanh" else [])
    )
    assert float((winograd(x.float()) - expected).norm() / expected.norm()) < 3e-6
    output, kernel, tile = toom_cook()
    signal, taps = np.arange(6.0) ** 2 - 3, np.array([2.0, -5.0, 0.5])
    found = output @ ((kernel @ taps) * (tile @ signal))
    np.testing.assert_allclose(found, np.correlate(signal, taps, "valid"), rtol=1e-12)


def test_layers_of_every_engine_take_other_padding() -> None:
    engines: list[Layers] = [PlainLayers(), OneDnnLayers(torch.float32)]
    x = torch.randn(1, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    found = []
    for layers in engines:
        shared = share_ten_crops(
            seeded(stack(1)), crop_offsets(32, 32, Crop("ten", 24)), 32, 24, layers
        )
        assert isinstance(shared, SharedTenCrops)
        with torch.inference_mode():
            found.append(shared.float()(x))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)

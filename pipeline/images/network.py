"""A recipe's network on a device: 8-bit crops in, feature rows out.

The reference engine runs the network as torchvision or its package defines it. The fast engine is
equivalent, but folds norms, fuses layers and shares the overlap of ten crops.
"""

from collections.abc import Iterator, Sequence
from queue import SimpleQueue

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.backbones.backbone import Backbone
from pipeline.images.backbones.known_backbones import backbone_named
from pipeline.images.engine.cudnn import CudnnLayers
from pipeline.images.engine.fuse import Layers, PlainLayers, Tracing, rewrite
from pipeline.images.engine.onednn import OneDnnLayers
from pipeline.images.engine.ten_crops import SharedTenCrops, share_ten_crops
from pipeline.images.recipes import Crop, Recipe, RecipeError
from pipeline.images.recipes.layers import GRID_AXES, ROW_AXES, TOKEN_AXES, TOKENS
from pipeline.images.tap import TappedNetwork
from pipeline.images.transforms import crop_offsets
from pipeline.store.devices import usable_device
from pipeline.store.jobs.options import ENGINES

# Batches on a GPU at once: one is copied while the other is computed.
AT_ONCE = 2

_AXES = {2: ROW_AXES, 3: TOKEN_AXES, 4: GRID_AXES}
# Limit on the relative difference between equivalent float32 networks; 1e-6 is typical.
_ROUNDING = 1e-4
_DTYPES = {
    "float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
}  # fmt: skip


class RecipeNetwork:
    """A recipe's network on a device; thread-safe."""

    def __init__(
        self,
        recipe: Recipe,
        state: dict[str, Tensor],
        device: str = "cpu",
        engine: str = "fast",
        also: Sequence[Recipe] = (),
    ) -> None:
        """Build the network and load its weights, a complete state dict of the backbone.

        `also` are recipes of other layers of the same network, for the same crops. TF32 is switched
        on or off for the whole process.
        """
        if engine not in ENGINES:
            raise RecipeError(f"no engine is called {engine!r}; known are {', '.join(ENGINES)}")
        self.recipe: Recipe = recipe
        self.recipes = (recipe, *also)
        self.device: torch.device = device_for(device, recipe)
        # To be cut before a call: the recipe's crop, or none if ten crops are shared.
        self.window: Crop = recipe.crop
        self._dtype = _DTYPES[recipe.precision]
        self._backbone = backbone = backbone_named(recipe.backbone)
        net = backbone.filled(state)
        tapped = TappedNetwork(net.eval().requires_grad_(False), backbone, *self.recipes)
        fast = engine == "fast"
        self._format = torch.channels_last if fast else torch.contiguous_format
        # Why the fast engine does not rewrite the network, or "".
        self.remark: str = ""
        trunk = self._fast(tapped) if fast else tapped
        self._trunk = trunk.to(self.device, self._dtype)
        for tensor in self.tensors():
            # Module.to fails on tensors with more dimensions.
            if tensor.ndim == 4:
                tensor.data = tensor.contiguous(memory_format=self._format)
        normalise = recipe.normalise
        self._mean = torch.tensor(normalise.mean, device=self.device)
        self._std = torch.tensor(normalise.std, device=self.device)
        tf32 = recipe.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        self._streams: SimpleQueue[torch.cuda.Stream] = SimpleQueue()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            # Each batch copies and computes on a stream of its own, so that copies overlap.
            for _ in range(AT_ONCE):
                self._streams.put(torch.cuda.Stream(self.device))

    @property
    def shares_crops(self) -> bool:
        """Whether the input is whole canvases, and the ten crops share their overlap."""
        return self.window is not self.recipe.crop

    def normalised(self, crops: Tensor) -> Tensor:
        """Return (n, 3, h, w) float32 input of (n, h, w, 3) RGB crops or canvases, 0 to 255."""
        if self.recipe.normalise.channels == "BGR":
            crops = torch.stack(crops.unbind(3)[::-1], 3)
        # Whole pixel rows: a loop over three channels would not use vector instructions.
        width = crops.shape[2]
        x, scale = crops.flatten(2), self.recipe.normalise.scale
        # The caller's own floats, which may need gradients, are not changed in place.
        x = x / scale if x.is_floating_point() else x.float().div_(scale)
        mean, std = self._mean.to(x.device), self._std.to(x.device)
        x = x.sub_(mean.repeat(width)).div_(std.repeat(width))
        x = x.unflatten(2, (width, 3)).permute(0, 3, 1, 2)
        return x.contiguous(memory_format=self._format)

    def tensors(self) -> Iterator[Tensor]:
        """Yield the weights as this engine stores them."""
        yield from self._trunk.parameters()
        yield from self._trunk.buffers()

    def modules(self) -> Iterator[nn.Module]:
        """Yield the layers as this engine runs them."""
        yield from self._trunk.modules()

    @property
    def trunk(self) -> nn.Module:
        """The network up to the tap."""
        return self._trunk

    def rows(self, windows: Tensor) -> Tensor:
        """As a call, with windows and rows on the device of the trunk, outside inference mode."""
        return self._rows(windows)[0]

    def __call__(self, windows: Tensor) -> Tensor:
        """Return features (images, *recipe.shape) float32 on the CPU.

        `windows` is (images, windows, h, w, 3) uint8 on the CPU, cut by `self.window`.
        """
        return self.every(windows)[0]

    @torch.inference_mode()
    def every(self, windows: Tensor) -> list[Tensor]:
        """Return the features of each recipe, of one forward pass; see `__call__`."""
        if self.device.type != "cuda":
            return self._rows(windows)
        stream = self._streams.get()
        try:
            with torch.cuda.stream(stream):
                rows = self._rows(windows.pin_memory().to(self.device, non_blocking=True))
                result = [torch.empty(some.shape, pin_memory=True) for some in rows]
                for target, some in zip(result, rows, strict=True):
                    target.copy_(some, non_blocking=True)
                # Sleeps; the stream's own wait would keep a core busy, which readers need.
                done = torch.cuda.Event(blocking=True)
                done.record()
                done.synchronize()
        finally:
            self._streams.put(stream)
        return result

    def _rows(self, windows: Tensor) -> list[Tensor]:
        outputs = self._trunk(self.normalised(windows.flatten(0, 1)).to(self._dtype))
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        return [
            self._row(output.float(), windows.shape[0], recipe)
            for output, recipe in zip(several, self.recipes, strict=True)
        ]

    def _row(self, output: Tensor, images: int, recipe: Recipe) -> Tensor:
        """Return (images, *recipe.shape) of the (images * windows, ...) output of a tap."""
        x = pooled(output, recipe, self._backbone).unflatten(0, (images, -1))
        x = x.mean(dim=1) if recipe.combine_crops == "mean" else x.squeeze(1)
        if recipe.norm == "l2":
            x = F.normalize(x, dim=-1)
        axes = _AXES.get(x.ndim, "none that are known")
        if (tuple(x.shape[1:]), axes) != (recipe.shape, recipe.axes):
            raise RecipeError(
                f"{recipe.name}: the layer {recipe.tap!r} with pool {recipe.pool!r} has rows of "
                f"{tuple(x.shape[1:])}, axes {axes!r}; the recipe states {recipe.shape}, axes "
                f"{recipe.axes!r}: read another layer, or correct pool, shape and axes"
            )
        return x.contiguous()

    def _fast(self, tapped: TappedNetwork) -> nn.Module:
        layers: Layers = PlainLayers()
        if self.device.type == "cpu" and OneDnnLayers.usable(self._dtype):
            layers = OneDnnLayers(self._dtype)
        elif self.device.type == "cuda":
            layers = CudnnLayers()
        net, resize = tapped.net, self.recipe.resize
        stack = getattr(net, "features", None)
        # A tap within the stack ends it.
        taps = (recipe.tap for recipe in self.recipes)
        within = any(f"{tap}.".startswith("features.") for tap in taps)
        ten = self.recipe.crop.rule == "ten" and resize.rule == "squash"
        if ten and stack is not None and not within:
            offsets = crop_offsets(resize.size, resize.size, self.recipe.crop)
            shared = share_ten_crops(stack, offsets, resize.size, self.recipe.crop.size, layers)
            if shared is not None:
                tapped.net.features = shared
                self.window = Crop("none", resize.size)
        tracing = self._backbone.tracing.with_leaf(SharedTenCrops)
        if not self._backbone.tested and (remark := self._difference(tapped, tracing)):
            name = self.recipe.backbone
            self.remark = f"{name} runs without the fast engine's fused layers: {remark}"
            return tapped
        return rewrite(tapped, layers, tracing)

    def _difference(self, tapped: TappedNetwork, tracing: Tracing) -> str:
        """Return why the fast engine is not equivalent, tested on one random batch; "" if it is."""
        single = OneDnnLayers.usable(torch.float32)
        layers: Layers = OneDnnLayers(torch.float32) if single else PlainLayers()
        rewritten = rewrite(tapped, layers, tracing)
        if rewritten is tapped:
            return "it cannot be traced"
        size, generator = self.recipe.crop.size, torch.Generator().manual_seed(0)
        x = torch.randn(2, 3, size, size, generator=generator)
        x = x.contiguous(memory_format=self._format)
        with torch.inference_mode():
            expected = tapped(x)
            try:
                actual = rewritten.float()(x)
            # As in tracing, a third-party model may fail in any way.
            except Exception as error:
                return f"once traced it fails ({type(error).__name__})"
        rows, others = (y if isinstance(y, tuple) else (y,) for y in (actual, expected))
        # A layer that returns several outputs, such as attention, is one proxy while it is traced.
        if len(rows) != len(others) or not all(isinstance(row, Tensor) for row in rows):
            return "once traced it has another output"
        difference = max(
            float((a - e).norm() / e.norm()) for a, e in zip(rows, others, strict=True)
        )
        if difference <= _ROUNDING:
            return ""
        return f"with them its rows differ by {difference:.1e} (relative), more than by rounding"


def pooled(output: Tensor, recipe: Recipe, backbone: Backbone) -> Tensor:
    """Apply a recipe's `pool` to the (n, ...) output of its tap, whose layout `backbone` defines.

    The result is (n, channels), (n, cell_y, cell_x, channels) or (n, tokens, channels).
    """
    try:
        layout = backbone.layout(tuple(output.shape[1:]))
        shape, _ = layout.row(recipe.pool)
    except RecipeError as error:
        raise RecipeError(
            f"{recipe.name}: pool {recipe.pool!r} does not fit layer {recipe.tap!r} with output "
            f"{tuple(output.shape[1:])}: {error}; set another pool, or read another layer"
        ) from error
    if recipe.pool in TOKENS.values():
        return output[:, layout.tokens(recipe.pool)].reshape(-1, *shape)
    if recipe.pool == "all tokens":
        return output
    if layout.kind == "tokens":
        output = output[:, sum(layout.prefix.values()) :].unflatten(1, layout.cells)
    elif layout.kind == "maps":
        output = output.permute(0, 2, 3, 1)
    if recipe.pool == "max over cells":
        return output.amax(dim=(1, 2))
    return output.mean(dim=(1, 2)) if recipe.pool == "mean over cells" else output


def device_for(name: str, recipe: Recipe) -> torch.device:
    """Return a torch device by name; raise if it does not exist or lacks the recipe's precision."""
    device = usable_device(name)
    if recipe.precision == "tf32" and device.type != "cuda":
        raise RecipeError(f"precision tf32 needs a CUDA device, not {name!r}; use float32")
    return device

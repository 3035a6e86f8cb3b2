"""Exact sharing of convolutions between the ten crops of a canvas.

A convolution of a crop differs from that of the whole canvas only near the sides where the crop
has zero padding and the canvas has pixels: a ring that grows by one cell per 3 x 3 convolution and
halves per 2 x 2 pooling. So the canvas and its mirror image run through the layers once, the rings
are computed separately, and the crops are assembled when the rings become too wide to pay off. This
requires that every window starts on the pooling grid: the windows of a 256 x 256 canvas do (0, 16,
32) up to the fourth pooling, those of most rectangles do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.images.engine.fuse import Convolution, Layers, rewrite

Offset = tuple[int, int]
_SIDES = ("top", "bottom", "left", "right")


@dataclass(frozen=True)
class Step:
    """One step of a plain stack."""

    convolution: nn.Conv2d | None
    """A 3 x 3 convolution that keeps the size, followed by a ReLU; None: a 2 x 2 max-pooling."""

    @property
    def layers(self) -> int:
        """Number of layers of the stack that this step replaces."""
        return 1 if self.convolution is None else 2


def share_ten_crops(
    stack: nn.Module, offsets: Sequence[Offset], canvas: int, size: int, layers: Layers
) -> "SharedTenCrops | None":
    """Return a stack for whole canvases in place of one for crops, if the geometry allows it.

    `stack` maps (n, 3, size, size) crops to maps. `offsets` are (top, left) of the five windows of
    the square canvas, symmetric about its vertical axis. None if the stack has other layers, or no
    window stays on the pooling grid long enough to save multiplications.
    """
    steps = steps_of(stack)
    if not (count := shared_steps(steps, offsets, canvas, size, layers)):
        return None
    rest = list(stack.children())[sum(step.layers for step in steps[:count]) :]
    return SharedTenCrops(
        [_layer(step, layers) for step in steps[:count]],
        rewrite(nn.Sequential(*rest), layers),
        offsets,
        canvas,
        size,
    )


def steps_of(stack: nn.Module) -> list[Step]:
    """Return the leading steps of a stack, up to its first layer of another type."""
    layers = list(stack.children()) if isinstance(stack, nn.Sequential) else []
    steps: list[Step] = []
    while layers:
        first = layers[0]
        if steps and _is_pooling(first):
            steps.append(Step(None))
        elif isinstance(first, nn.Conv2d) and _keeps_size(first) and _is_relu(layers[1:]):
            steps.append(Step(first))
        else:
            break
        layers = layers[steps[-1].layers :]
    return steps


def shared_steps(
    steps: Sequence[Step], offsets: Sequence[Offset], canvas: int, size: int, layers: Layers
) -> int:
    """Return the number of steps after which to assemble the crops; 0 if sharing never pays off.

    Minimises multiplications over the poolings up to which every window is on the pooling grid.
    """
    grid, ring = 1, 0
    shared = plain = 0.0
    best, saved = 0, 0.0
    for number, step in enumerate(steps, start=1):
        if step.convolution is None:
            # A pooling cell that is partly in the ring differs.
            ring = -(-ring // 2)
            grid *= 2
            # Off the grid, the pooling cells of a crop are not those of the canvas.
            if any(position % grid for position in (canvas, size, *sum(offsets, ()))):
                break
            if plain - shared > saved:
                best, saved = number, plain - shared
            continue
        ring += 1
        side = size // grid
        # The rings of opposite sides overlap: no part of the map is shared.
        if 2 * ring > side:
            break
        # Multiplications, up to the factor 9 of the kernel, which all terms have. Whole maps: once
        # per canvas in place of once per window; mirror images double both.
        cost = step.convolution.in_channels * step.convolution.out_channels
        whole = cost * layers.whole_map_cost(_convolution(step.convolution))
        strips = sum(sum(_inner_sides(top, left, canvas, size)) for top, left in offsets)
        shared += whole * (canvas // grid) ** 2 + cost * strips * ring * side
        plain += whole * len(offsets) * side**2
    return best


def _inner_sides(top: int, left: int, canvas: int, size: int) -> tuple[bool, bool, bool, bool]:
    """Return for each side of a window, in the order of `_SIDES`, whether it is inside."""
    return top > 0, top + size < canvas, left > 0, left + size < canvas


def _keeps_size(convolution: nn.Conv2d) -> bool:
    c = convolution
    geometry = (c.kernel_size, c.stride, c.padding, c.dilation, c.groups, c.padding_mode)
    return geometry == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros")


def _is_relu(layers: Sequence[nn.Module]) -> bool:
    return bool(layers) and type(layers[0]) is nn.ReLU


def _is_pooling(layer: nn.Module) -> bool:
    if type(layer) is not nn.MaxPool2d:
        return False
    geometry = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
    return geometry == (2, 2, 0, 1, False)


def _layer(step: Step, layers: Layers) -> nn.Module:
    if step.convolution is None:
        return nn.MaxPool2d(2)
    return layers.convolution(_convolution(step.convolution), ("relu", []))


def _convolution(module: nn.Conv2d) -> Convolution:
    convolution = Convolution.of(module)
    assert convolution is not None, "steps_of accepts only zero padding"
    return convolution


class _Window:
    """One window of all canvases: its position, and the strips in which it differs from them."""

    def __init__(self, top: int, left: int, canvas: int, size: int) -> None:
        inner = _inner_sides(top, left, canvas, size)
        self.sides = [side for side, inside in zip(_SIDES, inner, strict=True) if inside]
        self.top, self.left, self.size = top, left, size
        self.strips: dict[str, Tensor] = {}

    def map(self, canvas: Tensor) -> Tensor:
        """Return the window's whole map, (n, c, size, size)."""
        return self._cut(canvas, 0, self.size, 0, self.size)

    def band(self, canvas: Tensor, side: str, depth: int) -> Tensor:
        """Return the `depth` outermost rows or columns of the window's map at a side."""
        first, last = (0, depth) if side in ("top", "left") else (self.size - depth, self.size)
        if side in ("top", "bottom"):
            return self._cut(canvas, first, last, 0, self.size)
        return self._cut(canvas, 0, self.size, first, last)

    def pool(self, canvas: Tensor, depth: int) -> None:
        """Halve the window and its strips; `depth` (even) is the number of cells a strip needs."""
        # All bands first: each is cut with the previous strips of the other sides.
        bands = {side: self.band(canvas, side, depth) for side in self.sides}
        self.strips = {side: F.max_pool2d(band, 2) for side, band in bands.items()}
        self.top, self.left, self.size = self.top // 2, self.left // 2, self.size // 2

    def _cut(self, canvas: Tensor, top: int, bottom: int, left: int, right: int) -> Tensor:
        cut = canvas[
            :, :, self.top + top : self.top + bottom, self.left + left : self.left + right
        ].clone(memory_format=torch.channels_last)
        # Strips overlap in the corners, where either is right: each has its crop's zeros at its
        # ends.
        for side, strip in self.strips.items():
            wide = strip.shape[2 if side in ("top", "bottom") else 3]
            if side == "top" and top < wide:
                cut[:, :, : wide - top] = strip[:, :, top:bottom, left:right]
            elif side == "bottom" and (start := self.size - wide) < bottom:
                keep = max(top, start)
                cut[:, :, keep - top :] = strip[:, :, keep - start : bottom - start, left:right]
            elif side == "left" and left < wide:
                cut[:, :, :, : wide - left] = strip[:, :, top:bottom, left:right]
            elif side == "right" and (start := self.size - wide) < right:
                keep = max(left, start)
                cut[:, :, :, keep - left :] = strip[:, :, top:bottom, keep - start : right - start]
        return cut


class SharedTenCrops(nn.Module):
    """The shared layers of a stack for the ten crops of square canvases."""

    def __init__(
        self,
        shared: Sequence[nn.Module],
        rest: nn.Module,
        offsets: Sequence[Offset],
        canvas: int,
        size: int,
    ) -> None:
        super().__init__()
        # Before and after the crops are assembled; `shared` has `nn.MaxPool2d` and modules of
        # `Layers.convolution` for 3 x 3 convolutions.
        self.shared, self.rest = nn.ModuleList(shared), rest
        self.offsets, self.canvas, self.size = list(offsets), canvas, size
        # A mirrored window is at the place of another of the five on the mirrored canvas.
        self._mirrored = [
            self.offsets.index((top, canvas - size - left)) for top, left in self.offsets
        ]

    def forward(self, canvases: Tensor) -> Tensor:
        """Return the stack's output for the ten crops of (n, 3, canvas, canvas), (10 n, ...).

        The five windows of the first canvas, their mirrors in the same order, then the next canvas.
        """
        count = len(canvases)
        full = torch.cat([canvases, canvases.flip(3)]).contiguous(memory_format=torch.channels_last)
        windows = [_Window(top, left, self.canvas, self.size) for top, left in self.offsets]
        ring = 0
        for layer in self.shared:
            if isinstance(layer, nn.MaxPool2d):
                ring = -(-ring // 2)
                for window in windows:
                    window.pool(full, 2 * ring)
            else:
                ring += 1
                _convolve(windows, full, ring, layer)
            full = layer(full)
        # Each of the canvases and then their mirror images, channels, rows, columns.
        maps = [window.map(full) for window in windows]
        whole = [window[:count] for window in maps]
        mirrored = [maps[k][count:] for k in self._mirrored]
        crops = torch.stack([*whole, *mirrored], 1).flatten(0, 1)
        output: Tensor = self.rest(crops.contiguous(memory_format=torch.channels_last))
        return output


def _convolve(windows: list[_Window], full: Tensor, ring: int, layer: nn.Module) -> None:
    """Compute the strips of all windows; those of one direction have one shape: one batch."""
    computed: list[tuple[_Window, str, Tensor]] = []
    for way, padding in ((("top", "bottom"), [0, 1]), (("left", "right"), [1, 0])):
        places = [(window, side) for window in windows for side in window.sides if side in way]
        if not places:
            continue
        # `ring` outputs read one row or column more on the inner side, and zeros on the outer one.
        bands = [_with_zeros(window.band(full, side, ring + 1), side) for window, side in places]
        strips = layer(torch.cat(bands), padding=padding).chunk(len(places))
        computed += [(w, side, strip) for (w, side), strip in zip(places, strips, strict=True)]
    # Only now: bands of one side are cut with the previous strips of the others.
    for window, side, strip in computed:
        window.strips[side] = strip


def _with_zeros(band: Tensor, side: str) -> Tensor:
    """Pad the outer side of a band with the crop's own zeros."""
    left, right, top, bottom = (int(side == s) for s in ("left", "right", "top", "bottom"))
    return F.pad(band, (left, right, top, bottom))

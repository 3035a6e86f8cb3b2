"""Operator fusion: rewrites a traced network with batch norms folded into convolutions.

A batch norm after a convolution is folded into the convolution's weights (in float64). A following
residual addition and ReLU or ReLU6 are passed to the layer that replaces the convolution, which
computes them in the same pass. Everything else is left as it is.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

_ADDITIONS = (operator.add, operator.iadd, torch.add)
# Layers that neither keep a reference to their input nor modify it.
_PURE = (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)

Activation = tuple[str, list[float]]
"""("none", []), ("relu", []), or ("hardtanh", [low, high]), which includes ReLU6."""

LinearActivation = Literal["none", "relu", "gelu", "gelu tanh"]
"""Activation after a fully connected layer; the last is GELU's tanh approximation."""


@dataclass
class Convolution:
    """Weights and geometry of a 2-D convolution with zero padding."""

    weight: Tensor  # (out, in / groups, rows, columns) float64
    bias: Tensor | None  # (out,) float64
    padding: list[int]  # [rows, columns], like the next two
    stride: list[int]
    dilation: list[int]
    groups: int

    @classmethod
    def of(cls, module: nn.Conv2d) -> "Convolution | None":
        """Return a module's convolution, or None if its padding is not zeros."""
        if module.padding_mode != "zeros" or isinstance(module.padding, str):
            return None
        return cls(
            module.weight.detach().double(),
            None if module.bias is None else module.bias.detach().double(),
            list(module.padding),
            list(module.stride),
            list(module.dilation),
            module.groups,
        )

    def fold(self, norm: nn.BatchNorm2d) -> None:
        """Fold the following batch norm, in evaluation mode, into weight and bias."""
        mean, variance = norm.running_mean, norm.running_var
        if mean is None or variance is None:
            raise ValueError("a batch norm without running statistics cannot be folded")
        # y = (w x + b - mean) / sqrt(var + eps) * gamma + beta, in float64: the folded weights are
        # rounded once, when the network is converted to its dtype.
        scale = (variance.double() + norm.eps).rsqrt()
        shift = -mean.double() if self.bias is None else self.bias - mean.double()
        if norm.affine:
            scale = scale * norm.weight.double()
            self.bias = shift * scale + norm.bias.double()
        else:
            self.bias = shift * scale
        self.weight = self.weight * scale.view(-1, 1, 1, 1)


class Layers(Protocol):
    """Factory of the layers that replace convolutions and fully connected layers."""

    pads_depthwise: bool
    """Whether zero weights of a depthwise convolution cost less than a padded copy of its input."""

    def convolution(self, convolution: Convolution, activation: Activation) -> nn.Module:
        """Return a module of (x, addend, padding), both optional; it may overwrite the addend."""
        ...

    def whole_map_cost(self, convolution: Convolution) -> float:
        """Return the cost of a multiplication on a whole map, relative to one on a strip."""
        ...

    def linear(self, linear: nn.Linear, activation: LinearActivation) -> nn.Module:
        """Return a module that applies a fully connected layer and its activation."""
        ...


class PlainConvolution(nn.Module):
    """A folded convolution in torch's own operations, with in-place addition and activation.

    Its weights are float64 until the network is converted to its dtype.
    """

    def __init__(self, convolution: Convolution, activation: Activation) -> None:
        super().__init__()
        c = convolution
        self.weight = nn.Buffer(c.weight)
        self.bias = None if c.bias is None else nn.Buffer(c.bias)
        self.stride, self.padding = tuple(c.stride), tuple(c.padding)
        self.dilation, self.groups = tuple(c.dilation), c.groups
        self.activation, self.scalars = activation

    def forward(
        self, x: Tensor, other: Tensor | None = None, padding: list[int] | None = None
    ) -> Tensor:
        """Return activation(convolution(x) [+ other]), with `padding` in place of its own."""
        y = F.conv2d(
            x,
            self.weight,
            self.bias,
            self.stride,
            tuple(padding or self.padding),
            self.dilation,
            self.groups,
        )
        if other is not None:
            # With broadcasting, the sum may be larger than y.
            y = y + other if y.shape != other.shape else y.add_(other)
        if self.activation == "relu":
            return y.relu_()
        return y.clamp_(*self.scalars) if self.activation == "hardtanh" else y


class PlainLayers:
    """Layers in torch's own operations, for GPUs and where oneDNN has no kernels."""

    pads_depthwise = False

    def convolution(self, convolution: Convolution, activation: Activation) -> nn.Module:
        """Return a `PlainConvolution`."""
        return PlainConvolution(convolution, activation)

    def whole_map_cost(self, convolution: Convolution) -> float:
        """Return 1: a multiplication costs the same on a map and on a strip."""
        return 1.0

    def linear(self, linear: nn.Linear, activation: LinearActivation) -> nn.Module:
        """Return the layer unchanged, followed by its activation."""
        if activation == "none":
            return linear
        if activation == "relu":
            return nn.Sequential(linear, nn.ReLU(inplace=True))
        return nn.Sequential(linear, nn.GELU("tanh" if activation == "gelu tanh" else "none"))


@dataclass(frozen=True)
class Tracing:
    """Options for tracing networks with modules of other libraries."""

    leaves: tuple[type[nn.Module], ...] = ()  # module types that are not traced into
    functions: tuple[Callable[..., Any], ...] = ()  # functions that are not traced into
    # Splits a leaf into consecutive modules; empty: the leaf is not split.
    parts: Callable[[nn.Module], Sequence[nn.Module]] = lambda module: ()

    def with_leaf(self, leaf: type[nn.Module]) -> "Tracing":
        """Return the options with one more leaf."""
        return replace(self, leaves=(*self.leaves, leaf))


def rewrite(network: nn.Module, layers: Layers, tracing: Tracing = Tracing()) -> nn.Module:
    """Return a network that is equal up to rounding, with fewer passes over memory.

    `network`, in evaluation mode with float32 weights, is not modified. One that cannot be traced,
    such as one with data-dependent control flow, is returned unchanged.
    """
    tracer = _Tracer(tracing)
    try:
        graph = tracer.trace(network)
    # Tracing a third-party model may fail in any way; it then runs unfused.
    except Exception:
        return network
    rewritten = fx.GraphModule(tracer.root, graph)
    _split_leaves(rewritten, tracing)
    _Rewriting(rewritten, layers).run()
    rewritten.delete_all_unused_submodules()
    rewritten.recompile()
    return rewritten


class _Tracer(fx.Tracer):
    def __init__(self, tracing: Tracing) -> None:
        super().__init__(autowrap_functions=tracing.functions)
        self._leaves = tracing.leaves

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, self._leaves) or super().is_leaf_module(m, module_qualified_name)

    def path_of_module(self, mod: nn.Module) -> str:
        try:
            return super().path_of_module(mod)
        except NameError:
            # A slice of a Sequential is not a submodule; the layers in it are.
            if isinstance(mod, nn.Sequential):
                return ""
            raise


def _split_leaves(module: fx.GraphModule, tracing: Tracing) -> None:
    """Replace every leaf that has parts by its parts."""
    for number, node in enumerate(list(module.graph.nodes)):
        if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
            continue
        last = node.args[0]
        for step, part in enumerate(tracing.parts(module.get_submodule(str(node.target)))):
            module.add_submodule(f"part_{number}_{step}", part)
            with module.graph.inserting_before(node):
                last = module.graph.call_module(f"part_{number}_{step}", (last,))
        if last is not node.args[0]:
            node.replace_all_uses_with(last)
            module.graph.erase_node(node)


def _is_copy(node: fx.Node) -> bool:
    return (node.op, node.target) == ("call_method", "clone")


class _Rewriting:
    """One pass over a graph that fuses each convolution with the operations after it."""

    # `chain` is the sequence of nodes that one new layer replaces. The new layer runs at the
    # position of the chain's last node, but reads the input of its first one. So every fusion must
    # prove that no node in between writes to that input (`_may_move`), and that the memory of a
    # residual addend, which oneDNN overwrites with the sum, has no other reader (`_addend`).

    def __init__(self, module: fx.GraphModule, layers: Layers) -> None:
        self._module, self._graph, self._layers = module, module.graph, layers
        self._modules = dict(module.named_modules())
        self._replaced: set[fx.Node] = set()

    def run(self) -> None:
        self._compute_copies_apart()
        # The list still has the nodes that a fusion erases: they start no chain, as they are norms,
        # additions and activations.
        for number, node in enumerate(list(self._graph.nodes)):
            convolution = self._convolution(node)
            if convolution is not None:
                self._replace_convolution(node, convolution, f"folded_{number}")
                continue
            linear = self._called(node)
            if type(linear) is nn.Linear and len(node.args) == 1:
                self._replace_linear(node, linear, f"folded_{number}")

    def _compute_copies_apart(self) -> None:
        """Compute a copy of a value that fusion leaves out by a convolution or layer of its own.

        A tapped network copies an output before its norm or activation. Fused around, all other
        layers have the bytes and the speed of a network without that tap.
        """
        for copy in [node for node in self._graph.nodes if _is_copy(node)]:
            value = copy.args[0]
            normed = type(self._called(value)) is nn.BatchNorm2d and len(value.args) == 1
            first = value.args[0] if normed else value
            layer = not normed and type(self._called(first)) is nn.Linear
            if not layer and self._convolution(first) is None:
                continue
            readers = [user for user in value.users if user is not copy]
            fused = len(readers) == 1 and (
                type(self._called(readers[0])) is nn.BatchNorm2d
                or readers[0].target in _ADDITIONS
                or self._linear_activation(readers[0]) != "none"
                or self._activation(readers[0]) is not None
            )
            if fused and (not normed or self._may_move([first], value)):
                with self._graph.inserting_before(copy):
                    again = self._graph.node_copy(first)
                    if normed:
                        again = self._graph.create_node(value.op, value.target, (again,))
                copy.replace_all_uses_with(again)
                self._graph.erase_node(copy)

    def _replace_convolution(self, node: fx.Node, convolution: Convolution, name: str) -> None:
        chain = [node]
        x = self._without_padding(node, convolution)
        following = self._only_user(node)
        norm = self._called(following) if self._may_move(chain, following) else None
        if type(norm) is nn.BatchNorm2d and norm.running_mean is not None:
            convolution.fold(norm)
            chain += node.users
        arguments = [x]
        addition = self._only_user(chain[-1])
        if addition is not None and (other := self._addend(addition, chain)) is not None:
            arguments.append(other)
            chain.append(addition)
        following = self._only_user(chain[-1])
        activation = self._activation(following) if self._may_move(chain, following) else None
        # After an addition, oneDNN supports only this activation.
        if activation is not None and (len(arguments) == 1 or activation == ("relu", [])):
            chain += chain[-1].users
        else:
            activation = None
        layer = self._layers.convolution(convolution, activation or ("none", []))
        self._put(name, layer, arguments, chain)

    def _replace_linear(self, node: fx.Node, linear: nn.Linear, name: str) -> None:
        following = self._only_user(node)
        movable = self._may_move([node], following)
        activation = self._linear_activation(following) if movable else "none"
        chain = [node] if activation == "none" else [node, *node.users]
        self._put(name, self._layers.linear(linear, activation), [node.args[0]], chain)

    def _put(self, name: str, layer: nn.Module, arguments: list[Any], chain: list[fx.Node]) -> None:
        self._module.add_submodule(name, layer)
        with self._graph.inserting_before(chain[-1]):
            new = self._graph.call_module(name, tuple(arguments))
        self._replaced.add(new)
        chain[-1].replace_all_uses_with(new)
        # Backwards, as fx erases only nodes without users.
        for node in reversed(chain):
            self._graph.erase_node(node)

    def _called(self, node: fx.Node | None) -> nn.Module | None:
        if node is None or node.op != "call_module":
            return None
        return self._modules.get(str(node.target))

    def _only_user(self, node: fx.Node) -> fx.Node | None:
        # With a second user, the value before the next operation is needed too.
        return next(iter(node.users)) if len(node.users) == 1 else None

    def _convolution(self, node: fx.Node) -> Convolution | None:
        """Return the convolution of a node, called as a module or as a function."""
        module = self._called(node)
        if type(module) is nn.Conv2d:
            return Convolution.of(module) if len(node.args) == 1 else None
        if node.op != "call_function" or node.target is not F.conv2d:
            return None
        # As subclasses of nn.Conv2d call it: (x, weight, bias, stride, padding, dilation, groups).
        if node.kwargs or len(node.args) != 7:
            return None
        weight, bias = self._constant(node.args[1]), self._constant(node.args[2])
        geometry: Sequence[Any] = node.args[3:6]
        groups = node.args[6]
        pairs = all(isinstance(pair, tuple | list) for pair in geometry)
        if weight is None or (bias is None) != (node.args[2] is None) or not pairs:
            return None
        stride, padding, dilation = (list(pair) for pair in geometry)
        bias = None if bias is None else bias.double()
        return Convolution(weight.double(), bias, padding, stride, dilation, int(str(groups)))

    def _without_padding(self, node: fx.Node, convolution: Convolution) -> Any:
        """Return a convolution's input; a zero padding layer is merged into it where possible."""
        x = node.args[0]
        zeros = self._called(x) if isinstance(x, fx.Node) else None
        if type(zeros) is nn.ZeroPad2d and isinstance(x, fx.Node) and len(x.users) == 1:
            left, right, top, bottom = zeros.padding
            # A convolution has one padding for both sides. A depthwise one with zeros before its
            # weights may have the larger of two paddings on both.
            uneven = [bottom - top, right - left]
            zeros_first = (
                self._layers.pads_depthwise
                and convolution.groups == len(convolution.weight)
                and convolution.dilation == [1, 1]
                and min(uneven) >= 0
            )
            if uneven == [0, 0] or zeros_first:
                rows, columns = convolution.padding
                convolution.padding = [rows + bottom, columns + right]
                convolution.weight = F.pad(convolution.weight, (uneven[1], 0, uneven[0], 0))
                node.args = (x.args[0], *node.args[1:])
                self._graph.erase_node(x)
        return node.args[0]

    def _constant(self, node: Any) -> Tensor | None:
        if not isinstance(node, fx.Node) or node.op != "get_attr":
            return None
        value: Any = self._module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value.detach() if isinstance(value, Tensor) else None

    def _addend(self, addition: fx.Node, chain: list[fx.Node]) -> fx.Node | None:
        """Return the node that an addition adds to a branch, if the sum may overwrite it."""
        # Required: its memory is its own (not a view of another tensor), it is computed before the
        # addition, and all its other readers run earlier and do not keep a reference.
        if addition.op != "call_function" or addition.target not in _ADDITIONS:
            return None
        if len(addition.args) != 2 or addition.kwargs or not self._may_move(chain, addition):
            return None
        branch = chain[-1]
        other = addition.args[1] if addition.args[0] is branch else addition.args[0]
        if not isinstance(other, fx.Node) or other is branch:
            return None
        # These layers allocate their result; a function or method may return a view of other
        # memory.
        owns_memory = other in self._replaced or isinstance(
            self._called(other), nn.MaxPool2d | nn.BatchNorm2d | nn.Conv2d
        )
        before: set[fx.Node] = set()
        for node in self._graph.nodes:
            if node is addition:
                break
            before.add(node)
        unread = all(
            user is addition or (user in before and self._is_pure(user)) for user in other.users
        )
        return other if owns_memory and unread and other in before else None

    def _is_pure(self, node: fx.Node) -> bool:
        """Return whether a node returns memory of its own and does not modify its input."""
        return node in self._replaced or isinstance(self._called(node), _PURE) or _is_copy(node)

    def _may_move(self, chain: list[fx.Node], target: fx.Node | None) -> bool:
        """Return whether no node between a chain's start and a later node writes in place."""
        # The chain moves to that node; an in-place write in between would change what it reads.
        node = chain[0].next
        while target is not None and node is not target:
            if node not in chain and self._overwrites(node):
                return False
            node = node.next
        return target is not None

    def _overwrites(self, node: fx.Node) -> bool:
        if node in self._replaced:
            # A new layer writes only into its addend, its second argument.
            return len(node.args) > 1
        module = self._called(node)
        if module is not None:
            return bool(getattr(module, "inplace", False))
        if node.kwargs.get("inplace"):
            return True
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.op == "call_function" and getattr(operator, name, None) is node.target:
            # iadd, imul and the like write in place; the four others only begin with "i".
            return name.startswith("i") and name not in ("index", "indexOf", "inv", "invert")
        return node.op in ("call_function", "call_method") and (
            # torch's in-place names, such as add_, but not __add__.
            name.endswith("_") and not name.endswith("__")
        )

    def _activation(self, node: fx.Node | None) -> Activation | None:
        module = self._called(node)
        if isinstance(module, nn.ReLU):
            return "relu", []
        if isinstance(module, nn.Hardtanh):
            return "hardtanh", [module.min_val, module.max_val]
        if node is not None and node.op == "call_function" and node.target in (F.relu, torch.relu):
            return "relu", []
        return None

    def _linear_activation(self, node: fx.Node | None) -> LinearActivation:
        module = self._called(node)
        approximate: object = None
        if type(module) is nn.GELU:
            approximate = module.approximate
        elif node is not None and node.op == "call_function" and node.target is F.gelu:
            approximate = node.kwargs.get("approximate", "none")
        if approximate is not None:
            return "gelu tanh" if approximate == "tanh" else "gelu"
        return "relu" if self._activation(node) == ("relu", []) else "none"

"""Whether a caption is true of a scene: objects, attributes, counts and relations."""

from collections.abc import Callable

from pipeline.studies.scenes.parse import Named, Parsed, Relation
from pipeline.studies.scenes.world import SIZE, Arrangement, Group, Scene

FACETS = ("shape", "colour", "count", "texture", "size", "relation", "setting")


def truth_of(parsed: Parsed, scene: Scene) -> dict[str, bool]:
    """Return for each of `FACETS` that a caption mentions whether all its statements are true."""
    groups = [_meant(named, scene) for named in parsed.named]
    right: dict[str, bool] = {}

    def note(facet: str, is_right: bool) -> None:
        right[facet] = right.get(facet, True) and is_right

    for named, group in zip(parsed.named, groups, strict=True):
        note("shape", group is not None and group.shape == named.shape)
        note("count", group is not None and group.count in named.counts)
        if named.colour:
            note("colour", group is not None and group.colour == named.colour)
        if named.texture:
            note("texture", group is not None and group.texture == named.texture)
        if named.size:
            note("size", group is not None and group.size == named.size)
    for relation in parsed.relations:
        if relation.kind.startswith("total "):
            total = sum(group.count for group in scene.groups)
            note("count", relation.kind == f"total {total}")
        elif relation.kind == "only":
            note("count", len(scene.groups) == 1)
        else:
            of = [groups[at] for at in relation.groups]
            present = [group for group in of if group is not None]
            note("relation", present == of and _holds(relation, present, scene))
    if parsed.setting:
        note("setting", parsed.setting == scene.setting)
    return right


def _meant(named: Named, scene: Scene) -> Group | None:
    # Shapes are unique in a scene. The colour is second, so that a wrong shape does not make all
    # the rest wrong.
    for group in scene.groups:
        if group.shape == named.shape:
            return group
    return next((group for group in scene.groups if group.colour == named.colour), None)


def _holds(relation: Relation, of: list[Group], scene: Scene) -> bool:
    kind = relation.kind
    if kind.startswith("at "):
        return _is_at(kind.removeprefix("at "), of[0], scene)
    if len({id(group) for group in of}) < len(of):
        return False
    return _HOLDS[kind](scene, *of)


def _is_at(position: str, group: Group, scene: Scene) -> bool:
    """Return whether a group is at a place: beyond all others, or in that half of the image."""
    if position not in ("left", "right", "top", "bottom"):
        return len(scene.groups) == 1 and scene.position == position
    if len(scene.groups) > 1:
        kind = {"left": _left_of, "right": _right_of, "top": _above, "bottom": _below}[position]
        return all(kind(scene, group, other) for other in scene.groups if other is not group)
    left, top, right, bottom = group.box
    middle = SIZE // 2
    return {
        "left": right <= middle,
        "right": left >= middle,
        "top": bottom <= middle,
        "bottom": top >= middle,
    }[position]


# Boxes must not overlap in the direction of a relation.
def _left_of(scene: Scene, x: Group, y: Group) -> bool:
    return x.box[2] <= y.box[0]


def _right_of(scene: Scene, x: Group, y: Group) -> bool:
    return _left_of(scene, y, x)


def _above(scene: Scene, x: Group, y: Group) -> bool:
    return x.box[3] <= y.box[1]


def _below(scene: Scene, x: Group, y: Group) -> bool:
    return _above(scene, y, x)


def _beside(scene: Scene, x: Group, y: Group) -> bool:
    return _left_of(scene, x, y) or _left_of(scene, y, x)


def _inside(scene: Scene, x: Group, y: Group) -> bool:
    return scene.arrangement is Arrangement.INSIDE and scene.groups == (y, x)


def _between(scene: Scene, x: Group, y: Group, z: Group) -> bool:
    return scene.arrangement is Arrangement.BETWEEN and x is scene.groups[1]


def _bigger(scene: Scene, x: Group, y: Group) -> bool:
    return x.radius > y.radius


def _smaller(scene: Scene, x: Group, y: Group) -> bool:
    return x.radius < y.radius


_HOLDS: dict[str, Callable[..., bool]] = {
    "left of": _left_of,
    "right of": _right_of,
    "above": _above,
    "below": _below,
    "beside": _beside,
    "inside": _inside,
    "between": _between,
    "bigger": _bigger,
    "smaller": _smaller,
}

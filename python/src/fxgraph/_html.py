"""HTML and SVG for Jupyter."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["graph_svg", "table"]

_MAX_ROWS = 500
_MAX_NODES = 400
_MAX_EDGES = 2000
#: Width and height of a block, and distances, in pixels.
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 132, 40, 46, 12, 10
_COLOURS = {
    "running": "#2e7d32",
    "starting": "#757575",
    "stalled": "#ef6c00",
    "finished": "#1565c0",
    "failed": "#c62828",
}


def escaped(value: object, limit: int = 200) -> str:
    """Return `value` as text for HTML."""
    shown = str(value)
    return html.escape(shown if len(shown) <= limit else shown[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}")


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a title."""
    all_rows = list(rows)
    lines = [f"<div><b>{escaped(title)}</b><table>"]
    if any(header):
        lines.append("<tr>" + "".join(f"<th>{escaped(name)}</th>" for name in header) + "</tr>")
    for row in all_rows[:_MAX_ROWS]:
        cells = (f'<td style="text-align:left">{escaped(cell)}</td>' for cell in row)
        lines.append("<tr>" + "".join(cells) + "</tr>")
    if len(all_rows) > _MAX_ROWS:
        lines.append(f'<tr><td colspan="{len(header)}">{len(all_rows) - _MAX_ROWS} more</td></tr>')
    lines.append("</table></div>")
    return "".join(lines)


def layers(count: int, edges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Return the nodes in layers: each node one layer after the last of its predecessors.

    Nodes of a layer are sorted by the mean position of their predecessors, which avoids crossings.
    """
    depth = [0] * count
    for _ in range(count):
        is_changed = False
        for source, target in edges:
            if depth[target] < depth[source] + 1 and depth[source] + 1 < count:
                depth[target] = depth[source] + 1
                is_changed = True
        if not is_changed:
            break
    result: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for node in range(count):
        result[depth[node]].append(node)
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        before[target].append(source)
    place = {node: float(index) for layer in result for index, node in enumerate(layer)}
    for layer in result[1:]:
        means = {
            node: sum(place[source] for source in before[node]) / len(before[node])
            if before[node]
            else place[node]
            for node in layer
        }
        layer.sort(key=lambda node: means[node])
        place.update({node: float(index) for index, node in enumerate(layer)})
    return result


def graph_svg(graph: Mapping[str, Any]) -> str:
    """Return a drawing of the blocks and edges in ``graph`` of ``GET /api/v1/flowgraph``.

    Colours show the states of the blocks; a bar in each block shows the fraction of time that it works. Returns a
    sentence for graphs with more than 400 blocks.
    """
    nodes = [node for node in _list(graph.get("blocks")) if isinstance(node, dict)]
    index = {str(node.get("name")): number for number, node in enumerate(nodes)}
    pairs = []
    for edge in _list(graph.get("edges")):
        if isinstance(edge, dict):
            ends = index.get(str(edge.get("from"))), index.get(str(edge.get("to")))
            if ends[0] is not None and ends[1] is not None:
                title = f"{edge.get('from')}.{edge.get('output')} to {edge.get('to')}: {edge.get('carries')}"
                pairs.append((ends[0], ends[1], title))
    if len(nodes) > _MAX_NODES or len(pairs) > _MAX_EDGES:
        return f"<p>{len(nodes)} blocks and {len(pairs)} edges: too many to draw.</p>"
    columns = layers(len(nodes), [(source, target) for source, target, _ in pairs])
    tallest = max((len(column) for column in columns), default=0)
    width = len(columns) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    height = tallest * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    at = {}
    for number, column in enumerate(columns):
        top = _MARGIN + (tallest - len(column)) * (_HEIGHT + _GAP_Y) / 2
        for row, node in enumerate(column):
            at[node] = (_MARGIN + number * (_WIDTH + _GAP_X), top + row * (_HEIGHT + _GAP_Y))
    shapes = [_edge(at[source], at[target], title) for source, target, title in pairs]
    shapes += [_node(at[number], node) for number, node in enumerate(nodes)]
    size = f'width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="graph of blocks" '
        'style="background:#fff" font-family="sans-serif">' + "".join(shapes) + "</svg>"
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _edge(source: tuple[float, float], target: tuple[float, float], title: str) -> str:
    x1, y1 = source[0] + _WIDTH, source[1] + _HEIGHT / 2
    x2, y2 = target[0], target[1] + _HEIGHT / 2
    bend = max((x2 - x1) / 2, _GAP_X / 2)
    curve = f"M{x1:.0f} {y1:.1f}C{x1 + bend:.0f} {y1:.1f} {x2 - bend:.0f} {y2:.1f} {x2:.0f} {y2:.1f}"
    return (
        f'<path d="{curve}" fill="none" stroke="#90a4ae" stroke-width="1.5">'
        f"<title>{escaped(title)}</title></path>"
    )


def _node(at: tuple[float, float], node: Mapping[str, Any]) -> str:
    x, y = at
    colour = _COLOURS.get(str(node.get("state")), "#757575")
    busy = node.get("busy_fraction")
    share = min(max(busy, 0.0), 1.0) if isinstance(busy, float) and busy == busy else 0.0
    title = f"{node.get('name')}: {node.get('kind')} on {node.get('device')}, {node.get('state')}"
    return (
        f"<g><title>{escaped(title)}</title>"
        f'<rect x="{x:.0f}" y="{y:.1f}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="#f5f7f8" '
        f'stroke="{colour}" stroke-width="1.5"/>'
        f'<rect x="{x + 1:.0f}" y="{y + _HEIGHT - 4:.1f}" width="{(_WIDTH - 2) * share:.1f}" height="3" '
        f'fill="{colour}"/>'
        f'<text x="{x + 7:.0f}" y="{y + 16:.1f}" font-size="12" fill="#111">{escaped(node.get("name"), 18)}</text>'
        f'<text x="{x + 7:.0f}" y="{y + 30:.1f}" font-size="10" fill="#546e7a">'
        f"{escaped(node.get('kind'), 22)}</text></g>"
    )

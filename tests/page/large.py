"""The page stays responsive with a flowgraph of 504 blocks: it draws the visible part, and updates what has changed.

The server runs one antenna; the responses are those of 84 antennas with names of their own, with new numbers every time.
"""

import json
import random
import sys

from browser import Watched, barriers, browser, expect

COPIES = 84
# Nodes in the document at the usual scale, of 504.
MOST_NODES = 120
# Changes of the document in one refresh, with new numbers for every block. All nodes would make more than 10 000.
MOST_CHANGES = 1500
# Elements in the document when the whole graph is shown: three for each node, two for each edge.
MOST_FAR = 3500

generator = random.Random(1)


def copied(blocks, rename):
    return [{**block, **rename(copy, block)} for copy in range(COPIES) for block in blocks]


def name(copy, block):
    return f"antenna{copy:02}_{block}"


def busy_graph(flowgraph):
    graph = flowgraph["graph"]
    share = lambda: generator.random()
    flowgraph["graph"] = {
        "blocks": copied(graph["blocks"], lambda copy, one: {"name": name(copy, one["name"]), "busy_fraction": share()}),
        "edges": copied(graph["edges"], lambda copy, one: {
            "from": name(copy, one["from"]), "to": name(copy, one["to"]), "bytes_per_second": 1e6 * share(),
            "frames_per_second": 10 * share(), "queued_frames": generator.randrange(one["queue_frames"] + 1),
        }),
    }
    return flowgraph


def busy_blocks(blocks):
    return copied(blocks, lambda copy, one: {"name": name(copy, one["name"]), "lag_seconds": generator.random()})


def serve(page, path, change):
    def answer(route):
        response = route.fetch()
        route.fulfill(response=response, body=json.dumps(change(response.json())))

    page.route(path, answer)


COUNT = """milliseconds => new Promise(done => {
    let [changes, refreshes] = [0, 0];
    const graph = new MutationObserver(all => (changes += all.length));
    graph.observe(document.querySelector("#graph"), { subtree: true, childList: true, attributes: true, characterData: true });
    const figures = new MutationObserver(() => (refreshes += 1));
    figures.observe(document.querySelector('[data-figure="for"]'), { subtree: true, childList: true, characterData: true });
    setTimeout(() => (graph.disconnect(), figures.disconnect(), done([changes, refreshes])), milliseconds);
})"""


def changes_a_refresh(page):
    changes, refreshes = page.evaluate(COUNT, 6000)
    assert refreshes > 0
    print(f"{changes / refreshes:.0f} changes in a refresh, {page.locator('.node').count()} nodes")
    return changes / refreshes


with browser() as chromium:
    watched = Watched(chromium, "about:blank")
    page = watched.page
    serve(page, "**/api/v1/flowgraph", busy_graph)
    serve(page, "**/api/v1/blocks", busy_blocks)
    page.goto(sys.argv[1])
    nodes = page.locator(".node")
    elements = lambda: page.locator("#graph *").count()
    expect(nodes).not_to_have_count(0)

    # The usual scale.
    assert nodes.count() <= MOST_NODES, nodes.count()
    assert changes_a_refresh(page) <= MOST_CHANGES

    # Another part after scrolling.
    page.locator("#graph").evaluate("graph => (graph.scrollLeft = graph.scrollWidth)")
    expect(page.locator(f'.node[data-key="{name(COPIES - 1, "f")}"]')).to_be_visible()
    assert nodes.count() <= MOST_NODES, nodes.count()

    # The whole graph, without text.
    page.get_by_role("button", name="Fit").click()
    expect(nodes).to_have_count(COPIES * 6)
    assert elements() <= MOST_FAR, elements()
    assert changes_a_refresh(page) <= MOST_CHANGES
    assert not (found := barriers(page, "large graph")), found

    # Search by name and by kind.
    field = page.get_by_role("searchbox", name="name or kind of a block to find")
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("antenna77_g")
    expect(page.locator("#found")).to_have_text("1 of 1: antenna77_gain")
    gain = page.locator(f'.node[data-key="{name(77, "gain")}"]')
    expect(gain).to_be_in_viewport()
    expect(gain).to_have_class("node running cpu found")
    assert nodes.count() <= MOST_NODES, nodes.count()
    field.fill("postproc")
    expect(page.locator("#found")).to_have_text(f"1 of {COPIES}: antenna00_gain")
    field.press("ArrowUp")
    expect(page.locator("#found")).to_have_text(f"{COPIES} of {COPIES}: antenna83_gain")
    expect(page.locator(f'.node[data-key="{name(83, "gain")}"]')).to_be_in_viewport()
    field.press("Escape")
    expect(field).to_have_value("")
    expect(page.locator(".node.found")).to_have_count(0)

    # Zoom keeps the point under the pointer; dragging pans.
    svg = page.locator("#graph svg")
    width = lambda: svg.evaluate("svg => svg.width.baseVal.value")
    before = width()
    page.get_by_role("button", name="zoom in").click()
    assert abs(width() / before - 1.25) < 0.01
    box = page.locator("#graph").bounding_box()
    left = page.locator("#graph").evaluate("graph => graph.scrollLeft")
    page.mouse.move(box["x"] + 100, box["y"] + box["height"] - 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 250, box["y"] + box["height"] - 20, steps=5)
    page.mouse.up()
    assert page.locator("#graph").evaluate("graph => graph.scrollLeft") < left
    expect(page.locator("#panel")).to_be_hidden()
    # The server has no views of the copies.
    errors = [error for error in watched.errors if "404" not in error]
    assert not errors, errors

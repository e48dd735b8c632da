"""axe-core finds no violation in any state of the page, light and dark."""

import sys

from browser import Watched, barriers, browser, expect


def node(page, name):
    return page.locator(f'.node[data-names=\'["{name}"]\']')


def panel(page):
    expect(page.get_by_role("tab", selected=True)).to_be_visible()
    page.wait_for_function("() => document.querySelector('#tab-body').childElementCount > 0")


def overview(page):
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator(".plot[data-frame]")).not_to_have_count(0)


def fixed_colours(page):
    page.get_by_role("button", name="Fix colours").first.click()


def no_plots(page):
    for button in page.get_by_role("button", name="remove this plot").all():
        page.get_by_role("button", name="remove this plot").first.click()


def found_block(page):
    page.keyboard.press("/")
    page.keyboard.type("gain")
    expect(page.locator("#found")).to_contain_text("gain")


def block(tab):
    def opens(page):
        node(page, "gain").click()
        page.get_by_role("tab", name=tab).click()
        panel(page)

    opens.__name__ = f"block_{tab}"
    return opens


def rejected_value(page):
    page.get_by_role("tab", name="swap").click()
    page.get_by_label("threads", exact=True).fill("2000")
    page.get_by_role("button", name="Try").click()
    expect(page.locator(".field .problem").filter(has_text="threads")).to_be_visible()


def possible_swap(page):
    page.get_by_label("threads", exact=True).fill("2")
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#panel .outcome")).to_contain_text("The swap is possible.")
    page.get_by_text("Request (JSON)").click()


def running_shadow(page):
    page.get_by_role("tab", name="shadow").click()
    start = page.get_by_role("button", name="Start shadow")
    expect(start.or_(page.get_by_role("button", name="Stop shadow"))).to_be_visible()
    # The shadow may run since the states in the other colours.
    if start.is_visible():
        start.click()
    expect(page.locator("#panel .verdict")).to_contain_text("bit-identical")


def flowgraph(tab):
    def opens(page):
        page.get_by_role("button", name="Flowgraph", exact=True).click()
        page.get_by_role("tab", name=tab).click()
        panel(page)

    opens.__name__ = f"flowgraph_{tab}"
    return opens


def failed_block(page):
    node(page, "disk").click()
    expect(page.locator("#panel .fault")).to_be_visible()


def stop_dialog(page):
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("dialog")).to_be_visible()


STATES = [
    overview, fixed_colours, no_plots, found_block,
    *[block(tab) for tab in ["statistics", "parameters", "swap", "shadow", "record", "about"]],
    rejected_value, possible_swap, running_shadow,
    *[flowgraph(tab) for tab in ["state", "change", "recorders", "shadows"]],
    failed_block, stop_dialog,
]

findings = []
with browser() as chromium:
    for colours in ["light", "dark"]:
        page = Watched(chromium, sys.argv[1], color_scheme=colours).page
        for state in STATES:
            state(page)
            findings += barriers(page, f"{colours}, {state.__name__}")
        page.context.close()
assert not findings, "\n".join(findings)

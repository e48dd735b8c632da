"""With live control the page offers live parameters only, and shows the reason."""

import sys

from browser import Watched, browser, expect

WHY = "Clients may change live parameters only"

with browser() as chromium:
    watched = Watched(chromium, sys.argv[1])
    page = watched.page
    tab = lambda name: page.get_by_role("tab", name=name)
    expect(page.locator("#state")).to_have_text("running")
    page.locator(".node[data-names='[\"gain\"]']").click()
    for name in ["swap", "shadow"]:
        expect(tab(name)).to_be_disabled()
        assert WHY in tab(name).get_attribute("title")
    tab("parameters").click()
    page.get_by_label("gains").fill("0.4")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#panel .said")).to_contain_text("effective from timestamp")
    tab("parameters").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", selected=True)).to_have_text("record")
    # Clients see a shadow of the flowgraph, but cannot end it.
    page.locator(".node[data-names='[\"f\"]']").click()
    expect(tab("swap")).to_be_disabled()
    tab("shadow").click()
    expect(page.locator("#panel .verdict")).to_be_visible()
    for name in ["Start shadow", "Stop shadow"]:
        expect(page.get_by_role("button", name=name)).to_be_hidden()
    page.get_by_role("button", name="Flowgraph", exact=True).click()
    expect(tab("change")).to_be_disabled()
    assert WHY in tab("change").get_attribute("title")
    expect(tab("state")).to_have_attribute("aria-selected", "true")
    assert not watched.elsewhere, watched.elsewhere

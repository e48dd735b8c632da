"""Swagger UI on a phone: nothing is wider than the window, and a request can be tried."""

import sys

from browser import LIMIT_MS, browser, expect

WIDTH = 390

with browser() as chromium:
    context = chromium.new_context(viewport={"width": WIDTH, "height": 844}, is_mobile=True, has_touch=True)
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    page.goto(f"{sys.argv[1]}/docs/api/")
    request = page.locator("#operations-blocks-get_history")
    request.scroll_into_view_if_needed()
    request.locator(".opblock-summary-control").click()
    gauge = request.locator('tr[data-param-name="gauge"] input')
    expect(gauge).to_be_visible()
    box = gauge.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= WIDTH and box["width"] > WIDTH / 2, box
    gauge.fill("digitiser_level_dbfs")
    request.get_by_role("button", name="Execute").click()
    expect(request.locator(".live-responses-table")).to_contain_text("digitiser_level_dbfs")
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide == [WIDTH, WIDTH], wide

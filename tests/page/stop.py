"""Stops a flowgraph from its page after a confirmation; the page reports the end."""

import sys

from browser import Watched, browser, expect

with browser() as chromium:
    page = Watched(chromium, sys.argv[1]).page
    expect(page.locator("#state")).to_have_text("running")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Stop").click()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator("#state")).to_have_text("running")
    page.get_by_role("button", name="Stop").click()
    dialog.get_by_role("button", name="Stop").click()
    expect(page.locator('#log li[data-kind="ended"]')).to_be_visible()
    expect(page.locator("#state")).to_have_text("ended")
    expect(page.locator("#alarm")).to_contain_text("The flowgraph has ended")

"""Asks the user for the token of the server once, and again after a wrong one."""

import sys

from browser import Watched, barriers, browser, expect

with browser() as chromium:
    watched = Watched(chromium, sys.argv[1])
    page = watched.page
    dialog = page.get_by_role("dialog", name="This flowgraph requires a token")
    for token in ["not-the-right-one", "f2c1a97be0d94c55"]:
        expect(dialog).to_be_visible()
        assert not (found := barriers(page, "token dialog")), found
        dialog.get_by_label("Token").fill(token)
        dialog.get_by_role("button", name="Show").click()
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator(".node")).not_to_have_count(0)
    expect(page.locator("#log li").filter(has_text="started")).to_be_visible()
    expect(dialog).to_have_count(0)
    # The token is kept for this tab.
    page.reload()
    expect(page.locator("#state")).to_have_text("running")
    assert not watched.elsewhere, watched.elsewhere

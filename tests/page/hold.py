"""Starts a held flowgraph from its page, repeatedly."""

import sys

from browser import Watched, browser, expect

with browser() as chromium:
    watched = Watched(chromium, sys.argv[1])
    page = watched.page
    state = page.locator("#state")
    start = page.get_by_role("button", name="Start", exact=True)
    stop = page.get_by_role("button", name="Stop", exact=True)
    expect(state).to_have_text("prepared")
    for _ in range(2):
        expect(stop).to_be_hidden()
        start.click()
        expect(state).to_have_text("running")
        expect(start).to_be_hidden()
        stop.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("It can be started again from here.")
        dialog.get_by_role("button", name="Stop").click()
        expect(state).to_have_text("ended")
    assert not watched.elsewhere, watched.elsewhere

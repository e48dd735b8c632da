"""A browser with the page of a flowgraph."""

import shutil
import sys
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

# The machine may be busy with other tests.
LIMIT_MS = 120_000
expect.set_options(timeout=LIMIT_MS)


@contextmanager
def browser():
    path = shutil.which("chromium") or sys.exit("the tests of the page need Debian's package `chromium`")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, timeout=LIMIT_MS)
        yield chromium
        chromium.close()


class Watched:
    """A page with its console messages, errors, and requests to other servers."""

    def __init__(self, chromium, address, **options):
        self.context = chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
        self.context.set_default_timeout(LIMIT_MS)
        self.page = self.context.new_page()
        self.errors, self.elsewhere = [], []
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: None if request.url.startswith(address) else self.elsewhere.append(request.url))
        self.page.goto(address)

    def quiet(self):
        assert not self.errors, self.errors
        assert not self.elsewhere, self.elsewhere


def barriers(page, state):
    """Violations that axe-core finds on `page` in `state`, as lines of text."""
    lines = []
    # Users who speak what they see reach a control only if its name has the text on it.
    options = {"rules": {"label-content-name-mismatch": {"enabled": True}}}
    for found in Axe().run(page, options=options).response["violations"]:
        places = [f"{one['html'][:200]}: {one['failureSummary']}" for one in found["nodes"][:3]]
        lines.append(f"{state}: {found['id']} ({found['impact']}): {'; '.join(places)}")
    return lines

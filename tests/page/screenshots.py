"""Creates the screenshots of the page for the README, from a running flowgraphs/13_live.yaml:

    target/tests-playwright/bin/python tests/page/screenshots.py target/release/fxgraph
"""

import subprocess
import sys
from pathlib import Path

from browser import LIMIT_MS, Watched, browser, expect

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "src" / "images"
# Time for waterfalls to fill.
LOOK_MS = 30_000


def node(page, name):
    return page.locator(".node").filter(has_text=name)


def picture(page, name):
    page.mouse.move(0, 0)
    page.screenshot(path=PICTURES / f"{name}.png")


def overview(chromium, address):
    page = Watched(chromium, address, color_scheme="light").page
    expect(page.locator(".plot[data-frame]")).to_have_count(4)
    page.wait_for_timeout(LOOK_MS)
    picture(page, "overview")
    page.context.close()


def change(chromium, address):
    page = Watched(chromium, address, color_scheme="dark").page
    expect(page.locator(".plot[data-frame]")).to_have_count(4)
    node(page, "postproc").click()
    page.get_by_role("tab", name="parameters").click()
    page.get_by_label("gains", exact=True).fill("0.8")
    page.get_by_label("all 4 replicas").check()
    page.wait_for_timeout(LOOK_MS / 2)
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#panel .said")).to_contain_text("effective from")
    page.wait_for_timeout(LOOK_MS / 2)
    picture(page, "change")
    page.context.close()


def swap(chromium, address):
    page = Watched(chromium, address, color_scheme="light").page
    expect(page.locator(".plot[data-frame]")).to_have_count(4)
    page.wait_for_timeout(LOOK_MS / 2)
    node(page, "pfb").click()
    page.get_by_role("tab", name="swap").click()
    page.get_by_label("taps", exact=True).fill("8")
    page.get_by_label("w_cutoff").fill("0.9")
    page.locator("#panel").evaluate("panel => panel.scrollTo(0, 0)")
    picture(page, "swap")
    page.context.close()


def shadow(chromium, address):
    page = Watched(chromium, address, color_scheme="light").page
    expect(page.locator(".plot[data-frame]")).to_have_count(4)
    node(page, "pfb").click()
    page.get_by_role("tab", name="shadow").click()
    page.get_by_label("taps", exact=True).fill("8")
    page.get_by_role("button", name="Start shadow").click()
    page.wait_for_timeout(LOOK_MS / 2)
    picture(page, "shadow")
    page.get_by_role("button", name="Stop shadow").click()
    page.context.close()


def phone(chromium, address):
    watched = Watched(chromium, address, color_scheme="dark", device_scale_factor=2)
    watched.page.set_viewport_size({"width": 400, "height": 800})
    expect(watched.page.locator(".plot[data-frame]")).to_have_count(4)
    picture(watched.page, "phone")
    watched.context.close()


PICTURES.mkdir(exist_ok=True)
command = [sys.argv[1], "run", ROOT / "flowgraphs" / "13_live.yaml", "--listen", "127.0.0.1:0"]
program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
try:
    address = next(line.split()[-1] for line in program.stderr if line.startswith("serving "))
    with browser() as chromium:
        for part in [overview, change, swap, shadow, phone]:
            part(chromium, address)
finally:
    program.terminate()
    program.wait(timeout=LIMIT_MS / 1000)

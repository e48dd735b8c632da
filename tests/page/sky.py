"""Satellites of a position: where they are in the sky, and a table of them."""

import re
import sys

from browser import Watched, barriers, browser, expect

ADDRESS = sys.argv[1]
ROWS = [
    ["G05", "301.5", "61.3", "47.0", "−0.44", "yes"],
    ["G19", "-", "-", "38.5", "-", "no"],
    ["E11", "90.0", "30.0", "42.0", "1.25", "yes"],
    ["E36", "180.0", "2.5", "33.0", "12.50", "no"],
]
MARGIN, BAR = 18, 52


def pixel(page, azimuth, elevation):
    """Colour of the picture at a direction: north is up, and east is right."""
    return page.locator(".sky canvas").evaluate(
        """(canvas, [azimuth, elevation, margin, bar]) => {
            const side = canvas.clientWidth - bar;
            const scale = canvas.width / canvas.clientWidth;
            const share = ((90 - elevation) / 90) * (side / 2 - margin);
            const [x, y] = [side / 2 + share * Math.sin((azimuth * Math.PI) / 180), side / 2 - share * Math.cos((azimuth * Math.PI) / 180)];
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
            copy.drawImage(canvas, 0, 0);
            return [...copy.getImageData(Math.round(x * scale), Math.round(y * scale), 1, 1).data];
        }""",
        [azimuth, elevation, MARGIN, BAR],
    )


def is_coloured(colour):
    return colour[3] == 255 and max(colour[:3]) - min(colour[:3]) > 40


def table_has_the_tracked_satellites(page):
    rows = page.locator(".satellites tbody tr")
    expect(rows).to_have_count(len(ROWS))
    for row, texts in zip(rows.all(), ROWS):
        assert row.locator("th, td").all_text_contents() == texts


def used_satellites_are_filled(page):
    used, unused, elsewhere = [pixel(page, *direction) for direction in [(90, 30), (180, 2.5), (270, 30)]]
    assert is_coloured(used), used
    # The middle of a hollow circle has the colour of the background.
    assert not is_coloured(unused) and unused[3] == 255, unused
    assert elsewhere[3] < 255 or not is_coloured(elsewhere), elsewhere


def picture_follows_the_theme_and_the_width(page):
    before = pixel(page, 180, 2.5)
    page.get_by_label("colours", exact=True).select_option("dark")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    assert pixel(page, 180, 2.5) != before
    used_satellites_are_filled(page)
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    used_satellites_are_filled(page)


with browser() as chromium:
    watched = Watched(chromium, ADDRESS, color_scheme="light")
    page = watched.page
    expect(page.locator('.plot[data-view="sky"]')).to_have_attribute("data-frame", re.compile(r"\d+"))
    table_has_the_tracked_satellites(page)
    used_satellites_are_filled(page)
    picture_follows_the_theme_and_the_width(page)
    found = barriers(page, "sky")
    assert not found, "\n".join(found)
    watched.quiet()

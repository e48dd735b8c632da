"""A click on a spectrum, or a typed frequency, tunes a block to it, in both sidebands; marks follow other clients.

Programs that write samples with a carrier are in threads of this script."""

import array
import cmath
import json
import random
import re
import sys
import threading
import time
from urllib.parse import quote

from browser import Watched, barriers, browser, expect

ADDRESS = sys.argv[1]
RATE_HZ, CENTRE_HZ = 240_000, 100e6
# Frequency of the carrier in the samples.
CARRIER_HZ = 30_000
SIGNS = {"upper": 1, "lower": -1}
# A step of a click is less than this, and so is a channel of the spectrum.
NEAR_HZ = 1_000


def transmit(path):
    """Writes a carrier and noise to a named pipe, in real time, until its reader goes."""
    noise = random.Random(1)
    samples = array.array("f")
    for sample in range(RATE_HZ // 10):
        one = 0.25 * cmath.exp(2j * cmath.pi * CARRIER_HZ / RATE_HZ * sample)
        samples.extend([one.real + noise.gauss(0, 0.01), one.imag + noise.gauss(0, 0.01)])
    data = samples.tobytes()
    try:
        with open(path, "wb", buffering=0) as pipe:
            start = time.monotonic()
            for part in range(1 << 30):
                pipe.write(data)
                time.sleep(max(0, start + 0.1 * part - time.monotonic()))
    except BrokenPipeError:
        pass


def sky(sideband, hz):
    """Frequency on the sky of one of the samples."""
    return CENTRE_HZ + SIGNS[sideband] * hz


def centre_hz(page, block):
    return page.request.get(f"{ADDRESS}/api/v1/blocks/{quote(block)}").json()["parameters"]["centre_hz"]


def tuned_to(page, block, hz, near):
    """Waits until `block` is tuned to `hz`."""
    for _ in range(600):
        if abs(centre_hz(page, block) - hz) < near:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"{block} is at {centre_hz(page, block)} Hz, not at {hz} Hz")


def peak_hz(drawn):
    """Frequency on the sky of the strongest point of a view."""
    values = [-1e9 if value is None else value for value in drawn["series"][0]["values"]]
    return drawn["x"]["start"] + drawn["x"]["step"] * values.index(max(values))


def carrier_is_at(page, block, sideband, hz):
    """Waits until the samples of `block` have the carrier at `hz`, and where it is on the sky."""
    for _ in range(200):
        x = (drawn := page.request.get(f"{ADDRESS}/api/v1/blocks/{block}/outputs/output/views/spectrum?once=true").json())["x"]
        middle = x["start"] + x["step"] * (x["len"] // 2)
        offset = SIGNS[sideband] * (peak_hz(drawn) - middle)
        if abs(offset - hz) < NEAR_HZ and abs(peak_hz(drawn) - sky(sideband, CARRIER_HZ)) < NEAR_HZ:
            return
    raise AssertionError(f"the carrier is at {peak_hz(drawn)} Hz, {offset} Hz in the samples of {block}")


def add_plot(page, output, view):
    page.get_by_label("output to plot").select_option(output)
    page.get_by_label("kind of plot").select_option(label=view)
    page.get_by_role("button", name="Add plot").click()


def plot_of(page, sideband):
    """The plot of the whole band, with its waterfall."""
    plot = page.locator(f'.plot[data-view="band_pass"][data-output="spectrum_{sideband}.output"]')
    if plot.count() == 0:
        add_plot(page, json.dumps([f"spectrum_{sideband}", "output"], separators=(",", ":")), "power of each channel")
    expect(plot).to_have_attribute("data-frame", re.compile(r"\d+"))
    plot.scroll_into_view_if_needed()
    return plot


def lines(plot):
    return plot.locator(".u-over")


def picture(plot):
    return plot.locator(".waterfall .area")


def at(plot, area, hz):
    """Pixel of a frequency on the sky."""
    box = area.bounding_box()
    text = plot.locator(".canvas").get_attribute("data-zoom")
    x = plot.evaluate("plot => plot.message.x")
    ends = sorted([x["start"] / 1e6, (x["start"] + x["step"] * (x["len"] - 1)) / 1e6])
    low, high = [float(place) for place in text.split()] if text else ends
    return box["x"] + (hz / 1e6 - low) / (high - low) * box["width"], box["y"] + box["height"] / 2


def click(page, plot, area, hz):
    page.mouse.click(*at(plot, area, hz))


def mark(plot, area, block):
    return area.locator(f'.band:not(.draft)[data-block="{block}"]')


def carrier_is_seen(page, plot, sideband):
    page.wait_for_function("(plot) => plot.message.series[0].values.some((value) => value > -40)", arg=plot.element_handle())
    found = peak_hz(plot.evaluate("plot => plot.message"))
    assert abs(found - sky(sideband, CARRIER_HZ)) < NEAR_HZ, found


def click_tunes(page, sideband):
    plot, block = plot_of(page, sideband), f"channel_{sideband}"
    carrier_is_seen(page, plot, sideband)
    carrier = sky(sideband, CARRIER_HZ)
    # Without the button, a click changes nothing; the mark is there.
    expect(mark(plot, lines(plot), block)).to_have_attribute("data-hz", f"{CENTRE_HZ:.0f}")
    click(page, plot, lines(plot), carrier)
    plot.get_by_role("button", name="Tune", exact=True).click()
    plot.get_by_label("block to tune").select_option(block)
    page.wait_for_timeout(600)
    assert centre_hz(page, block) == 0
    click(page, plot, lines(plot), carrier)
    expect(plot.locator(".said")).to_contain_text(f"{block}: ")
    expect(plot.locator(".said")).to_contain_text("from timestamp")
    tuned_to(page, block, CARRIER_HZ, NEAR_HZ)
    # The mark is where the click was, as wide as the channel, on the line and on the waterfall.
    for area in [lines(plot), picture(plot)]:
        place = mark(plot, area, block)
        expect(place).to_have_attribute("data-hz", f"{sky(sideband, centre_hz(page, block)):.0f}")
        box, whole = place.bounding_box(), area.bounding_box()
        assert abs(box["x"] + box["width"] / 2 - at(plot, area, carrier)[0]) < 3, box
        assert abs(box["width"] / whole["width"] - 1 / 8) < 0.02, (box, whole)
    carrier_is_at(page, block, sideband, 0)


def zoomed_click_tunes(page, sideband):
    """On a part of the band, by the waterfall: a step of a click is smaller there."""
    plot, block = plot_of(page, sideband), f"channel_{sideband}"
    (left, y), (right, _) = [at(plot, picture(plot), sky(sideband, hz)) for hz in sorted([-20_000, -60_000], key=lambda hz: sky(sideband, hz))]
    page.mouse.move(left, y)
    page.mouse.down()
    page.mouse.move(right, y, steps=5)
    page.mouse.up()
    expect(plot.get_by_role("button", name="Reset zoom")).to_be_visible()
    # Neither the drag nor a double click has tuned.
    click(page, plot, picture(plot), sky(sideband, -50_000))
    tuned_to(page, block, -50_000, 200)
    # Part of the mark is visible, in its place.
    expect(mark(plot, picture(plot), block)).to_have_attribute("data-hz", f"{sky(sideband, centre_hz(page, block)):.0f}")
    box = mark(plot, picture(plot), block).bounding_box()
    assert abs(box["x"] + box["width"] / 2 - at(plot, picture(plot), sky(sideband, -50_000))[0]) < 4
    page.mouse.dblclick(*at(plot, lines(plot), sky(sideband, -30_000)))
    expect(plot.locator(".canvas")).to_have_attribute("data-zoom", "")
    page.wait_for_timeout(600)
    tuned_to(page, block, -50_000, 200)


def typed_frequency_tunes(page, sideband):
    plot, block = plot_of(page, sideband), f"channel_{sideband}"
    box = plot.get_by_label(f"frequency of {block} in MHz")
    box.focus()
    wanted = sky(sideband, CARRIER_HZ) / 1e6
    page.keyboard.press("Control+a")
    page.keyboard.type(f"{wanted:.6f}")
    expect(lines(plot).locator(".band.draft")).to_have_count(1)
    page.keyboard.press("Enter")
    tuned_to(page, block, CARRIER_HZ, 1e-3)
    expect(mark(plot, lines(plot), block)).to_have_attribute("data-hz", f"{sky(sideband, CARRIER_HZ):.0f}")


def block_behind_another_is_tuned(page, sideband):
    """In the plot of the whole band: its parameter counts from the centre of the channel."""
    plot, block = plot_of(page, sideband), f"inner_{sideband}"
    plot.get_by_label("block to tune").select_option(block)
    click(page, plot, picture(plot), sky(sideband, CARRIER_HZ + 5_000))
    tuned_to(page, block, 5_000, NEAR_HZ)
    carrier_is_at(page, block, sideband, -5_000)


def mark_follows_other_clients(page, sideband):
    plot, block = plot_of(page, sideband), f"channel_{sideband}"
    answer = page.request.patch(f"{ADDRESS}/api/v1/blocks", data={block: {"centre_hz": -20_000}})
    assert answer.ok, answer.text()
    expect(mark(plot, lines(plot), block)).to_have_attribute("data-hz", f"{sky(sideband, -20_000):.0f}")
    plot.get_by_label("block to tune").select_option(block)
    expect(plot.get_by_label(f"frequency of {block} in MHz")).to_have_value(f"{sky(sideband, -20_000) / 1e6:.2f}")


def rejected_tuning_says_why(page, sideband):
    plot, block = plot_of(page, sideband), f"channel_{sideband}"
    plot.get_by_label("block to tune").select_option(block)
    before = centre_hz(page, block)
    click(page, plot, lines(plot), sky(sideband, 115_000))
    expect(plot.locator(".said.problem")).to_contain_text("is not within -120000 to 120000 Hz")
    assert centre_hz(page, block) == before


def fixed_block_says_why(page):
    plot = plot_of(page, "upper")
    plot.get_by_label("block to tune").select_option("fixed")
    expect(plot.locator(".said.problem")).to_contain_text("fixed cannot be tuned: header cannot follow another centre frequency")
    expect(plot.get_by_label("frequency of fixed in MHz")).to_be_disabled()
    click(page, plot, lines(plot), sky("upper", CARRIER_HZ))
    page.wait_for_timeout(600)
    assert centre_hz(page, "fixed") == -60_000


def offered(page):
    return plot_of(page, "lower").get_by_label("block to tune").locator("option")


def blocks_of_the_other_receiver_are_not_offered(page):
    expect(offered(page)).to_have_text(["all 2 pair[*]", "channel_lower", "inner_lower", "pair[0]", "pair[1]"])


def replicas_are_tuned_together_while_they_are_at_one_frequency(page):
    plot, blocks = plot_of(page, "lower"), ["pair[0]", "pair[1]"]
    plot.get_by_label("block to tune").select_option("pair[*]")
    click(page, plot, lines(plot), sky("lower", 20_000))
    for block in blocks:
        tuned_to(page, block, 20_000, NEAR_HZ)
    expect(plot.locator(".said")).to_contain_text("pair[*]: ")
    first, second = [centre_hz(page, block) for block in blocks]
    assert first == second, (first, second)
    plot.get_by_label("block to tune").select_option("pair[1]")
    click(page, plot, lines(plot), sky("lower", 60_000))
    tuned_to(page, "pair[1]", 60_000, NEAR_HZ)
    assert centre_hz(page, "pair[0]") == first
    expect(offered(page)).to_have_text(["channel_lower", "inner_lower", "pair[0]", "pair[1]"])


for sideband in SIGNS:
    threading.Thread(target=transmit, args=[f"{sideband}.fifo"], daemon=True).start()
with browser() as chromium:
    watched = Watched(chromium, ADDRESS)
    page = watched.page
    expect(page.locator("#state")).to_have_text("running")
    for sideband in SIGNS:
        click_tunes(page, sideband)
        zoomed_click_tunes(page, sideband)
        typed_frequency_tunes(page, sideband)
        block_behind_another_is_tuned(page, sideband)
        mark_follows_other_clients(page, sideband)
    blocks_of_the_other_receiver_are_not_offered(page)
    replicas_are_tuned_together_while_they_are_at_one_frequency(page)
    found = barriers(page, "tuning")
    assert not found, "\n".join(found)
    watched.quiet()
    # A rejected request is an error in the console of the browser.
    rejected_tuning_says_why(page, "lower")
    fixed_block_says_why(page)

"""Replicas are changed together by default, one of them on request; plots have sky frequencies, zoom and readouts."""

import re
import sys

from browser import Watched, browser, expect

ADDRESS = sys.argv[1]
REPLICAS = 2
CENTRE_MHZ, BANDWIDTH_MHZ = 1284.0, 0.5


def node(page, name):
    return page.locator(".node").filter(has_text=name)


def values(page, block, parameter):
    """The parameter in each replica of `block`."""
    ask = lambda index: page.request.get(f"{ADDRESS}/api/v1/blocks/{block}%5B{index}%5D").json()["parameters"][parameter]
    return [ask(index) for index in range(REPLICAS)]


def apply(page, gains):
    page.get_by_label("gains", exact=True).fill(gains)
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#panel .said")).to_contain_text("effective from")


def live_parameters_change_in_all_replicas_or_in_one(page):
    node(page, "gain").click()
    page.get_by_role("tab", name="parameters").click()
    both, one = page.get_by_label("all 2 replicas"), page.get_by_label("only gain[0]")
    expect(both).to_be_checked()
    apply(page, "0.3")
    expect(page.locator("#panel .said")).to_contain_text("in 2 replicas")
    assert values(page, "gain", "gains") == [0.3, 0.3]
    one.check()
    apply(page, "0.4")
    assert values(page, "gain", "gains") == [0.4, 0.3]
    # The user who picks a replica means that one.
    page.get_by_label("replica", exact=True).select_option("gain[1]")
    expect(page.get_by_label("only gain[1]")).to_be_checked()
    apply(page, "0.5")
    assert values(page, "gain", "gains") == [0.4, 0.5]


def a_swap_changes_all_replicas(page):
    node(page, "pfb").click()
    page.get_by_role("tab", name="swap").click()
    expect(page.get_by_label("all 2 replicas")).to_be_checked()
    page.get_by_label("taps", exact=True).fill("8")
    outcome = page.locator("#panel .outcome")
    page.get_by_role("button", name="Try").click()
    expect(outcome).to_contain_text("The swap of 2 replicas is possible.")
    page.get_by_role("button", name="Swap").click()
    expect(outcome).to_contain_text("2 replicas swapped.")
    assert values(page, "f", "taps") == [8, 8]
    page.get_by_label("only f[0]").check()
    page.get_by_label("taps", exact=True).fill("4")
    page.get_by_role("button", name="Swap").click()
    expect(outcome).to_contain_text("Swapped.")
    assert values(page, "f", "taps") == [4, 8]
    page.keyboard.press("Escape")


def shown(plot):
    text = plot.locator(".canvas").get_attribute("data-zoom")
    return [float(place) for place in text.split()] if text else None


def plots_show_the_sky_frequency(page):
    plot = page.locator('.plot[data-view="band_pass"]')
    expect(plot).to_have_count(1)
    page.wait_for_function("() => document.querySelector('.plot[data-view=band_pass]').message")
    x = plot.evaluate("plot => plot.message.x")
    assert (x["name"], x["unit"], x["start"]) == ("sky frequency", "Hz", (CENTRE_MHZ - BANDWIDTH_MHZ / 2) * 1e6), x
    plot.scroll_into_view_if_needed()
    line = plot.locator(".u-over").bounding_box()
    page.mouse.move(line["x"] + line["width"] / 2, line["y"] + 10)
    expect(plot.locator(".key .at")).to_have_text(re.compile(r"at 128(3\.99|4\.00)\d MHz"))
    picture = plot.locator(".waterfall canvas").bounding_box()
    page.mouse.move(line["x"] + line["width"] / 2, picture["y"] + 20)
    expect(plot.locator(".readout")).to_have_text(re.compile(r"128(3\.99|4\.00)\d MHz · .*\d s ago · -?\d.* dBFS"))


def dragging_zooms_until_a_double_click(page):
    plot = page.locator('.plot[data-view="band_pass"]')
    line, picture = plot.locator(".u-over").bounding_box(), plot.locator(".waterfall canvas").bounding_box()
    for y in [line["y"] + 10, picture["y"] + 40]:
        page.mouse.move(line["x"] + line["width"] / 4, y)
        page.mouse.down()
        page.mouse.move(line["x"] + line["width"] * 3 / 4, y, steps=5)
        page.mouse.up()
        low, high = shown(plot)
        assert abs(low - (CENTRE_MHZ - BANDWIDTH_MHZ / 4)) < 0.02 and abs(high - (CENTRE_MHZ + BANDWIDTH_MHZ / 4)) < 0.02, (low, high)
        # New frames do not reset it.
        frame = plot.get_attribute("data-frame")
        expect(plot).not_to_have_attribute("data-frame", frame)
        assert shown(plot) == [low, high]
        reset = plot.get_by_role("button", name="Reset zoom")
        expect(reset).to_be_visible()
        page.mouse.dblclick(line["x"] + line["width"] / 2, y)
        expect(plot.locator(".canvas")).to_have_attribute("data-zoom", "")
        expect(reset).to_be_hidden()


def colours_stay_fixed(page):
    plot = page.locator('.plot[data-view="band_pass"]')
    low, high = plot.get_by_label("lowest value shown"), plot.get_by_label("highest value shown")
    expect(low).to_be_hidden()
    plot.get_by_role("button", name="Fix colours").click()
    low.fill("-60")
    high.fill("-10")
    high.press("Enter")
    page.reload()
    expect(low).to_have_value("-60")
    expect(high).to_have_value("-10")
    plot.get_by_role("button", name="Fix colours").click()
    expect(low).to_be_hidden()


def lag_is_shown(page):
    expect(page.locator('[data-figure="lag"]')).to_contain_text("s")
    expect(node(page, "gain").locator(".lag")).to_contain_text("lag")


def add_plot(page, output, view):
    page.get_by_label("output to plot").select_option(output)
    page.get_by_label("kind of plot").select_option(label=view)
    page.get_by_role("button", name="Add plot").click()


def values_of(plot, index):
    return plot.evaluate("(plot, index) => plot.message?.series[index]?.values", index)


def samples_are_plotted_against_time(page):
    add_plot(page, '["source[0]","pol0"]', "samples against time")
    plot = page.locator('.plot[data-view="samples"]')
    expect(plot).to_have_attribute("data-frame", re.compile(r"\d+"))
    x = plot.evaluate("plot => plot.message.x")
    assert (x["unit"], x["step"], x["len"]) == ("s", 1e-6, 512), x
    assert len(set(values_of(plot, 0))) > 50
    expect(plot.locator(".chart .key")).to_contain_text("value")


def outputs_share_a_plot(page):
    plot = page.locator('.plot[data-view="samples"]')
    plot.get_by_role("button", name="trace").click()
    plot.get_by_label("output", exact=True).select_option("source[1].pol0")
    key = plot.locator(".chart .key")
    expect(key).to_contain_text("value, source[1].pol0")
    expect(key).to_contain_text("value, source[0].pol0")
    # Both are drawn: their lines have colours of their own.
    page.wait_for_function(
        """() => {
            const canvas = document.querySelector(".plot[data-view=samples] canvas");
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
            let [blue, orange] = [0, 0];
            for (let at = 0; at < data.length; at += 4) {
                if (data[at + 3] < 200) continue;
                if (data[at + 2] > data[at] + 60) blue += 1;
                if (data[at] > data[at + 2] + 60) orange += 1;
            }
            return blue > 100 && orange > 100;
        }"""
    )
    page.reload()
    expect(key).to_contain_text("value, source[0].pol0")
    plot.get_by_title("removes this trace").click()
    expect(key).not_to_contain_text("source[0]")


def levels_of_all_blocks_are_plotted_over_minutes(page):
    page.wait_for_function("() => document.querySelector('option[value=\"gauge digitiser_level_dbfs\"]')")
    page.get_by_label("output to plot").select_option("gauge digitiser_level_dbfs")
    page.get_by_role("button", name="Add plot").click()
    plot = page.locator('.plot[data-gauge="digitiser_level_dbfs"]')
    page.wait_for_function(
        """() => {
            const { series = [] } = document.querySelector(".plot[data-gauge]").message ?? {};
            return series.length === 2 && series.every(({ values }) => values.length === 600 && values.at(-1) !== null);
        }"""
    )
    names = plot.evaluate("plot => plot.message.series.map((one) => one.name)")
    assert names == ["f[0] pol0", "f[1] pol0"], names
    # Noise with an rms of 0.1 of full scale, relative to a sine of full scale.
    assert all(abs(level + 17) < 0.5 for level in plot.evaluate("plot => plot.message.series.map((one) => one.values.at(-1))"))
    plot.get_by_label("block or label").fill("f[1]")
    expect(plot.locator(".key")).not_to_contain_text("f[0]")
    expect(plot.locator(".key")).to_contain_text("f[1] pol0")
    plot.get_by_label("time shown").select_option("24 hours")
    page.wait_for_function("() => document.querySelector('.plot[data-gauge]').message.series[0].values.length === 1440")


def nothing_is_cut(page):
    """Texts of the board at 1280 px, with an open panel, too."""
    node(page, "gain").click()
    expect(page.locator("#panel")).to_be_visible()
    cut = page.evaluate(
        """() => [...document.querySelectorAll("#board *, #board-section .bar *, #panel *")]
            .filter((one) => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible")
            .filter((one) => !one.matches("[role=tablist], textarea, input"))
            .map((one) => `${one.tagName} ${one.className}: ${one.textContent.slice(0, 40)}`)"""
    )
    assert not cut, cut
    page.keyboard.press("Escape")


with browser() as chromium:
    watched = Watched(chromium, ADDRESS)
    page = watched.page
    expect(page.locator("#state")).to_have_text("running")
    lag_is_shown(page)
    plots_show_the_sky_frequency(page)
    dragging_zooms_until_a_double_click(page)
    colours_stay_fixed(page)
    samples_are_plotted_against_time(page)
    outputs_share_a_plot(page)
    levels_of_all_blocks_are_plotted_over_minutes(page)
    nothing_is_cut(page)
    live_parameters_change_in_all_replicas_or_in_one(page)
    a_swap_changes_all_replicas(page)
    watched.quiet()

"""An operator looks at a flowgraph, changes a gain, swaps a block, and finds a fault."""

import math
import statistics
import sys

from browser import Watched, browser, expect

ADDRESS = sys.argv[1]
BLOCKS = ["source", "f", "fft", "gain", "end", "disk"]


def node(page, name):
    """The block called `name` in the graph."""
    return page.locator(f'.node[data-names=\'["{name}"]\']')


def tab(page, name):
    page.get_by_role("tab", name=name).click()


def opens_and_shows(watched):
    page = watched.page
    expect(page.locator("#state")).to_have_text("running")
    for name in BLOCKS:
        expect(node(page, name)).to_be_visible()
    # What flows is told, and moves.
    flows = page.locator('.edge[data-rate]:not([data-rate=""]):not([data-rate="0"])')
    expect(flows).to_have_count(len(BLOCKS) - 1)
    expect(page.locator('[data-figure="real time"]')).to_contain_text("%")
    node(page, "f").click()
    so_far = page.locator("#panel .tiles > div").filter(has_text="frames in").locator(".more")
    before = so_far.inner_text()
    expect(so_far).not_to_have_text(before)
    watched.quiet()


def is_plotted(page, view):
    plot = page.locator(f'.plot[data-view="{view}"]')
    expect(plot).to_have_count(1)
    page.wait_for_function("(view) => document.querySelector(`.plot[data-view=${view}]`).message", arg=view)
    return plot


def band_pass_db(page):
    """The level of the band-pass that is plotted: the median, for the edges of the band fall off."""
    values = page.evaluate("document.querySelector('.plot[data-view=band_pass]').message.series[0].values")
    return statistics.median(value for value in values if value is not None)


def a_gain_changes_what_is_plotted(page):
    plot = is_plotted(page, "band_pass")
    expect(plot).to_have_attribute("data-output", "gain.output")
    before = band_pass_db(page)
    node(page, "gain").click()
    tab(page, "parameters")
    page.get_by_label("gains").fill("0.4")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#panel .said")).to_contain_text("in force from timestamp")
    expected = before + 20 * math.log10(0.4 / 0.2)
    page.wait_for_function(
        """(expected) => {
            const known = document.querySelector(".plot[data-view=band_pass]").message.series[0].values.filter((one) => one !== null);
            const median = known.sort((one, other) => one - other)[Math.floor(known.length / 2)];
            return Math.abs(median - expected) < 0.5;
        }""",
        arg=expected,
    )


def a_refused_value_says_why_at_its_field(page):
    field = page.locator('.field[data-parameter="dither_seed"]')
    field.get_by_role("textbox").fill("-4")
    page.get_by_role("button", name="Apply").click()
    expect(field.locator(".problem")).to_have_text("expected a whole number from 0 on, found `-4`")
    expect(field.get_by_role("textbox")).to_have_attribute("aria-invalid", "")


def a_block_is_swapped(page):
    node(page, "f").click()
    tab(page, "swap")
    parameters = page.get_by_label("parameters, JSON")
    parameters.fill(parameters.input_value().replace('"taps": 16', '"taps": 8'))
    page.get_by_role("button", name="Try").click()
    outcome = page.locator("#panel .outcome")
    expect(outcome).to_contain_text("It can be made.")
    expect(outcome).to_contain_text("parameters.taps")
    page.get_by_role("button", name="Swap").click()
    expect(outcome).to_contain_text("Swapped.")
    expect(page.locator('#log li[data-kind="swapped"]')).to_contain_text("f")


def a_fault_shows_with_its_cause(page):
    cause = "cannot write full.npy: No space left on device"
    row = page.locator('#log li.fault[data-kind="skipped"]').first
    expect(row).to_contain_text(cause)
    page.get_by_label("kind of event").select_option("faults")
    expect(page.locator("#log li:not(.fault)")).to_have_count(0)
    page.get_by_label("kind of event").select_option("")
    node(page, "disk").click()
    expect(page.locator("#panel .fault")).to_contain_text(cause)


def the_keyboard_leads_everywhere(page):
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    expect(node(page, "disk")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(node(page, "source")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#panel")).to_be_visible()
    expect(page.get_by_role("tab", selected=True)).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()


def colours_follow_the_system_and_the_switch(page):
    background = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert light != dark
    page.get_by_label("colours").select_option("light")
    assert page.evaluate(background) == light
    page.get_by_label("colours").select_option("auto")
    assert page.evaluate(background) == dark


def nothing_is_wider_than_a_phone(page):
    page.set_viewport_size({"width": 400, "height": 800})
    node(page, "gain").click()
    for name in ["figures", "parameters", "swap", "about"]:
        tab(page, name)
        page.wait_for_function("document.querySelector('#tab-body').childElementCount > 0")
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], (name, wide)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.keyboard.press("Escape")


with browser() as chromium:
    watched = Watched(chromium, ADDRESS)
    page = watched.page
    opens_and_shows(watched)
    a_gain_changes_what_is_plotted(page)
    a_refused_value_says_why_at_its_field(page)
    a_block_is_swapped(page)
    a_fault_shows_with_its_cause(page)
    the_keyboard_leads_everywhere(page)
    colours_follow_the_system_and_the_switch(page)
    nothing_is_wider_than_a_phone(page)
    assert not watched.elsewhere, watched.elsewhere

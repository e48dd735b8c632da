"""An operator looks at a flowgraph, changes a gain, swaps a block, compares another, records an output, changes the whole
flowgraph, and finds a fault."""

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
    # Data rates are shown and updated.
    flows = page.locator('.edge[data-rate]:not([data-rate=""]):not([data-rate="0"])')
    expect(flows).to_have_count(len(BLOCKS) - 1)
    for figure, unit in [("real time", "%"), ("margin", "%"), ("latency", "s")]:
        expect(page.locator(f'[data-figure="{figure}"]')).to_contain_text(unit)
    node(page, "f").click()
    tile = lambda name: page.locator("#panel .tiles > div").filter(has_text=name)
    expect(tile("works").locator(".more")).to_contain_text("per frame")
    for name in ["waits for input", "waits for output"]:
        expect(tile(name)).to_contain_text("%")
    so_far = tile("frames in").locator(".more")
    before = so_far.inner_text()
    expect(so_far).not_to_have_text(before)
    watched.quiet()


def is_plotted(page, view):
    plot = page.locator(f'.plot[data-view="{view}"]')
    expect(plot).to_have_count(1)
    page.wait_for_function("(view) => document.querySelector(`.plot[data-view=${view}]`).message", arg=view)
    return plot


def band_pass_db(page):
    """Level of the plotted band-pass: the median, since the edges of the band fall off."""
    values = page.evaluate("document.querySelector('.plot[data-view=band_pass]').message.series[0].values")
    return statistics.median(value for value in values if value is not None)


def a_gain_changes_what_is_plotted(page):
    plot = is_plotted(page, "band_pass")
    expect(plot).to_have_attribute("data-output", "gain.output")
    before = band_pass_db(page)
    node(page, "gain").click()
    tab(page, "parameters")
    page.get_by_label("gains", exact=True).fill("0.4")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#panel .said")).to_contain_text("effective from timestamp")
    expected = before + 20 * math.log10(0.4 / 0.2)
    page.wait_for_function(
        """(expected) => {
            const known = document.querySelector(".plot[data-view=band_pass]").message.series[0].values.filter((one) => one !== null);
            const median = known.sort((one, other) => one - other)[Math.floor(known.length / 2)];
            return Math.abs(median - expected) < 0.5;
        }""",
        arg=expected,
    )


class Changes:
    """Changes that `page` requests from now on, as `(method, body)`."""

    def __init__(self, page):
        self.sent = []
        self.page = page
        page.on("request", self.note)

    def note(self, request):
        if request.method != "GET":
            self.sent.append((request.method, request.post_data_json))

    def end(self):
        self.page.remove_listener("request", self.note)
        return self.sent


def field(page, name):
    return page.locator(f'.field[data-parameter="{name}"]')


def live_parameter_below_its_minimum_is_not_sent(page):
    changes = Changes(page)
    seed = page.get_by_label("dither_seed")
    assert [seed.get_attribute(name) for name in ["type", "min", "step", "placeholder"]] == ["number", "0", "1", "0"]
    seed.fill("-4")
    page.get_by_role("button", name="Apply").click()
    problem = field(page, "dither_seed").locator(".problem")
    expect(problem).to_have_text("`dither_seed` must be at least 0, got -4")
    expect(seed).to_have_attribute("aria-invalid", "true")
    expect(seed).to_be_focused()
    seed.fill("")
    page.get_by_role("button", name="Apply").click()
    expect(problem).to_be_empty()
    expect(page.locator("#panel .said")).to_contain_text("no changes")
    assert not changes.end()


def swap_form_follows_the_schema(page):
    node(page, "f").click()
    tab(page, "swap")
    taps, threads = [page.get_by_label(name, exact=True) for name in ["taps", "threads"]]
    expect(taps).to_have_value("16")
    expect(threads).to_have_value("")
    # Kinds with one input, or an optional second one, and one output.
    kinds = page.get_by_label("kind", exact=True).locator("option").all_inner_texts()
    assert {"pfb", "f_engine", "fft"} <= set(kinds) and not {"digitiser_simulator", "null_sink", "pol_aligner"} & set(kinds), kinds
    assert page.get_by_label("device").locator("option").all_inner_texts() == ["cpu"]
    assert [threads.get_attribute(name) for name in ["min", "max", "placeholder"]] == ["0", "1024", "1"]
    expect(field(page, "threads").locator(".limits")).to_have_text("0 to 1024")
    expect(field(page, "max_delay_seconds").locator(".unit")).to_have_text("s")
    expect(field(page, "taps").locator(".doc")).to_contain_text("Taps per channel")
    window = page.get_by_label("window")
    assert window.locator("option").all_inner_texts() == ["default: hann", "hann", "rect"]
    # Another kind has its own form, with the values of common parameters.
    page.get_by_label("kind", exact=True).select_option("f_engine")
    expect(page.get_by_label("bits")).to_have_attribute("placeholder", "8")
    expect(taps).to_have_value("16")
    page.get_by_label("kind", exact=True).select_option("pfb")
    expect(page.get_by_label("bits")).to_have_count(0)
    expect(taps).to_have_value("16")


def swap_parameter_out_of_range_is_not_sent(page):
    changes = Changes(page)
    swap = page.get_by_role("button", name="Swap")
    for name, value, problem in [
        ("threads", "2000", "`threads` must be between 0 and 1024, got 2000"),
        ("taps", "8.5", "`taps` must be an integer, got 8.5"),
        ("channels", "", "`channels` is required"),
        ("delays", "[", "this is not JSON"),
    ]:
        given = page.get_by_label(name, exact=True)
        before = given.input_value()
        given.fill(value)
        swap.click()
        expect(field(page, name).locator(".problem")).to_contain_text(problem)
        expect(given).to_be_focused()
        given.fill(before)
    swap.click()
    expect(page.locator("#panel .outcome")).to_have_text("No changes.")
    assert not changes.end()


def rejection_of_the_server_stands_at_its_input(page):
    channels = page.get_by_label("channels", exact=True)
    channels.fill("7")
    page.get_by_role("button", name="Try").click()
    expect(field(page, "channels").locator(".problem")).to_contain_text("prime factors 2, 3 and 5")
    expect(channels).to_be_focused()
    channels.fill("64")


def a_block_is_swapped(page):
    changes = Changes(page)
    taps = page.get_by_label("taps", exact=True)
    taps.fill("8")
    page.get_by_role("button", name="Try").click()
    outcome = page.locator("#panel .outcome")
    expect(outcome).to_contain_text("The swap is possible.")
    expect(outcome).to_contain_text("parameters.taps")
    taps.press("Enter")
    expect(outcome).to_contain_text("Swapped.")
    expect(page.locator('#log li[data-kind="swapped"]')).to_contain_text("f")
    assert changes.end() == 2 * [("PATCH", {"parameters": {"taps": 8}})]
    # The form starts from the running block.
    page.get_by_role("button", name="Try").click()
    expect(outcome).to_have_text("No changes.")


def the_request_can_be_edited(page):
    page.get_by_text("Request (JSON)").click()
    request = page.get_by_label("request body, JSON")
    outcome = page.locator("#panel .outcome")
    expect(request).to_have_value("{}")
    page.get_by_label("threads", exact=True).fill("2")
    page.get_by_label("window").select_option("rect")
    expect(request).to_have_value('{\n  "parameters": {\n    "window": "rect",\n    "threads": 2\n  }\n}')
    request.fill('{\n  "parameters": {"tops": 3}\n}')
    expect(page.get_by_label("taps", exact=True)).to_be_disabled()
    page.get_by_role("button", name="Try").click()
    expect(outcome).to_contain_text("`tops`")
    page.get_by_role("button", name="line 2").click()
    assert request.evaluate("text => text.value.slice(text.selectionStart, text.selectionEnd)") == '"tops"'
    request.fill("{")
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#panel .request .problem")).to_contain_text("this is not JSON")
    page.get_by_role("button", name="Use the form").click()
    expect(page.get_by_label("taps", exact=True)).to_be_enabled()
    expect(request).to_have_value('{\n  "parameters": {\n    "window": "rect",\n    "threads": 2\n  }\n}')


def a_block_is_compared_with_its_shadow(page):
    node(page, "f").click()
    tab(page, "shadow")
    verdict = page.locator("#panel .verdict")
    start = page.get_by_role("button", name="Start shadow")
    start.click()
    expect(verdict).to_contain_text("all bit-identical")
    expect(node(page, "f").locator(".marks")).to_contain_text("shadow")
    page.get_by_role("button", name="Stop shadow").click()
    expect(page.locator("#panel .outcome")).to_contain_text("all bit-identical")
    changes = Changes(page)
    threads, taps = [page.get_by_label(name, exact=True) for name in ["threads", "taps"]]
    threads.fill("-1")
    start.click()
    expect(field(page, "threads").locator(".problem")).to_have_text("`threads` must be between 0 and 1024, got -1")
    assert not changes.sent
    threads.fill("")
    expect(taps).to_have_value("8")
    taps.fill("16")
    page.get_by_label("stop at the first frame that differs").check()
    start.click()
    expect(verdict).to_have_text("1 of 1 frames differ.")
    assert changes.end() == [("POST", {"parameters": {"taps": 16}})]
    expect(page.locator("#panel .sides")).to_contain_text("taps")
    expect(page.locator('#log li[data-kind="shadow_differs"]')).to_contain_text("f")
    arrays = []
    for side in ["block", "shadow"]:
        with page.expect_download() as download:
            page.get_by_role("button", name=f"{side} .npy").click()
        arrays.append(download.value.path().read_bytes())
    assert all(array.startswith(b"\x93NUMPY") for array in arrays) and arrays[0] != arrays[1]
    page.get_by_role("button", name="Stop shadow").click()
    expect(page.get_by_role("button", name="Start shadow")).to_be_visible()


def an_output_is_recorded(page):
    node(page, "gain").click()
    tab(page, "record")
    before = page.get_by_label("before_seconds")
    before.fill("-1")
    record = page.locator("form").get_by_role("button", name="Record")
    record.click()
    expect(field(page, "before_seconds").locator(".problem")).to_have_text("`before_seconds` must be finite and at least 0, got -1")
    before.fill("0.5")
    page.get_by_label("trigger").fill("request")
    record.click()
    recorder = page.locator(".recorder")
    expect(recorder).to_have_attribute("data-state", "waiting")
    expect(node(page, "gain").locator(".marks")).to_contain_text("rec")
    recorder.get_by_role("button", name="Trigger").click()
    expect(recorder.locator("li")).to_contain_text("a request")
    recorder.get_by_role("button", name="Stop").click()
    expect(recorder).to_have_attribute("data-state", "ended")
    expect(page.locator('#log li[data-kind="recorded"]')).to_contain_text("gain")
    page.get_by_role("button", name="Flowgraph", exact=True).click()
    tab(page, "recorders")
    expect(recorder.locator("code")).to_contain_text("recordings/gain_output")


def the_whole_flowgraph_is_changed(page):
    page.get_by_role("button", name="Flowgraph", exact=True).click()
    tab(page, "change")
    text = page.get_by_label("flowgraph, YAML")
    outcome = page.locator("#panel .outcome")
    check = page.get_by_role("button", name="Check", exact=True)
    apply = page.get_by_role("button", name="Apply")
    as_it_runs = text.input_value()
    check.click()
    expect(outcome).to_contain_text("No changes")
    expect(apply).to_be_disabled()
    text.fill(as_it_runs.replace("kind: fft", "kind: ftt"))
    check.click()
    expect(outcome).to_contain_text("there is no kind `ftt`")
    page.get_by_role("button", name="line").click()
    expect(text).to_be_focused()
    assert text.evaluate("text => text.value.slice(text.selectionStart, text.selectionEnd)") == "ftt"
    text.fill(as_it_runs.replace("taps: 8", "taps: 4").replace("gains: 0.4", "gains: 0.3"))
    check.click()
    plan = outcome.locator(".plan tbody")
    expect(plan.filter(has_text="seamless")).to_contain_text("parameters.taps: 8 → 4")
    expect(plan.filter(has_text="live_update")).to_contain_text("parameters.gains: 0.4 → 0.3")
    apply.click()
    expect(outcome).to_contain_text("The flowgraph is updated. Data are those of the new flowgraph from timestamp")
    text.fill(as_it_runs.replace("channels: 64", "channels: 32"))
    check.click()
    expect(page.get_by_role("button", name="Drain and restart")).to_be_enabled()


def a_fault_shows_with_its_cause(page):
    cause = "cannot write full.npy: No space left on device"
    row = page.locator('#log li.fault[data-kind="skipped"]').first
    expect(row).to_contain_text(cause)
    page.get_by_label("kind of event").select_option("faults")
    expect(page.locator("#log li:not(.fault)")).to_have_count(0)
    page.get_by_label("kind of event").select_option("")
    node(page, "disk").click()
    expect(page.locator("#panel .fault")).to_contain_text(cause)


def a_block_is_swapped_for_another_kind(page):
    tab(page, "swap")
    changes = Changes(page)
    kind = page.get_by_label("kind", exact=True)
    expect(page.get_by_label("path")).to_have_value("full.npy")
    kind.select_option("null_sink")
    expect(page.get_by_label("path")).to_have_count(0)
    page.get_by_label("on_fault").select_option("stop")
    page.get_by_role("button", name="Swap").click()
    expect(page.locator("#panel .outcome")).to_contain_text("Swapped.")
    assert changes.end() == [("PATCH", {"kind": "null_sink", "implementation": "cpu", "on_fault": "stop"})]
    expect(page.locator("#panel .line")).to_contain_text("null_sink")
    kind.select_option("file_sink")
    expect(page.get_by_label("path")).to_have_attribute("required", "")


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
    all_tabs_fit(page)
    page.get_by_role("button", name="Flowgraph", exact=True).click()
    expect(page.get_by_role("tab", name="state")).to_be_visible()
    all_tabs_fit(page)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.keyboard.press("Escape")


def all_tabs_fit(page):
    for one in page.get_by_role("tab").all():
        one.click()
        page.wait_for_function("() => document.querySelector('#tab-body').childElementCount > 0")
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], (one.inner_text(), wide)

with browser() as chromium:
    watched = Watched(chromium, ADDRESS)
    page = watched.page
    opens_and_shows(watched)
    a_gain_changes_what_is_plotted(page)
    live_parameter_below_its_minimum_is_not_sent(page)
    swap_form_follows_the_schema(page)
    swap_parameter_out_of_range_is_not_sent(page)
    rejection_of_the_server_stands_at_its_input(page)
    a_block_is_swapped(page)
    the_request_can_be_edited(page)
    a_block_is_compared_with_its_shadow(page)
    an_output_is_recorded(page)
    the_whole_flowgraph_is_changed(page)
    a_fault_shows_with_its_cause(page)
    a_block_is_swapped_for_another_kind(page)
    the_keyboard_leads_everywhere(page)
    colours_follow_the_system_and_the_switch(page)
    nothing_is_wider_than_a_phone(page)
    assert not watched.elsewhere, watched.elsewhere

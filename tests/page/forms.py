"""Each kind has a form with an input for each parameter, with type, range and default; the form changes only what the user changes."""

import sys

from browser import Watched, browser, expect

FORM = """async kind => {
    const { form } = await import("/form.js");
    const { parameters: root } = await (await fetch(`/api/v1/kinds/${encodeURIComponent(kind)}`)).json();
    const one = form(root, {}, { prefix: "test" });
    const of = (name) => root.properties[name];
    return {
        read: one.read(), required: root.required ?? [],
        fields: one.fields.map(({ name, element, input }) => ({
            name, type: input.type, min: input.min, max: input.max, placeholder: input.placeholder, required: input.required,
            checked: input.checked, options: [...(input.options ?? [])].map((option) => option.text),
            label: element.querySelector("label")?.htmlFor === input.id,
            doc: element.querySelector(".doc").textContent, limits: element.querySelector(".limits").textContent,
        })),
        properties: Object.fromEntries(Object.keys(root.properties ?? {}).map((name) => [name, of(name)])),
    };
}"""


def violations(kind, form):
    """Rules that the form of `kind` breaks."""
    fields = {one["name"]: one for one in form["fields"]}
    if set(fields) != set(form["properties"]):
        yield f"fields {set(fields) ^ set(form['properties'])}"
    if form["read"]["values"]:
        yield f"an untouched form reads {form['read']['values']}"
    unasked = {one["name"] for one in form["read"]["problems"]} - set(form["required"])
    if unasked:
        yield f"an untouched form has errors at {unasked}"
    for name, schema in form["properties"].items():
        one = fields[name]
        numeric = {"integer", "number"} & set([schema.get("type")] if isinstance(schema.get("type"), str) else schema.get("type") or [])
        usual = schema.get("default")
        if not one["label"] or not one["doc"].strip():
            yield f"{name}: no label or description"
        if one["required"] != (name in form["required"]):
            yield f"{name}: required {one['required']}"
        # A number or a text, such as a time, has an input for text.
        if numeric and "string" not in schema["type"] and one["type"] not in ("number", "select-one"):
            yield f"{name}: {schema['type']} in an input of type {one['type']}"
        for limit, attribute in [("minimum", "min"), ("maximum", "max")]:
            if limit in schema and one["type"] == "number" and float(one[attribute]) != schema[limit]:
                yield f"{name}: {limit} {schema[limit]}, got {one[attribute]}"
            if limit in schema and not one["limits"]:
                yield f"{name}: the {limit} is not shown"
        if usual not in (None, "", [], {}):
            shows = one["placeholder"] or " ".join(one["options"]) or (one["type"] == "checkbox" and one["limits"])
            if not shows:
                yield f"{name}: the default {usual} is not shown"


with browser() as chromium:
    watched = Watched(chromium, sys.argv[1])
    page = watched.page
    expect(page.locator(".node")).not_to_have_count(0)
    kinds = [one["kind"] for one in page.request.get(f"{sys.argv[1]}/api/v1/kinds").json()]
    assert len(kinds) > 20, kinds
    found = [f"{kind}: {rule}" for kind in kinds for rule in violations(kind, page.evaluate(FORM, kind))]
    print(f"{len(kinds)} kinds")
    assert not found, "\n".join(found)
    watched.quiet()

// Bodies of requests, written so that what is wrong with them can be told at the field it came from.

/// JSON of `{ block: { name: value } }` with one value a line, and which `{ block, name }` stands on each line (from 1).
export function oneValueALine(changes) {
  const lines = ["{"];
  const places = [null];
  const blocks = Object.entries(changes);
  blocks.forEach(([block, values], index) => {
    lines.push(`${JSON.stringify(block)}: {`);
    places.push(null);
    const entries = Object.entries(values);
    entries.forEach(([name, value], number) => {
      lines.push(`${JSON.stringify(name)}: ${JSON.stringify(value)}${number < entries.length - 1 ? "," : ""}`);
      places.push({ block, name });
    });
    lines.push(index < blocks.length - 1 ? "}," : "}");
    places.push(null);
  });
  lines.push("}");
  return { text: lines.join("\n"), places };
}

/// What a problem says, as `{ name, text }`: `name` of the value that it is about, if it points at one.
export function told(problem, places) {
  const diagnostics = problem.diagnostics?.filter((one) => one.severity === "error") ?? [];
  if (diagnostics.length === 0) return [{ name: null, text: [problem.message, ...(problem.help ?? [])].join("; ") }];
  return diagnostics.map((one) => ({
    name: (one.place?.file === "request" ? places[one.place.line - 1]?.name : null) ?? null,
    text: [one.message, ...one.help].join("; "),
  }));
}

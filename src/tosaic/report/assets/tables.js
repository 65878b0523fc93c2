// Refusals with the user's lines, the boundary, and what it takes to make it again.
(() => {
  const refused = data.refused;
  byId("refusalbody").replaceChildren(...(refused.length ? refused.map(refusal) : [el("p", { class: "none" }, "Nothing: every call is compiled. Only the conversion of inputs and outputs runs outside of the graph.")]));
  function refusal(r) {
    const lines = r.lines.map((line) => el("div", { class: line.is_it ? "it" : "" }, el("i", {}, String(line.number)), line.text || " "));
    return el("div", { class: "refusal" },
      el("h3", {}, r.node >= 0 ? el("a", { href: "#graph", onclick: () => selectNode(r.node, "refusal") }, plainName(r.op)) : plainName(r.op), r.others.length ? el("span", { class: "times" }, `${r.others.length + 1} calls`) : null),
      el("p", {}, r.reason),
      r.advice ? el("p", { class: "advice" }, el("b", {}, "What to do: "), r.advice) : null,
      lines.length ? el("pre", { class: "source" }, lines) : null,
      el("div", { class: "hint", style: { margin: "2px 0 0" } }, [r.module, r.file ? `${r.file}:${r.line}` : ""].filter(Boolean).join("   ")),
      r.others.length ? el("details", {}, el("summary", {}, r.others.length === 1 ? "1 other call" : `${r.others.length} other calls`), el("ul", { class: "others" }, r.others.map((other) => el("li", {}, other.node >= 0 ? el("a", { href: "#graph", onclick: () => selectNode(other.node, "refusal") }, other.place || "elsewhere") : other.place || "elsewhere")))) : null);
  }

  // The program's own tensors, then those of its graphs.
  const ports = (data.report.boundary ? [["in", data.report.boundary.inputs], ["out", data.report.boundary.outputs]] : [])
    .flatMap(([way, tensors]) => tensors.map((t) => ["Program", way, t.name, t.dtype, t.shape, t.scale, t.zero_point, t.dim_order]));
  const inner = data.report.delegates.flatMap((d, graph) => [["in", d.inputs], ["out", d.outputs]]
    .flatMap(([way, tensors]) => tensors.map((t) => [`Graph ${graph}` + (d.calls > 1 ? ` × ${whole(d.calls)}` : ""), way, t.name, t.dtype, t.shape, t.quant && t.quant.scale, t.quant && t.quant.zero_point, null])));
  const rows = [...ports, ...inner];
  const number = (n) => n === null || n === undefined ? "" : Array.isArray(n) ? `${n.length} of them` : real(n);
  const order = (axes) => axes && axes.some((axis, i) => axis !== i) ? ` (axes lie as ${axes.join(", ")})` : "";
  const bits = (dtype) => dtype === "bool" ? 8 : parseInt(dtype.replace(/\D+/, ""), 10) || 8;
  const line = ([where, way, name, dtype, shape, scale, zero, axes], i) => el("tr", {},
    el("td", {}, i && rows[i - 1][0] === where ? "" : where), el("td", {}, way), el("td", { class: "mono word" }, breakable(name)), el("td", { class: "mono" }, dtype),
    el("td", { class: "mono" }, sizes(shape), order(axes)), el("td", { class: "num mono", title: scale === null || Array.isArray(scale) ? null : String(scale) }, number(scale)), el("td", { class: "num mono" }, number(zero)),
    el("td", { class: "num wide" }, whole(shape.reduce((a, b) => a * b, 1) * bits(dtype) / 8)));
  const names = ["", "", "Name", "Type", "Shape"].map((name) => el("th", {}, name)), numbers = ["Scale", "Zero point", "Bytes"].map((name) => el("th", { class: name === "Bytes" ? "num wide" : "num" }, name));
  byId("boundarybody").append(rows.length ? el("div", { class: "scroll tall" }, el("table", {}, el("thead", {}, el("tr", {}, names, numbers)), el("tbody", {}, rows.map(line)))) : el("p", { class: "none" }, "Nothing goes in or out."));
  if (rows.some((row) => typeof row[5] === "number")) byId("boundarybody").append(el("p", { class: "hint" }, "A real number is scale × (integer − zero point)."));

  byId("factsbody").append(el("div", { class: "scroll tall" }, el("table", {}, el("tbody", {}, data.facts.map(([name, value]) => el("tr", {}, el("td", { style: { color: "var(--soft)", whiteSpace: "nowrap" } }, name), el("td", { class: "mono wrap" }, value)))))));
})();

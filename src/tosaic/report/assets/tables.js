// Refusals with the user's lines, the boundary, and what it takes to make it again.
(() => {
  const refused = data.refused;
  byId("refusalbody").replaceChildren(...(refused.length ? refused.map(refusal) : [el("p", { class: "none" }, "Nothing: every call is compiled. Only the conversion of inputs and outputs runs outside of the graph.")]));
  function refusal(r) {
    const lines = r.lines.map((line) => el("div", { class: line.is_it ? "it" : "" }, el("i", {}, String(line.number)), line.text || " "));
    return el("div", { class: "refusal" },
      el("h3", {}, r.node >= 0 ? el("a", { href: "#graph", onclick: () => selectNode(r.node, "refusal") }, plainName(r.op)) : plainName(r.op)),
      el("p", {}, r.reason),
      el("p", { class: "advice" }, el("b", {}, "What to do: "), r.advice),
      lines.length ? el("pre", { class: "source" }, lines) : null,
      el("div", { class: "hint", style: { margin: "2px 0 0" } }, [r.module, r.file ? `${r.file}:${r.line}` : ""].filter(Boolean).join("   ")));
  }

  const rows = data.report.delegates.flatMap((d, graph) => [["in", d.inputs], ["out", d.outputs]].flatMap(([way, tensors]) => tensors.map((t) => [graph, way, t])));
  const quant = (t, name) => !t.quant ? "" : Array.isArray(t.quant[name]) ? `${t.quant[name].length} of them` : name === "scale" ? String(+t.quant[name].toPrecision(8)) : String(t.quant[name]);
  byId("boundarybody").append(rows.length ? el("div", { style: { overflowX: "auto" } }, el("table", {},
    el("thead", {}, el("tr", {}, ["Graph", "", "Name", "Type", "Shape"].map((name) => el("th", {}, name)), el("th", { class: "num" }, "Scale"), el("th", { class: "num" }, "Zero point"), el("th", { class: "num" }, "Bytes"))),
    el("tbody", {}, rows.map(([graph, way, t]) => el("tr", {}, el("td", {}, String(graph)), el("td", {}, way), el("td", { class: "mono wrap" }, t.name), el("td", { class: "mono" }, t.dtype), el("td", { class: "mono" }, sizes(t.shape)),
      el("td", { class: "num mono" }, quant(t, "scale")), el("td", { class: "num mono" }, quant(t, "zero_point")), el("td", { class: "num" }, whole(t.shape.reduce((a, b) => a * b, 1) * (parseInt(t.dtype.replace(/\D+/, ""), 10) || 8) / 8))))))) : el("p", { class: "none" }, "No graph was compiled."));
  if (rows.some(([, , t]) => t.quant)) byId("boundarybody").append(el("p", { class: "hint" }, "A real number is scale × (integer − zero point)."));

  byId("factsbody").append(el("table", {}, el("tbody", {}, data.facts.map(([name, value]) => el("tr", {}, el("td", { style: { color: "var(--soft)", whiteSpace: "nowrap" } }, name), el("td", { class: "mono wrap" }, value))))));
})();

// The selected item: what it is, what it costs, where it comes from, what is next to it.
(() => {
  const aside = byId("details");
  const measured = new Map();
  data.layers.forEach((m) => { if (m.group >= 0) measured.set(m.group, [...(measured.get(m.group) || []), m.layer]); });
  const sum = (measure) => views.operators.items.reduce((total, item) => total + measure(item), 0);
  const totals = Object.fromEntries(METRICS.map(([name, , measure]) => [name, sum(measure) || 1]));

  function show(chosen) {
    if (chosen.index < 0) { empty(); return; }
    const view = views[chosen.view], item = view.items[chosen.index];
    const parts = [
      el("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => select(chosen.view, -1) }, "×"),
      el("div", { class: "place" }, el("i", { class: "dot", style: { background: `var(--${item.place})` } }), PLACES[item.place] + (item.place !== "port" && item.place !== "cpu" && data.report.delegates.length > 1 ? `, graph ${item.graph}` : "")),
      el("h2", {}, chosen.view === "operators" ? nodes[item.members[0]].op : item.label),
      el("div", { class: "path" }, item.module || (item.loc.node ? "" : " ")),
    ];
    const line = lineOf(item.loc);
    if (line) parts.push(source(line, item.loc));
    parts.push(costs(item));
    const layers = chosen.view === "layers" ? measured.get(chosen.index) : null;
    if (layers) parts.push(...accuracy(layers));
    if (item.members.length === 1) parts.push(...single(nodes[item.members[0]]));
    parts.push(...neighbours(chosen.view, chosen.index));
    if (chosen.view === "operators") {
      const group = views.layers.of[item.members[0]];
      if (views.layers.members[group].length > 1) parts.push(el("h3", {}, "Part of"), go("layers", group));
    } else if (item.members.length > 1) parts.push(...inside(item));
    aside.replaceChildren(...parts.filter(Boolean));
    aside.classList.remove("idle");
    aside.scrollTop = 0;
  }

  function source(line, loc) {
    const text = data.lines[line], name = loc.file.replace(/^.*[\\/]/, "") + ":" + loc.line;
    return el("div", { title: line }, text ? el("pre", { class: "source" }, el("div", {}, el("i", {}, String(loc.line)), text)) : null, el("div", { class: "path" }, name));
  }

  function costs(item) {
    const rows = [];
    const row = (name, value) => rows.push(el("dt", {}, name), el("dd", {}, value));
    if (item.cycles) row(capital(UNIT), `${whole(item.cycles)}, ${percent(item.cycles / totals.cycles)}`);
    if (item.macs) row("Multiplications", short(item.macs));
    if (item.cycles && item.macs && data.peak_macs) row("Of the multipliers", percent(item.macs / item.cycles / data.peak_macs) + " used");
    for (const [memory, n] of Object.entries(item.moved)) row(memory === "tensors" ? "Reads and writes" : memory, bytes(n));
    if (item.weights) row("Weights", bytes(item.weights));
    if (!rows.length && item.place === "device") return el("p", { class: "more" }, "No operation of its own: another one does its work, or nothing is left to do.");
    return el("dl", {}, rows);
  }

  function accuracy(layers) {
    const distinct = layers.filter((layer, i) => !layers.slice(0, i).some((other) => other.sqnr === layer.sqnr && other.saturation === layer.saturation));
    return distinct.slice(0, 3).flatMap((layer) => {
      const v = layer.values;
      const rows = [el("dt", {}, "SQNR"), el("dd", {}, decibels(layer.sqnr)), el("dt", {}, "Largest error"), el("dd", {}, real(layer.max_error)), el("dt", {}, "Saturated"), el("dd", {}, percent(layer.saturation, 2))];
      if (v) rows.push(el("dt", {}, "Values"), el("dd", {}, `${real(v.low)} to ${real(v.high)}`), el("dt", {}, "99.8 % of them"), el("dd", {}, `${real(v.percentiles[0])} to ${real(v.percentiles[1])}`));
      if (v && v.covered) rows.push(el("dt", {}, "Covered"), el("dd", {}, `${real(v.covered[0])} to ${real(v.covered[1])}`), el("dt", {}, "Scale"), el("dd", {}, real(v.scale)), el("dt", {}, "Zero point"), el("dd", {}, String(v.zero_point)));
      return [el("h3", {}, `${layer.name} beside the original`), v ? el("div", { class: "range", style: { cursor: "default", padding: "4px 8px" } }, histogram(v)) : null, el("dl", {}, rows)];
    });
  }

  function single(node) {
    const parts = [], rows = Object.entries(node.attributes || {});
    if (rows.length) parts.push(el("h3", {}, "Attributes"), el("dl", {}, rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
    if (node.constants) parts.push(el("h3", {}, "Constants"), el("ul", {}, node.constants.map((text) => el("li", { class: "path" }, text))));
    const wires = (node.outputs || []).filter((wire) => wire.scale !== null && wire.scale !== undefined);
    if (wires.length) parts.push(el("h3", {}, "Result"), el("dl", {}, wires.flatMap((wire) => [el("dt", {}, "Type"), el("dd", {}, wired(wire)), el("dt", {}, "Scale"), el("dd", {}, real(wire.scale)), el("dt", {}, "Zero point"), el("dd", {}, String(wire.zero_point))])));
    if (node.operations) parts.push(el("h3", {}, "Operations of the device"), el("div", { class: "path" }, counted(node.operations)));
    return parts;
  }
  function counted(list) {
    const times = new Map();
    list.forEach((name) => times.set(name, (times.get(name) || 0) + 1));
    return [...times].map(([name, n]) => n > 1 ? `${n} × ${name}` : name).join(", ");
  }

  function go(view, index, extra) {
    const item = views[view].items[index];
    return el("button", { type: "button", class: "go", onclick: () => { if (view === "operators") graph.show(view); select(view, index, "details"); } },
      el("i", { class: "dot", style: { background: `var(--${item.place})` } }), el("span", {}, view === "operators" ? nodes[item.members[0]].op : item.label), el("span", { class: "path" }, item.module || lineOf(item.loc).replace(/^.*[\\/]/, "")), el("small", {}, extra || ""));
  }
  function neighbours(name, index) {
    const view = views[name], parts = [];
    const list = (title, edges, end) => {
      if (!edges.length) return;
      parts.push(el("h3", {}, title), el("ul", {}, edges.slice(0, 12).map((e) => {
        const [start, , output] = data.edges[view.edges[e][2]], wire = (nodes[start].outputs || [])[output];
        return el("li", {}, go(name, view.edges[e][end], wire ? wired(wire) : ""));
      })));
      if (edges.length > 12) parts.push(el("div", { class: "more" }, `and ${edges.length - 12} more`));
    };
    list("Reads", view.before[index], 0);
    list("Is read by", view.after[index], 1);
    return parts;
  }
  function inside(item) {
    const list = item.members.slice(0, 40);
    return [el("h3", {}, `${item.members.length} operators`), el("ul", {}, list.map((n) => el("li", {}, go("operators", n, nodes[n].cycles ? short(nodes[n].cycles) : "")))),
      item.members.length > 40 ? el("div", { class: "more" }, `and ${item.members.length - 40} more`) : null];
  }

  function empty() {
    const metric = METRICS[0];
    const worst = metric ? views.layers.items.map((item, i) => [metric[2](item), i]).sort((a, b) => b[0] - a[0]).slice(0, 10).filter(([n]) => n > 0) : [];
    aside.classList.add("idle");
    aside.replaceChildren(
      el("h2", {}, "Nothing selected"),
      el("p", { class: "empty" }, "Click a node, a box or a row, or press ", el("kbd", {}, "/"), " to search."),
      ...(worst.length ? [el("h3", {}, "What costs most"), el("ul", {}, worst.map(([n, i]) => el("li", {}, go("layers", i, metric[3](n)))))] : []));
  }
  listeners.push(show);
  empty();
})();

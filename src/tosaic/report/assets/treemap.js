// Cost by module: areas are proportional, colours are kinds of operators.
(() => {
  const box = byId("treemap"), items = views.layers.items;
  let metric = METRICS[0];
  if (!metric) {
    box.replaceWith(el("p", { class: "none" }, "No operator has a cost."));
    return;
  }

  // Modules by their paths; leaves are calls.
  function tree(measure) {
    const root = { name: "", children: new Map(), leaves: [], value: 0 };
    items.forEach((item, index) => {
      const value = measure(item);
      if (!(value > 0)) return;
      let at = root;
      at.value += value;
      for (const part of item.module ? item.module.split(".") : []) {
        if (!at.children.has(part)) at.children.set(part, { name: at.name ? at.name + "." + part : part, children: new Map(), leaves: [], value: 0 });
        at = at.children.get(part);
        at.value += value;
      }
      at.leaves.push({ index, value });
    });
    return root;
  }
  // A module with a single part is that part.
  function parts(node) {
    const list = [...node.children.values(), ...node.leaves];
    return list.length === 1 && list[0].children ? parts(list[0]) : list;
  }

  function squarify(list, x, y, w, h, place) {
    list = [...list].sort((a, b) => b.value - a.value);
    let total = list.reduce((sum, part) => sum + part.value, 0);
    while (list.length && total > 0) {
      const along = Math.min(w, h), area = w * h / total;
      const row = [];
      let sum = 0, worst = Infinity;
      while (list.length) {
        const next = list[0].value, together = sum + next;
        const side = together * area / along;
        const shapes = [...row.map((part) => part.value), next].map((v) => { const other = v * area / side; return Math.max(side / other, other / side); });
        const ratio = Math.max(...shapes);
        if (row.length && ratio > worst) break;
        worst = ratio;
        row.push(list.shift());
        sum = together;
      }
      const side = sum * area / along;
      let offset = 0;
      for (const part of row) {
        const length = part.value * area / side;
        if (w >= h) place(part, x, y + offset, side, length); else place(part, x + offset, y, length, side);
        offset += length;
      }
      if (w >= h) { x += side; w -= side; } else { y += side; h -= side; }
      total -= sum;
    }
  }

  function fill(node, x, y, w, h, depth, out) {
    squarify(parts(node), x, y, w, h, (part, px, py, pw, ph) => {
      if (!part.children) { leaf(part, px, py, pw, ph, out); return; }
      const list = parts(part);
      const framed = depth < 3 && pw > 60 && ph > 42 && list.length > 1;
      if (!framed) { fill(part, px, py, pw, ph, depth + 1, out); return; }
      out.push(el("div", { class: "frame", style: rect(px, py, pw, 16) }, part.name));
      fill(part, px + 2, py + 16, pw - 4, ph - 18, depth + 1, out);
    });
  }
  const rect = (x, y, w, h) => ({ left: x + "px", top: y + "px", width: Math.max(w, 0) + "px", height: Math.max(h, 0) + "px" });

  function leaf(part, x, y, w, h, out) {
    const item = items[part.index], kind = item.kind;
    const text = w > 44 && h > 20 ? [el("b", {}, item.label)] : [];
    if (text.length && h > 36) text.push(el("span", {}, metric[3](part.value)));
    if (text.length && h > 52 && w > 70) text.push(el("span", {}, item.module));
    const words = `${item.label}  ${item.module}\n${metric[3](part.value)}, ${percent(part.value / total)}`;
    out.push(el("button", { type: "button", "data-index": part.index, "aria-label": words, style: { ...rect(x, y, w, h), background: kind[1], padding: text.length ? undefined : "0" },
      onclick: () => select("layers", part.index, "treemap"), onpointermove: (event) => showTip(words, event), onpointerleave: hideTip }, ...text));
  }

  let total = 1;
  function draw() {
    const root = tree(metric[2]), out = [];
    total = root.value || 1;
    fill(root, 0, 0, box.clientWidth, box.clientHeight, 0, out);
    box.replaceChildren(...out);
    mark();
    kinds();
  }
  function mark() {
    const chosen = selectedIn("layers");
    box.querySelectorAll("button").forEach((b) => b.classList.toggle("on", +b.dataset.index === chosen));
  }
  function kinds() {
    const sums = new Map();
    views.operators.items.forEach((item) => {
      const value = metric[2](item), kind = kindOf(item.op);
      if (value > 0) sums.set(kind, (sums.get(kind) || 0) + value);
    });
    const rows = [...sums].sort((a, b) => b[1] - a[1]);
    byId("kinds").replaceChildren(...rows.map(([[name, colour], value]) => el("div", { class: "kind" },
      el("i", { class: "dot", style: { background: colour } }), el("span", {}, name),
      el("span", { class: "num" }, metric[3](value) + "  " + percent(value / total)),
      el("div", { class: "bar" }, el("i", { style: { width: 100 * value / total + "%", background: colour } })))));
  }
  choices("metric", METRICS.map((m) => [m, m[1]]), metric, (value) => { metric = value; draw(); });
  byId("costhint").textContent = nodes.some((n) => n.cycles)
    ? `${UNIT === "instructions" ? "Instructions are counted on an emulated core" : `${capital(UNIT)} and traffic are an estimate of the target's compiler`} for each operation; one operation may do the work of several operators, and counts for the first.`
    : "Without a device there are no cycles: traffic is what operators read and write, if nothing is kept between them.";
  let width = 0;
  new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; draw(); } }).observe(box);
  listeners.push(mark);
})();

// Each layer beside the original: signal-to-noise ratio, saturation, and the values it has.
(() => {
  const layers = data.layers, body = byId("accuracybody"), ranges = byId("rangebody");
  if (!layers.length) {
    body.replaceChildren(el("p", { class: "none" }, "Not measured. Save the report with model= and inputs=, or compile with --report, to compare each layer with the original."));
    ranges.parentElement.hidden = true;
    return;
  }
  // Calls that only move values have those of the call before.
  const same = (a, b) => a.layer.sqnr === b.layer.sqnr && a.layer.max_error === b.layer.max_error && a.layer.saturation === b.layer.saturation;
  const told = layers.filter((m, i) => i === 0 || !layers.slice(Math.max(0, i - 40), i).some((earlier) => same(earlier, m)) || m.layer.op === "input");
  const stage = el("div", { class: "stage", style: { height: "300px" } });
  const canvas = el("canvas", { id: "sqnr", role: "img", "aria-label": "Signal-to-noise ratio by layer" });
  stage.append(canvas);
  body.append(stage);
  const pad = { left: 68, right: 16, top: 16, bottom: 132 }, NAMES = 92;
  const finite = told.map((m) => m.layer.sqnr).filter((x) => x !== null);
  const top = Math.ceil((Math.max(20, ...finite) + 4) / 10) * 10, low = Math.min(0, Math.floor(Math.min(0, ...finite) / 10) * 10);
  const most = Math.max(0.01, ...told.map((m) => m.layer.saturation));
  let over = -1, place = { x: () => 0, y: () => 0 };
  const redraw = onCanvas(canvas, draw);

  function draw(c, width, height) {
    const w = width - pad.left - pad.right, h = height - pad.top - pad.bottom;
    place = { x: (i) => pad.left + w * (i + 0.5) / told.length, y: (d) => pad.top + h * (1 - ((d === null ? top : d) - low) / (top - low)) };
    c.font = "11px " + css("--sans");
    c.textAlign = "right";
    const apart = [10, 20, 50, 100].find((n) => (top - low) / n * 16 <= h) || 200;
    for (let d = Math.ceil(low / apart) * apart; d <= top; d += apart) {
      c.strokeStyle = css("--line");
      c.beginPath(); c.moveTo(pad.left, place.y(d)); c.lineTo(width - pad.right, place.y(d)); c.stroke();
      c.fillStyle = css("--faint");
      c.fillText(d + " dB", pad.left - 8, place.y(d) + 4);
    }
    c.fillText("saturated", pad.left - 8, height - NAMES - 12);
    const step = w / told.length, every = Math.max(1, Math.ceil(13 / step));
    told.forEach((m, i) => {  // as many names as there is room for, along the axis
      if (i % every) return;
      c.save();
      c.translate(place.x(i) + 4, height - NAMES + 6);
      c.rotate(-Math.PI / 2);
      let name = m.layer.name;
      for (let left = 5; c.measureText(name).width > NAMES - 12; left--) name = m.layer.name.slice(0, left) + "…" + m.layer.name.slice(-left - 1);
      c.fillText(name, 0, 0);
      c.restore();
    });
    told.forEach((m, i) => {
      const tall = m.layer.saturation ? Math.max(2, 26 * Math.sqrt(m.layer.saturation / most)) : 0;
      c.fillStyle = css("--bad");
      c.fillRect(place.x(i) - Math.min(step * 0.35, 6), height - NAMES - 4 - tall, Math.min(step * 0.7, 12), tall);
    });
    c.strokeStyle = css("--accent");
    c.lineWidth = 1.5;
    c.beginPath();
    told.forEach((m, i) => c[i ? "lineTo" : "moveTo"](place.x(i), place.y(m.layer.sqnr)));
    c.stroke();
    c.lineWidth = 1;
    const chosen = selectedIn("layers"), size = told.length > 150 ? 2 : 3.5;
    told.forEach((m, i) => {
      const on = m.group >= 0 && m.group === chosen;
      c.beginPath();
      c.arc(place.x(i), place.y(m.layer.sqnr), on || i === over ? 6 : size, 0, 7);
      c.fillStyle = on ? css("--ink") : m.layer.sqnr !== null && m.layer.sqnr < 15 ? css("--bad") : css("--accent");
      c.fill();
      if (i === over) { c.strokeStyle = css("--card"); c.lineWidth = 2; c.stroke(); c.lineWidth = 1; }
    });
  }
  const nearest = (event) => {
    const [px] = at(event, canvas), width = canvas.clientWidth - pad.left - pad.right;
    return Math.min(Math.max(Math.floor((px - pad.left) / width * told.length), 0), told.length - 1);
  };
  const where = (layer) => (layer.where || "").split(", ")[0].replace(/^.*[\\/](?=[^\\/]+:\d+$)/, "");
  canvas.addEventListener("pointermove", (event) => {
    over = nearest(event);
    const { layer } = told[over];
    showTip([`${layer.name}  ${where(layer)}`, decibels(layer.sqnr), `largest error ${real(layer.max_error)}`, layer.saturation ? percent(layer.saturation, 2) + " saturated" : ""].filter(Boolean).join("\n"), event);
    redraw();
  });
  canvas.addEventListener("pointerleave", () => { over = -1; hideTip(); redraw(); });
  canvas.addEventListener("click", (event) => go(told[nearest(event)]));
  const go = (m) => { if (m.group >= 0) select("layers", m.group, "accuracy"); };

  // The table, worst first unless asked otherwise.
  const columns = [
    ["Layer", (m) => m.layer.name], ["Operator", (m) => plainName(m.layer.op), null, "wide"], ["Where", (m) => where(m.layer)],
    ["SQNR", (m) => m.layer.sqnr === null ? Infinity : m.layer.sqnr, (m) => decibels(m.layer.sqnr)],
    ["Largest error", (m) => m.layer.max_error, (m) => real(m.layer.max_error), "wide"],
    ["Saturated", (m) => m.layer.saturation, (m) => m.layer.saturation ? percent(m.layer.saturation, 2) : ""],
  ];
  let order = 3, sign = 1;
  const rows = el("tbody");
  const heads = columns.map(([name, , shown, more], i) => el("th", { class: (shown ? "num " : "") + (more || "") }, el("button", { type: "button", onclick: () => { sign = order === i ? -sign : i > 3 ? -1 : 1; order = i; fillTable(); } }, name)));
  function fillTable() {
    const key = columns[order][1];
    const list = [...told].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * sign);
    rows.replaceChildren(...list.map((m) => {
      const row = el("tr", { class: m.group >= 0 ? "link" : "", onclick: () => go(m) }, columns.map(([, value, shown, more]) => el("td", { class: (shown ? "num " : "word ") + (more || "") }, shown ? String(shown(m)) : breakable(value(m)))));
      row.group = m.group;
      return row;
    }));
    mark();
  }
  body.append(el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), rows)));
  const hidden = layers.length - told.length;
  const ends = data.outputs.map((o) => `${o.name} ${decibels(o.sqnr)}`).join(", ");
  body.append(el("p", { class: "hint" }, `Signal-to-noise ratio of each value against the original in float; 20 dB is an error of a tenth. ${ends ? "Outputs: " + ends + "." : ""}${hidden ? ` ${hidden === 1 ? "1 call that only moves values is" : `${hidden} calls that only move values are`} left out.` : ""}`));

  // Values and what the integers cover of them.
  const seen = told.filter((m) => m.layer.values);
  const cards = new Map();
  function card(m) {
    if (cards.has(m)) return cards.get(m);
    const { layer } = m, v = layer.values;
    const made = el("button", { type: "button", class: "range", onclick: () => go(m) },
      el("div", { class: "who" }, el("b", {}, layer.name), el("span", { class: "mono" }, v.dtype || "")),
      el("div", { class: "where" }, where(layer)), histogram(v),
      el("div", { class: "ends" }, el("span", {}, real(v.low)), el("span", {}, layer.saturation ? (layer.saturation < 5e-5 ? "< 0.01 %" : percent(layer.saturation, 2)) + " cut" : ""), el("span", {}, real(v.high))));
    made.group = m.group;
    cards.set(m, made);
    return made;
  }
  const orders = {
    order: (a, b) => seen.indexOf(a) - seen.indexOf(b),
    cut: (a, b) => b.layer.saturation - a.layer.saturation,
    sqnr: (a, b) => (a.layer.sqnr ?? 1e9) - (b.layer.sqnr ?? 1e9),
  };
  const sort = (name) => { ranges.replaceChildren(...[...seen].sort(orders[name]).map(card)); mark(); };
  choices("rangeorder", [["order", "In order"], ["cut", "Most cut first"], ["sqnr", "Farthest first"]], "order", sort);
  ranges.after(el("p", { class: "hint" }, "What values each layer has in the original on the inputs that were given. The green band is what its integers cover; red is beyond it. Heights are square roots of counts."));
  function mark() {
    const chosen = selectedIn("layers");
    for (const one of [...rows.children, ...ranges.children]) one.classList.toggle("on", chosen >= 0 && one.group === chosen);
  }
  fillTable();
  sort("order");
  if (!seen.length) ranges.parentElement.hidden = true;
  listeners.push(() => { mark(); redraw(); });
})();

// A histogram of values, and the range of integers over it.
function histogram(v) {
  const W = 200, H = 52, covered = v.covered || [v.low, v.high];
  const low = Math.min(v.low, covered[0]), high = Math.max(v.high, covered[1]), span = high - low || 1;
  const x = (value) => (value - low) / span * W, top = Math.sqrt(Math.max(1, ...v.counts)), wide = (v.high - v.low) / v.counts.length;
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  if (v.covered) picture.append(svg("rect", { class: "band", x: x(covered[0]), y: 0, width: Math.max(x(covered[1]) - x(covered[0]), 0.5), height: H }));
  let inside = "", outside = "";
  v.counts.forEach((count, i) => {
    if (!count) return;
    const from = v.low + i * wide, middle = from + wide / 2, tall = Math.max(0.8, (H - 3) * Math.sqrt(count) / top);
    const bar = `M${x(from).toFixed(2)} ${H}v${(-tall).toFixed(2)}h${Math.max(x(from + wide) - x(from), 0.4).toFixed(2)}V${H}z`;
    if (middle < covered[0] || middle > covered[1]) outside += bar; else inside += bar;
  });
  picture.append(svg("path", { class: "bars", d: inside }), svg("path", { class: "lost", d: outside }));
  if (low < 0 && high > 0) picture.append(svg("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: H }));
  return picture;
}

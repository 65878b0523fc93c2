// A sweep: networks beside one another, the front as a plot to click, a table to sort, scores, and inputs that forms disagree on.
const rows = data.rows;
const isShare = ["top1", "top5", "map", "map50", "wer"].includes(data.metric);
const scored = (x) => x === null || x === undefined ? "" : data.metric === "sqnr" ? decibels(x) : isShare ? percent(x, 2) : real(x);
const AXES = [["cycles", "Cycles", short], ["milliseconds", "Time", (n) => real(n) + " ms"], ["sram", "SRAM", bytes], ["flash", "Flash", bytes]];
const HUES = [205, 28, 140, 280, 350, 60, 175, 320];
const targets = [...new Set(rows.map((r) => r.target))];
const colour = (target) => { const n = targets.indexOf(target); return `hsl(${HUES[n % HUES.length]} ${n < HUES.length ? 65 : 35}% 50%)`; };
const plotted = rows.filter((r) => r.score !== null);
const groups = [...new Set(plotted.map((r) => r.group))];
let axis = AXES.find(([name]) => plotted.some((r) => r[name] !== null)) || AXES[0];
let group = groups[0], selected = null;

function ticks(low, high, count) {
  const step = 10 ** Math.floor(Math.log10((high - low) / count));
  const wide = [1, 2, 5, 10].map((f) => f * step).find((s) => (high - low) / s <= count);
  const found = [];
  for (let t = Math.ceil(low / wide) * wide; t <= high + wide * 1e-9; t += wide) found.push(t);
  return found;
}

function draw() {
  const [name, label, form] = axis;
  const shown = plotted.filter((r) => r.group === group && r[name] !== null);
  const box = byId("plot"), W = Math.max(300, box.clientWidth), H = W < 600 ? 320 : 440, L = 70, R = 20, T = 18, B = 46;
  if (!shown.length) { box.replaceChildren(el("p", { class: "none" }, "Nothing is judged yet.")); return; }
  const range = (values) => { let low = Math.min(...values), high = Math.max(...values); const pad = (high - low || Math.abs(high) || 1) * 0.07; return [low - pad, high + pad]; };
  let [x0, x1] = range(shown.map((r) => r[name])), [y0, y1] = range(shown.map((r) => r.score));
  x0 = Math.max(x0, 0);
  const X = (v) => L + (v - x0) / (x1 - x0) * (W - L - R), Y = (v) => H - B - (v - y0) / (y1 - y0) * (H - T - B);
  const plot = svg("svg", { class: "plot", viewBox: `0 0 ${W} ${H}`, style: `height: ${H}px`, role: "group", "aria-label": `${data.metric} over ${label}` });
  for (const t of ticks(x0, x1, W < 600 ? 4 : 8)) plot.append(svg("line", { class: "tick", x1: X(t), x2: X(t), y1: T, y2: H - B }), svg("text", { x: X(t), y: H - B + 17, "text-anchor": "middle" }, form(t)));
  for (const t of ticks(y0, y1, 7)) plot.append(svg("line", { class: "tick", x1: L, x2: W - R, y1: Y(t), y2: Y(t) }), svg("text", { x: L - 8, y: Y(t) + 4, "text-anchor": "end" }, scored(t)));
  plot.append(svg("text", { x: (L + W) / 2, y: H - 8, "text-anchor": "middle" }, label), svg("text", { x: L, y: 12 }, data.metric));
  const better = (a, b) => data.isLowerBetter ? a < b : a > b, steps = [];
  let best = null;
  for (const r of [...shown].sort((a, b) => a[name] - b[name] || (better(a.score, b.score) ? -1 : 1))) if (best === null || better(r.score, best)) { best = r.score; steps.push(`${X(r[name])},${Y(r.score)}`); }
  plot.append(svg("polyline", { class: "front", points: steps.join(" ") }));
  for (const r of [...shown].sort((a, b) => a.is_on_front - b.is_on_front)) {
    if (r.low !== null && r.high !== null && r.number === selected) plot.append(svg("line", { class: "spread", x1: X(r[name]), x2: X(r[name]), y1: Y(Math.max(r.low, y0)), y2: Y(Math.min(r.high, y1)) }));
    const dot = svg("circle", { cx: X(r[name]), cy: Y(r.score), r: r.is_on_front ? 7 : 5, fill: colour(r.target), class: (r.is_on_front ? "" : "off") + (r.number === selected ? " on" : ""), tabindex: "0", role: "button", "data-number": r.number, "aria-label": `${r.number}: ${r.title}` });
    dot.append(svg("title", {}, `${r.number}: ${r.title}\n${scored(r.score)}, ${form(r[name])}`));
    dot.addEventListener("click", () => pick(r.number));
    dot.addEventListener("keydown", (event) => { if (event.key === "Enter") pick(r.number); });
    plot.append(dot);
  }
  box.replaceChildren(plot);
  byId("key").replaceChildren(...[...new Set(shown.map((r) => r.target))].map((t) => el("span", {}, el("i", { class: "dot", style: { background: colour(t) } }), t)));
}

function pick(number) {
  selected = number;
  const r = rows.find((each) => each.number === number);
  if (r.score !== null && r.group !== group) byId("group").value = group = r.group;
  draw();
  for (const line of document.querySelectorAll("#tablebody tr, #comparebody td")) line.classList.toggle("on", Number(line.dataset.number) === number);
  const facts = [["precision", r.precision], ...Object.entries(r.options), [data.metric, scored(r.score) + (r.low !== null ? ` (${scored(r.low)} to ${scored(r.high)})` : "")]];
  if (data.metric !== "sqnr") facts.push(["original", scored(r.original)]);
  facts.push([r.unit, r.cycles === null ? "" : whole(r.cycles)], ["time", r.milliseconds === null ? "" : real(r.milliseconds) + " ms"], ["SRAM", r.sram === null ? "" : `${whole(r.sram)} bytes`], ["flash", r.flash === null ? "" : `${whole(r.flash)} bytes`], ["calls on the CPU", r.cpu_calls ? String(r.cpu_calls) : "none"]);
  for (const [file, sum] of Object.entries(r.sha256)) facts.push([`sha256 of ${file}`, sum.slice(0, 16) + "…"]);
  byId("details").classList.remove("idle");
  byId("details").replaceChildren(
    el("button", { class: "close", type: "button", "aria-label": "Close", onclick: () => byId("details").classList.add("idle") }, "×"),
    el("h2", {}, `${r.number}: ${[r.model, r.size].filter(Boolean).join(" ")}`), el("p", { class: "hint" }, r.target + (r.is_on_front ? ", on the front" : "")),
    r.problem ? el("p", {}, r.problem) : el("dl", {}, facts.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    ...Object.entries(r.links).map(([name, place]) => el("div", {}, el("a", { href: encodeURI(place) }, name === "report.html" ? "its report" : name))),
    el("p", { class: "hint" }, "Reproduce"), el("pre", {}, r.command),
    ...(r.checks.length ? [el("p", { class: "hint" }, "Checked"), ...r.checks.map((c) => el("div", { class: "more" }, c))] : []),
    ...(r.wide.length ? [el("p", { class: "hint" }, `${r.wide.length} calls have 16 bits`), el("div", { class: "more wrap" }, r.wide.join(", "))] : []));
}

const isAlone = new Set(rows.map((r) => r.model + " " + (r.size || ""))).size < 2;
const named = (r) => isAlone ? [r.target, ...r.words, r.precision].join(" · ") : r.title;
const COLUMNS = [["number", "", (r) => r.number], ["is_on_front", "front", (r) => r.is_on_front ? "●" : ""], ["title", "point", named], ["score", data.metric, (r) => scored(r.score)], ["cycles", "cycles", (r) => r.cycles === null ? "" : whole(r.cycles)], ["milliseconds", "ms", (r) => r.milliseconds === null ? "" : real(r.milliseconds)], ["sram", "SRAM", (r) => r.sram === null ? "" : bytes(r.sram)], ["flash", "flash", (r) => r.flash === null ? "" : bytes(r.flash)], ["cpu_calls", "on the CPU", (r) => r.cpu_calls || ""], ["problem", "problem", (r) => r.problem]].filter(([, , text], n) => n < 4 || rows.some((r) => text(r) !== ""));
let order = ["is_on_front", -1];
function table() {
  const [by, sign] = order;
  const value = (r) => r[by] === null ? Infinity : r[by];
  const sorted = [...rows].sort((a, b) => sign * (value(a) > value(b) ? 1 : value(a) < value(b) ? -1 : 0) || a.number - b.number);
  const isNumber = (name) => !["title", "problem", "is_on_front"].includes(name);
  byId("tablebody").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, COLUMNS.map(([name, label]) => el("th", { class: isNumber(name) ? "num" : "", "aria-sort": by === name ? (sign > 0 ? "ascending" : "descending") : null }, el("button", { class: "sort", type: "button", onclick: () => { order = [name, by === name ? -sign : 1]; table(); } }, label || "#"))))),
    el("tbody", {}, sorted.map((r) => el("tr", { class: "link" + (r.number === selected ? " on" : ""), "data-number": r.number, onclick: () => pick(r.number) }, COLUMNS.map(([name, , text]) => el("td", { class: isNumber(name) ? "num" : name === "problem" ? "wrap" : name }, String(text(r)))))))));
}

const FIGURES = [...AXES, ["score", data.metric, scored]];
const networkOf = (r) => [r.model, r.size].filter(Boolean).join(" ");
const columnOf = (r) => JSON.stringify([[r.target, ...r.words].join(" · "), r.precision]);
let figure = AXES[1], sortedBy = null;
function compare() {
  const [name, , form] = figure, points = rows.filter((r) => !r.wide.length);
  const columns = [...new Set(points.map(columnOf))], cells = new Map(points.map((r) => [networkOf(r) + columnOf(r), r]));
  const isBetter = (a, b) => name === "score" && !data.isLowerBetter ? a > b : a < b;
  const value = (network, column) => { const r = cells.get(network + column); return r && !r.problem && r[name] !== null ? r[name] : null; };
  const networks = [...new Set(points.map(networkOf))];
  if (sortedBy !== null) networks.sort((a, b) => { const x = value(a, sortedBy), y = value(b, sortedBy); return x === y ? 0 : x === null || (y !== null && isBetter(y, x)) ? 1 : -1; });
  const devices = [...new Set(columns.map((c) => JSON.parse(c)[0]))];
  const sorts = (column) => () => { sortedBy = sortedBy === column ? null : column; compare(); };
  const cell = (network, column) => {
    const r = cells.get(network + column), v = value(network, column);
    if (v === null) return el("td", { class: "num", title: r ? r.problem : "" }, r ? "–" : "");
    const known = columns.map((c) => value(network, c)).filter((x) => x !== null);
    const best = known.every((x) => !isBetter(x, v)), share = 100 * Math.max(v, 0) / Math.max(...known, 1e-12);
    return el("td", { class: "num figure-cell" + (best ? " best" : "") + (r.number === selected ? " on" : ""), "data-number": r.number, style: { backgroundSize: share.toFixed(1) + "% 100%" } },
      el("button", { type: "button", title: `${r.number}: ${r.title}`, onclick: () => pick(r.number) }, (r.is_on_front ? "● " : "") + (r.cpu_calls ? "▲ " : "") + form(v)));
  };
  byId("comparebody").replaceChildren(el("table", { class: "compare" },
    el("thead", {}, el("tr", {}, el("th", { rowspan: 2 }, `${networks.length} networks`), devices.map((d) => el("th", { class: "group", colspan: columns.filter((c) => JSON.parse(c)[0] === d).length }, el("i", { class: "dot", style: { background: colour(d.split(" · ")[0]) } }), d))),
      el("tr", {}, columns.map((c) => el("th", { class: "num", "aria-sort": sortedBy === c ? "ascending" : null }, el("button", { class: "sort", type: "button", onclick: sorts(c) }, JSON.parse(c)[1]))))),
    el("tbody", {}, networks.map((n) => el("tr", {}, el("th", { scope: "row" }, n), columns.map((c) => cell(n, c)))))));
}

function scores() {
  const found = data.evaluations.flatMap((e) => e.scores.map((s) => [s, e]));
  byId("scores").hidden = !found.length || (rows.length > 0 && found.every(([s]) => s.agreement === null));  // all of it is in the table of points
  const columns = [["form", (s) => s.form], [data.metric, (s) => s.problem || scored(s.score)], ["95 %", (s) => s.problem ? "" : `${scored(s.low)} to ${scored(s.high)}`], ["as the original", (s) => s.agreement === null ? "" : percent(s.agreement, 2)], ["inputs", (s, e) => whole(e.inputs)]].filter(([, text]) => found.some(([s, e]) => text(s, e) !== ""));
  byId("scoresbody").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, columns.map(([name], n) => el("th", { class: n ? "num" : "" }, name)))),
    el("tbody", {}, found.map(([s, e]) => el("tr", {}, columns.map(([, text], n) => el("td", { class: n ? "num" + (s.problem && n === 1 ? " wrap" : "") : "title" }, text(s, e))))))));
}

function wrong() {
  const found = data.evaluations.flatMap((e) => e.disagreements);
  byId("wrong").hidden = !found.length;
  byId("wrongbody").replaceChildren(...found.map((d) => el("figure", {}, d.picture ? el("img", { src: "data:image/png;base64," + d.picture, alt: d.name }) : null, el("b", {}, `${d.index}: ${d.name}`), el("div", {}, `${JSON.stringify(d.answer)} instead of ${JSON.stringify(d.original)}`), el("small", {}, `label ${JSON.stringify(d.label)}`), el("small", {}, d.form))));
}

document.title = byId("title").textContent = `Tosaic ${data.title.toLowerCase()}`;
byId("target").textContent = data.metric;
const card = (name, figure, more) => el("div", { class: "card" }, el("div", { class: "name" }, name), el("div", { class: "figure" }, figure), el("div", { class: "more" }, more));
const models = new Set(rows.map((r) => r.model)).size, refused = rows.filter((r) => r.problem).length;
const inputs = Math.max(0, ...data.evaluations.map((e) => e.inputs));
byId("cards").replaceChildren(...(rows.length ? [card("On the front", String(rows.filter((r) => r.is_on_front).length), `of ${rows.length} points`), card("Networks", String(models), `on ${targets.length} target${targets.length === 1 ? "" : "s"}`)] : []),
  card("Judged on", whole(inputs), "inputs"), ...(refused ? [card("Without a result", String(refused), "see the table")] : []));
for (const id of ["front", "table", "details"]) byId(id).hidden = !rows.length;
byId("group").hidden = groups.length < 2;
byId("compare").hidden = models < 2;
const known = (figures) => figures.filter(([name]) => rows.some((r) => r[name] !== null)).map(([name, label]) => [name, label]);
if (rows.length) {
  choices("axis", known(AXES), axis[0], (name) => { axis = AXES.find((a) => a[0] === name); draw(); });
  byId("group").replaceChildren(...groups.map((g) => el("option", { value: g }, g.replace(/^cycles /, ""))));
  byId("group").addEventListener("change", (event) => { group = event.target.value; draw(); });
  if (!known([figure]).length) figure = axis;
  for (const id of ["axis", "key"]) byId(id).hidden = !plotted.length;
  document.querySelector("#front .hint").hidden = !plotted.length;
  choices("figure", known(FIGURES), figure[0], (name) => { figure = FIGURES.find((f) => f[0] === name); sortedBy = null; compare(); });
  table();
  compare();
  const first = rows.find((r) => r.is_on_front) || rows[0];
  pick(first.number);
  byId("details").classList.add("idle");  // where it would cover the page
  new ResizeObserver(draw).observe(byId("plot"));
}
byId("notes").replaceChildren(...data.notes.map((note) => el("p", { class: "hint" }, note)));
scores();
wrong();
for (const section of document.querySelectorAll("main > section[data-name]")) if (!section.hidden) byId("nav").append(el("a", { href: "#" + section.id }, section.dataset.name));
document.documentElement.dataset.ready = "yes";

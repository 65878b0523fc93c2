// What all parts of the report share: selection, sizes and colours.
const nodes = data.nodes;
const sizes = (shape) => shape.length ? shape.join("×") : "scalar";
const wired = (wire) => wire.dtype + " " + sizes(wire.shape);

// Colours, which follow the theme.
const dark = matchMedia("(prefers-color-scheme: dark)");
const known = new Map();  // of styles, until the theme changes
function css(name) {
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return known.get(name);
}
dark.addEventListener("change", () => known.clear());
const PLACES = { device: "Device", tosa: "TOSA interpreter", cpu: "CPU", port: "Input or output" };
const placeColour = (place) => css("--" + place);
const RAMP = { light: [[232, 240, 250], [120, 176, 236], [38, 108, 205], [16, 50, 120]],
  dark: [[31, 40, 53], [38, 82, 140], [72, 143, 232], [198, 224, 255]] };
function ramp(t) {
  const stops = dark.matches ? RAMP.dark : RAMP.light;
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
  return stops[i].map((low, c) => Math.round(low + (stops[i + 1][c] - low) * (at - i)));
}
const rgb = (c) => `rgb(${c.join(",")})`;
const isLight = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140;

// Kinds of operators, for colours and sums; the first that fits.
const KINDS = [
  ["depthwise", "#7c5cd6", /^DEPTHWISE/],
  ["convolution", "#2f6fd0", /CONV/],
  ["matrix product", "#0f8f83", /MATMUL/],
  ["pooling", "#b0588f", /POOL/],
  ["reduction", "#a06a2c", /^(REDUCE|ARGMAX)/],
  ["moving data", "#b3443e", /^(TRANSPOSE|RESHAPE|PAD|SLICE|CONCAT|TILE|GATHER|SCATTER|REVERSE|IDENTITY|RESIZE|CONST)/],
  ["rescale and table", "#5f7186", /^(RESCALE|TABLE|CAST|CLAMP)/],
  ["elementwise", "#3f8a4f", /./],
];
const kindOf = (op) => KINDS.find(([, , pattern]) => pattern.test(op));

// "aten.conv2d.default" is a conv2d.
const plainName = (name) => name.replace(/^((aten|quantized_decomposed|torchao)\.|tosaic_)/, "").replace(/quantize_per_tensor.*/, "quantize").replace(/\.(default|Tensor|int|dim|using_ints|Scalar|self)$/, "");

// Views: "layers" joins the operators of a call, "operators" shows each.
const views = data.views;
for (const [name, view] of Object.entries(views)) {
  view.of = [];
  view.members.forEach((members, index) => members.forEach((n) => { view.of[n] = index; }));
  view.after = view.members.map(() => []);
  view.before = view.members.map(() => []);
  view.edges.forEach(([start, end], e) => { view.after[start].push(e); view.before[end].push(e); });
  view.items = view.members.map((members) => name === "modules" ? folded(members) : summary(members));
}

// A module with all that is in it, under the path that its parts share.
function folded(members) {
  const item = summary(members), paths = members.map((n) => (nodes[n].loc || {}).module).filter(Boolean).map((path) => path.split("."));
  if (!paths.length) return item;
  const shared = paths[0].filter((part, i) => paths.every((path) => path.slice(0, i + 1).join(".") === paths[0].slice(0, i + 1).join("."))).join(".");
  if (members.length < 2 || !shared) return item;
  return { ...item, label: shared, module: `${whole(members.length)} operators` };
}

function summary(members) {
  const all = members.map((n) => nodes[n]), first = all[0];
  const total = (name) => all.reduce((sum, node) => sum + (node[name] || 0), 0);
  const moved = {};
  for (const node of all) for (const [memory, n] of Object.entries(node.moved || {})) moved[memory] = (moved[memory] || 0) + n;
  const main = all.reduce((best, node) => weight(node) > weight(best) ? node : best, first);
  const loc = first.loc || {};
  const own = members.length > 1 || (loc.node && first.place !== "cpu" && first.place !== "port");
  const last = all[all.length - 1], kinds = new Map();
  for (const node of all) kinds.set(kindOf(node.op), (kinds.get(kindOf(node.op)) || 0) + weight(node));
  return {
    members, place: first.place, graph: first.graph || 0, op: main.op, loc, module: loc.module || "",
    kind: [...kinds].reduce((best, each) => each[1] > best[1] ? each : best)[0],
    label: own && loc.node ? plainName(loc.node) : plainName(first.op),
    wire: (last.outputs || [])[0],
    cycles: total("cycles"), macs: total("macs"), weights: total("weights"), moved,
    traffic: Object.values(moved).reduce((a, b) => a + b, 0),
  };
}
function weight(node) {
  const order = [/CONV|MATMUL/, /POOL|REDUCE|ARGMAX/, /^(?!RESCALE|RESHAPE|TRANSPOSE|PAD|CLAMP)/];
  const rank = order.findIndex((pattern) => pattern.test(node.op));
  return (node.cycles || 0) + 1e-3 * (3 - (rank < 0 ? 3 : rank));
}
const lineOf = (loc) => loc && loc.file ? loc.file + ":" + loc.line : "";

// What a device's costs count: cycles, or instructions of a CPU.
const UNIT = (data.report.delegates.find((d) => d.estimate) || { estimate: { unit: "cycles" } }).estimate.unit;
const capital = (word) => word[0].toUpperCase() + word.slice(1);
// What to measure cost by: cycles where a device has them.
const METRICS = [
  ["cycles", capital(UNIT), (i) => i.cycles, (n) => `${short(n)} ${UNIT}`],
  ["traffic", "Memory traffic", (i) => i.traffic, bytes],
  ["macs", "Multiplications", (i) => i.macs, (n) => short(n)],
  ["weights", "Weights", (i) => i.weights, bytes],
].filter(([, , measure]) => views.operators.items.some((i) => measure(i) > 0));

// Selection: an item of a view. Listeners hear of every change.
const selection = { view: "layers", index: -1 };
const listeners = [];
function select(view, index, from = "") {
  if (index < 0) { selection.index = -1; } else { selection.view = view; selection.index = index; }
  listeners.forEach((listener) => listener(selection, from));
}
const selectNode = (node, from) => select("layers", views.layers.of[node], from);
// The selected item in another view: the group of an operator, or the heaviest operator of a group.
function selectedIn(view) {
  if (selection.index < 0) return -1;
  if (selection.view === view) return selection.index;
  const members = views[selection.view].members[selection.index];
  const main = members.reduce((best, n) => weight(nodes[n]) > weight(nodes[best]) ? n : best, members[0]);
  return views[view].of[main];
}

const tip = byId("tip");
function showTip(text, event) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.min(event.clientX + 14, innerWidth - box.width - 8) + "px";
  tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
}
const hideTip = () => { tip.hidden = true; };

// A canvas at the screen's resolution, drawn anew when its size or the theme changes.
function onCanvas(canvas, draw) {
  const context = canvas.getContext("2d");
  let waiting = false;
  const now = () => {
    waiting = false;
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  };
  const soon = () => { if (!waiting) { waiting = true; requestAnimationFrame(now); } };
  new ResizeObserver(soon).observe(canvas);
  dark.addEventListener("change", soon);
  soon();
  return soon;
}
function at(event, canvas) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

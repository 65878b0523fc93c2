// The table of layers: sorted by any column, and saved as CSV.
(() => {
  const SHOWN = 300, items = views.layers.items;
  const rows = items.map((item, index) => ({ item, index })).filter(({ item }) => item.place !== "port");
  const columns = [
    ["Layer", (i) => i.label], ["Module", (i) => i.module || ""], ["Place", (i) => i.place],
    ...METRICS.map(([, title, measure]) => [title, (i) => measure(i) || 0]),
  ];
  if (!rows.length) { byId("layers").hidden = true; return; }
  let by = -1, down = true;  // in the program's order at first
  const sorted = () => by < 0 ? rows : [...rows].sort((a, b) => {
    const [x, y] = [columns[by][1](a.item), columns[by][1](b.item)];
    return (typeof x === "number" ? x - y : x.localeCompare(y)) * (down ? -1 : 1) || a.index - b.index;
  });
  const body = el("tbody"), wide = (at) => at === 2 || at > 4 ? " wide" : "", heads = columns.map(([title], at) => el("th", { class: (at > 2 ? "num" : "") + wide(at) }, el("button", { type: "button", class: "sort", onclick: () => sort(at) }, title)));
  function sort(at) {
    down = by === at ? !down : at > 2;
    by = at;
    draw();
  }
  function draw() {
    heads.forEach((head, at) => head.setAttribute("aria-sort", at !== by ? "none" : down ? "descending" : "ascending"));
    body.replaceChildren(...sorted().slice(0, SHOWN).map(({ item, index }) => el("tr", { class: "link", onclick: () => select("layers", index, "layers") },
      columns.map(([, value], at) => at > 2 ? el("td", { class: "num" + wide(at) }, whole(value(item))) : el("td", { class: ["word", "mono word", "mono wide"][at] }, breakable(value(item)))))));
  }
  // Text is quoted, and what a spreadsheet would take for a formula begins with an apostrophe.
  const cell = (value) => typeof value === "number" ? String(value) : `"${value.replace(/^[=+\-@]/, "'$&").replaceAll('"', '""')}"`;
  const csv = () => [columns.map(([title]) => cell(title)), ...sorted().map(({ item }) => columns.map(([, value]) => cell(value(item))))].map((line) => line.join(",") + "\r\n").join("");
  byId("layertools").append(el("button", { type: "button", id: "csv", onclick: () => el("a", { download: "layers.csv", href: "data:text/csv;charset=utf-8," + encodeURIComponent(csv()) }).click() }, "Save as CSV"));
  byId("layerbody").append(el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body)));
  if (rows.length > SHOWN) byId("layerbody").append(el("p", { class: "hint" }, `The first ${SHOWN} of ${whole(rows.length)} in this order; the CSV has all.`));
  draw();
})();

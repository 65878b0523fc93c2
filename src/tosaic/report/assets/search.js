// Search: words that all occur in an operator, its module, its line or its tensors.
(() => {
  const input = byId("search"), list = byId("found");
  const entries = [];
  views.layers.items.forEach((item, index) => entries.push({ view: "layers", index, title: item.label, item,
    text: [item.label, item.module, item.loc.node, lineOf(item.loc), data.lines[lineOf(item.loc)], item.wire && item.wire.name, PLACES[item.place], ...item.members.map((n) => nodes[n].op)].filter(Boolean).join(" ").toLowerCase() }));
  data.layers.forEach((m) => { if (m.group >= 0) entries[m.group].text += " " + m.layer.name.toLowerCase(); });
  views.operators.items.forEach((item, index) => {
    if (views.layers.members[views.layers.of[index]].length > 1) entries.push({ view: "operators", index, title: nodes[index].op, item, text: [nodes[index].op, item.module, lineOf(item.loc)].join(" ").toLowerCase() });
  });
  let hits = [], at = 0;

  function look() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const score = (entry) => { const title = entry.title.toLowerCase(); return (entry.view === "layers" ? 0 : 2) + (words.some((w) => title.startsWith(w)) ? 0 : 1); };
    hits = words.length ? entries.filter((entry) => words.every((w) => entry.text.includes(w))).sort((a, b) => score(a) - score(b)) : [];
    at = 0;
    draw(words.length > 0);
  }
  function draw(open) {
    list.hidden = !open;
    input.setAttribute("aria-expanded", String(open));
    const shown = hits.slice(0, 50).map((entry, i) => el("li", { role: "option", id: "hit" + i, "aria-selected": String(i === at), onpointerdown: (event) => { event.preventDefault(); choose(i); } },
      el("i", { class: "dot", style: { background: `var(--${entry.item.place})` } }), el("span", {}, el("b", {}, entry.title), el("small", {}, entry.item.module || lineOf(entry.item.loc))),
      el("small", {}, entry.item.cycles ? `${short(entry.item.cycles)} ${UNIT}` : entry.view === "operators" ? "operator" : "")));
    if (open && !hits.length) shown.push(el("li", { class: "none" }, "Nothing has all of these words."));
    if (hits.length > 50) shown.push(el("li", { class: "none" }, `and ${hits.length - 50} more`));
    list.replaceChildren(...shown);
    if (hits.length) input.setAttribute("aria-activedescendant", "hit" + at); else input.removeAttribute("aria-activedescendant");
  }
  function move(step) {
    if (!hits.length) return;
    at = (at + step + Math.min(hits.length, 50)) % Math.min(hits.length, 50);
    draw(true);
    list.children[at].scrollIntoView({ block: "nearest" });
  }
  function choose(i) {
    const hit = hits[i];
    if (!hit) return false;
    draw(false);
    graph.show(hit.view);
    select(hit.view, hit.index, "search");
    byId("graph").scrollIntoView({ block: "start" });
    return true;
  }
  input.addEventListener("input", look);
  input.addEventListener("focus", look);
  input.addEventListener("blur", () => draw(false));
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter") { if (choose(at)) byId("canvas").focus({ preventScroll: true }); }
    else if (event.key === "Escape") { input.value = ""; draw(false); input.blur(); }
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); input.focus(); input.select(); }
    if (event.key === "Escape" && document.activeElement !== input) select(selection.view, -1);
  });
})();

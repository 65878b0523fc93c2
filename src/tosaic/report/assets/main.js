// The head of the page: title, figures, and where one is.
(() => {
  const name = data.title || "Model";
  document.title = `${name} on ${data.target}`;
  byId("title").textContent = name;
  byId("target").textContent = data.target;

  const cards = [], told = data.report.delegates.map((d) => d.estimate).filter(Boolean);
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const card = (title, figure, unit, more, meter) => cards.push(el("div", { class: "card" }, el("div", { class: "name" }, title), el("div", { class: "figure" }, figure, unit ? el("small", {}, " " + unit) : null), more ? el("div", { class: "more" }, more) : null, meter || null));
  const meter = (parts) => el("div", { class: "meter" }, parts.map(([part, colour]) => el("i", { style: { width: 100 * part + "%", background: colour } })));

  const items = views.layers.items.filter((i) => i.place !== "port" && !/^(de)?quantize$/.test(i.label));
  const inside = items.filter((i) => i.place !== "cpu").length, place = told.length ? "device" : "tosa";
  card(told.length ? "On the device" : "In TOSA graphs", percent(items.length ? inside / items.length : 0, inside === items.length ? 0 : 1), "", `${inside} of ${items.length} layers` + (data.report.delegates.length > 1 ? `, ${data.report.delegates.length} graphs` : ""), meter([[inside / Math.max(items.length, 1), `var(--${place})`], [1 - inside / Math.max(items.length, 1), "var(--cpu)"]]));
  const { cycles, macs } = data.report;
  if (cycles) {
    const use = macs / cycles / data.peak_macs;
    const clock = told[0].clock, runs = clock ? clock / cycles : 0;
    if (clock) card("Time", (1e3 * cycles / clock).toPrecision(3), "ms", `${runs >= 10 ? short(runs) : runs.toPrecision(2)} inferences a second at ${Math.round(clock / 1e6)} MHz`);
    card(capital(UNIT), short(cycles), "", `by ${told[0].by}'s ${UNIT === "instructions" ? "count" : "estimate"}`);
    if (data.peak_macs) card("Multipliers in use", percent(use, use < 0.1 ? 1 : 0), "", `${short(macs)} multiplications`, meter([[Math.min(use, 1), "var(--accent)"]]));
    else card("Multiplications", short(macs));
    const scratch = Math.max(...told.map((n) => n.scratch));
    const { sram } = data.report, rest = sram === scratch ? "" : ` as the cache of ${whole(scratch)} in DRAM`;
    card("SRAM", ...bytes(sram).split(" "), (sram < 1024 ? "" : `${whole(sram)} bytes`) + rest);
    const parts = {};
    for (const n of told) for (const [part, size] of Object.entries(n.flash_parts)) parts[part] = (parts[part] || 0) + size;
    card("Flash", ...bytes(sum(told.map((n) => n.flash))).split(" "), Object.entries(parts).map(([part, size]) => `${part} ${bytes(size)}`).join(", ") || "weights and constants");
  } else card("Multiplications", short(macs), "", `${whole(sum(data.report.delegates.map((d) => sum(Object.values(d.ops)))))} operators`);
  if (data.outputs.length) {
    const worst = data.outputs.reduce((a, b) => (b.sqnr ?? 1e9) < (a.sqnr ?? 1e9) ? b : a);
    const low = data.layers.reduce((a, b) => (b.layer.sqnr ?? 1e9) < (a.layer.sqnr ?? 1e9) ? b : a, data.layers[0]);
    card("Against float", ...decibels(worst.sqnr).split(" "), data.fall || (low && low.layer.sqnr !== null ? `lowest: ${low.layer.name}, ${decibels(low.layer.sqnr)}` : ""));
  }
  const refusedCalls = sum(data.refused.map((r) => 1 + r.others.length));
  if (refusedCalls) card("Refused", String(refusedCalls), refusedCalls === 1 ? "call" : "calls", refusedCalls === 1 ? "stays on the CPU" : "stay on the CPU" + (data.refused.length < refusedCalls ? `, ${data.refused.length} reason${data.refused.length === 1 ? "" : "s"}` : ""));
  byId("cards").replaceChildren(...cards);

  const links = new Map();
  for (const section of document.querySelectorAll("main > section")) {
    if (section.hidden) continue;
    const link = el("a", { href: "#" + section.id }, section.dataset.name, section.id === "refusals" && data.refused.length ? el("span", { class: "count" }, String(refusedCalls)) : null);
    links.set(section, link);
    byId("nav").append(link);
  }
  const spot = () => {
    let here = null;
    for (const section of links.keys()) if (section.getBoundingClientRect().top < 120) here = section;
    if (innerHeight + scrollY >= document.documentElement.scrollHeight - 4) here = [...links.keys()].pop();
    links.forEach((link, section) => link.classList.toggle("here", section === here));
  };
  addEventListener("scroll", spot, { passive: true });
  spot();
  document.documentElement.dataset.ready = "yes";
})();

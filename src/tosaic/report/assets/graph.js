// The graph on a canvas: only what is in sight is drawn.
const NODE_W = 150, NODE_H = 36;
const graph = (() => {
  const canvas = byId("canvas"), map = byId("map");
  const camera = { x: 0, y: 0, scale: 1 };
  const folds = views.modules && views.modules.members.length < views.layers.members.length ? [["modules", "Modules", "One node for each module of the model"]] : [];
  let view = folds.length && views.layers.members.length > 150 ? "modules" : "layers", colour = "place", hovered = -1, moved = false, motion = 0;
  const bounds = {};
  for (const [name, v] of Object.entries(views)) {
    const xs = v.layout.nodes.map(([x]) => x), ys = v.layout.nodes.map(([, y]) => y);
    const points = v.layout.edges.flat().map(([x]) => x);
    const least = (list) => list.reduce((a, b) => Math.min(a, b), 0), most = (list) => list.reduce((a, b) => Math.max(a, b), 0);
    bounds[name] = { left: Math.min(least(xs) - NODE_W / 2, least(points)) - 20, right: Math.max(most(xs) + NODE_W / 2, most(points)) + 20, top: -20, bottom: most(ys) + NODE_H / 2 + 20 };
  }
  const measure = () => METRICS[0] ? METRICS[0][2] : () => 0;
  const peak = (name) => Math.max(1, ...views[name].items.map(measure()));
  const peaks = Object.fromEntries(Object.keys(views).map((name) => [name, peak(name)]));
  const redraw = onCanvas(canvas, draw);
  const redrawMap = onCanvas(map, drawMap);

  function heat(item) { return Math.sqrt(measure()(item) / peaks[view]); }

  function draw(c, width, height) {
    const v = views[view], { x, y, scale } = camera;
    const sight = { left: -x / scale, top: -y / scale, right: (width - x) / scale, bottom: (height - y) / scale };
    const chosen = selectedIn(view);
    c.translate(x, y);
    c.scale(scale, scale);
    const near = chosen < 0 ? new Set() : new Set([...v.after[chosen], ...v.before[chosen]]);
    c.lineWidth = Math.max(1.4, 0.8 / scale);
    c.strokeStyle = css("--edge");
    c.beginPath();
    v.edges.forEach((edge, e) => { if (!near.has(e)) trace(c, v, e, sight); });
    c.stroke();
    if (near.size) {
      c.lineWidth = Math.max(2, 1.4 / scale);
      c.strokeStyle = css("--accent");
      c.beginPath();
      near.forEach((e) => trace(c, v, e, sight));
      c.stroke();
    }
    if (scale > 0.55) labels(c, v, sight);
    const ink = { card: css("--card"), ink: css("--ink"), soft: css("--soft"), line: css("--line-strong"), accent: css("--accent"), bad: css("--bad") };
    const places = {};
    for (const place of Object.keys(PLACES)) places[place] = placeColour(place);
    v.layout.nodes.forEach(([nx, ny], index) => {
      if (nx + NODE_W / 2 < sight.left || nx - NODE_W / 2 > sight.right || ny + NODE_H < sight.top || ny - NODE_H > sight.bottom) return;
      node(c, v.items[index], nx - NODE_W / 2, ny - NODE_H / 2, index === chosen, index === hovered, ink, places);
    });
    redrawMap();
  }

  function trace(c, v, e, sight) {
    const [start, end] = v.edges[e];
    const [x0, y0] = v.layout.nodes[start], [x1, y1] = v.layout.nodes[end];
    if (Math.max(y0, y1) < sight.top || Math.min(y0, y1) > sight.bottom) return;
    const points = [[x0, y0 + NODE_H / 2], ...v.layout.edges[e], [x1, y1 - NODE_H / 2]];
    c.moveTo(...points[0]);
    for (let i = 1; i < points.length; i++) {
      const [ax, ay] = points[i - 1], [bx, by] = points[i], bend = (by - ay) / 2;
      if (Math.abs(ax - bx) < 0.5) c.lineTo(bx, by);
      else c.bezierCurveTo(ax, ay + bend, bx, by - bend, bx, by);
    }
    if (camera.scale > 0.5) {
      const [bx, by] = points[points.length - 1];
      c.moveTo(bx - 3.5, by - 6); c.lineTo(bx, by - 0.5); c.lineTo(bx + 3.5, by - 6);
    }
  }

  function labels(c, v, sight) {
    c.font = "10px " + css("--mono");
    c.fillStyle = css("--faint");
    c.strokeStyle = css("--bg");  // the edge below a label ends beside it
    c.lineWidth = 3;
    c.textAlign = "left";
    v.layout.nodes.forEach(([x, y], index) => {
      const wire = v.items[index].wire;
      if (!wire || !v.after[index].length || y < sight.top - 60 || y > sight.bottom || x < sight.left - 100 || x > sight.right + 100) return;
      c.strokeText(wired(wire), x + 6, y + NODE_H / 2 + 13);
      c.fillText(wired(wire), x + 6, y + NODE_H / 2 + 13);
    });
  }

  function node(c, item, x, y, chosen, over, ink, places) {
    const scale = camera.scale, hot = ramp(heat(item)), byCost = colour === "cost" && item.place !== "port";
    const port = item.place === "port";
    c.beginPath();
    c.roundRect(x, y, NODE_W, NODE_H, port ? NODE_H / 2 : 7);
    c.fillStyle = byCost ? rgb(hot) : scale < 0.3 ? places[item.place] : ink.card;
    c.fill();
    c.lineWidth = chosen ? Math.max(2.5, 2 / scale) : over ? 1.6 : 1;
    c.strokeStyle = chosen ? ink.accent : over ? ink.soft : ink.line;
    if (scale > 0.25 || chosen) c.stroke();
    if (scale < 0.3) return;
    if (!port) {
      c.save();
      c.clip();
      c.fillStyle = places[item.place];
      c.fillRect(x, y, 5, NODE_H);
      c.restore();
    }
    const text = byCost ? (isLight(hot) ? "#10151c" : "#ffffff") : ink.ink;
    c.fillStyle = text;
    c.font = "600 12px " + css("--sans");
    c.textAlign = port ? "center" : "left";
    const two = item.module && !port, left = port ? x + NODE_W / 2 : x + 13;
    c.fillText(fit(c, nameOf(item), NODE_W - 24), left, y + (two ? 16 : 22.5));
    if (two) {
      c.font = "10.5px " + css("--sans");
      c.globalAlpha = 0.72;
      c.fillText(fitEnd(c, item.module, NODE_W - 24), left, y + 29);
      c.globalAlpha = 1;
    }
  }

  const fitted = new Map();
  function fit(c, text, width) { return fitting(c, text, width, (n) => text.slice(0, n) + "…"); }
  function fitEnd(c, text, width) { return fitting(c, text, width, (n) => "…" + text.slice(text.length - n)); }
  function fitting(c, text, width, cut) {
    const key = c.font + text;
    if (!fitted.has(key)) {
      let size = text.length;
      while (size > 1 && c.measureText(size === text.length ? text : cut(size)).width > width) size = size === text.length ? Math.min(size - 1, 40) : size - 1;
      fitted.set(key, size === text.length ? text : cut(size));
    }
    return fitted.get(key);
  }

  function drawMap(c, width, height) {
    const b = bounds[view], k = Math.min(width / (b.right - b.left), height / (b.bottom - b.top));
    const off = (width - k * (b.right - b.left)) / 2;
    views[view].layout.nodes.forEach(([x, y], index) => {
      const item = views[view].items[index];
      c.fillStyle = colour === "cost" && item.place !== "port" ? rgb(ramp(0.25 + 0.75 * heat(item))) : placeColour(item.place);
      c.fillRect(off + (x - NODE_W / 2 - b.left) * k, (y - NODE_H / 2 - b.top) * k, Math.max(NODE_W * k, 1.5), Math.max(NODE_H * k, 1));
    });
    c.strokeStyle = css("--accent");
    c.lineWidth = 1.5;
    const left = off + (-camera.x / camera.scale - b.left) * k, top = (-camera.y / camera.scale - b.top) * k;
    const w = canvas.clientWidth / camera.scale * k, h = canvas.clientHeight / camera.scale * k;
    const x0 = Math.max(left, 1), y0 = Math.max(top, 1);
    c.strokeRect(x0, y0, Math.min(left + w, width - 1) - x0, Math.min(top + h, height - 1) - y0);
  }

  function sizeMap() {
    const b = bounds[view], tall = (b.bottom - b.top) / (b.right - b.left) * map.clientWidth;
    map.style.setProperty("height", Math.max(40, Math.min(tall, canvas.clientHeight - 20)) + "px", "important");
    const crowded = tall <= canvas.clientHeight / 4 || views[view].members.length < 12;
    map.classList.toggle("away", crowded);
    redrawMap();
  }

  function glide(target) {
    cancelAnimationFrame(motion);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) { Object.assign(camera, target); redraw(); return; }
    const from = { ...camera }, begin = performance.now();
    const step = (now) => {
      const t = Math.min((now - begin) / 220, 1), eased = 1 - (1 - t) ** 3;
      for (const key of ["x", "y", "scale"]) camera[key] = from[key] + (target[key] - from[key]) * eased;
      redraw();
      if (t < 1) motion = requestAnimationFrame(step);
    };
    motion = requestAnimationFrame(step);
  }

  function everything() {
    const b = bounds[view], width = canvas.clientWidth, narrow = width < 600;
    const height = canvas.clientHeight - (narrow ? byId("legend").clientHeight : 0);  // else it is in a corner
    const scale = Math.min(width / (b.right - b.left), height / (b.bottom - b.top), 1.25);
    return { scale, x: (width - scale * (b.right + b.left)) / 2, y: (height - scale * (b.bottom + b.top)) / 2 };
  }

  // To begin with, the top of the graph at a size that can be read.
  function start() {
    const b = bounds[view], all = everything(), width = canvas.clientWidth - (canvas.clientWidth < 600 ? byId("map").clientWidth + 14 : 0);
    if (all.scale >= 0.6) return all;
    const scale = Math.min(Math.max(width / (b.right - b.left), 0.6), 1);
    const [x] = views[view].layout.nodes[0] || [0];
    const middle = width >= scale * (b.right - b.left) ? (b.left + b.right) / 2 : x;
    return { scale, x: width / 2 - scale * middle, y: 10 - scale * b.top };
  }

  function centre(index) {
    const [x, y] = views[view].layout.nodes[index], scale = Math.max(camera.scale, 0.75);
    glide({ scale, x: canvas.clientWidth / 2 - x * scale, y: canvas.clientHeight / 2 - y * scale });
  }

  function zoom(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2, smooth = false) {
    const scale = Math.min(Math.max(camera.scale * factor, 0.02), 4), k = scale / camera.scale;
    const target = { scale, x: px - (px - camera.x) * k, y: py - (py - camera.y) * k };
    if (smooth) glide(target); else { Object.assign(camera, target); redraw(); }
  }

  function find(px, py) {
    const x = (px - camera.x) / camera.scale, y = (py - camera.y) / camera.scale;
    return views[view].layout.nodes.findIndex(([nx, ny]) => Math.abs(nx - x) <= NODE_W / 2 && Math.abs(ny - y) <= NODE_H / 2);
  }

  function show(name) {
    if (name === view) return;
    view = name;
    hovered = -1;
    sizeMap();
    legend();
    const index = selectedIn(view);
    Object.assign(camera, start());
    if (index >= 0) centre(index);
    redraw();
  }

  const pointers = new Map();
  let pinch = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event, canvas));
    moved = false;
    pinch = 0;
    cancelAnimationFrame(motion);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = at(event, canvas);
    if (!pointers.has(event.pointerId)) {
      const over = find(px, py);
      if (over !== hovered) { hovered = over; canvas.classList.toggle("over", over >= 0); redraw(); }
      if (over >= 0) showTip(tipOf(views[view].items[over]), event); else hideTip();
      return;
    }
    const [lx, ly] = pointers.get(event.pointerId);
    pointers.set(event.pointerId, [px, py]);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()], far = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (pinch) zoom(far / pinch, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
      pinch = far;
      moved = true;
      return;
    }
    if (!moved && Math.hypot(px - lx, py - ly) < 3) { pointers.set(event.pointerId, [lx, ly]); return; }
    moved = true;
    hideTip();
    canvas.classList.add("held");
    camera.x += px - lx;
    camera.y += py - ly;
    redraw();
  });
  const release = (event) => {
    if (pointers.delete(event.pointerId) && !moved && event.type === "pointerup") {
      const hit = find(...at(event, canvas));
      select(view, hit, "graph");
    }
    canvas.classList.remove("held");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { hovered = -1; hideTip(); redraw(); });
  canvas.addEventListener("dblclick", (event) => {
    const hit = find(...at(event, canvas));
    if (hit < 0) zoom(1.6, ...at(event, canvas), true);
    else open();
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    hideTip();
    cancelAnimationFrame(motion);
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY * 0.01), ...at(event, canvas));
    else { camera.x -= event.shiftKey ? event.deltaY : event.deltaX; camera.y -= event.shiftKey ? 0 : event.deltaY; redraw(); }
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const v = views[view], chosen = selectedIn(view);
    const along = (edges, end) => edges.length ? v.edges[edges[0]][end] : -1;
    const beside = (step) => {
      const [cx, cy] = v.layout.nodes[chosen];
      const row = v.layout.nodes.map(([x, y], i) => [x, y, i]).filter(([x, y]) => Math.abs(y - cy) < 1 && (x - cx) * step > 0);
      return row.length ? row.reduce((a, b) => Math.abs(b[0] - cx) < Math.abs(a[0] - cx) ? b : a)[2] : -1;
    };
    const keys = {
      ArrowDown: () => chosen < 0 ? 0 : along(v.after[chosen], 1),
      ArrowUp: () => chosen < 0 ? 0 : along(v.before[chosen], 0),
      ArrowLeft: () => chosen < 0 ? 0 : beside(-1),
      ArrowRight: () => chosen < 0 ? 0 : beside(1),
    };
    if (event.key in keys) {
      const next = keys[event.key]();
      if (next >= 0) { select(view, next, "keys"); }
    } else if (event.key === "+" || event.key === "=") zoom(1.3, undefined, undefined, true);
    else if (event.key === "-") zoom(1 / 1.3, undefined, undefined, true);
    else if (event.key === "0") glide(everything());
    else if (event.key === "Enter") open();
    else if (event.key === "Escape") select(view, -1);
    else return;
    event.preventDefault();
  });
  const jump = (event) => {
    const [px, py] = at(event, map), b = bounds[view];
    const k = Math.min(map.clientWidth / (b.right - b.left), map.clientHeight / (b.bottom - b.top));
    const off = (map.clientWidth - k * (b.right - b.left)) / 2;
    camera.x = canvas.clientWidth / 2 - ((px - off) / k + b.left) * camera.scale;
    camera.y = canvas.clientHeight / 2 - (py / k + b.top) * camera.scale;
    redraw();
  };
  map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); jump(event); });
  map.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });

  const nameOf = (item) => view === "operators" && item.place !== "cpu" ? nodes[item.members[0]].op : item.label;
  function tipOf(item) {
    const lines = [nameOf(item) + (item.module ? "  " + item.module : "")];
    if (item.members.length > 1) lines.push(item.members.length + " operators");
    if (item.cycles) lines.push(`${whole(item.cycles)} ${UNIT}`);
    return lines.join("\n");
  }

  // A layer opens into its operators, an operator closes into its layer.
  // A module opens into its layers.
  function open() {
    const other = view === "layers" ? "operators" : "layers";
    press(other);
  }

  const press = choices("view", [...folds, ["layers", "Layers", "One node for each call of the model"], ["operators", "Operators", "One node for each TOSA operator"]], view, show);
  choices("colour", [["place", "Where it runs"], ["cost", "Cost"]], colour, (value) => { colour = value; legend(); redraw(); });
  byId("zoom").replaceChildren(
    el("button", { type: "button", "aria-label": "Zoom out", onclick: () => zoom(1 / 1.4, undefined, undefined, true) }, "−"),
    el("button", { type: "button", "aria-label": "Zoom in", onclick: () => zoom(1.4, undefined, undefined, true) }, "+"),
    el("button", { type: "button", onclick: () => glide(everything()) }, "All"));

  function legend() {
    const box = byId("legend");
    if (colour === "cost") {
      const stops = [0, 0.25, 0.5, 0.75, 1].map((t) => rgb(ramp(t))).join(",");
      box.replaceChildren(el("span", {}, "0"), el("span", { class: "ramp", style: { background: `linear-gradient(90deg,${stops})` } }),
        el("span", {}, METRICS[0] ? METRICS[0][3](peaks[view]) : "no costs"));
      return;
    }
    const used = new Set(views.layers.items.map((item) => item.place));
    box.replaceChildren(...Object.entries(PLACES).filter(([place]) => used.has(place)).map(([place, name]) =>
      el("span", {}, el("i", { class: "dot", style: { background: `var(--${place})` } }), name)));
  }
  dark.addEventListener("change", legend);
  legend();
  Object.assign(camera, start());
  sizeMap();
  listeners.push((chosen, from) => {
    if (chosen.index >= 0 && from !== "graph") centre(selectedIn(view));
    redraw();
  });
  new ResizeObserver(sizeMap).observe(canvas);
  return { show: press, redraw };
})();

// Memory over time: each tensor a box, from when it is made to when it is last read.
(() => {
  const canvas = byId("arena"), arenas = data.arenas;
  if (!arenas.length) {
    canvas.parentElement.replaceWith(el("p", { class: "none" }, "No tensors are placed in memory."));
    return;
  }
  let arena = arenas.reduce((a, b) => b.blocks.length > a.blocks.length ? b : a), hovered = null;
  const pad = { left: 64, right: 14, top: 14, bottom: 30 };
  const steps = () => Math.max(arena.steps.length, 1);
  let scale = { x: () => 0, y: () => 0 };
  const redraw = onCanvas(canvas, draw);

  function nice(top) {
    const raw = top / 5, power = 2 ** Math.floor(Math.log2(Math.max(raw, 1)));
    return raw / power > 1.5 ? power * 2 : power;
  }

  function draw(c, width, height) {
    const w = width - pad.left - pad.right, h = height - pad.top - pad.bottom;
    scale = { x: (t) => pad.left + w * t / steps(), y: (a) => pad.top + h * (1 - a / Math.max(arena.size * 1.07, 1)) };
    c.font = "11px " + css("--sans");
    c.fillStyle = css("--faint");
    c.strokeStyle = css("--line");
    c.textAlign = "right";
    for (let a = 0; a <= arena.size; a += nice(arena.size)) {
      c.fillText(bytes(a), pad.left - 8, scale.y(a) + 4);
      c.beginPath(); c.moveTo(pad.left, scale.y(a)); c.lineTo(width - pad.right, scale.y(a)); c.stroke();
    }
    c.textAlign = "center";
    c.fillText("operations in the order in which they run", pad.left + w / 2, height - 8);
    const chosen = selectedIn("layers");
    for (const block of arena.blocks) {
      const [x, y, bw, bh] = box(block), mine = block.node >= 0 && views.layers.of[block.node] === chosen;
      const kind = block.node >= 0 ? kindOf(nodes[block.node].op)[1] : css("--port");
      c.globalAlpha = isBuffer(block) ? 0.35 : hovered === block || mine ? 1 : 0.78;
      c.fillStyle = kind;
      c.fillRect(x, y, Math.max(bw - 0.6, 1), Math.max(bh - 0.6, 0.7));
      c.globalAlpha = 1;
      if (hovered === block || mine) {
        c.strokeStyle = css("--ink");
        c.lineWidth = 1.3;
        c.strokeRect(x, y, Math.max(bw, 1), Math.max(bh, 1));
        c.lineWidth = 1;
      }
      if (bw > 60 && bh > 15) {
        c.fillStyle = "#fff";
        c.textAlign = "left";
        c.save(); c.beginPath(); c.rect(x, y, bw - 4, bh); c.clip();
        c.fillText(nameOf(block), x + 5, y + bh / 2 + 4);
        c.restore();
      }
    }
    c.strokeStyle = css("--bad");
    c.setLineDash([4, 3]);
    c.beginPath(); c.moveTo(pad.left, scale.y(arena.size)); c.lineTo(width - pad.right, scale.y(arena.size)); c.stroke();
    c.setLineDash([]);
    c.fillStyle = css("--bad");
    c.textAlign = "right";
    c.fillText("peak " + bytes(arena.size), width - pad.right - 4, scale.y(arena.size) - 5);
  }
  const isBuffer = (block) => /^WB_|buffer/i.test(block.name);
  const nameOf = (block) => block.node >= 0 ? views.layers.items[views.layers.of[block.node]].label : block.name || "input";
  function box(block) {
    const x = scale.x(block.start), y = scale.y(block.address + block.size);
    return [x, y, scale.x(block.end + 1) - x, scale.y(block.address) - y];
  }
  function find(event) {
    const [px, py] = at(event, canvas);
    return arena.blocks.findLast((block) => { const [x, y, w, h] = box(block); return px >= x && px <= x + w && py >= y && py <= y + Math.max(h, 2); }) || null;
  }
  canvas.addEventListener("pointermove", (event) => {
    const over = find(event);
    if (over !== hovered) { hovered = over; redraw(); }
    canvas.style.cursor = over && over.node >= 0 ? "pointer" : "default";
    if (!over) { hideTip(); return; }
    const item = over.node >= 0 ? views.layers.items[views.layers.of[over.node]] : null;
    showTip([item ? `${item.label}  ${item.module}` : over.name || "input", isBuffer(over) ? "weights on their way into the device" : "", `${whole(over.size)} bytes at 0x${over.address.toString(16)}`, `steps ${over.start} to ${over.end}`].filter(Boolean).join("\n"), event);
  });
  canvas.addEventListener("pointerleave", () => { hovered = null; hideTip(); redraw(); });
  canvas.addEventListener("click", (event) => { const hit = find(event); if (hit && hit.node >= 0) selectNode(hit.node, "arena"); });
  const many = new Set(arenas.map((a) => a.graph)).size > 1;
  const pick = (a) => {
    arena = a;
    byId("arenahint").textContent = `${a.blocks.length} tensors, placed by ${a.planned}; the most that is used is ${whole(a.size)} bytes.` + (a.planned === "a simple plan" ? " A device's compiler may place them otherwise." : a.blocks.some(isBuffer) ? " Pale boxes are weights on their way into the device." : "");
    redraw();
  };
  choices("arenas", arenas.map((a) => [a, (many ? `Graph ${a.graph}: ` : "") + a.memory]), arena, pick);
  pick(arena);
  listeners.push(redraw);
})();

// Elements, numbers and the data: what all pages share.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

// An element with properties and children. Text is always text: names come from models.
function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "style") Object.assign(made.style, value);
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function svg(tag, props = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A name that may go on in the next line behind a dot, an underscore or a slash.
const breakable = (name) => String(name).split(/(?<=[._/])/).flatMap((part, i) => i ? [el("wbr"), part] : [part]);

// Buttons of which one is pressed; a list where there are many.
const MOST_BUTTONS = 6;
function choices(id, options, chosen, change) {
  const box = byId(id);
  if (options.length > MOST_BUTTONS) {
    const list = el("select", { "aria-label": "What is shown", onchange: () => change(options[list.selectedIndex][0]) }, options.map(([value, label]) => el("option", { selected: value === chosen }, label)));
    box.replaceChildren(list);
    return (value) => { list.selectedIndex = options.findIndex((option) => option[0] === value); change(value); };
  }
  const buttons = options.map(([value, label, title]) =>
    el("button", { type: "button", "aria-pressed": String(value === chosen), title,
      onclick: () => press(value) }, label));
  box.replaceChildren(...buttons);
  function press(value) {
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(options[i][0] === value)));
    change(value);
  }
  return press;
}

const whole = (n) => Math.round(n).toLocaleString("en-US");
const percent = (part, digits = 1) => (100 * part).toFixed(digits) + " %";
function short(n) {
  const units = ["", "k", "M", "G", "T"];
  let unit = 0;
  while (Math.abs(n) >= 999.5 && unit < units.length - 1) { n /= 1000; unit++; }
  return (unit && Math.abs(n) < 99.95 ? n.toFixed(1) : Math.round(n)) + (unit ? " " + units[unit] : "");
}
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
  return (unit && n < 100 ? n.toFixed(1) : Math.round(n)) + " " + units[unit];
}
const real = (x) => x === null || x === undefined ? "∞" : Math.abs(x) >= 1e5 || (x && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(+x.toPrecision(4));
const decibels = (x) => x === null || x === undefined ? "exact" : x.toFixed(1) + " dB";

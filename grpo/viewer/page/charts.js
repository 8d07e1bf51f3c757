"use strict";
// Small line charts as SVG, one for each metric.

const PALETTE = ["#2f6db3", "#c8641b", "#2a8a6e", "#9a4f96", "#8a7a1f", "#6b6f76"];
const DASHES = ["", "6 3", "2 3", "8 3 2 3", "1 4", "10 4"];
const SECTIONS = [
  ["Learning", /^(heldout\/|reward|pass_rate|frac_reward)/],
  ["Verdicts", /^(verdicts\/|rewards\/|dropped\/)/],
  ["Completions", /^(completions\/|num_tokens|entropy)/],
  ["Update", /^(loss|policy_loss|kl|ratio\/|clip_ratio\/|grad_norm|learning_rate|num_|sampling\/)/],
  ["Time and machine", /^(time\/|push\/|tokens_per)/],
  ["Other", /./],
];
const WIDTH = 320, HEIGHT = 130, LEFT = 44, BOTTOM = 16, TOP = 8;

function svg(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function formatNumber(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

function readSeries(rows, name) {
  return rows.filter((row) => typeof row[name] === "number")
    .map((row) => [row.step, row[name]]).sort((a, b) => a[0] - b[0]);
}

function smoothen(points) {
  return points.map(([step], i) => {
    const window = points.slice(Math.max(0, i - 9), i + 1);
    return [step, window.reduce((sum, point) => sum + point[1], 0) / window.length];
  });
}

function findRange(series) {
  const points = series.flat();
  const steps = points.map((point) => point[0]), values = points.map((point) => point[1]);
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  if (low === high) { low -= Math.abs(low) / 2 || 0.5; high += Math.abs(high) / 2 || 0.5; }
  const last = steps.reduce((a, b) => Math.max(a, b)), first = steps.reduce((a, b) => Math.min(a, b));
  return { first, last: last === first ? first + 1 : last, low, high };
}

// One metric of several runs; hovering reads the values of a step off the curves.
function makeChart(name, series, smooth) {
  const range = findRange(series);
  const x = (step) => LEFT + (step - range.first) / (range.last - range.first) * (WIDTH - LEFT - 6);
  const y = (value) => TOP + (range.high - value) / (range.high - range.low) * (HEIGHT - BOTTOM - TOP);
  const figure = document.createElement("figure");
  const caption = figure.appendChild(document.createElement("figcaption"));
  caption.appendChild(document.createElement("span")).textContent = name;
  const reading = caption.appendChild(document.createElement("span"));
  const newest = series.map((points) => points.length ? formatNumber(points.at(-1)[1]) : "-").join(" | ");
  reading.textContent = newest;

  const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${name}: ${newest}` });
  for (const value of [range.low, range.high]) {
    plot.append(svg("line", { class: "axis", x1: LEFT, x2: WIDTH - 6, y1: y(value), y2: y(value) }));
    plot.append(svg("text", { x: LEFT - 4, y: y(value) + 3, "text-anchor": "end" }, formatNumber(value)));
  }
  plot.append(svg("text", { x: LEFT, y: HEIGHT - 3 }, range.first));
  plot.append(svg("text", { x: WIDTH - 6, y: HEIGHT - 3, "text-anchor": "end" }, range.last));
  series.forEach((points, i) => {
    const shown = smooth ? smoothen(points) : points;
    const style = { stroke: PALETTE[i % PALETTE.length], "stroke-dasharray": DASHES[i % DASHES.length] };
    plot.append(svg("polyline", { class: "curve", ...style, points: shown.map(([s, v]) => `${x(s)},${y(v)}`).join(" ") }));
    if (shown.length < 3) {
      for (const [s, v] of shown) plot.append(svg("circle", { cx: x(s), cy: y(v), r: 3, fill: style.stroke }));
    }
  });
  const cursor = plot.appendChild(svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" }));
  plot.addEventListener("mousemove", (event) => {
    const box = plot.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * WIDTH;
    const step = Math.round(range.first + (place - LEFT) / (WIDTH - LEFT - 6) * (range.last - range.first));
    const at = Math.min(range.last, Math.max(range.first, step));
    const values = series.map((points) => points.find((point) => point[0] === at));
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    cursor.setAttribute("visibility", "visible");
    reading.textContent = `step ${at}: ` + values.map((point) => point ? formatNumber(point[1]) : "-").join(" | ");
  });
  plot.addEventListener("mouseleave", () => {
    cursor.setAttribute("visibility", "hidden");
    reading.textContent = newest;
  });
  figure.append(plot);
  return figure;
}

// All metrics of all runs, in sections.
function drawCharts(target, allRows, filter, smooth) {
  const names = new Set(allRows.flatMap((rows) => rows.flatMap(Object.keys)));
  for (const name of ["step", "time", "policy_version"]) names.delete(name);
  const left = new Set([...names].filter((name) => name.includes(filter)).sort());
  target.replaceChildren();
  for (const [title, pattern] of SECTIONS) {
    const members = [...left].filter((name) => pattern.test(name));
    const grid = document.createElement("div");
    grid.className = "grid";
    for (const name of members) {
      left.delete(name);
      const series = allRows.map((rows) => readSeries(rows, name));
      if (series.some((points) => points.length)) grid.append(makeChart(name, series, smooth));
    }
    if (!grid.children.length) continue;
    target.appendChild(document.createElement("h2")).textContent = title;
    target.append(grid);
  }
}

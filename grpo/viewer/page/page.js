"use strict";
// The page: what is chosen, what is fetched for it, and the completions of a step.

const REFRESH_MS = 5000;
const STATUSES = ["correct", "incorrect", "no_answer", "limit", "bad_gold", "error"];
const byId = (id) => document.getElementById(id);
const state = { names: [], overviews: [], metrics: [], rows: [], shown: "" };

function make(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text; // never as HTML: it may be a model's text
  return node;
}

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function refresh() {
  try {
    const indices = state.names.map((_, i) => i);
    state.overviews = await Promise.all(indices.map((i) => ask(`api/${i}/overview`)));
    state.metrics = await Promise.all(indices.map((i) => ask(`api/${i}/metrics`)));
    const running = state.overviews.filter((overview) => !overview.summary).length;
    byId("state").textContent = running ? `${running} not finished; read again every 5 s` : "finished";
    drawCurves();
    drawWarnings();
    await showStep();
    if (running) setTimeout(refresh, REFRESH_MS);
  } catch (error) {
    byId("state").textContent = `not connected (${error.message})`;
    setTimeout(refresh, REFRESH_MS);
  }
}

function drawCurves() {
  drawCharts(byId("charts"), state.metrics, byId("metric-filter").value.trim(), byId("smooth").checked);
}

function drawWarnings() {
  const blocks = state.overviews.flatMap((overview) => overview.warnings.map((warning) => {
    const block = make("details");
    const run = state.names.length > 1 ? `${overview.name}, ` : "";
    block.append(make("summary", "", `${run}step ${warning.step}: ${warning.name}`), make("p", "", warning.text));
    for (const example of warning.examples) block.append(make("pre", "", example));
    return block;
  }));
  byId("warnings").replaceChildren(...blocks);
}

// Completions

function chosenSteps() {
  return state.overviews[byId("run").value]?.[byId("kind").value] ?? [];
}

async function showStep() {
  const steps = chosenSteps(), slider = byId("step");
  const followed = Number(slider.value) === Number(slider.max);
  slider.max = Math.max(0, steps.length - 1);
  if (followed) slider.value = slider.max;
  const step = steps[slider.value];
  byId("step-number").textContent = step ?? "none yet";
  const wanted = step === undefined ? "" : `api/${byId("run").value}/${byId("kind").value}/${step}`;
  if (wanted === state.shown) return;
  state.shown = wanted;
  const rows = wanted ? await ask(wanted) : [];
  if (wanted !== state.shown) return; // the user has moved on meanwhile
  state.rows = rows;
  drawGroups();
}

function drawGroups() {
  const groups = new Map();
  let place = -1;
  for (const row of state.rows) {
    if (row.member === 0) place += 1; // a problem may come twice in a step
    const key = `${row.problem_id} ${place}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const status = byId("status").value, text = byId("text-filter").value.toLowerCase();
  const kept = [...groups.values()].filter((members) =>
    (!status || members.some((row) => status === "mixed" ? isMixed(members) : row.status === status)) &&
    (!text || members.some((row) => (describePrompt(row.prompt) + row.text).toLowerCase().includes(text))));
  byId("count").textContent = `${kept.length} of ${groups.size} groups`;
  byId("list").replaceChildren(...kept.map(makeGroup));
}

function isMixed(members) {
  return new Set(members.map((row) => row.reward).filter((reward) => reward !== null)).size > 1;
}

function describePrompt(prompt) {
  if (typeof prompt === "string") return prompt;
  return prompt.map((message) => `[${message.role}]\n${message.content}`).join("\n");
}

function makeGroup(members) {
  const first = members[0], group = make("article"), head = make("header");
  const right = members.filter((row) => row.status === "correct").length;
  const reference = typeof first.reference === "string" ? first.reference : JSON.stringify(first.reference);
  head.append(make("b", "", first.problem_id), make("span", "", `${right} of ${members.length} right`));
  if (!isMixed(members)) head.append(make("span", "dim", "no spread of rewards"));
  group.append(head, make("pre", "prompt", describePrompt(first.prompt)));
  group.append(make("pre", "prompt dim", `reference: ${reference}`));
  const grid = make("div", "members");
  grid.append(...members.map(makeMember));
  group.append(grid);
  return group;
}

function makeMember(row) {
  const member = make("div", `member ${row.status}`), head = make("h3");
  const reward = row.reward === null ? "no reward" : `reward ${formatNumber(row.reward)}`;
  const facts = `${reward} · ${row.num_tokens} tokens${row.finish_reason === "stop" ? "" : `, ${row.finish_reason}`}`;
  head.append(make("b", "", row.status), make("span", "dim", facts));
  const found = row.extracted === null ? "" : `, read: ${row.extracted}`;
  const why = `${row.reason}${found}${row.detail ? `; ${row.detail}` : ""}`;
  member.append(head, make("p", "dim", why), make("pre", "", row.text));
  if (row.report) {
    const report = make("details");
    report.append(make("summary", "dim", "report"), make("pre", "", JSON.stringify(row.report, null, 1)));
    member.append(report);
  }
  return member;
}

// Start

function openTab(name) {
  for (const button of document.querySelectorAll("nav button")) {
    const chosen = button.dataset.tab === name;
    button.setAttribute("aria-pressed", chosen);
    byId(button.dataset.tab).hidden = !chosen;
  }
  if (name === "about") {
    byId("about").replaceChildren(...state.overviews.flatMap(
      (overview) => [make("h2", "", overview.name), make("pre", "", overview.config)]));
  }
  history.replaceState(null, "", `#${name}`);
}

async function start() {
  state.names = await ask("api/runs");
  document.title = `${state.names.join(", ")} - Verigrad`;
  state.names.forEach((name, i) => {
    const label = byId("runs").appendChild(make("span"));
    const swatch = label.appendChild(make("i", "swatch"));
    swatch.style.borderTopColor = PALETTE[i % PALETTE.length];
    swatch.style.borderTopStyle = i ? "dashed" : "solid";
    label.append(name);
    byId("run").append(new Option(name, i));
  });
  byId("status").append(new Option("all groups", ""), new Option("with a spread of rewards", "mixed"));
  for (const status of STATUSES) byId("status").append(new Option(`with ${status}`, status));
  for (const button of document.querySelectorAll("nav button")) {
    button.addEventListener("click", () => openTab(button.dataset.tab));
  }
  byId("metric-filter").addEventListener("input", drawCurves);
  byId("smooth").addEventListener("change", drawCurves);
  byId("status").addEventListener("change", drawGroups);
  byId("text-filter").addEventListener("input", drawGroups);
  for (const id of ["run", "kind"]) {
    byId(id).addEventListener("change", () => { byId("step").value = byId("step").max; showStep(); });
  }
  byId("step").addEventListener("input", showStep);
  await refresh();
  const tab = location.hash.slice(1);
  if (["groups", "about"].includes(tab)) openTab(tab);
}

start().catch((error) => { byId("state").textContent = `not connected (${error.message})`; });

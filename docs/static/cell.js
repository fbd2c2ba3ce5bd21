// What is behind the cells that are opened: their curves in one picture, and a column of facts for each.

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9"];

const WIDE = 1000; // pixels from which on one cell's curves stand beside its facts

function colourOf(place) {
  return COLOURS[place % COLOURS.length];
}

// --- curves ---------------------------------------------------------------------------------------------------------

function loadCurves(notebook) {
  if (EXPLORER.curvesOf[notebook]) return Promise.resolve();
  EXPLORER.waiting[notebook] ??= new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = `${document.getElementById("explorer").dataset.scripts}curves/${notebook}.js`;
    script.onload = script.onerror = resolve; // a notebook without runs has no script
    document.head.append(script);
  });
  return EXPLORER.waiting[notebook];
}

function curvesOfCell(cell) {
  const ofNotebook = EXPLORER.curvesOf[cell.notebook] ?? {};
  const curves = [];
  for (const run of cell.runs) {
    const values = ofNotebook[run.file]?.[cell.metric];
    if (values) curves.push({ seed: run.seed, finished: run.state === "finished", values });
  }
  return curves;
}

// Mean over finished runs and, from two on, its 95 % interval (Student's t), for each round that all of them evaluated.
function bandOf(curves) {
  const finished = curves.filter((curve) => curve.finished);
  const rounds = Math.min(...finished.map((curve) => curve.values.length));
  const band = [];
  for (let i = 0; finished.length && i < rounds; i++) {
    const values = finished.map((curve) => curve.values[i]);
    if (values.includes(null)) continue;
    const mean = d3.mean(values);
    const half = values.length < 2 ? 0 : (EXPLORER.data.quantiles[values.length] * d3.deviation(values)) / Math.sqrt(values.length);
    band.push({ round: i + 1, mean, low: mean - half, high: mean + half });
  }
  return band;
}

function pointsOf(curve) {
  const points = curve.values.map((value, i) => ({ round: i + 1, value, seed: curve.seed }));
  return points.filter((point) => point.value !== null);
}

function marksOf(cell, place) {
  const colour = colourOf(place);
  const curves = curvesOfCell(cell);
  const band = bandOf(curves);
  const marks = [];
  for (const curve of curves) {
    const dash = curve.finished ? "none" : "2,3"; // a run that diverged ends where it did
    marks.push(Plot.lineY(pointsOf(curve), { x: "round", y: "value", stroke: colour, strokeOpacity: 0.35, strokeWidth: 1, strokeDasharray: dash }));
  }
  marks.push(Plot.areaY(band, { x: "round", y1: "low", y2: "high", fill: colour, fillOpacity: 0.18, className: "band" }));
  marks.push(Plot.lineY(band, { x: "round", y: "mean", stroke: colour, strokeWidth: 2.5, className: "mean" }));
  if (band.length === 1) marks.push(Plot.dot(band, { x: "round", y: "mean", fill: colour }));
  if (cell.line !== undefined) {
    marks.push(Plot.ruleY([cell.line], { stroke: colour, strokeDasharray: "6,4", strokeWidth: 1.5, className: "printed" }));
    const side = ["right", "left", "middle"][place % 3]; // so that those that are close do not cover one another
    const label = { frameAnchor: side, dx: side === "left" ? 4 : 0, dy: -7, fill: colour, stroke: "var(--pst-color-background)", strokeWidth: 5, text: () => `printed ${cell.printedText}` };
    marks.push(Plot.text([cell.line], { y: (value) => value, ...label }));
  }
  return curves.length ? marks : [];
}

function legendOf(cells) {
  const names = cells.map((cell, place) => {
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colourOf(place);
    return element("span", { class: "named" }, swatch, `${cell.row} · ${cell.column}`);
  });
  return element("p", { class: "legend" }, ...names);
}

// The limits of the picture. Where a steep start would leave the rest no room, it begins below the picture.
function limitsOf(cells) {
  const values = [];
  const late = []; // after the first tenth
  for (const cell of cells) {
    for (const curve of curvesOfCell(cell)) {
      values.push(...curve.values.filter((value) => value !== null));
      late.push(...curve.values.filter((value, i) => value !== null && i >= curve.values.length / 10));
    }
    if (cell.line !== undefined) {
      values.push(cell.line);
      late.push(cell.line);
    }
  }
  const [lowest, high] = d3.extent(values);
  const isSteep = high - d3.min(late) < (high - lowest) / 4;
  const low = isSteep ? d3.min(late) : lowest;
  const room = Math.max((high - low) * 0.08, 0.5);
  return { domain: [Math.max(low - room, 0), Math.min(high + room, 100)], isSteep };
}

// What the lines are, as far as there are any of them.
function captionOf(cells) {
  const curves = cells.flatMap(curvesOfCell);
  const parts = ["Thin: single seeds."];
  if (curves.some((curve) => curve.finished)) parts.push("Thick: their mean, with its 95 % interval over seeds.");
  if (cells.some((cell) => cell.line !== undefined)) parts.push("Dashed: what the paper prints.");
  if (curves.some((curve) => !curve.finished)) parts.push("Dotted: runs that diverged, up to where they did.");
  if (limitsOf(cells).isSteep) parts.push("The first rounds begin below the picture.");
  return parts.join(" ");
}

function plotOf(cells, width) {
  const marks = cells.flatMap(marksOf);
  if (!marks.length) return null;
  const what = [...new Set(cells.map((cell) => cell.metric))].join(", ");
  const names = cells.map((cell) => `${cell.row}, ${cell.column}`).join("; ");
  return Plot.plot({
    width: Math.min(width, 1100),
    height: Math.min(Math.max(width * 0.6, 280), 380),
    marginLeft: 46,
    marginBottom: 44,
    x: { label: "round", labelAnchor: "center", labelArrow: "none", labelOffset: 38, tickFormat: (round) => (Number.isInteger(round) ? String(round) : "") },
    y: { label: `test ${what} (%)`, grid: true, domain: limitsOf(cells).domain },
    clip: true,
    style: { background: "transparent", color: "currentColor", fontSize: "13px" },
    marks,
    ariaLabel: `Curves over rounds of ${names}`,
  });
}

// --- facts ----------------------------------------------------------------------------------------------------------

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function link(href, text) {
  return element("a", { href }, text);
}

function definitions(pairs) {
  const list = element("dl");
  for (const [name, ...values] of pairs) {
    if (values.some((value) => value)) list.append(element("dt", {}, name), element("dd", {}, ...values));
  }
  return list;
}

function claimOf(claim) {
  const word = element("span", { class: "verdict", "data-kind": claim.kind }, claim.kind);
  const numbers = [claim.printed && `printed ${claim.printed}`, claim.ours && `ours ${claim.ours}`].filter(Boolean).join(", ");
  const other = link(addressOfCell(claim.behind.join(PART)), claim.behind[1]);
  const text = ` ${claim.says} (${claim.where})${numbers ? `: ${numbers}` : ""}. ${claim.why} Compared with `;
  return element("p", { class: "claim" }, word, text, other, ".");
}

function repeatLine(text) {
  const button = element("button", { type: "button", class: "copy", title: "copy this line" }, "copy");
  button.addEventListener("click", () => {
    const told = (word) => () => (button.textContent = word);
    navigator.clipboard?.writeText(text).then(told("copied"), told("not allowed"));
  });
  return element("div", { class: "repeat" }, element("code", {}, text), button);
}

function recordsOf(cell, record) {
  const base = document.getElementById("explorer").dataset.records;
  const list = element("ul", { class: "records" });
  for (const run of cell.runs) {
    const state = run.state === "finished" ? "" : ` (${run.state})`;
    const value = run.value == null ? "" : `: ${run.value.toFixed(2)}`;
    const item = element("li", {}, `seed ${run.seed}${state}${value} `, link(base + encodeURIComponent(run.file), run.file));
    if (run.file === record) item.className = "asked";
    list.append(item);
  }
  return list;
}

function settingsOf(cell) {
  const rows = Object.entries(EXPLORER.data.settings[cell.settings]).map(([name, value]) =>
    element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, String(value))),
  );
  return element("details", {}, element("summary", {}, "all settings"), element("table", {}, ...rows));
}

function linksOf(cell) {
  const table = EXPLORER.data.tables[cell.table];
  const notebook = link(table.page.replace(/\.ipynb$/, ".html"), cell.notebook);
  const tables = link(`results/tables/${cell.notebook}.html#${cell.table}`, "its table");
  return element("span", {}, "notebook ", notebook, ", ", tables, ", ", link(addressOfCell(cell.id), "link to this cell"));
}

function factsOf(cell, place, record) {
  const table = EXPLORER.data.tables[cell.table];
  const column = element("section", { class: "cell", "data-cell": cell.id });
  column.style.borderTopColor = colourOf(place);
  const close = element("button", { type: "button", class: "close", "aria-label": `close ${cell.id}` }, "×");
  close.addEventListener("click", () => closeCell(cell));
  column.append(close, element("h3", {}, `${cell.row} · ${cell.column}`), element("p", { class: "title" }, table.title));
  column.append(
    definitions([
      ["printed", cell.printedText && table.where ? `${cell.printedText} (${table.where})` : cell.printedText],
      ["ours", cell.oursText || "not run"],
      [table.baseline ? `lead over ${table.baseline}` : "lead", cell.leadText],
      ["runs", cell.runs.length ? `${cell.runs.length} of ${cell.expected}` : `none of ${cell.expected}`],
      ["measure", EXPLORER.data.measures[cell.measure] ?? cell.measure],
      ["data set", [cell.dataset, ...cell.notes].join("; ")],
      ["setting", cell.setting],
      ["deviations", cell.deviations.join("; ")],
      ["chosen", cell.choice],
      ["more", linksOf(cell)],
    ]),
  );
  column.append(...cell.claims.map(claimOf));
  const lines = [["Make it again and compare:", cell.check], ["One of its runs:", cell.again], ["The whole table:", table.sweep]];
  for (const [what, text] of lines) if (text) column.append(element("p", { class: "what" }, what), repeatLine(text));
  if (cell.runs.length) column.append(element("p", { class: "what" }, "Records, by seed:"), recordsOf(cell, record));
  column.append(settingsOf(cell));
  return column;
}

function closeCell(cell) {
  changeAddress((state) => {
    state.open = openCells(state).map((one) => one.id).filter((id) => id !== cell.id);
    state.record = null;
  });
}

// --- the panel ------------------------------------------------------------------------------------------------------

function noteOn(state, cells) {
  const missing = state.open.filter((id) => !EXPLORER.cellsById.has(id));
  if (state.record && !EXPLORER.cellsByRecord.has(state.record)) missing.push(state.record);
  if (missing.length) return element("p", {}, `There is no ${missing.join(", no ")}.`);
  const others = (EXPLORER.cellsByRecord.get(state.record) ?? []).slice(1);
  const links = others.slice(0, 12).flatMap((cell) => [" ", link(addressOfCell(cell.id), cell.id.replaceAll(PART, " · ")), ";"]);
  if (others.length) return element("p", {}, `${state.record} is read by ${others.length} more cells:`, ...links);
  if (cells.length) return "";
  return element("p", {}, "Click a row to see its curves, settings and records. Tick several to see them side by side.");
}

async function showOpened(state, cells) {
  const asked = location.hash;
  await Promise.all(cells.map((cell) => loadCurves(cell.notebook)));
  if (location.hash !== asked) return; // meanwhile something else was asked for
  const panel = document.getElementById("opened");
  const beside = cells.length === 1 && panel.clientWidth > WIDE;
  const plot = cells.length ? plotOf(cells, panel.clientWidth / (beside ? 2 : 1)) : null;
  const columns = element("div", { class: "columns" }, ...cells.map((cell, place) => factsOf(cell, place, state.record)));
  const caption = plot ? captionOf(cells) : "";
  const picture = plot ? [element("figure", {}, legendOf(cells), plot, element("figcaption", {}, caption))] : [];
  const shown = element("div", { class: beside && plot ? "beside" : "" }, ...picture, columns);
  panel.replaceChildren(noteOn(state, cells), shown);
  if (EXPLORER.leadsThere) panel.scrollIntoView({ block: "start" });
  EXPLORER.leadsThere = false;
  document.body.dataset.shown = asked;
}

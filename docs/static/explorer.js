// The results explorer: a table of all cells, filters, and the address as its state.
//
// `cells.js` calls EXPLORER.cells, a script of `curves/` calls EXPLORER.curves: a page that is opened from a file can
// fetch nothing, but it can load scripts. What a user does changes the address; what the address says is then shown.

const FACETS = ["paper", "table", "method", "dataset", "setting", "verdict", "runs"];
const SEPARATOR = "~"; // between cells in the address
const PART = "|"; // between table, row and column of a cell

const EXPLORER = {
  data: null, // what cells.js says
  cellsById: new Map(),
  cellsByRecord: new Map(),
  curvesOf: {}, // by notebook, then by file of the record, then by metric
  waiting: {}, // promises of curves, by notebook
  grid: null,
  leadsThere: false, // whether what is opened next is scrolled to

  cells(data) {
    EXPLORER.data = data;
    for (const cell of data.cells) completeCell(cell, data.tables[cell.table]);
    // what decides a claim comes first, then what was run, otherwise as in the tables
    data.cells.sort((one, other) => rank(one) - rank(other));
  },

  curves(notebook, curves) {
    EXPLORER.curvesOf[notebook] = curves;
  },
};

// --- cells ----------------------------------------------------------------------------------------------------------

function completeCell(cell, table) {
  const nothing = { runs: [], claims: [], deviations: [], notes: [], printedText: "", oursText: "", leadText: "" };
  for (const [name, value] of Object.entries(nothing)) cell[name] ??= value;
  cell.id = [cell.table, cell.row, cell.column].join(PART);
  cell.paper = table.paper;
  cell.notebook = table.notebook;
  cell.title = table.title;
  const kinds = [...new Set(cell.claims.map((claim) => claim.kind))];
  cell.verdict = kinds.join(", ");
  cell.facets = {
    paper: [cell.paper],
    table: [cell.table],
    method: [cell.method],
    dataset: [cell.dataset],
    setting: [cell.setting],
    verdict: kinds,
    runs: statesOf(cell),
  };
  cell.text = [cell.id, cell.title, cell.paper, cell.notebook, cell.method, cell.dataset].join(" ").toLowerCase();
  EXPLORER.cellsById.set(cell.id, cell);
  for (const run of cell.runs) {
    const cells = EXPLORER.cellsByRecord.get(run.file) ?? [];
    EXPLORER.cellsByRecord.set(run.file, [...cells, cell]);
  }
}

function hasRuns(cell) {
  return cell.runs.length > 0;
}

function rank(cell) {
  if (cell.claims.length) return 0;
  return hasRuns(cell) ? 1 : 2;
}

function statesOf(cell) {
  if (!hasRuns(cell)) return ["not run"];
  return ["recorded", ...new Set(cell.runs.map((run) => run.state).filter((state) => state !== "finished"))];
}

// --- the address ----------------------------------------------------------------------------------------------------

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const state = { filters: {}, words: given.get("search") ?? "", record: given.get("record"), open: [] };
  for (const facet of FACETS) if (given.get(facet)) state.filters[facet] = given.get(facet);
  if (given.get("cell")) state.open = given.get("cell").split(SEPARATOR);
  return state;
}

function writeAddress(state) {
  const given = new URLSearchParams(state.filters);
  if (state.words) given.set("search", state.words);
  if (state.open.length) given.set("cell", state.open.join(SEPARATOR));
  if (state.record) given.set("record", state.record);
  location.hash = given.toString();
}

function addressOfCell(id) {
  return `#${new URLSearchParams({ cell: id })}`;
}

function changeAddress(change) {
  const state = readAddress();
  change(state);
  writeAddress(state);
}

// --- filters --------------------------------------------------------------------------------------------------------

function fits(cell, state, leftOut = "") {
  for (const [facet, value] of Object.entries(state.filters)) {
    if (facet !== leftOut && !cell.facets[facet].includes(value)) return false;
  }
  const words = state.words.toLowerCase().split(/\s+/);
  return words.every((word) => cell.text.includes(word));
}

function makeFilters() {
  for (const facet of FACETS) {
    const select = document.getElementById(`filter-${facet}`);
    select.addEventListener("change", () => {
      changeAddress((state) => {
        delete state.filters[facet];
        if (select.value) state.filters[facet] = select.value;
      });
    });
  }
  const search = document.getElementById("filter-search");
  search.addEventListener("input", () => changeAddress((state) => (state.words = search.value.trim())));
  document.getElementById("filter-reset").addEventListener("click", () => {
    changeAddress((state) => Object.assign(state, { filters: {}, words: "" }));
  });
}

// Each list has what is left of it with the other filters, and how many cells that is.
function showFilters(state) {
  for (const facet of FACETS) {
    const counts = new Map();
    for (const cell of EXPLORER.data.cells) {
      if (!fits(cell, state, facet)) continue;
      for (const value of cell.facets[facet]) counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    const chosen = state.filters[facet] ?? "";
    if (chosen && !counts.has(chosen)) counts.set(chosen, 0);
    const options = inOrder(facet, [...counts.keys()]).map((value) => new Option(`${value} (${counts.get(value)})${titleOf(facet, value)}`, value));
    const select = document.getElementById(`filter-${facet}`);
    select.replaceChildren(new Option("all", ""), ...options);
    select.value = chosen;
  }
  const search = document.getElementById("filter-search");
  if (search.value.trim() !== state.words) search.value = state.words;
}

// Papers as they come, verdicts as the package has them, all else by the alphabet.
function inOrder(facet, values) {
  if (facet === "paper") return values;
  if (facet === "verdict") return EXPLORER.data.verdicts.filter((kind) => values.includes(kind));
  return values.sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
}

function titleOf(facet, value) {
  return facet === "table" ? ` ${EXPLORER.data.tables[value].title}` : "";
}

// --- the table ------------------------------------------------------------------------------------------------------

function makeGrid() {
  const isNarrow = window.innerWidth < 700;
  const number = { hozAlign: "right", headerHozAlign: "right", sorter: "number", sorterParams: { alignEmptyValues: "bottom" }, headerSortStartingDir: "desc" };
  const shown = (field) => (cell) => escapeText(cell.getData()[field] ?? "");
  const plain = (cell) => escapeText(cell.getValue() ?? "");
  const tip = (field) => (_, cell) => escapeText(cell.getData()[field] ?? ""); // Tabulator takes it for HTML
  const columns = [
    { title: "", titleFormatter: () => "<span title='side by side'>⇄</span>", formatter: tick, cellClick: toggleTick, cssClass: "tick", headerSort: false, download: false, width: 42, minWidth: 42, responsive: 0 },
    { title: "paper", field: "paper", formatter: plain, width: 112, responsive: 6 },
    { title: "table", field: "table", formatter: plain, widthGrow: 2, minWidth: 110, tooltip: tip("title"), responsive: 5 },
    { title: "row", field: "row", formatter: rowName, variableHeight: true, cssClass: "several", widthGrow: 2, minWidth: 92, tooltip: tip("row"), responsive: 0 },
    { title: "column", field: "column", formatter: plain, widthGrow: 2, minWidth: 90, tooltip: tip("column"), responsive: 2 },
    { title: "printed", field: "printed", formatter: shown("printedText"), width: isNarrow ? 94 : 106, responsive: 1, ...number },
    { title: "ours", field: "ours", formatter: shown("oursText"), variableHeight: true, cssClass: "several", tooltip: tip("oursText"), width: isNarrow ? 102 : 104, responsive: 0, ...number },
    { title: "interval", field: "half", visible: false },
    { title: "runs", field: "expected", visible: false, accessorDownload: (_, cell) => cell.runs.length },
    { title: "data set", field: "dataset", visible: false },
    { title: "measure", field: "measure", visible: false },
    { title: "lead", headerTooltip: "over the baseline of its table, with the same seeds", field: "lead", formatter: shown("leadText"), width: 110, responsive: 4, ...number },
    { title: "verdict", field: "verdict", formatter: (cell) => badges(cell.getData()), variableHeight: true, cssClass: "several", minWidth: 108, widthGrow: 1, responsive: 3 },
    { title: "setting", field: "setting", formatter: plain, widthGrow: 1, minWidth: 150, responsive: 7 },
  ];
  EXPLORER.grid = new Tabulator("#cells", {
    data: EXPLORER.data.cells,
    index: "id",
    columns: columns.map((column) => ({ download: true, ...column })), // those that a phone hides, too
    layout: "fitColumns",
    responsiveLayout: "hide",
    maxHeight: "30rem",
    placeholder: "No cell fits these filters.",
    rowFormatter: markRow,
  });
  EXPLORER.grid.on("rowClick", openRow);
  document.getElementById("download").addEventListener("click", () => EXPLORER.grid.download("csv", "fednb-cells.csv"));
  return new Promise((resolve) => EXPLORER.grid.on("tableBuilt", resolve));
}

function escapeText(text) {
  const node = document.createElement("span");
  node.textContent = text;
  return node.innerHTML;
}

// A word for each kind of verdict; what is claimed is read by pointing at it.
function badges(cell) {
  return cell.facets.verdict.map((kind) => {
    const says = cell.claims.filter((claim) => claim.kind === kind).map((claim) => claim.says);
    return `<span class="verdict" data-kind="${inAttribute(kind)}" title="${inAttribute(says.join("; "))}">${escapeText(kind)}</span>`;
  }).join(" ");
}

// A link, so that a cell can be opened by the keyboard or in another tab; below it, on a phone, where it stands.
function rowName(cell) {
  const { id, row, column, table } = cell.getData();
  const where = `<small class="narrow-only">${escapeText(column)}<br>${escapeText(table)}</small>`;
  return `<a href="${inAttribute(addressOfCell(id))}">${escapeText(row)}</a>${where}`;
}

function inAttribute(text) {
  return escapeText(text).replaceAll('"', "&quot;");
}

function tick(cell) {
  const { id } = cell.getData();
  const checked = openCells(readAddress()).some((one) => one.id === id) ? "checked" : "";
  return `<input type="checkbox" aria-label="side by side: ${inAttribute(id)}" ${checked}>`;
}

function toggleTick(event, cell) {
  const { id } = cell.getData();
  changeAddress((state) => {
    const open = openCells(state).map((one) => one.id);
    state.record = null;
    state.open = open.includes(id) ? open.filter((one) => one !== id) : [...open, id];
  });
}

function openRow(event, row) {
  if (event.target.closest(".tick") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault(); // of a link
  EXPLORER.leadsThere = true;
  changeAddress((state) => {
    state.record = null;
    state.open = [row.getData().id];
  });
}

function markRow(row) {
  const open = openCells(readAddress());
  row.getElement().classList.toggle("opened", open.includes(row.getData()));
}

// --- all together ---------------------------------------------------------------------------------------------------

function openCells(state) {
  const ofRecord = state.record ? (EXPLORER.cellsByRecord.get(state.record) ?? []).slice(0, 1) : [];
  const named = state.open.map((id) => EXPLORER.cellsById.get(id)).filter((cell) => cell);
  return [...new Set([...ofRecord, ...named])];
}

// The body says which address it shows, once it does (`showOpened`): a page that is watched is not read half-way.
function show() {
  delete document.body.dataset.shown;
  const state = readAddress();
  showFilters(state);
  EXPLORER.grid.setFilter((cell) => fits(cell, state));
  const count = EXPLORER.data.cells.filter((cell) => fits(cell, state)).length;
  document.getElementById("count").textContent = `${count.toLocaleString("en")} of ${EXPLORER.data.cells.length.toLocaleString("en")} cells`;
  for (const row of EXPLORER.grid.getRows("visible")) row.reformat();
  return showOpened(state, openCells(state));
}

async function start() {
  makeFilters();
  await makeGrid();
  window.addEventListener("hashchange", show);
  await show();
  if (readAddress().open.length || readAddress().record) document.getElementById("opened").scrollIntoView();
  document.body.dataset.explorer = "ready";
}

window.addEventListener("DOMContentLoaded", start);

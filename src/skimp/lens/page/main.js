// Builds the page from RUNS: one report, or two side by side.

const $ = id => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "style") made.style.cssText = value; else made[key] = value;
  }
  made.append(...children);
  return made;
}

function swatch(role) {
  const box = element("span", {className: "swatch"});
  box.style.background = `var(--r${role})`;
  return box;
}

function showTip(event, content) {
  const tip = $("tip");
  tip.replaceChildren(content);
  tip.hidden = false;
  const {width, height} = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 8))}px`;
}

const hideTip = () => { $("tip").hidden = true; };

function summaryOf(run) {
  const where = run.peak.place.line ? ` at ${lineOf(run.peak.place)} (${run.peak.place.op})` : "";
  return `${run.program} on ${run.engine}: peak ${readable(run.peak.bytes)} (${run.peak.bytes.toLocaleString("en")} bytes)${where}; `
    + `${count(run.allocations, "allocation")} of ${readable(run.allocated)}; ${readable(run.live)} alive at the end; ${seconds(run.seconds)}`;
}

function told(run) {
  const rows = [];
  if (run.growth) {
    const {growth} = run;
    const holder = growth.chain ? `: ${growth.chain}` : "";
    const line = growth.line ? ` (${growth.line} ${growth.text})` : "";
    rows.push(`grows ${readable(Math.round(growth.bytes_per_step))} a step over ${count(growth.steps, "step")}${holder}${line}`);
  }
  for (const one of run.advice || []) rows.push(`${one.text} (saves ${readable(one.saves)} of the peak${one.line ? `, ${one.line}` : ""})`);
  return rows;
}

function plain(runs) {
  $("summary").replaceChildren(...runs.map(run => element("div", {textContent: summaryOf(run)})));
  const notes = runs.flatMap(told);
  $("growth").hidden = !notes.length;
  $("told").replaceChildren(...notes.map(textContent => element("li", {textContent})));
  budgets(runs.filter(run => run.budget));
  const saved = runs.flatMap(run => run.saved || []);
  $("saved").hidden = !saved.length;
  table($("saved-table"), [["op", r => r.op], ["bytes", r => r.bytes, true, readable],
    ["line", r => lineOf(r.place)], ["module", r => r.place.module], ["tensors", r => r.tensors, true],
    ["held by", r => r.alone ? "backward alone" : "others too"]], saved, "bytes");
  const copies = runs.flatMap(run => run.copies);
  $("copies").hidden = !copies.length;
  table($("copies-table"), [["op", r => r.place.op], ["bytes", r => r.bytes, true, readable],
    ["line", r => lineOf(r.place)], ["times", r => r.times, true], ["why", r => r.reason],
    ["shape", r => `(${(r.shape || []).join(", ")})`], ["strides", r => `(${(r.strides || []).join(", ")})`],
    ["came from", r => r.made ? `${lineOf(r.made)} ${r.made.op}` : ""]], copies, "bytes");
}

// What had to go for a budget, and what it took to have it back.
function budgets(runs) {
  $("budget").hidden = !runs.length;
  if (!runs.length) return;
  const words = ({budget: b}) => `At most ${readable(b.peak)} were held${b.budget ? ` of ${readable(b.budget)}` : ""}. `
    + (!b.evictions ? "Nothing had to go." : `Bytes went ${count(b.evictions, "time")} (${readable(b.evicted)}, of which ${readable(b.dropped)} to be made again); `
      + `made again: ${readable(b.rematerialized)} in ${seconds(b.rematerialized_seconds)}; written: ${readable(b.written)}, read: ${readable(b.read)} in ${seconds(b.spill_seconds)}; `
      + `choosing: ${seconds(b.search_seconds)}; all of it ${Math.round(100 * b.spent / Math.max(b.seconds, 1e-9))}% of the program's ${seconds(b.seconds)} of processor time.`);
  $("budget-words").replaceChildren(...runs.map(run => element("p", {textContent: (runs.length > 1 ? `${run.program}: ` : "") + words(run)})));
  const again = runs.flatMap(run => run.budget.again);
  $("budget-table").hidden = !again.length;
  const [way, op, file, line, times, bytes, took] = [0, 1, 2, 3, 4, 5, 6];
  table($("budget-table"), [["line", r => r[line] ? lineOf({file: r[file], line: r[line]}) : ""], ["op", r => r[op]],
    ["how", r => r[way] === "made" ? "made again" : r[way]], ["bytes", r => r[bytes], true, readable],
    ["times", r => r[times], true], ["seconds", r => r[took], true, seconds]], again, "seconds");
}

async function main() {
  const runs = await Promise.all(RUNS.map(open));
  plain(runs);
  let words = [];
  const timelines = [];
  const alike = runs.length > 1 && runs[0].engine === runs[1].engine;
  const named = (run, i) => (alike ? `${["before", "after"][i]}: ` : runs.length > 1 ? `${run.engine}: ` : "");
  const pinned = () => {
    const events = timelines.map(t => t.event);
    $("moment").textContent = runs.map((run, i) => {
      let total = 0;
      const here = alive(run, events[i]);
      for (const [k] of here) total += run.bytes[k];
      return `${named(run, i)}${readable(total)} in ${count(here.length, "storage")} after ${seconds(run.at(events[i]))}`;
    }).join("; ");
    $("flames").replaceChildren();
    $("storages").replaceChildren();
    runs.forEach((run, i) => {
      const box = element("div", {className: "flames"});
      if (runs.length > 1) $("flames").append(element("b", {textContent: `${run.program} on ${run.engine}`}));
      $("flames").append(box);
      flame(run, events[i], box);
      if (runs.length > 1) $("storages").append(element("b", {textContent: `${run.program} on ${run.engine}`}));
      storages(run, events[i], $("storages"));
    });
    momentTable(runs, events, $("by").value, words);
  };
  for (const run of runs) timelines.push(new Timeline(run, $("timelines"), pinned));
  const used = new Set(runs.flatMap(run => [...new Set(run.role)]));
  ROLES.forEach((name, r) => { if (used.has(r)) $("legend").append(element("span", {}, swatch(r), name)); });
  $("gaps").hidden = !runs.some(run => run.gaps.length);
  const draw = () => timelines.forEach(t => t.draw(Math.max(...timelines.map(one => one.most))));
  draw();
  pinned();
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  $("by").addEventListener("change", pinned);
  $("search").addEventListener("input", () => {
    words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    momentTable(runs, timelines.map(t => t.event), $("by").value, words);
  });
  addEventListener("keydown", event => {
    if (["INPUT", "SELECT", "CANVAS"].includes(event.target.tagName)) return;
    if (event.key === "/") { event.preventDefault(); $("search").focus(); }
    else timelines[0].key(event);
  });
  document.documentElement.dataset.ready = Math.round(performance.now());
}

main();

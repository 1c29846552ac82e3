// Columns come as base64 of zlib of little-endian numbers; everything else is plain JSON.

const ROLES = ["parameter", "gradient", "optimizer state", "buffer", "saved for backward", "data", "temporary"];
const TEMPORARY = 6;
const BORN = 1;
const KINDS = {f8: Float64Array, i4: Int32Array, u4: Uint32Array, u1: Uint8Array, i1: Int8Array};
const NEVER = 2 ** 31 - 1;

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function unpack({kind, data}) {
  const stream = new Blob([fromBase64(data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new KINDS[kind](await new Response(stream).arrayBuffer());
}

async function open(raw) {
  const names = Object.keys(raw.columns);
  const columns = await Promise.all(names.map(name => unpack(raw.columns[name])));
  const run = {...raw.report, modules: raw.modules, storages: raw.storages, ...Object.fromEntries(names.map((name, i) => [name, columns[i]]))};
  run.at = e => (run.when[e] ?? 0) * raw.unit; // seconds of an event
  run.unit = raw.unit;
  const kept = new Set(raw.kept);
  run.gaps = raw.kept.length ? run.steps.filter(step => !(step.first === step.last && kept.has(step.first))) : [];
  // at which event an allocation was born, became a temporary and was freed
  const n = run.bytes.length;
  run.from = new Int32Array(n);
  run.released = new Int32Array(n).fill(NEVER);
  run.until = new Int32Array(n).fill(NEVER);
  run.index.forEach((i, e) => { (run.kind[e] > 0 ? run.from : run.kind[e] < 0 ? run.until : run.released)[i] = e; });
  return run;
}

// Totals by role after each event: `step` is called with (event, totals, total).
function play(run, step) {
  const {index, kind, bytes, role, released, until} = run;
  const totals = new Float64Array(ROLES.length);
  let total = 0;
  for (let e = 0; e < index.length; e++) {
    const i = index[e], b = bytes[i];
    if (kind[e] === BORN) { totals[role[i]] += b; total += b; }
    else if (kind[e] < 0) { totals[released[i] < e ? TEMPORARY : role[i]] -= b; total -= b; }
    else if (until[i] > e) { totals[role[i]] -= b; totals[TEMPORARY] += b; } // else it was freed at that moment
    step(e, totals, total);
  }
}

// The allocations that are alive after an event, as [number, role then].
function alive(run, event) {
  if (run.asked === event) return run.answer;
  const {from, until, released, role} = run, found = [];
  for (let i = 0; i < from.length; i++) {
    if (from[i] <= event && until[i] > event) found.push([i, released[i] <= event ? TEMPORARY : role[i]]);
  }
  run.asked = event;
  run.answer = found;
  return found;
}

// The last event at or before a time.
function eventAt(run, time) {
  const when = time / run.unit;
  let low = 0, high = run.when.length;
  while (low < high) { const mid = (low + high) >> 1; if (run.when[mid] <= when) low = mid + 1; else high = mid; }
  return Math.max(0, low - 1);
}

function readable(n) {
  const sign = n < 0 ? "-" : "";
  n = Math.abs(n);
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (n >= size) return `${sign}${(n / size).toFixed(2)} ${unit}`;
  }
  return `${sign}${n} ${n === 1 ? "byte" : "bytes"}`;
}

const seconds = t => t < 1 ? `${(t * 1000).toFixed(2)} ms` : `${t.toFixed(3)} s`;
// As the terminal has it: steps are counted from 1, and what follows the last one is none.
function nameOf(run, step) {
  if (run.steps.length > 1 && step === run.steps.at(-1)) return "after them";
  return step.first === step.last ? `step ${step.first + 1}` : `steps ${step.first + 1}-${step.last + 1}`;
}

const short = file => file.startsWith(HERE) ? file.slice(HERE.length) : file;
const lineOf = place => place.line ? `${short(place.file)}:${place.line}` : place.file || place.op || "elsewhere";
const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

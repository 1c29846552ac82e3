// Tables that can be sorted by their heads.

function table(target, heads, rows, sorted, empty = "nothing") {
  const state = target.state ||= {key: sorted, up: false};
  const draw = () => {
    const at = heads.findIndex(([name]) => name === state.key);
    // of changes the largest stand first, whichever way they go
    const size = state.key === "difference" ? Math.abs : x => x;
    const value = row => size(heads[at][1](row));
    const ordered = [...rows].sort((a, b) => {
      const x = value(a), y = value(b);
      const order = typeof x === "number" ? x - y : String(x).localeCompare(String(y));
      return state.up ? order : -order;
    });
    const head = element("tr");
    for (const [name, , numeric] of heads) {
      const button = element("button", {textContent: name + (name === state.key ? (state.up ? " \u25b4" : " \u25be") : "")});
      button.addEventListener("click", () => {
        state.up = state.key === name ? !state.up : !numeric;
        state.key = name;
        draw();
      });
      const th = element("th", {className: numeric ? "number" : ""}, button);
      th.setAttribute("aria-sort", name !== state.key ? "none" : state.up ? "ascending" : "descending");
      head.append(th);
    }
    const body = ordered.slice(0, 200).map(row => element("tr", {}, ...heads.map(([, get, numeric, show]) => {
      const shown = show ? show(get(row), row) : String(get(row));
      return element("td", {className: numeric ? "number" : "code"}, shown);
    })));
    if (!rows.length) body.push(element("tr", {}, element("td", {colSpan: heads.length, className: "dim", textContent: empty})));
    if (rows.length > 200) body.push(element("tr", {}, element("td", {colSpan: heads.length, className: "dim", textContent: `${count(rows.length - 200, "more row")}: search for them`})));
    target.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  };
  draw();
}

// What is alive, added up by a property; of two runs side by side, with the difference. The programs
// are the same whatever they are called, under the first one's name.
function groups(runs, events, by, words) {
  const found = new Map();
  const base = path => path.slice(path.lastIndexOf("/") + 1);
  const own = run => run.places.find(p => p.line && base(p.file) === base(run.program));
  const [first, second] = runs.map(own);
  const line = p => lineOf(first && second && p.file === second.file ? {...p, file: first.file} : p);
  runs.forEach((run, which) => {
    const {bytes, place, module} = run;
    for (const [i, role] of alive(run, events[which])) {
      const p = run.places[place[i]];
      const charged = run.modules[module[i]] || "outside of modules";
      const name = {role: ROLES[role], module: charged, line: line(p), op: p.op || "?"}[by];
      const text = `${ROLES[role]} ${charged} ${lineOf(p)} ${p.op}`.toLowerCase();
      if (words.some(word => !text.includes(word))) continue;
      if (!found.has(name)) found.set(name, {name, bytes: [0, 0], tensors: [0, 0], roles: new Set(), ops: new Set()});
      const row = found.get(name);
      row.bytes[which] += bytes[i];
      row.tensors[which] += 1;
      row.roles.add(ROLES[role]);
      row.ops.add(p.op);
    }
  });
  return [...found.values()];
}

function momentTable(runs, events, by, words) {
  const rows = groups(runs, events, by, words);
  const most = Math.max(1, ...rows.map(row => Math.max(...row.bytes)));
  const share = (_, row) => {
    const bar = element("div", {className: "share"});
    bar.style.width = `${100 * Math.max(...row.bytes) / most}%`;
    return element("div", {style: "min-width:70px"}, bar);
  };
  const names = runs.length > 1 && runs[0].engine !== runs[1].engine ? runs.map(run => run.engine) : ["first", "second"];
  const few = set => [...set].filter(Boolean).sort().slice(0, 4).join(", ") + (set.size > 4 ? ", ..." : "");
  const heads = runs.length === 1
    ? [[by, r => r.name], ["bytes", r => r.bytes[0], true, readable], ["tensors", r => r.tensors[0], true], ["share", r => r.bytes[0], false, share]]
    : [[by, r => r.name], [names[0], r => r.bytes[0], true, readable], [names[1], r => r.bytes[1], true, readable],
       ["difference", r => r.bytes[1] - r.bytes[0], true, readable], ["share", r => Math.max(...r.bytes), false, share]];
  if (by !== "role") heads.push(["role", r => few(r.roles)]);
  if (by !== "op") heads.push(["op", r => few(r.ops)]);
  table($("table"), heads, rows, runs.length === 1 ? "bytes" : "difference", "nothing that matches was alive");
}

// The largest storages as bars; below a bar the tensors that are known to lie on it.
function storages(run, event, box) {
  const rows = [...alive(run, event)].sort((a, b) => run.bytes[b[0]] - run.bytes[a[0]]).slice(0, 24);
  const most = rows.length ? run.bytes[rows[0][0]] : 1;
  for (const [i, role] of rows) {
    const place = run.places[run.place[i]], bytes = run.bytes[i];
    const bar = element("div", {className: "bar"});
    bar.style.cssText = `width:${100 * bytes / most}%;background:var(--r${role})`;
    const bars = element("div", {}, bar);
    const known = run.storages[i] || {tensors: [], more: 0};
    for (const alias of known.tensors) {
      const line = element("div", {className: "alias", title: layoutOf(alias)});
      line.style.cssText = `margin-left:${100 * alias.first / most}%;width:${100 * (alias.last - alias.first) / most}%`;
      bars.append(line);
    }
    const names = known.tensors.map(layoutOf);
    if (known.more) names.push(count(known.more, "more tensor"));
    const words = element("div", {}, element("span", {className: "number", textContent: readable(bytes)}),
      ` ${ROLES[role]}, `, element("span", {className: "code", textContent: `${lineOf(place)} ${place.op}`}),
      ...names.map(textContent => element("div", {className: "dim", textContent})));
    box.append(element("div", {className: "storage"}, bars, words));
  }
}

const layoutOf = alias => `${alias.name || "a tensor"}: ${alias.dtype} (${alias.shape.join(", ")}), strides (${alias.strides.join(", ")})`
  + (alias.offset ? `, offset ${alias.offset}` : "");

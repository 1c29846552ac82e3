// The program's call stacks at a moment: as wide as what they hold.

function flame(run, event, box) {
  const root = {name: "all", bytes: 0, children: new Map()};
  for (const [i] of alive(run, event)) {
    const b = run.bytes[i], place = run.places[run.place[i]];
    const words = place.stack.map(f => frameName(run.frames[f]));
    if (!words.length) words.push(lineOf(place));
    words.push(place.op || "?");
    let node = root;
    node.bytes += b;
    for (const word of words) {
      if (!node.children.has(word)) node.children.set(word, {name: word, bytes: 0, children: new Map(), parent: node});
      node = node.children.get(word);
      node.bytes += b;
    }
  }
  drawFlame(root, box);
}

const frameName = frame => `${frame.function} ${frame.file.split("/").pop()}:${frame.line}`;

// The frame that was clicked takes the whole width; the frames below it lead back.
function drawFlame(focus, box) {
  box.replaceChildren();
  const above = [];
  for (let node = focus; node; node = node.parent) above.unshift(node);
  above.forEach(node => box.append(element("div", {className: "flame-row"}, bar(node, 0, 100, focus, box))));
  let level = [[focus, 0, 100]];
  while (level.length) {
    const next = [];
    for (const [node, left, width] of level) {
      let x = left;
      const children = [...node.children.values()].sort((a, b) => b.bytes - a.bytes);
      for (const child of children) {
        const w = node.bytes ? width * child.bytes / node.bytes : 0;
        if (w > .12) next.push([child, x, w]);
        x += w;
      }
    }
    if (next.length) {
      const row = element("div", {className: "flame-row"});
      row.append(...next.map(([node, x, w]) => bar(node, x, w, focus, box)));
      box.append(row);
    }
    level = next;
  }
}

function bar(node, left, width, focus, box) {
  const button = element("button", {className: "flame", textContent: `${node.name}  ${readable(node.bytes)}`, title: `${node.name}\n${readable(node.bytes)}`});
  let hash = 0;
  for (const c of node.name) hash = (hash * 31 + c.charCodeAt(0)) % 997;
  button.style.cssText = `left:${left}%;width:calc(${width}% - 1px);background:hsl(${20 + hash % 40} ${70 + hash % 20}% ${68 + hash % 12}%)`;
  button.addEventListener("click", () => drawFlame(node === focus && node.parent ? node.parent : node, box));
  return button;
}

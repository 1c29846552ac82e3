// A run's memory by role as stacked areas: of each pixel's events the one with the most bytes.

const BINS = 2048;

class Timeline {
  constructor(run, box, pinned) {
    this.run = run;
    this.pinned = pinned;
    this.last = Math.max(0, run.when.length - 1);
    this.range = this.whole = [run.at(0), run.at(this.last) || 1];
    this.canvas = element("canvas", {tabIndex: 0, height: 220});
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Memory of ${run.program} over time, stacked by role`);
    const title = element("b", {textContent: `${run.program} on ${run.engine}`});
    box.append(element("div", {className: "run"}, RUNS.length > 1 ? title : "", this.canvas));
    this.canvas.addEventListener("mousemove", event => this.point(event));
    this.canvas.addEventListener("mouseleave", () => hideTip());
    this.canvas.addEventListener("click", event => this.pin(eventAt(run, this.timeAt(event.offsetX))));
    this.canvas.addEventListener("keydown", event => this.key(event));
    this.canvas.addEventListener("wheel", event => this.wheel(event), {passive: false});
    this.fill();
    this.top = this.most;
    this.event = this.peak();
  }

  fill() {
    const [start, end] = this.range, scale = BINS / (end - start || 1), {when, unit} = this.run;
    const width = ROLES.length, before = new Float64Array(width);
    this.totals = new Float64Array(BINS).fill(-1);
    this.roles = new Float64Array(BINS * width);
    let sum = 0, filled = 0; // bins below `filled` are done; where nothing happens, what was there stays
    const fillTo = bin => {
      for (; filled < bin; filled++) {
        if (this.totals[filled] >= 0) continue;
        this.totals[filled] = sum;
        this.roles.set(before, filled * width);
      }
    };
    play(this.run, (e, totals, total) => {
      const time = when[e] * unit;
      if (time > end) return;
      if (time >= start) {
        const bin = Math.min(BINS - 1, Math.floor((time - start) * scale));
        fillTo(bin);
        if (total > this.totals[bin]) { this.totals[bin] = total; this.roles.set(totals, bin * width); }
      }
      for (let r = 0; r < width; r++) before[r] = totals[r];
      sum = total;
    });
    fillTo(BINS);
    this.most = Math.max(1, ...this.totals);
  }

  // The event at which the most is alive.
  peak() {
    let best = 0, most = -1;
    play(this.run, (e, _, total) => { if (total > most) { most = total; best = e; } });
    return best;
  }

  timeAt(x) { const [a, b] = this.range; return a + (b - a) * x / this.canvas.clientWidth; }
  xAt(time) { const [a, b] = this.range; return (time - a) / (b - a || 1) * this.canvas.clientWidth; }

  // `most` is the top of the scale: that of all runs, so that they can be compared.
  draw(most = this.top) {
    this.top = most;
    const ratio = devicePixelRatio || 1, width = this.canvas.clientWidth, height = 220;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    const g = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(name).trim();
    g.scale(ratio, ratio);
    g.fillStyle = colour("--soft");
    g.fillRect(0, 0, width, height);
    const base = height - 18, up = (base - 16) / this.top;
    const sums = new Float64Array(BINS);
    ROLES.forEach((_, r) => {
      g.beginPath();
      g.moveTo(0, base - sums[0] * up);
      for (let b = 0; b < BINS; b++) g.lineTo((b + .5) * width / BINS, base - sums[b] * up);
      for (let b = BINS - 1; b >= 0; b--) {
        sums[b] += this.roles[b * ROLES.length + r];
        g.lineTo((b + .5) * width / BINS, base - sums[b] * up);
      }
      g.closePath();
      g.fillStyle = colour(`--r${r}`);
      g.fill();
    });
    this.drawGaps(g, base, up, colour);
    this.drawMarks(g, base, colour);
    g.fillStyle = colour("--text");
    g.font = "11px system-ui, sans-serif";
    g.fillText(readable(this.top), 4, 12);
    g.fillStyle = colour("--dim");
    g.fillText(seconds(this.range[0]), 4, height - 4);
    const right = seconds(this.range[1]);
    g.fillText(right, width - g.measureText(right).width - 4, height - 4);
    const x = this.xAt(this.run.at(this.event));
    g.fillStyle = colour("--pin");
    g.fillRect(x - .75, 0, 1.5, base);
  }

  // Steps whose allocations are not known one by one: hatched, as high as their peaks.
  drawGaps(g, base, up, colour) {
    g.save();
    g.strokeStyle = colour("--dim");
    g.globalAlpha = .5;
    g.beginPath();
    for (const step of this.run.gaps) {
      const x = Math.max(0, this.xAt(step.start)), end = Math.min(this.canvas.clientWidth, this.xAt(step.start + step.seconds));
      if (end > x) g.rect(x, base - step.peak * up, Math.max(1, end - x), step.peak * up);
    }
    g.clip();
    g.fillStyle = colour("--soft");
    g.fill();
    g.beginPath();
    for (let x = -base; this.run.gaps.length && x < this.canvas.clientWidth; x += 6) { g.moveTo(x, base); g.lineTo(x + base, 0); }
    g.stroke();
    g.restore();
  }

  // Phases as a thin line below the areas, steps as lines through them.
  drawMarks(g, base, colour) {
    const shades = {forward: colour("--r3"), backward: colour("--r1"), optimizer: colour("--r2")};
    g.font = "10px system-ui, sans-serif";
    for (const mark of this.run.marks) {
      const x = this.xAt(mark.start), end = this.xAt(mark.end);
      if (end < 0 || x > this.canvas.clientWidth || !shades[mark.kind]) continue;
      g.fillStyle = shades[mark.kind];
      g.fillRect(x, base + 1, Math.max(.5, end - x), 4);
    }
    let free = 0, last = -9;
    g.fillStyle = colour("--dim");
    for (const step of this.run.steps) {
      const x = this.xAt(step.start), name = nameOf(this.run, step);
      if (x < 0 || x - last < 3) continue; // lines closer than that are a grey wall
      last = x;
      g.fillRect(x, 0, .5, base);
      if (x >= free) { g.fillText(name, x + 3, 24); free = x + 14 + g.measureText(name).width; }
    }
  }

  point(event) {
    const time = this.timeAt(event.offsetX), e = eventAt(this.run, time);
    const gap = this.run.gaps.find(step => step.start <= time && time < step.start + step.seconds);
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => showTip(event, gap ? gapOf(this.run, gap) : tipOf(this.run, e)), 15);
  }

  pin(e) {
    this.event = Math.max(0, Math.min(e, this.last));
    this.draw();
    this.pinned();
  }

  key(event) {
    const step = event.shiftKey ? 100 : 1;
    const actions = {
      ArrowLeft: () => this.pin(this.event - step), ArrowRight: () => this.pin(this.event + step),
      Home: () => this.pin(0), End: () => this.pin(this.last),
      "+": () => this.zoom(.5), "=": () => this.zoom(.5), "-": () => this.zoom(2),
      0: () => this.zoom(Infinity), p: () => this.pin(this.peak()),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoom(event.deltaY > 0 ? 1.25 : .8, this.timeAt(event.offsetX));
  }

  zoom(factor, around = this.run.at(this.event)) {
    const [a, b] = this.range, [first, last] = this.whole;
    if (factor === Infinity) this.range = this.whole;
    else {
      const left = Math.max(first, around - (around - a) * factor);
      const right = Math.min(last, around + (b - around) * factor);
      if (right - left > 1e-7) this.range = [left, right];
    }
    this.fill();
    this.draw();
  }
}

function gapOf(run, step) {
  const words = `${nameOf(run, step)}: at most ${readable(step.peak)}, ${readable(step.end)} when over`;
  return element("div", {}, element("b", {textContent: words}), element("div", {textContent: "its allocations are not kept one by one"}));
}

// What was alive at an event, in a few lines.
function tipOf(run, e) {
  const totals = new Float64Array(ROLES.length), places = new Map();
  for (const [i, role] of alive(run, e)) {
    const b = run.bytes[i];
    totals[role] += b;
    places.set(run.place[i], (places.get(run.place[i]) || 0) + b);
  }
  const total = totals.reduce((a, b) => a + b, 0);
  const box = element("div", {}, element("b", {textContent: readable(total)}), ` after ${seconds(run.at(e))}`);
  ROLES.forEach((name, r) => { if (totals[r]) box.append(element("div", {}, swatch(r), `${name} ${readable(totals[r])}`)); });
  const top = [...places].sort((a, b) => b[1] - a[1]).slice(0, 5);
  for (const [p, b] of top) {
    const place = run.places[p];
    box.append(element("div", {className: "code", textContent: `${readable(b)}  ${lineOf(place)} ${place.op}`}));
  }
  return box;
}

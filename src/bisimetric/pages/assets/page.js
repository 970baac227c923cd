// What happens: colours, search, sliders, picking states, explanations, curves.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id), raw = Data.raw, digits = Data.digits;
  const make = (tag, text, cls) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; if (cls) e.className = cls; return e; };
  const nameOf = (k) => Data.name(Data.states[k]);
  const named = (text) => { const e = make("bdi", text.length > 90 ? text.slice(0, 89) + "…" : text, "name"); e.title = text; return e; };

  $("title").textContent = raw.title;
  const fact = (name, value) => { const d = make("div"); d.append(make("dt", name), make("dd", value)); $("facts").append(d); };
  fact("states", String(raw.n));
  raw.facts.forEach(([name, value]) => fact(name, value));
  raw.notes.forEach((note) => $("notes").append(make("p", note)));
  $("stress").textContent = `distances are distorted by ${(100 * raw.stress).toFixed(1)} % (stress)`;
  $("heat-note").textContent = raw.notes.some((n) => n.includes("landmarks")) ? "of landmarks, in the order of clusters" : "in the order of clusters";
  $("scale-top").textContent = digits(Data.top);

  // ---- classes at ε: complete linkage, cut so that classes have a diameter of at most 2ε ----
  const K = Data.K, merges = raw.merges, classOf = new Uint32Array(K);
  let classes = K, epsilon = 0;
  function cut(count) {
    const root = new Uint32Array(2 * K - 1).map((_, k) => k);
    const find = (k) => { while (root[k] !== k) { root[k] = root[root[k]]; k = root[k]; } return k; };
    for (let m = 0; m < count; m++) { root[find(merges[m][0])] = K + m; root[find(merges[m][1])] = K + m; }
    const number = new Map();
    Data.order.forEach((k) => { const r = find(k); if (!number.has(r)) number.set(r, number.size); classOf[k] = number.get(r); });
    classes = number.size; epsilon = count > 0 ? merges[count - 1][2] / 2 : 0;
  }
  const loss = (eps) => (raw.loss.failed ? null : raw.loss.at + raw.loss.slope * 2 * eps);
  const tied = (count) => { while (count < merges.length && merges[count][2] <= (count > 0 ? merges[count - 1][2] : 0)) count++; return count; };

  // ---- colours ----
  const MERGED = "classes at ε";
  const choices = [MERGED, ...Data.columns.map((c) => c.name)];
  choices.forEach((name, k) => { const o = make("option", name); o.value = String(k); $("colour").append(o); });
  let colouring = raw.kind === "metric" ? 0 : 1;
  if (choices.length < 2) colouring = 0;
  $("colour").value = String(colouring);
  function painter() {
    if (colouring === 0) return (k) => { const c = classOf[Data.landmark[Data.states[k]]]; return { colour: Draw.WORDS[c % 8], kind: Math.floor(c / 8) % Draw.SHAPES }; };
    const column = Data.columns[colouring - 1];
    if (column.words) return (k) => { const c = column.which[k]; return { colour: Draw.WORDS[c % 8], kind: Math.floor(c / 8) % Draw.SHAPES }; };
    const known = column.numbers.filter((x) => x !== null);
    let low = Infinity, high = -Infinity;
    known.forEach((x) => { low = Math.min(low, x); high = Math.max(high, x); });
    return (k) => { const x = column.numbers[k]; return { colour: x === null ? "#888" : Draw.rgb(Draw.viridis(high > low ? (x - low) / (high - low) : 0.5)), kind: 0 }; };
  }
  function legend() {
    const box = $("legend");
    box.textContent = "";
    const column = colouring === 0 ? null : Data.columns[colouring - 1];
    if (column !== null && !column.words) {
      const numbers = column.numbers.filter((x) => x !== null);
      let low = Infinity, high = -Infinity;
      numbers.forEach((x) => { low = Math.min(low, x); high = Math.max(high, x); });
      const c = make("canvas", "", "wide"), item = make("span");
      item.append(make("span", digits(low)), c, make("span", digits(high))); box.append(item);
      ramp(c);
      return;
    }
    const words = column === null ? Array.from({ length: classes }, (_, k) => `class ${k + 1}`) : column.words;
    words.slice(0, 32).forEach((word, k) => {
      const c = make("canvas"), item = make("span");
      item.append(c, make("bdi", word)); item.title = word; box.append(item);
      const [pen, w, h] = Draw.fit(c);
      pen.fillStyle = Draw.WORDS[k % 8]; Draw.shape(pen, Math.floor(k / 8) % Draw.SHAPES, w / 2, h / 2, 5);
    });
    if (words.length > 32) box.append(make("span", `… and ${words.length - 32} more`));
  }
  function ramp(canvas) {
    const [pen, w, h] = Draw.fit(canvas);
    for (let x = 0; x < w; x++) { pen.fillStyle = Draw.rgb(Draw.viridis(x / Math.max(w - 1, 1))); pen.fillRect(x, 0, 1.5, h); }
  }

  // ---- drawing, once a frame ----
  let picked = [], hovered = null, mapAt = null, boardAt = null, waiting = false;
  const view = (() => {
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    for (let k = 0; k < Data.count; k++) { x0 = Math.min(x0, Data.place[2 * k]); x1 = Math.max(x1, Data.place[2 * k]); y0 = Math.min(y0, Data.place[2 * k + 1]); y1 = Math.max(y1, Data.place[2 * k + 1]); }
    return { x: (x0 + x1) / 2, y: (y0 + y1) / 2, scale: 1 / Math.max(x1 - x0, y1 - y0, 1e-9) };
  })();
  const actionColumn = Data.columns.find((c) => c.words && c.name === "action") || Data.columns.find((c) => c.words && c.name === "best action");
  const ARROWS = { north: "↑", up: "↑", south: "↓", down: "↓", east: "→", right: "→", west: "←", left: "←" };
  const arrows = actionColumn ? (k) => ARROWS[actionColumn.words[actionColumn.which[k]].toLowerCase()] || actionColumn.words[actionColumn.which[k]].slice(0, 3) : null;
  function draw(all) {
    if (all) { legend(); Draw.heat($("heat"), picked); ramp($("scale")); }
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const paint = painter();
      mapAt = Draw.map($("map"), view, paint, picked, hovered);
      if (Data.board !== null) boardAt = Draw.board($("board"), paint, picked, hovered, arrows);
      if (!document.documentElement.dataset.drawn) document.documentElement.dataset.drawn = String(Math.round(performance.now()));
    });
  }

  // ---- picking ----
  function pick(k) {
    picked = picked.includes(k) ? picked.filter((x) => x !== k) : [...picked.slice(-1), k];
    tell(); Draw.heat($("heat"), picked); draw(false);
  }
  function tell() {
    const box = $("pair");
    box.textContent = "";
    if (picked.length === 0) box.append("Pick two states: on the map, on the board, or by name.");
    else {
      picked.forEach((k, place) => { box.append(place ? " and B " : "A ", named(nameOf(k))); describe(box, k); });
      if (picked.length === 1) box.append(": pick another to see how far apart they are, and why.");
      else {
        const [s, t] = picked.map((k) => Data.states[k]), doubt = Data.doubt(s, t);
        box.append(` are ${digits(Data.distance(s, t))} apart${doubt > 0 ? ` ± ${digits(doubt)}` : ""}. `);
      }
      const clear = make("button", "let go");
      clear.addEventListener("click", () => { picked = []; tell(); Draw.heat($("heat"), picked); draw(false); });
      box.append(" ", clear);
    }
    why();
  }
  function describe(box, k) {
    const said = Data.columns.slice(0, 4).map((c) => `${c.name} ${c.words ? c.words[c.which[k]] : digits(c.numbers[k])}`);
    if (said.length) box.append(` (${said.join(", ")})`);
  }

  // ---- why ----
  function part(share, whole, text) {
    const li = make("li"), bar = make("span", undefined, "bar"), fill = make("i");
    fill.style.width = `${Math.min(100, whole > 0 ? (100 * share) / whole : 0)}%`;
    bar.append(fill); li.append(bar, `${digits(share)} (${whole > 0 ? ((100 * share) / whole).toFixed(0) : 0} %) `, text || "");
    return li;
  }
  function branch(node, whole, level) {
    const ul = make("ul"), one = node.one;
    if (one.actions) {
      const under = one.actions[0] === one.actions[1] ? one.actions[0] : `${one.actions[0]} and ${one.actions[1]}`;
      const others = one.rivals.slice(0, 4).map(([name, x]) => `${name} ${digits(x)}`).join(", ");
      ul.append(make("li", `under ${under}${others ? ` (others: ${others})` : ""}`));
    }
    if (one.reason) ul.append(part(node.scale * (one.apart || 0), whole, one.reason));
    if (one.rewards && one.reward > 0) ul.append(part(node.scale * one.reward, whole, `rewards ${digits(one.rewards[0])} and ${digits(one.rewards[1])}`));
    if (one.entropy > 1e-12 * whole) ul.append(part(node.scale * one.entropy, whole, "entropy of the plan"));
    node.children.forEach((child) => {
      const li = part(child.share, whole, `mass ${digits(child.mass)} on `);
      li.append(named(Data.name(child.s)), " and ", named(Data.name(child.t)), ` at ${digits(Data.distance(child.s, child.t))}`);
      if (child.below === null) { ul.append(li); return; }
      const details = make("details"), summary = make("summary");
      summary.append(...li.childNodes); details.open = level === 0; details.append(summary, branch(child.below, whole, level + 1));
      const item = make("li"); item.append(details); ul.append(item);
    });
    if (node.cut) ul.append(part(node.cutShare, whole, `${node.cut} more pairs`));
    return ul;
  }
  function why() {
    const box = $("why");
    box.textContent = "";
    if (picked.length < 2) { box.append(make("p", "Pick two states to see what their distance is made of.")); return; }
    const [s, t] = picked.map((k) => Data.states[k]);
    if (Data.classOf !== null) {
      const [a, b] = picked.map((k) => Data.classOf[k]), lines = raw.distinctions[`${Math.max(a, b)},${Math.min(a, b)}`];
      if (a === b) box.append(make("p", "They are bisimilar: no formula tells them apart."));
      else if (lines) { box.append(make("p", `Holds in one class (${Math.max(a, b)}) and not in the other (${Math.min(a, b)}):`), make("code", lines.join("\n"))); }
      else box.append(make("p", "They are in different classes; bisimetric explain MODEL S T --classes gives a formula."));
    }
    if (!Explain.available) { box.append(make("p", "This page has no model in it, so it cannot explain distances.")); return; }
    const tree = Explain.explain(s, t, 3), d = Data.distance(s, t);
    const head = make("p");
    head.append("d(", named(Data.name(s)), ", ", named(Data.name(t)), `) = ${digits(d)}`);
    box.append(head, branch(tree, tree.whole, 0));
    const off = Math.abs(tree.whole - d), unit = Data.top / 65535;
    if (off > 4 * unit + 1e-3 * d) box.append(make("p", `The parts add up to ${digits(tree.whole)}: ${raw.kind === "run" ? "distances of a step are not a fixed point" : "distances on this page are rounded, or those of landmarks"}.`));
  }

  // ---- pointer and keys on the map and the board ----
  function nearest(at, x, y, reach) {
    let best = null, least = reach * reach;
    for (let k = 0; k < Data.count; k++) { const dx = at[2 * k] - x, dy = at[2 * k + 1] - y, d = dx * dx + dy * dy; if (d < least) { least = d; best = k; } }
    return best;
  }
  function tip(k, event) {
    const box = $("tip");
    if (k === null) { box.hidden = true; return; }
    box.textContent = nameOf(k).slice(0, 120) + Data.columns.slice(0, 5).map((c) => `\n${c.name}: ${c.words ? c.words[c.which[k]] : digits(c.numbers[k])}`).join("");
    box.hidden = false;
    box.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 6))}px`;
    box.style.top = `${Math.max(4, Math.min(event.clientY + 14, window.innerHeight - box.offsetHeight - 6))}px`;
  }
  function attach(canvas, places) {
    const at = (event) => { const box = canvas.getBoundingClientRect(); return nearest(places(), event.clientX - box.left, event.clientY - box.top, canvas.id === "board" ? 45 : 22); };
    canvas.addEventListener("pointermove", (event) => { const k = at(event); if (k !== hovered) { hovered = k; draw(false); } tip(k, event); });
    canvas.addEventListener("pointerleave", () => { hovered = null; tip(null); draw(false); });
    canvas.addEventListener("click", (event) => { const k = at(event); if (k !== null) pick(k); });
    canvas.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key], spots = places();
      if (way) {
        event.preventDefault();
        if (hovered === null) hovered = picked.length ? picked[picked.length - 1] : 0;
        else {
          let best = null, least = Infinity;
          for (let k = 0; k < Data.count; k++) {
            const dx = spots[2 * k] - spots[2 * hovered], dy = spots[2 * k + 1] - spots[2 * hovered + 1], along = dx * way[0] + dy * way[1], across = Math.abs(dx * way[1] - dy * way[0]);
            if (k !== hovered && along > 0.5 && along + 3 * across < least) { least = along + 3 * across; best = k; }
          }
          if (best !== null) hovered = best;
        }
        $("pair").textContent = `At ${nameOf(hovered).slice(0, 120)}: Enter picks it.`;
        draw(false);
      } else if ((event.key === "Enter" || event.key === " ") && hovered !== null) { event.preventDefault(); pick(hovered); }
    });
  }
  attach($("map"), () => mapAt);
  if (Data.board !== null) { $("board-panel").hidden = false; attach($("board"), () => boardAt); }
  $("heat").addEventListener("click", (event) => {
    const box = $("heat").getBoundingClientRect(), rank = (v) => Math.min(K - 1, Math.max(0, Math.floor((v / box.width) * K)));
    const pair = [rank(event.clientX - box.left), rank(event.clientY - box.top)].map((r) => Data.order[r]);
    const found = pair.map((m) => { for (let k = 0; k < Data.count; k++) if (Data.landmark[Data.states[k]] === m) return k; return null; });
    if (found.every((k) => k !== null) && found[0] !== found[1]) { picked = found; tell(); Draw.heat($("heat"), picked); draw(false); }
  });
  document.addEventListener("keydown", (event) => {
    const typing = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); $("search").focus(); }
    if (event.key === "Escape") { $("found").hidden = true; if (!typing) { picked = []; hovered = null; tell(); Draw.heat($("heat"), picked); draw(false); } }
  });

  // ---- search ----
  let active = 0;
  function search() {
    const wanted = $("search").value.trim().toLowerCase(), list = $("found");
    list.textContent = ""; active = 0;
    if (wanted) {
      const hits = [], later = [];
      for (let k = 0; k < Data.count && hits.length < 20; k++) {
        const name = nameOf(k).toLowerCase();
        if (name === wanted || String(Data.states[k]) === wanted) hits.unshift(k);
        else if (name.startsWith(wanted)) hits.push(k);
        else if (later.length < 20 && name.includes(wanted)) later.push(k);
      }
      [...hits, ...later].slice(0, 20).forEach((k, place) => {
        const li = make("li");
        li.setAttribute("role", "option"); li.setAttribute("aria-selected", String(place === 0)); li.dataset.state = String(k);
        li.append(make("bdi", nameOf(k)), make("small", `  #${Data.states[k]}`));
        li.addEventListener("pointerdown", (event) => { event.preventDefault(); take(k); });
        list.append(li);
      });
      if (!list.children.length) list.append(make("li", raw.n > Data.count ? "not found among the states that are drawn" : "no such state"));
    }
    list.hidden = !wanted; $("search").setAttribute("aria-expanded", String(!list.hidden));
  }
  function take(k) { $("search").value = ""; search(); pick(k); }
  $("search").addEventListener("input", search);
  $("search").addEventListener("blur", () => { $("found").hidden = true; });
  $("search").addEventListener("keydown", (event) => {
    const items = [...$("found").querySelectorAll("li[data-state]")];
    if (event.key === "Enter" && items.length) { event.preventDefault(); take(Number(items[active].dataset.state)); }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      active = Math.max(0, Math.min(items.length - 1, active + (event.key === "ArrowDown" ? 1 : -1)));
      items.forEach((li, k) => li.setAttribute("aria-selected", String(k === active)));
      if (items[active]) items[active].scrollIntoView({ block: "nearest" });
    }
  });

  // ---- curves ----
  const plots = [];
  // Of a logarithmic axis powers of ten, and not too many of them.
  const decades = (u, splits) => {
    const powers = splits.map((v) => Math.log10(v)), whole = powers.filter((p) => Math.abs(p - Math.round(p)) < 1e-9).map(Math.round), every = Math.max(1, Math.ceil(whole.length / 6));
    return splits.map((v, k) => (Math.abs(powers[k] - Math.round(powers[k])) < 1e-9 && Math.round(powers[k]) % every === 0 ? v : null));
  };
  function curve(id, x, series, options) {
    const box = $(id), axis = { stroke: () => Draw.css("--soft"), grid: { stroke: () => Draw.css("--line"), width: 1 }, ticks: { stroke: () => Draw.css("--line") } };
    const plot = new uPlot({
      width: Math.max(box.clientWidth, 200), height: 190, legend: { show: series.length > 1 || options.legend },
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false, distr: 1 }, y: { distr: options.log ? 3 : 1, range: options.range } },
      axes: [{ ...axis, label: options.x, labelSize: 18, labelGap: 0, size: 34 }, { ...axis, label: options.y, size: 64, labelSize: 18, filter: options.log ? decades : undefined, values: (u, v) => v.map((y) => (y === null ? "" : digits(y))) }],
      series: [{ label: options.x, value: (u, v) => digits(v) }, ...series.map((s) => ({ label: s.name, stroke: () => Draw.css(s.colour), width: 2, dash: s.dash, points: { show: false }, value: (u, v) => digits(v), paths: options.steps ? uPlot.paths.stepped({ align: 1 }) : undefined }))],
      hooks: { draw: [(u) => { const at = options.mark(); if (at === null) return; const px = Math.round(u.valToPos(at, "x", true)); u.ctx.save(); u.ctx.strokeStyle = Draw.css("--mark"); u.ctx.lineWidth = 2; u.ctx.beginPath(); u.ctx.moveTo(px, u.bbox.top); u.ctx.lineTo(px, u.bbox.top + u.bbox.height); u.ctx.stroke(); u.ctx.restore(); }] },
    }, [x, ...series.map((s) => s.values)], box);
    plots.push([plot, box]);
  }
  const heights = [0, ...merges.map((m) => m[2] / 2)], eps = [], counts = [], losses = [];
  heights.forEach((h, k) => { if (k + 1 < heights.length && heights[k + 1] === h) return; eps.push(h); counts.push(K - k); losses.push(loss(h)); });
  if (eps.length > 1) {
    curve("curve-classes", eps, [{ name: "classes", values: counts, colour: "--blue" }], { x: "ε", y: "classes", steps: true, mark: () => epsilon, range: (u, low, high) => [0, high * 1.05] });
    if (!raw.loss.failed) curve("curve-loss", eps, [{ name: "certified loss", values: losses, colour: "--orange" }], { x: "ε", y: "certified loss", mark: () => epsilon, range: (u, low, high) => [0, high > 0 ? high * 1.05 : 1] });
  } else $("curve-classes").append(make("p", K === 1 ? "There is one state, or one class of bisimilar states." : "All distances are 0: there is one class."));
  $("loss-note").textContent = raw.loss.failed ? `No certified loss: ${raw.loss.failed}.` : `Certified: ${raw.loss.source}, for classes of diameter 2ε by complete linkage.`;

  // ---- sliders ----
  $("eps").max = String(merges.length);
  $("eps").disabled = merges.length === 0;
  function merge() {
    const count = tied(Number($("eps").value));
    cut(count);
    const certified = loss(epsilon);
    $("eps-out").textContent = `ε = ${digits(epsilon)}, ${classes} ${classes === 1 ? "class" : "classes"}${certified === null ? "" : `, certified loss ${digits(certified)}`}`;
    if (colouring === 0) legend();
    plots.forEach(([plot]) => plot.redraw(false));
    draw(false);
  }
  $("eps").addEventListener("input", () => { if (colouring !== 0) { colouring = 0; $("colour").value = "0"; } merge(); });
  $("colour").addEventListener("change", () => { colouring = Number($("colour").value); legend(); draw(false); });
  let stepAt = null;
  if (raw.history !== null) {
    const h = raw.history, steps = h.k;
    $("run-panel").hidden = $("step-control").hidden = false;
    $("step").max = String(steps.length - 1); $("step").value = String(steps.length - 1);
    const positive = (list) => list.map((x) => (x !== null && x > 0 ? x : null));
    const series = [{ name: "certified bound", values: positive(h.bound), colour: "--orange" }];
    if (h.error.some((x) => x !== null && x > 0)) series.push({ name: "error", values: positive(h.error), colour: "--blue", dash: [6, 4] });
    const show = () => {
      const k = Number($("step").value);
      stepAt = steps[k];
      $("step-out").textContent = `${steps[k]}: error ${digits(h.error[k])}, bound ${digits(h.bound[k])}, ${h.n_classes[k]} classes`;
      $("run-note").textContent = `Step ${steps[k]}: step size ${digits(h.alpha[k])}, ${h.sweeps[k]} sweeps, metric gap ${digits(h.metric_gap[k])}, δ ${digits(h.delta[k])}, diameter ${digits(h.diameter[k])}. Map, board and actions are those of the last step: a run keeps no others.`;
      plots.forEach(([plot]) => plot.redraw(false));
    };
    if (steps.length > 1) {
      curve("run-error", steps, series, { x: "step", y: "error", log: series[0].values.some((x) => x !== null), legend: true, mark: () => stepAt });
      curve("run-classes", steps, [{ name: "classes", values: h.n_classes, colour: "--blue" }], { x: "step", y: "classes", steps: true, mark: () => stepAt, range: (u, low, high) => [0, high * 1.05] });
    }
    $("step").addEventListener("input", show);
    show();
  }

  // ---- begin ----
  const again = () => { plots.forEach(([plot, box]) => plot.setSize({ width: Math.max(box.clientWidth, 200), height: 190 })); draw(true); };
  window.addEventListener("resize", again);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  merge(); tell(); draw(true);
})();

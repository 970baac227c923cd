// A distance split into its causes, as bisimetric explain does it: rewards, the action that decides, plans of next states.
"use strict";
const Explain = (() => {
  const M = Data.model;

  // The plan of least cost between masses a and b: augmenting paths of least reduced cost, with potentials.
  function exactPlan(C, a, b) {
    const n = a.length, m = b.length, plan = new Float64Array(n * m);
    const left = Float64Array.from(a), open = Float64Array.from(b), u = new Float64Array(n), v = new Float64Array(m);
    const eps = 1e-13;
    for (let round = 0; round < 50 * (n + m); round++) {
      // Dijkstra from all rows with mass left, over rows 0..n-1 and columns n..n+m-1.
      const dist = new Float64Array(n + m).fill(Infinity), from = new Int32Array(n + m).fill(-1), done = new Uint8Array(n + m);
      let any = false;
      for (let i = 0; i < n; i++) if (left[i] > eps) { dist[i] = 0; any = true; }
      if (!any) break;
      let end = -1;
      for (;;) {
        let at = -1;
        for (let k = 0; k < n + m; k++) if (!done[k] && dist[k] < Infinity && (at < 0 || dist[k] < dist[at])) at = k;
        if (at < 0) break;
        done[at] = 1;
        if (at >= n && open[at - n] > eps) { end = at; break; }
        if (at < n) {
          for (let j = 0; j < m; j++) {
            const next = dist[at] + Math.max(C[at * m + j] - u[at] - v[j], 0);
            if (!done[n + j] && next < dist[n + j]) { dist[n + j] = next; from[n + j] = at; }
          }
        } else {
          for (let i = 0; i < n; i++) {
            if (plan[i * m + at - n] <= eps || done[i]) continue;
            const next = dist[at] + Math.max(-(C[i * m + at - n] - u[i] - v[at - n]), 0);
            if (next < dist[i]) { dist[i] = next; from[i] = at; }
          }
        }
      }
      if (end < 0) break;
      const far = dist[end];
      for (let i = 0; i < n; i++) if (done[i]) u[i] += far - dist[i];
      for (let j = 0; j < m; j++) if (done[n + j]) v[j] -= far - dist[n + j];
      let flow = open[end - n], at = end;
      while (from[at] >= 0) {
        const back = from[at];
        if (at < n) flow = Math.min(flow, plan[at * m + back - n]);
        at = back;
      }
      flow = Math.min(flow, left[at]);
      left[at] -= flow; open[end - n] -= flow; at = end;
      while (from[at] >= 0) {
        const back = from[at];
        if (at >= n) plan[back * m + at - n] += flow; else plan[at * m + back - n] -= flow;
        at = back;
      }
    }
    return plan;
  }

  const productPlan = (a, b) => Float64Array.from({ length: a.length * b.length }, (_, k) => a[Math.floor(k / b.length)] * b[k % b.length]);

  // Sinkhorn's iteration in the log domain.
  function entropicPlan(C, a, b, reg) {
    const n = a.length, m = b.length, f = new Float64Array(n), g = new Float64Array(m);
    const soft = (count, value) => {
      let high = -Infinity, sum = 0;
      for (let k = 0; k < count; k++) high = Math.max(high, value(k));
      for (let k = 0; k < count; k++) sum += Math.exp(value(k) - high);
      return high + Math.log(sum);
    };
    for (let round = 0; round < 3000; round++) {
      let change = 0;
      for (let i = 0; i < n; i++) f[i] = -reg * soft(m, (j) => (g[j] - C[i * m + j]) / reg + Math.log(b[j]));
      for (let j = 0; j < m; j++) {
        const next = -reg * soft(n, (i) => (f[i] - C[i * m + j]) / reg + Math.log(a[i]));
        change = Math.max(change, Math.abs(next - g[j])); g[j] = next;
      }
      if (change < 1e-11 * Math.max(reg, 1)) break;
    }
    return Float64Array.from({ length: n * m }, (_, k) => a[Math.floor(k / m)] * b[k % m] * Math.exp((f[Math.floor(k / m)] + g[k % m] - C[k]) / reg));
  }

  function rowsCompared(x, y) {
    const lo = M.indptr[x], n = M.indptr[x + 1] - lo, to = M.indptr[y], m = M.indptr[y + 1] - to;
    const a = M.probs.subarray(lo, lo + n), b = M.probs.subarray(to, to + m);
    const d = new Float64Array(n * m);
    let unit = 0;
    for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) { d[i * m + j] = Data.distance(M.indices[lo + i], M.indices[to + j]); unit = Math.max(unit, d[i * m + j]); }
    const C = Float64Array.from(d, (v) => (unit > 0 ? Math.pow(v / unit, M.p) : 0));
    const reg = unit > 0 ? M.reg / Math.pow(unit, M.p) : 0;
    let plan;
    if (unit === 0 || n === 1 || m === 1 || M.transport === "Independent") plan = productPlan(a, b);
    else if (M.transport === "Sinkhorn" && reg > 1e-6) plan = reg > 1e9 ? productPlan(a, b) : entropicPlan(C, a, b, reg);
    else plan = exactPlan(C, a, b);
    let cost = 0, entropy = 0;
    for (let k = 0; k < n * m; k++) {
      cost += plan[k] * C[k];
      if (M.value && plan[k] > 0) entropy += reg * plan[k] * Math.log(plan[k] / (a[Math.floor(k / m)] * b[k % m]));
    }
    entropy = Math.max(entropy, 0);
    const whole = cost + entropy, W = unit * Math.pow(whole, 1 / M.p), next = M.c_T * W * (whole > 0 ? cost / whole : 0);
    const successors = [];
    for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) {
      const mass = plan[i * m + j];
      if (mass > 1e-12) successors.push({ s: M.indices[lo + i], t: M.indices[to + j], mass, share: cost > 0 ? (next * mass * C[i * m + j]) / cost : 0 });
    }
    successors.sort((p, q) => q.share - p.share || q.mass - p.mass);
    const reward = M.c_R * Math.abs(M.rewards[x] - M.rewards[y]);
    return { total: reward + M.c_T * W, reward, rewards: [M.rewards[x], M.rewards[y]], entropy: M.c_T * W - next, successors, reason: "", rivals: [], actions: null };
  }

  // Which labels keep two states apart, as far as both are drawn.
  function differs(s, t) {
    const k = Data.drawnOf.get(s), m = Data.drawnOf.get(t);
    if (k === undefined || m === undefined) return "labels or actions differ";
    const labels = Data.columns.filter((c) => c.words && c.name.startsWith("label ") && c.which[k] !== c.which[m]).map((c) => `${c.name.slice(6)} ${c.words[c.which[k]]} in the first, ${c.words[c.which[m]]} in the second`);
    return labels.length ? `labels differ: ${labels.join("; ")}` : "actions differ";
  }

  const actionOf = (row) => M.actions[M.action[row]];

  // One step of the fixed point for a pair of states.
  function step(s, t) {
    if (s === t && !M.diagonal) return { total: 0, reward: 0, rewards: null, entropy: 0, successors: [], reason: "the same state", rivals: [], actions: null };
    if (M.apart[s] !== M.apart[t]) return { total: M.largest, reward: 0, rewards: null, entropy: 0, successors: [], reason: differs(s, t), rivals: [], actions: null, apart: M.largest };
    const rows = [], others = [];
    for (let r = M.pointers[s]; r < M.pointers[s + 1]; r++) rows.push(r);
    for (let r = M.pointers[t]; r < M.pointers[t + 1]; r++) others.push(r);
    if (M.match === "chain" || !M.action) return rowsCompared(rows[0], others[0]);
    if (M.match === "labels") {
      const found = rows.map((r) => { const o = others.find((q) => M.label[q] === M.label[r]); return { ...rowsCompared(r, o), actions: [actionOf(r), actionOf(o)] }; });
      found.sort((p, q) => q.total - p.total);
      found[0].rivals = found.slice(1).map((f) => [f.actions[0], f.total]);
      return found[0];
    }
    const table = rows.map((r) => others.map((o) => ({ ...rowsCompared(r, o), actions: [actionOf(r), actionOf(o)] })));
    const least = (list) => list.reduce((p, q) => (q.total < p.total ? q : p));
    const all = [...table.map(least), ...others.map((_, j) => least(table.map((row) => row[j])))];
    const best = all.reduce((p, q) => (q.total > p.total ? q : p));
    return { ...best, rivals: [] };
  }

  // A tree of causes: the largest shares of each pair, some steps ahead.
  function tree(s, t, share, depth, least, budget) {
    const one = step(s, t);
    budget.left -= 1;
    const whole = share === null ? one.total : share, scale = one.total > 0 ? whole / one.total : 0;
    const seen = one.successors.filter((x) => x.share > 0), kept = seen.filter((x, k) => k < 6 && (scale * x.share >= least * budget.total || k === 0));
    const cut = seen.slice(kept.length);
    const children = kept.map((x) => ({ s: x.s, t: x.t, mass: x.mass, share: scale * x.share,
      below: depth > 1 && scale * x.share >= 5 * least * budget.total && budget.left > 0 ? tree(x.s, x.t, scale * x.share, depth - 1, least, budget) : null }));
    return { one, scale, whole, children, cut: cut.length, cutShare: scale * cut.reduce((sum, x) => sum + x.share, 0) };
  }
  const explain = (s, t, depth) => { const first = step(s, t); return tree(s, t, null, depth, 0.01, { left: 200, total: first.total }); };
  return { explain, available: M !== null };
})();

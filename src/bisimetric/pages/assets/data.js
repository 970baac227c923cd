// The data of the page: arrays from base64, names of states, distances between them.
"use strict";
const Data = (() => {
  const raw = JSON.parse(document.getElementById("data").textContent);
  const bytes = (text) => {
    const found = atob(text), out = new Uint8Array(found.length);
    for (let k = 0; k < found.length; k++) out[k] = found.charCodeAt(k);
    return out.buffer;
  };
  const u16 = (t) => new Uint16Array(bytes(t)), u32 = (t) => new Uint32Array(bytes(t)), i16 = (t) => new Int16Array(bytes(t));
  const f32 = (t) => new Float32Array(bytes(t)), f64 = (t) => new Float64Array(bytes(t));
  const states = u32(raw.states), place = f32(raw.place), landmark = u16(raw.landmark), between = u16(raw.between);
  const reach = raw.reach === null ? null : f32(raw.reach), K = raw.K, top = raw.top, order = u16(raw.order);
  const drawnOf = new Map();
  states.forEach((s, k) => drawnOf.set(s, k));

  // Distance of two landmarks; pairs k < m are stored row by row.
  const ofLandmarks = (k, m) => {
    if (k === m) return 0;
    if (k > m) [k, m] = [m, k];
    return (between[k * K - (k * (k + 1)) / 2 + (m - k - 1)] / 65535) * top;
  };
  // Distance of two states, by number, and by how much it may be off.
  const own = raw.own === null ? null : f32(raw.own); // d(s, s), where that is not 0
  const distance = (s, t) => (s === t ? (own === null ? 0 : own[s] * top) : ofLandmarks(landmark[s], landmark[t]));
  const doubt = (s, t) => (reach === null || s === t ? 0 : (reach[s] + reach[t]) * top);
  const name = (s) => {
    const k = drawnOf.get(s);
    return raw.names === null || k === undefined ? String(s) : raw.names[k] || String(s);
  };
  const columns = raw.columns.map((c) => (c.words ? { name: c.name, words: c.words, which: u32(c.which) } : c));
  let model = null;
  if (raw.model !== null) {
    const m = raw.model;
    model = { ...m, pointers: u32(m.pointers), apart: u32(m.apart), indptr: u32(m.indptr), indices: u32(m.indices), probs: f64(m.probs), rewards: f64(m.rewards) };
    if (m.action) { model.action = u32(m.action); model.label = u32(m.label); }
  }
  const digits = (x) => (x === null || x === undefined || Number.isNaN(x) ? "–" : x === 0 ? "0" : Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(4))));
  const classOf = raw.class_of_point === null ? null : u32(raw.class_of_point);
  return { raw, states, place, landmark, K, top, order, distance, ofLandmarks, doubt, name, columns, model, drawnOf, digits, classOf,
    board: raw.board === null ? null : i16(raw.board), count: states.length };
})();

// Pictures on canvas: colours that colour-blind people can tell apart, the map, the board, the heat map.
"use strict";
const Draw = (() => {
  // Okabe and Ito; shapes tell more than eight words apart.
  const WORDS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#7F7F7F"];
  const SHAPES = 4;
  const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
  function viridis(x) {
    const at = Math.min(Math.max(x, 0), 1) * (VIRIDIS.length - 1), k = Math.min(Math.floor(at), VIRIDIS.length - 2), f = at - k;
    return [0, 1, 2].map((c) => Math.round(VIRIDIS[k][c] + f * (VIRIDIS[k + 1][c] - VIRIDIS[k][c])));
  }
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rgb = (c) => `rgb(${c[0]},${c[1]},${c[2]})`;

  function fit(canvas) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2), box = canvas.getBoundingClientRect();
    const w = Math.max(1, Math.round(box.width * ratio)), h = Math.max(1, Math.round(box.height * ratio));
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, box.width, box.height);
    return [pen, box.width, box.height];
  }
  function shape(pen, kind, x, y, r) {
    pen.beginPath();
    if (kind === 0) pen.arc(x, y, r, 0, 2 * Math.PI);
    else if (kind === 1) pen.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
    else if (kind === 2) { pen.moveTo(x, y - 1.15 * r); pen.lineTo(x + 1.1 * r, y + 0.85 * r); pen.lineTo(x - 1.1 * r, y + 0.85 * r); pen.closePath(); }
    else { pen.moveTo(x, y - 1.25 * r); pen.lineTo(x + 1.25 * r, y); pen.lineTo(x, y + 1.25 * r); pen.lineTo(x - 1.25 * r, y); pen.closePath(); }
    pen.fill();
  }
  // paint(k) gives { colour, kind } of the k-th drawn state.
  function map(canvas, view, paint, picked, hovered) {
    const [pen, w, h] = fit(canvas), n = Data.count, r = n > 2000 ? 2.4 : n > 400 ? 3.4 : 5;
    const at = new Float32Array(2 * n);
    const side = Math.min(w, h) - 36;
    for (let k = 0; k < n; k++) {
      at[2 * k] = w / 2 + (Data.place[2 * k] - view.x) * view.scale * side;
      at[2 * k + 1] = h / 2 + (Data.place[2 * k + 1] - view.y) * view.scale * side;
    }
    pen.globalAlpha = n > 2000 ? 0.8 : 0.9;
    for (let k = 0; k < n; k++) { const p = paint(k); pen.fillStyle = p.colour; shape(pen, p.kind, at[2 * k], at[2 * k + 1], r); }
    pen.globalAlpha = 1;
    ring(pen, at, picked, hovered, r);
    return at;
  }
  function ring(pen, at, picked, hovered, r) {
    pen.lineWidth = 2.5;
    picked.forEach((k, place) => {
      pen.strokeStyle = css("--mark");
      pen.beginPath(); pen.arc(at[2 * k], at[2 * k + 1], r + 5, 0, 2 * Math.PI); pen.stroke();
      pen.fillStyle = css("--ink"); pen.font = "bold 13px system-ui"; pen.textAlign = "left";
      pen.fillText(place === 0 ? "A" : "B", at[2 * k] + r + 8, at[2 * k + 1] + 4);
    });
    if (hovered !== null) { pen.strokeStyle = css("--ink"); pen.lineWidth = 1.5; pen.beginPath(); pen.arc(at[2 * hovered], at[2 * hovered + 1], r + 3, 0, 2 * Math.PI); pen.stroke(); }
  }
  // States on a board; several in one place share its square.
  function board(canvas, paint, picked, hovered, arrows) {
    const cells = new Map();
    let rows = 0, columns = 0;
    for (let k = 0; k < Data.count; k++) {
      const i = Data.board[2 * k], j = Data.board[2 * k + 1];
      if (i < 0) continue;
      rows = Math.max(rows, i + 1); columns = Math.max(columns, j + 1);
      const key = i + "," + j;
      if (!cells.has(key)) cells.set(key, { i, j, states: [] });
      cells.get(key).states.push(k);
    }
    const width = canvas.getBoundingClientRect().width, cell = Math.min(width / columns, 80);
    canvas.style.height = Math.ceil(cell * rows) + "px";
    const [pen] = fit(canvas), at = new Float32Array(2 * Data.count).fill(-1e6), left = (width - cell * columns) / 2;
    for (const { i, j, states } of cells.values()) {
      const side = Math.ceil(Math.sqrt(states.length)), part = (cell - 2) / side;
      states.forEach((k, q) => {
        const x = left + j * cell + 1 + (q % side) * part, y = i * cell + 1 + Math.floor(q / side) * part;
        const p = paint(k);
        pen.fillStyle = p.colour; pen.fillRect(x, y, part - (side > 1 ? 0.5 : 0), part - (side > 1 ? 0.5 : 0));
        if (p.kind > 0 && part > 9) { pen.fillStyle = "#fff"; shape(pen, p.kind, x + 0.18 * part, y + 0.18 * part, 0.09 * part + 1); }
        at[2 * k] = x + part / 2; at[2 * k + 1] = y + part / 2;
        if (arrows && side === 1 && cell > 22) { pen.fillStyle = "#fff"; pen.strokeStyle = "#000"; pen.lineWidth = 2; pen.font = `${Math.min(15, cell / 3)}px system-ui`; pen.textAlign = "center"; pen.textBaseline = "middle"; pen.strokeText(arrows(k), at[2 * k], at[2 * k + 1]); pen.fillText(arrows(k), at[2 * k], at[2 * k + 1]); pen.textBaseline = "alphabetic"; }
      });
    }
    const seen = picked.filter((k) => at[2 * k] > -1e5);
    ring(pen, at, seen, hovered !== null && at[2 * hovered] > -1e5 ? hovered : null, Math.max(4, cell / 2.6 / Math.sqrt(Math.max(1, ...[...cells.values()].map((c) => c.states.length)))));
    return at;
  }
  // Distances of landmarks, one pixel a pair, in the order of clusters; drawn once.
  let image = null;
  function heat(canvas, picked) {
    const K = Data.K;
    if (image === null) {
      image = document.createElement("canvas"); image.width = image.height = K;
      const pen = image.getContext("2d"), pixels = pen.createImageData(K, K);
      const table = Array.from({ length: 256 }, (_, k) => viridis(k / 255));
      for (let i = 0; i < K; i++) for (let j = 0; j < K; j++) {
        const c = table[Data.top > 0 ? Math.round((255 * Data.ofLandmarks(Data.order[i], Data.order[j])) / Data.top) : 0], p = 4 * (i * K + j);
        pixels.data[p] = c[0]; pixels.data[p + 1] = c[1]; pixels.data[p + 2] = c[2]; pixels.data[p + 3] = 255;
      }
      pen.putImageData(pixels, 0, 0);
    }
    const [pen, w] = fit(canvas);
    pen.imageSmoothingEnabled = K > w;
    pen.drawImage(image, 0, 0, w, w);
    pen.strokeStyle = "#fff"; pen.lineWidth = 1.5;
    picked.forEach((k) => {
      const rank = rankOf[Data.landmark[Data.states[k]]], x = ((rank + 0.5) / K) * w;
      for (const colour of ["#000", "#fff"]) { pen.strokeStyle = colour; pen.setLineDash(colour === "#fff" ? [4, 4] : []); pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, w); pen.moveTo(0, x); pen.lineTo(w, x); pen.stroke(); }
      pen.setLineDash([]);
    });
  }
  const rankOf = new Uint32Array(Data.K);
  Data.order.forEach((k, rank) => (rankOf[k] = rank));
  return { WORDS, SHAPES, viridis, rgb, css, fit, shape, map, board, heat };
})();

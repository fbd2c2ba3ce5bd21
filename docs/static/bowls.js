// The two bowls of notebook 00, with something to move: how many steps clients take, how large, with what momentum.
(() => {
  const figure = document.getElementById("bowls");
  if (!figure) return;
  const CURVATURE = [[[2, 0], [0, 0.1]], [[0.2, 0.2], [0.2, 1.2]]];
  const MINIMA = [[-1, 1], [1.5, -0.5]];
  const COLOURS = ["#8c6bb1", "#2a9d8f"];
  const START = [1, 1.2];
  const ROUNDS = 60;
  const FRAME = { left: -1.9, right: 2.3, top: 1.6, bottom: -1.1 };
  const WIDTH = 640;
  const SCALE = WIDTH / (FRAME.right - FRAME.left);
  const HEIGHT = (FRAME.top - FRAME.bottom) * SCALE;
  const times = (matrix, vector) => matrix.map((row) => row[0] * vector[0] + row[1] * vector[1]);
  const plus = (a, b, factor = 1) => [a[0] + factor * b[0], a[1] + factor * b[1]];
  const place = (w) => [(w[0] - FRAME.left) * SCALE, (FRAME.top - w[1]) * SCALE];
  const path = (points) => points.map((w) => place(w).map((x) => x.toFixed(1)).join(",")).join(" ");

  function bestOfTheSum() {
    const sum = CURVATURE[0].map((row, i) => row.map((value, j) => value + CURVATURE[1][i][j]));
    const right = plus(times(CURVATURE[0], MINIMA[0]), times(CURVATURE[1], MINIMA[1]));
    const determinant = sum[0][0] * sum[1][1] - sum[0][1] * sum[1][0];
    return [
      (sum[1][1] * right[0] - sum[0][1] * right[1]) / determinant,
      (sum[0][0] * right[1] - sum[1][0] * right[0]) / determinant,
    ];
  }

  function wayOf(client, w, steps, size, momentum) {
    const way = [w];
    let buffer = [0, 0];
    for (let k = 0; k < steps; k += 1) {
      buffer = plus(times(CURVATURE[client], plus(way[k], MINIMA[client], -1)), buffer, momentum);
      way.push(plus(way[k], buffer, -size));
    }
    return way;
  }

  function ellipse(client, level) {
    // where half of (w - minimum)' A (w - minimum) is the level
    const points = [];
    for (let angle = 0; angle <= 72; angle += 1) {
      const u = [Math.cos((angle * Math.PI) / 36), Math.sin((angle * Math.PI) / 36)];
      const bend = u[0] * times(CURVATURE[client], u)[0] + u[1] * times(CURVATURE[client], u)[1];
      points.push(plus(MINIMA[client], u, Math.sqrt((2 * level) / bend)));
    }
    return `<polyline points="${path(points)}" fill="none" stroke="${COLOURS[client]}" stroke-width="0.8" opacity="0.55"/>`;
  }

  function dot(w, radius, style) {
    const [x, y] = place(w);
    return `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${radius}" ${style}/>`;
  }

  function word(w, text, colour, below = 0) {
    const [x, y] = place(w);
    return `<text x="${x.toFixed(1)}" y="${(y - 12 + below).toFixed(1)}" text-anchor="middle" fill="${colour}">${text}</text>`;
  }

  const BEST = bestOfTheSum();
  const svg = figure.querySelector("svg");
  const said = figure.querySelector("output");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT.toFixed(0)}`);

  function draw() {
    const [steps, size, momentum] = ["steps", "size", "momentum"].map((name) => {
      const slider = figure.querySelector(`[name=${name}]`);
      slider.nextElementSibling.textContent = slider.value;
      return Number(slider.value);
    });
    let server = START;
    const places = [server];
    let drawn = "";
    for (let t = 0; t < ROUNDS; t += 1) {
      const ways = [0, 1].map((client) => wayOf(client, server, steps, size, momentum));
      ways.forEach((way, client) => {
        drawn += `<polyline points="${path(way)}" fill="none" stroke="${COLOURS[client]}" stroke-width="2" opacity="${t ? 0.35 : 1}"/>`;
      });
      server = plus(ways[0][steps], ways[1][steps]).map((value) => value / 2);
      places.push(server);
    }
    const bowls = [0, 1].map((client) => [0.05, 0.2, 0.6, 1.4].map((level) => ellipse(client, level)).join("")).join("");
    const ink = "currentColor";
    const minima = MINIMA.map((w, i) => dot(w, 6, `fill="${COLOURS[i]}"`) + word(w, `client ${i + 1}'s minimum`, COLOURS[i])).join("");
    svg.innerHTML =
      `${bowls}${drawn}<polyline points="${path(places)}" fill="none" stroke="${ink}" stroke-width="1.2"/>` +
      places.map((w) => dot(w, 3.5, `fill="${ink}"`)).join("") +
      `${minima}${dot(BEST, 7, `fill="none" stroke="${ink}" stroke-width="2.5"`)}${word(BEST, "minimum of the sum", ink, 32)}` +
      word(START, "start", ink);
    const distance = Math.hypot(...plus(server, BEST, -1));
    said.textContent = Number.isFinite(distance) && distance < 50
      ? `After ${ROUNDS} rounds the server is ${distance.toFixed(2)} away from the minimum of the sum.`
      : "It diverges: the steps are too large.";
  }

  figure.addEventListener("input", draw);
  draw();
})();

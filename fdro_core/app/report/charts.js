"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("curves").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const HEIGHT = 220, TOP = 10, BOTTOM = 38, LEFT = 52;

  const make = (name, attributes, parent, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };

  // 1, 2 or 5 times a power of ten, so that about `count` ticks fit.
  const ticks = (low, high, count, whole) => {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
    if (whole) step = Math.max(1, Math.round(step));
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step)
      found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
    return found;
  };

  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e5 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e");
    return String(Number(value.toPrecision(4)));
  };

  // Labels at least `gap` apart, moved as little as need be.
  const apart = (places, gap, low, high) => {
    const order = places.map((place, k) => [place, k]).sort((a, b) => a[0] - b[0]);
    for (let k = 1; k < order.length; k++) order[k][0] = Math.max(order[k][0], order[k - 1][0] + gap);
    const over = order.length ? Math.max(0, order[order.length - 1][0] - high) : 0;
    const moved = [];
    order.forEach(([place, k]) => { moved[k] = Math.max(low, place - over); });
    return moved;
  };

  const draw = (figure, chart, axis) => {
    const svg = figure.querySelector("svg"), read = figure.querySelector(".read");
    svg.replaceChildren();
    const width = Math.max(240, svg.clientWidth || figure.clientWidth);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const xs = chart[axis], lines = chart.lines.filter((line) => line.values.some((v) => v !== null));
    const longest = Math.max(...lines.map((line) => line.name.length));
    const right = lines.length > 1 ? Math.min(8 + 7 * longest, width * 0.34) : 14;
    const all = lines.flatMap((line) => line.values).filter((v) => v !== null);
    const whole = chart.digits === 0;
    let low = Math.min(...all), high = Math.max(...all);
    if (whole) low = Math.min(0, low);
    if (low === high) { high += Math.abs(high) * 0.1 || 1; low -= whole ? 0 : Math.abs(low) * 0.1 || 1; }
    const first = xs[0], last = xs[xs.length - 1], span = last - first || 1;
    const x = (value) => LEFT + ((value - first) / span) * (width - LEFT - right);
    const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);

    for (const value of ticks(low, high, 4, whole)) {
      make("line", { class: "grid", x1: LEFT, x2: width - right, y1: y(value), y2: y(value) }, svg);
      make("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, svg, short(value));
    }
    for (const value of ticks(first, last === first ? first + 1 : last, Math.max(2, (width - LEFT - right) / 90), axis === "iteration"))
      if (value <= last)
        make("text", { x: x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, svg, short(value));
    make("text", { x: (LEFT + width - right) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, svg,
      axis === "clock" ? "seconds on the engine's clock" : "iterations");

    const ends = [];
    lines.forEach((line, k) => {
      let path = "", pen = "M", end = TOP;
      line.values.forEach((value, i) => {
        if (value === null) { pen = "M"; return; }
        if (whole && pen === "L") path += `H${x(xs[i]).toFixed(1)}`;  // counts jump, they do not slope
        path += `${pen}${x(xs[i]).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
        end = y(value);
      });
      make("path", { class: `line line${k}`, d: path }, svg);
      if (xs.length === 1) make("circle", { class: `dot${k}`, cx: x(xs[0]), cy: end, r: 3 }, svg);
      ends.push(end);
    });
    if (lines.length > 1) {
      const places = apart(ends, 14, TOP + 4, HEIGHT - BOTTOM);
      lines.forEach((line, k) =>
        make("text", { class: "name", x: width - right + 5, y: places[k] + 4 }, svg, line.name));
    }

    const cursor = make("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" }, svg);
    const dots = lines.map((_, k) => make("circle", { class: `dot${k}`, r: 4, visibility: "hidden" }, svg));
    let at = xs.length - 1;
    const show = (index, marked) => {
      at = Math.max(0, Math.min(xs.length - 1, index));
      const values = lines.map((line) =>
        `${line.name} ${line.values[at] === null ? "–" : line.values[at].toFixed(chart.digits)}`);
      const where = axis === "clock" ? `${short(xs[at])} s` : `iteration ${xs[at]}`;
      read.textContent = `${marked ? "at" : "last, at"} ${where}: ${values.join(" · ")}`;
      cursor.setAttribute("visibility", marked ? "visible" : "hidden");
      cursor.setAttribute("x1", x(xs[at]));
      cursor.setAttribute("x2", x(xs[at]));
      dots.forEach((dot, k) => {
        const value = lines[k].values[at];
        dot.setAttribute("visibility", marked && value !== null ? "visible" : "hidden");
        if (value !== null) { dot.setAttribute("cx", x(xs[at])); dot.setAttribute("cy", y(value)); }
      });
    };
    const nearest = (event) => {
      const box = svg.getBoundingClientRect();
      const wanted = first + (((event.clientX - box.left) * (width / box.width) - LEFT) / (width - LEFT - right)) * span;
      let best = 0;
      xs.forEach((value, i) => { if (Math.abs(value - wanted) < Math.abs(xs[best] - wanted)) best = i; });
      return best;
    };
    svg.onpointermove = (event) => show(nearest(event), true);
    svg.onpointerdown = svg.onpointermove;
    svg.onpointerleave = () => show(xs.length - 1, false);
    svg.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
      if (step) { show(at + step, true); event.preventDefault(); }
    };
    svg.onblur = () => show(xs.length - 1, false);
    show(xs.length - 1, false);
  };

  const axis = () => document.querySelector("input[name=axis]:checked").value;
  const all = () => charts.forEach((chart) => draw(document.getElementById(`chart-${chart.name}`), chart, axis()));
  document.querySelectorAll("input[name=axis]").forEach((input) => { input.onchange = all; });
  let width = window.innerWidth, waiting;
  window.onresize = () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(all, 60);
  };
  if (charts.length) all();
})();

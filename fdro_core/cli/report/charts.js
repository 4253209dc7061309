"use strict";
(() => {
  const { axes, charts } = JSON.parse(document.getElementById("curves").textContent);
  charts.forEach((chart) => chart.lines.forEach((line) => Object.assign(line, axes[line.axis])));
  const SVG = "http://www.w3.org/2000/svg";
  const TOP = 10, BOTTOM = 38, LEFT = 56, LABEL = 13, LEAD = 12;

  const make = (name, attributes, parent, text) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };

  // 1, 2, 2.5 or 5 times a power of ten, so that about `count` ticks fit.
  const ticks = (low, high, count, whole) => {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const factors = whole && power < 10 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
    let step = power * factors.find((each) => each * power >= rough);
    if (whole) step = Math.max(1, Math.round(step));
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step)
      found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
    return found;
  };

  // At least two, however narrow the chart is.
  const several = (low, high, count, whole) => {
    for (let more = Math.max(2, Math.round(count * 0.7)); more < 12; more++) {
      const found = ticks(low, high, more, whole).filter((value) => value <= high);
      if (found.length > 2 || (found.length === 2 && found[0] > low)) return found;
    }
    return [low, high];
  };

  // 1, 2 and 5 times the powers of ten within the limits; over many decades some powers only.
  const logTicks = (low, high) => {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const every = Math.ceil((last - first) / 6), factors = last - first <= 2 ? [1, 2, 5] : [1];
    const found = [];
    for (let power = first; power <= last; power++)
      if (power % every === 0) found.push(...factors.map((factor) => Number(`${factor}e${power}`)));
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  };

  const raised = (power) => String(power).replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);

  // A number for people: four significant digits, powers of ten instead of 1e-7.
  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e6 || (size > 0 && size < 1e-3)) {
      const [factor, power] = value.toExponential(3).split("e");
      return (Number(factor) === 1 ? "" : `${Number(factor)}·`) + `10${raised(Number(power))}`;
    }
    return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 8 });
  };

  // Names often differ at their end only, so what is left out is in the middle.
  const clipped = (text, room) => {
    if (text.length <= room) return text;
    const head = Math.max(1, Math.ceil((room - 1) / 2));
    return `${text.slice(0, head)}…${text.slice(text.length - Math.max(1, room - 1 - head))}`;
  };

  // Labels at least `gap` apart and within the limits: pushed down from the top, then up from the bottom.
  const apart = (places, gap, low, high) => {
    const order = places.map((place, k) => [Math.max(place, low), k]).sort((a, b) => a[0] - b[0]);
    for (let k = 1; k < order.length; k++) order[k][0] = Math.max(order[k][0], order[k - 1][0] + gap);
    for (let k = order.length - 1, most = high; k >= 0; k--, most -= gap) {
      order[k][0] = Math.min(order[k][0], most);
      most = order[k][0];
    }
    const moved = [];
    order.forEach(([place, k]) => { moved[k] = place; });
    return moved;
  };

  const limits = (chart, lines) => {
    const all = lines.flatMap((line) => [...line.values, ...(line.low || []), ...(line.high || [])]);
    const known = chart.range || all.filter((value) => value !== null);
    let low = Math.min(...known), high = Math.max(...known);
    if (chart.zero) low = Math.min(0, low);
    if (low === high) { high += Math.abs(high) * 0.1 || 1; low -= chart.zero ? 0 : Math.abs(low) * 0.1 || 1; }
    return [low, high];
  };

  // The last report of a line at or before a place on the axis; -1 if there is none.
  const before = (xs, place) => {
    let low = -1, high = xs.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (xs[middle] <= place) low = middle; else high = middle - 1;
    }
    return low;
  };

  const paths = (line, xs, x, y, steps) => {
    let path = "", pen = "M";
    line.values.forEach((value, i) => {
      if (value === null) { pen = "M"; return; }
      if (steps && pen === "L") path += `H${x(xs[i]).toFixed(1)}`;
      path += `${pen}${x(xs[i]).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = "L";
    });
    if (!line.low) return [path, ""];
    const there = xs.map((_, i) => i).filter((i) => line.low[i] !== null && line.high[i] !== null);
    const point = (i, value) => `${x(xs[i]).toFixed(1)} ${y(value).toFixed(1)}`;
    const around = [...there.map((i) => point(i, line.high[i])), ...there.reverse().map((i) => point(i, line.low[i]))];
    return [path, around.length ? `M${around.join("L")}Z` : ""];
  };

  const draw = (figure, chart, axis) => {
    const svg = figure.querySelector("svg"), read = figure.querySelector(".read");
    svg.replaceChildren();
    const lines = chart.lines.filter((line) => line.values.some((value) => value !== null));
    if (!lines.length) { read.textContent = "no numbers"; return; }
    const height = lines.length > 5 ? 290 : 220;
    svg.style.height = `${height}px`;
    const width = Math.max(240, svg.clientWidth || figure.clientWidth);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const places = [...new Set(lines.flatMap((line) => line[axis]))].sort((a, b) => a - b);
    const last = places[places.length - 1];
    const lastOf = lines.map((line) => line.values.findLastIndex((value) => value !== null));
    const until = lines.map((line, k) => line[axis][lastOf[k]]), soonest = Math.min(...until);
    // A run that ends in the first tenth of another would be a vertical stroke.
    const stretched = lines.length > 1 && soonest > 0 && last >= 10 * soonest;
    const early = until.map((end) => lines.length > 1 && (stretched ? Math.log10(last / end) > 0.3 : end < 0.75 * last));
    const longest = Math.max(0, ...lines.filter((_, k) => !early[k]).map((line) => line.name.length));
    const right = lines.length > 1 ? Math.min(LEAD + 10 + 7 * longest, width * 0.36) : 14;
    const [low, high] = limits(chart, lines);
    const scale = chart.log ? Math.log10 : (value) => value;
    const first = stretched ? Math.max(places.find((value) => value > 0), soonest / 100)
      : places[0] < 0.1 * last ? 0 : places[0];
    const across = stretched ? (value) => Math.log10(Math.max(value, first)) : (value) => value;
    const span = across(last) - across(first) || 1;
    const x = (value) => LEFT + ((across(value) - across(first)) / span) * (width - LEFT - right);
    const y = (value) => TOP + ((scale(high) - scale(value)) / (scale(high) - scale(low))) * (height - TOP - BOTTOM);

    for (const value of chart.log ? logTicks(low, high) : ticks(low, high, 4, chart.digits === 0)) {
      make("line", { class: "grid", x1: LEFT, x2: width - right, y1: y(value), y2: y(value) }, svg);
      make("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, svg, short(value));
    }
    const room = (width - LEFT - right) / 60;
    const marks = (stretched ? logTicks(first, last) : several(first, last === first ? first + 1 : last, room, axis === "iteration"))
      .filter((value) => value <= last);
    const every = Math.ceil(marks.length / Math.max(2, room));
    marks.forEach((value, k) => {
      if (k % every === 0)
        make("text", { x: x(value), y: height - BOTTOM + 16, "text-anchor": "middle" }, svg, short(value));
    });
    make("text", { x: (LEFT + width - right) / 2, y: height - 4, "text-anchor": "middle" }, svg,
      (axis === "clock" ? "seconds on the engine's clock" : "iterations") + (stretched ? ", logarithmic" : ""));

    const drawn = lines.map((line) => paths(line, line[axis], x, y, chart.steps));
    lines.forEach((line, k) => {
      if (drawn[k][1]) make("path", { class: `band c${line.color}`, d: drawn[k][1] }, svg);
    });
    const ends = lines.map((line, k) => {
      make("path", { class: `line c${line.color} d${line.dash}`, d: drawn[k][0] }, svg);
      const end = lastOf[k];
      if (early[k] || end < line.values.length - 1 || line.values.length === 1)
        make("circle", { class: `dot c${line.color}`, cx: x(until[k]), cy: y(line.values[end]), r: 3 }, svg);
      return y(line.values[end]);
    });
    if (lines.length > 1) {
      const beside = lines.map((_, k) => k).filter((k) => !early[k]);
      const heights = apart(beside.map((k) => ends[k]), LABEL, TOP + 4, height - BOTTOM);
      beside.forEach((k, place) => {
        const side = width - right, class_ = `c${lines[k].color}`;
        if (Math.abs(heights[place] - ends[k]) > 3)
          make("line", { class: `lead ${class_}`, x1: Math.max(x(until[k]), side - 2) + 3, y1: ends[k], x2: side + LEAD, y2: heights[place] }, svg);
        make("text", { class: `name ${class_}`, x: side + LEAD + 3, y: heights[place] + 4 }, svg,
          clipped(lines[k].name, Math.floor((right - LEAD - 3) / 6.6)));
      });
      const ended = lines.map((_, k) => k).filter((k) => early[k]);
      const above = apart(ended.map((k) => ends[k] - 8), LABEL, TOP + 4, height - BOTTOM - 4);
      ended.forEach((k, place) => {
        const unit = axis === "clock" ? " s" : "", text = `${lines[k].name}, until ${short(until[k])}${unit}`;
        const fits = x(until[k]) + 6.6 * text.length < width;
        make("text", { class: `name c${lines[k].color}`, x: x(until[k]) + (fits ? 4 : -4), y: above[place], "text-anchor": fits ? "start" : "end" }, svg, text);
      });
    }

    const cursor = make("line", { class: "cursor", y1: TOP, y2: height - BOTTOM, visibility: "hidden" }, svg);
    const dots = lines.map((line) => make("circle", { class: `dot c${line.color}`, r: 4, visibility: "hidden" }, svg));
    const tell = (value) => (chart.digits === null ? short(value) : value.toFixed(chart.digits));
    const told = (line, i) => {
      if (i < 0 || line.values[i] === null) return `${line.name}: –`;
      const range = line.low && line.low[i] !== null ? ` (${tell(line.low[i])}–${tell(line.high[i])})` : "";
      return `${line.name}: ${tell(line.values[i])}${range}`;
    };
    let at = places.length - 1;
    const show = (index, marked) => {
      at = Math.max(0, Math.min(places.length - 1, index));
      const here = lines.map((line) => before(line[axis], places[at]));
      const where = axis === "clock" ? `${short(places[at])} s` : `iteration ${places[at]}`;
      read.textContent = `${marked ? "at" : "last, at"} ${where}: ${lines.map((line, k) => told(line, here[k])).join(" · ")}`;
      cursor.setAttribute("visibility", marked ? "visible" : "hidden");
      cursor.setAttribute("x1", x(places[at]));
      cursor.setAttribute("x2", x(places[at]));
      dots.forEach((dot, k) => {
        const value = here[k] < 0 ? null : lines[k].values[here[k]];
        dot.setAttribute("visibility", marked && value !== null ? "visible" : "hidden");
        if (value !== null) { dot.setAttribute("cx", x(lines[k][axis][here[k]])); dot.setAttribute("cy", y(value)); }
      });
    };
    const nearest = (event) => {
      const box = svg.getBoundingClientRect();
      const wanted = (event.clientX - box.left) * (width / box.width);
      let best = 0;
      places.forEach((value, i) => { if (Math.abs(x(value) - wanted) < Math.abs(x(places[best]) - wanted)) best = i; });
      return best;
    };
    svg.onpointermove = (event) => show(nearest(event), true);
    svg.onpointerdown = svg.onpointermove;
    svg.onpointerleave = () => show(places.length - 1, false);
    svg.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
      if (step) { show(at + step, true); event.preventDefault(); }
    };
    svg.onblur = () => show(places.length - 1, false);
    show(places.length - 1, false);
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
  document.querySelectorAll("details").forEach((part) => { part.ontoggle = () => part.open && all(); });
  if (charts.length) all();
})();

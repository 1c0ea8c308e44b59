"use strict";

const SVG = "http://www.w3.org/2000/svg";

/** Adds an element with these attributes and this text to `parent`. */
const add = (parent, name, attributes = {}, text = "") => {
  const element = parent.namespaceURI === SVG || name === "svg"
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return parent.appendChild(element);
};

/** A time in microseconds, as people write it. */
const duration = us => {
  if (us === null || us === undefined) return "–";
  const [value, unit] = us < 1000 ? [us, "us"] : us < 1e6 ? [us / 1000, "ms"] : [us / 1e6, "s"];
  return (value < 10 ? value.toFixed(1).replace(".0", "") : Math.round(value)) + "\u00a0" + unit;
};

/** A number with at most three digits after which thousands are shortened. */
const number = value => {
  if (value >= 1e6) return (value / 1e6).toPrecision(3) + " M";
  if (value >= 1e4) return (value / 1e3).toPrecision(3) + " k";
  return value >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
};

/** The smallest of 1, 2, 5, 10, 20 ... that is at least `value`. */
const roundUp = value => {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map(step => step * power).find(step => step >= value);
};

/**
 * Makes a chart of lines over time in `host`. Returns a function that draws it: `{ from, to, lines, band, label }`.
 * Each line is a list of `[time, value]`. A value of null leaves a gap.
 *
 * `options`: `height`, `format` (of a value), `marks` (values with a line and a label of their own, from 0 on, or else the
 * axis follows the values), `times` (of the labels below), `time` (the text of such a label).
 */
const lineChart = (host, options) => {
  const picture = add(host, "svg", { class: "chart", role: "img", height: options.height });
  let data = null;
  const draw = () => {
    const width = host.clientWidth;
    if (!data || width === 0) return;
    picture.setAttribute("viewBox", `0 0 ${width} ${options.height}`);
    picture.setAttribute("aria-label", data.label);
    picture.replaceChildren();
    const values = data.lines.flat().map(([, value]) => value).filter(value => value !== null);
    const marks = options.marks ?? [0, roundUp(Math.max(1, ...values))];
    const high = marks.at(-1);
    const left = options.marks ? 38 : 0, top = 16, bottom = options.height - (options.times ? 24 : 2);
    const x = time => left + (time - data.from) / (data.to - data.from) * (width - left);
    const y = value => bottom - Math.min(value / high, 1) * (bottom - top);
    if (data.band) {
      const [from, to] = data.band;
      add(picture, "rect", { class: "band", x: x(from), y: top, width: x(to) - x(from), height: bottom - top });
    }
    for (const mark of marks) {
      add(picture, "line", { class: "grid", x1: left, x2: width, y1: y(mark), y2: y(mark) });
      const [at, above] = options.marks ? [left - 8, -4] : [width, 4];
      if (options.marks || mark > 0) add(picture, "text", { x: at, y: y(mark) - above, "text-anchor": "end" }, options.format(mark));
    }
    for (const time of options.times ?? []) {
      const anchor = time === data.from ? "start" : time === data.to ? "end" : "middle";
      add(picture, "text", { x: x(time), y: options.height - 4, "text-anchor": anchor }, options.time(time));
    }
    data.lines.forEach((line, index) => {
      let path = "", isOpen = false;
      for (const [time, value] of line) {
        if (value !== null) path += `${isOpen ? "L" : "M"}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
        isOpen = value !== null;
      }
      add(picture, "path", { class: `line ${"ab"[index]}`, d: path });
    });
  };
  new ResizeObserver(draw).observe(host);
  return next => {
    data = next;
    draw();
  };
};

const SECONDS = 120;
const CARDS = [
  ["Requests", number, [["requests", "per second"]]],
  ["Latency, to the last byte sent", duration, [["p50", "median"], ["p99", "99 of 100 are faster"]]],
  ["Connections open", number, [["connections", "now"]]],
  ["Threads that serve", number, [["threads", "now"]]],
  ["Event loops moved to another thread", number,
    [["moved", "per s, while a handler blocked"], ["avoided", "per s, before one that would"]]],
  ["Requests that found no free thread", number, [["queued", "per s waited"], ["rejected", "per s got 503"]]],
];

/** Fills `section` with charts of the event stream that its attribute `data-dashboard` names. */
const startDashboard = section => {
  const state = add(section, "p", { class: "state", role: "status" }, "connecting");
  const grid = add(section, "div", { class: "cards" });
  const cards = CARDS.map(([title, format, lines]) => {
    const card = add(grid, "article", { class: "card" });
    add(card, "h3", {}, title);
    const now = add(card, "div", { class: "now" });
    const values = lines.map(([key, about], index) => {
      const value = add(now, "span", { class: "value" + (lines.length > 1 ? " " + "ab"[index] : "") });
      const shown = add(value, "span", { "data-value": key }, "–");
      value.append(" ");
      add(value, "small", {}, about);
      return shown;
    });
    return { title, format, lines, values, draw: lineChart(card, { height: 92, format }) };
  });
  let samples = [];
  const show = () => {
    const last = samples.at(-1);
    if (!last) return;
    for (const { title, format, lines, values, draw } of cards) {
      lines.forEach(([key], index) => { values[index].textContent = format(last[key]); });
      draw({
        from: last.at - SECONDS * 1000,
        to: last.at,
        lines: lines.map(([key]) => samples.map(sample => [sample.at, sample[key]])),
        label: title + ": " + lines.map(([key, about]) => `${format(last[key])} ${about}`).join(", "),
      });
    }
  };
  const events = new EventSource(section.dataset.dashboard);
  events.addEventListener("history", event => {
    samples = JSON.parse(event.data);
    state.textContent = "live, a sample each second";
    show();
  });
  events.addEventListener("sample", event => {
    samples = [...samples, JSON.parse(event.data)].slice(-SECONDS);
    show();
  });
  events.onerror = () => { state.textContent = "the server does not answer; trying again"; };
};

document.querySelectorAll("[data-dashboard]").forEach(startDashboard);

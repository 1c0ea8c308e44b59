"use strict";
// The file uses `add`, `duration` and `lineChart` of the dashboard's script.

const find = id => document.getElementById(id);

// Block 8 handlers: the server measures, and the page draws its one stream of events.
const chart = lineChart(find("block-chart"), {
  height: 300,
  format: us => us / 1e6 + " s",
  marks: [0, 2e6, 4e6, 6e6, 8e6, 10e6],
  times: [0, 2, 4, 6, 8, 10, 12],
  time: String,
});
let run = null;
const drawRun = () => {
  const last = run.samples.at(-1);
  const texts = run.engines.map((engine, index) => {
    const result = run.results?.[index];
    const shown = result ? duration(result.slowest) : last ? duration(last.slowest[index]) : null;
    find("block-now-" + index).textContent = shown ?? "–";
    find("block-note-" + index).textContent = result
      ? `the longest wait; ${result.answered} quick requests answered while 8 handlers blocked`
      : "";
    return `${engine} ${shown ?? "not measured"}`;
  });
  chart({
    from: 0,
    to: run.seconds || 12,
    lines: run.engines.map((_, index) => run.samples.map(sample => [sample.at, sample.slowest[index]])),
    band: run.seconds ? run.blocking : null,
    label: "Slowest quick request: " + texts.join(", "),
  });
  const isRunning = run.seconds > 0 && !run.results && !run.error;
  find("block-start").disabled = isRunning;
  find("block-save").hidden = !run.results;
  const at = last?.at ?? 0;
  find("block-state").textContent = run.error ? "failed: " + run.error
    : run.results ? "done"
    : !isRunning ? "takes twelve seconds"
    : at < run.blocking[0] ? "quick clients only"
    : at < run.blocking[1] ? "eight handlers block" : "the other clients have stopped";
};
const runs = new EventSource("/block/events");
for (const name of ["start", "end"]) {
  runs.addEventListener(name, event => {
    run = JSON.parse(event.data);
    drawRun();
  });
}
runs.addEventListener("sample", event => {
  run.samples.push(JSON.parse(event.data));
  drawRun();
});
find("block-start").onclick = async event => {
  event.target.disabled = true;
  const answer = await fetch("/block", { method: "POST" });
  // 409: another page has started the run, and this one sees it too.
  if (answer.status !== 202 && answer.status !== 409) {
    find("block-state").textContent = "failed: " + answer.status;
    event.target.disabled = false;
  }
};

// The log of the requests that this page makes.
const ROWS_MAX = 50;
const log = (what, status, bytes, from) => {
  const row = document.createElement("tr");
  const cells = [new Date().toLocaleTimeString(), what, status, bytes, duration((performance.now() - from) * 1000)];
  cells.forEach((text, index) => add(row, "td", index > 2 ? { class: "number" } : {}, text));
  find("log").prepend(row);
  find("log-none").hidden = true;
  find("log-head").hidden = false;
  while (find("log").rows.length > ROWS_MAX) find("log").lastChild.remove();
};

// Trying a route: the response appears below as it arrives.
const SHOWN_MAX = 4000;
const send = async (form, show, stop) => {
  const { method, kind } = form.dataset;
  const path = form.path.value, from = performance.now();
  const init = { method, signal: stop, cache: "no-store" };
  if (kind === "text") init.body = form.text.value;
  if (kind === "file") {
    init.body = new FormData();
    const file = form.file.files[0] ?? new File([new Uint8Array(300000)], "zeros.bin");
    init.body.append("file", file);
  }
  let bytes = 0, status = "–";
  try {
    const answer = await fetch(path, init);
    status = answer.status;
    let text = `${status} ${answer.statusText}\n`;
    for (const name of ["content-type", "content-length", "etag"]) {
      if (answer.headers.has(name)) text += `${name}: ${answer.headers.get(name)}\n`;
    }
    show(text += "\n");
    const reader = answer.body?.getReader(), decoder = new TextDecoder();
    for (let part; reader && !(part = await reader.read()).done;) {
      bytes += part.value.length;
      if (text.length < SHOWN_MAX) show(text += decoder.decode(part.value, { stream: true }));
      else show(text.slice(0, SHOWN_MAX) + "\n...");
    }
  } finally {
    log(`${method} ${path}`, status, bytes, from);
  }
};
const speak = (form, show, stop) => new Promise((resolve, reject) => {
  const path = form.path.value, from = performance.now();
  const socket = new WebSocket(location.origin.replace(/^http/, "ws") + path);
  stop.onabort = () => socket.close();
  socket.onopen = () => socket.send(form.text.value);
  socket.onmessage = event => {
    show(event.data);
    log("WebSocket " + path, 101, event.data.length, from);
    socket.close();
    resolve();
  };
  socket.onerror = () => reject(new Error("no connection"));
  socket.onclose = resolve;
});
const quoted = text => "'" + text.replaceAll("'", "'\\''") + "'";
const curl = form => {
  const { method, kind } = form.dataset;
  const path = form.path.value, url = location.origin + path;
  if (kind === "socket") return `websocat ${quoted(url.replace(/^http/, "ws"))}`;
  const flags = kind === "text" ? ` --data ${quoted(form.text.value)}`
    : kind === "file" ? " --form file=@FILE" : path.startsWith("/events") ? " --no-buffer" : "";
  return `curl${flags || (method === "GET" ? "" : " --request " + method)} ${quoted(url)}`;
};
for (const form of document.querySelectorAll(".try form")) {
  const button = form.querySelector("button"), parent = form.parentElement;
  const answer = parent.querySelector(".answer"), line = parent.querySelector(".curl");
  const shown = button.textContent;
  let stop = null;
  const show = text => {
    answer.textContent = text;
    answer.parentElement.hidden = false;
  };
  form.oninput = () => { line.textContent = curl(form); };
  form.oninput();
  form.onsubmit = async event => {
    event.preventDefault();
    if (stop) return stop.abort();
    stop = new AbortController();
    button.textContent = "Stop";
    show("waiting ...");
    try {
      await (form.dataset.kind === "socket" ? speak : send)(form, show, stop.signal);
    } catch (error) {
      if (error.name !== "AbortError") show("failed: " + error.message);
    }
    stop = null;
    button.textContent = shown;
  };
}

// Copying. Without permission, the text is selected instead.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.onclick = async () => {
    const text = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(text);
    }
  };
}

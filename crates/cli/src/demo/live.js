"use strict";
const show = (id, text) => { document.getElementById(id).textContent = text };
const result = (id, good, text) => show(id, good ? "ok" : "failed: " + text);

const socket = new WebSocket(location.origin.replace(/^http/, "ws") + "/ws/echo");
const greeting = "a message of " + new Date().toISOString();
socket.onopen = () => socket.send(greeting);
socket.onerror = () => result("ws-result", false, "no connection");
socket.onmessage = event => {
  if (document.getElementById("ws-result").textContent !== "ok") result("ws-result", event.data === greeting, event.data);
  show("ws-echo", event.data);
};
document.getElementById("ws-form").onsubmit = event => {
  event.preventDefault();
  socket.send(event.target.text.value);
};

let ticks = 0;
const events = new EventSource("/events");
events.addEventListener("tick", event => {
  show("clock", event.data);
  if (++ticks === 2) result("events-result", event.lastEventId !== "", "no id");
});

const send = async form => {
  const answer = await fetch("/upload", { method: "POST", body: form });
  return answer.json();
};
document.getElementById("upload-form").onsubmit = async event => {
  event.preventDefault();
  show("upload-answer", JSON.stringify(await send(new FormData(event.target))));
};

const upload = async () => {
  const bytes = 300000;
  const form = new FormData();
  form.append("file", new Blob([new Uint8Array(bytes)]), "zeros.bin");
  const answer = await send(form);
  result("upload-result", answer.bytes === bytes && answer.files[0].name === "zeros.bin", JSON.stringify(answer));
};

const download = async () => {
  const whole = await (await fetch("/files/words.txt")).text();
  const part = await fetch("/files/words.txt", { headers: { Range: "bytes=0-3" }, cache: "no-store" });
  const text = await part.text();
  result("download-result", part.status === 206 && text === "warp" && whole.startsWith(text), part.status + " " + text);
};

upload().catch(error => result("upload-result", false, error));
download().catch(error => result("download-result", false, error));

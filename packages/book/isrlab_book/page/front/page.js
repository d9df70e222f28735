// The page around the explorer. The explorer's model is a worker with Python: the reader's choices
// go there as messages, and its answers are shown. A worker that does not answer is ended, and a
// new one opens the reader's current step. All content of links and files is set as text.

import explorer, { picture } from "./explorer.js";
import { assist } from "./editor.js";

const LIMIT_MS = 15_000; // for one answer
const START_LIMIT_MS = 120_000; // for Python to load
const here = new URL(".", import.meta.url);
const { pyodide, recordings } = await (await fetch(new URL("where.json", here))).json();
const contents = await (await fetch(new URL("contents.json", here))).json();
const code = URL.createObjectURL(new Blob([await (await fetch(new URL("worker.js", here))).text()],
  { type: "text/javascript" }));
const $ = (id) => document.getElementById(id);
const begun = performance.now();

const element = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });
const say = (text) => { $("status").textContent = text; };
const warn = (text) => { $("alert").textContent = text; };

function startWorker(logs) {
  const worker = new Worker(code, { type: "module" });
  const begin = { pyodide: new URL(pyodide, here).href, archive: new URL("python.bin", here).href, logs };
  worker.postMessage({ begin });
  return worker;
}

// The model, with the interface that a widget's model has in a notebook

const linked = () => location.hash.length > 1 && !$(location.hash.slice(1));
const state = {
  view: { ...contents.view, ...contents.film[0] }, cells: contents.film[0].cells,
  plays: !linked() && !matchMedia("(prefers-reduced-motion: reduce)").matches,
};
const listeners = {};
const model = {
  model_id: "page",
  get: (name) => state[name],
  on: (name, act) => { (listeners[name] ||= []).push(act); },
  off: () => {},
  send: (choice) => ask(choice),
};

function set(name, value) {
  state[name] = value;
  for (const act of listeners[`change:${name}`] || []) act();
}

// The worker and its time limit

let inFilm = !linked(); // Python has not been asked for anything yet
let worker, isReady, lastSign, isBusy, sent, waiting, latest, failures = 0;

function begin(...first) {
  worker?.terminate();
  worker = startWorker(false);
  [isReady, isBusy, sent, waiting, latest, lastSign] = [false, false, 0, first, 0, performance.now()];
  document.documentElement.dataset.state = "loading";
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = (event) => fail(event.message || "Python could not be started");
}

function ask(message) {
  const step = state.view.path.length - 1;
  if (inFilm && message.go !== step && contents.film[message.go]) {
    set("view", { ...contents.view, ...contents.film[message.go] });
    set("cells", contents.film[message.go].cells);
    return;
  }
  if (message.go === undefined) for (const act of listeners.stop || []) act();
  if (inFilm) {
    inFilm = false;
    ask({ ...contents.opening, at: step });
    if (message.go === step) return;
  }
  if (!isReady) {
    waiting.push(message);
    say("Python is loading. Your choice is played after that.");
    return;
  }
  lastSign = sent === latest && !isBusy ? performance.now() : lastSign;
  document.documentElement.dataset.state = "asked";
  worker.postMessage({ id: ++sent, ask: JSON.stringify(message) });
}

function receive(data) {
  lastSign = performance.now();
  if (data.failed) return fail(data.failed);
  if (data.ready) {
    isReady = true;
    say(inFilm ? "" : "Python is ready.");
    if (inFilm) document.documentElement.dataset.state = "done";
    performance.measure("python", { start: begun, end: lastSign });
    for (const message of waiting) ask(message);
    keepForLater();
  } else if (data.busy) isBusy = true;
  else if (data.answer !== undefined) {
    latest = data.id;
    show(JSON.parse(data.answer));
    failures = 0;
    if (latest === sent) document.documentElement.dataset.state = "answered";
  } else {
    isBusy = false;
    if (data.more && sent === latest) show(JSON.parse(data.more));
    else if (!data.more && sent === latest) document.documentElement.dataset.state = "done";
    if (data.memory) fail("it needed more memory than a page should use");
  }
  return undefined;
}

function fail(why) {
  const { view } = state;
  const where = { text: view.text, versions: view.versions, at: view.path.length - 1 };
  failures += 1;
  warn(`Python was stopped: ${why}. ${failures < 2 ? "The page goes back to your last step; other branches are lost."
    : "The page goes back to the opening story."}`);
  if (failures > 3) return say("Python does not start in this browser.");
  begin(failures < 2 ? where : contents.opening);
  return say("Python is loading again …");
}

setInterval(() => {
  const limit = isReady ? LIMIT_MS : START_LIMIT_MS;
  if ((isBusy || sent !== latest || !isReady) && performance.now() - lastSign > limit) {
    fail(`it took longer than ${limit / 1000} seconds`);
  }
}, 500);

// The worker's answers

let addressing;

function address({ link, challenge }) {
  const isNew = location.hash.slice(1) !== link && (location.hash || link !== contents.view.link);
  if (isNew && !challenge) history.replaceState(null, "", `#${link}`);
}

function show({ view, cells, marks, curve }) {
  if (view) {
    if (!view.problem) warn("");
    set("view", view);
    clearTimeout(addressing); // new addresses are slow, and browsers limit them
    if (!view.problem) addressing = setTimeout(address, 300, view);
    showTask(view.challenge);
  }
  if (cells) set("cells", cells);
  if (marks) {
    $("marks").replaceChildren(...marks.lines.map((line) => element("li", line)));
    if (marks.done) $("marks").append(element("li", `Solved. ${marks.score}`, { className: "done" }));
    if (marks.done) keep($("task").dataset.name, marks.count);
  }
  if (curve) showCurve(curve);
}

function showTask(name) {
  const task = challenges[name];
  $("challenge").value = name;
  $("task").hidden = !task;
  if (!task || $("task").dataset.name === name) return;
  $("task").dataset.name = name;
  const limits = task.limits ? `\nAllowed: ${task.limits.replaceAll("\n", "; ")}` : "";
  const then = task.then ? `\nAfter your steps: ${task.then.replaceAll("\n", "; ")}` : "";
  $("task").querySelector("h2").textContent = name.replaceAll("_", " ");
  $("task").querySelector(".lines").textContent = task.ask.replaceAll("\n", " ") + limits + then;
  $("hints").replaceChildren(...task.hints.map((hint) => element("li", hint)));
  $("solution").textContent = task.solution;
}

function showCurve({ svg, sentence, text, share }) {
  $("share").hidden = share === 1;
  $("share").value = share;
  if (!svg) return;
  $("sentence").textContent = share === 1 ? sentence : "";
  $("curve").replaceChildren(picture(svg, sentence));
  $("numbers").hidden = false;
  $("numbers").querySelector("pre").textContent = text;
}

// The campaign: the fewest commands of the reader's answers are kept by this browser

const { challenges } = contents; // the easiest first: those that need the fewest commands
const KEPT = "isrlab.campaign";
let best = {}; // where the browser keeps nothing, for as long as the page is open

function readKept() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT)) || {};
    best = Object.fromEntries(Object.entries(kept).filter(([name, count]) => challenges[name] && count > 0));
  } catch { best = {}; }
}

function keep(name, count) {
  best[name] = Math.min(count, best[name] || count);
  try { localStorage.setItem(KEPT, JSON.stringify(best)); } catch { /* kept until the page is closed */ }
  showCampaign();
}

function byDifficulty() {
  const groups = new Map();
  for (const [name, { fewest }] of Object.entries(challenges)) {
    const label = fewest === 1 ? "One command" : `${fewest} commands`;
    groups.set(label, [...(groups.get(label) || []), name]);
  }
  return [...groups];
}

function showCampaign() {
  const row = (name) => {
    const task = challenges[name];
    const item = element("li", "", { className: best[name] ? "done" : "" });
    const title = element("a", name.replaceAll("_", " "), { href: `#e.${name}` });
    const score = best[name] ? ` ✓ solved with ${best[name]}` : "";
    item.append(title, element("span", score), element("p", task.ask.replaceAll("\n", " ")));
    return item;
  };
  $("groups").replaceChildren(...byDifficulty().flatMap(([label, group]) => {
    const list = element("ol", "");
    list.append(...group.map(row));
    return [element("h3", label), list];
  }));
  const [all, solved] = [Object.keys(challenges).length, Object.keys(best)];
  const shortest = solved.filter((name) => best[name] <= challenges[name].fewest).length;
  $("progress").textContent = `You have solved ${solved.length} of ${all}, ${shortest} in as few commands as are known.`;
  $("forget").hidden = !solved.length;
}

// Stories, challenges and links that the reader can open

function open(fragment) {
  if (fragment.length > contents.most_link) {
    warn(`The link has ${fragment.length.toLocaleString("en")} characters; at most ${contents.most_link.toLocaleString("en")} are read.`);
    history.replaceState(null, "", location.pathname);
    return null;
  }
  const [, kind, name] = fragment.match(/^([ei])\.([\w.-]+)$/) || [];
  if (kind === "i") return readRecorded(name);
  return name ? { challenge: name } : { link: fragment };
}

function fillChoices() {
  const options = (titles) => Object.entries(titles).map(([value, text]) => element("option", text, { value }));
  $("story").append(element("option", "choose a story", { value: "" }));
  for (const [label, titles] of Object.entries(contents.stories)) {
    const group = element("optgroup", "", { label });
    group.append(...options(titles));
    $("story").append(group);
  }
  for (const [label, group] of byDifficulty()) {
    const list = element("optgroup", "", { label });
    list.append(...options(Object.fromEntries(group.map((name) => [name, name.replaceAll("_", " ")]))));
    $("challenge").append(list);
  }
  $("challenge").append(element("option", "exercises on fleets need numpy, and are only in the notebooks", { disabled: true }));
  $("recorded").append(element("option", "choose one", { value: "" }),
    ...Object.entries(contents.recordings).map(([value, text]) => element("option", text, { value })));
  $("promise").append(...contents.promises.map((name) =>
    element("option", name.replaceAll("_", " "), { value: name, selected: name === "committed_records_survive" })));
}

function listen() {
  $("forget").addEventListener("click", () => {
    best = {};
    try { localStorage.removeItem(KEPT); } catch { /* nothing was kept */ }
    showCampaign();
  });
  $("story").addEventListener("change", () => {
    const story = $("story").value;
    if (story) ask(story === contents.opening.story ? contents.opening : { story });
  });
  $("challenge").addEventListener("change", () => {
    const challenge = $("challenge").value;
    if (challenge) history.replaceState(null, "", `#e.${challenge}`);
    ask(challenge ? { challenge } : contents.opening);
  });
  $("decide").addEventListener("click", () =>
    ask({ decide: { promise: $("promise").value, mix: $("mix").value.slice(0, 300) } }));
  $("copy").addEventListener("click", async () => {
    const link = `${location.origin}${location.pathname}#${state.view.link}`;
    const copied = await (navigator.clipboard?.writeText(link) ?? Promise.reject()).then(() => true, () => false);
    history.replaceState(null, "", `#${state.view.link}`);
    say(copied ? "The link has been copied." : "The link is in the address bar.");
  });
  window.addEventListener("hashchange", () => {
    const fragment = location.hash.slice(1);
    const message = fragment && !$(fragment) && fragment !== state.view.link ? open(fragment) : null;
    if (message) ask(message);
  });
}

// Logs, in a worker of their own

let reader, clock;

function stopReading(why) {
  reader?.terminate();
  reader = null;
  clearInterval(clock);
  $("doing").textContent = "";
  $("answer").hidden = true;
  $("stop").hidden = $("read").hidden = true;
  $("reading").textContent = why;
}

function readFiles(files) {
  if (!files.length) return;
  stopReading("");
  $("stop").hidden = $("read").hidden = false;
  $("read").value = 0;
  $("reading").textContent = "reading …";
  const start = performance.now();
  let doing = "starting Python";
  const showDoing = () => {
    $("doing").textContent = `${doing}, ${Math.round((performance.now() - start) / 1000)} s`;
  };
  clock = setInterval(showDoing, 1000);
  reader = startWorker(true);
  reader.onerror = (event) => stopReading(event.message);
  reader.onmessage = ({ data }) => {
    if (data.ready) reader.postMessage({ files });
    else if (data.share !== undefined) {
      [$("read").value, doing] = [data.share, data.doing];
      showDoing();
    }
    else if (data.failed) stopReading(data.failed.replace(/^[\w.]*Error: /, ""));
    else if (data.answer) {
      const { title, text, leftOut } = data.answer;
      stopReading(`${title} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
      $("answer").textContent = `${text}\n\n${leftOut}`;
      $("answer").hidden = false;
    }
  };
}

// The logs of a real cluster, which are files beside the page.
function readRecorded(name) {
  const isKnown = Object.hasOwn(contents.recordings, name);
  $("recorded").value = isKnown ? name : "";
  $("logs").scrollIntoView();
  stopReading(isKnown ? "fetching …" : "There is no recording with this name.");
  if (isKnown) {
    fetch(new URL(`${recordings}${name}.zip`, here))
      .then((answer) => answer.ok ? answer.blob() : Promise.reject())
      .then((file) => readFiles([{ file, name: `${name}.zip` }]), () => stopReading("The recording cannot be fetched."));
  }
  return null;
}

async function filesOf(entry, folder = "") {
  if (entry.isFile) {
    const file = await new Promise((done, failed) => entry.file(done, failed));
    return [{ file, name: folder + file.name }];
  }
  const entries = [];
  const listing = entry.createReader();
  for (let some = [0]; some.length && entries.length < 2000; entries.push(...some)) {
    some = await new Promise((done, failed) => listing.readEntries(done, failed));
  }
  return (await Promise.all(entries.map((each) => filesOf(each, `${folder}${entry.name}/`)))).flat();
}

function listenToDrops() {
  const chosen = () => readFiles([...$("files").files].map((file) => ({ file, name: file.name })));
  $("files").addEventListener("change", chosen);
  $("files").addEventListener("click", () => { $("files").value = ""; }); // a file may be chosen again
  chosen(); // files that were chosen before this script ran
  $("recorded").addEventListener("change", () => $("recorded").value && readRecorded($("recorded").value));
  $("stop").addEventListener("click", () => stopReading("Stopped."));
  document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
  document.addEventListener("dragleave", () => $("drop").classList.remove("over"));
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    $("logs").scrollIntoView({ block: "nearest" });
    readFiles((await Promise.all(entries.map((entry) => filesOf(entry)))).flat());
  });
}

function keepForLater() {
  if ("serviceWorker" in navigator) navigator.serviceWorker.register("sw.js").catch(() => {});
}

$("static").remove();
$("choices").open = window.innerWidth > 520; // folded on a phone
fillChoices();
readKept();
showCampaign();
say("Python is loading …");
explorer.render({ model, el: $("explorer") });
assist($("explorer"), $("assist"), contents.words);
listen();
listenToDrops();
performance.mark("picture");
const first = linked() ? open(location.hash.slice(1)) : null;
$("story").value = first ? "" : contents.opening.story;
begin(...(first ? [first] : inFilm ? [] : [contents.opening]));

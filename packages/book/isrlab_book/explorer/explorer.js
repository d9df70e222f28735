// The explorer's front end: buttons, pictures and a tree, as Python describes them. It decides
// nothing: it sends each choice back, and draws the answer. Unchanged parts keep their elements,
// and so their focus and pixels. Text is set as text, and pictures may contain only shapes.

function make(tag, { text, kids = [], on = {}, ...rest } = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(rest)) {
    if (name === "style") element.style.cssText = value; // a page's policy forbids the attribute
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) element.textContent = text;
  for (const [event, act] of Object.entries(on)) element.addEventListener(event, act);
  element.append(...kids);
  return element;
}

const STEP_MS = 1700; // from one step to the next, when they are played
const SHAPES = new Set("svg defs pattern rect path line polygon circle text".split(" "));

// A picture as elements of the page, because a separate image would first have to be decoded.
export function picture(svg, alt) {
  const inert = document.createElement("template"); // runs and fetches nothing
  inert.innerHTML = svg;
  const drawn = inert.content.firstElementChild;
  for (const part of [drawn, ...drawn.querySelectorAll("*")]) {
    const isHarmless = SHAPES.has(part.localName)
      && part.getAttributeNames().every((name) => !/^on|href|style/i.test(name));
    if (!isHarmless) throw new Error(`${part.localName} may not be in a picture`);
  }
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", alt);
  return drawn;
}

function fill(parent, kids) {
  kids.forEach((kid, nth) => {
    if (parent.childNodes[nth] !== kid) parent.insertBefore(kid, parent.childNodes[nth] || null);
  });
  while (parent.childNodes.length > kids.length) parent.lastChild.remove();
}

function render({ model, el }) {
  const root = make("div", { class: "isrlab-explorer", "data-lm-suppress-shortcuts": "true" });
  const announced = make("div", { class: "announced", role: "status", "aria-live": "polite" });
  const parts = {};
  for (const name of ["told", "bar", "problem", "panels", "cells", "actions", "charts", "below"]) {
    parts[name] = make(name === "cells" ? "ul" : "div", { class: name });
  }
  parts.cells.setAttribute("aria-label", "how these steps end in every release");
  parts.problem.className = "bad";
  const choices = make("details", { "aria-label": "next steps", kids: [make("summary", { text: "What happens next? Choose a step" }), parts.actions] });
  choices.open = el.clientWidth > 520 || !el.clientWidth; // folded on a phone
  root.append(parts.told, parts.bar, parts.problem, parts.panels, parts.cells, choices, parts.charts, parts.below, announced);
  el.append(root);
  let typed = null; // the reader's edited scenario, until it is played
  const kept = new Map();

  function same(key, value, build) {
    const text = JSON.stringify(value);
    if (kept.get(key)?.text !== text) kept.set(key, { text, element: build() });
    return kept.get(key).element;
  }

  const send = (choice) => model.send(choice);
  const view = () => model.get("view");
  const back = () => {
    const { tree, path } = view();
    if (path.length > 1) send({ go: tree[path[path.length - 1]].parent });
  };
  const forward = () => view().next && send({ go: view().next });

  // Playing step after step, until the reader does something, or to the last step. A page that
  // begins by itself (`plays`) also begins again.

  let [clock, rests] = [null, 0];
  const isPlayer = (event) => event.target?.closest?.("[data-key=player]");

  function play() {
    clock ??= setInterval(() => {
      if (view().next) [rests] = [0, forward()];
      else if (!model.get("plays")) stop();
      else if ((rests += 1) > 2) send({ go: 0 });
    }, STEP_MS);
    drawPlayer();
  }

  function stop() {
    if (clock === null) return;
    clearInterval(clock);
    clock = null;
    drawPlayer();
    send({ go: view().path[view().path.length - 1] }); // with all that can be done there
  }

  function drawPlayer() {
    player.textContent = clock === null ? "▶ Play" : "❚❚ Stop";
    root.classList.toggle("plays", clock !== null);
  }

  const touched = (event) => { if (!isPlayer(event)) stop(); };
  for (const name of ["click", "keydown"]) document.addEventListener(name, touched, true);
  model.on("stop", stop);

  function key(event) {
    const { target } = event;
    event.stopPropagation(); // JupyterLab has shortcuts of its own
    const is_text = /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
    const move = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (event.altKey && event.key === "ArrowLeft") back();
    else if (event.altKey && event.key === "ArrowRight") forward();
    else if (!is_text && event.key === "Backspace") back();
    else if (!is_text && event.key === "/") root.querySelector(".line").focus();
    else if (!is_text && move && target.closest(".actions, .tree")) {
      const all = [...target.closest(".actions, .tree").querySelectorAll("button")];
      all[(all.indexOf(target) + move + all.length) % all.length].focus();
    } else return;
    event.preventDefault();
  }
  root.addEventListener("keydown", key);

  const button = (text, key, act) => make("button", { text, "data-key": key, on: { click: act } });
  const list = make("datalist", { id: `lines-${model.model_id || "here"}` });
  const line = make("input", {
    class: "line", "data-key": "line", list: list.id, size: 24, placeholder: "next step, then Enter",
    "aria-label": "the next step as a line of the scenario",
    on: { keydown: (event) => {
      if (event.key === "Enter" && line.value.trim()) send({ play: line.value });
    } },
  });
  const [older, newer] = [button("← back", "back", back), button("forward →", "forward", forward)];
  const player = button("", "player", () => {
    if (clock !== null) return stop();
    if (!view().next) send({ go: 0 });
    return play();
  });

  function drawBar({ versions, names, path, next, actions, problem }) {
    const chooser = (nth, label) => make("select", {
      "aria-label": label, "data-key": `version ${nth}`,
      on: { change: () => send({ versions: [...parts.bar.querySelectorAll("select")].map((s) => s.value) }) },
      kids: [...(nth ? [""] : []), ...Object.keys(names)].map((name) =>
        make("option", { value: name, text: names[name] || "none", selected: name === (versions[nth] || "") })),
    });
    const choosers = ["release", "second release"].map((label, nth) => same(label, [versions[nth], names], () =>
      make("label", { text: nth ? "compared with " : "Kafka ", kids: [chooser(nth, label)] })));
    [older.disabled, newer.disabled] = [path.length < 2, !next];
    if (!problem) line.value = "";
    fill(list, actions.flatMap((group) => group.actions).map((action) => same(`line ${action.line}`, action.label,
      () => make("option", { value: action.line, text: action.label }))));
    fill(parts.bar, [player, older, newer, ...choosers, line, list]);
  }

  function drawActions({ actions }) {
    fill(parts.actions, actions.map((group) => same(`actions ${group.name}`, group, () => make("fieldset", {
      "data-machine": group.name,
      kids: [make("legend", { text: group.name }), ...group.actions.map(({ line, label, kind }) => make("button", {
        class: kind, text: label, title: line, "data-key": line, "data-line": line,
        on: { click: () => send({ play: line }) },
      }))],
    }))));
  }

  function drawPanels({ panels, differs, tree, versions }) {
    const drawn = panels.map(({ heads, messages, ...panel }, place) => same(`panel ${place}`, panel, () => make("section", {
      class: "panel", "aria-label": panel.version,
      kids: [
        make("strong", { class: `word ${panel.word}`, text: `Kafka ${panel.version}: ${panel.word}. ` }),
        make("span", { text: panel.caption }),
        ...(panel.problem ? [make("div", { class: "bad", text: `not possible here: ${panel.problem}` })] : []),
        ...panel.broken.map((text) => make("div", { class: "bad", text: `✗ ${text}` })),
        ...panel.pictures.flatMap((svg, nth) => [
          ...(panel.pictures.length > 1 ? [make("div", {
            class: svg ? "" : "none", text: `partition p${nth}${svg ? "" : " has no records"}` })] : []),
          ...(svg ? [picture(svg, panel.status[nth])] : [])]),
      ],
    })));
    fill(parts.charts, panels.filter(({ messages }) => messages).map(({ version, heads, messages }) =>
      same(`messages ${version}`, [heads, messages], () => make("section", { class: "panel", kids: [
        make("div", { text: `Messages in ${version}` }),
        make("div", { class: "messages", tabindex: "0", "aria-label": `messages in ${version}`, role: "group",
          kids: [make("div", { class: "heads", kids: [picture(heads, "the machines")] }), picture(messages, `messages of the last steps in ${version}`)] }),
      ] }))));
    if (versions.length > 1) {
      const text = differs === null ? "No difference so far." : `First difference: ${tree[differs].line}`;
      drawn.unshift(same("differs", text, () => make("div", { class: "differs", text })));
    }
    fill(parts.panels, drawn);
    for (const box of parts.charts.querySelectorAll(".messages")) box.scrollTop = box.scrollHeight;
  }

  function drawTree({ tree, path }) {
    const children = tree.map(() => []);
    tree.forEach(({ parent }, number) => number && children[parent].push(number));
    const list = (numbers) => numbers.flatMap((number) => { // an only child is not indented
      const { line, broken, differs } = tree[number];
      const marks = (broken.length ? ` ✗ ${broken.join(", ")}` : "") + (differs ? " ≠ first difference" : "");
      const state = [tree[number], path.includes(number), number === path[path.length - 1]];
      const button = same(`step ${number}`, state, () => make("button", {
        class: state[1] ? "path" : "", "data-key": `step ${number}`,
        "aria-current": state[2] ? "step" : undefined,
        on: { click: () => send({ go: number }) }, text: line,
        kids: marks ? [make("span", { class: "bad", text: marks })] : [],
      }));
      const below = children[number];
      const item = make("li", { kids: [button] });
      if (below.length < 2) return [item, ...list(below)];
      item.append(...below.map((kid) => make("ol", { kids: list([kid]) })));
      return [item];
    });
    return make("ol", { class: "tree", "aria-label": "what was tried", kids: list([0]) });
  }

  const area = make("textarea", {
    "aria-label": "the run as a scenario", "data-key": "text", spellcheck: "false",
    on: { input: () => { typed = area.value; } },
  });
  const open = button("play this scenario", "open", () => { typed = null; send({ open: area.value }); });
  const copy = button("copy", "copy", () => {
    area.select();
    (navigator.clipboard?.writeText(area.value) || Promise.reject()).catch(() => document.execCommand("copy"));
  });
  const tried = make("div", { kids: [make("strong", { text: "What was tried" })] });
  parts.below.append(tried, make("div", { kids: [make("strong", { text: "As a scenario " }), open, " ", copy, area] }));

  function drawBelow(state) {
    area.value = typed ?? state.text;
    fill(tried, [tried.firstChild, drawTree(state)]);
  }

  function draw() {
    const state = view();
    const focused = root.contains(document.activeElement) ? document.activeElement : null;
    const [name, machine] = [focused?.dataset.key, focused?.closest("fieldset")?.dataset.machine];
    const step = state.path.length - 1;
    parts.told.textContent = state.told || (step ? `Step ${step}: ${state.tree[state.path[step]].line}` : "The start");
    parts.problem.textContent = state.problem;
    if (!state.problem) typed = null;
    drawBar(state);
    drawActions(state);
    drawPanels(state);
    drawBelow(state);
    announced.textContent = clock === null ? state.announced : "";
    if (name && (document.activeElement !== focused || focused.disabled)) { // refocus it, or its neighbour
      const all = [...root.querySelectorAll("[data-key]")];
      const same = all.find((element) => element.dataset.key === name && !element.disabled);
      const near = all.find((element) => element.closest("fieldset")?.dataset.machine === machine);
      (same || (machine && near) || root.querySelector(".actions button"))?.focus();
    }
  }

  function drawCells() {
    parts.cells.replaceChildren(...model.get("cells").map(({ version, word, colour }) => make("li", {
      style: `background: ${colour}`, kids: [make("div", { text: version }), make("div", { text: word })],
    })));
  }

  model.on("change:view", draw);
  model.on("change:cells", drawCells);
  drawPlayer();
  draw();
  drawCells();
  if (model.get("plays")) play();
  return () => {
    clearInterval(clock);
    for (const name of ["click", "keydown"]) document.removeEventListener(name, touched, true);
    model.off("change:view", draw);
    model.off("change:cells", drawCells);
  };
}

export default { render };

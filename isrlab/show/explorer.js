// The explorer's front end: buttons, pictures and a tree, made of what Python says. It decides
// nothing: each choice is sent back, and what comes then is drawn. Text is set as text, and pictures
// are images, in which no script runs.

function make(tag, { text, kids = [], on = {}, ...rest } = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(rest)) {
    if (name === "style") element.style.cssText = value; // as an attribute a page's policy forbids it
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) element.textContent = text;
  for (const [event, act] of Object.entries(on)) element.addEventListener(event, act);
  element.append(...kids);
  return element;
}

function picture(svg, alt) {
  return make("img", { alt, src: "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg) });
}

function render({ model, el }) {
  const root = make("div", { class: "isrlab-explorer", "data-lm-suppress-shortcuts": "true" });
  const said = make("div", { class: "said", role: "status", "aria-live": "polite" });
  const parts = {};
  for (const name of ["bar", "problem", "cells", "actions", "panels", "below"]) {
    parts[name] = make(name === "cells" ? "ul" : "div", { class: name });
  }
  parts.cells.setAttribute("aria-label", "how these steps end in every version");
  parts.problem.className = "bad";
  root.append(parts.bar, parts.problem, parts.actions, parts.panels, parts.cells, parts.below, said);
  el.append(root);
  let typed = null; // the schedule as the reader left it, until it is played

  const send = (choice) => model.send(choice);
  const view = () => model.get("view");
  const back = () => {
    const { tree, path } = view();
    if (path.length > 1) send({ go: tree[path[path.length - 1]].parent });
  };
  const forward = () => view().next && send({ go: view().next });

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

  function drawBar({ versions, releases, path, next, actions }) {
    const chooser = (nth, label) => make("select", {
      "aria-label": label, "data-key": `version ${nth}`,
      on: { change: () => send({ versions: [...parts.bar.querySelectorAll("select")].map((s) => s.value) }) },
      kids: [...(nth ? [""] : []), ...releases].map((name) =>
        make("option", { value: name, text: name || "alone", selected: name === (versions[nth] || "") })),
    });
    const lines = actions.flatMap((group) => group.actions).map(({ line, label }) =>
      make("option", { value: line, text: label }));
    const list = make("datalist", { id: `lines-${model.model_id || "here"}`, kids: lines });
    const input = make("input", {
      class: "line", "data-key": "line", list: list.id, size: 24, placeholder: "next step, then Enter",
      "aria-label": "the next step as a line of the scenario",
      on: { keydown: (event) => {
        if (event.key === "Enter" && input.value.trim()) send({ play: input.value });
      } },
    });
    parts.bar.replaceChildren(
      make("button", { text: "← back", disabled: path.length < 2, "data-key": "back", on: { click: back } }),
      make("button", { text: "forward →", disabled: !next, "data-key": "forward", on: { click: forward } }),
      make("label", { text: "Kafka ", kids: [chooser(0, "version")] }),
      make("label", { text: "beside ", kids: [chooser(1, "second version")] }),
      input, list);
  }

  function drawActions({ actions }) {
    parts.actions.replaceChildren(...actions.map(({ name, actions: those }) => make("fieldset", {
      "data-machine": name,
      kids: [make("legend", { text: name }), ...those.map(({ line, label, kind }) => make("button", {
        class: kind, text: label, title: line, "data-key": line, "data-line": line,
        on: { click: () => send({ play: line }) },
      }))],
    })));
  }

  function drawPanels({ panels, differs, tree, versions }) {
    const drawn = panels.map((panel) => make("section", {
      class: "panel", "aria-label": panel.version,
      kids: [
        make("strong", { text: `${panel.version}: ${panel.word}. ` }),
        make("span", { text: panel.caption }),
        ...(panel.problem ? [make("div", { class: "bad", text: `not possible here: ${panel.problem}` })] : []),
        ...panel.broken.map((text) => make("div", { class: "bad", text: `✗ ${text}` })),
        ...panel.pictures.flatMap((svg, nth) => [
          ...(panel.pictures.length > 1 ? [make("div", { text: `partition p${nth}` })] : []),
          picture(svg, panel.status)]),
        make("div", { class: "messages", tabindex: "0", "aria-label": `messages in ${panel.version}`,
          kids: panel.messages ? [picture(panel.messages, "messages of the last steps")] : [] }),
      ],
    }));
    if (versions.length > 1) {
      const text = differs === null ? "No difference so far." : `First difference: ${tree[differs].line}`;
      drawn.unshift(make("div", { class: "differs", style: "flex-basis: 100%", text }));
    }
    parts.panels.replaceChildren(...drawn);
    for (const box of parts.panels.querySelectorAll(".messages")) {
      const image = box.querySelector("img");
      if (image) image.decode().then(() => { box.scrollTop = box.scrollHeight; }, () => {});
    }
  }

  function drawTree({ tree, path }) {
    const children = tree.map(() => []);
    tree.forEach(({ parent }, number) => number && children[parent].push(number));
    const list = (numbers) => numbers.flatMap((number) => { // an only child stands below, not inside
      const { line, broken, differs } = tree[number];
      const marks = (broken.length ? ` ✗ ${broken.join(", ")}` : "") + (differs ? " ≠ first difference" : "");
      const button = make("button", {
        class: path.includes(number) ? "path" : "", "data-key": `step ${number}`,
        "aria-current": number === path[path.length - 1] ? "step" : undefined,
        on: { click: () => send({ go: number }) }, text: line,
        kids: marks ? [make("span", { class: "bad", text: marks })] : [],
      });
      const below = children[number];
      const item = make("li", { kids: [button] });
      if (below.length < 2) return [item, ...list(below)];
      item.append(...below.map((kid) => make("ol", { kids: list([kid]) })));
      return [item];
    });
    return make("ol", { class: "tree", "aria-label": "what was tried", kids: list([0]) });
  }

  function drawBelow(state) {
    const area = make("textarea", {
      "aria-label": "the run as a scenario", "data-key": "text", spellcheck: "false",
      on: { input: () => { typed = area.value; } },
    });
    area.value = typed ?? state.text;
    const open = make("button", { text: "play this schedule", "data-key": "open",
      on: { click: () => { typed = null; send({ open: area.value }); } } });
    const copy = make("button", { text: "copy", "data-key": "copy", on: { click: () => {
      area.select();
      (navigator.clipboard?.writeText(area.value) || Promise.reject()).catch(() => document.execCommand("copy"));
    } } });
    parts.below.replaceChildren(
      make("div", { kids: [make("strong", { text: "What was tried" }), drawTree(state)] }),
      make("div", { kids: [make("strong", { text: "As a scenario " }), open, " ", copy, area] }));
  }

  function draw() {
    const state = view();
    const focused = root.contains(document.activeElement) ? document.activeElement : null;
    const [name, machine] = [focused?.dataset.key, focused?.closest("fieldset")?.dataset.machine];
    parts.problem.textContent = state.problem;
    if (!state.problem) typed = null;
    drawBar(state);
    drawActions(state);
    drawPanels(state);
    drawBelow(state);
    said.textContent = state.said;
    if (name) { // where the reader was, or beside it
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
  draw();
  drawCells();
  return () => { model.off("change:view", draw); model.off("change:cells", drawCells); };
}

export default { render };

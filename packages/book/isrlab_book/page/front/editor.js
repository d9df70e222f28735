// Completes and explains the words of a scenario, below the field in which they are typed. Python
// describes them: each command's usage and effect, and the meanings of the words that may follow it.
// The explanation is of the chosen word, or else the word at the cursor, or else the command.

export function assist(root, box, words) {
  const [list, explained] = [box.querySelector("#words"), box.querySelector("#explained")];
  let [field, fitting, chosen, means] = [null, [], -1, () => ""];

  const isField = (target) => target?.matches?.("textarea, .line");

  function here() {
    const before = field.value.slice(0, field.selectionStart);
    const line = before.slice(before.lastIndexOf("\n") + 1);
    const typed = line.match(/[^\s]*$/)[0];
    return { typed, given: line.split(/\s+/).filter(Boolean).slice(0, typed ? -1 : undefined), line };
  }

  function look() {
    const { typed, given, line } = here();
    const command = words[given[0] ?? typed];
    const follow = command?.follow ?? {};
    const names = line.trimStart().startsWith("#") ? [] : Object.keys(given.length ? follow : words);
    const isGiven = (name) => given.some((word) => word.replace(/=.*/, "=") === name);
    fitting = names.filter((name) => name.startsWith(typed) && name !== typed && !isGiven(name)).slice(0, 40);
    chosen = -1;
    means = (name) => {
      if (!given.length && words[name]) return `${words[name].usage}: ${words[name].does}`;
      const option = name.replace(/=.*/, "=");
      if (given.length && follow[option]) return `${option} ${follow[option]}`;
      return command ? `${command.usage}: ${command.does}` : given.length ? `${given[0]} is not a command.` : "";
    };
    show();
  }

  function show() {
    list.replaceChildren(...fitting.map((name, nth) => {
      const item = document.createElement("li");
      item.id = `word-${nth}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(nth === chosen));
      item.textContent = name;
      item.title = means(name);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(nth); });
      return item;
    }));
    explained.textContent = means(fitting[chosen] ?? here().typed);
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-controls", "words");
    field.setAttribute("aria-autocomplete", "list");
    if (chosen >= 0) field.setAttribute("aria-activedescendant", `word-${chosen}`);
    else field.removeAttribute("aria-activedescendant");
    box.hidden = !fitting.length && !explained.textContent;
  }

  function take(nth) {
    const { typed } = here();
    const end = fitting[nth].endsWith("=") ? "" : " ";
    field.setRangeText(fitting[nth] + end, field.selectionStart - typed.length, field.selectionStart, "end");
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }

  // Before the explorer's own keys: Ctrl+Space chooses the first word, arrows move, Enter takes it.
  root.addEventListener("keydown", (event) => {
    if (!isField(event.target) || box.hidden) return;
    if (event.key === "Escape") { box.hidden = true; chosen = -1; return; }
    if (event.ctrlKey && event.key === " " && fitting.length) chosen = 0;
    else if (chosen >= 0 && /^Arrow(Down|Right)$/.test(event.key)) chosen = (chosen + 1) % fitting.length;
    else if (chosen >= 0 && /^Arrow(Up|Left)$/.test(event.key)) chosen = (chosen + fitting.length - 1) % fitting.length;
    else if (chosen >= 0 && event.key === "Enter") {
      take(chosen);
      event.preventDefault();
      event.stopPropagation();
      return;
    } else return;
    event.preventDefault();
    event.stopPropagation();
    show();
  }, true);
  for (const name of ["input", "focusin", "click", "keyup"]) {
    root.addEventListener(name, (event) => {
      if (!isField(event.target)) return;
      if (name === "keyup" && !/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) return;
      if (name === "keyup" && chosen >= 0) return;
      field = event.target;
      look();
    });
  }
  root.addEventListener("focusout", (event) => { if (isField(event.target)) box.hidden = true; });
}

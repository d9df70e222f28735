// Moves through the pictures of a player: sliders, arrow keys and, for a story, a play button.
// Without scripts the page shows one picture, and a list that opens with the others.
document.querySelectorAll("[data-player]").forEach((player) => {
  const { sliders, frames, oneByOne } = JSON.parse(player.dataset.player);
  player.removeAttribute("data-player");
  const pictures = [...player.querySelectorAll("img")].map(({ src, alt }) => ({ src, alt }));
  const [image, caption] = player.querySelectorAll("figure:first-of-type > *");
  player.querySelector("details")?.remove();
  caption.setAttribute("role", "status");
  const controls = document.createElement("div");  // many of them go below what they show
  image.parentNode[oneByOne ? "after" : "before"](controls);
  const inputs = sliders.map(({ name, values, at }) => {
    const label = document.createElement("label"), input = document.createElement("input");
    Object.assign(input, { type: "range", min: 0, max: values.length - 1, value: at });
    input.addEventListener("input", () => show(input));
    input.addEventListener("keydown", (event) => event.stopPropagation());
    label.append(name + " ", input);
    label.style.cssText = input.style.cssText = "margin-right: 1em; vertical-align: middle";
    label.style.display = "inline-block";
    input.style.width = oneByOne ? "9em" : "min(20em, 60vw)";
    controls.append(label);
    return input;
  });
  function show(moved = inputs[0]) {
    const last = inputs.indexOf(moved);
    if (oneByOne) inputs.forEach((input, i) => i === last || (input.value = sliders[i].at));
    const place = inputs.reduce((n, input, i) => oneByOne
      ? n + (i < last ? sliders[i].values.length : i === last ? +input.value : 0)
      : n * sliders[i].values.length + +input.value, 0);
    inputs.forEach((input, i) => input.setAttribute("aria-valuetext", sliders[i].values[input.value]));
    const [picture, text] = frames[place];
    Object.assign(image, pictures[picture]);
    caption.textContent = text;
  }
  if (inputs.length === 1) {
    const button = document.createElement("button"), [input] = inputs;
    let timer;
    const turn = (on) => {
      clearInterval(timer);
      timer = on && setInterval(step, 1000);
      button.textContent = on ? "⏸ pause" : "▶ play";
    };
    const step = () => (input.value === input.max ? turn(false) : (input.stepUp(), show()));
    button.onclick = () => {
      if (!timer && input.value === input.max) input.value = 0;
      show();
      turn(!timer);
    };
    turn(false);
    controls.append(button);
  }
  show();
});

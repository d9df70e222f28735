// Folds the answer to each prediction until the reader has chosen, and counts the right choices.
// A cell tagged answer:N shows the answer; its choices are the list before it, and the text after it
// begins with the explanation, in a fold of its own.
const answers = document.querySelectorAll('[class*="celltag_answer:"]');
let right = 0, chosen = 0;
const made = (name, attributes, text = "") => {
  const element = Object.assign(document.createElement(name), { textContent: text });
  Object.entries(attributes).forEach((each) => element.setAttribute(...each));
  return element;
};
const tally = made("p", { class: "tally", role: "status" });
answers.forEach((cell) => {
  const answer = +/celltag_answer:(\d)/.exec(cell.className)[1];
  const list = [...cell.previousElementSibling.querySelectorAll("ol")].pop();
  const output = cell.querySelector(".output_wrapper");
  const fold = made("details", {});
  const folds = [fold, cell.nextElementSibling.querySelector("details")];
  output.before(fold);
  fold.append(made("summary", {}, "What happens"), output);
  list.setAttribute("aria-label", "Choices");
  const verdict = made("p", { role: "status" });
  list.after(verdict);
  const buttons = [...list.children].map((item, place) => {
    const button = made("button", { type: "button" });
    button.append(...item.childNodes);
    item.append(button);
    button.onclick = () => {
      const isRight = place + 1 === answer;
      right += isRight;
      chosen += 1;
      buttons.forEach((each) => (each.disabled = each !== button));
      button.setAttribute("aria-pressed", "true");
      button.onclick = null;
      button.classList.add(isRight ? "ok" : "failed");
      verdict.textContent = isRight ? "✓ Right." : `✗ No: it is ${answer}.`;
      folds.forEach((each) => each && (each.open = true));
      tally.textContent = `You were right in ${right} of ${chosen} predictions`
        + (chosen < answers.length ? `; ${answers.length - chosen} are left.` : ".");
    };
    return button;
  });
});
[...answers].pop()?.nextElementSibling.querySelector("details").after(tally);

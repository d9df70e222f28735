for (const box of document.querySelectorAll(".questions")) {
  const [field, count] = box.querySelectorAll("input, output");
  const pairs = [...box.querySelectorAll(".all dt")].map(dt => [dt, dt.nextElementSibling]);
  field.closest("p").hidden = false;
  field.oninput = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(word => word);
    const fit = pairs.filter(([dt, dd]) => {
      const text = (dt.textContent + " " + dd.textContent).toLowerCase();
      const fits = words.every(word => text.includes(word));
      dt.hidden = dd.hidden = !fits;
      return fits;
    });
    for (const list of box.querySelectorAll(".all")) {
      list.style.display = list.querySelector("dt:not([hidden])") ? "" : "none";
    }
    box.querySelector("section").hidden = words.length > 0;
    count.value = words.length ? `${fit.length} of ${pairs.length} questions` : "";
  };
}

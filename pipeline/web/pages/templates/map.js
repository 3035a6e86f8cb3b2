"use strict";
// The map: a click, a neighbour or the arrow keys select an image, whose nearest ones are listed.
const data = JSON.parse(document.getElementById("map-data").textContent);
const map = document.getElementById("map");
const points = [...map.querySelectorAll("circle")];
const places = points.map((p) => [p.cx.baseVal.value, p.cy.baseVal.value]);
const lines = document.getElementById("map-lines");
const panel = document.getElementById("map-shown");
let own;

function made(name, text, ...children) {
  const element = document.createElement(name);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

function tile(k) {
  const picture = document.createElement(data.sheet ? "span" : "img");
  picture.className = "tile";
  const description = data.texts[k] || data.ids[k];
  if (!data.sheet) {
    picture.src = "/image?id=" + encodeURIComponent(data.ids[k]);
    picture.alt = description;
    return picture;
  }
  const [file, columns, rows] = data.sheet;
  const share = (place, number) => (number > 1 ? (100 * place) / (number - 1) : 0);
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", description);
  picture.style.backgroundImage = `url("${file}")`;
  picture.style.backgroundSize = `${100 * columns}% ${100 * rows}%`;
  picture.style.backgroundPosition =
    `${share(k % columns, columns)}% ${share(Math.floor(k / columns), rows)}%`;
  return picture;
}

function neighbour(k, rank, score) {
  const button = made("button", "", tile(k), made("span", `${rank} · ${score.toFixed(4)}`));
  button.type = "button";
  button.title = data.texts[k] || data.ids[k];
  button.addEventListener("click", () => {
    select(k);
    (panel.querySelector("button") || map).focus({ preventScroll: true });
  });
  const item = made("li", "", button);
  item.className = "hit";
  return item;
}

function select(k) {
  own = k;
  points.forEach((p) => p.classList.remove("own", "near"));
  points[k].classList.add("own");
  lines.replaceChildren(
    ...data.near[k].map((other) => {
      points[other].classList.add("near");
      const line = document.createElementNS(map.namespaceURI, "line");
      [["x1", places[k][0]], ["y1", places[k][1]], ["x2", places[other][0]], ["y2", places[other][1]]]
        .forEach(([name, value]) => line.setAttribute(name, value));
      return line;
    }),
  );
  const caption = made("p", data.texts[k]);
  caption.dir = "auto";
  // As in the filter `id_text`: a long id breaks after / _ or -.
  const id = made("p");
  id.append(...data.ids[k].split(/(?<=[/_-])/).flatMap((part) => [part, made("wbr")]));
  id.className = "soft";
  const about = made("div", "", caption, id);
  if (!data.sheet) {
    const search = made("a", "Search with this picture");
    search.href = "/?image=" + encodeURIComponent(data.ids[k]);
    about.append(search);
  }
  const selected = made("div", "", tile(k), about);
  selected.className = "map-own";
  const found = made("ol", "", ...data.near[k].map((n, at) => neighbour(n, at + 1, data.scores[k][at])));
  found.className = "hits pictures";
  panel.replaceChildren(selected, found);
}

// The nearest point to a place, of those that `cost` does not exclude.
function nearest(cost) {
  let best = -1, least = Infinity;
  places.forEach((place, k) => {
    const c = points[k].classList.contains("away") ? Infinity : cost(place, k);
    if (c < least) [best, least] = [k, c];
  });
  return best;
}

map.addEventListener("click", (event) => {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
  const k = nearest(([x, y]) => Math.hypot(x - at.x, y - at.y));
  if (k >= 0) select(k);
});

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
map.addEventListener("keydown", (event) => {
  const step = STEPS[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const [ox, oy] = places[own];
  const k = nearest(([x, y], other) => {
    const along = (x - ox) * step[0] + (y - oy) * step[1];
    const aside = Math.abs((x - ox) * step[1]) + Math.abs((y - oy) * step[0]);
    return other === own || along <= 0 ? Infinity : along + 2 * aside;
  });
  if (k >= 0) select(k);
});

for (const button of document.querySelectorAll(".map-groups button")) {
  button.addEventListener("click", () => {
    const only = button.getAttribute("aria-pressed") !== "true";
    document.querySelectorAll(".map-groups button").forEach((b) => b.setAttribute("aria-pressed", "false"));
    button.setAttribute("aria-pressed", String(only));
    const kept = `g${button.dataset.group}`;
    points.forEach((p) => p.classList.toggle("away", only && !p.classList.contains(kept)));
  });
}

// The image in the middle is selected, so that the space beside the map shows what a click does.
select(nearest(([x, y]) => Math.hypot(x - 500, y - map.viewBox.baseVal.height / 2)));
map.setAttribute("role", "application");
document.getElementById("map-help").textContent =
  "Click a point, or move with the arrow keys: its image and the most similar ones appear next to the map. A group below shows its images alone.";

"use strict";
// Sends the form of an upload, selected, dropped or pasted; the answer is escaped HTML, which is put
// below the forms.
const form = document.getElementById("upload");
const results = document.getElementById("results");

function fail(text) {
  const paragraph = document.createElement("p");
  paragraph.className = "fault";
  paragraph.setAttribute("role", "alert");
  paragraph.textContent = text;
  results.replaceChildren(paragraph);
}

function preview(file) {
  const image = document.createElement("img");
  image.className = "preview";
  image.alt = `Your image ${file.name}`;
  image.onload = image.onerror = () => URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(file);
  results.prepend(image);
}

async function send(page) {
  const file = document.getElementById("file").files[0];
  if (file.size > Number(form.dataset.most)) {
    fail(`${file.name} has ${file.size} bytes; the limit is ${form.dataset.most}.`);
    return;
  }
  const button = form.querySelector("button");
  button.disabled = true;
  const body = new FormData(form);
  body.append("page", page);
  try {
    const answer = await fetch("/upload", { method: "POST", body });
    results.innerHTML = await answer.text();
    if (answer.ok) preview(file);
  } catch (error) {
    fail("The server did not answer; it may have been stopped.");
  } finally {
    button.disabled = false;
  }
}

// Selects the first image of a drop or a paste, as if it were chosen in the file field, and sends it.
function receive(event, data) {
  const file = [...data.files].find((each) => each.type.startsWith("image/"));
  if (!file) return;
  event.preventDefault();
  const chosen = new DataTransfer();
  chosen.items.add(file);
  document.getElementById("file").files = chosen.files;
  send(1);
}

if (form) {
  form.hidden = false;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(1);
  });
  results.addEventListener("click", (event) => {
    const page = event.target.dataset.page;
    if (page) send(page);
  });
  document.addEventListener("paste", (event) => receive(event, event.clipboardData));
  document.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
    receive(event, event.dataTransfer);
  });
}

"use strict";
// Sends the form of an upload; the answer is escaped HTML, which is put below the forms.
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
  image.alt = `Your picture ${file.name}`;
  image.onload = image.onerror = () => URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(file);
  results.prepend(image);
}

async function send(event) {
  event.preventDefault();
  const file = document.getElementById("file").files[0];
  if (file.size > Number(form.dataset.most)) {
    fail(`${file.name} has ${file.size} bytes; the limit is ${form.dataset.most}.`);
    return;
  }
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const answer = await fetch("/upload", { method: "POST", body: new FormData(form) });
    results.innerHTML = await answer.text();
    if (answer.ok) preview(file);
  } catch (error) {
    fail("The server did not answer; it may have been ended.");
  } finally {
    button.disabled = false;
  }
}

if (form) {
  form.hidden = false;
  form.addEventListener("submit", send);
}

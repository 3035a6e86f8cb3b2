"use strict";
// Sends an upload as it is; the server answers with escaped HTML, which is put below the forms.
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
    const fields = new URLSearchParams(new FormData(form));
    const answer = await fetch(`/upload?${fields}`, { method: "POST", body: file });
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

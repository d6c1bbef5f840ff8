"use strict";
(() => {
  const player = document.getElementById("player");
  const scenes = [...document.querySelectorAll(".scene")];
  const pictures = [...document.querySelectorAll("[data-picture]")];
  if (player && scenes.length) {
    const back = document.getElementById("back");
    const next = document.getElementById("next");
    const place = document.getElementById("place");
    const quiz = document.getElementById("quiz");
    const answered = new Set();
    let at = 0;

    const show = (number) => {
      at = Math.min(Math.max(number, 0), scenes.length - 1);
      scenes.forEach((scene, index) => { scene.hidden = index !== at; });
      const scene = scenes[at];
      pictures.forEach((one) => { one.hidden = one.dataset.picture !== scene.dataset.step; });
      document.querySelectorAll("[data-picture] [data-at]").forEach((part) => {
        part.classList.toggle("on", part.dataset.at.split(" ").includes(scene.dataset.at));
      });
      center(document.querySelector("[data-picture]:not([hidden]) g.on"));
      back.disabled = at === 0;
      next.disabled = at === scenes.length - 1;
      place.textContent = `Scene ${at + 1} of ${scenes.length}: ${scene.dataset.title}`;
      ask(scene);
    };

    // On a narrow screen the picture is wider than its frame.
    const center = (part) => {
      if (!part) return;
      const frame = document.getElementById("pictures");
      const [box, own] = [frame, part].map((one) => one.getBoundingClientRect());
      frame.scrollLeft += own.left + own.width / 2 - box.left - box.width / 2;
    };

    const ask = (scene) => {
      const question = scene.querySelector(".question");
      const asks = question && quiz.checked && !answered.has(at);
      if (question) question.hidden = !(quiz.checked);
      scene.querySelector(".body").hidden = Boolean(asks);
      document.body.classList.toggle("quiz", quiz.checked);
      // Figures of what is still to come would tell the answers: they are seen scene by scene.
      const known = scenes.slice(0, asks ? at : at + 1);
      const places = known.filter((one) => one.dataset.step === scene.dataset.step);
      const seen = new Set(places.map((one) => one.dataset.at));
      document.querySelectorAll("[data-figure]").forEach((part) => {
        const isInput = part.dataset.figure === "input";
        part.classList.toggle("unseen", !isInput && !seen.has(part.dataset.figure));
      });
    };

    const bare = (text) => text.trim().replace(/^["']+|["']+$/g, "").replaceAll(",", "").toLowerCase();

    document.querySelectorAll(".question form").forEach((form) => {
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const picked = form.querySelector("input:checked, input[type=text]");
        const right = picked && bare(picked.value) === bare(form.dataset.answer);
        const verdict = form.parentElement.querySelector(".verdict");
        verdict.textContent = `${right ? "Right." : `It is ${form.dataset.answer}.`} ${form.dataset.because}`;
        answered.add(at);
        ask(scenes[at]);
      });
    });

    back.addEventListener("click", () => show(at - 1));
    next.addEventListener("click", () => show(at + 1));
    quiz.addEventListener("change", () => show(at));
    document.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.target.closest("input[type=text], select, [role=region]")) return;
      const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: scenes.length - 1 };
      const inPlayer = player.contains(event.target) || event.target === document.body;
      if (event.key in moves && inPlayer && event.target.type !== "radio") {
        event.preventDefault();
        show(moves[event.key]);
      }
    });
    document.querySelectorAll(".needs-script").forEach((part) => { part.hidden = false; });
    document.getElementById("pictures").classList.add("playing");
    show(0);
  }

  // A row and the lines that made it.
  const point = (event, isOn) => {
    const row = event.target.closest && event.target.closest("tr[data-lines]");
    const beside = row && row.closest(".beside");
    if (!beside) return;
    row.classList.toggle("now", isOn);
    row.dataset.lines.split(" ").forEach((number) => {
      beside.querySelectorAll(`.line[data-n="${number}"]`).forEach((line) => line.classList.toggle("now", isOn));
    });
  };
  document.addEventListener("mouseover", (event) => point(event, true));
  document.addEventListener("mouseout", (event) => point(event, false));

  const select = document.getElementById("key");
  if (select) {
    const parts = [...document.querySelectorAll("[data-key]")];
    const follow = () => parts.forEach((part) => { part.hidden = part.dataset.key !== select.value; });
    select.addEventListener("change", follow);
    follow();
  }
})();

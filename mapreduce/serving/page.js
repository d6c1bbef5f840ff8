"use strict";
(() => {
  const get = (id) => document.getElementById(id);
  let [token, model, fields] = ["", null, []];

  // What comes in stays text: no name of a model or a column is read as HTML.
  const make = (tag, attributes, ...contents) => {
    const element = document.createElement(tag);
    Object.entries(attributes).forEach(([name, value]) => element.setAttribute(name, value));
    element.append(...contents);
    return element;
  };

  const ask = async (path, body) => {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const request = { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) };
    const answer = await fetch(`v2/${path}`, request).catch(() => { throw new Error("The service does not answer."); });
    const content = await answer.json().catch(() => ({ error: `The answer has status ${answer.status}.` }));
    const isLocked = answer.status === 401;
    get("door").hidden = !isLocked;
    get("row").hidden = isLocked;
    if (isLocked) get("token").focus();
    if (isLocked) throw new Error(token && "This is not the token of this service.");
    if (!answer.ok) throw new Error(content.error);
    return content;
  };

  // Show the error of some work: beside the field that the error names, or above all.
  const attempt = (work) => async (event) => {
    event?.preventDefault();
    fields.forEach((field) => field.fail(""));
    get("trouble").textContent = "";
    await work().catch(({ message }) => {
      get("result").replaceChildren();
      const named = fields.filter((field) => message.includes(field.place));
      const [field] = named.sort((one, other) => other.place.length - one.place.length);
      if (field) field.fail(message.split(field.place).pop());
      else get("trouble").textContent = message;
    });
    get("trouble").hidden = !get("trouble").textContent;
  };

  // The number that a text says; else the text, so that the service says what is wrong with it.
  const number = (text) => (Number.isFinite(Number(text)) ? Number(text) : text);

  const typed = (tag, parse, attributes) => {
    const control = make(tag, { placeholder: "missing", autocomplete: "off", ...attributes });
    return { control, read: () => (control.value.trim() ? parse(control.value) : null) };
  };

  const choice = (options) => {
    const all = [["missing", null], ...options];
    const control = make("select", {}, ...all.map(([text]) => make("option", {}, text)));
    return { control, read: () => all[control.selectedIndex][1] };
  };

  const column = (kind, levels) => {
    const [what, format, zone] = kind.split(/[:@]/);
    if (what === "number") return typed("input", number, { inputmode: "decimal" });
    if (what === "boolean") return choice([["yes", true], ["no", false]]);
    if (what === "category") return choice(levels.map((level) => [level, level]));
    if (what === "date") return typed("input", String, { placeholder: format + (zone ? " hh:mmZ" : "") });
    return typed("textarea", String, { rows: 1 });
  };

  // An image is drawn on the pixels that the model sees.
  const drawing = (height, width, full) => {
    const control = make("canvas", { height, width, tabindex: 0, role: "application" });
    const point = make("div", { class: "point" });
    const pen = control.getContext("2d", { willReadFrequently: true });
    const clear = () => pen.fillRect(0, 0, width, height);
    clear();
    Object.assign(pen, { lineCap: "round", strokeStyle: "#fff", lineWidth: 0.8 + width / 14 });
    // A line without a length would be none, not a dot.
    const draw = (from, [x, y]) => pen.stroke(new Path2D(`M${from}L${x + 0.01},${y}`));
    let last;
    const follow = (event) => {
      if (!event.buttons) return;
      const box = control.getBoundingClientRect();
      const at = [(event.clientX - box.left) * (width / box.width), (event.clientY - box.top) * (height / box.height)];
      draw(event.type === "pointermove" && last ? last : at, at);
      last = at;
      control.setPointerCapture(event.pointerId);
    };
    ["pointerdown", "pointermove"].forEach((kind) => control.addEventListener(kind, follow));
    // By keys, a point goes from pixel to pixel.
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], " ": [0, 0] };
    let pixel = [width >> 1, height >> 1];
    const move = (by, draws) => {
      const from = pixel;
      pixel = [width, height].map((end, side) => Math.min(end - 1, Math.max(0, from[side] + by[side])));
      if (draws) draw(...[from, pixel].map((corner) => corner.map((at) => at + 0.5)));
      const box = { left: pixel[0] / width, top: pixel[1] / height, width: 1 / width, height: 1 / height };
      Object.entries(box).forEach(([side, share]) => { point.style[side] = `${100 * share}%`; });
    };
    move([0, 0]);
    control.addEventListener("keydown", (event) => {
      if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      move(moves[event.key], event.shiftKey || event.key === " ");
    });
    const read = () => {
      const levels = pen.getImageData(0, 0, width, height).data.filter((_, at) => at % 4 === 0);
      return Array.from(levels, (level) => Math.round((level / 255) * full));
    };
    const hint = "Draw with a mouse, a pen or a finger. Or move the point with the arrow keys: with Shift, they draw. Space makes a dot.";
    return { control, read, clear, hint, whole: make("div", { class: "board" }, control, point) };
  };

  const pasted = (hint) => {
    const control = make("textarea", { spellcheck: "false" });
    const file = make("input", { type: "file", "aria-label": "File of the numbers" });
    file.addEventListener("change", async () => { control.value = await file.files[0].text(); });
    const read = () => control.value.split(/[\s,;[\]]+/).filter(Boolean).map(number);
    return { control, read, hint, whole: make("div", {}, control, file) };
  };

  const array = (shape, datatype, scale = 1) => {
    // What has been stored as bytes is scaled to at most 1.
    const full = Math.min(255, Math.round(1 / scale));
    const sides = shape.length === 3 && shape[0] === 1 ? shape.slice(1) : shape;
    const count = shape.reduce((product, length) => product * length, 1);
    const range = full > 1 ? ` from 0 to ${full}` : "";
    const hint = `Paste ${count} numbers${range}, in the shape ${shape.join(" × ")}, or choose a file of them.`;
    const field = full > 1 && sides.length === 2 ? drawing(...sides, full) : pasted(hint);
    return { ...field, tensor: { name: "input", shape: [1, ...shape], datatype: full > 1 ? "UINT8" : datatype } };
  };

  const laidOut = ({ name, shape, datatype, parameters = {} }, at) => {
    const { kind, levels, uint8_scale: scale } = parameters;
    const field = kind ? column(kind, levels) : array(shape.slice(1), datatype, scale);
    const fault = make("p", { class: "fault", id: `fault-${at}` });
    const label = make("label", { for: `field-${at}`, id: `label-${at}` }, name);
    const about = { id: `field-${at}`, "aria-labelledby": label.id, "aria-describedby": `hint ${fault.id}` };
    Object.entries(about).forEach(([key, value]) => field.control.setAttribute(key, value));
    const fail = (text) => {
      fault.textContent = text;
      field.control.setAttribute("aria-invalid", text !== "");
      if (text) field.control.focus();
    };
    const box = make("div", field.whole ? { class: "whole" } : {}, label, field.whole ?? field.control, fault);
    return { ...field, name, box, fail, place: kind ? `column ${name.slice(0, 80)}: ` : "input, data: " };
  };

  const tell = (version, sha256) => get("about").replaceChildren(`version ${version} · sha256 `, make("code", {}, sha256));

  const load = async () => {
    const answer = await ask(`models/${encodeURIComponent(get("models").value)}`);
    if (answer.name !== get("models").value) return;
    model = answer;
    fields = model.inputs.map(laidOut);
    get("name").textContent = model.name;
    tell(model.versions[0], model.parameters.model_sha256);
    get("hint").textContent = fields[0].hint ?? "A field without a value is missing.";
    get("fields").replaceChildren(...fields.map((field) => field.box));
    get("result").replaceChildren();
  };

  const predict = async () => {
    const [asked, [{ tensor, read }]] = [model, fields];
    const row = () => Object.fromEntries(fields.map((field) => [field.name, field.read()]));
    const body = tensor ? { inputs: [{ ...tensor, data: read() }] } : { rows: [row()] };
    const answer = await ask(`models/${encodeURIComponent(model.name)}/infer`, body);
    if (asked !== model) return;
    tell(answer.model_version, answer.parameters.model_sha256);
    const [[prediction], shares = []] = answer.outputs.map((output) => output.data);
    const named = shares.map((share, at) => [model.parameters.classes[at], share]);
    const bars = named.sort((one, other) => other[1] - one[1]).slice(0, 12).map(([name, share]) => {
      const bar = make("i", {});
      bar.style.width = `${100 * share}%`;
      return make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "bar" }, bar), make("td", { class: "n" }, share));
    });
    const table = make("table", {}, make("caption", {}, "Probabilities"), make("tbody", {}, ...bars));
    const notes = (answer.parameters.warnings ?? []).map((note) => make("p", {}, note));
    const parts = [make("p", { class: "prediction" }, prediction)];
    if (bars.length) parts.push(table);
    if (notes.length) parts.push(make("div", { class: "remark warning" }, make("strong", {}, "Warnings"), ...notes));
    get("result").replaceChildren(...parts);
    get("answer").scrollIntoView({ block: "nearest" });
  };

  const start = async () => {
    token = get("token").value;
    const models = await ask("repository/index", {});
    get("models").replaceChildren(...models.map(({ name }) => make("option", { value: name }, name)));
    get("choice").hidden = models.length < 2;
    await load();
  };

  get("door").addEventListener("submit", attempt(start));
  get("row").addEventListener("submit", attempt(predict));
  get("row").addEventListener("reset", () => {
    fields.forEach((field) => { field.clear?.(); field.fail(""); });
    get("result").replaceChildren();
  });
  get("models").addEventListener("change", attempt(load));
  attempt(start)();
})();

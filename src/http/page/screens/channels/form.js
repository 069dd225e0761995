// The two steps of a new channel, its service and its settings, and the form that changes one.
import { ApiError, anchor, busily, card, duration, fieldError, get, go, html, link, loadUser, note,
  patch, post, sendsMail, sentence, state, update, yourZone } from "../../kit.js";
import { check, field, focusProblem, usedZone, zoneList } from "../../parts/form.js";
import { tagsField } from "../../parts/tag_field.js";
import { ALERTS, ALL_ALERTS, EVENTS, REMINDERS, REPEATS, SERVICES, SETTINGS, createBody, formOf,
  patchBody, problemsOf, withEvent } from "./services.js";

export const PATH = "v1/channels";
export const pathOf = (id) => `${PATH}/${encodeURIComponent(id)}`;

/** Data of the form of an address: an id, "new/TYPE", or "new" and no form yet. */
export async function loadForm(id) {
  const type = /^new\/(.+)/.exec(id)?.[1];
  if (id === "new" || (type && !Object.hasOwn(SERVICES, type))) return {};
  const channel = type ? { type, to: (state.user ?? (await loadUser())).email }
    : await get(pathOf(id));
  const form = formOf(channel.type, channel, yourZone());
  return { channel, form, was: structuredClone(form), isEdit: !type, problems: {}, rest: [] };
}

export function headOf({ channel, isEdit }, id) {
  if (!channel) {
    return !id.startsWith("new") ? { title: "Edit a channel" }
      : { title: "New channel", note: "Choose where its messages go." };
  }
  return { title: isEdit ? `Edit ${channel.name}` : `New channel: ${SERVICES[channel.type].name}` };
}

export const services = () => html`<ul class="grid">${Object.entries(SERVICES).map(
  ([type, { name, line }]) => html`<li><a class="card tile" href=${link("notifications", "new", type)}>
    <h2>${name}</h2><span>${line}</span></a></li>`)}</ul>`;

function change(data, name, value) {
  data.form[name] = value;
  delete data.problems[name];
  update();
}

const bound = (data, name, label, more) => field({
  name, label, value: data.form[name], problem: data.problems[name],
  oninput: (value) => change(data, name, value), ...more,
});

export function formView(data) {
  const { channel: { type }, isEdit, rest, busy } = data;
  const submit = (event) => (event.preventDefault(), save(data));
  // A phone would write the first letter of a token large.
  return html`<form class="stack" novalidate autocapitalize="off" spellcheck="false"
    @submit=${submit} aria-busy=${busy ? "true" : "false"}>
    ${rest.length ? note(rest.join(" "), "bad", "", "refused") : ""}<div class="grid">${
    card("", SERVICES[type].name, isEdit ? "" : anchor("#/notifications/new", "Change service"),
      settings(data))}<div class="stack">${card("", "Events", "", events(data))}${
    card("", "Tags and quiet hours", "", limits(data))}</div></div>
    <div class="actions"><button class="primary" id="save">${
      isEdit ? "Save" : "Add"}</button>${anchor("#/notifications", "Cancel", "button")}</div></form>`;
}

function settings(data) {
  const { channel: { type }, isEdit, was } = data;
  const { name, how, guide } = SERVICES[type];
  const more = !guide ? "" : guide.startsWith("#")
    ? anchor(guide, "See your alert secret", "button")
    : html`<a class="button" href=${guide} target="_blank" rel="noreferrer">${
      name} docs (new tab)</a>`;
  const kept = (name) =>
    was[name].includes("…") && { help: "Stored. Leave it unchanged to keep it." };
  return html`<div class="pad stack"><p class="wrap">${how}</p>${
    type === "email" && !sendsMail() ? note("This server cannot send email: messages go to its log, so "
      + "nobody gets them.", "warn") : ""}${more}${SETTINGS[type].map(
    ([name, label, more]) => bound(data, name, label, { ...more, ...kept(name) }))}${
    isEdit ? bound(data, "name", "Name") : bound(data, "name", "Name (optional)",
      { help: "Leave empty to name it after the service and topic." })}</div>`;
}

function events(data) {
  const { form: { events }, problems } = data;
  const box = ([event, label]) => check({
    name: event, label, checked: events.includes(event),
    onchange: (on) => change(data, "events", withEvent(data.form.events, event, on)),
  });
  return html`<div class="pad" role="group" aria-label="Events">${problems.events
    ? html`<p class="bad small" role="alert">${problems.events}</p>` : ""}${
    Object.entries(EVENTS).map(([event, [label]]) => box([event, label]))}${
    events.includes(ALL_ALERTS) ? "" : html`<details
      ?open=${events.some((event) => event.startsWith("alert."))}><summary>Individual alerts</summary>
      <div>${ALERTS.map(box)}</div></details>`}
    ${bound(data, "repeat", "If a cue fails again and again", { choices: REPEATS })}
    ${bound(data, "remind_after_seconds", "Reminder while it fails",
      { choices: withOther(REMINDERS, data.was.remind_after_seconds) })}</div>`;
}

const withOther = (choices, seconds) => choices.some(([value]) => value === seconds) ? choices
  : [...choices, [seconds, `Every ${duration(seconds * 1000)}`]];

const limits = (data) => html`<div class="pad stack">${
  tagsField(data, (tags) => change(data, "tags", tags),
    `Sends only for cues with one of these tags. Leave empty for all cues, and for alerts
      about your account.`)}${
  check({
    name: "quiet", label: "Quiet hours", checked: data.form.isQuiet,
    onchange: (on) => change(data, "isQuiet", on),
    help: "Sends nothing in these hours, and one message at their end.",
  })}${!data.form.isQuiet ? "" : [
    html`<div class="row">${bound(data, "quietFrom", "From", { type: "time" })}${
      bound(data, "quietTo", "To", { type: "time" })}</div>`,
    bound(data, "timezone", "Time zone", { list: "zones" }), zoneList(),
  ]}</div>`;

const showProblems = () => (focusProblem(), setTimeout(() => document.querySelector(
  "#screen :is([aria-invalid=true], [role=alert])")?.scrollIntoView({ block: "center" }), 60));

const save = (data) => busily(data, async () => {
  Object.assign(data, { problems: {}, rest: [] });
  const { id } = await send(data);
  data.isSaved = true;
  if (data.form.isQuiet) usedZone(data.form.timezone);
  go(link("notifications", { saved: id }));
}, (error) => {
  // The sign-in covers a 401; what was written stays.
  if (error.status === 401) return;
  Object.assign(data, error instanceof ApiError ? problemsOf(error, data.channel.type)
    : { rest: [sentence(error)] });
  showProblems();
});

async function send({ channel, isEdit, form, was }) {
  if (!form.events.length) {
    throw fieldError("events", "Choose at least one event.");
  }
  if (!isEdit) return post(PATH, createBody(channel.type, form));
  const body = patchBody(channel.type, form, was);
  return Object.keys(body).length ? patch(pathOf(channel.id), body) : channel;
}

export const isUnsaved = ({ form, was, isSaved }) =>
  form && !isSaved && JSON.stringify(form) !== JSON.stringify(was);

// The services of channels with their settings, the form of a channel, and words for it. Pure.
import { capital } from "../../app/words.js";
import { TYPES } from "../alerts/types.js";

const PRIORITIES = [["", "4 for failures, else 3"], ["1", "1, lowest"], ["2", "2"], ["3", "3"],
  ["4", "4"], ["5", "5, highest"]];

// Type -> its name and line in the list, where one finds its settings, and a page about that. An
// address of another site is an example in an empty field, or a link that opens when it is clicked:
// the page loads nothing from there.
export const SERVICES = {
  __proto__: null,
  email: {
    name: "Email", line: "Mail to the address of your account",
    how: "Mails go to the address of your account, once you have confirmed it.",
  },
  webhook: {
    name: "Webhook", line: "Signed JSON for a program of yours",
    how: "Each message is a POST, signed with your alert secret.",
    guide: "#/account/keys",
  },
  ntfy: {
    name: "ntfy", line: "Push messages to phones and desktops",
    how: `Choose a topic that nobody guesses, and subscribe to it in the app. Anyone who knows its
      name can read it, unless your server asks for a token.`,
    guide: "https://docs.ntfy.sh/",
  },
  slack: {
    name: "Slack", line: "A channel of your workspace",
    how: "Make an app for your workspace, switch on Incoming Webhooks, and add one to a channel.",
    guide: "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/",
  },
  discord: {
    name: "Discord", line: "A channel of your server",
    how: "In the settings of the server: Integrations, Webhooks, New Webhook, Copy Webhook URL.",
    guide: "https://support.discord.com/hc/en-us/articles/228383668-Intro-to-Webhooks",
  },
  mattermost: {
    name: "Mattermost", line: "A channel of your team",
    how: "In the product menu: Integrations, Incoming Webhooks, Add Incoming Webhook.",
    guide: "https://developers.mattermost.com/integrate/webhooks/incoming/",
  },
  teams: {
    name: "Microsoft Teams", line: "A channel or a chat",
    how: `In the menu of a channel: Workflows, then the template that sends webhook alerts to a
      channel. It ends with a URL.`,
    guide: "https://support.microsoft.com/office/8ae491c7-0394-4861-ba59-055e33f75498",
  },
  telegram: {
    name: "Telegram", line: "A chat with a bot of yours",
    how: `Write /newbot to @BotFather, who returns a token. Send the new bot a message, or add it to
      a group. Then open api.telegram.org/botTOKEN/getUpdates: it shows the id of the chat.`,
    guide: "https://core.telegram.org/bots/tutorial",
  },
  gotify: {
    name: "Gotify", line: "Push messages from your own server",
    how: "On the page of your server: Apps, Create Application. The list of apps shows the token.",
    guide: "https://gotify.net/docs/pushmsg",
  },
  pushover: {
    name: "Pushover", line: "Push messages to phones and desktops",
    how: "Your Pushover dashboard shows your user key. Create an application there for its token.",
    guide: "https://pushover.net/api#registration",
  },
};

export const ALL_ALERTS = "alert.*";
// Event -> its label in the form and in a list
export const EVENTS = {
  "execution.failed": ["A run fails", "failures"],
  "cue.recovered": ["A cue works again", "recoveries"],
  "cue.paused": ["A cue is paused", "pauses"],
  [ALL_ALERTS]: ["Any alert", "all alerts"],
};
export const ALERTS = Object.entries(TYPES).map(([type, text]) => ["alert." + type, text]);

/** A list of events with one more or one less; all alerts contain the single ones. */
export function withEvent(events, event, on) {
  const isKept = (other) => other !== event
    && !(on && event === ALL_ALERTS && other.startsWith("alert."));
  return [...events.filter(isKept), ...(on ? [event] : [])];
}

/** "Failures, recoveries, alerts (Failing, Worker lost)" */
export function eventsText(events) {
  const known = Object.entries(EVENTS).filter(([event]) => events.includes(event));
  const alerts = ALERTS.filter(([event]) => events.includes(event)).map(([, text]) => text);
  return capital([...known.map(([, [, text]]) => text),
    ...(alerts.length ? [`alerts (${alerts.join(", ")})`] : [])].join(", "));
}

/** "Quiet from 22:00 to 07:00, Europe/Berlin" */
export const quietText = (quiet) =>
  quiet ? `Quiet from ${quiet.from} to ${quiet.to}, ${quiet.timezone}` : "";

export const REPEATS = [["first", "The first, then reminders"], ["every", "Every failed run"]];
export const REMINDERS = [["0", "Never"], ["3600", "Every hour"], ["21600", "Every 6 hours"],
  ["86400", "Every day"], ["604800", "Every week"]];

/** Where the messages go, as far as it is no secret. */
export const targetOf = ({ to, url, chat_id: chat, user }) => to ?? url ?? chat ?? user;

const settingsOf = (type) => SETTINGS[type].map(([name]) => name);

/** The form of a channel of the API, or of a new one, which may have a `to`. */
export const formOf = (type, channel, zone) => ({
  name: channel.name ?? "",
  ...Object.fromEntries(settingsOf(type).map((name) => [name, String(channel[name] ?? "")])),
  events: channel.events ?? ["execution.failed", "cue.recovered", ALL_ALERTS],
  tags: channel.tags ?? [], isQuiet: !!channel.quiet, quietFrom: channel.quiet?.from ?? "22:00",
  quietTo: channel.quiet?.to ?? "07:00", timezone: channel.quiet?.timezone ?? zone,
  repeat: channel.repeat ?? "first",
  remind_after_seconds: String(channel.remind_after_seconds ?? 86_400),
});

function bodyOf(type, form) {
  const { name, events, tags, isQuiet, quietFrom: from, quietTo: to, timezone, repeat } = form;
  const value = (setting) => {
    const text = form[setting].trim();
    return !text ? null : setting === "priority" ? Number(text) : text;
  };
  return {
    ...(name.trim() && { name: name.trim() }),
    ...Object.fromEntries(settingsOf(type).map((setting) => [setting, value(setting)])),
    events, tags, quiet: isQuiet ? { from, to, timezone: timezone.trim() } : null,
    repeat, remind_after_seconds: Number(form.remind_after_seconds),
  };
}

const entries = (body, isSent) => Object.fromEntries(Object.entries(body).filter(isSent));

export const createBody = (type, form) =>
  ({ type, ...entries(bodyOf(type, form), ([, value]) => value !== null) });

/** Only what was changed: a secret that is left as it is shown is not sent. */
export function patchBody(type, form, was) {
  const old = bodyOf(type, was);
  const isNew = ([name, value]) => JSON.stringify(value) !== JSON.stringify(old[name]);
  return entries(bodyOf(type, form), isNew);
}

const QUIET = { __proto__: null, from: "quietFrom", to: "quietTo", timezone: "timezone" };

/** `{problems: {field: text}, rest: [text]}` of an ApiError; `rest` belongs to no field. */
export function problemsOf({ problems: found = [], message }, type) {
  const fields = [...settingsOf(type), "name", "events", "tags", "repeat",
    "remind_after_seconds"];
  const problems = {};
  const rest = [];
  for (const { loc: [, first, second], msg } of found) {
    const field = first === "quiet" ? QUIET[second] ?? "quietFrom"
      : fields.find((name) => name === first);
    const text = msg.replace(/; use the type (\w+)$/,
      (_, other) => `; add a channel for ${SERVICES[other].name} instead`);
    if (!field) rest.push(first === undefined ? text : `${first}: ${text}`);
    else problems[field] ??= text;
  }
  return { problems, rest: found.length ? rest : [message] };
}

// The rest is written by the tests from `src/domain/channel/services`: the settings of a type, each
// `[name, label, more of a field]`.
export const SETTINGS = {
  __proto__: null,
  email: [
    ["to", "Email address", { type: "email" }],
  ],
  webhook: [
    ["url", "URL", { type: "url", placeholder: "https://example.com/cued" }],
  ],
  ntfy: [
    ["url", "Topic URL", { type: "url", placeholder: "https://ntfy.sh/backups-x7qz" }],
    ["token", "Access token (optional)"],
    ["priority", "Priority", { choices: PRIORITIES }],
  ],
  slack: [
    ["url", "Webhook URL", { type: "url", placeholder: "https://hooks.slack.com/services/…" }],
  ],
  discord: [
    ["url", "Webhook URL", { type: "url", placeholder: "https://discord.com/api/webhooks/…" }],
  ],
  mattermost: [
    ["url", "Webhook URL", { type: "url", placeholder: "https://mattermost.example.com/hooks/…" }],
  ],
  teams: [
    ["url", "Webhook URL", { type: "url", placeholder: "https://….logic.azure.com/workflows/…" }],
  ],
  telegram: [
    ["bot_token", "Bot token", { placeholder: "123456789:AA…" }],
    ["chat_id", "Chat id", { help: "A number, negative for a group, or the name of a public chat as in @backups." }],
    ["api_url", "API URL (optional)", { type: "url", placeholder: "https://api.telegram.org", help: "Only for a Bot API server of your own." }],
  ],
  gotify: [
    ["url", "Server URL", { type: "url", placeholder: "https://gotify.example.com" }],
    ["token", "Application token"],
  ],
  pushover: [
    ["token", "API token"],
    ["user", "User key"],
    ["api_url", "API URL (optional)", { type: "url", placeholder: "https://api.pushover.net", help: "Only if you reach Pushover through a proxy." }],
  ],
};
